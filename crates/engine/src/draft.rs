//! A commit in the making: records are folded as they are added, so that what follows sees them.
//!
//! What a failing step did is taken back with [`Draft::rewind`]: its rows by an SQL savepoint, its records by forgetting
//! them. Only rows and keys may lie between a mark and its rewind; routing comes after the steps.

use std::collections::VecDeque;
use std::sync::Arc;

use ledger::Ledger;
use model::event::Event;
use model::record::{FORMAT_OF_RUNS, Record, RunRecord};
use model::{Position, Timestamp};

use crate::apply::{Place, apply};
use crate::decide::{Entry, Ground};
use crate::entropy::Entropy;
use crate::read;
use crate::sealing::seal_entry;
use crate::state::{Fault, Result, State};

pub struct Draft<'a> {
    pub state: &'a mut State,
    pub entropy: &'a mut Entropy,
    pub now: Timestamp,
    /// What was written before this batch; `None` where nobody looks back.
    past: Option<&'a dyn Ledger>,
    first: Position,
    entries: Vec<Entry>,
    /// Entries before this one have found whom they concern.
    pub routed: usize,
    /// It is being done: who asks for it meanwhile need not.
    pub routing: bool,
    /// What is told of runs and written nowhere, with the spaces it may quote: it has not found whom it concerns.
    pub views: VecDeque<(Event, Vec<String>)>,
    /// How often runs have yielded and gone on in this commit.
    pub yields: usize,
    /// Entries from this one on were written by the run that walks.
    stretch: usize,
    /// Of what the entries carry.
    bytes: usize,
    /// Somebody listens to what is told and not written.
    pub heard: bool,
}

/// A place to come back to.
pub struct Mark {
    entries: usize,
    bytes: usize,
    rows: usize,
}

