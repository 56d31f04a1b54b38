//! Versions that are no longer declared: kept while something runs on them, or an event that is kept may have been routed under
//! them (rules R3). In memory are those that something runs on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use model::Position;
use model::definition::Definition;
use rusqlite::{Connection, OptionalExtension, params};

use crate::automation::Automation;
use crate::state::{Result, State};

/// When a version was in force: from the position that declared it to before the one that replaced it.
type Span = (Position, Position);

impl State {
    /// The version a run or a pending occurrence is on.
    pub fn version(&self, name: &str, hash: &str) -> Option<Arc<Automation>> {
        let declared = self.catalog.automations.get(name).filter(|automation| automation.hash == hash);
        declared.or_else(|| self.runs.versions.get(hash)).cloned()
    }

    /// The version that was in force when this position was written; `None`: there was none, or nobody remembers.
    pub fn version_at(&self, name: &str, position: Position) -> Result<Option<Arc<Automation>>> {
        let current = self.catalog.automations.get(name);
        if let Some(current) = current.filter(|current| current.position <= position) {
            return Ok(Some(current.clone()));
        }
        let mut read = self.db.prepare_cached("SELECT hash, body, spans FROM version WHERE name = ?1")?;
        let mut rows = read.query([name])?;
        while let Some(row) = rows.next()? {
            let spans: Vec<Span> = serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default();
            if spans.iter().any(|(since, until)| (*since..*until).contains(&position)) {
                return Ok(compiled(row.get(0)?, &row.get::<_, String>(1)?));
            }
        }
        Ok(None)
    }

    /// The whole hash of a version that is declared or still runs.
    pub(super) fn hash_of(&self, name: &str, version: &str) -> String {
        let declared =
            self.catalog.automations.get(name).filter(|automation| automation.version() == version);
        let retired =
            || self.runs.versions.values().find(|old| old.name() == name && old.version() == version);
        declared.or_else(retired).map(|automation| automation.hash.clone()).unwrap_or_default()
    }

    fn uses_version(&self, hash: &str) -> bool {
        self.runs.on_version.contains_key(hash)
            || self.runs.gates.pending.values().any(|pending| pending.hash == hash)
    }

    /// Keeps a version that is about to be replaced by what stands at `until`.
    pub(crate) fn retire(&mut self, name: &str, until: Position) -> Result<()> {
        let Some(old) = self.catalog.automations.get(name).cloned() else { return Ok(()) };
        self.forget_toggle(name);
        let mut read = self.db.prepare_cached("SELECT spans FROM version WHERE hash = ?1")?;
        let before: Option<String> = read.query_row([&old.hash], |row| row.get(0)).optional()?;
        let mut spans: Vec<Span> =
            before.and_then(|before| serde_json::from_str(&before).ok()).unwrap_or_default();
        spans.push((old.position, until));
        let spans = serde_json::to_string(&spans).unwrap_or_default();
        let body = Definition::Automation(old.definition.clone()).to_json();
        let mut put = self.db.prepare_cached(
            "INSERT OR REPLACE INTO version (hash, body, name, spans, until) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        put.execute(params![old.hash, body, name, spans, until])?;
        drop((read, put));
        self.runs.replaced.insert(old.hash.clone());
        if self.uses_version(&old.hash) {
            self.runs.versions.insert(old.hash.clone(), old);
        }
        Ok(())
    }

    /// A run begins, or is to begin, on a version that may not be declared any more.
    pub(crate) fn recall(&mut self, name: &str, hash: &str) -> Result<()> {
        if self.version(name, hash).is_some() {
            return Ok(());
        }
        let found = read_one(&self.db, hash)?;
        self.runs.versions.extend(found.map(|version| (hash.to_owned(), version)));
        Ok(())
    }

    /// Nothing runs on it any more, perhaps.
    pub(crate) fn drop_unused(&mut self, hash: &str) -> Result<()> {
        // Also what is declared again may have been replaced once.
        if self.runs.replaced.contains(hash) && !self.uses_version(hash) {
            self.runs.versions.remove(hash);
            self.drop_version(hash, self.first)?;
        }
        Ok(())
    }

    /// No event before `first` is kept: what was replaced before it is forgotten, unless something runs on it.
    pub(crate) fn drop_versions_below(&mut self, first: Position) -> Result<()> {
        let mut read = self.db.prepare("SELECT hash FROM version WHERE until <= ?1 ORDER BY hash")?;
        let old = read.query_map([first], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        drop(read);
        for hash in old {
            if !self.uses_version(&hash) {
                self.drop_version(&hash, first)?;
            }
        }
        Ok(())
    }

    fn drop_version(&mut self, hash: &str, first: Position) -> Result<()> {
        let mut gone = self.db.prepare_cached("DELETE FROM version WHERE hash = ?1 AND until <= ?2")?;
        if gone.execute(params![hash, first])? > 0 {
            self.runs.replaced.remove(hash);
        }
        Ok(())
    }
}

fn read_one(db: &Connection, hash: &str) -> Result<Option<Arc<Automation>>> {
    let mut read = db.prepare_cached("SELECT body FROM version WHERE hash = ?1")?;
    let body: Option<String> = read.query_row([hash], |row| row.get(0)).optional()?;
    Ok(body.and_then(|body| compiled(hash.to_owned(), &body)))
}

fn compiled(hash: String, body: &str) -> Option<Arc<Automation>> {
    let Ok(Definition::Automation(definition)) = Definition::from_json(body) else { return None };
    match Automation::new(definition, hash, 0) {
        Ok(automation) => Some(Arc::new(automation)),
        Err(problem) => {
            tracing::error!(%problem, "a version that is kept cannot be read");
            None
        }
    }
}

pub(super) fn replaced(db: &Connection) -> Result<HashSet<String>> {
    let mut read = db.prepare("SELECT hash FROM version")?;
    let hashes = read.query_map([], |row| row.get(0))?;
    Ok(hashes.collect::<rusqlite::Result<_>>()?)
}

/// Those of these versions that are kept.
pub(super) fn load<'a>(
    db: &Connection,
    used: impl Iterator<Item = &'a String>,
) -> Result<HashMap<String, Arc<Automation>>> {
    let mut versions = HashMap::new();
    for hash in used {
        if !versions.contains_key(hash) {
            versions.extend(read_one(db, hash)?.map(|version| (hash.clone(), version)));
        }
    }
    Ok(versions)
}
