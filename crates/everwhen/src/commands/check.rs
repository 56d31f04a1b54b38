//! `everwhen check`: every finding of a workspace at once, for people with a caret, for programs as JSON lines.

use std::path::PathBuf;

use engine::clock::{Clock, SystemClock};
use lang::declare::{Severity, check_workspace};

use super::sources;
use crate::output::Stop;
use crate::session::Session;

/// Check declarations: .ew, .yaml and .json files, or folders of them
///
/// Prints every finding with its place. Ends with 1 when there is an error; warnings alone are fine.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen check
  everwhen check examples/cognition
  everwhen check automations.yaml --json")]
pub struct Args {
    /// Files, or folders of domains: <domain>/{concepts,queries,mutations,logic,automations}.ew
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let sources = sources::read(&args.paths)?;
    let checked = check_workspace(&sources.files).at(SystemClock.now());
    for finding in &checked.findings {
        let text = &sources.files[&finding.file];
        let shown = sources.shown(finding);
        match session.out.json {
            true => session.out.line(&shown.to_json().to_string())?,
            false => session.out.line(&shown.render(text))?,
        }
    }
    session.out.flush()?;
    let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let warnings = checked.findings.len() - errors;
    let (files, made) = (sources.files.len(), checked.definitions.len());
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    session.out.note(&format!(
        "{}, {}: {}, {}",
        count(files, "file"),
        count(made, "definition"),
        count(errors, "error"),
        count(warnings, "warning")
    ));
    if errors > 0 { Err(Stop::Code(1)) } else { Ok(()) }
}
