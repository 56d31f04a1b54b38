//! What the ledger knows of keys: that something was done under one, and with it the answer unless it holds users' data or secrets.
//!
//! ```text
//!  several events   the note is the last record of their commit, and says which they are: there is no moment between them
//!  anything else    the note is written after the act, and before its answer is given
//! ```

use bytes::Bytes;
use engine::tenant::Expected;
use engine::{Caller, Draft, Outcome, Receipt, Tenant};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::{Given, PUBLISH, Print};
use crate::{Doors, aside, audit, caller, publish};

/// Longest answer that stands in the ledger.
const NOTE_BYTES_MAX: usize = 16 << 10;
const TOPIC: &str = "engine.request.answered";

/// What is durable, and whose answers hold neither users' data nor secrets.
const NOTED: [&str; 6] =
    ["/v1/automations", "/v1/runs", "/v1/waits", "/v1/subscriptions", "/v1/apply", "/v1/erase"];
/// What changes nothing that lasts, or may not. Of everything else, that it was done is noted.
const PASSING: [&str; 10] = [
    "/v1/plan",
    "/v1/queries/",
    "/v1/simulate",
    "/v1/backtest",
    "/v1/tasks/",
    "/v1/clock",
    "/v1/verify",
    "/v1/backup",
    "/v1/audit",
    "/mcp",
];
/// What is asked of a group for single deliveries, whose tokens say which.
const OF_DELIVERIES: [&str; 5] = ["/pull", "/ack", "/nack", "/extend", "/reject"];
/// Doors whose 200 shows a run, and with it what it made of its event.
const OF_RUNS: [&str; 2] = ["/v1/automations", "/v1/runs"];

/// A key whose note goes into the commit of what is done under it.
#[derive(Clone)]
pub struct Noting {
    id: String,
    print: Print,
}

/// What became of a key before.
pub enum Found {
    Nothing,
    Another,
    Done(Option<Given>),
}

fn id_of(key: &str) -> String {
    let key = Value::from(key).to_string();
    format!("idempotency:{}", &model::id::hex(&model::json::canonical_hash([key.as_str()]))[..32])
}

fn house() -> Caller {
    Caller { actor: "system:http".to_owned(), outside: false, ..Caller::local() }
}

fn draft(id: String, said: &Value) -> Draft {
    Draft { id: Some(id), space: Some("_system".to_owned()), ..Draft::new(TOPIC, said) }
}

impl Noting {
    pub fn new(key: &str, print: Print) -> Noting {
        Noting { id: id_of(key), print }
    }

    /// Who notes what about several events, of which this is known before they are recorded.
    pub fn about(&self, events: &[Expected]) -> (Caller, Draft) {
        let status = StatusCode::CREATED.as_u16();
        let mut said = json!({"request": model::id::hex(&self.print), "path": PUBLISH, "status": status});
        let events = (Value::from(rows(events)), print_of(events.iter().filter_map(id)));
        if events.0.to_string().len() <= NOTE_BYTES_MAX {
            (said["events"], said["ids"]) = (events.0, events.1.into());
        }
        (house(), draft(self.id.clone(), &said))
    }
}

fn id(event: &Expected) -> Option<&str> {
    match event {
        Expected::Recorded { id } => Some(id),
        _ => None,
    }
}

/// Tells whether what stands before the note is what was published with it: a key that somebody else took in that moment is not.
fn print_of<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let ids = Value::from(ids.collect::<Vec<_>>()).to_string();
    model::id::hex(&model::json::canonical_hash([ids.as_str()]))[..16].to_owned()
}

/// ```text
///  3                          so many events, recorded one after the other
///  {"verdict": "defer", …}    a record as well, and its answer
///  {"verdict": "drop", …}     no record; its answer
///  {"repeats": 7}             no record; the event at position 7 has its key
///  {"again": 0}               no record; the first of the array has its key
///  {"waits": {…}}             no record; its key waits for its time, and this was the answer
/// ```
fn rows(events: &[Expected]) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    for event in events {
        let row = match event {
            Expected::Recorded { .. } => {
                let before = rows.pop_if(|row| row.is_u64()).and_then(|row| row.as_u64());
                Value::from(before.unwrap_or(0) + 1)
            }
            Expected::Deferred { until } => Outcome::Deferred { until: *until }.to_json(),
            Expected::Repeated { position } => json!({ "repeats": position }),
            Expected::Again { index } => json!({ "again": index }),
            Expected::Known(outcome @ Outcome::Deferred { .. }) => json!({ "waits": outcome.to_json() }),
            Expected::Known(outcome) => outcome.to_json(),
        };
        rows.push(row);
    }
    rows
}

