//! Events as seeds 002 and 003 write them: a line of the old bus's WAL, and the body of `/api/events/record`.

use model::event::Subject;
use model::json::{self, Field};
use model::{Code, Problem, Timestamp};

use super::draft::{Draft, missing, open, raw};
use super::ext::Ext;
use super::payload::Payload;
use super::read;
use crate::settings::Limits;

const SEED003: [&str; 8] = [
    "event_type",
    "entity_type",
    "entity_id",
    "payload",
    "caused_by",
    "source_system",
    "occurred_at",
    "idempotency_key",
];

impl Draft {
    /// The body of seed 003's `POST /api/events/record`. A column that is `null` is one that is not set.
    pub fn from_seed003(bytes: &[u8], limits: &Limits) -> Result<Draft, Problem> {
        let mut draft = Draft::with_payload(String::new(), Payload::scanned("{}", limits));
        let (mut kind, mut id) = (None, None);
        for Field { key, value } in set_fields(open(bytes, limits)?) {
            let name = key.as_ref();
            match name {
                "event_type" => draft.topic = read::text(name, value)?,
                "entity_type" => kind = Some(read::text(name, value)?),
                "entity_id" => id = Some(read::text(name, value)?),
                "payload" => draft.payload = read::payload(value, limits)?,
                "caused_by" => draft.caused_by = Some(read::text(name, value)?),
                "source_system" => draft.source = Some(read::text(name, value)?),
                "occurred_at" => draft.time = Some(read::time(name, value)?),
                "idempotency_key" => draft.key = Some(read::text(name, value)?),
                _ => return Err(read::unknown(name, &SEED003)),
            }
        }
        if draft.topic.is_empty() {
            return Err(missing("event_type"));
        }
        draft.subject = match (kind, id) {
            (None, None) => None,
            (kind, Some(id)) => Some(Subject { kind: kind.unwrap_or_default(), id }),
            (Some(_), None) => return Err(missing("entity_id")),
        };
        Ok(draft)
    }

    /// One line of seed 002's WAL or dead-letter file, `{"offset":N,"meta":{…},"payload":{…}}`. What has no
    /// field of its own here goes into `ext`; a line without a topic has that of its file.
    pub fn from_bus_line(topic_of_file: &str, line: &[u8]) -> Result<Draft, Problem> {
        let limits = &Limits::default();
        let mut draft = Draft::with_payload(topic_of_file.to_owned(), Payload::scanned("{}", limits));
        let mut ext = Ext::default();
        let mut has_meta = false;
        for Field { key, value } in set_fields(open(line, limits)?) {
            match key.as_ref() {
                "offset" => {}
                "payload" => draft.payload = read::payload(value, limits)?,
                "meta" => {
                    has_meta = true;
                    draft.take_meta(value, &mut ext)?;
                }
                other => ext.push(other, value),
            }
        }
        if !has_meta {
            return Err(
                missing("meta").hint("a line of the bus is {\"offset\":N,\"meta\":{…},\"payload\":{…}}")
            );
        }
        draft.ext = ext.finish().map(raw);
        Ok(draft)
    }

    fn take_meta(&mut self, meta: &str, ext: &mut Ext) -> Result<(), Problem> {
        let members = read::members(meta).ok_or_else(|| read::wrong("meta", meta, "an object"))?;
        for Field { key, value } in set_fields(members) {
            let name = key.as_ref();
            let read = match name {
                "topic" => read::text(name, value).map(|topic| self.topic = topic),
                "type" => read::text(name, value).map(|kind| self.kind = Some(kind)),
                "space_id" => read::text(name, value).map(|space| self.space = Some(space)),
                "event_id" => read::text(name, value).map(|id| self.id = Some(id)),
                "idem_key" => read::text(name, value).map(|key| self.key = Some(key)),
                "ts" => bus_time(name, value).map(|time| self.time = Some(time)),
                "ttl_sec" => read::duration(name, value).map(|ttl| self.ttl = Some(ttl)),
                "trace_id" if is_traceparent(value) => {
                    read::text(name, value).map(|trace| self.trace = Some(trace))
                }
                _ => {
                    ext.push(name, value);
                    Ok(())
                }
            };
            read.map_err(|problem| problem.within("/meta"))?;
        }
        Ok(())
    }
}

/// Python and SQL write what is not set as `null`.
fn set_fields(fields: Vec<Field<'_>>) -> impl Iterator<Item = Field<'_>> {
    fields.into_iter().filter(|field| field.value != "null")
}

/// Python's `isoformat` leaves the zone out when it has none (the bus meant UTC), and some wrote seconds
/// since 1970.
fn bus_time(name: &str, value: &str) -> Result<Timestamp, Problem> {
    match json::unquote(value) {
        Some(text) => {
            let text = text.replacen(' ', "T", 1);
            Timestamp::parse(&text).or_else(|_| Timestamp::parse(&format!("{text}Z"))).map_err(|problem| {
                Problem::new(Code::EventInvalid, problem.detail())
                    .hint(problem.hint_text().unwrap_or_default())
                    .at(read::at(name))
            })
        }
        None => match value.parse::<f64>() {
            Ok(seconds) => Ok(Timestamp::from_nanos((seconds * 1e6).round() as i128 * 1_000)),
            Err(_) => Err(read::wrong(name, value, "an instant")),
        },
    }
}

/// Only a W3C traceparent is a `trace`; other trace ids are kept as an extension.
fn is_traceparent(value: &str) -> bool {
    let Some(text) = json::unquote(value) else { return false };
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    lengths == [2, 32, 16, 2] && parts.iter().all(is_hex)
}
