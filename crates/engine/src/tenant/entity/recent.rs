//! Rows that changed since the last COMMIT of `state.db`, so that reads need not wait for the writer: whoever finds
//! nothing here reads the committed file, and finds there what was here before.
//!
//! **Invariant:** a row is noted before its change is answered and forgotten after it is committed. So who looks here
//! first and into the file second never misses an answered write.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use model::Position;
use model::record::{Change, Changed};

use crate::entity::{Row, Written};
use crate::faults::planted;

#[derive(Default)]
pub struct Recent(RwLock<Noted>);

#[derive(Default)]
struct Noted {
    /// By concept, then by id: the spaces it changed in.
    rows: HashMap<String, HashMap<String, Vec<Entry>>>,
    /// Up to where `state.db` was committed when this was last tidied.
    committed: Position,
}

struct Entry {
    space: String,
    version: Position,
    now: Now,
}

/// What is known of a row that changed of late.
#[derive(Clone)]
pub enum Now {
    Row(Arc<Row>),
    Gone,
    /// It changed; the writer knows how.
    Ask,
}

/// What a look at one row's recent changes came to.
pub enum Look {
    /// No space of it changed: the file says what it is.
    Committed,
    Known(Now),
    /// It changed in another space than the one that was asked for, or no space was.
    Elsewhere,
}

impl Recent {
    /// A change that stands at `version`.
    pub fn note(&self, version: Position, changed: &Changed) {
        let mut noted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of_id =
            noted.rows.entry(changed.concept.clone()).or_default().entry(changed.id.clone()).or_default();
        let now = if changed.change == Change::Deleted { Now::Gone } else { Now::Ask };
        match of_id.iter_mut().find(|entry| entry.space == changed.space) {
            Some(entry) => (entry.version, entry.now) = (version, now),
            None => of_id.push(Entry { space: changed.space.clone(), version, now }),
        }
    }

    /// The row that an answer is about to say, unless a later change of the same batch stands above it.
    pub fn fill(&self, written: &Written) {
        if !matches!(written.change, Some(Change::Created | Change::Updated)) {
            return;
        }
        let row = &written.row;
        let mut noted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of_id = noted.rows.get_mut(&row.concept).and_then(|of_concept| of_concept.get_mut(&row.id));
        let entry = of_id.into_iter().flatten().find(|entry| entry.space == row.space);
        if let Some(entry) = entry.filter(|entry| entry.version == row.version) {
            entry.now = Now::Row(Arc::new(row.clone()));
        }
    }

    /// Forgets what is committed.
    pub fn tidy(&self, committed: Position) {
        let mut noted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if noted.committed == committed {
            return;
        }
        noted.committed = committed;
        noted.rows.retain(|_, of_concept| {
            of_concept.retain(|_, entries| {
                entries.retain(|entry| entry.version > committed);
                !entries.is_empty()
            });
            !of_concept.is_empty()
        });
    }

    pub fn look(&self, concept: &str, space: &str, id: &str) -> Look {
        if planted("read_committed_rows") {
            return Look::Committed;
        }
        let noted = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entries) = noted.rows.get(concept).and_then(|of_concept| of_concept.get(id)) else {
            return Look::Committed;
        };
        match entries.iter().find(|entry| entry.space == space) {
            Some(entry) => Look::Known(entry.now.clone()),
            None => Look::Elsewhere,
        }
    }

    /// Whether any row of the concept changed since the last commit.
    pub fn touches(&self, concept: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).rows.contains_key(concept)
    }
}
