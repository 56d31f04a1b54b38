//! The messages of `proto/everwhen/v1`, between their bytes and what the engine understands.

use engine::{Delivery, Outcome, Settled};
use model::event::Event;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::proto::{Field, Message, fields, instant, structure, value, whole};
use crate::session::kinds;

/// A request over a group, whichever it is.
#[derive(Default)]
pub struct OfGroup {
    pub group: String,
    pub tokens: Vec<String>,
    pub sync: bool,
    pub max: u64,
    pub seconds: Option<f64>,
    pub error: Option<String>,
}

/// Reads one; `pull` has a count where the others have tokens.
pub fn of_group(bytes: &[u8], error_at: u32) -> Result<OfGroup, Problem> {
    let mut read = OfGroup::default();
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, field) => read.group = field.text()?.to_owned(),
            (2, Field::Number(max)) => read.max = max,
            (2, field) => read.tokens.push(field.text()?.to_owned()),
            (number, Field::Bytes(_)) if number == error_at => read.error = Some(field.text()?.to_owned()),
            (3, Field::Number(sync)) => read.sync = sync != 0,
            (3, field) => read.seconds = Some(field.double()?),
            _ => {}
        }
    }
    Ok(read)
}

/// Texts of a `PublishRequest`, by their numbers.
const NAMES: [(u32, &str); 11] = [
    (1, "topic"),
    (4, "space"),
    (5, "id"),
    (6, "key"),
    (7, "source"),
    (8, "type"),
    (11, "band"),
    (15, "trace"),
    (17, "schema"),
    (18, "caused_by"),
    (20, "content_type"),
];

fn subject(bytes: &[u8]) -> Result<Value, Problem> {
    let mut subject = json!({"kind": "", "id": ""});
    for (number, field) in fields(bytes)? {
        match number {
            1 => subject["kind"] = field.text()?.into(),
            2 => subject["id"] = field.text()?.into(),
            _ => {}
        }
    }
    Ok(subject)
}

/// The event of a `PublishRequest`, as JSON.
pub fn publication(bytes: &[u8]) -> Result<String, Problem> {
    let (mut event, mut exact) = (Map::new(), None);
    for (number, field) in fields(bytes)? {
        let (name, said) = match number {
            2 => ("payload", value(field.bytes()?)?),
            3 => {
                exact = Some(field.text()?.to_owned()).filter(|text| !text.is_empty());
                continue;
            }
            9 => ("subject", subject(field.bytes()?)?),
            10 => ("time", instant(field.bytes()?)?.to_string().into()),
            12 => ("ttl", whole(field.double()?)),
            // What has its default may stand there all the same, and is as good as absent.
            13 | 14 if field.number()? == 0 => continue,
            13 => ("priority", field.number()?.into()),
            14 => ("cause", field.number()?.into()),
            16 => ("ext", structure(field.bytes()?)?),
            19 => ("sequence", (field.number()? as i64).into()),
            number => match NAMES.iter().find(|(of, _)| *of == number) {
                Some((_, name)) if !field.text()?.is_empty() => (*name, field.text()?.into()),
                _ => continue,
            },
        };
        event.insert(name.to_owned(), said);
    }
    let Some(exact) = exact else { return Ok(Value::Object(event).to_string()) };
    // Checked by itself, so that what stands in it cannot end it and go on.
    model::json::check(exact.as_bytes(), 128).map_err(|problem| problem.within("/payload_json"))?;
    event.remove("payload");
    let rest = Value::Object(event).to_string();
    let comma = if rest.len() > 2 { "," } else { "" };
    Ok(format!("{}{comma}\"payload\":{exact}}}", &rest[..rest.len() - 1]))
}

pub fn published(outcome: &Outcome) -> Message {
    let mut message = Message::default();
    match outcome {
        Outcome::Recorded(receipt) => {
            message.text(1, &receipt.id);
            message.number(2, receipt.position);
            message.instant(3, receipt.recorded_at);
            message.number(4, receipt.duplicate.into());
        }
        other => message.text(5, other.to_json()["verdict"].as_str().unwrap_or_default()),
    }
    message
}

pub fn settled(settled: &Settled) -> Message {
    let mut message = Message::default();
    message.number(1, settled.done as u64);
    settled.stale.iter().for_each(|token| message.bytes(2, token.as_bytes()));
    message
}

/// The first of these, as many as fit and at least one, and how many that is. Only the bytes themselves tell: a number of two
/// characters takes eleven bytes in a payload.
pub fn deliveries(list: &[Delivery], bytes_max: usize) -> (Message, usize) {
    let mut message = Message::default();
    for (before, one) in list.iter().enumerate() {
        let length = message.0.len();
        message.message(1, |message| delivery(message, one));
        if before > 0 && message.0.len() > bytes_max {
            message.0.truncate(length);
            return (message, before);
        }
    }
    (message, list.len())
}

fn delivery(message: &mut Message, delivery: &Delivery) {
    message.text(1, &delivery.token.to_string());
    message.number(2, u64::from(delivery.attempt));
    message.instant(3, delivery.deadline);
    message.message(4, |message| event(message, &delivery.event));
}

fn event(message: &mut Message, event: &Event) {
    let envelope = &event.envelope;
    message.text(1, &envelope.id);
    message.number(2, event.position);
    message.text(3, &envelope.topic);
    message.text(4, &envelope.space);
    message.instant(5, event.time());
    message.instant(6, event.recorded_at);
    message.text(7, &envelope.actor);
    let payload = event.content.payload().and_then(|text| serde_json::from_str(text).ok());
    message.value(8, &payload.unwrap_or(Value::Null));
    message.text(9, &event.to_json());
}

