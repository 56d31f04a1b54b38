//! What has happened: runs with their steps, and decisions; folded from the ledger beside the writer (rules R4).
//!
//! It may lag. Whoever reads folds first what was committed, so a read never misses what was answered. It is no part of
//! snapshots; deleted, it is read again from the ledger as far as that goes back. Runs that begin and end within one fold,
//! which is nearly all of them when there are many, are written once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use model::record::{
    OccurrenceId, OccurrenceMoved, Outcome, Routed, RunEnded, RunRecord, RunStarted, Verdict,
};
use model::{Position, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use crate::apply::Place;
use crate::lifecycle;
use crate::route::lost::TOLD;
use crate::run::act_behind_start;
use crate::state::{Fault, Result};

mod merged;
pub mod read;
#[cfg(test)]
mod tests;

/// Records of one transaction, so that whoever reads never waits long.
const FOLD_MAX: usize = 4_096;
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
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-2000; PRAGMA temp_store=MEMORY;
             PRAGMA secure_delete=ON;",
        )?;
        let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            db.execute_batch(&format!("BEGIN; {SCHEMA}; PRAGMA user_version = 2; COMMIT"))?;
        } else if version == 1 {
            // It does not know who waits for whom: it is read again.
            db.execute_batch(&format!(
                "BEGIN; DROP TABLE meta; DROP TABLE run; DROP TABLE step; DROP TABLE decision; {SCHEMA};
                 PRAGMA user_version = 2; COMMIT"
            ))?;
        }
        let position = db.query_row("SELECT position FROM meta", [], |row| row.get(0))?;
        Ok(History { db, position })
    }

    /// Folds records; afterwards everything up to `through` is known.
    pub fn fold(&mut self, records: &[(Place, RunRecord)], through: Position) -> Result<()> {
        let known = records.partition_point(|(place, _)| place.position <= self.position);
        let mut rest = &records[known..];
        while rest.len() > FOLD_MAX {
            let (some, more) = rest.split_at(FOLD_MAX);
            self.fold_some(some, some[FOLD_MAX - 1].0.position)?;
            rest = more;
        }
        if rest.is_empty() && through <= self.position {
            return Ok(());
        }
        self.fold_some(rest, through)
    }

    fn fold_some(&mut self, records: &[(Place, RunRecord)], through: Position) -> Result<()> {
        let mut ahead = Ahead::of(records);
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        for (place, record) in records {
            self.one(*place, record, &mut ahead)?;
        }
        self.db.execute("UPDATE meta SET position = ?1", [through])?;
        self.db.execute_batch("COMMIT")?;
        self.position = through;
        Ok(())
    }

    fn one(&self, place: Place, record: &RunRecord, ahead: &mut Ahead<'_>) -> Result<()> {
        match record {
            RunRecord::Routed(routed) => self.routed(place, routed, ahead),
            RunRecord::OccurrenceMoved(moved) => self.occurrence_moved(moved),
            RunRecord::Settled(settled) => self.settled(place, settled),
            RunRecord::Started(started) => self.started(place, started, ahead),
            RunRecord::Moved(moved) => {
                self.steps(moved.run, &moved.steps, ahead)?;
                // Its end was written with its start.
                if ahead.ends.contains_key(&moved.run) {
                    return Ok(());
                }
                let mut put = self.db.prepare_cached("UPDATE run SET status = ?2 WHERE position = ?1")?;
                put.execute(params![moved.run, moved.status.as_str()])?;
                Ok(())
            }
            RunRecord::Ended(ended) => self.ended(place, ended, ahead),
            RunRecord::WaitEnded(_)
            | RunRecord::SchedulePassed(_)
            | RunRecord::AutomationSet(_)
            | RunRecord::Effect(_)
            | RunRecord::Subscription(_) => Ok(()),
        }
    }

    fn routed(&self, place: Place, routed: &Routed, ahead: &Ahead<'_>) -> Result<()> {
        for (n, verdict) in routed.verdicts.iter().enumerate() {
            let mut body = decision(place, n, routed.event, verdict);
            if let Some(run) = ahead.runs.get(&(place.position, n)) {
                body["run"] = (*run).into();
            }
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

    fn decided(&self, (position, n): OccurrenceId) -> Result<Option<Value>> {
        let mut read = self.db.prepare_cached("SELECT body FROM decision WHERE position = ?1 AND n = ?2")?;
        let body: Option<String> = read.query_row(params![position, n], |row| row.get(0)).optional()?;
        Ok(body.and_then(|body| serde_json::from_str(&body).ok()))
    }

    fn decide_anew(&self, (position, n): OccurrenceId, outcome: Outcome, body: &Value) -> Result<()> {
        let mut put = self
            .db
            .prepare_cached("UPDATE decision SET outcome = ?3, body = ?4 WHERE position = ?1 AND n = ?2")?;
        put.execute(params![position, n, outcome.as_str(), body.to_string()])?;
        Ok(())
    }

    /// It is pending at another gate, and the same decision as before.
    fn occurrence_moved(&self, moved: &OccurrenceMoved) -> Result<()> {
        let Some(Value::Object(mut body)) = self.decided(moved.of)? else { return Ok(()) };
        let Value::Object(now) = pending_at(&moved.verdict) else { return Ok(()) };
        for name in ["reason", "gate", "until", "run"] {
            body.remove(name);
        }
        body.extend(now);
        // One that was refused is pending after all.
        body.insert("outcome".to_owned(), moved.verdict.outcome.as_str().into());
        let mut body = Value::Object(body);
        add_values(&mut body, &moved.verdict.values);
        self.decide_anew(moved.of, moved.verdict.outcome, &body)
    }

    fn started(&self, place: Place, started: &RunStarted, ahead: &mut Ahead<'_>) -> Result<()> {
        let mut body = json!({
            "id": started.id, "automation": started.automation, "version": started.hash.get(..12),
            "trigger": started.trigger, "occurrence": started.occurrence, "started_at": place.time,
            "attempt": started.attempt, "depth": started.depth,
        });
        let named = [
            ("rerun_of", &started.rerun_of),
            ("parent", &started.parent),
            ("invoked_by", &started.invoked_by),
        ];
        for (name, text) in named {
            text.iter().for_each(|text| body[name] = text.as_str().into());
        }
        if let Some(by) = triggered_by(started) {
            body["triggered_by"] = by.into();
        }
        if let Some(act) = act_behind_start(started) {
            body["caused_by"] = act.into();
        }
        let before = self.run_again(place, started, &mut body)?;
        let mut put = self.db.prepare_cached(
            "INSERT OR REPLACE INTO run (position, id, automation, status, event, started_at, decided, body, ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let (id, name, at) = (&started.id, &started.automation, text(&body["started_at"]));
        let (decided, event) = (started.occurrence.position, started.event);
        let (status, ended_at) = match ahead.ends.get(&place.position) {
            Some((at, ended)) => {
                end(&mut body, *at, ended);
                (ended.status.as_str(), Some(at.time.to_string()))
            }
            None => ("running", None),
        };
        let body = body.to_string();
        put.execute(params![place.position, id, name, status, event, at, decided, body, ended_at])?;
        if before {
            return Ok(());
        }
        ahead.steps.insert(place.position, 0);
        let is_named = ahead.named.contains(&place.position) || started.rerun_of.is_some();
        if is_named { Ok(()) } else { self.note_run(started) }
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
        let (column, of) = match reason_of(started) {
            (true, event) => ("event", event),
            (false, position) => ("position", position),
        };
        // The `+` keeps the planner on the index of the column that tells most.
        let mut put = self.db.prepare_cached(&format!(
            "UPDATE decision SET body = json_set(body, '$.run', ?3) WHERE rowid = (SELECT rowid FROM decision
             WHERE {column} = ?2 AND +automation = ?1
             AND json_extract(body, '$.trigger') = ?4 AND outcome IN ('ran', 'caught_up', 'pending')
             AND json_extract(body, '$.run') IS NULL ORDER BY +position DESC LIMIT 1)",
        ))?;
        put.execute(params![started.automation, of, started.id, started.trigger])?;
        Ok(())
    }

    fn steps(&self, run: Position, steps: &[Value], ahead: &mut Ahead<'_>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let first = match ahead.steps.get(&run) {
            Some(first) => *first,
            None => {
                let mut read =
                    self.db.prepare_cached("SELECT coalesce(max(n) + 1, 0) FROM step WHERE run = ?1")?;
                read.query_row([run], |row| row.get(0))?
            }
        };
        let mut put = self.db.prepare_cached("INSERT INTO step (run, n, body) VALUES (?1, ?2, ?3)")?;
        for (n, step) in steps.iter().enumerate() {
            put.execute(params![run, first + n as i64, step.to_string()])?;
        }
        ahead.steps.insert(run, first + steps.len() as i64);
        Ok(())
    }

    fn ended(&self, place: Place, ended: &RunEnded, ahead: &mut Ahead<'_>) -> Result<()> {
        self.steps(ended.run, &ended.steps, ahead)?;
        if ahead.ends.get(&ended.run).is_some_and(|(at, _)| at.position == place.position) {
            return Ok(());
        }
        let mut read = self.db.prepare_cached("SELECT body FROM run WHERE position = ?1")?;
        let body: Option<String> = read.query_row([ended.run], |row| row.get(0)).optional()?;
        let Some(mut body) = body.and_then(|body| serde_json::from_str::<Value>(&body).ok()) else {
            return Ok(());
        };
        end(&mut body, place, ended);
        let mut put = self
            .db
            .prepare_cached("UPDATE run SET status = ?2, ended_at = ?3, body = ?4 WHERE position = ?1")?;
        put.execute(params![ended.run, ended.status.as_str(), place.time.to_string(), body.to_string()])?;
        Ok(())
    }

    /// Takes out what was erased from the ledger, as if it were read again from there: what runs that started at these
    /// positions said, with their steps, and what decisions at these positions or about events there saw.
    pub fn erase(&self, positions: &BTreeSet<Position>) -> Result<()> {
        let kept = "body = json_remove(body, '$.output', '$.values', '$.error.message', '$.key')";
        let each = [
            format!("UPDATE run SET {kept} WHERE position = ?1"),
            format!("UPDATE decision SET {kept} WHERE event = ?1"),
            format!("UPDATE decision SET {kept} WHERE position = ?1"),
            "DELETE FROM step WHERE run = ?1".to_owned(),
        ];
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        for position in positions {
            for sql in &each {
                self.db.prepare_cached(sql)?.execute([position])?;
            }
        }
        self.db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    }

    pub fn clear(&mut self) -> Result<()> {
        self.db.execute_batch(
            "BEGIN; DELETE FROM run; DELETE FROM step; DELETE FROM decision; UPDATE meta SET position = 0; COMMIT",
        )?;
        self.position = 0;
        Ok(())
    }

    /// Forgets what ended before an instant; at most so many runs and decisions. True when there may be more.
    pub fn drop_before(&self, at: Timestamp, max: usize) -> Result<bool> {
        // Texts of instants are in their order once the last letter is gone: `00:00:00` comes before `00:00:00.5`.
        let at = at.to_string().trim_end_matches('Z').to_owned();
        // The first that stays bounds the search: what is kept is not looked through.
        let newer = "SELECT position FROM decision WHERE rtrim(at, 'Z') >= ?1 ORDER BY position LIMIT 1";
        let first: Option<Position> = self.db.query_row(newer, [&at], |row| row.get(0)).optional()?;
        let decisions = "SELECT rowid FROM decision WHERE position < ?3 AND rtrim(at, 'Z') < ?1
             AND outcome <> 'pending' LIMIT ?2";
        let runs = "SELECT position FROM run WHERE position < ?3 AND ended_at IS NOT NULL
             AND rtrim(ended_at, 'Z') < ?1 LIMIT ?2";
        let first = first.unwrap_or(i64::MAX as u64);
        let gone = |sql: String| -> Result<usize> { Ok(self.db.execute(&sql, params![at, max, first])?) };
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let judged = gone(format!("DELETE FROM decision WHERE rowid IN ({decisions})"))?;
        gone(format!("DELETE FROM step WHERE run IN ({runs})"))?;
        let ran = gone(format!("DELETE FROM run WHERE position IN ({runs})"))?;
        self.db.execute_batch("COMMIT")?;
        Ok(judged >= max || ran >= max)
    }

    /// A copy of it as a file, while it is in use.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let mut copy = Connection::open(path)?;
        crate::state::copy(&self.db, &mut copy)?;
        copy.execute_batch("PRAGMA journal_mode=DELETE")?;
        Ok(())
    }
}

