//! The rows of `state.db` that are not held in memory: idempotency keys, dead letters, deferred publishes.

use std::collections::BTreeSet;
use std::time::Duration;

use model::event::{Content, Envelope};
use model::record::{Dead, Deferred};
use model::{Position, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Due, Result, State};

/// What the first use of an idempotency key was answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Keyed {
    pub position: Position,
    pub id: String,
    pub recorded_at: Timestamp,
    pub fingerprint: [u8; 32],
    pub deferred_until: Option<Timestamp>,
}

/// A dead letter as it is kept.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub position: Position,
    pub record: Position,
    pub event: String,
    pub attempts: u32,
    pub reason: String,
    pub error: Option<String>,
    pub at: String,
}

impl State {
    pub fn is_dead(&self, group: &str, position: Position) -> Result<bool> {
        let mut read =
            self.db.prepare_cached("SELECT 1 FROM dead_letter WHERE \"group\" = ?1 AND position = ?2")?;
        Ok(read.exists(params![group, position])?)
    }

    /// Keys are unique per source; an absent source is its own.
    pub fn key(&self, source: Option<&str>, key: &str) -> Result<Option<Keyed>> {
        let mut read = self.db.prepare_cached(
            "SELECT position, id, recorded_at, fingerprint, deferred_until FROM key WHERE source = ?1 AND key = ?2",
        )?;
        Ok(read.query_row(params![source.unwrap_or(""), key], keyed).optional()?)
    }

    pub(crate) fn put_key(&mut self, source: Option<&str>, key: &str, keyed: &Keyed) -> Result<()> {
        let mut put = self.db.prepare_cached(
            "INSERT INTO key (source, key, position, id, recorded_at, fingerprint, deferred_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (source, key) DO UPDATE SET position = excluded.position, recorded_at = excluded.recorded_at,
             deferred_until = excluded.deferred_until",
        )?;
        put.execute(params![
            source.unwrap_or(""),
            key,
            keyed.position,
            keyed.id,
            keyed.recorded_at.to_string(),
            &keyed.fingerprint[..],
            keyed.deferred_until.map(|until| until.to_string()),
        ])?;
        self.open_rows += 1;
        Ok(())
    }

    /// Keys go with their events. One whose event waits for its time is younger than its first record.
    pub(crate) fn drop_keys_below(&mut self, first: Position) -> Result<()> {
        let gone = "DELETE FROM key WHERE position < ?1 AND deferred_until IS NULL";
        self.open_rows += self.db.execute(gone, [first])?;
        Ok(())
    }

