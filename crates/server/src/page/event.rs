//! `/ui/events/{id}`: one event, what caused it, what it led to, and what each automation and group made of it.

use axum::extract::Path;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::Value;

use super::html::{
    Head, facts, instant, json, link, list, page, plain, state, table, to_automation, to_group, to_run,
};
use super::{Shown, Visit, said};
use crate::{events, runs};

pub async fn event(Path(id): Path<String>, visit: Visit) -> Response {
    visit.frame().around(shown(id, visit).await)
}

async fn shown(id: String, visit: Visit) -> Shown {
    let lineage = said(events::lineage(Path(id.clone()), visit.again().asking("")?).await).await?;
    let why = runs::explain(Path(("event".to_owned(), id)), visit.asking("")?).await;
    let why = said(why).await.unwrap_or_default();
    let event = &lineage["event"];
    let title = format!("{} at {}", event["topic"].as_str().unwrap_or_default(), event["position"]);
    let body = [about(event), causes(&lineage), effects(&lineage), automations(&why), groups(&why)].concat();
    Ok(page(StatusCode::OK, &Head { title: &title, at: "/" }, &body))
}

fn about(event: &Value) -> String {
    let known = ["id", "space", "actor", "source", "type", "caused_by", "band", "key", "trace", "run"];
    let mut shown = vec![("recorded", instant(&event["recorded_at"])), ("happened", instant(&event["time"]))];
    shown.extend(known.iter().map(|name| (*name, plain(&event[*name]))));
    let subject = &event["subject"];
    if subject.is_object() {
        shown.push(("subject", format!("{}/{}", plain(&subject["kind"]), plain(&subject["id"]))));
    }
    format!("{}<h2>Payload</h2>{}", facts(&shown), json(&event["payload"]))
}

fn causes(lineage: &Value) -> String {
    let rows: Vec<String> =
        list(&lineage["causes"]).iter().map(|cause| format!("<li>{}</li>", one(cause))).collect();
    match rows.is_empty() {
        true => "<h2>Causes</h2><p class=\"none\">Nothing recorded here caused it.</p>".to_owned(),
        false => format!("<h2>Causes, nearest first</h2><ol>{}</ol>", rows.concat()),
    }
}

fn one(event: &Value) -> String {
    let position = plain(&event["position"]);
    format!("{} {}", link(&format!("/ui/events/{position}"), &position), plain(&event["topic"]))
}

fn effects(lineage: &Value) -> String {
    match list(&lineage["effects"]) {
        [] => "<h2>Effects</h2><p class=\"none\">Nothing came of it.</p>".to_owned(),
        effects => format!("<h2>Effects</h2>{}", tree(effects)),
    }
}

fn tree(effects: &[Value]) -> String {
    let items = effects.iter().map(|effect| {
        let what = match &effect["run"] {
            Value::Null => one(&effect["event"]),
            run => of_run(run),
        };
        let below = list(&effect["effects"]);
        let below = if below.is_empty() { String::new() } else { tree(below) };
        format!("<li>{what}{below}</li>")
    });
    format!("<ul>{}</ul>", items.collect::<String>())
}

/// A run in a tree stands there whole or by its id.
fn of_run(run: &Value) -> String {
    let id = if run.is_string() { run } else { &run["id"] };
    let (name, status) = (plain(&run["automation"]), run["status"].as_str().map(state).unwrap_or_default());
    format!("run {} {name} {status}", to_run(id))
}

fn automations(why: &Value) -> String {
    let rows: Vec<Vec<String>> = list(&why["automations"]).iter().map(decision).collect();
    let columns = ["Automation", "Outcome", "Reason", "Gate", "Run", "Values"];
    format!(
        "<h2>Why and why not</h2>{}",
        table("What each automation made of it", &columns, &rows, "No automation is concerned.")
    )
}

/// One decision as a row.
pub fn decision(decision: &Value) -> Vec<String> {
    let run = Some(&decision["run"]).filter(|run| run.is_string()).map(to_run);
    let values = &decision["values"];
    vec![
        to_automation(&decision["automation"]),
        decision["outcome"].as_str().map(state).unwrap_or_default(),
        plain(&decision["reason"]),
        plain(&decision["gate"]),
        run.unwrap_or_default(),
        if values.is_null() { String::new() } else { format!("<code>{}</code>", plain(values)) },
    ]
}

fn groups(why: &Value) -> String {
    let row = |group: &Value| {
        vec![to_group(&group["group"]), group["state"].as_str().map(state).unwrap_or_default()]
    };
    let rows: Vec<Vec<String>> = list(&why["groups"]).iter().map(row).collect();
    table("Groups", &["Group", "State"], &rows, "No group takes it.")
}
