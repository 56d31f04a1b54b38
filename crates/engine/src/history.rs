//! What has happened: runs with their steps, and decisions; folded from the ledger beside the writer (rules R4).
//!
//! It may lag. Whoever reads folds first what was committed, so a read never misses what was answered. It is no part of
//! snapshots; deleted, it is read again from the ledger as far as that goes back.

use std::path::Path;

use model::record::{Outcome, Routed, RunEnded, RunRecord, RunStarted, SettledOccurrence, Verdict};
use model::{Position, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use crate::apply::Place;
use crate::state::{Fault, Result};

pub mod read;

const SCHEMA: &str = include_str!("history.sql");

pub struct History {
    pub(crate) db: Connection,
    /// Everything up to here is in it.
    pub position: Position,
}

impl History {
    /// `None` keeps it in memory. A file that cannot be used is begun anew.
    pub fn open(path: Option<&Path>) -> Result<History> {
        let db = match path {
            Some(path) => Connection::open(path)?,
            None => Connection::open_in_memory()?,
        };
        db.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-2000; PRAGMA temp_store=MEMORY;",
        )?;
        let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            db.execute_batch(&format!("BEGIN; {SCHEMA}; PRAGMA user_version = 1; COMMIT"))?;
        }
        let position = db.query_row("SELECT position FROM meta", [], |row| row.get(0))?;
        Ok(History { db, position })
    }

    /// Folds records in one transaction; afterwards everything up to `through` is known.
    pub fn fold(&mut self, records: &[(Place, RunRecord)], through: Position) -> Result<()> {
        if records.is_empty() && through <= self.position {
            return Ok(());
        }
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        for (place, record) in records.iter().filter(|(place, _)| place.position > self.position) {
            self.one(*place, record)?;
        }
        self.db.execute("UPDATE meta SET position = ?1", [through])?;
        self.db.execute_batch("COMMIT")?;
        self.position = through;
        Ok(())
    }

    fn one(&self, place: Place, record: &RunRecord) -> Result<()> {
        match record {
            RunRecord::Routed(routed) => self.routed(place, routed),
            RunRecord::Settled(settled) => self.settled(place, settled),
            RunRecord::Started(started) => self.started(place, started),
            RunRecord::Moved(moved) => {
                self.steps(moved.run, &moved.steps)?;
                let mut put = self.db.prepare_cached("UPDATE run SET status = ?2 WHERE position = ?1")?;
                put.execute(params![moved.run, moved.status.as_str()])?;
                Ok(())
            }
            RunRecord::Ended(ended) => self.ended(place, ended),
            RunRecord::WaitEnded(_)
            | RunRecord::SchedulePassed(_)
            | RunRecord::AutomationSet(_)
            | RunRecord::Effect(_) => Ok(()),
        }
    }

    fn routed(&self, place: Place, routed: &Routed) -> Result<()> {
        for (n, verdict) in routed.verdicts.iter().enumerate() {
            let body = decision(place, n, routed.event, verdict);
            let mut put = self.db.prepare_cached(
                "INSERT OR REPLACE INTO decision (position, n, event, automation, outcome, at, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            let (outcome, at) = (verdict.outcome.as_str(), place.time.to_string());
            let name = &verdict.automation;
            put.execute(params![place.position, n, routed.event, name, outcome, at, body.to_string()])?;
        }
        Ok(())
    }

    fn settled(&self, place: Place, settled: &SettledOccurrence) -> Result<()> {
        let (position, n) = settled.of;
        let mut read = self.db.prepare_cached("SELECT body FROM decision WHERE position = ?1 AND n = ?2")?;
        let body: Option<String> = read.query_row(params![position, n], |row| row.get(0)).optional()?;
        let Some(mut body) = body.and_then(|body| serde_json::from_str::<Value>(&body).ok()) else {
            return Ok(());
        };
        body["outcome"] = settled.outcome.as_str().into();
        body["settled_at"] = json!(place.time);
        if let Value::Object(map) = &mut body {
            map.remove("until");
            map.remove("reason");
            map.extend(settled.reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
            map.extend(settled.gate.iter().map(|gate| ("gate".to_owned(), gate.as_str().into())));
        }
        if let (Value::Object(seen), Value::Object(more)) = (&mut body["values"], &settled.values) {
            seen.extend(more.clone());
        }
        let mut put = self
            .db
            .prepare_cached("UPDATE decision SET outcome = ?3, body = ?4 WHERE position = ?1 AND n = ?2")?;
        put.execute(params![position, n, settled.outcome.as_str(), body.to_string()])?;
        Ok(())
    }

    fn started(&self, place: Place, started: &RunStarted) -> Result<()> {
        let mut body = json!({
            "id": started.id, "automation": started.automation, "version": started.hash.get(..12),
            "trigger": started.trigger, "occurrence": started.occurrence, "started_at": place.time,
            "attempt": started.attempt, "depth": started.depth,
        });
        if let Some(of) = &started.rerun_of {
            body["rerun_of"] = of.as_str().into();
        }
        let before = self.run_again(place, started, &mut body)?;
        let mut put = self.db.prepare_cached(
            "INSERT OR REPLACE INTO run (position, id, automation, status, event, started_at, decided, body)
             VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, ?7)",
        )?;
        let (id, name, at) = (&started.id, &started.automation, text(&body["started_at"]));
        let decided = started.occurrence.position;
        put.execute(params![place.position, id, name, started.event, at, decided, body.to_string()])?;
        if before || started.rerun_of.is_some() { Ok(()) } else { self.note_run(started) }
    }

    /// A run that had ended goes on under its id. The same try keeps its steps, but for those that are tried again.
    fn run_again(&self, place: Place, started: &RunStarted, body: &mut Value) -> Result<bool> {
        let mut read = self.db.prepare_cached("SELECT position, body FROM run WHERE id = ?1")?;
        let before: Option<(Position, String)> =
            read.query_row([&started.id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((position, old)) = before.filter(|(position, _)| *position != place.position) else {
            return Ok(false);
        };
        let old: Value = serde_json::from_str(&old).unwrap_or_default();
        body["started_at"] = old["started_at"].clone();
        if old["attempt"] == body["attempt"] {
            let kept = "run = ?1 AND json_extract(body, '$.status') IN ('completed', 'skipped')";
            self.db.execute(&format!("UPDATE step SET run = ?2 WHERE {kept}"), [position, place.position])?;
        }
        self.db.execute("DELETE FROM step WHERE run = ?1", [position])?;
        self.db.execute("DELETE FROM run WHERE position = ?1", [position])?;
        Ok(true)
    }

    /// The decision that let it start names it.
    fn note_run(&self, started: &RunStarted) -> Result<()> {
        let mut put = self.db.prepare_cached(
            "UPDATE decision SET body = json_set(body, '$.run', ?3) WHERE rowid = (SELECT rowid FROM decision
             WHERE automation = ?1 AND (event = ?2 AND ?2 > 0 OR position = ?4)
             AND json_extract(body, '$.trigger') = ?5 AND outcome IN ('ran', 'caught_up', 'pending')
             AND json_extract(body, '$.run') IS NULL ORDER BY position DESC LIMIT 1)",
        )?;
        let of = started.occurrence.position;
        put.execute(params![started.automation, started.event, started.id, of, started.trigger])?;
        Ok(())
    }

    fn steps(&self, run: Position, steps: &[Value]) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let mut read = self.db.prepare_cached("SELECT coalesce(max(n), -1) FROM step WHERE run = ?1")?;
        let last: i64 = read.query_row([run], |row| row.get(0))?;
        let mut put = self.db.prepare_cached("INSERT INTO step (run, n, body) VALUES (?1, ?2, ?3)")?;
        for (n, step) in steps.iter().enumerate() {
            put.execute(params![run, last + 1 + n as i64, step.to_string()])?;
        }
        Ok(())
    }

    fn ended(&self, place: Place, ended: &RunEnded) -> Result<()> {
        self.steps(ended.run, &ended.steps)?;
        let mut read = self.db.prepare_cached("SELECT body FROM run WHERE position = ?1")?;
        let body: Option<String> = read.query_row([ended.run], |row| row.get(0)).optional()?;
        let Some(mut body) = body.and_then(|body| serde_json::from_str::<Value>(&body).ok()) else {
            return Ok(());
        };
        body["ended_at"] = json!(place.time);
        body["ended"] = place.position.into();
        if !ended.output.is_null() {
            body["output"] = ended.output.clone();
        }
        if let Some(code) = &ended.code {
            body["error"] = json!({"code": code, "message": ended.message, "class": ended.class});
        }
        let mut put = self
            .db
            .prepare_cached("UPDATE run SET status = ?2, ended_at = ?3, body = ?4 WHERE position = ?1")?;
        put.execute(params![ended.run, ended.status.as_str(), place.time.to_string(), body.to_string()])?;
        Ok(())
    }

    /// Forgets what ended before an instant.
    pub fn drop_before(&self, at: Timestamp) -> Result<()> {
        let at = at.to_string();
        self.db.execute("DELETE FROM decision WHERE at < ?1 AND outcome <> 'pending'", [&at])?;
        let old = "SELECT position FROM run WHERE ended_at IS NOT NULL AND ended_at < ?1";
        self.db.execute(&format!("DELETE FROM step WHERE run IN ({old})"), [&at])?;
        self.db.execute(&format!("DELETE FROM run WHERE position IN ({old})"), [&at])?;
        Ok(())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A decision as contracts §12 shows it.
fn decision(place: Place, n: usize, event: Position, verdict: &Verdict) -> Value {
    let mut body = json!({
        "occurrence": {"position": place.position, "n": n}, "automation": verdict.automation,
        "trigger": verdict.trigger, "version": verdict.version, "outcome": verdict.outcome.as_str(),
        "at": place.time,
    });
    if event > 0 {
        body["event"] = event.into();
    }
    if let Some(reason) = &verdict.reason {
        body["reason"] = reason.as_str().into();
    }
    let gate = verdict.gate.as_deref().filter(|_| verdict.outcome != Outcome::Ran).unwrap_or("start");
    body["gate"] = gate.into();
    if let Some(until) = verdict.until {
        body["until"] = json!(until);
    }
    if !verdict.values.is_null() {
        body["values"] = verdict.values.clone();
    }
    body
}

impl From<History> for Connection {
    fn from(history: History) -> Connection {
        history.db
    }
}

/// What cannot be read says so like the state does.
pub type Broken = Fault;