    pub(crate) fn put_deferred(
        &mut self,
        position: Position,
        deferred: &Deferred,
        now: Timestamp,
    ) -> Result<()> {
        let body = deferred.content.body().map(|text| &**text);
        let envelope = serde_json::to_string(&deferred.envelope).unwrap_or_default();
        let delay_ms = deferred.until.since(now).as_millis() as u64;
        let mut put = self.db.prepare_cached(
            "INSERT INTO deferred (position, until, delay_ms, envelope, body) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        put.execute(params![position, deferred.until.to_string(), delay_ms, envelope, body])?;
        self.deferred.insert((deferred.until, position));
        self.open_rows += 1;
        Ok(())
    }

    pub(crate) fn drop_deferred(&mut self, position: Position) -> Result<()> {
        self.db.prepare_cached("DELETE FROM deferred WHERE position = ?1")?.execute([position])?;
        self.deferred.retain(|(_, at)| *at != position);
        self.open_rows += 1;
        Ok(())
    }

    pub fn deferred_at(&self, position: Position) -> Result<Option<(Envelope, Content)>> {
        let mut read = self.db.prepare_cached("SELECT envelope, body FROM deferred WHERE position = ?1")?;
        let row = read
            .query_row([position], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)));
        Ok(row.optional()?.and_then(|(envelope, body)| {
            let envelope = serde_json::from_str(&envelope).ok()?;
            Some((envelope, Content::from_body(body.as_deref()).ok()?))
        }))
    }

    /// Says whether it is new: after a seek the same event may die a second time.
    pub(crate) fn put_dead(&mut self, record: Position, dead: &Dead, now: Timestamp) -> Result<bool> {
        let mut known =
            self.db.prepare_cached(r#"SELECT 1 FROM dead_letter WHERE "group" = ?1 AND position = ?2"#)?;
        let new = !known.exists(params![dead.group, dead.position])?;
        drop(known);
        let mut put = self.db.prepare_cached(
            r#"INSERT OR REPLACE INTO dead_letter ("group", position, record, event, attempts, reason, error, parked_key, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"#,
        )?;
        put.execute(params![
            dead.group,
            dead.position,
            record,
            dead.event.get(),
            dead.attempts,
            dead.reason.as_str(),
            dead.error,
            dead.parked_key,
            now.to_string(),
        ])?;
        self.open_rows += 1;
        Ok(new)
    }

    /// Dead letters of a group after `after`, at most `limit`, by position.
    pub fn dead_letters(&self, group: &str, after: Position, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut read = self.db.prepare_cached(
            r#"SELECT position, record, event, attempts, reason, error, at FROM dead_letter
               WHERE "group" = ?1 AND position > ?2 ORDER BY position LIMIT ?3"#,
        )?;
        let rows = read.query_map(params![group, after, limit], |row| {
            Ok(DeadLetter {
                position: row.get(0)?,
                record: row.get(1)?,
                event: row.get(2)?,
                attempts: row.get(3)?,
                reason: row.get(4)?,
                error: row.get(5)?,
                at: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Makes dead letters deliverable again, with their event.
    pub(crate) fn redrive(&mut self, group: &str, positions: &[Position]) -> Result<()> {
        for position in positions {
            self.db
                .prepare_cached(
                    r#"INSERT OR REPLACE INTO redriven ("group", position, record, event)
                       SELECT "group", position, record, event FROM dead_letter WHERE "group" = ?1 AND position = ?2"#,
                )?
                .execute(params![group, position])?;
            self.db
                .prepare_cached(r#"DELETE FROM dead_letter WHERE "group" = ?1 AND position = ?2"#)?
                .execute(params![group, position])?;
        }
        self.open_rows += positions.len();
        Ok(())
    }

    pub fn redriven_event(&self, group: &str, position: Position) -> Result<Option<String>> {
        let mut read =
            self.db.prepare_cached(r#"SELECT event FROM redriven WHERE "group" = ?1 AND position = ?2"#)?;
        Ok(read.query_row(params![group, position], |row| row.get(0)).optional()?)
    }

    pub(crate) fn drop_redriven(&mut self, group: &str, span: (Position, Position)) -> Result<()> {
        self.open_rows += self
            .db
            .prepare_cached(r#"DELETE FROM redriven WHERE "group" = ?1 AND position BETWEEN ?2 AND ?3"#)?
            .execute(params![group, span.0, span.1])?;
        Ok(())
    }

    /// Scrubs every copy of what was erased at `position` (an event, or the record of a dead letter) to what a rebuild
    /// from the erased ledger would read.
    pub(crate) fn scrub(&mut self, position: Position) -> Result<()> {
        for table in ["dead_letter", "redriven"] {
            self.db.execute(
                &format!("UPDATE {table} SET event = '{{\"erased\":true}}' WHERE record = ?1"),
                [position],
            )?;
        }
        let parked = self
            .db
            .query_row(
                r#"SELECT "group", position FROM dead_letter WHERE record = ?1 AND parked_key IS NOT NULL"#,
                [position],
                |row| Ok((row.get::<_, String>(0)?, row.get::<_, Position>(1)?)),
            )
            .optional()?;
        if let Some((group, parking)) = parked
            && let Some(group) = self.groups.get_mut(&group)
        {
            group.parked.remove(&parking);
        }
        self.db.execute(
            "UPDATE dead_letter SET error = NULL, parked_key = NULL WHERE record = ?1",
            [position],
        )?;
        let failing = self.groups.values().filter(|group| group.failures.contains_key(&position));
        let names: Vec<String> = failing.map(|group| group.name.clone()).collect();
        for name in names {
            let failure = self.group_mut(&name).and_then(|group| group.failures.get_mut(&position));
            failure.into_iter().for_each(|failure| failure.error = None);
        }
        self.scrub_event(position)?;
        self.db.execute("UPDATE deferred SET body = NULL WHERE position = ?1", [position])?;
        self.db.execute("UPDATE key SET fingerprint = zeroblob(32) WHERE position = ?1", [position])?;
        self.open_rows += 1;
        Ok(())
    }

    pub(crate) fn put_snapshot(&mut self, position: Position, head: &str, hash: &str) -> Result<()> {
        self.db.execute(
            "INSERT OR REPLACE INTO snapshot (position, head, hash) VALUES (?1, ?2, ?3)",
            params![position, head, hash],
        )?;
        // Trimming may reach the second-newest at most, so older ones have no further use.
        self.db.execute(
            "DELETE FROM snapshot WHERE position NOT IN (SELECT position FROM snapshot ORDER BY position DESC LIMIT 2)",
            [],
        )?;
        self.open_rows += 1;
        Ok(())
    }

    /// Recorded snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<(Position, String, String)>> {
        let mut read =
            self.db.prepare_cached("SELECT position, head, hash FROM snapshot ORDER BY position")?;
        let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How far ahead of where it can be the latest elapsed wait lies: at least that far the wall clock was set back while
    /// nobody looked.
    pub(crate) fn ahead_ms(&self, now: Timestamp) -> Result<i64> {
        let mut read = self.db.prepare("SELECT until, delay_ms FROM deferred")?;
        let mut rows = read.query([])?;
        let mut ahead = 0;
        let mut see = |until: Timestamp, delay_ms: u64| {
            let latest = now.plus(std::time::Duration::from_millis(delay_ms));
            ahead = ahead.max(until.since(latest).as_millis() as i64);
        };
        while let Some(row) = rows.next()? {
            see(Timestamp::parse(&row.get::<_, String>(0)?).unwrap_or(now), row.get(1)?);
        }
        let failures = self.groups.values().flat_map(|group| group.failures.values());
        failures.for_each(|failure| see(failure.until, failure.delay_ms));
        Ok(ahead)
    }

    /// Elapsed times keep their length when the wall clock was stepped by `by_ms`.
    pub(crate) fn shift_elapsed(&mut self, by_ms: i64) -> Result<()> {
        let shift = |at: Timestamp| Timestamp::from_nanos(at.nanos() + i128::from(by_ms) * 1_000_000);
        let due: Vec<Due> = self.deferred.iter().copied().collect();
        for (until, position) in due {
            self.db.execute(
                "UPDATE deferred SET until = ?1 WHERE position = ?2",
                params![shift(until).to_string(), position],
            )?;
        }
        self.deferred = self.deferred.iter().map(|(until, position)| (shift(*until), *position)).collect();
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in names {
            if let Some(group) = self.group_mut(&name) {
                group.failures.values_mut().for_each(|failure| failure.until = shift(failure.until));
            }
        }
        Ok(())
    }
}

pub(super) fn load_deferred(db: &Connection) -> Result<BTreeSet<Due>> {
    let mut read = db.prepare("SELECT until, position FROM deferred")?;
    let rows = read.query_map([], |row| {
        let until = Timestamp::parse(&row.get::<_, String>(0)?).unwrap_or(Timestamp::EPOCH);
        Ok((until, row.get(1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How long after `now` something that may wait at most `delay` is due (R9: a deadline never grows over a restart).
pub fn no_later(until: Timestamp, now: Timestamp, delay_ms: u64) -> Timestamp {
    until.min(now.plus(Duration::from_millis(delay_ms)))
}

fn keyed(row: &Row<'_>) -> rusqlite::Result<Keyed> {
    let time = |text: String| Timestamp::parse(&text).unwrap_or(Timestamp::EPOCH);
    let fingerprint: Vec<u8> = row.get(3)?;
    Ok(Keyed {
        position: row.get(0)?,
        id: row.get(1)?,
        recorded_at: time(row.get(2)?),
        fingerprint: fingerprint.try_into().unwrap_or([0; 32]),
        deferred_until: row.get::<_, Option<String>>(4)?.map(time),
    })
}
