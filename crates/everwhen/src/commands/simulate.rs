//! `everwhen simulate`: one event against what is declared now, with nothing written.

use std::time::Duration;

use serde_json::{Value, json};

use super::entity;
use super::runs::{length, text};
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// What would this event do? Nothing is written
///
/// The event is judged by the definitions and rows that are in force now, by the same code that judges real ones: which
/// automations it would start and why not the others, which steps their runs would take, what they would publish and
/// whom they would ask. Requests to the outside are not sent; each is answered with success and null.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen simulate order.placed '{\"total\": 700}'
  everwhen simulate order.placed '{\"total\": 700}' --advance 1h --json | jq .runs")]
pub struct Args {
    /// The event's topic
    topic: String,
    /// Its payload, JSON [default: {}]
    payload: Option<String>,
    /// What it is about, as KIND/ID
    #[arg(long, value_name = "KIND/ID")]
    subject: Option<String>,
    /// Then let so much time pass
    #[arg(long, value_name = "D", value_parser = length)]
    advance: Option<Duration>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let mut event = json!({"topic": args.topic});
    if let Some(payload) = args.payload.as_deref() {
        event["payload"] = entity::json(payload)?;
    }
    if let Some((kind, id)) = args.subject.as_deref().and_then(|subject| subject.split_once('/')) {
        event["subject"] = json!({"kind": kind, "id": id});
    }
    let told = reach.simulate(&event, args.advance.unwrap_or_default()).await?;
    session.out.result(&told, || lines(&told).join("\n"))
}

fn lines(told: &Value) -> Vec<String> {
    let list = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    for decision in list("automations") {
        let reason = decision["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let (name, outcome) = (text(&decision["automation"]), text(&decision["outcome"]));
        lines.push(format!("{name:<32}  {outcome}{reason}"));
        if !decision["values"].is_null() && outcome != "ran" {
            lines.push(format!("    saw {}", decision["values"]));
        }
    }
    for run in list("runs") {
        lines.push(format!("run of {}: {}", text(&run["automation"]), text(&run["status"])));
        for step in run["steps"].as_array().into_iter().flatten() {
            let (status, kind) = (text(&step["status"]), text(&step["kind"]));
            lines.push(format!("  {status:<10} {kind:<12} {}", text(&step["path"])));
        }
        for wait in run["waits"].as_array().into_iter().flatten() {
            lines.push(format!("  waits      {:<12} {}", text(&wait["kind"]), super::runs::due(wait)));
        }
    }
    lines.extend(list("woken").iter().map(|run| format!("wakes {}", text(run))));
    lines.extend(
        list("events")
            .iter()
            .map(|event| format!("publishes {} {}", text(&event["topic"]), event["payload"])),
    );
    lines.extend(list("effects").iter().map(|effect| format!("asks outside {effect}")));
    lines
}
