//! What a client says an event is, before anything is believed: read from JSON (contracts §2) or built in
//! process.

use std::time::Duration;

use model::event::{Band, Subject};
use model::json::{self, Field};
use model::{Code, Position, Problem, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::payload::Payload;
use super::read;
use crate::settings::Limits;

/// Most events in one atomic array, and most bytes of payload in it.
pub const ARRAY_MAX: usize = 1_000;
pub const ARRAY_BYTES_MAX: usize = 1 << 20;

/// The fields a client may give. `parse` reads them; whether they make a valid event is decided by `admit`.
#[derive(Clone, Debug)]
pub struct Draft {
    pub topic: String,
    pub payload: Payload,
    pub id: Option<String>,
    pub space: Option<String>,
    pub time: Option<Timestamp>,
    pub source: Option<String>,
    pub subject: Option<Subject>,
    pub cause: Option<Position>,
    pub trace: Option<String>,
    pub key: Option<String>,
    /// The key when none is given: CloudEvents are the same when source and id are.
    pub derived_key: Option<String>,
    pub ttl: Option<Duration>,
    pub priority: u8,
    pub band: Band,
    pub schema: Option<String>,
    /// `type`: a free word beside the topic.
    pub kind: Option<String>,
    pub caused_by: Option<String>,
    pub sequence: Option<i64>,
    pub content_type: Option<String>,
    pub ext: Option<Box<RawValue>>,
}

impl Draft {
    /// A draft with this topic and payload and nothing else said.
    ///
    /// A payload that has no JSON form (a map whose keys are no strings) becomes one that `admit` refuses.
    pub fn new(topic: impl Into<String>, payload: &impl Serialize) -> Draft {
        let payload = serde_json::value::to_raw_value(payload).unwrap_or_else(|_| raw(UNWRITABLE));
        Draft::with_payload(topic.into(), payload.into())
    }

    pub(super) fn with_payload(topic: String, payload: Payload) -> Draft {
        Draft {
            topic,
            payload,
            id: None,
            space: None,
            time: None,
            source: None,
            subject: None,
            cause: None,
            trace: None,
            key: None,
            derived_key: None,
            ttl: None,
            priority: 0,
            band: Band::Green,
            schema: None,
            kind: None,
            caused_by: None,
            sequence: None,
            content_type: None,
            ext: None,
        }
    }

    /// One event as a JSON object.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Draft, Problem> {
        Draft::read(open(bytes, limits)?, limits, false)
    }

    /// Many events as a JSON array, to be committed all or none.
    pub fn parse_array(bytes: &[u8], limits: &Limits) -> Result<Vec<Draft>, Problem> {
        // The array itself is one level more than its events may have.
        let Some(elements) = json::elements(bytes, limits.max_depth + 1)? else {
            return Err(Problem::new(Code::EventInvalid, "the body is not an array of events")
                .hint("write events between [ and ]"));
        };
        check_count(elements.len())?;
        let mut drafts = Vec::with_capacity(elements.len());
        let mut room = ARRAY_BYTES_MAX;
        for (i, element) in elements.into_iter().enumerate() {
            let draft = Draft::parse(element.as_bytes(), limits)
                .map_err(|problem| problem.within(&format!("/{i}")))?;
            room = room.checked_sub(draft.payload.get().len()).ok_or_else(|| too_many_bytes(i))?;
            drafts.push(draft);
        }
        Ok(drafts)
    }

    /// One line of an export: an event as it was shown. What only its old ledger knew (position, recorded_at,
    /// actor, depth, cause, run) is left behind, because it means nothing in another one; an import that has
    /// brought the cause, too, leads to it again.
    pub fn parse_exported(bytes: &[u8], limits: &Limits) -> Result<Draft, Problem> {
        Draft::read(open(bytes, limits)?, limits, true)
    }

    /// The same of a line that a later version may have written: the names of fields that nobody here knows come with it.
    pub fn parse_imported(bytes: &[u8], limits: &Limits) -> Result<(Draft, Vec<String>), Problem> {
        let mut fields = open(bytes, limits)?;
        let is_known = |name: &str| GIVEN.contains(&name) || LEDGER_FIELDS.contains(&name);
        let unknown = fields.extract_if(.., |field| !is_known(&field.key));
        let unknown = unknown.map(|field| field.key.into_owned()).collect();
        Ok((Draft::read(fields, limits, true)?, unknown))
    }

    fn read(fields: Vec<Field<'_>>, limits: &Limits, exported: bool) -> Result<Draft, Problem> {
        let mut draft = Draft::with_payload(String::new(), Payload::empty());
        let mut has_topic = false;
        for Field { key, value } in &fields {
            let name = key.as_ref();
            has_topic |= name == "topic";
            if !(exported && LEDGER_FIELDS.contains(&name)) {
                draft.take(name, value, limits)?;
            }
        }
        if !has_topic {
            return Err(missing("topic"));
        }
        Ok(draft)
    }

    /// Reads one field; a flat table of contracts §2.
    fn take(&mut self, name: &str, value: &str, limits: &Limits) -> Result<(), Problem> {
        match name {
            "topic" => self.topic = read::text(name, value)?,
            "payload" => self.payload = read::payload(value, limits)?,
            "id" => self.id = Some(read::text(name, value)?),
            "space" => self.space = Some(read::text(name, value)?),
            "time" => self.time = Some(read::time(name, value)?),
            "source" => self.source = Some(read::text(name, value)?),
            "subject" => self.subject = Some(read::subject(name, value)?),
            "cause" => self.cause = Some(read::position(name, value)?),
            "trace" => self.trace = Some(read::text(name, value)?),
            "key" => self.key = Some(read::text(name, value)?),
            "ttl" => self.ttl = Some(read::duration(name, value)?),
            "priority" => self.priority = read::priority(name, value)?,
            "band" => self.band = read::band(name, value)?,
            "schema" => self.schema = Some(read::text(name, value)?),
            "type" => self.kind = Some(read::text(name, value)?),
            "caused_by" => self.caused_by = Some(read::text(name, value)?),
            "sequence" => self.sequence = Some(read::integer(name, value)?),
            "content_type" => self.content_type = Some(read::text(name, value)?),
            "ext" => self.ext = Some(read::ext(name, value)?),
            _ => return Err(read::unknown(name, &GIVEN)),
        }
        Ok(())
    }
}