/// What the ledger knows of a key.
pub async fn find(tenant: &Tenant, key: &str, print: Print) -> Found {
    let (tenant, id) = (tenant.clone(), id_of(key));
    let found = move || {
        let event = tenant.event(&id).ok()?;
        let own = event.envelope.topic == TOPIC;
        let note: Value = serde_json::from_str(event.content.payload().filter(|_| own)?).ok()?;
        Some(match note["request"] == model::id::hex(&print) {
            true => Found::Done(given(&note).or_else(|| several(&tenant, &note, event.position))),
            false => Found::Another,
        })
    };
    aside::blocking(move || Ok(found())).await.ok().flatten().unwrap_or(Found::Nothing)
}

fn given(note: &Value) -> Option<Given> {
    answer(note, note["answer"].as_str()?.to_owned())
}

fn answer(note: &Value, body: String) -> Option<Given> {
    let status = StatusCode::from_u16(note["status"].as_u64()? as u16).ok()?;
    let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let headers = if body.is_empty() { Vec::new() } else { vec![json] };
    Some(Given { status, headers, body: Bytes::from(body) })
}

/// What was answered for several events. `None` when it cannot be told any more: something was trimmed, or is not what was
/// expected to stand there.
fn several(tenant: &Tenant, note: &Value, position: u64) -> Option<Given> {
    let rows = note["events"].as_array()?;
    let mut next = position.checked_sub(rows.iter().map(records).sum())?;
    let mut outcomes: Vec<String> = Vec::new();
    let mut ids = Vec::new();
    for row in rows {
        for place in 0..row.as_u64().unwrap_or(1) {
            outcomes.push(match (row, &row["repeats"], &row["again"], &row["waits"]) {
                (Value::Number(_) | Value::String(_), ..) => {
                    let (id, text) = receipt(tenant, next + place, false)?;
                    // So it was written before there was a print of them all.
                    row.as_str().is_none_or(|own| own == id).then(|| ids.push(id))?;
                    text
                }
                (_, Value::Number(of), ..) => receipt(tenant, of.as_u64()?, true)?.1,
                (_, _, Value::Number(of), _) => again(outcomes.get(of.as_u64()? as usize)?),
                (_, _, _, waits @ Value::Object(_)) => waits.to_string(),
                _ => row.to_string(),
            });
        }
        next += records(row);
    }
    let own = note["ids"].as_str().is_none_or(|print| print_of(ids.iter().map(String::as_str)) == print);
    own.then(|| answer(note, format!("{{\"events\":[{}]}}", outcomes.join(","))))?
}

/// How many records a row of a note stands for.
fn records(row: &Value) -> u64 {
    match row {
        Value::Number(events) => events.as_u64().unwrap_or(0),
        Value::String(_) => 1,
        other => u64::from(other["verdict"] == "defer"),
    }
}

/// The id and the answer for the event at a position.
fn receipt(tenant: &Tenant, position: u64, duplicate: bool) -> Option<(String, String)> {
    let event = tenant.event(&position.to_string()).ok()?;
    let (id, recorded_at) = (event.envelope.id.clone(), event.recorded_at);
    let mut out = String::new();
    let receipt = Receipt { id: id.clone(), position: event.position, recorded_at, duplicate };
    publish::write_outcome(&mut out, &Outcome::Recorded(receipt));
    Some((id, out))
}

/// An earlier answer, for one that repeats it; of what waits it is the same.
fn again(answer: &str) -> String {
    match answer.contains("\"position\":") && !answer.ends_with("\"duplicate\":true}") {
        true => format!("{},\"duplicate\":true}}", answer.trim_end_matches('}')),
        false => answer.to_owned(),
    }
}

/// Notes what was done and answered, if it lasts.
pub async fn note(doors: &Doors, tenant: &Tenant, (key, print, path): (&str, Print, &str), given: &Given) {
    let within = |list: &[&str]| list.iter().any(|root| path.starts_with(root));
    if within(&PASSING) || of_deliveries(path) {
        return;
    }
    let mut said = json!({"request": model::id::hex(&print), "path": path, "status": given.status.as_u16()});
    let text = std::str::from_utf8(&given.body).ok().filter(|text| text.len() <= NOTE_BYTES_MAX);
    let shows_a_run = given.status == StatusCode::OK && within(&OF_RUNS);
    if let Some(text) = text.filter(|_| within(&NOTED) && !shows_a_run) {
        said["answer"] = text.into();
    }
    // The tenant may have begun with this very request.
    let tenant = caller::visited(doors, tenant.name()).await.unwrap_or_else(|_| tenant.clone());
    if let Err(problem) = tenant.publish(&house(), draft(id_of(key), &said)).await {
        let request_id = audit::request_id();
        tracing::warn!(request_id, %problem, "an idempotency key could not be noted; it is known until the server stops");
    }
}

fn of_deliveries(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.starts_with("/v1/groups/") && OF_DELIVERIES.iter().any(|end| path.ends_with(end))
}