/// A `SessionRequest`: its id, and what it asks for in the words of the WebSocket.
pub fn request(bytes: &[u8]) -> Result<(String, Map<String, Value>), Problem> {
    let (mut id, mut payload) = (String::new(), Map::new());
    for (number, field) in fields(bytes)? {
        let what = match number {
            1 => {
                id = field.text()?.to_owned();
                continue;
            }
            2 => "subscribe",
            3 => "unsubscribe",
            4 => "consume",
            5 => "credit",
            6 => "ack",
            7 => "nack",
            8 => "extend",
            9 => "reject",
            _ => continue,
        };
        // Of a oneof the last one counts.
        payload = Map::from_iter([(what.to_owned(), asked(what, field.bytes()?)?)]);
    }
    Ok((id, payload))
}

fn asked(what: &str, bytes: &[u8]) -> Result<Value, Problem> {
    let mut said = Map::new();
    let mut tokens = Vec::new();
    for (number, field) in fields(bytes)? {
        let (name, value) = match (what, number) {
            (_, 1) => ("subscription_id", field.text()?.into()),
            ("subscribe", 2) => ("kind", field.number()?.into()),
            ("subscribe", 3) => ("filter", field.text()?.into()),
            ("subscribe", 4) => ("config", structure(field.bytes()?)?),
            ("consume", 2) => ("group", field.text()?.into()),
            // In proto3 a zero that is written is the same as nothing.
            ("consume", 3) | ("credit", 2) if field.number()? == 0 => continue,
            ("consume", 3) | ("credit", 2) => ("credits", field.number()?.into()),
            ("ack" | "nack" | "extend" | "reject", 2) => {
                tokens.push(field.text()?);
                continue;
            }
            ("ack", 3) => ("sync", (field.number()? != 0).into()),
            ("nack" | "reject", 3) => ("error", field.text()?.into()),
            ("nack", 4) => ("delay", whole(field.double()?)),
            ("extend", 3) => ("by", whole(field.double()?)),
            _ => continue,
        };
        said.insert(name.to_owned(), value);
    }
    if matches!(what, "ack" | "nack" | "extend" | "reject") {
        said.insert("tokens".to_owned(), json!(tokens));
    }
    Ok(Value::Object(said))
}

/// A `SessionResponse` with one payload.
fn response(id: &str, field: u32, write: impl FnOnce(&mut Message)) -> Message {
    let mut message = Message::default();
    message.text(1, id);
    message.message(field, write);
    message
}

pub fn answer(id: &str, answer: &Result<Value, Problem>) -> Message {
    match answer {
        Ok(ok) => response(id, 2, |message| message.members(ok)),
        Err(problem) => refused(id, problem),
    }
}

pub fn refused(id: &str, problem: &Problem) -> Message {
    response(id, 3, |message| {
        message.text(1, problem.code().as_str());
        message.text(2, problem.detail());
        message.text(3, problem.to_json().get("hint").and_then(Value::as_str).unwrap_or_default());
    })
}

pub fn notification(subscription: &str, event: &Event) -> Message {
    let (kind, word) = kinds::of_topic(&event.envelope.topic);
    let mut whole: Value = serde_json::from_str(&event.to_json()).unwrap_or_default();
    whole["eventKind"] = word.into();
    if let (true, Some(subject)) = (event.envelope.topic.starts_with("graph."), &event.envelope.subject) {
        (whole["nodeId"], whole["concept"]) = (subject.id.as_str().into(), subject.kind.as_str().into());
    }
    response(&format!("evt-{}", event.envelope.id), 4, |message| {
        message.text(1, subscription);
        message.number(2, u64::from(kind));
        message.instant(3, event.time());
        message.structure(4, &whole);
    })
}

pub fn delivered(subscription: &str, one: &Delivery) -> Message {
    response(&format!("evt-{}", one.event.envelope.id), 5, |message| {
        message.text(1, subscription);
        message.message(2, |message| delivery(message, one));
    })
}

pub fn shutdown(reconnect_after_ms: u32) -> Message {
    response("server.shutdown", 6, |message| message.number(1, reconnect_after_ms.into()))
}

/// The number of a refusal, in gRPC's own list.
pub fn status(code: Code) -> u16 {
    match code.status() {
        401 => 16,
        403 => 7,
        404 => 5,
        405 => 12,
        409 => 10,
        410 => 11,
        412 => 9,
        408 => 4,
        413 | 429 | 507 => 8,
        503 => 14,
        500 => 13,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_asks_for_all_that_its_hint_offers() {
        let settle = |at: u32, more: &dyn Fn(&mut Message)| {
            let mut message = Message::default();
            message.text(1, "m1");
            message.message(at, |message| {
                message.text(1, "s");
                message.text(2, "t1");
                message.text(2, "t2");
                more(message);
            });
            request(&message.0).unwrap()
        };
        let seconds = |at: u32| {
            move |message: &mut Message| {
                message.0.push(at as u8 * 8 + 1);
                message.0.extend(1.5f64.to_le_bytes());
            }
        };
        let said = |what: &str, name: &str, value: Value| {
            let tokens = json!(["t1", "t2"]);
            let payload = json!({ what: {"subscription_id": "s", "tokens": tokens, name: value} });
            ("m1".to_owned(), payload.as_object().cloned().unwrap_or_default())
        };
        assert_eq!(settle(6, &|message| message.number(3, 1)), said("ack", "sync", json!(true)));
        assert_eq!(settle(7, &seconds(4)), said("nack", "delay", json!(1.5)));
        assert_eq!(settle(8, &seconds(3)), said("extend", "by", json!(1.5)));
        assert_eq!(settle(9, &|message| message.text(3, "no")), said("reject", "error", json!("no")));
    }
}
