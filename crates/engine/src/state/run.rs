//! Live runs and all that waits, in memory as far as finding them needs, whole in `state.db`.
//!
//! Runs are written through at COMMIT only, so that one which begins and ends in between leaves no trace there.
//! Indexes (who is woken by which row, which topic, which instant) are built when the state is loaded.

mod armed;
mod backoff;
mod effect;
mod event;
mod gate;
mod load;
mod subscription;
mod version;
mod wakes;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use model::record::{OccurrenceId, RunEnded, RunMoved, RunStarted, Status, WaitEnded};
use model::{Position, Timestamp};
use rusqlite::{OptionalExtension, params};
use serde::Deserialize;

pub use gate::{DRAINING, GateKey, Pending, Setting};
pub(super) use load::load;
pub use subscription::{DRAINER, Subscription, Subscriptions};
pub use wakes::Wakes;

use super::{Result, State};
use crate::apply::Place;
use crate::automation::Automation;
use crate::faults::planted;
use crate::run::{Ended, Run, Wait, WaitId, WaitKind, Walked};

/// What a live run is, without what it has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    pub id: String,
    pub automation: String,
    pub hash: String,
    pub key: String,
    pub event: Position,
    pub status: Status,
    /// Since which position it could walk on.
    pub ready: Option<Position>,
}

impl Brief {
    fn of(run: &Run, ready: Option<Position>) -> Brief {
        Brief {
            id: run.id.clone(),
            automation: run.automation.clone(),
            hash: run.hash.clone(),
            key: run.key.clone(),
            event: run.event,
            status: run.status,
            ready,
        }
    }
}

/// What comes due without being asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    Wait(WaitId),
    /// A condition that reads time.
    Recheck(WaitId),
    /// A run that must be over.
    Run(Position),
    Pending(OccurrenceId),
    Schedule {
        automation: String,
        trigger: String,
    },
}