/// The fields of contracts §2 that clients give.
const GIVEN: [&str; 19] = [
    "topic",
    "payload",
    "id",
    "space",
    "time",
    "source",
    "subject",
    "cause",
    "trace",
    "key",
    "ttl",
    "priority",
    "band",
    "schema",
    "type",
    "caused_by",
    "sequence",
    "content_type",
    "ext",
];

/// The fields that a ledger gives; an export shows them, an import leaves them.
const LEDGER_FIELDS: [&str; 7] = ["position", "recorded_at", "actor", "depth", "cause", "run", "erased"];

/// Half a surrogate pair: JSON to a lenient reader, refused by the strict one.
const UNWRITABLE: &str = r#""\ud800""#;

/// Checks everything and opens the outermost object.
pub(super) fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Vec<Field<'a>>, Problem> {
    json::fields(bytes, limits.max_depth)?.ok_or_else(|| {
        Problem::new(Code::EventInvalid, "the event is not a JSON object")
            .hint("write it like {\"topic\":\"order.created\",\"payload\":{}}")
    })
}

pub(super) fn check_count(count: usize) -> Result<(), Problem> {
    if count <= ARRAY_MAX {
        return Ok(());
    }
    Err(Problem::new(Code::BodyTooLarge, format!("the array has {count} events, more than {ARRAY_MAX}"))
        .hint("send several arrays, or lines of NDJSON")
        .with("limit", ARRAY_MAX))
}

fn too_many_bytes(i: usize) -> Problem {
    let detail = format!("the payloads of the array have more than {ARRAY_BYTES_MAX} bytes");
    Problem::new(Code::BodyTooLarge, detail)
        .hint("send several arrays, or lines of NDJSON")
        .at(format!("/{i}/payload"))
        .with("limit", ARRAY_BYTES_MAX)
}

pub(super) fn missing(name: &str) -> Problem {
    Problem::new(Code::EventInvalid, format!("\"{name}\" is missing"))
        .hint(format!("add \"{name}\""))
        .at(format!("/{name}"))
}

/// Text that is known to be JSON as a raw value.
pub(super) fn raw(text: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("the text was checked or written by us")
}
