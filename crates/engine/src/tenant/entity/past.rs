//! The rows of a concept as they were: those of now that have not changed since, and of the others what the first change
//! since then says was there before it.

use std::collections::HashSet;

use model::topic::Pattern;
use model::{Code, Problem, Timestamp};
use rusqlite::{Connection, params_from_iter};

use super::broken;
use super::history::Moment;
use crate::entity::Row;
use crate::entity::find::Find;
use crate::read;
use crate::state::entity::{put_row, remove_row, row_of};
use crate::state::{self, Fault};
use crate::tenant::Tenant;

/// Changes that a look back goes through before it gives up.
const CHANGES_MAX: usize = 100_000;

impl Tenant {
    /// A table in memory of every row that the search could want, as of `moment`: its cost grows with what the search
    /// finds now and with what has changed since, not with the table.
    pub(super) fn rows_as_of(&self, find: &Find, moment: Moment) -> Result<Connection, Problem> {
        self.is_kept(moment)?;
        let then = state::rows_in_memory().map_err(broken)?;
        let fault = |err: rusqlite::Error| broken(Fault(err));
        // The rows before the changes: one that changes in between is then among both, and the change decides.
        self.with_rows(&find.concept, |db| {
            let way = find.way(db, usize::MAX, 0).map_err(fault)?;
            let (mut read, params) = find.prepare(db, None, way).map_err(fault)?;
            let mut rows = read.query(params_from_iter(params)).map_err(fault)?;
            while let Some(row) = rows.next().map_err(fault)? {
                let row = row_of(row).map_err(fault)?;
                if moment.includes(row.version, row.updated_at) {
                    put_row(&then, &row).map_err(broken)?;
                }
            }
            Ok(())
        })?;
        self.undo_changes(find, moment, &then)?;
        Ok(then)
    }

    fn undo_changes(&self, find: &Find, moment: Moment, then: &Connection) -> Result<(), Problem> {
        let mut query = crate::tenant::Query {
            topic: Some(Pattern::parse(&format!("graph.node.*.{}", find.concept.id()))?),
            limit: 1_000,
            ..crate::tenant::Query::default()
        };
        match moment {
            Moment::Position(position) => query.after = Some(position),
            Moment::Time(time) => query.since = Some(time),
        }
        let mut seen = HashSet::new();
        loop {
            let page = self.find(&query)?;
            for event in page.events.iter().filter(|e| !moment.includes(e.position, e.recorded_at)) {
                let subject = event.envelope.subject.as_ref().map(|subject| subject.id.clone());
                let key = (event.envelope.space.clone(), subject.unwrap_or_default());
                if seen.contains(&key) {
                    continue;
                }
                if seen.len() >= CHANGES_MAX {
                    let detail = format!("more than {CHANGES_MAX} rows have changed since");
                    return Err(Problem::new(Code::RequestInvalid, detail).hint("ask for a later position"));
                }
                if let Some(before) = self.before_change(event.position)? {
                    remove_row(then, find.concept.id(), &key.0, &key.1).map_err(broken)?;
                    before.map_or(Ok(()), |row| put_row(then, &row)).map_err(broken)?;
                    seen.insert(key);
                }
            }
            match page.next {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    /// The row that a change was made of, `None` when it made the row; nothing at all when the event is no change.
    fn before_change(&self, position: model::Position) -> Result<Option<Option<Row>>, Problem> {
        let Some(change) = self.past(position)? else { return Ok(None) };
        let Some(prev) = change.changed.prev else { return Ok(Some(None)) };
        let before = match self.past(prev)? {
            Some(past) if past.said.is_some() => self.row_of_past(&past, None)?,
            // Trimmed: the change after it still says what it was, but not since when.
            _ => {
                let mut row = change.to_row()?;
                let fields =
                    change.said.as_ref().and_then(|said| said.get("prev")).and_then(|v| v.as_object());
                row.fields = fields.cloned().unwrap_or_default();
                (row.version, row.updated_at) = (prev, row.created_at);
                row
            }
        };
        Ok(Some(Some(before)))
    }

    /// Everything that changed since is still in the ledger.
    fn is_kept(&self, moment: Moment) -> Result<(), Problem> {
        let first = self.first();
        let kept = first == 1
            || match moment {
                Moment::Position(position) => position + 1 >= first,
                Moment::Time(time) => self.first_time()?.is_some_and(|began| began <= time),
            };
        if kept { Ok(()) } else { Err(read::gone(first)) }
    }

    fn first_time(&self) -> Result<Option<Timestamp>, Problem> {
        let first = crate::tenant::Query { limit: 1, ..crate::tenant::Query::default() };
        Ok(self.find(&first)?.events.first().map(|event| event.recorded_at))
    }
}
