//! `everwhen explain`: why an event, an automation or a run did what it did, and why not.

use clap::Subcommand;
use serde_json::Value;

use super::runs::{instant, text};
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Why something ran, and why something did not
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen explain event 42
  everwhen explain automation page --since 2026-01-31T00:00:00Z
  everwhen explain run run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What an event started, what it did not, and which groups it is for
    #[command(after_long_help = "Examples:\n  everwhen explain event 42 --json | jq .automations")]
    Event {
        /// Position or id
        id: String,
    },
    /// How often an automation ran or did not, and what nearly matched
    #[command(after_long_help = "Examples:\n  everwhen explain automation page")]
    Automation {
        /// The automation's name
        name: String,
        /// Count from this instant on
        #[arg(long, value_name = "T")]
        since: Option<String>,
    },
    /// A run, the decision that let it start, and what led to it
    #[command(after_long_help = "Examples:\n  everwhen explain run run_01J8Z3V4K5M6N7P8Q9R0S1T2V3")]
    Run {
        /// The run's id
        id: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let (what, id, since) = match &args.what {
        What::Event { id } => ("event", id, None),
        What::Automation { name, since } => ("automation", name, instant(since.as_deref())?),
        What::Run { id } => ("run", id, None),
    };
    let explained = reach.explain(what, id, since).await?;
    session.out.result(&explained, || match what {
        "event" => event(&explained),
        "automation" => automation(&explained),
        _ => serde_json::to_string_pretty(&explained).unwrap_or_default(),
    })
}

fn decision(decision: &Value) -> String {
    let reason = decision["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let run = decision["run"].as_str().map(|run| format!("  {run}")).unwrap_or_default();
    let values = match &decision["values"] {
        Value::Null => String::new(),
        values => format!("  {values}"),
    };
    format!(
        "{:<24}  {}{reason} at {}{run}{values}",
        text(&decision["automation"]),
        text(&decision["outcome"]),
        text(&decision["gate"])
    )
}

fn event(explained: &Value) -> String {
    let event = &explained["event"];
    let mut lines = vec![format!("{} at {}", text(&event["topic"]), event["position"])];
    lines.extend(
        explained["automations"].as_array().into_iter().flatten().map(|d| format!("  {}", decision(d))),
    );
    for group in explained["groups"].as_array().into_iter().flatten() {
        lines.push(format!("  group {:<18}  {}", text(&group["group"]), text(&group["state"])));
    }
    lines.join("\n")
}

fn automation(explained: &Value) -> String {
    let on = if explained["enabled"] == true { "on" } else { "off" };
    let mut lines = vec![format!("{} is {on}", text(&explained["automation"]))];
    for (outcome, reasons) in explained["counts"].as_object().into_iter().flatten() {
        lines.push(format!("  {outcome}: {reasons}"));
    }
    lines.extend(explained["recent"].as_array().into_iter().flatten().map(|d| format!("  {}", decision(d))));
    for near in explained["nearest"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  nearly: {} at {}: {} {}",
            text(&near["topic"]),
            near["position"],
            text(&near["gate"]),
            near["values"]
        ));
    }
    lines.join("\n")
}
