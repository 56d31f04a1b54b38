//! Events that live runs and pending occurrences read, kept once by position while something needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::Position;
use model::event::{Content, Event};
use rusqlite::{Connection, OptionalExtension, params};

use crate::state::{Result, State};
use crate::tenant::event_from_json;

/// An event is looked up by what its own commit says of it; no commit has more records than this.
const RECENT: u64 = 16_384;

#[derive(Default)]
pub struct Events {
    /// Of the last commits, and those that will be stored at the next COMMIT.
    recent: BTreeMap<Position, Arc<Event>>,
    uses: HashMap<Position, u32>,
    stored: BTreeSet<Position>,
}

impl Events {
    pub fn keep(&mut self, position: Position) {
        if position > 0 {
            *self.uses.entry(position).or_default() += 1;
        }
    }

    pub fn keep_if(&mut self, position: Option<Position>) {
        position.into_iter().for_each(|position| self.keep(position));
    }

    pub fn release(&mut self, position: Position) {
        if let Some(uses) = self.uses.get_mut(&position) {
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&position);
            }
        }
    }

    pub(super) fn stored(&mut self, db: &Connection) -> Result<()> {
        let mut read = db.prepare("SELECT position FROM event")?;
        self.stored = read.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(())
    }
}

impl State {
    /// An event that something in its own commit may want to keep.
    pub(crate) fn pass(&mut self, event: &Event) {
        let events = &mut self.runs.events;
        events.recent.insert(event.position, Arc::new(event.clone()));
        while let Some(first) = events.recent.first_entry() {
            let old = first.key() + RECENT < event.position && !events.uses.contains_key(first.key());
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
        self.runs.events.recent.range(from..).map(|(_, event)| event.clone()).collect()
    }

    pub fn event(&self, position: Position) -> Result<Option<Arc<Event>>> {
        if let Some(event) = self.runs.events.recent.get(&position) {
            return Ok(Some(event.clone()));
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
        if events.stored.contains(&position) {
            let mut put = self.db.prepare_cached("UPDATE event SET body = ?2 WHERE position = ?1")?;
            put.execute(params![position, erased.to_json()])?;
        }
        if let Some(kept) = events.recent.get_mut(&position) {
            *kept = Arc::new(erased);
        }
        Ok(())
    }

    pub(super) fn store_events(&mut self) -> Result<()> {
        let events = &mut self.runs.events;
        let mut new: Vec<Position> =
            events.uses.keys().copied().filter(|position| !events.stored.contains(position)).collect();
        new.sort_unstable();
        for position in new {
            if let Some(event) = events.recent.get(&position) {
                let mut put = self
                    .db
                    .prepare_cached("INSERT OR REPLACE INTO event (position, body) VALUES (?1, ?2)")?;
                put.execute(params![position, event.to_json()])?;
                events.stored.insert(position);
            }
        }
        let gone: Vec<Position> =
            events.stored.iter().copied().filter(|position| !events.uses.contains_key(position)).collect();
        for position in gone {
            self.db.prepare_cached("DELETE FROM event WHERE position = ?1")?.execute([position])?;
            events.stored.remove(&position);
        }
        events.recent.clear();
        Ok(())
    }
}
