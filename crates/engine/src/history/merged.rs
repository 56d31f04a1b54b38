//! How occurrences end, and those that share the fate of another: what a debounce or a batch gathers is pending until the one
//! that takes it starts its run, and is merged into that run; when none starts, it ends as that one did.

use model::record::{OccurrenceId, Outcome, SettledOccurrence};
use rusqlite::params;
use serde_json::{Value, json};

use super::{History, add_values};
use crate::apply::Place;
use crate::state::Result;

/// Occurrences, one taken by the next, that are followed while they are pending.
const TAKEN_MAX: usize = 1_000;

impl History {
    pub(super) fn settled(&self, place: Place, settled: &SettledOccurrence) -> Result<()> {
        let Some(mut body) = self.decided(settled.of)? else { return Ok(()) };
        if let Some(taker) = settled.into
            && let Some(of_taker) = self.decided(taker)?
        {
            body["into"] = json!(taker);
            add_values(&mut body, &settled.values);
            return match of_taker["outcome"] == "pending" {
                true => self.wait_for(settled.of, taker, &body),
                false => self.share(place, settled.of, body, &of_taker),
            };
        }
        body["outcome"] = settled.outcome.as_str().into();
        body["settled_at"] = json!(place.time);
        if let Value::Object(map) = &mut body {
            map.remove("until");
            map.remove("reason");
            // The run that its place was promised never began.
            if !matches!(settled.outcome, Outcome::Ran | Outcome::CaughtUp) {
                map.remove("run");
            }
            map.extend(settled.reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
            map.extend(settled.gate.iter().map(|gate| ("gate".to_owned(), gate.as_str().into())));
            map.extend(settled.into.iter().map(|into| ("into".to_owned(), json!(into))));
        }
        add_values(&mut body, &settled.values);
        self.decide_anew(settled.of, settled.outcome, &body)?;
        self.settle_taken(place, settled.of, &body)
    }

    /// It stays pending as long as the one that took it.
    fn wait_for(&self, of: OccurrenceId, taker: OccurrenceId, body: &Value) -> Result<()> {
        self.decide_anew(of, Outcome::Pending, body)?;
        let mut put =
            self.db.prepare_cached("UPDATE decision SET taker = ?3 WHERE position = ?1 AND n = ?2")?;
        put.execute(params![of.0, of.1, taker.0])?;
        Ok(())
    }

    /// All that one took, and what those had taken before.
    fn settle_taken(&self, place: Place, taker: OccurrenceId, of_taker: &Value) -> Result<()> {
        let mut open = vec![taker];
        while let Some(of) = open.pop() {
            for (member, mut body) in self.taken_by(of)? {
                body["into"] = json!(taker);
                self.share(place, member, body, of_taker)?;
                open.push(member);
            }
        }
        Ok(())
    }

    fn taken_by(&self, of: OccurrenceId) -> Result<Vec<(OccurrenceId, Value)>> {
        let mut read = self.db.prepare_cached("SELECT position, n, body FROM decision WHERE taker = ?1")?;
        let mut rows = read.query([of.0])?;
        let mut taken = Vec::new();
        while let Some(row) = rows.next()? {
            let body: Value = serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default();
            if body["into"] == json!(of) {
                taken.push(((row.get(0)?, row.get(1)?), body));
            }
        }
        Ok(taken)
    }

    /// Merged into the run of the one that took it, else as that one ended.
    fn share(&self, place: Place, of: OccurrenceId, mut body: Value, of_taker: &Value) -> Result<()> {
        let ran = matches!(of_taker["outcome"].as_str(), Some("ran" | "caught_up" | "merged"));
        let outcome = if ran { "merged" } else { of_taker["outcome"].as_str().unwrap_or("merged") };
        body["outcome"] = outcome.into();
        body["settled_at"] = json!(place.time);
        if let Value::Object(map) = &mut body {
            map.remove("until");
            for name in ["reason", "gate"].into_iter().filter(|_| !ran) {
                map.insert(name.to_owned(), of_taker[name].clone());
            }
        }
        let taker = body["into"][0].as_u64();
        let mut put = self.db.prepare_cached(
            "UPDATE decision SET outcome = ?3, body = ?4, taker = ?5 WHERE position = ?1 AND n = ?2",
        )?;
        put.execute(params![of.0, of.1, outcome, body.to_string(), taker])?;
        Ok(())
    }

    /// What shares its fate, once that is known.
    pub fn took_along(&self, of: OccurrenceId) -> Result<Vec<OccurrenceId>> {
        let is_open = self.decided(of)?.is_none_or(|decision| decision["outcome"] == "pending");
        let taken = if is_open { Vec::new() } else { self.taken_by(of)? };
        Ok(taken.into_iter().map(|(member, _)| member).collect())
    }

    /// As people read it: one that was taken along is pending where its taker is, and names the run it was merged into.
    pub fn with_taker(&self, mut decision: Value) -> Result<Value> {
        let into = decision.as_object_mut().and_then(|decision| decision.remove("into"));
        let mut next: Option<OccurrenceId> = into.and_then(|into| serde_json::from_value(into).ok());
        let mut last = Value::Null;
        for _ in 0..TAKEN_MAX {
            let Some(taker) = next.map(|of| self.decided(of)).transpose()?.flatten() else { break };
            next = serde_json::from_value(taker["into"].clone()).ok();
            last = taker;
        }
        let told: &[&str] = match decision["outcome"].as_str() {
            Some("pending") => &["gate", "reason", "until"],
            Some("merged") => &["run"],
            _ => &[],
        };
        for name in told.iter().filter(|name| !last[**name].is_null()) {
            decision[*name] = last[*name].clone();
        }
        Ok(decision)
    }
}
