//! Decides publishes: repeated keys answer with the first position, everything else becomes a record.

use std::collections::HashMap;
use std::sync::Arc;

use model::event::{Band, Content, Envelope, Event};
use model::record::{Deferred, Record};
use model::{Code, Problem, Timestamp};
use serde_json::Value;

use super::{Decided, Entry, Ground, Refusal};
use crate::admit::Prepared;
use crate::command::{Answer, Outcome, Receipt};
use crate::entropy::Entropy;
use crate::faults::planted;
use crate::state::State;
use crate::state::rows::Keyed;

/// Deferred publishes admitted in one commit; the rest follow in the next batch.
const DUE_MAX: usize = 256;

pub(super) fn publish(
    state: &State,
    events: Vec<Prepared>,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let mut entries = Vec::with_capacity(events.len());
    let mut outcomes = Vec::with_capacity(events.len());
    let mut keys: HashMap<(String, String), Keyed> = HashMap::new();
    for prepared in events {
        match repeated(state, &keys, &prepared) {
            Ok(Some(outcome)) => outcomes.push(outcome),
            Ok(None) => {
                let position = ground.next + entries.len() as u64;
                let (entry, outcome, keyed) = record(prepared, position, ground);
                if let Some((key, keyed)) = keyed {
                    keys.insert(key, keyed);
                }
                entries.push(entry);
                outcomes.push(outcome);
            }
            Err(Refusal::Problem(problem)) => return Err(prepared.place(problem).into()),
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Decided { entries, answer: Answer::Published(outcomes), sync: true })
}

/// As [`publish`], for one event of a run.
pub fn one(
    state: &State,
    prepared: Prepared,
    ground: &mut Ground<'_>,
) -> Result<(Vec<Entry>, Outcome), Refusal> {
    if let Some(outcome) = repeated(state, &HashMap::new(), &prepared)? {
        return Ok((Vec::new(), outcome));
    }
    let (entry, outcome, _) = record(prepared, ground.next, ground);
    Ok((vec![entry], outcome))
}

/// The answer to a key that was used before, in the ledger or earlier in this same array.
fn repeated(
    state: &State,
    keys: &HashMap<(String, String), Keyed>,
    prepared: &Prepared,
) -> Result<Option<Outcome>, Refusal> {
    let envelope = &prepared.event.envelope;
    let Some(key) = &envelope.key else { return Ok(None) };
    if planted("forget_key") {
        return Ok(None);
    }
    let source = envelope.source.as_deref();
    let beside = keys.get(&(source.unwrap_or("").to_owned(), key.clone()));
    let first = match (beside, state.key(source, key)?) {
        (Some(keyed), _) => keyed.clone(),
        (None, Some(keyed)) => keyed,
        (None, None) => return Ok(None),
    };
    let this = prepared.fingerprint.unwrap_or_default();
    if first.fingerprint != this {
        let refused = if beside.is_some() { twice(key, &first, this) } else { conflict(key, &first, this) };
        return Err(refused.into());
    }
    Ok(Some(match first.deferred_until {
        Some(until) => Outcome::Deferred { until },
        None => Outcome::Recorded(Receipt {
            id: first.id,
            position: first.position,
            recorded_at: first.recorded_at,
            duplicate: true,
        }),
    }))
}

pub(crate) fn conflict(key: &str, first: &Keyed, this: [u8; 32]) -> Problem {
    let another = "with another topic, space, subject or payload";
    let detail = match first.deferred_until {
        Some(until) => format!("key \"{key}\" waits until {until} {another}"),
        None if is_erased(first) => {
            format!("key \"{key}\" stands at position {}, whose content was erased", first.position)
        }
        None => format!("key \"{key}\" stands at position {} {another}", first.position),
    };
    let problem = Problem::new(Code::EventKeyConflict, detail)
        .hint("a key names one event for ever: use a new key for a new event")
        .at("/key")
        .with("this_hash", model::id::hex(&this));
    // A deferred publish has no position yet, and what was erased no hash any more.
    let problem = match first.deferred_until {
        Some(_) => problem,
        None => problem.with("position", first.position),
    };
    if is_erased(first) { problem } else { problem.with("first_hash", model::id::hex(&first.fingerprint)) }
}

/// As [`conflict`], with an event that is refused as well: it stands nowhere.
fn twice(key: &str, first: &Keyed, this: [u8; 32]) -> Problem {
    let detail = format!("key \"{key}\" stands twice in what is to be published, with different events");
    Problem::new(Code::EventKeyConflict, detail)
        .hint("a key names one event for ever: use a new key for a new event")
        .at("/key")
        .with("first_hash", model::id::hex(&first.fingerprint))
        .with("this_hash", model::id::hex(&this))
}

fn is_erased(first: &Keyed) -> bool {
    first.fingerprint == [0; 32]
}

type KeyEntry = ((String, String), Keyed);

fn record(prepared: Prepared, position: u64, ground: &Ground<'_>) -> (Entry, Outcome, Option<KeyEntry>) {
    let Prepared { mut event, fingerprint, record: encoded, deferred, .. } = prepared;
    // Nobody else has it yet, so nothing is copied.
    let place = Arc::make_mut(&mut event);
    (place.position, place.recorded_at) = (position, ground.now);
    let id = event.envelope.id.clone();
    let keyed = event.envelope.key.clone().map(|key| {
        let keyed = Keyed {
            position,
            id: id.clone(),
            recorded_at: ground.now,
            fingerprint: fingerprint.unwrap_or_default(),
            deferred_until: deferred,
        };
        ((event.envelope.source.clone().unwrap_or_default(), key), keyed)
    });
    if let Some(until) = deferred {
        let Event { envelope, content, .. } = Arc::unwrap_or_clone(event);
        let record = Record::EventDeferred(Box::new(Deferred { until, envelope, content }));
        return (Entry::formed(record, encoded), Outcome::Deferred { until }, keyed);
    }
    let receipt = Receipt { id, position, recorded_at: ground.now, duplicate: false };
    (Entry::formed(Record::Event(event), encoded), Outcome::Recorded(receipt), keyed)
}

/// Turns due deferred publishes into events. They are not judged again, and only now get their position as an event.
pub(super) fn admit_due(state: &State, ground: &mut Ground<'_>) -> Result<Decided, Refusal> {
    let mut entries = Vec::new();
    let mut due = state.deferred.iter().take_while(|(until, _)| *until <= ground.now);
    for (_, deferred) in due.by_ref().take(DUE_MAX) {
        let Some((envelope, content)) = state.deferred_at(*deferred)? else { continue };
        let position = ground.next + entries.len() as u64 + 1;
        let concerns = !state.catalog.automations.concerned(&envelope.topic).is_empty();
        let event = Event { position, recorded_at: ground.now, envelope, content };
        entries.push(Entry::new(Record::EventAdmitted { deferred: *deferred }, ground.entropy));
        entries.push(Entry::new(Record::Event(Arc::new(event)), ground.entropy));
        // The next must not find a run in its way that takes no time, only because both came due at one instant.
        if concerns {
            break;
        }
    }
    let more = due.next().is_some();
    Ok(Decided { entries, answer: Answer::Admitted { more }, sync: true })
}

/// An event the engine writes about itself.
pub fn engine_event(topic: &str, payload: &Value, place: (u64, Timestamp), entropy: &mut Entropy) -> Entry {
    engine_event_of(topic, payload, Behind::default(), place, entropy)
}

/// What an event of the engine's own goes back to.
#[derive(Default)]
pub struct Behind {
    /// An act of administration, in the words of `triggered_by`: who does not see that does not see the event.
    pub act: Option<String>,
    pub band: Band,
}

/// As [`engine_event`], of what goes back to something that not everybody sees.
pub fn engine_event_of(
    topic: &str,
    payload: &Value,
    Behind { act, band }: Behind,
    (position, now): (u64, Timestamp),
    entropy: &mut Entropy,
) -> Entry {
    let envelope = Envelope {
        id: model::id::ulid(now, entropy.bytes()),
        topic: topic.to_owned(),
        space: "_system".to_owned(),
        actor: "system:engine".to_owned(),
        caused_by: act,
        band,
        ..Envelope::default()
    };
    let content = Content::new(&payload.to_string(), None);
    Entry::new(Record::Event(Arc::new(Event { position, recorded_at: now, envelope, content })), entropy)
}
