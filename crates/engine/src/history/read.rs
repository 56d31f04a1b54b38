//! Asking what has happened: runs, one run with its steps, decisions and their counts.

use std::collections::HashMap;

use model::Position;
use model::record::OccurrenceId;
use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension, params_from_iter};
use serde_json::{Map, Value, json};

use super::History;
use crate::state::Result;

/// Which runs or decisions; newest first.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub automation: Option<String>,
    /// A status of runs, an outcome of decisions.
    pub status: Option<String>,
    pub since: Option<model::Timestamp>,
    pub event: Option<Position>,
    pub limit: usize,
    /// Only what stands before this position.
    pub before: Option<Position>,
}

impl History {
    pub fn runs(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>)> {
        self.list(
            "SELECT position, status, body FROM run",
            ("status", "started_at"),
            wanted,
            |position, status, mut body| {
                (body["position"], body["status"]) = (position.into(), status.into());
                body
            },
        )
    }

    pub fn decisions(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>)> {
        let select = "SELECT position, outcome, body FROM decision";
        self.list(select, ("outcome", "at"), wanted, |_, _, body| body)
    }

    /// The run whose start stands at this position, without its steps.
    pub fn run_from(&self, position: Position) -> Result<Option<Value>> {
        let mut read = self.db.prepare_cached("SELECT status, body FROM run WHERE position = ?1")?;
        let found: Option<(String, String)> =
            read.query_row([position], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.map(|(status, body)| {
            let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
            body["status"] = status.into();
            body
        }))
    }

    /// The event that a run goes back to: its own, or that of who called it.
    pub fn event_of(&self, id: &str) -> Result<Option<Position>> {
        let mut read = self.db.prepare_cached("SELECT event FROM run WHERE id = ?1 AND event > 0")?;
        Ok(read.query_row([id], |row| row.get(0)).optional()?)
    }

