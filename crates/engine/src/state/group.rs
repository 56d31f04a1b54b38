//! A group's durable half: how far it has come, what it settled, what failed. What is in flight is memory (deliver).

use std::collections::{BTreeMap, BTreeSet};

use model::group::Definition;
use model::record::Span;
use model::{Position, Timestamp};
use rusqlite::{Connection, params};
use serde_json::Value;

use super::Result;
use crate::ranges::Ranges;

/// An unclean start after which a delivery had no answer is not the event's failure. But an event that may have been out at
/// nine of them is a suspect and goes out alone; the tenth, with nothing else in flight, was its doing.
pub const CRASHES_MAX: u32 = 10;

/// A position that failed and waits for its next try.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub failures: u32,
    pub until: Timestamp,
    pub delay_ms: u64,
    pub error: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub definition: Definition,
    /// The record that last set the cursor (put or seek). What was handed out before it no longer counts.
    pub since: Position,
    /// Every position at or below it is settled, except those in `redriven`.
    pub floor: Position,
    pub settled: Ranges,
    pub delivered_to: Position,
    /// `delivered_to` at each unclean start; a position has crashed once for each entry at or above it.
    pub crashes: Vec<Position>,
    /// The suspect that is out with nothing beside it; 0: none is.
    pub alone: Position,
    /// Suspects that were out alone when the process died. They go to the dead letters instead of to a worker.
    pub convicted: BTreeSet<Position>,
    pub failures: BTreeMap<Position, Failure>,
    pub redriven: BTreeSet<Position>,
    /// Keys whose later events wait, by the dead letter that parks them.
    pub parked: BTreeMap<Position, String>,
    pub paused: bool,
    pub halted_on: Position,
    pub reported: Position,
    pub processed: u64,
    pub last_moved_at: Option<Timestamp>,
    pub dead_letters: u64,
}

impl Group {
    pub fn new(name: &str, definition: Definition, floor: Position, since: Position) -> Group {
        Group {
            name: name.to_owned(),
            definition,
            since,
            floor,
            settled: Ranges::default(),
            delivered_to: floor,
            crashes: Vec::new(),
            alone: 0,
            convicted: BTreeSet::new(),
            failures: BTreeMap::new(),
            redriven: BTreeSet::new(),
            parked: BTreeMap::new(),
            paused: false,
            halted_on: 0,
            reported: 0,
            processed: 0,
            last_moved_at: None,
            dead_letters: 0,
        }
    }

    /// Whether nothing remains to be done for `position`.
    pub fn is_settled(&self, position: Position) -> bool {
        if self.redriven.contains(&position) {
            return false;
        }
        position <= self.floor || self.settled.contains(position)
    }

    pub fn crashes_of(&self, position: Position) -> u32 {
        self.crashes.iter().filter(|through| **through >= position).count() as u32
    }

    /// Whether one more crash with it in flight is too many.
    pub fn is_suspect(&self, position: Position) -> bool {
        self.crashes_of(position) + 1 >= CRASHES_MAX
    }

    /// The process died with deliveries up to `through` unanswered. Only what was alone is blamed for it: the others may
    /// never have left.
    pub fn crash(&mut self, through: Position) {
        self.crashes.push(through);
        let alone = std::mem::take(&mut self.alone);
        if alone != 0 && self.crashes_of(alone) >= CRASHES_MAX {
            self.convicted.insert(alone);
        }
    }

    /// A redriven event begins again: crashes before it no longer count against it, nor against its neighbours.
    pub fn pardon(&mut self, position: Position) {
        self.crashes.retain(|through| *through < position);
        self.convicted.remove(&position);
    }

    pub fn raise_floor(&mut self, floor: Position) {
        if floor > self.floor {
            self.floor = floor;
            self.settled.drop_through(floor);
            self.crashes.retain(|through| *through > floor);
            let redriven = &self.redriven;
            let open = |position: &Position| *position > floor || redriven.contains(position);
            self.failures.retain(|position, _| open(position));
            self.convicted.retain(open);
            self.alone = Some(self.alone).filter(open).unwrap_or(0);
        }
    }

    pub fn settle(&mut self, span: Span) {
        let apart = |position: &Position| *position < span.0 || *position > span.1;
        self.failures.retain(|position, _| apart(position));
        self.redriven.retain(apart);
        self.convicted.retain(apart);
        self.alone = Some(self.alone).filter(apart).unwrap_or(0);
        if span.1 > self.floor {
            self.settled.insert((span.0.max(self.floor + 1), span.1));
        }
    }
}

