//! `everwhen audit`: who administered what, and whether the ledger is the one that was signed.

use clap::Subcommand;
use engine::maintain::audit::Testimony;
use model::{Code, Problem, Timestamp};
use serde_json::Value;

use super::stdin;
use crate::output::Stop;
use crate::reach::{Reach, audit};
use crate::session::Session;

/// Acts shown at a time.
const PAGE: usize = 1_000;

/// Who administered what, and whether the ledger is still the one that was signed
///
/// Every act of administration is an event engine.audit.* with its actor. The chain of the ledger is signed when a segment is
/// full, every ten minutes, and at the end: keep what `export` prints elsewhere, and a ledger that is rewritten or cut later
/// is told by `verify`, even if its chain was computed anew.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen audit list
  everwhen audit export
  everwhen audit verify --checkpoints /elsewhere/checkpoints.jsonl")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Acts of administration, newest first
    #[command(after_long_help = "Examples:\n  everwhen audit list --since 2026-01-01T00:00:00Z --limit 20")]
    List {
        /// Not those before this instant; 1h is an hour ago
        #[arg(long, value_name = "INSTANT")]
        since: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Sign the ledger as it is now, and print the key and every checkpoint, one a line
    #[command(after_long_help = "Examples:\n  everwhen audit export")]
    Export,
    /// Compare the ledger with its checkpoints; exit 7 when it is not the one they speak of
    #[command(after_long_help = "\
Examples:
  everwhen audit verify
  everwhen audit verify --checkpoints /elsewhere/checkpoints.jsonl --key /elsewhere/key")]
    Verify {
        /// What `export` printed, instead of what lies beside the ledger
        #[arg(long, value_name = "FILE")]
        checkpoints: Option<String>,
        /// The public key, 64 hex digits or the first line of an export, instead of that of the directory
        #[arg(long, value_name = "FILE")]
        key: Option<String>,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    match args.what {
        What::List { since, limit } => {
            let since = since.as_deref().map(super::events::instant).transpose()?;
            list(&Reach::existing(session).await?, since, limit, session).await
        }
        What::Export => {
            let testimony = Reach::existing(session).await?.testimony().await?;
            testimony.lines().iter().try_for_each(|line| session.out.line(line))?;
            session.out.flush()
        }
        What::Verify { checkpoints, key } => {
            let report = audit::verify(session, given(checkpoints, key)?).await?;
            session.out.result(&report, || words(&report))?;
            if report["ok"] == true { Ok(()) } else { Err(Stop::Code(7)) }
        }
    }
}

fn given(checkpoints: Option<String>, key: Option<String>) -> Result<Option<Testimony>, Problem> {
    let read = |name: String| -> Result<String, Problem> {
        let text = String::from_utf8(stdin::read(&name)?);
        text.map_err(|_| Problem::new(Code::UsageInvalid, format!("\"{name}\" is not text")))
    };
    if checkpoints.is_none() && key.is_none() {
        return Ok(None);
    }
    let mut given = Testimony::default();
    if let Some(name) = checkpoints {
        given = Testimony::parse(&read(name.clone())?)?;
        if given.checkpoints.is_empty() {
            return Err(Problem::new(Code::UsageInvalid, format!("\"{name}\" holds no checkpoint"))
                .hint("give what `everwhen audit export` printed"));
        }
    }
    if let Some(name) = key {
        let text = read(name)?;
        let line = text.lines().next().unwrap_or_default().trim();
        let told =
            serde_json::from_str::<Value>(line).ok().and_then(|line| line["key"].as_str().map(str::to_owned));
        given.key = told.unwrap_or_else(|| line.to_owned());
    }
    Ok(Some(given))
}

async fn list(reach: &Reach, since: Option<Timestamp>, limit: usize, session: &Session) -> Result<(), Stop> {
    let (mut left, mut cursor) = (limit, None);
    while left > 0 {
        let (acts, next) = reach.acts(since, left.min(PAGE), cursor).await?;
        left = left.saturating_sub(acts.len());
        for act in &acts {
            match session.out.json {
                true => session.out.line(&act.to_string())?,
                false => session.out.line(&one_line(act))?,
            }
        }
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    session.out.flush()
}

fn one_line(act: &Value) -> String {
    let text = |name: &str| act[name].as_str().unwrap_or_default();
    let line = format!(
        "{}  {:<24}  {:<24}  {}  {}",
        text("recorded_at"),
        text("actor"),
        text("act"),
        text("path"),
        text("request_id")
    );
    line.trim_end().to_owned()
}

fn words(report: &Value) -> String {
    let mut text = format!(
        "{} {}: positions {} to {}, {} checkpoints agree, {} speak of what was trimmed",
        if report["ok"] == true { "ok" } else { "NOT THE SAME" },
        report["tenant"].as_str().unwrap_or_default(),
        report["first"],
        report["last"],
        report["checkpoints"],
        report["trimmed"],
    );
    for problem in report["problems"].as_array().into_iter().flatten() {
        let (kind, message) = (problem["kind"].as_str(), problem["message"].as_str());
        let (kind, message) = (kind.unwrap_or_default(), message.unwrap_or_default());
        text += &format!("\n  {kind} at position {}: {message}", problem["position"]);
    }
    text
}
