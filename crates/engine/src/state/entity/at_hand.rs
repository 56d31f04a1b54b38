//! Rows that deciding has just read or written, kept at hand: one that many commits change goes into the table once.
//!
//! Changed ones are written at the COMMIT, before a step that may be taken back, and before anybody looks at the table other
//! than by a row's whole key ([`State::table`]). The others are copies, and may go at any time.
//!
//! **Invariant:** what was folded stands here or in the table. Whoever takes back what was folded lets go of all of this.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;

use model::Position;
use rusqlite::{Connection, OptionalExtension, params};

use super::{BY_ID, Text};
use crate::entity::Row;
use crate::faults::planted;
use crate::state::{Result, State};

/// How much is kept, in bytes of text.
const BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub struct AtHand(RefCell<Kept>);

#[derive(Default)]
struct Kept {
    rows: HashMap<String, Copy>,
    bytes: usize,
}

struct Copy {
    columns: Columns,
    /// The table says something else.
    changed: bool,
}

/// A row as the table holds it.
pub(super) struct Columns {
    pub concept: String,
    pub id: String,
    pub space: String,
    pub version: Position,
    pub created_at: String,
    pub created_by: String,
    pub updated_at: String,
    pub fields: String,
    pub sealed: Option<String>,
    pub since: Option<String>,
    pub provenance: String,
}

impl Columns {
    fn text(&self) -> Text<'_> {
        Text {
            concept: &self.concept,
            id: &self.id,
            space: &self.space,
            version: self.version,
            created_at: &self.created_at,
            created_by: &self.created_by,
            updated_at: &self.updated_at,
            fields: &self.fields,
            sealed: self.sealed.as_deref(),
            since: self.since.as_deref(),
            provenance: &self.provenance,
        }
    }

    fn of(text: &Text<'_>) -> Columns {
        Columns {
            concept: text.concept.to_owned(),
            id: text.id.to_owned(),
            space: text.space.to_owned(),
            version: text.version,
            created_at: text.created_at.to_owned(),
            created_by: text.created_by.to_owned(),
            updated_at: text.updated_at.to_owned(),
            fields: text.fields.to_owned(),
            sealed: text.sealed.map(str::to_owned),
            since: text.since.map(str::to_owned),
            provenance: text.provenance.to_owned(),
        }
    }

    fn place(&self) -> (&str, &str, &str) {
        (&self.concept, &self.id, &self.space)
    }

    fn key(&self) -> String {
        key(&self.concept, &self.space, &self.id)
    }

    /// What is small is much the same in every row.
    fn bytes(&self) -> usize {
        let long = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        512 + self.id.len() + self.fields.len() + long(&self.sealed) + long(&self.since)
    }

    /// Who made a row that is there, and when, stays as it is.
    pub(super) fn put(&self, db: &Connection) -> Result<()> {
        let mut put = db.prepare_cached(
            "INSERT INTO entity (concept, id, space, version, created_at, created_by, updated_at, fields, sealed, since,
             provenance) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (concept, id, space) DO UPDATE SET version = excluded.version,
             updated_at = excluded.updated_at, fields = excluded.fields, sealed = excluded.sealed,
             since = excluded.since, provenance = excluded.provenance",
        )?;
        put.execute(params![
            self.concept,
            self.id,
            self.space,
            self.version,
            self.created_at,
            self.created_by,
            self.updated_at,
            self.fields,
            self.sealed,
            self.since,
            self.provenance
        ])?;
        Ok(())
    }
}

/// Neither names of concepts nor spaces have lines.
fn key(concept: &str, space: &str, id: &str) -> String {
    [concept, space, id].join("\n")
}

impl AtHand {
    /// Nothing folded stands here any more that the table lacks, or it did not happen.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Kept::default();
    }

    /// Who made the row, and when, if that is known here.
    pub(super) fn made(&self, concept: &str, space: &str, id: &str) -> Option<(String, String)> {
        let kept = self.0.borrow();
        let columns = &kept.rows.get(&key(concept, space, id))?.columns;
        Some((columns.created_at.clone(), columns.created_by.clone()))
    }

    pub(super) fn drop_row(&self, concept: &str, space: &str, id: &str) {
        let mut kept = self.0.borrow_mut();
        if let Some(gone) = kept.rows.remove(&key(concept, space, id)) {
            kept.bytes -= gone.columns.bytes();
        }
    }

    /// True when that is more than should be kept.
    pub(super) fn put(&self, columns: Columns, changed: bool) -> bool {
        let mut kept = self.0.borrow_mut();
        kept.bytes += columns.bytes();
        if let Some(before) = kept.rows.insert(columns.key(), Copy { columns, changed }) {
            kept.bytes -= before.columns.bytes();
        }
        kept.bytes > BYTES_MAX
    }

    fn row(&self, key: &str) -> Option<Row> {
        self.0.borrow().rows.get(key).map(|copy| copy.columns.text().row())
    }

    fn is_full(&self) -> bool {
        self.0.borrow().bytes > BYTES_MAX
    }

    /// In the order of their keys, which is that of the index.
    fn write(&self, db: &Connection) -> Result<()> {
        let mut kept = self.0.borrow_mut();
        let mut changed: Vec<&mut Copy> = kept.rows.values_mut().filter(|copy| copy.changed).collect();
        changed.sort_unstable_by(|a, b| a.columns.place().cmp(&b.columns.place()));
        for copy in changed {
            let is_lost = planted("rows_at_hand_lost") && copy.columns.version.is_multiple_of(5);
            if !is_lost {
                copy.columns.put(db)?;
            }
            copy.changed = false;
        }
        Ok(())
    }
}

impl State {
    /// The database, for whoever looks at more than one row: all that was folded stands in it.
    pub(crate) fn table(&self) -> Result<&Connection> {
        self.at_hand.write(&self.db)?;
        Ok(&self.db)
    }

    /// Before a COMMIT: what is kept over it is bounded.
    pub(in crate::state) fn write_rows(&self) -> Result<()> {
        self.at_hand.write(&self.db)?;
        if self.at_hand.is_full() {
            self.at_hand.clear();
        }
        Ok(())
    }

    pub fn row(&self, concept: &str, space: &str, id: &str) -> Result<Option<Row>> {
        if let Some(row) = self.at_hand.row(&key(concept, space, id)) {
            return Ok(Some(row));
        }
        let mut read = self.db.prepare_cached(&BY_ID)?;
        let found = read.query_row(params![concept, id, space], |row| {
            let text = Text::of(row)?;
            if !self.at_hand.is_full() {
                self.at_hand.put(Columns::of(&text), false);
            }
            Ok(text.row())
        });
        Ok(found.optional()?)
    }
}