#[derive(Default)]
pub struct Runs {
    pub live: BTreeMap<Position, Brief>,
    by_id: HashMap<String, Position>,
    /// Since the last COMMIT; `None`: it ended. Boxed, because the map grows with every batch and would move them.
    changed: HashMap<Position, Option<Box<Run>>>,
    /// Runs that can walk on, in the order in which they could.
    pub ready: VecDeque<Position>,
    pub timers: BTreeSet<(Timestamp, Timer)>,
    /// When each of those is armed for that was held to its length, and so comes earlier than it says of itself.
    held: HashMap<OccurrenceId, Timestamp>,
    /// When each schedule is armed for.
    schedules: HashMap<Timer, Timestamp>,
    /// When each condition that reads time is tried again.
    rechecks: HashMap<WaitId, Timestamp>,
    pub wakes: Wakes,
    /// Live runs by automation and mode key.
    pub stage: HashMap<(String, String), BTreeSet<Position>>,
    /// Definitions that runs hold and the catalogue no longer has.
    versions: HashMap<String, Arc<Automation>>,
    /// Hashes of all that were replaced and are kept, whether runs hold them or only old events do.
    replaced: HashSet<String>,
    /// How many live runs each version has.
    on_version: HashMap<String, u64>,
    pub subscriptions: Subscriptions,
    pub(super) gates: gate::Gates,
    pub(super) events: event::Events,
}

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.gates.pending.is_empty()
    }

    pub fn position_of(&self, id: &str) -> Option<Position> {
        self.by_id.get(id).copied()
    }

    fn make_ready(&mut self, run: Position, since: Position) {
        let Some(brief) = self.live.get_mut(&run) else { return };
        if brief.ready.is_none() {
            brief.ready = Some(since);
            self.ready.push_back(run);
        }
        brief.status = Status::Running;
    }

    /// Of those that became ready at `from` or later, the ones since `since` go first.
    pub fn put_before(&mut self, from: Position, since: Position) {
        let at = |runs: &Runs, run: &Position| runs.live.get(run).and_then(|brief| brief.ready).unwrap_or(0);
        let fresh = self.ready.iter().rev().take_while(|run| at(self, run) >= from).count();
        if fresh < 2 {
            return;
        }
        let tail = self.ready.split_off(self.ready.len() - fresh);
        let (first, last): (Vec<_>, Vec<_>) = tail.into_iter().partition(|run| at(self, run) >= since);
        self.ready.extend(first.into_iter().chain(last));
    }

    /// It has walked; nearly always it was the first in the queue.
    fn unready(&mut self, run: Position) {
        match self.ready.front() {
            Some(first) if *first == run => _ = self.ready.pop_front(),
            _ => self.ready.retain(|ready| *ready != run),
        }
    }

    fn enter(&mut self, position: Position, brief: Brief) {
        match self.on_version.get_mut(&brief.hash) {
            Some(count) => *count += 1,
            None => _ = self.on_version.insert(brief.hash.clone(), 1),
        }
        self.by_id.insert(brief.id.clone(), position);
        self.stage.entry((brief.automation.clone(), brief.key.clone())).or_default().insert(position);
        self.live.insert(position, brief);
    }

    fn leave(&mut self, run: &Run) {
        let Some(brief) = self.live.remove(&run.position) else { return };
        if let Some(count) = self.on_version.get_mut(&run.hash) {
            *count -= 1;
            if *count == 0 {
                self.on_version.remove(&run.hash);
            }
        }
        self.by_id.remove(&run.id);
        let place = (brief.automation, brief.key);
        if let Some(stage) = self.stage.get_mut(&place) {
            stage.remove(&run.position);
            if stage.is_empty() {
                self.stage.remove(&place);
            }
        }
    }

    /// A schedule has one timer; `None`: nothing is to come.
    pub fn arm_schedule(&mut self, timer: Timer, at: Option<Timestamp>) {
        if let Some(before) = self.schedules.remove(&timer) {
            self.timers.remove(&(before, timer.clone()));
        }
        if let Some(at) = at {
            self.schedules.insert(timer.clone(), at);
            self.timers.insert((at, timer));
        }
    }

    pub fn disarm_schedules(&mut self) {
        for (timer, at) in self.schedules.drain() {
            self.timers.remove(&(at, timer));
        }
    }

    /// Follows from what the condition looks at, and is written nowhere: after a restart all are tried at once.
    pub(crate) fn arm_recheck(&mut self, id: WaitId, at: Timestamp) {
        self.disarm_recheck(id);
        self.rechecks.insert(id, at);
        self.timers.insert((at, Timer::Recheck(id)));
    }

    fn disarm_recheck(&mut self, id: WaitId) -> Option<Timestamp> {
        let at = self.rechecks.remove(&id)?;
        self.timers.remove(&(at, Timer::Recheck(id)));
        Some(at)
    }

    /// Events that ended waits are kept until the walk has read them.
    fn hold_on(&mut self, run: &Run) {
        for wait in &run.walk.waits {
            self.events.keep_if(wait.ended.as_ref().and_then(|ended| ended.event));
            self.events.keep_if(wait.held().map(|held| held.event));
        }
    }

    fn let_go(&mut self, run: &Run) {
        let read = run.walk.waits.iter().filter_map(|wait| wait.ended.as_ref()?.event);
        let held = run.walk.waits.iter().filter_map(|wait| Some(wait.held()?.event));
        read.chain(held).for_each(|event| self.events.release(event));
    }

    /// `tried`: when conditions that read time are tried again, as far as it is known better than when they were written.
    fn arm(&mut self, run: &Run, tried: &[(WaitId, Timestamp)]) {
        self.timers.extend(run.walk.deadline.map(|at| (at, Timer::Run(run.position))));
        for wait in run.walk.waits.iter().filter(|wait| wait.ended.is_none()) {
            let id = (run.position, wait.number);
            self.wakes.insert(id, wait);
            self.timers.extend(wait.due.map(|due| (due, Timer::Wait(id))));
            if let WaitKind::Until { recheck: Some(at), .. } = &wait.kind {
                let known = tried.iter().find(|(other, _)| *other == id);
                self.arm_recheck(id, known.map_or(*at, |(_, at)| *at));
            }
            if let Some(held) = wait.held() {
                self.arm_recheck(id, held.until);
            }
        }
    }

    /// Gives back when conditions that read time were to be tried again.
    fn disarm(&mut self, run: &Run) -> Vec<(WaitId, Timestamp)> {
        let mut tried = Vec::new();
        if let Some(at) = run.walk.deadline {
            self.timers.remove(&(at, Timer::Run(run.position)));
        }
        for wait in run.walk.waits.iter().filter(|wait| wait.ended.is_none()) {
            let id = (run.position, wait.number);
            self.wakes.remove(id, wait);
            tried.extend(self.disarm_recheck(id).map(|at| (id, at)));
            if let Some(due) = wait.due.filter(|_| !planted("fire_by_index_id")) {
                self.timers.remove(&(due, Timer::Wait(id)));
            }
        }
        tried
    }
}

impl State {
    pub fn run(&self, position: Position) -> Result<Option<Run>> {
        if let Some(changed) = self.runs.changed.get(&position) {
            return Ok(changed.as_deref().cloned());
        }
        if !self.runs.live.contains_key(&position) {
            return Ok(None);
        }
        let mut read = self.db.prepare_cached("SELECT body FROM run WHERE position = ?1")?;
        let body: Option<String> = read.query_row([position], |row| row.get(0)).optional()?;
        Ok(body.and_then(|body| serde_json::from_str(&body).ok()))
    }

    /// As [`State::run`], to be put back changed or not at all.
    fn take_run(&mut self, position: Position) -> Result<Option<Box<Run>>> {
        match self.runs.changed.remove(&position) {
            Some(changed) => Ok(changed),
            None => Ok(self.run(position)?.map(Box::new)),
        }
    }

    pub(crate) fn start_run(&mut self, place: Place, started: &RunStarted) -> Result<()> {
        self.recall(&started.automation, &started.hash)?;
        let run = Run::new(place.position, place.time, started);
        self.runs.enter(run.position, Brief::of(&run, None));
        self.runs.make_ready(run.position, place.position);
        self.runs.events.keep(run.reads());
        self.open_rows += 1;
        self.runs.changed.insert(run.position, Some(Box::new(run)));
        Ok(())
    }

