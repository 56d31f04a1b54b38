//! An event as a CloudEvent in structured JSON, such that reading it gives the same event again.

use std::time::Duration;

use model::event::{Band, Event, push_text};
use model::time::duration_json;
use model::{base64, json};
use serde_json::{Value, json};

use super::{NO_SOURCE, THEIR_ID, parse_subject};
use crate::admit::ext::Ext;
use crate::admit::{check, read};

/// Names that an extension cannot take, because they mean something else.
const TAKEN: [&str; 27] = [
    "specversion",
    "type",
    "source",
    "id",
    "time",
    "subject",
    "dataschema",
    "datacontenttype",
    "data",
    "space",
    "key",
    "band",
    "ttl",
    "priority",
    "cause",
    "traceparent",
    "ewtype",
    "ewcausedby",
    "ewsequence",
    "ewsubject",
    "ewext",
    "ewposition",
    "ewrecordedat",
    "ewactor",
    "ewdepth",
    "ewrun",
    "ewerased",
];

/// The JSON text of the CloudEvent, data digit for digit.
pub fn to_cloudevent(event: &Event) -> String {
    let mut out = Ext::default();
    attributes(event, &mut out);
    extensions(event, &mut out);
    if let Some(ext) = event.content.ext() {
        own_extensions(ext, &mut out);
    }
    data(event, &mut out);
    out.finish().unwrap_or_default()
}

/// Binary mode: the attributes as `ce-` headers and a `content-type`, the data as the body.
pub fn to_cloudevent_headers(event: &Event) -> (Vec<(String, String)>, Vec<u8>) {
    let text = to_cloudevent(event);
    let mut headers = Vec::new();
    for member in read::members(&text).unwrap_or_default() {
        let value =
            json::unquote(member.value).map_or_else(|| member.value.to_owned(), |text| text.into_owned());
        match member.key.as_ref() {
            "data" | "data_base64" => {}
            "datacontenttype" => headers.push(("content-type".to_owned(), value)),
            name => headers.push((format!("ce-{name}"), percent_encoded(&value))),
        }
    }
    if event.envelope.content_type.is_none() && event.content.payload().is_some() {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let payload = event.content.payload().unwrap_or_default();
    let body = match event.envelope.content_type.as_deref().is_none_or(check::is_json) {
        true => payload.as_bytes().to_vec(),
        false => json::unquote(payload).and_then(|coded| base64::decode(&coded)).unwrap_or_default(),
    };
    (headers, body)
}

/// As the HTTP binding has it: what is no visible ASCII, and `"` and `%`.
fn percent_encoded(text: &str) -> String {
    let plain = |b: u8| (0x21..=0x7e).contains(&b) && !matches!(b, b'"' | b'%');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn attributes(event: &Event, out: &mut Ext) {
    let envelope = &event.envelope;
    push(out, "specversion", "1.0");
    push(out, "id", event.content.ext().and_then(their_id).as_deref().unwrap_or(&envelope.id));
    push(out, "source", envelope.source.as_deref().unwrap_or(NO_SOURCE));
    push(out, "type", envelope.topic.as_str());
    push(out, "time", event.time().to_string());
    push_some(out, "dataschema", envelope.schema.as_deref());
    push_some(out, "datacontenttype", envelope.content_type.as_deref());
    if let Some(subject) = &envelope.subject {
        let text = match subject.kind.as_str() {
            "" => subject.id.clone(),
            kind => format!("{kind}/{}", subject.id),
        };
        if parse_subject(&text) != *subject {
            push(out, "ewsubject", json!({"kind": subject.kind, "id": subject.id}).to_string());
        }
        push(out, "subject", text);
    }
}

fn extensions(event: &Event, out: &mut Ext) {
    let envelope = &event.envelope;
    push(out, "space", envelope.space.as_str());
    push_some(out, "key", envelope.key.as_deref());
    push_some(out, "traceparent", envelope.trace.as_deref());
    push_some(out, "cause", envelope.cause.map(integer));
    push_some(out, "ttl", envelope.ttl_ms.map(seconds));
    if envelope.priority != 0 {
        push(out, "priority", envelope.priority);
    }
    if envelope.band != Band::Green {
        push(out, "band", envelope.band.as_str());
    }
    push_some(out, "ewtype", envelope.kind.as_deref());
    push_some(out, "ewcausedby", envelope.caused_by.as_deref());
    push_some(out, "ewsequence", envelope.sequence.map(|sequence| sequence.to_string()));
    push_some(out, "ewrun", envelope.run.as_deref());
    push(out, "ewposition", integer(event.position));
    push(out, "ewrecordedat", event.recorded_at.to_string());
    push(out, "ewactor", envelope.actor.as_str());
    push(out, "ewdepth", envelope.depth);
}

/// Members of ext that CloudEvents can hold stand by themselves, the others together as text.
fn own_extensions(ext: &str, out: &mut Ext) {
    let mut rest = Ext::default();
    for member in read::members(ext).unwrap_or_default() {
        if is_their_id(&member) {
            continue;
        }
        if fits(&member.key, member.value) {
            out.push(&member.key, member.value);
        } else {
            rest.push(&member.key, member.value);
        }
    }
    push_some(out, "ewext", rest.finish());
}

/// The id that the event came with and could not have here.
fn their_id(ext: &str) -> Option<String> {
    let member = read::members(ext)?.into_iter().find(is_their_id)?;
    json::unquote(member.value).map(|id| id.into_owned())
}

/// An extension of that name that could be an id is somebody's own.
fn is_their_id(member: &json::Field<'_>) -> bool {
    let unfit = |id: &str| !id.is_empty() && !check::is_id(id);
    member.key == THEIR_ID && json::unquote(member.value).is_some_and(|id| unfit(&id))
}

/// Whether it is a name of lower-case letters and digits with a value that is text, bool or a 32-bit integer.
fn fits(name: &str, value: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_value =
        value.starts_with('"') || matches!(value, "true" | "false") || value.parse::<i32>().is_ok();
    is_name && is_value && !TAKEN.contains(&name)
}

fn data(event: &Event, out: &mut Ext) {
    // An event without data is another one than this.
    let Some(payload) = event.content.payload() else { return push(out, "ewerased", true) };
    if event.envelope.content_type.as_deref().is_none_or(check::is_json) {
        out.push("data", payload);
    } else {
        let coded = json::unquote(payload).unwrap_or_default();
        push(out, "data_base64", coded.as_ref());
    }
}

/// CloudEvents' integers have 32 bits; a larger one is text.
fn integer(number: u64) -> Value {
    if i32::try_from(number).is_ok() { number.into() } else { number.to_string().into() }
}

/// CloudEvents has no fractions; such a duration is text.
fn seconds(millis: u64) -> Value {
    match duration_json(Duration::from_millis(millis)) {
        whole if whole.as_i64().is_some_and(|seconds| i32::try_from(seconds).is_ok()) => whole,
        _ => format!("{millis}ms").into(),
    }
}

fn push(out: &mut Ext, name: &str, value: impl Into<Value>) {
    match value.into() {
        Value::String(text) => {
            let mut quoted = String::with_capacity(text.len() + 2);
            push_text(&mut quoted, &text);
            out.push(name, &quoted);
        }
        value => out.push(name, &value.to_string()),
    }
}

fn push_some(out: &mut Ext, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        push(out, name, value);
    }
}
