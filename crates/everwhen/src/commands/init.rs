//! `everwhen init`: a data directory and a settings file, ready to be read and changed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use engine::{Engine, Options};
use model::{Code, Problem};
use serde_json::json;

use crate::config::{Config, TEMPLATE, variable};
use crate::output::Stop;
use crate::session::Session;

/// Make a data directory and a commented everwhen.toml
///
/// What is already there is left as it is.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen init
  everwhen init shop && cd shop && everwhen serve")]
pub struct Args {
    /// Where everwhen.toml goes, and .everwhen beside it
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let dir = args.dir.clone().unwrap_or_default();
    let file = session.flags.config.clone().unwrap_or_else(|| dir.join("everwhen.toml"));
    let mut created = Vec::new();
    if write_template(&file)? {
        created.push(file.clone());
    }
    let data = match (&session.flags.data, variable("EVERWHEN_DATA")?) {
        (Some(data), _) => data.clone(),
        (None, Some(data)) => data.into(),
        (None, None) => Config::load(Some(&file), &|_| None)?.data,
    };
    if !data.join("tenants").exists() {
        created.push(data.clone());
    }
    make_data(&data)?;
    told(session, &file, &data, &created)
}

fn write_template(file: &Path) -> Result<bool, Problem> {
    let wrong = |error: std::io::Error| {
        let code = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::StorageReadOnly,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StorageFull,
            _ => Code::StorageFailed,
        };
        Problem::new(code, format!("\"{}\" cannot be written: {error}", file.display()))
            .hint("name a folder that you may write: everwhen init DIR")
    };
    if file.exists() {
        return Ok(false);
    }
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent).map_err(wrong)?;
    }
    std::fs::write(file, TEMPLATE).map_err(wrong)?;
    Ok(true)
}

/// Opens and closes the directory once: afterwards it exists with its first tenant. One that a server holds does.
fn make_data(data: &Path) -> Result<(), Problem> {
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        match Engine::open_with(data, Options { create: true, ..Options::default() }) {
            Ok(engine) => {
                engine.tenant("main")?;
                engine.close().await
            }
            Err(problem) if problem.code() == Code::StoreLocked => Ok(()),
            Err(problem) => Err(problem),
        }
    })
}

fn told(session: &Session, file: &Path, data: &Path, created: &[PathBuf]) -> Result<(), Stop> {
    let names: Vec<String> = created.iter().map(|path| path.display().to_string()).collect();
    let answer = json!({ "config": file, "data": data, "created": names });
    session.out.result(&answer, || match names.is_empty() {
        true => "everything is there already".to_owned(),
        false => format!("created {}", names.join(" and ")),
    })?;
    session.out.note("next: everwhen serve, or at once: everwhen publish hello.world '{\"n\": 1}'");
    Ok(())
}
