//! `everwhen plan` and `everwhen apply`: a workspace's definitions against those in force.

use std::path::PathBuf;

use engine::clock::{Clock, SystemClock};
use lang::declare::{Severity, check_workspace};
use model::definition::Definition;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::sources;
use crate::output::{Stop, counted};
use crate::reach::Reach;
use crate::session::Session;

/// Put a workspace's declarations into force, all in one commit
///
/// Sets what is new or changed, removes what this workspace no longer names, and leaves alone what others manage. A change
/// that rows in the tenant do not fit is refused with their number.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen apply examples/cognition
  everwhen apply . --workspace health --json")]
pub struct Args {
    #[command(flatten)]
    of: Of,
}

/// Show what apply would add, change and remove
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen plan examples/cognition
  everwhen plan . --exit-code")]
pub struct PlanArgs {
    #[command(flatten)]
    of: Of,
    /// End with 1 when there are changes
    #[arg(long)]
    exit_code: bool,
}

#[derive(clap::Args)]
struct Of {
    /// Files, or folders of domains
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Who manages these definitions
    #[arg(long, value_name = "NAME", default_value = "default")]
    workspace: String,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let answer = send(&args.of, false, session).await?;
    shown(&answer, session)
}

pub async fn plan(args: PlanArgs, session: &Session) -> Result<(), Stop> {
    let answer = send(&args.of, true, session).await?;
    shown(&answer, session)?;
    let changes = ["added", "changed", "removed"].iter().any(|what| answer[*what] != serde_json::json!([]));
    if args.exit_code && changes { Err(Stop::Code(1)) } else { Ok(()) }
}

/// Checks the files here, where carets can be drawn, and sends them where they shall be in force.
async fn send(of: &Of, dry_run: bool, session: &Session) -> Result<Value, Stop> {
    let sources = sources::read(&of.paths)?;
    if sources.files.is_empty() {
        // Everything that the workspace manages would go, and nobody who stands in the wrong folder means that.
        let paths: Vec<String> = of.paths.iter().map(|path| path.display().to_string()).collect();
        let detail = format!("there are no declarations in \"{}\"", paths.join("\", \""));
        let hint = "stand in the workspace's folder, or name it: everwhen apply PATH; to remove all that it \
                    declared, leave an empty .ew file in it";
        return Err(Problem::new(Code::DefinitionInvalid, detail).hint(hint).into());
    }
    let checked = check_workspace(&sources.files).at(SystemClock.now());
    for finding in &checked.findings {
        session.out.note(&finding.render(&sources.files[&finding.file]));
    }
    let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
    if checked.has_errors() {
        let detail = format!("{} in the declarations, nothing was applied", counted(errors.count(), "error"));
        return Err(Problem::new(Code::DefinitionInvalid, detail)
            .hint("everwhen check shows them all")
            .into());
    }
    if !dry_run {
        return Ok(Reach::or_create(session).await?.apply(&of.workspace, &sources.files, false).await?);
    }
    match Reach::existing(session).await {
        // Nothing is there yet, and a plan makes nothing.
        Err(problem)
            if matches!(problem.code(), Code::StoreNotFound | Code::NotFound | Code::TenantNotFound) =>
        {
            Ok(all_new(&checked.definitions))
        }
        reach => Ok(reach?.apply(&of.workspace, &sources.files, true).await?),
    }
}

/// The plan of a workspace where nothing is in force.
fn all_new(definitions: &[Definition]) -> Value {
    let added: Vec<String> =
        definitions.iter().map(|made| format!("{} {}", made.kind(), made.key())).collect();
    json!({"added": added, "changed": [], "removed": [], "runs_on_old_versions": {}, "position": 0})
}

fn shown(answer: &Value, session: &Session) -> Result<(), Stop> {
    session.out.result(answer, || {
        let mut lines = Vec::new();
        for (mark, what) in [("+", "added"), ("~", "changed"), ("-", "removed")] {
            let names = answer[what].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.extend(names.map(|name| format!("{mark} {name}")));
        }
        if lines.is_empty() {
            lines.push("no changes".to_owned());
        }
        let cancelled = answer["runs_cancelled"].as_object().into_iter().flatten();
        lines.extend(cancelled.map(|(name, runs)| format!("! runs of {name} that end with it: {runs}")));
        lines.extend(on_old_versions(answer));
        lines.join("\n")
    })
}

/// Runs that go on under the version they began with; not those that end with their automation.
fn on_old_versions(answer: &Value) -> Vec<String> {
    let automations = answer["runs_by_old_version"].as_object().into_iter().flatten();
    let going_on = automations.filter(|(name, _)| answer["runs_cancelled"][name.as_str()].is_null());
    let line = |(name, versions): (&String, &Value)| -> Vec<String> {
        let versions = versions.as_object().into_iter().flatten();
        versions
            .map(|(version, runs)| format!("! runs of {name} that stay on version {version}: {runs}"))
            .collect()
    };
    going_on.flat_map(line).collect()
}
