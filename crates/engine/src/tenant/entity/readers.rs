//! Connections that read a tenant's rows beside its writer, and what they saw last, kept for as long as it is all there is.
//!
//! A look at `state.db` begins with locks on its log and ends with giving them back: a fifth of what a point read costs. So
//! a reader that is put back keeps its look, and the next one goes on with it unless something was committed since. While
//! it is kept, the log cannot be cut: whoever wants that calls [`RowReaders::let_go`] first.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;

use crate::deliver::lock;
use crate::state::{Fault, read_beside};

/// More than this many at once are opened when needed, and closed.
const IDLE_MAX: usize = 4;

pub struct RowReaders {
    idle: Mutex<Vec<RowReader>>,
    /// COMMITs of `state.db` so far.
    commits: Arc<AtomicU64>,
}

pub struct RowReader {
    db: Connection,
    /// The commit that its look has seen at least; `None` when it has no look.
    look: Option<u64>,
}

impl RowReaders {
    pub fn of(commits: Arc<AtomicU64>) -> RowReaders {
        RowReaders { idle: Mutex::default(), commits }
    }

    /// One that sees every COMMIT up to now.
    pub fn take(&self, path: &Path) -> Result<RowReader, Fault> {
        let commits = self.commits.load(Ordering::Acquire);
        let idle = lock(&self.idle).pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => RowReader { db: read_beside(path)?, look: None },
        };
        if reader.look != Some(commits) {
            reader.let_go()?;
            reader.db.prepare_cached("BEGIN")?.execute([])?;
            reader.look = Some(commits);
        }
        Ok(reader)
    }

    /// For the next one.
    pub fn put_back(&self, reader: RowReader) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
    }

    /// Ends the looks that nobody uses at the moment.
    pub fn let_go(&self) -> Result<(), Fault> {
        lock(&self.idle).iter_mut().try_for_each(RowReader::let_go)
    }

    pub fn close(&self) {
        lock(&self.idle).clear();
    }
}

impl RowReader {
    pub fn db(&self) -> &Connection {
        &self.db
    }

    fn let_go(&mut self) -> Result<(), Fault> {
        if self.look.take().is_some() {
            self.db.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }
}
