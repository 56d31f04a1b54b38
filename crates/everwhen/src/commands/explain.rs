//! `everwhen explain`: why an event, an automation or a run did what it did, and why not.

use clap::Subcommand;
use serde_json::Value;

use super::runs::{instant, text, words};
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
        /// Count from this instant on; 1h is an hour ago
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
    let read = || -> Value { serde_json::from_str(&explained).unwrap_or_default() };
    session.out.line(&match what {
        _ if session.out.json => explained,
        "event" => event(&read()),
        "automation" => automation(&read()),
        _ => of_run(&read(), reach.goes_by_token()),
    })?;
    session.out.flush()
}

fn decision(decision: &Value) -> String {
    let reason = decision["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let run = decision["run"].as_str().map(|run| format!("  {run}")).unwrap_or_default();
    let at = decision["at"].as_str().map(|at| format!("  {at}")).unwrap_or_default();
    let event = decision["event"].as_u64().map(|event| format!("  event {event}")).unwrap_or_default();
    // Only what is pending ends by itself; of others it says when they would have.
    let until = decision["until"].as_str().filter(|_| decision["outcome"] == "pending");
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    let values = match &decision["values"] {
        Value::Null => String::new(),
        values => format!("  {values}"),
    };
    format!(
        "{:<24}  {}{reason} at {}{until}{at}{event}{run}{values}",
        text(&decision["automation"]),
        text(&decision["outcome"]),
        text(&decision["gate"])
    )
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn event(explained: &Value) -> String {
    let event = &explained["event"];
    let mut lines = vec![told(event)];
    lines.extend(list(explained, "automations").map(|one| format!("  {}", decision(one))));
    for wait in list(explained, "waits") {
        let (id, automation, how) = (text(&wait["id"]), text(&wait["automation"]), text(&wait["how"]));
        lines.push(format!("  {automation:<24}  ended the wait {id}: {how}"));
    }
    for group in list(explained, "groups") {
        lines.push(format!("  group {:<18}  {}", text(&group["group"]), stands(group)));
    }
    lines.join("\n")
}

/// Where an event stands in a group, or why it is not there.
fn stands(group: &Value) -> String {
    let state = text(&group["state"]);
    match group["reason"].as_str() {
        Some("pattern") => "not_matched  its pattern, space or band is another".to_owned(),
        Some("filter_error") => format!("filtered  its filter failed: {}", text(&group["error"])),
        Some("filter") => "filtered  its filter said no".to_owned(),
        Some(reason) => format!("{state}  the group is {reason}"),
        None => state.to_owned(),
    }
}

/// An event in one line.
fn told(event: &Value) -> String {
    format!("{} at {}, {}", text(&event["topic"]), event["position"], text(&event["recorded_at"]))
}

fn automation(explained: &Value) -> String {
    let on = match (explained["enabled"] == true, explained["paused"] == true) {
        (false, _) => "off",
        (true, true) => "paused",
        (true, false) => "on",
    };
    let name = text(&explained["automation"]);
    let mut lines = vec![match (explained["reason"].as_str(), on) {
        (Some(why), "off") => {
            format!("{name} is off ({why}); everwhen automations enable {name} switches it on")
        }
        (Some(why), "paused") => {
            format!("{name} is paused ({why}); everwhen automations resume {name} goes on")
        }
        _ => format!("{name} is {on}"),
    }];
    for (outcome, reasons) in explained["counts"].as_object().into_iter().flatten() {
        let reasons = reasons.as_object().into_iter().flatten();
        let reasons: Vec<String> = reasons
            .map(
                |(reason, count)| if reason == "-" { count.to_string() } else { format!("{count} {reason}") },
            )
            .collect();
        lines.push(format!("  {outcome}: {}", reasons.join(", ")));
    }
    lines.extend(list(explained, "recent").map(|one| format!("  {}", decision(one))));
    for near in list(explained, "nearest") {
        lines.push(format!("  nearly: {} at {}: {}", text(&near["topic"]), near["position"], missed(near)));
    }
    lines.extend(list(explained, "next").map(|next| format!("  next {}", text(next))));
    if lines.len() == 1 {
        let name = text(&explained["automation"]);
        lines.push(format!("  nothing has met its triggers yet: compare `everwhen automations get {name}` with `everwhen events list`"));
    }
    lines.join("\n")
}

/// What kept an event from being an occurrence.
fn missed(near: &Value) -> String {
    let values = &near["values"];
    let row = text(&values["row"]);
    match (values["pattern"].as_str(), values["field"].as_str()) {
        (Some(pattern), _) => format!("the trigger waits for \"{pattern}\""),
        (_, Some(field)) => {
            let (prev, next) = (&values["prev"], &values["next"]);
            format!("{field} of {row} went from {prev} to {next}, wanted is {}", values["wanted"])
        }
        _ if values["wanted"]["row"].is_array() => {
            let rows = list(&values["wanted"], "row").map(text).collect::<Vec<_>>();
            format!("it is {row}, wanted is {}", rows.join(" or "))
        }
        _ => format!("stopped at {} {values}", text(&near["gate"])),
    }
}

/// Why it began, what it did, and what came of it.
fn of_run(explained: &Value, goes_by_token: bool) -> String {
    let (run, lineage) = (&explained["run"], &explained["lineage"]);
    let mut lines = words(run, goes_by_token);
    let occurrence = &run["occurrence"];
    let (by_event, at) = (lineage["event"]["topic"].is_string(), text(&occurrence["at"]));
    let began = match (occurrence["kind"].as_str(), run["parent"].as_str()) {
        (Some("event"), _) if by_event => told(&lineage["event"]),
        (_, Some(parent)) => format!("a call by {parent} ({}) at {at}", text(&run["invoked_by"])),
        (kind, None) => format!("{} at {at}", kind.unwrap_or_default()),
    };
    lines.push(format!("  because of {began}"));
    if by_event && occurrence["kind"] != "event" {
        lines.push(format!("  goes back to {}", told(&lineage["event"])));
    }
    if !explained["decision"].is_null() {
        lines.push(format!("  decided: {}", decision(&explained["decision"])));
    }
    lines.extend(list(lineage, "causes").map(|cause| format!("  caused by {}", told(cause))));
    effects(lineage, 1, &mut lines);
    lines.join("\n")
}

/// What something led to, each below what it came from.
fn effects(of: &Value, depth: usize, lines: &mut Vec<String>) {
    for effect in list(of, "effects") {
        let indent = "  ".repeat(depth);
        let what = match effect.get("event") {
            Some(event) => told(event),
            None => super::show::run(&effect["run"]),
        };
        lines.push(format!("{indent}led to {what}"));
        effects(effect, depth + 1, lines);
    }
}