    pub(crate) fn move_run(&mut self, place: Place, moved: &RunMoved) -> Result<()> {
        let Some(mut run) = self.take_run(moved.run)? else { return Ok(()) };
        let tried = self.runs.disarm(&run);
        self.runs.let_go(&run);
        run.walk = Walked::deserialize(&moved.state).unwrap_or_default();
        run.status = moved.status;
        self.runs.arm(&run, &tried);
        self.runs.hold_on(&run);
        if let Some(brief) = self.runs.live.get_mut(&moved.run) {
            (brief.status, brief.ready) = (moved.status, None);
        }
        // It may stand in the queue already, when it walked out of turn.
        self.runs.unready(moved.run);
        if moved.status == Status::Running {
            self.runs.make_ready(moved.run, place.position);
        }
        self.open_rows += 1;
        self.runs.changed.insert(moved.run, Some(run));
        Ok(())
    }

    pub(crate) fn end_wait(&mut self, place: Place, ended: &WaitEnded) -> Result<()> {
        let Some(mut run) = self.take_run(ended.run)? else { return Ok(()) };
        let tried = self.runs.disarm(&run);
        run.walk.holds(&ended.other_spaces);
        run.walk.hears(ended.band);
        if let Some(wait) = run.wait_mut(ended.wait) {
            let (how, event, value) = (ended.how, ended.event, ended.value.clone());
            wait.ended = Some(Ended { how, at: place.time, event, by: ended.by.clone(), value });
            // With the wait, that lets go of it: there is none where the record that began it was erased.
            self.runs.events.keep_if(ended.event);
        }
        run.status = Status::Running;
        self.runs.arm(&run, &tried);
        self.runs.make_ready(ended.run, place.position);
        self.open_rows += 1;
        self.runs.changed.insert(ended.run, Some(run));
        Ok(())
    }

    pub(crate) fn end_run(&mut self, ended: &RunEnded) -> Result<()> {
        let Some(run) = self.take_run(ended.run)? else { return Ok(()) };
        self.runs.disarm(&run);
        self.runs.leave(&run);
        self.runs.unready(ended.run);
        self.runs.let_go(&run);
        self.runs.events.release(run.reads());
        self.open_rows += 1;
        // One that began after the last COMMIT has no row that would have to go.
        if ended.run <= self.committed {
            self.runs.changed.insert(ended.run, None);
        }
        self.drop_unused(&run.hash)
    }

    /// How many live runs each version of an automation has.
    pub fn runs_per_version(&self, name: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for brief in self.runs.live.values().filter(|brief| brief.automation == name) {
            *counts.entry(brief.hash.clone()).or_insert(0) += 1;
        }
        counts
    }

    /// Writes what changed since the last COMMIT.
    pub(super) fn store_runs(&mut self) -> Result<()> {
        let mut changed: Vec<_> = self.runs.changed.drain().collect();
        changed.sort_by_key(|(position, _)| *position);
        for (position, run) in changed {
            match run {
                Some(run) => {
                    let ready = self.runs.live.get(&position).and_then(|brief| brief.ready);
                    let mut put = self.db.prepare_cached(
                        "INSERT OR REPLACE INTO run (position, ready, body) VALUES (?1, ?2, ?3)",
                    )?;
                    put.execute(params![position, ready, body_of(&run)])?;
                }
                None => {
                    _ = self.db.prepare_cached("DELETE FROM run WHERE position = ?1")?.execute([position])?
                }
            }
        }
        self.store_gates()?;
        self.store_subscriptions()?;
        self.store_events()
    }

    /// A step of the clock moves every wait that counts time, not instants.
    pub(crate) fn shift_runs(&mut self, by_ms: i64) -> Result<()> {
        let positions: Vec<Position> = self.runs.live.keys().copied().collect();
        for position in positions {
            let Some(mut run) = self.run(position)?.map(Box::new) else { continue };
            let counts = |wait: &Wait| wait.lasts_ms.is_some() || wait.held().is_some();
            if run.walk.deadline.is_none() && !run.walk.waits.iter().any(counts) {
                continue;
            }
            let tried = self.runs.disarm(&run);
            run.walk.deadline = run.walk.deadline.map(|at| shifted(at, by_ms));
            for wait in run.walk.waits.iter_mut().filter(|wait| wait.lasts_ms.is_some()) {
                wait.due = wait.due.map(|due| shifted(due, by_ms));
            }
            for wait in &mut run.walk.waits {
                if let WaitKind::For { held: Some(held), .. } = &mut wait.kind {
                    held.until = shifted(held.until, by_ms);
                }
            }
            self.runs.arm(&run, &tried);
            self.open_rows += 1;
            self.runs.changed.insert(position, Some(run));
        }
        self.shift_pending(by_ms);
        crate::absent::shift(self, by_ms)
    }
}

pub(crate) fn shifted(at: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_nanos(at.nanos() + i128::from(by_ms) * 1_000_000)
}

fn body_of(run: &Run) -> String {
    serde_json::to_string(run).expect("a run has string keys and finite numbers")
}
