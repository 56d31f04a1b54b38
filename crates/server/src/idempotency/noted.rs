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
        let events: Option<Vec<Value>> = events.iter().map(shown).collect();
        if let Some(events) = events.map(Value::from).filter(|it| it.to_string().len() <= NOTE_BYTES_MAX) {
            said["events"] = events;
        }
        (house(), draft(self.id.clone(), &said))
    }
}

/// A text for what stands before the note; `None` of what only the writer knows.
fn shown(event: &Expected) -> Option<Value> {
    match event {
        Expected::Recorded { id } => Some(id.as_str().into()),
        Expected::Deferred { keyed: true, .. } => None,
        Expected::Deferred { until, .. } => Some(Outcome::Deferred { until: *until }.to_json()),
        Expected::Known(outcome) => Some(outcome.to_json()),
    }
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

/// What was answered for several events: each stands right before the one after it, and the last before the note. One that is not
/// there was a repeat, and what was said of it is not known any more.
fn several(tenant: &Tenant, note: &Value, mut position: u64) -> Option<Given> {
    let events = note["events"].as_array()?;
    let mut answers = Vec::with_capacity(events.len());
    for said in events.iter().rev() {
        if said["verdict"] != "drop" {
            position = position.checked_sub(1)?;
        }
        answers.push(match said.as_str() {
            None => said.to_string(),
            Some(id) => {
                let event = tenant.event(&position.to_string()).ok()?;
                let (position, recorded_at) = (event.position, event.recorded_at);
                let (id, own) = (id.to_owned(), event.envelope.id == id);
                let receipt = own.then_some(Receipt { id, position, recorded_at, duplicate: false })?;
                let mut out = String::new();
                publish::write_outcome(&mut out, &Outcome::Recorded(receipt));
                out
            }
        });
    }
    answers.reverse();
    answer(note, format!("{{\"events\":[{}]}}", answers.join(",")))
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