    /// The runs that a run called: they began while it lived.
    pub fn called_by(&self, id: &str, from: Position, until: Position) -> Result<Vec<Value>> {
        let mut read = self.db.prepare_cached(
            "SELECT position, status, body FROM run WHERE position > ?1 AND position <= ?2
             AND json_extract(body, '$.parent') = ?3 ORDER BY position",
        )?;
        let until = i64::try_from(until).unwrap_or(i64::MAX);
        let mut rows = read.query(rusqlite::params![from, until, id])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let mut body: Value = serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default();
            body["position"] = row.get::<_, Position>(0)?.into();
            body["status"] = row.get::<_, String>(1)?.into();
            found.push(body);
        }
        Ok(found)
    }

    /// One decision.
    pub fn decision(&self, of: OccurrenceId) -> Result<Option<Value>> {
        self.decided(of)?.map(|decision| self.with_taker(decision)).transpose()
    }

    fn list(
        &self,
        select: &str,
        (status, time): (&str, &str),
        wanted: &Wanted,
        show: impl Fn(Position, &str, Value) -> Value,
    ) -> Result<(Vec<Value>, Option<Position>)> {
        let (mut tests, mut values): (Vec<String>, Vec<Sql>) = (Vec::new(), Vec::new());
        let mut want = |test: &str, value: Sql| {
            values.push(value);
            tests.push(format!("{test} ?{}", values.len()));
        };
        wanted.automation.iter().for_each(|name| want("automation =", Sql::Text(name.clone())));
        wanted.status.iter().for_each(|is| want(&format!("{status} ="), Sql::Text(is.clone())));
        let after = format!("rtrim({time}, 'Z') >=");
        wanted.since.iter().for_each(|at| want(&after, Sql::Text(sortable(*at))));
        wanted.event.iter().for_each(|at| want("event =", Sql::Integer(*at as i64)));
        wanted.before.iter().for_each(|at| want("position <", Sql::Integer(*at as i64)));
        let tests = if tests.is_empty() { String::new() } else { format!(" WHERE {}", tests.join(" AND ")) };
        let limit = wanted.limit.clamp(1, 1_000);
        let sql = format!("{select}{tests} ORDER BY position DESC LIMIT {}", limit + 1);
        let mut read = self.db.prepare_cached(&sql)?;
        let mut rows = read.query(params_from_iter(values))?;
        // What was decided of one event stands under one position, and a page ends between two of them.
        let (mut found, mut last, mut whole) = (Vec::new(), None, (0, None));
        while let Some(row) = rows.next()? {
            if last.is_some_and(|last| row.get(0).is_ok_and(|at: Position| at != last)) {
                whole = (found.len(), last);
            }
            if found.len() == limit {
                let (length, last) = if whole.0 > 0 { whole } else { (limit, last) };
                found.truncate(length);
                return Ok((found, last));
            }
            let (position, status, body): (Position, String, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            found.push(show(position, &status, serde_json::from_str(&body).unwrap_or_default()));
            last = Some(position);
        }
        Ok((found, None))
    }

    /// One run with its steps, by id.
    pub fn run(&self, id: &str) -> Result<Option<Value>> {
        let mut read =
            self.db.prepare_cached("SELECT position, status, body, decided FROM run WHERE id = ?1")?;
        let found: Option<(Position, String, String, Position)> = read
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let Some((position, status, body, decided)) = found else { return Ok(None) };
        let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
        body["status"] = status.into();
        body["position"] = position.into();
        body["decided"] = decided.into();
        let mut read = self.db.prepare_cached("SELECT body FROM step WHERE run = ?1 ORDER BY n")?;
        let steps = read.query_map([position], |row| row.get::<_, String>(0))?;
        let steps = steps.collect::<rusqlite::Result<Vec<String>>>()?;
        body["steps"] = last_words(steps.iter().filter_map(|step| serde_json::from_str(step).ok()));
        Ok(Some(body))
    }

    pub fn count_runs(&self, automation: &str) -> Result<u64> {
        let mut read = self.db.prepare_cached("SELECT count(*) FROM run WHERE automation = ?1")?;
        Ok(read.query_row([automation], |row| row.get(0))?)
    }

    /// How many runs began at an instant or after it.
    pub fn began_since(&self, at: model::Timestamp) -> Result<u64> {
        let mut read =
            self.db.prepare_cached("SELECT count(*) FROM run WHERE rtrim(started_at, 'Z') >= ?1")?;
        Ok(read.query_row([sortable(at)], |row| row.get(0))?)
    }

    /// Id and automation of the run that began at a position.
    pub fn run_at(&self, position: Position) -> Result<Option<(String, String)>> {
        let mut read = self.db.prepare_cached("SELECT id, automation FROM run WHERE position = ?1")?;
        Ok(read.query_row([position], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// How often each outcome, by reason.
    pub fn counts(&self, automation: &str, since: Option<model::Timestamp>) -> Result<Value> {
        let mut read = self.db.prepare_cached(
            "SELECT outcome, coalesce(json_extract(body, '$.reason'), ''), count(*),
             sum(coalesce(json_extract(body, '$.values.count'), 1)) FROM decision
             WHERE automation = ?1 AND rtrim(at, 'Z') >= ?2 GROUP BY 1, 2",
        )?;
        let since = since.map_or(String::new(), sortable);
        let mut rows = read.query([automation, since.as_str()])?;
        let mut counts = Map::new();
        while let Some(row) = rows.next()? {
            let (outcome, reason, count): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(3)?);
            let slot = counts.entry(outcome).or_insert_with(|| json!({}));
            slot[if reason.is_empty() { "-" } else { &reason }] = count.into();
        }
        Ok(counts.into())
    }
}

/// Each step once, as it was last told of: a try that failed is told before the next one is.
fn last_words(told: impl Iterator<Item = Value>) -> Value {
    let mut steps: Vec<Value> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for step in told {
        let path = step["path"].as_str().unwrap_or_default().to_owned();
        match places.get(&path) {
            Some(place) => steps[*place] = step,
            None => {
                places.insert(path, steps.len());
                steps.push(step);
            }
        }
    }
    steps.into()
}

/// Texts of instants are in their order once the last letter is gone: `00:00:00` comes before `00:00:00.5`.
fn sortable(at: model::Timestamp) -> String {
    at.to_string().trim_end_matches('Z').to_owned()
}
