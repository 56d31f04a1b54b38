//! Connections that read a tenant's rows beside its writer, and what they saw last, kept for as long as it is all there is.
//!
//! A look at `state.db` begins with locks on its log and ends with giving them back: a fifth of what a point read costs. So
//! a reader that is put back keeps its look, and the next one goes on with it unless something was committed since. While
//! anybody looks, the log cannot be cut: who wants that waits for those who read, and lets nobody begin meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rusqlite::Connection;

use crate::deliver::lock;
use crate::state::{Fault, read_beside};

/// More than this many at once are opened when needed, and closed.
const IDLE_MAX: usize = 4;

pub struct RowReaders {
    idle: Mutex<Vec<RowReader>>,
    /// COMMITs of `state.db` so far.
    commits: Arc<AtomicU64>,
    /// Held by all who read; alone by who cuts the log.
    gate: RwLock<()>,
}

struct RowReader {
    db: Connection,
    /// The commit that its look has seen at least; `None` when it has no look.
    look: Option<u64>,
}

impl RowReaders {
    pub fn of(commits: Arc<AtomicU64>) -> RowReaders {
        RowReaders { idle: Mutex::default(), commits, gate: RwLock::default() }
    }

    /// A look that sees every COMMIT up to now. **It must not begin another one**: who cuts the log may wait in between.
    pub fn look<T>(&self, path: &Path, read: impl FnOnce(&Connection) -> T) -> Result<T, Fault> {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let reader = self.take(path)?;
        let seen = read(&reader.db);
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        Ok(seen)
    }

    fn take(&self, path: &Path) -> Result<RowReader, Fault> {
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

    /// Does something while nobody looks.
    pub fn while_none<T>(&self, work: impl FnOnce() -> T) -> Result<T, Fault> {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        lock(&self.idle).iter_mut().try_for_each(RowReader::let_go)?;
        Ok(work())
    }

    pub fn close(&self) {
        lock(&self.idle).clear();
    }
}

impl RowReader {
    fn let_go(&mut self) -> Result<(), Fault> {
        if self.look.take().is_some() {
            self.db.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }
}
