//! The event: a fact with a topic, a space and a JSON payload, as it stands in the ledger and as users see it.

mod content;
mod fields;
mod read;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::json::canonical_hash;
use crate::time::duration_json;
use crate::{Position, Timestamp};

pub use content::{BadBody, Body, Content};
use fields::Fields;

/// The topics of what is told of runs and written nowhere: triggers, groups and followers hear it, and nothing that reads what is
/// written, as waits and batches do, ever finds it.
pub const TOLD: [&str; 7] = [
    "automation.started",
    "automation.completed",
    "automation.failed",
    "automation.cancelled",
    "automation.step.started",
    "automation.step.completed",
    "automation.step.failed",
];

/// How sensitive an event is; ordered, so that a group can say how much it may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Band {
    #[default]
    Green,
    Amber,
    Red,
    Black,
}

impl Band {
    pub const ALL: [Band; 4] = [Band::Green, Band::Amber, Band::Red, Band::Black];

    pub fn as_str(self) -> &'static str {
        match self {
            Band::Green => "green",
            Band::Amber => "amber",
            Band::Red => "red",
            Band::Black => "black",
        }
    }

    pub fn is_least(&self) -> bool {
        *self == Band::default()
    }

    pub fn parse(text: &str) -> Option<Band> {
        Band::ALL.into_iter().find(|band| band.as_str() == text)
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    pub kind: String,
    pub id: String,
}

/// Everything about an event that the engine itself reads: the `d` of an `event` record. Defaults are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    pub id: String,
    pub topic: String,
    pub space: String,
    pub actor: String,
    /// When it happened; absent when that is when it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Position>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Milliseconds after `time` at which groups stop caring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    pub band: Band,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Topic, space, subject and payload as one hash, equal when they are equal as JSON values: what a repeated
/// idempotency key is compared by. `None` once the content is erased.
pub fn fingerprint(envelope: &Envelope, content: &Content) -> Option<[u8; 32]> {
    let text = |text: &str| Value::from(text).to_string();
    let (topic, space) = (text(&envelope.topic), text(&envelope.space));
    let subject = match &envelope.subject {
        Some(subject) => format!("[{},{}]", text(&subject.kind), text(&subject.id)),
        None => "null".to_owned(),
    };
    Some(canonical_hash([topic.as_str(), &space, &subject, content.payload()?]))
}

/// One event at its place in the ledger.
#[derive(Clone, Debug)]
pub struct Event {
    pub position: Position,
    pub recorded_at: Timestamp,
    pub envelope: Envelope,
    pub content: Content,
}

