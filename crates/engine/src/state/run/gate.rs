//! What gates remember, occurrences that are pending before them, and what is set beside an automation's definition.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use model::record::{
    AutomationSet, GateSet, OccurrenceId, OccurrenceMoved, Outcome, Routed, SchedulePassed,
    SettledOccurrence, Verdict,
};
use model::{Position, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::backoff::{self, Backoffs};
use super::{Timer, shifted};
use crate::apply::Place;
use crate::state::{Result, State};

/// Where errors in a row are kept, beside what gates remember.
const FAILURES: &str = "failures";

/// Why an automation is off that finishes what it has taken.
pub const DRAINING: &str = "draining";

/// Automation, trigger, gate, key.
pub type GateKey = (String, String, String, String);

/// An occurrence that has not met its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    pub automation: String,
    /// The version it was armed under and ends under.
    pub hash: String,
    pub trigger: String,
    pub gate: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether `until` counts time, which a step of the clock moves.
    #[serde(default)]
    pub elapsed: bool,
    pub key: String,
    pub events: Vec<Position>,
    /// They are those of a batch, which its run reads together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch: bool,
    /// Since when it is pending at this gate, and where that is written: who came first goes first.
    pub since: Timestamp,
    #[serde(default)]
    pub entered: Position,
    /// The id of the run that a place in the queue will become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The last gate it has passed, when a pause keeps it; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
    /// What the state was when a dwell began.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub armed: Value,
    /// What a start needs that no event in the ledger brings: `kind event input space depth at late`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub start: Value,
}

/// What an operator or the engine set beside a definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// `None`: as the definition says.
    pub enabled: Option<bool>,
    pub paused: bool,
    pub reason: Option<String>,
    /// The version it was said of; a changed definition begins anew.
    pub hash: String,
}

#[derive(Default)]
pub struct Gates {
    /// Since the last COMMIT; `None`: taken away.
    changed: HashMap<GateKey, Option<Value>>,
    /// Automations that have failed since they last ended well: of the others nothing is remembered.
    failing: HashSet<String>,
    /// Schedules that failed since then.
    pub(super) backoffs: Backoffs,
    pub pending: BTreeMap<OccurrenceId, Pending>,
    /// By automation and key, in the order in which they came to their gate.
    by_key: HashMap<(String, String), BTreeSet<(Position, OccurrenceId)>>,
    /// Those that queue, by the id of their run.
    by_run: HashMap<String, OccurrenceId>,
    /// Dwells by what they are about.
    dwells: HashMap<String, BTreeSet<OccurrenceId>>,
    touched: Vec<OccurrenceId>,
    pub settings: BTreeMap<String, Setting>,
    settings_touched: bool,
    pub schedules: BTreeMap<(String, String), Timestamp>,
    schedules_touched: bool,
}

impl Gates {
    fn enter(&mut self, id: OccurrenceId, pending: Pending) {
        let key = (pending.automation.clone(), pending.key.clone());
        if pending.gate == "dwell" {
            self.dwells.entry(pending.key.clone()).or_default().insert(id);
        }
        self.by_key.entry(key).or_default().insert((pending.entered, id));
        self.by_run.extend(pending.run.clone().map(|run| (run, id)));
        self.pending.insert(id, pending);
    }

    fn leave(&mut self, id: OccurrenceId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        let key = (pending.automation.clone(), pending.key.clone());
        if let Some(ids) = self.by_key.get_mut(&key) {
            ids.remove(&(pending.entered, id));
            if ids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        pending.run.iter().for_each(|run| _ = self.by_run.remove(run));
        if let Some(ids) = self.dwells.get_mut(&pending.key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.dwells.remove(&pending.key);
            }
        }
        Some(pending)
    }
}

