//! `everwhen runs`: what automations did and do, started and stopped by hand.

use std::time::{Duration, Instant};

use clap::Subcommand;
use engine::history::read::Wanted;
use engine::run::question;
use engine::tenant::runs::{Bulk, REASONS, Rerun, Verb};
use model::{Code, Problem, Timestamp, time};
use serde_json::Value;

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::runs::Start;
use crate::session::Session;

/// How soon a run that is waited for is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

const STATUSES: [&str; 6] = ["queued", "running", "waiting", "completed", "failed", "cancelled"];

/// Runs of automations: list, look at, start, cancel, try again
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
        #[arg(long, value_name = "STATUS", value_parser = STATUSES)]
        status: Option<String>,
        /// Started at this instant or later; 1h is an hour ago
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
    #[command(visible_alias = "show")]
    Get {
        /// The run's id
        id: String,
    },
    /// Start an automation by hand
    #[command(after_long_help = "\
Examples:
  everwhen runs start nightly
  everwhen runs start nightly '{\"day\": \"2026-01-31\"}' --wait 10s
  everwhen runs start page --event '{\"topic\": \"api.down\", \"payload\": {}}' --dry-run")]
    Start {
        /// The automation's name
        automation: String,
        /// What it reads as `input`, JSON
        input: Option<String>,
        /// What stands for the event, JSON; without it one on automation.invocation.NAME does
        #[arg(long, value_name = "JSON")]
        event: Option<String>,
        /// Write nothing: show the run as it would be, up to its first wait
        #[arg(long)]
        dry_run: bool,
        /// Wait so long for its end, and show it
        #[arg(long, value_name = "D", conflicts_with = "dry_run", value_parser = length)]
        wait: Option<Duration>,
    },
    /// End a run that is in progress; what it did stands
    #[command(after_long_help = "\
Examples:
  everwhen runs cancel run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
    Cancel {
        /// The run's id
        id: String,
    },
    /// Begin a failed or cancelled run anew, under the version that is declared now
    #[command(after_long_help = "\
Examples:
  everwhen runs retry run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
    Retry {
        /// The run's id
        id: String,
    },
    /// Go on with a failed run from the step that failed; what was done stands
    #[command(after_long_help = "\
Examples:
  everwhen runs resume run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
    Resume {
        /// The run's id
        id: String,
    },
    /// A new run of the same occurrence, under the version that is declared now
    #[command(after_long_help = "\
Examples:
  everwhen runs rerun run_01J8Z3V4K5M6N7P8Q9R0S1T2V3
  everwhen runs rerun run_01J8Z3V4K5M6N7P8Q9R0S1T2V3 --from-step 'actions[2]'")]
    Rerun {
        /// The run's id
        id: String,
        /// Begin with this step, by its path or id; what came before it is taken from the first run
        #[arg(long, value_name = "STEP")]
        from_step: Option<String>,
        /// Also over steps that reached outside the first time
        #[arg(long)]
        allow_side_effects: bool,
    },
    /// Cancel, retry or resume many runs at once, or run what was refused
    #[command(after_long_help = "\
