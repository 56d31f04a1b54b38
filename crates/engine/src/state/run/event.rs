//! Events that live runs and pending occurrences read, kept once by position while something needs them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::Position;
use model::event::{Content, Event};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use crate::state::{Result, State};
use crate::tenant::event_from_json;

/// An event is looked up by what its own commit says of it; no commit has more records than this.
const RECENT: u64 = 16_384;

#[derive(Default)]
pub struct Events {
    /// Of the last commits, and those that will be stored at the next COMMIT.
    recent: BTreeMap<Position, Recent>,
    uses: HashMap<Position, Use>,
    /// Used, and not yet stored.
    fresh: Vec<Position>,
    /// Stored, and no longer used.
    stale: BTreeSet<Position>,
}

struct Recent {
    event: Arc<Event>,
    /// As expressions see it, once somebody asked.
    value: OnceCell<Arc<Value>>,
}

#[derive(Default)]
struct Use {
    count: u32,
    stored: bool,
}

impl Events {
    pub fn keep(&mut self, position: Position) {
        if position == 0 {
            return;
        }
        let uses = self.uses.entry(position).or_default();
        uses.count += 1;
        if uses.count == 1 {
            uses.stored = self.stale.remove(&position);
            if !uses.stored {
                self.fresh.push(position);
            }
        }
    }

    pub fn keep_if(&mut self, position: Option<Position>) {
        position.into_iter().for_each(|position| self.keep(position));
    }

    pub fn release(&mut self, position: Position) {
        let Some(uses) = self.uses.get_mut(&position) else { return };
        uses.count -= 1;
        if uses.count == 0 {
            if uses.stored {
                self.stale.insert(position);
            }
            self.uses.remove(&position);
        }
    }

    pub(super) fn stored(&mut self, db: &Connection) -> Result<()> {
        let mut read = db.prepare("SELECT position FROM event")?;
        let mut rows = read.query([])?;
        while let Some(row) = rows.next()? {
            let position = row.get(0)?;
            match self.uses.get_mut(&position) {
                Some(uses) => uses.stored = true,
                None => _ = self.stale.insert(position),
            }
        }
        let uses = &self.uses;
        self.fresh.retain(|position| uses.get(position).is_some_and(|uses| !uses.stored));
        Ok(())
    }
}

impl State {
    /// An event that something in its own commit may want to keep.
    pub(crate) fn pass(&mut self, event: Arc<Event>) {
        let (events, position) = (&mut self.runs.events, event.position);
        events.recent.insert(position, Recent { event, value: OnceCell::new() });
        while let Some(first) = events.recent.first_entry() {
            let old = first.key() + RECENT < position && !events.uses.contains_key(first.key());
            if !old {
                break;
            }
            first.remove();
        }
    }

    /// Events from here on did not happen after all.
    pub(crate) fn unpass(&mut self, from: Position) {
        self.runs.events.recent.split_off(&from);
    }

    /// Events of the newest commits at or after `from`.
    pub fn passed_after(&self, from: Position) -> Vec<Arc<Event>> {
        self.runs.events.recent.range(from..).map(|(_, recent)| recent.event.clone()).collect()
    }

    pub fn event(&self, position: Position) -> Result<Option<Arc<Event>>> {
        if let Some(recent) = self.runs.events.recent.get(&position) {
            return Ok(Some(recent.event.clone()));
        }
        let mut read = self.db.prepare_cached("SELECT body FROM event WHERE position = ?1")?;
        let body: Option<String> = read.query_row([position], |row| row.get(0)).optional()?;
        Ok(body.and_then(|body| event_from_json(&body)).map(Arc::new))
    }

    /// Takes its content from the copy that is kept, as the ledger has lost it.
    pub(crate) fn scrub_event(&mut self, position: Position) -> Result<()> {
        let Some(event) = self.event(position)? else { return Ok(()) };
        let erased = Event { content: Content::Erased, ..event.as_ref().clone() };
        let events = &mut self.runs.events;
        if events.uses.get(&position).is_some_and(|uses| uses.stored) || events.stale.contains(&position) {
            let mut put = self.db.prepare_cached("UPDATE event SET body = ?2 WHERE position = ?1")?;
            put.execute(params![position, erased.to_json()])?;
        }
        if let Some(kept) = events.recent.get_mut(&position) {
            *kept = Recent { event: Arc::new(erased), value: OnceCell::new() };
        }
        Ok(())
    }

    /// As [`State::event`], as a value; `None` also when its content was erased.
    pub fn event_value(&self, position: Position) -> Result<Option<Arc<Value>>> {
        if let Some(recent) = self.runs.events.recent.get(&position) {
            let has = recent.event.content.payload().is_some();
            let value = || recent.value.get_or_init(|| Arc::new(recent.event.to_value())).clone();
            return Ok(has.then(value));
        }
        let event = self.event(position)?.filter(|event| event.content.payload().is_some());
        Ok(event.map(|event| Arc::new(event.to_value())))
    }

    /// Only what changed since the last COMMIT is looked at, however much is kept.
    pub(super) fn store_events(&mut self) -> Result<()> {
        let events = &mut self.runs.events;
        let mut fresh = std::mem::take(&mut events.fresh);
        fresh.sort_unstable();
        fresh.dedup();
        for position in fresh {
            let Some(uses) = events.uses.get_mut(&position).filter(|uses| !uses.stored) else { continue };
            if let Some(recent) = events.recent.get(&position) {
                let mut put = self
                    .db
                    .prepare_cached("INSERT OR REPLACE INTO event (position, body) VALUES (?1, ?2)")?;
                put.execute(params![position, recent.event.to_json()])?;
                uses.stored = true;
            }
        }
        for position in std::mem::take(&mut events.stale) {
            self.db.prepare_cached("DELETE FROM event WHERE position = ?1")?.execute([position])?;
        }
        events.recent.clear();
        Ok(())
    }
}