impl State {
    pub fn gate(&self, automation: &str, trigger: &str, gate: &str, key: &str) -> Result<Option<Value>> {
        let place = (automation.to_owned(), trigger.to_owned(), gate.to_owned(), key.to_owned());
        if let Some(changed) = self.runs.gates.changed.get(&place) {
            return Ok(changed.clone());
        }
        let mut read = self.db.prepare_cached(
            "SELECT value FROM gate WHERE automation = ?1 AND trigger = ?2 AND gate = ?3 AND key = ?4",
        )?;
        let text: Option<String> =
            read.query_row(params![automation, trigger, gate, key], |row| row.get(0)).optional()?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub fn pending(&self) -> &BTreeMap<OccurrenceId, Pending> {
        &self.runs.gates.pending
    }

    /// Occurrences of an automation that wait under this key, who came first to its gate first.
    pub fn pending_of(&self, automation: &str, key: &str) -> impl Iterator<Item = (&OccurrenceId, &Pending)> {
        let ids = self.runs.gates.by_key.get(&(automation.to_owned(), key.to_owned()));
        ids.into_iter().flatten().filter_map(|(_, id)| self.runs.gates.pending.get_key_value(id))
    }

    /// The occurrence whose run waits in the queue under this id.
    pub fn queued(&self, run: &str) -> Option<(&OccurrenceId, &Pending)> {
        let id = self.runs.gates.by_run.get(run)?;
        self.runs.gates.pending.get_key_value(id)
    }

    /// Dwells about this row, oldest first.
    pub fn dwells_of(&self, key: &str) -> impl Iterator<Item = (&OccurrenceId, &Pending)> {
        let ids = self.runs.gates.dwells.get(key);
        ids.into_iter().flatten().filter_map(|id| self.runs.gates.pending.get_key_value(id))
    }

    pub fn setting(&self, automation: &str) -> Option<&Setting> {
        self.runs.gates.settings.get(automation)
    }

    /// Whether it takes events and instants now.
    pub fn is_enabled(&self, automation: &crate::automation::Automation) -> bool {
        let set = self.setting(automation.name()).filter(|set| set.hash == automation.hash);
        set.and_then(|set| set.enabled).unwrap_or(automation.definition.enabled)
    }

    /// Whether it only finishes what it has taken.
    pub fn is_draining(&self, automation: &str) -> bool {
        self.setting(automation).is_some_and(|set| set.reason.as_deref() == Some(DRAINING))
    }

    pub fn is_paused(&self, automation: &str) -> bool {
        self.setting(automation).is_some_and(|set| set.paused)
    }

    /// Instants of this schedule up to here have had their outcome.
    pub fn fired_through(&self, automation: &str, trigger: &str) -> Option<Timestamp> {
        self.runs.gates.schedules.get(&(automation.to_owned(), trigger.to_owned())).copied()
    }

    pub(crate) fn route(&mut self, place: Place, routed: &Routed) {
        for (n, verdict) in routed.verdicts.iter().enumerate() {
            self.set_gates(&verdict.automation, &verdict.set);
            if verdict.outcome != Outcome::Pending {
                continue;
            }
            let pending = self.pending_by(place, verdict, [routed.event].into_iter().collect());
            self.put_pending((place.position, n as u32), pending);
        }
    }

    fn pending_by(&self, place: Place, verdict: &Verdict, mut events: Vec<Position>) -> Pending {
        let gate = verdict.gate.clone().unwrap_or_default();
        let start = verdict.values.get("start").cloned().unwrap_or_default();
        if !verdict.events.is_empty() {
            events.clone_from(&verdict.events);
        }
        events.retain(|event| *event > 0);
        Pending {
            automation: verdict.automation.clone(),
            hash: self.hash_of(&verdict.automation, &verdict.version),
            trigger: verdict.trigger.clone(),
            elapsed: gate != "mode",
            gate,
            reason: verdict.reason.clone().unwrap_or_default(),
            until: verdict.until,
            key: verdict.key.clone().unwrap_or_default(),
            events,
            batch: !verdict.events.is_empty(),
            since: place.time,
            entered: place.position,
            run: verdict.run.clone().or_else(|| start["id"].as_str().map(str::to_owned)),
            after: verdict.values["after"].as_str().unwrap_or_default().to_owned(),
            armed: verdict.values.get("armed").cloned().unwrap_or_default(),
            start,
        }
    }

    /// A pending one is pending at a later gate from here on.
    pub(crate) fn move_occurrence(&mut self, place: Place, moved: &OccurrenceMoved) {
        let Some(before) = self.leave_pending(moved.of) else {
            // One that was refused takes a place after all, with all that it needs.
            if moved.verdict.outcome == Outcome::Pending && moved.verdict.values["start"].is_object() {
                let pending = self.pending_by(place, &moved.verdict, Vec::new());
                self.put_pending(moved.of, pending);
            }
            return;
        };
        self.set_gates(&before.automation, &moved.verdict.set);
        let mut pending = self.pending_by(place, &moved.verdict, before.events.clone());
        (pending.hash, pending.batch) = (before.hash, pending.batch || before.batch);
        if pending.start.is_null() {
            pending.start = before.start;
        }
        if pending.armed.is_null() {
            pending.armed = before.armed;
        }
        self.put_pending(moved.of, pending);
        before.events.iter().for_each(|event| self.runs.events.release(*event));
    }

    pub(super) fn leave_pending(&mut self, id: OccurrenceId) -> Option<Pending> {
        let pending = self.runs.gates.leave(id)?;
        if let Some(until) = pending.until {
            self.disarm_pending(id, until);
        }
        self.runs.gates.touched.push(id);
        self.open_rows += 1;
        Some(pending)
    }

    /// One that was held to its length stands elsewhere among the timers. Left there, it would start what has gone to a queue.
    fn disarm_pending(&mut self, id: OccurrenceId, until: Timestamp) {
        let at = self.runs.held.remove(&id).unwrap_or(until);
        self.runs.timers.remove(&(at, Timer::Pending(id)));
    }

    pub(super) fn put_pending(&mut self, id: OccurrenceId, pending: Pending) {
        if let Some(until) = pending.until {
            self.runs.timers.insert((until, Timer::Pending(id)));
        }
        pending.events.iter().for_each(|event| self.runs.events.keep(*event));
        self.runs.gates.touched.push(id);
        self.open_rows += 1;
        self.runs.gates.enter(id, pending);
    }

    pub(crate) fn settle_occurrence(&mut self, settled: &SettledOccurrence) -> Result<()> {
        let Some(pending) = self.leave_pending(settled.of) else { return Ok(()) };
        self.set_gates(&pending.automation, &settled.set);
        pending.events.iter().for_each(|event| self.runs.events.release(*event));
        // Its run starts right after this record, under the same version; that is dropped when the run has ended.
        match settled.outcome {
            Outcome::Ran | Outcome::CaughtUp | Outcome::Merged => Ok(()),
            _ => self.drop_unused(&pending.hash),
        }
    }

    pub(super) fn set_gates(&mut self, automation: &str, sets: &[GateSet]) {
        for set in sets {
            let place = (automation.to_owned(), set.trigger.clone(), set.gate.clone(), set.key.clone());
            self.open_rows += 1;
            self.runs.gates.changed.insert(place, set.value.clone());
        }
    }

    /// Permanent errors of an automation in a row.
    pub fn failures_of(&self, automation: &str) -> Result<u64> {
        if !self.runs.gates.failing.contains(automation) {
            return Ok(0);
        }
        Ok(self.gate(automation, "", FAILURES, "")?.and_then(|kept| kept.as_u64()).unwrap_or(0))
    }

    pub(crate) fn set_automation(&mut self, set: &AutomationSet) {
        if let Some(failures) = set.failures {
            let value = (failures > 0).then(|| failures.into());
            match failures {
                0 => _ = self.runs.gates.failing.remove(&set.automation),
                _ => _ = self.runs.gates.failing.insert(set.automation.clone()),
            }
            let (gate, trigger, key) = (FAILURES.to_owned(), String::new(), String::new());
            self.set_gates(&set.automation, &[GateSet { gate, trigger, key, value }]);
        }
        let hash = self.catalog.automations.get(&set.automation).map(|a| a.hash.clone()).unwrap_or_default();
        if let Some(backoff) = set.backoff {
            self.set_backoff(&set.automation, backoff, &hash);
        }
        if set.enabled.is_none() && set.paused.is_none() {
            return;
        }
        let slot = self.runs.gates.settings.entry(set.automation.clone()).or_default();
        slot.hash = hash;
        slot.enabled = set.enabled.or(slot.enabled);
        slot.paused = set.paused.unwrap_or(slot.paused);
        // A pause that is lifted ends no draining.
        if set.enabled.is_some() || slot.reason.as_deref() != Some(DRAINING) {
            slot.reason.clone_from(&set.reason);
        }
        self.runs.gates.settings_touched = true;
        self.open_rows += 1;
    }

    pub(crate) fn pass_schedule(&mut self, passed: &SchedulePassed) {
        let key = (passed.automation.clone(), passed.trigger.clone());
        self.runs.gates.schedules.insert(key, passed.through);
        self.runs.gates.schedules_touched = true;
        self.open_rows += 1;
    }

    /// A changed definition says anew whether it is on; a pause stays.
    pub(crate) fn forget_toggle(&mut self, automation: &str) {
        if let Some(set) = self.runs.gates.settings.get_mut(automation) {
            set.enabled = None;
            self.runs.gates.settings_touched = true;
        }
    }

    /// All that was remembered of an automation that is no longer there.
    pub(crate) fn forget_automation(&mut self, name: &str) -> Result<()> {
        self.runs.gates.changed.retain(|(automation, ..), _| automation != name);
        self.runs.gates.failing.remove(name);
        self.runs.gates.backoffs.remove(name);
        self.db.prepare_cached("DELETE FROM gate WHERE automation = ?1")?.execute([name])?;
        self.runs.gates.settings.remove(name);
        self.runs.gates.schedules.retain(|(automation, _), _| automation != name);
        (self.runs.gates.settings_touched, self.runs.gates.schedules_touched) = (true, true);
        Ok(())
    }

    pub(super) fn shift_pending(&mut self, by_ms: i64) {
        self.shift_backoffs(by_ms);
        let ids: Vec<OccurrenceId> = self.runs.gates.pending.keys().copied().collect();
        for id in ids {
            let Some(pending) = self.runs.gates.pending.get_mut(&id).filter(|pending| pending.elapsed) else {
                continue;
            };
            if let Some(until) = pending.until {
                let later = shifted(until, by_ms);
                pending.until = Some(later);
                self.disarm_pending(id, until);
                self.runs.timers.insert((later, Timer::Pending(id)));
                self.runs.gates.touched.push(id);
            }
        }
    }

    pub(super) fn store_gates(&mut self) -> Result<()> {
        let gates = &mut self.runs.gates;
        for ((automation, trigger, gate, key), value) in gates.changed.drain() {
            match value {
                Some(value) => {
                    let mut put = self.db.prepare_cached(
                        "INSERT OR REPLACE INTO gate (automation, trigger, gate, key, value) VALUES (?1, ?2, ?3, ?4, ?5)",
                    )?;
                    put.execute(params![automation, trigger, gate, key, value.to_string()])?;
                }
                None => {
                    let mut gone = self.db.prepare_cached(
                        "DELETE FROM gate WHERE automation = ?1 AND trigger = ?2 AND gate = ?3 AND key = ?4",
                    )?;
                    gone.execute(params![automation, trigger, gate, key])?;
                }
            }
        }
        for id in std::mem::take(&mut gates.touched) {
            match gates.pending.get(&id) {
                Some(pending) => {
                    let body = serde_json::to_string(pending).unwrap_or_default();
                    let mut put = self.db.prepare_cached(
                        "INSERT OR REPLACE INTO pending (position, n, body) VALUES (?1, ?2, ?3)",
                    )?;
                    put.execute(params![id.0, id.1, body])?;
                }
                None => {
                    let mut gone =
                        self.db.prepare_cached("DELETE FROM pending WHERE position = ?1 AND n = ?2")?;
                    gone.execute(params![id.0, id.1])?;
                }
            }
        }
        self.store_settings()
    }

    fn store_settings(&mut self) -> Result<()> {
        let gates = &mut self.runs.gates;
        if std::mem::take(&mut gates.settings_touched) {
            self.db.execute("DELETE FROM automation", [])?;
            for (name, set) in &gates.settings {
                self.db.execute(
                    "INSERT INTO automation (name, enabled, paused, reason, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![name, set.enabled, set.paused, set.reason, set.hash],
                )?;
            }
        }
        if std::mem::take(&mut gates.schedules_touched) {
            self.db.execute("DELETE FROM schedule", [])?;
            for ((automation, trigger), through) in &gates.schedules {
                self.db.execute(
                    "INSERT INTO schedule (automation, trigger, through) VALUES (?1, ?2, ?3)",
                    params![automation, trigger, through.to_string()],
                )?;
            }
        }
        Ok(())
    }
}

pub(super) fn load(db: &Connection) -> Result<Gates> {
    let mut gates = Gates::default();
    let mut read = db.prepare("SELECT position, n, body FROM pending")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        if let Ok(pending) = serde_json::from_str(&row.get::<_, String>(2)?) {
            gates.enter((row.get(0)?, row.get(1)?), pending);
        }
    }
    let mut read = db.prepare("SELECT name, enabled, paused, reason, hash FROM automation")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let set =
            Setting { enabled: row.get(1)?, paused: row.get(2)?, reason: row.get(3)?, hash: row.get(4)? };
        gates.settings.insert(row.get(0)?, set);
    }
    let mut read = db.prepare("SELECT automation, trigger, through FROM schedule")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        if let Ok(through) = Timestamp::parse(&row.get::<_, String>(2)?) {
            gates.schedules.insert((row.get(0)?, row.get(1)?), through);
        }
    }
    let mut read = db.prepare("SELECT DISTINCT automation FROM gate WHERE gate = ?1")?;
    gates.failing = read.query_map([FAILURES], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    gates.backoffs = backoff::load(db)?;
    Ok(gates)
}