/// What the records of one fold say of what is to come: a run that also ends in it is written once.
#[derive(Default)]
struct Ahead<'a> {
    /// How runs end, by their position.
    ends: HashMap<Position, (Place, &'a RunEnded)>,
    /// Which run a decision let start, by its place.
    runs: HashMap<(Position, usize), &'a str>,
    /// Runs that a decision names.
    named: HashSet<Position>,
    /// How many steps a run has.
    steps: HashMap<Position, i64>,
}

impl<'a> Ahead<'a> {
    fn of(records: &'a [(Place, RunRecord)]) -> Ahead<'a> {
        let mut ahead = Ahead::default();
        // Decisions that let a run start and have not met it yet, by event (or their own place), automation and trigger.
        let mut open: HashMap<(Position, &str, &str), (Position, usize)> = HashMap::new();
        for (place, record) in records {
            match record {
                RunRecord::Routed(routed) => {
                    let of = if routed.event > 0 { routed.event } else { place.position };
                    for (n, verdict) in routed.verdicts.iter().enumerate() {
                        if matches!(verdict.outcome, Outcome::Ran | Outcome::CaughtUp) {
                            open.insert((of, &verdict.automation, &verdict.trigger), (place.position, n));
                        }
                    }
                }
                RunRecord::Started(started) => {
                    let (_, of) = reason_of(started);
                    let key = (of, &*started.automation, &*started.trigger);
                    if let Some(decision) = open.remove(&key).filter(|_| started.rerun_of.is_none()) {
                        ahead.runs.insert(decision, &started.id);
                        ahead.named.insert(place.position);
                    }
                    ahead.steps.insert(place.position, 0);
                }
                RunRecord::Ended(ended) if ahead.steps.contains_key(&ended.run) => {
                    ahead.ends.insert(ended.run, (*place, ended));
                }
                _ => {}
            }
        }
        ahead.steps.clear();
        ahead
    }
}

/// As contracts §14 says it; `None` of runs of events that were written before their topics were.
fn triggered_by(started: &RunStarted) -> Option<String> {
    let kind = started.occurrence.kind.as_str();
    let known = !matches!(kind, "event" | "batch") || started.topic.is_some();
    known.then(|| lifecycle::named(kind, started.topic.as_deref(), started.invoked_by.as_deref()))
}

/// Where the decision stands that let it start: with an event (true), or in a record of its own. A call has the event of its
/// caller, which decided nothing about it.
fn reason_of(started: &RunStarted) -> (bool, Position) {
    let by_event = started.event > 0 && started.occurrence.kind != "call";
    (by_event, if by_event { started.event } else { started.occurrence.position })
}

/// How it ended, as contracts §11 shows it.
fn end(body: &mut Value, place: Place, ended: &RunEnded) {
    body["ended_at"] = json!(place.time);
    body["ended"] = place.position.into();
    if !ended.output.is_null() {
        body["output"] = ended.output.clone();
    }
    if let Some(code) = &ended.code {
        let mut error = json!({ "code": code });
        for (name, text) in [("message", &ended.message), ("class", &ended.class)] {
            text.iter().for_each(|text| error[name] = text.as_str().into());
        }
        if ended.status == model::record::Status::Cancelled {
            (error["message"], error["class"]) = (cancelled(code).into(), "permanent".into());
        }
        body["error"] = error;
    }
}

/// Why a run went no further, in words.
pub(crate) fn cancelled(code: &str) -> &'static str {
    match code {
        "restart" => "a newer run took its place",
        "automation_deleted" => "its automation was deleted",
        _ => "it was cancelled",
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
    if let (Value::Object(body), Value::Object(now)) = (&mut body, pending_at(verdict)) {
        body.extend(now);
    }
    add_values(&mut body, &verdict.values);
    body
}

/// The parts of a decision that change when a pending one goes on.
fn pending_at(verdict: &Verdict) -> Value {
    let gate = verdict.gate.as_deref().filter(|_| verdict.outcome != Outcome::Ran).unwrap_or("start");
    let mut now = json!({ "gate": gate });
    if let Some(reason) = &verdict.reason {
        now["reason"] = reason.as_str().into();
    }
    if let Some(until) = verdict.until {
        now["until"] = json!(until);
    }
    if let Some(run) = &verdict.run {
        now["run"] = run.as_str().into();
    }
    now
}

/// What gates saw; what only the engine needs to go on is not for people.
fn add_values(body: &mut Value, more: &Value) {
    let Value::Object(more) = more else { return };
    let more = more.iter().filter(|(name, _)| !matches!(name.as_str(), "start" | "after" | TOLD));
    let more: Vec<(String, Value)> = more.map(|(name, value)| (name.clone(), value.clone())).collect();
    if more.is_empty() {
        return;
    }
    if !body["values"].is_object() {
        body["values"] = json!({});
    }
    if let Value::Object(seen) = &mut body["values"] {
        seen.extend(more);
    }
}

impl From<History> for Connection {
    fn from(history: History) -> Connection {
        history.db
    }
}

/// What cannot be read says so like the state does.
pub type Broken = Fault;
