//! `everwhen fmt`: one layout for `.ew` files, written back, or only compared.

use std::path::PathBuf;

use lang::declare::format;
use model::{Code, Problem};
use serde_json::json;

use super::sources;
use crate::output::Stop;
use crate::session::Session;

/// Set the layout of .ew files; comments and line breaks stay
///
/// Files are written back only when something changes. A file that cannot be read is left alone and named.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen fmt
  everwhen fmt examples/cognition --check")]
pub struct Args {
    /// Files, or folders
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Write nothing; name the files that would change, and end with 1 when there are any
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let sources = sources::read(&args.paths)?;
    let (mut changed, mut unreadable) = (0, 0);
    for (key, text) in sources.files.iter().filter(|(key, _)| key.ends_with(".ew") || key.ends_with(".memql"))
    {
        let path = &sources.paths[key];
        let shown = path.display().to_string();
        let formatted = match format(text) {
            Ok(formatted) => formatted,
            Err(problem) => {
                unreadable += 1;
                let what = format!("{shown}: {}", problem.detail());
                let hint = problem.hint_text().unwrap_or_default();
                session.out.fail(&Problem::new(problem.code(), what).hint(hint));
                continue;
            }
        };
        if formatted == *text {
            continue;
        }
        changed += 1;
        if !args.check {
            std::fs::write(path, formatted).map_err(|err| {
                Problem::new(Code::StorageFailed, format!("cannot write \"{shown}\": {err}"))
            })?;
        }
        match session.out.json {
            true => session.out.line(&json!({ "file": shown, "changed": true }).to_string())?,
            false => session.out.line(&shown)?,
        }
    }
    session.out.flush()?;
    if unreadable > 0 || (args.check && changed > 0) { Err(Stop::Code(1)) } else { Ok(()) }
}