impl<'a> Draft<'a> {
    pub fn new(state: &'a mut State, entropy: &'a mut Entropy, now: Timestamp, first: Position) -> Draft<'a> {
        Draft {
            state,
            entropy,
            now,
            past: None,
            first,
            entries: Vec::new(),
            routed: 0,
            routing: false,
            views: VecDeque::new(),
            yields: 0,
            stretch: 0,
            bytes: 0,
            heard: false,
        }
    }

    pub fn over(self, past: &'a dyn Ledger) -> Draft<'a> {
        Draft { past: Some(past), ..self }
    }

    pub fn heard(self, heard: bool) -> Draft<'a> {
        Draft { heard, ..self }
    }

    /// Goes out with the record that was added last, if that is kept.
    pub fn tell(&mut self, event: Arc<Event>) {
        if let Some(last) = self.entries.last_mut() {
            last.told.push(event);
        }
    }

    pub fn has_past(&self) -> bool {
        self.past.is_some()
    }

    /// The first event after `after` that `wanted` says yes to, in the ledger and in what is not yet part of it. What was
    /// trimmed is not looked at; nor what comes next in this commit, which is still to come for a run that walks before it.
    pub fn look_back(
        &self,
        after: Position,
        mut wanted: impl FnMut(&Event) -> Result<bool>,
    ) -> Result<Option<Arc<Event>>> {
        let mut next = after + 1;
        if let Some(past) = self.past {
            let (mut reader, mut bytes, head) = (past.reader(), Vec::new(), past.head().position);
            next = next.max(past.first());
            while next <= head {
                let mut found = Ok(None);
                let end = reader.read(next, read::CHUNK, &mut bytes).map_err(unread)?;
                let looked = read::events(&bytes, (next, head), |event| {
                    if matches!(found, Ok(None)) {
                        found = wanted(&event).map(|yes| yes.then_some(event));
                    }
                });
                looked.map_err(unread)?;
                if let Some(event) = found? {
                    return Ok(Some(event));
                }
                next = end.next.max(next + 1);
            }
        }
        for event in self.state.passed_after(next) {
            if self.has_come(event.position) && wanted(&event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Where the next record will stand.
    pub fn next(&self) -> Position {
        self.first + self.entries.len() as u64
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How long the bodies of its records are together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is another event that has not found whom it concerns.
    pub fn has_unrouted(&self) -> bool {
        let is_event = |entry: &Entry| matches!(entry.record, Record::Event(_));
        !self.views.is_empty() || self.entries[self.routed..].iter().any(is_event)
    }

    /// Another run walks.
    pub fn begin_stretch(&mut self) {
        self.stretch = self.entries.len();
    }

    /// How many records the run that walks has written.
    pub fn stretch_len(&self) -> usize {
        self.entries.len() - self.stretch
    }

    /// Whether a record is there for the run that walks: it stands before the event that is being routed, or is its own.
    fn has_come(&self, position: Position) -> bool {
        !self.routing || position < self.come() || position >= self.first + self.stretch as u64
    }

    /// Where the first record would stand that is still to come for a run that walks now.
    pub fn come(&self) -> Position {
        if self.routing { self.first + self.routed as u64 } else { self.next() }
    }

    /// Where its first record stands.
    pub fn begins(&self) -> Position {
        self.first
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub fn push(&mut self, record: Record) -> Result<Position> {
        let entry = Entry::new(record, self.entropy);
        self.add(entry)
    }

    /// As [`Draft::push`]; says first that the ledger holds such records from here on.
    pub fn push_run(&mut self, record: RunRecord) -> Result<Position> {
        self.raise_format()?;
        self.push(Record::Run(record))
    }

    /// As [`Draft::push_run`], of a record that does not say what it quotes: something of these spaces.
    pub fn push_within(&mut self, record: RunRecord, spaces: Vec<String>) -> Result<Position> {
        self.raise_format()?;
        let entry = Entry::new(Record::Run(record), self.entropy);
        self.add(Entry { spaces: Some(spaces), ..entry })
    }

    pub fn raise_format(&mut self) -> Result<()> {
        if self.state.format < FORMAT_OF_RUNS {
            self.push(Record::FormatRaised { format: FORMAT_OF_RUNS })?;
        }
        Ok(())
    }

    pub fn add(&mut self, mut entry: Entry) -> Result<Position> {
        let place = Place { position: self.next(), time: self.now };
        if self.state.seals.is_used() {
            seal_entry(self.state, (self.first, &self.entries), &mut entry)?;
        }
        apply(self.state, place, &entry.record)?;
        self.bytes += entry.bytes();
        self.entries.push(entry);
        Ok(place.position)
    }

    pub fn add_all(&mut self, entries: Vec<Entry>) -> Result<()> {
        // They are large, and mostly it is one.
        self.entries.reserve_exact(entries.len());
        entries.into_iter().try_for_each(|entry| self.add(entry).map(drop))
    }

    /// Asks one of the deciding functions, which take the state as it is and give back entries.
    pub fn ask<T>(&mut self, decide: impl FnOnce(&State, &mut Ground<'_>) -> T) -> T {
        let next = self.next();
        let mut ground = Ground { now: self.now, next, entropy: self.entropy };
        decide(self.state, &mut ground)
    }

    pub fn mark(&mut self) -> Result<Mark> {
        self.state
            .table()?
            .prepare_cached("SAVEPOINT step")
            .and_then(|mut run| run.execute([]))
            .map_err(Fault)?;
        Ok(Mark { entries: self.entries.len(), bytes: self.bytes, rows: self.state.open_rows })
    }

    pub fn keep(&mut self, _: Mark) -> Result<()> {
        self.state.db.prepare_cached("RELEASE step").and_then(|mut run| run.execute([])).map_err(Fault)?;
        Ok(())
    }

    pub fn rewind(&mut self, mark: Mark) -> Result<()> {
        self.routed = self.routed.min(mark.entries);
        self.state.db.execute_batch("ROLLBACK TO step; RELEASE step").map_err(Fault)?;
        self.entries.truncate(mark.entries);
        self.bytes = mark.bytes;
        self.state.open_rows = mark.rows;
        self.state.carried = None;
        self.state.at_hand.clear();
        self.state.unpass(self.next());
        Ok(())
    }
}

/// What cannot be read back is as bad as a state that cannot be read: the process stops, and says why.
fn unread(error: impl std::fmt::Display) -> Fault {
    Fault(rusqlite::Error::ToSqlConversionFailure(error.to_string().into()))
}