pub(super) fn load_all(db: &Connection) -> Result<BTreeMap<String, Group>> {
    let mut read = db.prepare(
        r#"SELECT name, definition, floor, settled, delivered_to, crashes, paused, halted_on, reported, processed,
                  last_moved_at, since, (SELECT count(*) FROM dead_letter d WHERE d."group" = g.name) FROM "group" g"#,
    )?;
    let rows = read.query_map([], |row| {
        let json = |i: usize| -> rusqlite::Result<Value> {
            Ok(serde_json::from_str(&row.get::<_, String>(i)?).unwrap_or_default())
        };
        // What stands here was checked when the group was put; patterns cannot fail to parse again.
        let definition = Definition::parse(&json(1)?).unwrap_or_else(|_| Definition::over(Vec::new()));
        let mut group = Group::new(&row.get::<_, String>(0)?, definition, row.get(2)?, row.get(11)?);
        let spans: Vec<Span> = serde_json::from_value(json(3)?).unwrap_or_default();
        group.settled = spans.into_iter().collect();
        group.delivered_to = row.get(4)?;
        group.crashes = serde_json::from_value(json(5)?).unwrap_or_default();
        group.paused = row.get(6)?;
        group.halted_on = row.get(7)?;
        group.reported = row.get(8)?;
        group.processed = row.get(9)?;
        group.last_moved_at = row.get::<_, Option<String>>(10)?.and_then(|t| Timestamp::parse(&t).ok());
        group.dead_letters = row.get(12)?;
        Ok(group)
    })?;
    let mut groups = BTreeMap::new();
    for group in rows {
        let group = group?;
        groups.insert(group.name.clone(), group);
    }
    load_details(db, &mut groups)?;
    Ok(groups)
}

fn load_details(db: &Connection, groups: &mut BTreeMap<String, Group>) -> Result<()> {
    let mut read =
        db.prepare(r#"SELECT "group", position, failures, until, delay_ms, error FROM failure"#)?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let until = Timestamp::parse(&row.get::<_, String>(3)?).unwrap_or(Timestamp::EPOCH);
        let failure = Failure { failures: row.get(2)?, until, delay_ms: row.get(4)?, error: row.get(5)? };
        if let Some(group) = groups.get_mut(&row.get::<_, String>(0)?) {
            group.failures.insert(row.get(1)?, failure);
        }
    }
    let mut read = db.prepare(r#"SELECT "group", position FROM redriven"#)?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(group) = groups.get_mut(&row.get::<_, String>(0)?) {
            group.redriven.insert(row.get(1)?);
        }
    }
    let mut read = db.prepare(r#"SELECT "group", position, convicted FROM suspect"#)?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let Some(group) = groups.get_mut(&row.get::<_, String>(0)?) else { continue };
        match row.get::<_, bool>(2)? {
            true => _ = group.convicted.insert(row.get(1)?),
            false => group.alone = row.get(1)?,
        }
    }
    let mut read =
        db.prepare(r#"SELECT "group", position, parked_key FROM dead_letter WHERE parked_key IS NOT NULL"#)?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(group) = groups.get_mut(&row.get::<_, String>(0)?) {
            group.parked.insert(row.get(1)?, row.get(2)?);
        }
    }
    Ok(())
}

pub(super) fn store(db: &Connection, group: &Group) -> Result<()> {
    let mut put = db.prepare_cached(
        r#"INSERT OR REPLACE INTO "group" (name, definition, floor, settled, delivered_to, crashes, paused, halted_on,
           reported, processed, last_moved_at, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"#,
    )?;
    let json = |value: Value| value.to_string();
    put.execute(params![
        group.name,
        json(Value::Object(group.definition.to_json())),
        group.floor,
        json(serde_json::json!(group.settled.spans())),
        group.delivered_to,
        json(serde_json::json!(group.crashes)),
        group.paused,
        group.halted_on,
        group.reported,
        group.processed,
        group.last_moved_at.map(|at| at.to_string()),
        group.since,
    ])?;
    store_failures(db, group)?;
    store_suspects(db, group)
}

fn store_suspects(db: &Connection, group: &Group) -> Result<()> {
    db.prepare_cached(r#"DELETE FROM suspect WHERE "group" = ?1"#)?.execute([&group.name])?;
    let mut put =
        db.prepare_cached(r#"INSERT INTO suspect ("group", position, convicted) VALUES (?1, ?2, ?3)"#)?;
    for position in &group.convicted {
        put.execute(params![group.name, position, true])?;
    }
    if group.alone != 0 {
        put.execute(params![group.name, group.alone, false])?;
    }
    Ok(())
}

fn store_failures(db: &Connection, group: &Group) -> Result<()> {
    db.prepare_cached(r#"DELETE FROM failure WHERE "group" = ?1"#)?.execute([&group.name])?;
    let mut put = db.prepare_cached(
        r#"INSERT INTO failure ("group", position, failures, until, delay_ms, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"#,
    )?;
    for (position, f) in &group.failures {
        put.execute(params![group.name, position, f.failures, f.until.to_string(), f.delay_ms, f.error])?;
    }
    Ok(())
}

pub(super) fn remove(db: &Connection, name: &str) -> Result<()> {
    for table in ["failure", "dead_letter", "redriven", "suspect"] {
        db.prepare_cached(&format!(r#"DELETE FROM {table} WHERE "group" = ?1"#))?.execute([name])?;
    }
    db.prepare_cached(r#"DELETE FROM "group" WHERE name = ?1"#)?.execute([name])?;
    Ok(())
}
