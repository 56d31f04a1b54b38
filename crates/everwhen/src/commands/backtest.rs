//! `everwhen backtest`: a draft over the real ledger, beside what really ran.

use std::path::PathBuf;

use engine::tenant::backtest::Edge;
use lang::declare::{Severity, check_workspace};
use model::{Code, Problem, Timestamp};
use serde_json::Value;

use super::runs::text;
use super::sources;
use crate::output::{Stop, counted};
use crate::reach::Reach;
use crate::reach::runs::no_edge;
use crate::session::Session;

/// What would these automations have done with the events that really came?
///
/// Every event between --from and --to is judged by the draft, at its own time and by the code that judges real ones, and
/// its runs walk to their end. Nothing is written and nothing is asked of the outside: each request is answered with
/// success and null. Runs are compared with those that automations of the same names really had.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen backtest page.yaml --from 2026-01-01T00:00:00Z
  everwhen backtest page.yaml --from 2h
  everwhen backtest page.yaml --from 1000 --to 2000
  everwhen backtest examples/health --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --json")]
pub struct Args {
    /// Files, or folders of domains
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// From here on: a position, an instant, or a length of time back from now [default: the beginning]
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// Up to here, said in the same way [default: now]
    #[arg(long, value_name = "T")]
    to: Option<String>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let sources = sources::read(&args.paths)?;
    let checked = check_workspace(&sources.files);
    let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
    for finding in errors.clone() {
        session.out.note(&finding.render(&sources.files[&finding.file]));
    }
    if checked.has_errors() {
        let detail = format!("{} in the declarations, nothing was tried", counted(errors.count(), "error"));
        return Err(Problem::new(Code::DefinitionInvalid, detail)
            .hint("everwhen check shows them all")
            .into());
    }
    let window = (args.from.as_deref(), args.to.as_deref());
    for text in [window.0, window.1].into_iter().flatten() {
        Edge::parse(text, Timestamp::EPOCH).ok_or_else(|| no_edge(text))?;
    }
    let told = Reach::existing(session).await?.backtest(&sources.files, window).await?;
    session.out.result(&told, || lines(&told).join("\n"))
}

fn lines(told: &Value) -> Vec<String> {
    let mut lines =
        vec![format!("{} events from {} to {}", told["events"], text(&told["from"]), text(&told["to"]))];
    for of in told["automations"].as_array().into_iter().flatten() {
        let name = text(&of["automation"]);
        lines.push(format!(
            "{name:<32}  would run {}, did run {}, both {}",
            of["would"], of["did"], of["both"]
        ));
        for (sign, which) in [("+", "only_would"), ("-", "only_did")] {
            for run in of[which].as_array().into_iter().flatten() {
                let at = &run["occurrence"];
                let status = run["status"].as_str().unwrap_or_default();
                lines.push(format!("  {sign} {} at {}  {status}", text(&at["kind"]), text(&at["at"])));
            }
        }
    }
    lines
}
