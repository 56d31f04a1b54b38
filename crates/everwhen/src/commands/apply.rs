//! `everwhen plan` and `everwhen apply`: a workspace's definitions against those in force.

use std::path::PathBuf;

use engine::clock::{Clock, SystemClock};
use lang::declare::{Severity, check_workspace};
use model::definition::Definition;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::{sources, stdin};
use crate::output::{Stop, counted};
use crate::reach::Reach;
use crate::session::Session;

/// Put a workspace's declarations into force, all in one commit
///
/// Sets what is new or changed, removes what this workspace no longer names, and leaves alone what others manage. A change
/// that rows in the tenant do not fit is refused with their number. At a terminal it asks before it removes something.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen apply examples/cognition
  everwhen apply . --workspace health --json")]
pub struct Args {
    #[command(flatten)]
    of: Of,
    /// Do not ask before something is removed
    #[arg(long)]
    yes: bool,
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
    let answer = send(&args.of, Some(Sure(args.yes)), session).await?;
    shown(&answer, session)
}

pub async fn plan(args: PlanArgs, session: &Session) -> Result<(), Stop> {
    let answer = send(&args.of, None, session).await?;
    shown(&answer, session)?;
    let changes = ["added", "changed", "removed"].iter().any(|what| answer[*what] != serde_json::json!([]));
    if args.exit_code && changes { Err(Stop::Code(1)) } else { Ok(()) }
}

/// Whether to remove without asking.
#[derive(Clone, Copy)]
struct Sure(bool);

/// Checks the files here, where carets can be drawn, and sends them where they shall be in force; a plan only asks.
async fn send(of: &Of, apply: Option<Sure>, session: &Session) -> Result<Value, Stop> {
    let sources = sources::read(&of.paths)?;
    let checked = check_workspace(&sources.files).at(SystemClock.now());
    for finding in &checked.findings {
        session.out.note(&sources.shown(finding).render(&sources.files[&finding.file]));
    }
    let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
    if checked.has_errors() {
        let detail = format!("{} in the declarations, nothing was applied", counted(errors.count(), "error"));
        return Err(Problem::new(Code::DefinitionInvalid, detail)
            .hint("everwhen check shows them all")
            .into());
    }
    sources.check_not_empty(&checked.definitions, &of.paths)?;
    if let Some(sure) = apply {
        let reach = Reach::or_create(session).await?;
        let plan = reach.apply(&of.workspace, &sources.files, true).await?;
        may_remove(&plan, &of.workspace, sure, session)?;
        return Ok(reach.apply(&of.workspace, &sources.files, false).await?);
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

/// What was declared from another folder under the same workspace goes, and waiting runs of it with it: that is said before it
/// happens, and a person is asked. A script goes on as it always did.
fn may_remove(plan: &Value, workspace: &str, sure: Sure, session: &Session) -> Result<(), Problem> {
    let removed: Vec<&str> =
        plan["removed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if removed.is_empty() || sure.0 {
        return Ok(());
    }
    session.out.warn(&format!(
        "removes: {}; they are not among these files, and workspace \"{workspace}\" manages them. To keep or restore them, \
         apply their files together with these, or these under a --workspace of their own",
        removed.join(", ")
    ));
    if stdin::confirms(&format!("Workspace \"{workspace}\" loses them."), workspace)? {
        return Ok(());
    }
    Err(Problem::new(Code::UsageInvalid, "nothing was applied")
        .hint("type the workspace's name, or give --yes"))
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
