//! `everwhen runs`: what automations did and do, started and stopped by hand.

use clap::Subcommand;
use engine::history::read::Wanted;
use model::{Problem, Timestamp};
use serde_json::Value;

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Runs of automations: list, look at, start, cancel
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen runs list --status failed
  everwhen runs get run_01J8Z3V4K5M6N7P8Q9R0S1T2V3
  everwhen runs start nightly '{\"day\": \"2026-01-31\"}'")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs, newest first
    #[command(after_long_help = "\
Examples:
  everwhen runs list --automation page --status waiting
  everwhen runs list --json | jq '{id, status}'")]
    List {
        /// Of this automation
        #[arg(long, value_name = "NAME")]
        automation: Option<String>,
        /// queued, running, waiting, completed, failed or cancelled
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Started at this instant or later
        #[arg(long, value_name = "T")]
        since: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// One run with its steps and waits
    #[command(after_long_help = "\
Examples:
  everwhen runs get run_01J8Z3V4K5M6N7P8Q9R0S1T2V3 --json | jq .steps")]
    Get {
        /// The run's id
        id: String,
    },
    /// Start an automation by hand
    #[command(after_long_help = "\
Examples:
  everwhen runs start nightly
  everwhen runs start nightly '{\"day\": \"2026-01-31\"}'")]
    Start {
        /// The automation's name
        automation: String,
        /// What it reads as `input`, JSON
        input: Option<String>,
    },
    /// End a run that is in progress; what it did stands
    #[command(after_long_help = "\
Examples:
  everwhen runs cancel run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
    Cancel {
        /// The run's id
        id: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        What::List { automation, status, since, limit } => {
            let since = since.as_deref().map(Timestamp::parse).transpose()?;
            let wanted = Wanted { automation, status, since, limit, ..Wanted::default() };
            let (runs, next) = reach.happened("runs", &wanted).await?;
            for run in &runs {
                match session.out.json {
                    true => session.out.line(&run.to_string())?,
                    false => session.out.line(&one_line(run))?,
                }
            }
            if next.is_some() {
                session.out.note("there are more: raise --limit, or narrow with --automation and --since");
            }
            session.out.flush()
        }
        What::Get { id } => shown(&reach.run(&id).await?, session),
        What::Start { automation, input } => {
            let input = input.as_deref().map(entity::json).transpose()?.unwrap_or_default();
            let started = reach.start(&automation, input).await?;
            session.out.result(&started, || text(&started["id"]))
        }
        What::Cancel { id } => shown(&reach.cancel(&id).await?, session),
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_line(run: &Value) -> String {
    let mut line = format!(
        "{}  {:<9}  {:<24}  {}",
        text(&run["id"]),
        text(&run["status"]),
        text(&run["automation"]),
        text(&run["started_at"])
    );
    if let Some(message) = run["error"]["message"].as_str() {
        line.push_str(&format!("  {message}"));
    }
    line
}

fn shown(run: &Value, session: &Session) -> Result<(), Stop> {
    session.out.result(run, || {
        let mut lines = vec![one_line(run)];
        for step in run["steps"].as_array().into_iter().flatten() {
            lines.push(format!(
                "  {:<10} {:<12} {}",
                text(&step["status"]),
                text(&step["kind"]),
                text(&step["path"])
            ));
            if let Some(message) = step["error"]["message"].as_str() {
                lines.push(format!("             {message}"));
            }
        }
        for wait in run["waits"].as_array().into_iter().flatten() {
            lines.push(format!("  waits {}  {}  {}", text(&wait["id"]), text(&wait["kind"]), due(wait)));
        }
        lines.join("\n")
    })
}

pub fn due(wait: &Value) -> String {
    wait["due"].as_str().map_or_else(|| "without an end".to_owned(), |due| format!("until {due}"))
}

/// An instant from the command line.
pub fn instant(text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(Timestamp::parse).transpose()
}