impl Event {
    /// Whether its time to live was over by then.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let ttl = self.envelope.ttl_ms.map(std::time::Duration::from_millis);
        ttl.is_some_and(|ttl| self.time().plus(ttl) <= now)
    }

    /// When it happened.
    pub fn time(&self) -> Timestamp {
        self.envelope.time.unwrap_or(self.recorded_at)
    }

    /// The instant after which the event is expired, if it ever is.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.envelope.ttl_ms.map(|ttl| self.time().plus(Duration::from_millis(ttl)))
    }

    /// About how many bytes it takes in memory: the struct with its strings, and payload and extensions as text.
    pub fn size(&self) -> usize {
        640 + self.content.payload().map_or(0, str::len) + self.content.ext().map_or(0, str::len)
    }

    /// The event as contracts §2 shows it, payload and extensions digit for digit.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(320 + self.content.payload().map_or(0, str::len));
        self.write_json(&mut out);
        out
    }

    /// Appends what [`Event::to_json`] returns.
    pub fn write_json(&self, out: &mut String) {
        out.push('{');
        self.tell(out);
        self.write_content(out);
    }

    /// Everything but extensions and payload.
    fn tell(&self, to: &mut impl Fields) {
        let envelope = &self.envelope;
        to.text("id", &envelope.id);
        if self.position > 0 {
            to.number("position", self.position);
        }
        to.text("topic", &envelope.topic);
        to.text("space", &envelope.space);
        to.instant("time", self.time());
        to.instant("recorded_at", self.recorded_at);
        to.text("actor", &envelope.actor);
        to.optional("source", envelope.source.as_deref());
        if let Some(subject) = &envelope.subject {
            to.subject(subject);
        }
        if let Some(cause) = envelope.cause {
            to.number("cause", cause);
        }
        to.number("depth", envelope.depth.into());
        to.optional("trace", envelope.trace.as_deref());
        to.optional("key", envelope.key.as_deref());
        if let Some(ttl) = envelope.ttl_ms {
            to.other("ttl", duration_json(Duration::from_millis(ttl)));
        }
        to.number("priority", envelope.priority.into());
        to.text("band", envelope.band.as_str());
        to.optional("schema", envelope.schema.as_deref());
        to.text("type", envelope.kind.as_deref().unwrap_or(&envelope.topic));
        to.optional("caused_by", envelope.caused_by.as_deref());
        to.optional("run", envelope.run.as_deref());
        if let Some(sequence) = envelope.sequence {
            to.other("sequence", sequence.into());
        }
        to.optional("content_type", envelope.content_type.as_deref());
    }

    fn write_content(&self, out: &mut String) {
        if let Some(ext) = self.content.ext() {
            out.push_str(",\"ext\":");
            out.push_str(ext);
        }
        match self.content.payload() {
            Some(payload) => {
                out.push_str(",\"payload\":");
                out.push_str(payload);
            }
            None => out.push_str(",\"erased\":true"),
        }
        out.push('}');
    }

    /// The event as a JSON value, the root that filters and mappers read. Envelope, extensions and payload are parsed
    /// apart, so that a payload of the greatest depth still fits the parser's limit.
    pub fn to_value(&self) -> Value {
        let mut value = Map::new();
        self.tell(&mut value);
        let mut put = |name: &str, text: Option<&str>| {
            if let Some(part) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
                value.insert(name.to_owned(), part);
            }
        };
        put("ext", self.content.ext());
        put("payload", self.content.payload());
        if matches!(self.content, Content::Erased) {
            value.insert("erased".to_owned(), true.into());
        }
        value.into()
    }

    /// Seed 003's row for this event, with that document's column names; the payload digit for digit.
    pub fn to_seed_row(&self) -> String {
        let envelope = &self.envelope;
        let mut row = json!({
            "event_id": envelope.id,
            "event_type": envelope.topic,
            "occurred_at": self.time(),
            "recorded_at": self.recorded_at,
            "position": self.position,
        });
        let optional = [
            ("entity_type", envelope.subject.as_ref().map(|s| json!(s.kind))),
            ("entity_id", envelope.subject.as_ref().map(|s| json!(s.id))),
            ("caused_by", envelope.caused_by.as_ref().map(|v| json!(v))),
            ("workflow_run_id", envelope.run.as_ref().map(|v| json!(v))),
            ("source_system", envelope.source.as_ref().map(|v| json!(v))),
            ("sequence_no", envelope.sequence.map(|v| json!(v))),
            ("idempotency_key", envelope.key.as_ref().map(|v| json!(v))),
            ("payload_json", self.content.payload().map(|v| json!(v))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                row[name] = value;
            }
        }
        let mut text = row.to_string();
        if let Some(payload) = self.content.payload() {
            text.truncate(text.len() - 1);
            text.push_str(",\"payload\":");
            text.push_str(payload);
            text.push('}');
        }
        text
    }
}

/// Appends `text` as a JSON string.
pub fn push_text(out: &mut String, text: &str) {
    out.push('"');
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push_str(text);
    } else {
        let quoted = Value::String(text.to_owned()).to_string();
        out.push_str(&quoted[1..quoted.len() - 1]);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        let envelope = Envelope {
            id: "e\"1".into(),
            topic: "a.b".into(),
            space: "default".into(),
            actor: "user:ann".into(),
            ttl_ms: Some(1500),
            ..Envelope::default()
        };
        let content = Content::from_body(Some(r#"{"payload":{"n":1.10},"ext":{"x":1}}"#)).unwrap();
        Event { position: 7, recorded_at: Timestamp::EPOCH, envelope, content }
    }

    #[test]
    fn an_event_is_written_as_json_with_its_payload_digit_for_digit() {
        let text = event().to_json();
        assert!(text.contains(r#""payload":{"n":1.10}"#), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["id"], "e\"1");
        assert_eq!(value["ttl"], 1.5);
        assert_eq!(value["type"], "a.b");
        assert_eq!(value["band"], "green");
        assert!(value.get("key").is_none());
    }

    #[test]
    fn the_deepest_payload_still_reads_as_a_value() {
        let payload = format!("{}1{}", "[".repeat(127), "]".repeat(127));
        let content = Content::new(&payload, None);
        assert!(Event { content, ..event() }.to_value()["payload"].is_array());
    }

    #[test]
    fn an_erased_event_says_so_and_has_no_payload() {
        let value = Event { content: Content::Erased, ..event() }.to_value();
        assert_eq!(value["erased"], true);
        assert!(value.get("payload").is_none());
    }

    #[test]
    fn an_envelope_leaves_out_what_is_default() {
        let envelope =
            Envelope { id: "1".into(), topic: "t".into(), space: "s".into(), ..Envelope::default() };
        let text = serde_json::to_string(&envelope).unwrap();
        assert_eq!(text, r#"{"id":"1","topic":"t","space":"s","actor":""}"#);
        assert_eq!(serde_json::from_str::<Envelope>(&text).unwrap(), envelope);
    }
}
