//! Publishing from a run: the envelope is checked as for everybody, the cause is the run's event.

use std::time::Duration;

use model::definition::Publish;
use model::event::{Band, Content, Envelope, Event, Subject, fingerprint};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};

use super::{Flow, Result, Walk, failure, refused};
use crate::admit::Prepared;
use crate::command::Outcome;
use crate::decide;
use crate::route::occurrence::SYSTEM;
use crate::run::{band_of, band_of_input};

/// Bytes of a payload, as for publishes from outside.
const PAYLOAD_MAX: usize = 1 << 20;

impl Walk<'_, '_> {
    pub(super) fn publish(&mut self, publish: &Publish) -> Result<Flow> {
        let topic = self.env.input(self.draft.state, &publish.topic)?;
        let Value::String(topic) = topic else {
            return Err(failure(Code::EventTopicInvalid, format!("the topic is {topic}, not a text")));
        };
        let payload = match &publish.payload {
            Some(payload) => self.env.input(self.draft.state, payload)?,
            None => json!({}),
        };
        let mut fields = Map::new();
        for (name, input) in &publish.envelope {
            let value = self.env.input(self.draft.state, input)?;
            if !value.is_null() {
                fields.insert(name.clone(), value);
            }
        }
        self.emit(topic, payload, fields)
    }

    pub(super) fn emit(&mut self, topic: String, payload: Value, fields: Map<String, Value>) -> Result<Flow> {
        model::topic::check_topic(&topic)?;
        if model::topic::is_reserved(&topic) {
            let detail = format!("topic \"{topic}\" is the engine's own");
            return Err(Problem::new(Code::EventTopicReserved, detail).into());
        }
        // Not by `Display`, which writes piece by piece through a formatter.
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        if payload.len() > PAYLOAD_MAX {
            let detail = format!("the payload has {} bytes, more than {PAYLOAD_MAX}", payload.len());
            return Err(Problem::new(Code::BodyTooLarge, detail).into());
        }
        self.bytes += payload.len();
        self.too_big()?;
        let (envelope, ext) = self.envelope(topic, fields)?;
        let content = Content::new(&payload, ext.as_deref());
        let prepared = Prepared {
            fingerprint: envelope.key.is_some().then(|| fingerprint(&envelope, &content)).flatten(),
            ..Prepared::of(
                Event { position: 0, recorded_at: Timestamp::EPOCH, envelope, content },
                self.draft.entropy,
            )
        };
        let (entries, outcome) =
            self.draft.ask(|state, ground| decide::publish::one(state, prepared, ground)).map_err(refused)?;
        self.draft.add_all(entries)?;
        Ok(Flow::Done(match outcome {
            Outcome::Recorded(receipt) => json!({
                "id": receipt.id, "position": receipt.position, "duplicate": receipt.duplicate
            }),
            other => other.to_json(),
        }))
    }

    fn envelope(&mut self, topic: String, fields: Map<String, Value>) -> Result<(Envelope, Option<String>)> {
        let (cause, depth) = self.cause();
        let space = match self.env.space.as_str() {
            SYSTEM => self.draft.state.default_space.clone(),
            space => space.to_owned(),
        };
        let mut envelope = Envelope {
            id: model::id::ulid(self.draft.now, self.draft.entropy.bytes()),
            topic,
            space,
            actor: self.actor(),
            cause: (cause > 0).then_some(cause),
            depth,
            run: self.run_id().map(str::to_owned),
            trace: self.traceparent.clone(),
            ..Envelope::default()
        };
        let mut ext = None;
        for (name, value) in fields {
            set(&mut envelope, &mut ext, &name, value)?;
        }
        envelope.band = envelope.band.max(self.band());
        Ok((envelope, ext))
    }

    /// The highest band of what the run read to come here: its event, or those of its batch, and whatever it was told since;
    /// inside logic also what its caller read. What it publishes may tell of them, so that nobody who may not see them may see
    /// it (decision 0021).
    pub(super) fn band(&self) -> Band {
        let began = self.env.about.as_ref().map(|about| {
            let of_input = band_of_input(&self.run.occurrence.kind, &about.input);
            band_of(&about.event).max(of_input)
        });
        began.unwrap_or_default().max(self.run.walk.band).max(self.least_band)
    }
}

fn set(
    envelope: &mut Envelope,
    ext: &mut Option<String>,
    name: &str,
    value: Value,
) -> std::result::Result<(), Problem> {
    let wrong =
        |what: &str| Problem::new(Code::EventInvalid, format!("\"{name}\" is {what}")).at(format!("/{name}"));
    let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong("not a text"));
    match name {
        "id" => envelope.id = text()?,
        "space" => envelope.space = text()?,
        "key" => envelope.key = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        "source" => envelope.source = Some(text()?),
        "type" => envelope.kind = Some(text()?),
        "schema" => envelope.schema = Some(text()?),
        "trace" => envelope.trace = Some(text()?),
        "caused_by" => envelope.caused_by = Some(text()?),
        "content_type" => envelope.content_type = Some(text()?),
        "time" => envelope.time = Some(Timestamp::parse(&text()?)?),
        "sequence" => envelope.sequence = Some(value.as_i64().ok_or_else(|| wrong("not a whole number"))?),
        "priority" => {
            let priority = value.as_u64().filter(|n| *n <= 9).ok_or_else(|| wrong("not from 0 to 9"))?;
            envelope.priority = priority as u8;
        }
        "band" => envelope.band = Band::parse(&text()?).ok_or_else(|| wrong("no band"))?,
        "ttl" => {
            let ttl: Duration = model::time::duration_of(&value).ok_or_else(|| wrong("no length of time"))?;
            envelope.ttl_ms = Some(ttl.as_millis() as u64);
        }
        "subject" => envelope.subject = Some(subject(&value).ok_or_else(|| wrong("no subject"))?),
        "ext" => *ext = Some(value.to_string()),
        _ => return Err(wrong("no field of an event")),
    }
    Ok(())
}

/// `{"kind","id"}` or `kind/id`.
fn subject(value: &Value) -> Option<Subject> {
    match value {
        Value::String(text) => {
            let (kind, id) = text.rsplit_once('/').unwrap_or(("", text));
            Some(Subject { kind: kind.to_owned(), id: id.to_owned() })
        }
        Value::Object(map) => {
            let part = |name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
            Some(Subject { kind: part("kind")?, id: part("id")? })
        }
        _ => None,
    }
}
