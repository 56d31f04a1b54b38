//! Seed 000's frames: requests read and answered, events and deliveries written (origins §1.12; contracts §13).

use engine::Delivery;
use model::Problem;
use model::event::{Event, push_text};
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
        sized(refused("", &problem))
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

pub fn refused(message_id: impl Into<Value>, problem: &Problem) -> String {
    json!({"message_id": message_id.into(), "payload": {"error": Value::Object(problem.to_json())}})
        .to_string()
}

/// The answer to one message, whatever it says.
pub async fn answer(session: &mut Session<Frames>, said: &[u8]) -> String {
    let mut said = match body::value(said) {
        Ok(Value::Object(said)) => said,
        Ok(_) => return refused("", &wrong("", "a message is a JSON object")),
        Err(problem) => return refused("", &problem),
    };
    if said.get("type").is_some_and(Value::is_string) {
        return automations::answer(session, said).await;
    }
    let id = match said.get("message_id") {
        None | Some(Value::Null) => Value::from(""),
        Some(Value::String(id)) if id.len() <= NAME_BYTES_MAX => Value::from(id.as_str()),
        Some(Value::Number(id)) => Value::from(id.clone()),
        Some(_) => {
            let detail = "\"message_id\" is a text of up to 128 bytes or a number";
            return refused("", &wrong("/message_id", detail));
        }
    };
    let Some(Value::Object(payload)) = said.remove("payload") else {
        let detail = "\"payload\" is an object that says what is asked for";
        return refused(id, &wrong("/payload", detail).hint(REQUESTS));
    };
    match request(session, payload).await {
        Ok(ok) => json!({"message_id": id, "payload": {"ok": ok}}).to_string(),
        Err(problem) => refused(id, &problem),
    }
}
