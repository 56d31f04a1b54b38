//! Seed 000's frames: requests read and answered, events and deliveries written (origins §1.12; contracts §13).

use std::collections::BTreeMap;

use engine::Delivery;
use model::Problem;
use model::event::{Event, push_text};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::automations;
use crate::body;
use crate::session::requests::{NAME_BYTES_MAX, REQUESTS, request, wrong};
use crate::session::{Session, Wire, kinds};

pub struct Frames;

impl Wire for Frames {
    type Frame = String;

    fn event(&self, subscription: &str, event: &Event) -> (String, usize) {
        let (kind, word) = kinds::of_topic(&event.envelope.topic);
        let mut out = begun(&event.envelope.id, "event", subscription);
        out.push_str(&format!(",\"kind\":{kind},\"ts\":\"{}\",\"payload\":", event.time()));
        // The event itself, and in it what the seed's clients look for.
        let from = out.len();
        event.write_json(&mut out);
        out.insert_str(from + 1, &format!("\"eventKind\":\"{word}\",{}", node(event)));
        out.push_str("}}}");
        sized(out)
    }

    fn delivery(&self, subscription: &str, delivery: &Delivery) -> (String, usize) {
        let mut out = begun(&delivery.event.envelope.id, "delivery", subscription);
        out.push_str(",\"token\":");
        push_text(&mut out, &delivery.token.to_string());
        let (attempt, deadline) = (delivery.attempt, delivery.deadline);
        out.push_str(&format!(",\"attempt\":{attempt},\"deadline\":\"{deadline}\",\"event\":"));
        delivery.event.write_json(&mut out);
        out.push_str("}}}");
        sized(out)
    }

    fn problem(&self, subscription: &str, problem: &Problem) -> (String, usize) {
        let problem = problem.clone().with("subscription_id", subscription);
        sized(refused(&problem))
    }
}

fn sized(frame: String) -> (String, usize) {
    let bytes = frame.len();
    (frame, bytes)
}

/// `{"message_id":"evt-…","payload":{"event":{"subscription_id":…`
fn begun(id: &str, what: &str, subscription: &str) -> String {
    let mut out = String::with_capacity(768);
    out.push_str("{\"message_id\":");
    push_text(&mut out, &format!("evt-{id}"));
    out.push_str(&format!(",\"payload\":{{\"{what}\":{{\"subscription_id\":"));
    push_text(&mut out, subscription);
    out
}

/// Of what a graph event is about.
fn node(event: &Event) -> String {
    match &event.envelope.subject {
        Some(subject) if event.envelope.topic.starts_with("graph.") => {
            let mut out = "\"nodeId\":".to_owned();
            push_text(&mut out, &subject.id);
            out.push_str(",\"concept\":");
            push_text(&mut out, &subject.kind);
            out.push(',');
            out
        }
        _ => String::new(),
    }
}

/// An answer to a message that was not named, or not understood so far.
pub fn refused(problem: &Problem) -> String {
    named("\"\"", json!({"error": Value::Object(problem.to_json())}))
}

/// An answer under the name of its message, which is JSON as the client wrote it: of a long number no digit is lost.
fn named(id: &str, payload: Value) -> String {
    format!("{{\"message_id\":{id},\"payload\":{payload}}}")
}

/// A field of a message that is checked already, as it was written. Of several the last counts, as elsewhere.
pub fn written(said: &[u8], name: &str) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(said).ok()?;
    fields.get(name).map(|raw| raw.get().to_owned())
}

/// The answer to one message, whatever it says.
pub async fn answer(session: &mut Session<Frames>, bytes: &[u8]) -> String {
    let mut said = match body::value(bytes) {
        Ok(Value::Object(said)) => said,
        Ok(_) => return refused(&wrong("", "a message is a JSON object")),
        Err(problem) => return refused(&problem),
    };
    if said.get("type").is_some_and(Value::is_string) {
        return automations::answer(session, said, bytes).await;
    }
    let id = match said.get("message_id") {
        None | Some(Value::Null) => Some("\"\"".to_owned()),
        Some(Value::String(id)) if id.len() <= NAME_BYTES_MAX => Some(Value::from(id.as_str()).to_string()),
        Some(Value::Number(_)) => written(bytes, "message_id").filter(|id| id.len() <= NAME_BYTES_MAX),
        Some(_) => None,
    };
    let Some(id) = id else {
        let detail = "\"message_id\" is a text or a number of up to 128 bytes";
        return refused(&wrong("/message_id", detail));
    };
    let error = |problem: &Problem| named(&id, json!({"error": Value::Object(problem.to_json())}));
    let Some(Value::Object(payload)) = said.remove("payload") else {
        let detail = "\"payload\" is an object that says what is asked for";
        return error(&wrong("/payload", detail).hint(REQUESTS));
    };
    match request(session, payload).await {
        Ok(ok) => named(&id, json!({ "ok": ok })),
        Err(problem) => error(&problem),
    }
}
