//! What clients were told about rows, and what the ledger says of them: a change and its event stand together, each change
//! rests on the one before, and a row is the fold of its events.

use std::collections::{BTreeMap, BTreeSet};

use engine::entity::Written;
use engine::state::State;
use model::Position;
use model::event::Event;
use model::record::{Change, Changed, Record};
use serde_json::Value;

use crate::scan::Found;

pub const CONCEPT: &str = "v1:sim:thing";
/// Rows live apart from the events that groups want.
pub const SPACE: &str = "rows";
pub const IDS: [&str; 4] = ["a", "b", "c", "d"];

/// A change that was answered.
#[derive(Debug)]
struct Told {
    id: &'static str,
    /// Where it stands; a delete is known by the version it took away.
    at: At,
    fields: Value,
    /// The version it was to rest on.
    expected: Option<Position>,
}

#[derive(Debug)]
enum At {
    Version(Position),
    Deleted(Position),
}

/// A change as it stands in the ledger.
struct Fact {
    id: String,
    prev: Option<Position>,
    /// `None`: deleted.
    fields: Option<Value>,
}

#[derive(Default)]
pub struct Rows {
    told: Vec<Told>,
    facts: BTreeMap<Position, Fact>,
    /// Folded from what events say, without the engine.
    now: BTreeMap<String, (Position, Value)>,
    seen: Position,
    /// Rows of which a delete went unanswered.
    pub maybe_gone: BTreeSet<&'static str>,
}

impl Rows {
    pub fn answered(&mut self, id: &'static str, expected: Option<Position>, written: &Written) {
        let version = written.row.version;
        let at = match written.change {
            None => return,
            Some(Change::Deleted) => At::Deleted(version),
            Some(_) => At::Version(version),
        };
        self.told.push(Told { id, at, fields: Value::Object(written.row.fields.clone()), expected });
    }

    /// The last version a client heard of.
    pub fn last_version(&self, id: &str) -> Option<Position> {
        let mut versions = self.told.iter().rev().filter(|told| told.id == id);
        versions.find_map(|told| match told.at {
            At::Version(version) => Some(version),
            At::Deleted(_) => None,
        })
    }

    /// Whether somebody may have deleted the row after this version of it.
    pub fn may_be_gone(&self, id: &str, version: Position) -> bool {
        let deletes = |told: &Told| matches!(told.at, At::Deleted(at) if told.id == id && at >= version);
        self.maybe_gone.contains(id) || self.told.iter().any(deletes)
    }

    /// Takes in what is durable, and judges it.
    pub fn meet(&mut self, found: &[Found]) -> Result<(), String> {
        for (index, one) in found.iter().enumerate() {
            let next = found.get(index + 1);
            match &one.record {
                Record::Event(event) if event.envelope.topic.starts_with("graph.node.") => {
                    let changed = next.filter(|next| next.head == one.head).map(|next| &next.record);
                    let Some(Record::EntityChanged(changed)) = changed else {
                        return Err(format!("the event at {} says a change that is none", one.position));
                    };
                    self.fold(event, changed)?;
                }
                Record::EntityChanged(changed) if index > 0 => {
                    let said = matches!(&found[index - 1].record, Record::Event(event)
                        if event.envelope.topic.starts_with("graph.node."));
                    if !said {
                        return Err(format!("{} changed at {} without an event", changed.id, one.position));
                    }
                }
                _ => {}
            }
        }
        let first = found.first().map_or(1, |one| one.position);
        self.seen = self.seen.max(found.last().map_or(0, |one| one.position));
        self.check_told(first)
    }

    fn fold(&mut self, event: &Event, changed: &Changed) -> Result<(), String> {
        let (version, id) = (event.position, &changed.id);
        if version <= self.seen {
            return Ok(());
        }
        let payload: Value =
            event.content.payload().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let before = self.now.get(id);
        let wrong = |what: &str| Err(format!("the change of {id} at {version} {what}: {payload}"));
        if changed.prev != before.map(|(version, _)| *version) {
            return wrong("does not rest on the one before");
        }
        if payload["prev"] != before.map_or(Value::Null, |(_, fields)| fields.clone()) {
            return wrong("says another row before it");
        }
        let topic = format!("graph.node.{}.{CONCEPT}", changed.change.as_str());
        if event.envelope.topic != topic || event.envelope.subject.as_ref().is_none_or(|of| of.id != *id) {
            return wrong("has another topic or subject");
        }
        let deleted = changed.change == Change::Deleted;
        if (changed.change == Change::Created) != before.is_none() || deleted != payload["next"].is_null() {
            return wrong("is of another kind");
        }
        let next = payload["next"].clone();
        if !deleted && (payload["payload"] != next || payload["prev"] == next) {
            return wrong("changes nothing or says two rows");
        }
        let fields = (!deleted).then_some(next.clone());
        self.facts.insert(version, Fact { id: id.clone(), prev: changed.prev, fields });
        match deleted {
            true => self.now.remove(id),
            false => self.now.insert(id.clone(), (version, next)),
        };
        Ok(())
    }

    /// What was answered stands, unless it was trimmed.
    fn check_told(&self, first: Position) -> Result<(), String> {
        for told in &self.told {
            let Told { id, at, fields, expected } = told;
            let fact = match at {
                At::Version(version) if *version < first => continue,
                At::Version(version) => {
                    self.facts.get(version).filter(|fact| fact.fields.as_ref() == Some(fields))
                }
                At::Deleted(version) if *version < first => continue,
                At::Deleted(version) => {
                    let gone = |fact: &&Fact| fact.prev == Some(*version) && fact.fields.is_none();
                    self.facts.values().find(gone)
                }
            };
            let Some(fact) = fact.filter(|fact| fact.id == *id) else {
                return Err(format!("the change of row {id} was acknowledged at {at:?} and is not there"));
            };
            if expected.is_some() && fact.prev != *expected {
                return Err(format!(
                    "the change of row {id} at {at:?} rests on {:?}, not {expected:?}",
                    fact.prev
                ));
            }
        }
        Ok(())
    }

    /// The rows of a state that is folded as far as this.
    pub fn check_state(&self, state: &State) -> Result<(), String> {
        for id in IDS {
            let row = state.row(CONCEPT, SPACE, id).map_err(|fault| fault.to_string())?;
            let row = row.map(|row| (row.version, Value::Object(row.fields)));
            if row.as_ref() != self.now.get(id) {
                return Err(format!("row {id} is {row:?}, its events say {:?}", self.now.get(id)));
            }
        }
        Ok(())
    }
}