Examples:
  everwhen runs bulk retry --automation page --since 2026-01-31T00:00:00Z --dry-run
  everwhen runs bulk cancel --automation page --status waiting
  everwhen runs bulk run --automation page --reason storm_paused")]
    Bulk {
        /// What is done to each
        #[arg(value_enum)]
        verb: Word,
        /// Of this automation
        #[arg(long, value_name = "NAME")]
        automation: Option<String>,
        /// Of this status [default: in progress for cancel, else failed]
        #[arg(long, value_name = "STATUS", value_parser = STATUSES)]
        status: Option<String>,
        /// With `run`: which occurrences are meant, those that were refused
        #[arg(long, value_name = "OUTCOME", value_parser = ["refused"])]
        outcome: Option<String>,
        /// With `run`: why they were refused [default: storm_paused]
        #[arg(long, value_name = "REASON", value_parser = REASONS)]
        reason: Option<String>,
        /// Started, or refused, at this instant or later; 1h is an hour ago
        #[arg(long, value_name = "T")]
        since: Option<String>,
        /// Only say how many are meant
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Word {
    Cancel,
    Retry,
    Resume,
    Run,
}

impl From<Word> for Verb {
    fn from(word: Word) -> Verb {
        match word {
            Word::Cancel => Verb::Cancel,
            Word::Retry => Verb::Retry,
            Word::Resume => Verb::Resume,
            Word::Run => Verb::Run,
        }
    }
}

/// A length of time from the command line.
pub fn length(text: &str) -> Result<Duration, String> {
    time::parse_duration(text).ok_or_else(|| "not a length of time; write it like 5m or 1h30m".to_owned())
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        What::List { automation, status, since, limit } => {
            let since = instant(since.as_deref())?;
            let wanted = Wanted { automation, status, since, limit, ..Wanted::default() };
            let (runs, next) = reach.happened("runs", &wanted).await?;
            for run in &runs {
                match session.out.json {
                    true => session.out.line(&run.to_string())?,
                    false => session.out.line(&one_line(run))?,
                }
            }
            if runs.is_empty() {
                session.out.note("none");
            }
            if next.is_some() {
                session.out.note("there are more: raise --limit, or narrow with --automation and --since");
            }
            session.out.flush()
        }
        What::Get { id } => shown(&reach.run(&id).await?, &reach, session),
        What::Start { automation, input, event, dry_run, wait } => {
            let input = input.as_deref().map(entity::json).transpose()?.unwrap_or_default();
            let event = event.as_deref().map(entity::json).transpose()?;
            let started = reach.start(Start { automation, input, event, dry_run }).await?;
            match wait {
                _ if dry_run => {
                    session.out.note("dry run: nothing was written, and nobody outside was asked");
                    shown(&started, &reach, session)
                }
                Some(wait) => shown(&ended(&reach, &text(&started["id"]), wait).await?, &reach, session),
                None => session.out.result(&started, || text(&started["id"])),
            }
        }
        What::Cancel { id } => shown(&reach.operate(Verb::Cancel, &id).await?, &reach, session),
        What::Retry { id } => shown(&reach.operate(Verb::Retry, &id).await?, &reach, session),
        What::Resume { id } => shown(&reach.operate(Verb::Resume, &id).await?, &reach, session),
        What::Rerun { id, from_step, allow_side_effects } => {
            shown(&reach.rerun(&id, &Rerun { from_step, allow_side_effects }).await?, &reach, session)
        }
        What::Bulk { verb, automation, status, outcome, reason, since, dry_run } => {
            let since = instant(since.as_deref())?;
            let verb = Verb::from(verb);
            if verb != Verb::Run && (outcome.is_some() || reason.is_some()) {
                let detail = "--outcome and --reason say which occurrences are meant; runs have a --status";
                return Err(Problem::new(Code::UsageInvalid, detail).hint("everwhen runs bulk run").into());
            }
            let bulk = Bulk { verb, automation, status, reason, since, dry_run };
            let done = reach.runs_in_bulk(&bulk).await?;
            session.out.result(&done, || match dry_run {
                true => format!("{} would be meant, nothing was done", done["matched"]),
                false => format!("{} of {}", done["done"], done["matched"]),
            })
        }
    }
}

/// The run once it has ended, or as it is by then.
async fn ended(reach: &Reach, id: &str, wait: Duration) -> Result<Value, Problem> {
    let deadline = Instant::now() + wait;
    loop {
        let run = reach.run(id).await?;
        let over = matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled"));
        if over || Instant::now() >= deadline {
            return Ok(run);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
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
        text(if run["started_at"].is_null() { &run["queued_at"] } else { &run["started_at"] })
    );
    if let Some(message) = run["error"]["message"].as_str() {
        line.push_str(&format!("  {message}"));
    }
    line
}

fn shown(run: &Value, reach: &Reach, session: &Session) -> Result<(), Stop> {
    session.out.result(run, || words(run, reach.goes_by_token()).join("\n"))
}

/// A run with its steps and waits, a line each, for somebody who may go by a token.
pub fn words(run: &Value, goes_by_token: bool) -> Vec<String> {
    let mut lines = vec![one_line(run)];
    if let Some(ended) = run["ended_at"].as_str() {
        lines.push(format!("  ended {ended}"));
    }
    for step in run["steps"].as_array().into_iter().flatten() {
        let name = if step["id"].is_string() { &step["id"] } else { &step["path"] };
        lines.push(format!("  {:<10} {:<12} {}", text(&step["status"]), text(&step["kind"]), text(name)));
        if let Some(message) = step["error"]["message"].as_str() {
            lines.push(format!("             {message} [{}]", text(&step["error"]["code"])));
        }
    }
    for wait in run["waits"].as_array().into_iter().flatten() {
        let (id, kind) = (text(&wait["id"]), text(&wait["kind"]));
        lines.push(format!("  waits {id}  {kind}  {}{}", due(wait), asked(wait)));
        lines.extend(answering(wait, goes_by_token).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

pub fn due(wait: &Value) -> String {
    wait["due"].as_str().map_or_else(|| "without an end".to_owned(), |due| format!("until {due}"))
}

/// The question of a wait, and what may be answered.
pub fn asked(wait: &Value) -> String {
    let Some(question) = wait.get("question") else { return String::new() };
    let answers = question::answers(wait);
    match answers.is_empty() {
        true => format!("  {}", text(question)),
        false => format!("  {} ({})", text(question), answers.join(", ")),
    }
}

/// What else a person must know to answer a question, and what to type.
pub fn answering(wait: &Value, goes_by_token: bool) -> Vec<String> {
    if wait.get("question").is_none() {
        return Vec::new();
    }
    let said = |name: &str| wait.get(name).map(text).unwrap_or_default();
    let facts = [
        ("asked", said("to")),
        ("form", question::form(wait)),
        ("if nobody answers", said("default")),
        ("answer", question::command(wait, goes_by_token)),
    ];
    let told = facts.iter().filter(|(_, fact)| !fact.is_empty());
    told.map(|(name, fact)| format!("    {name}: {fact}")).collect()
}

/// An instant from the command line, or how long ago.
pub fn instant(text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(super::events::instant).transpose()
}
