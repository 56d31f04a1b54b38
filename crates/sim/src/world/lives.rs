//! The lives of a process: opening, crashing in every way a machine offers, and opening again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::entropy::Entropy;
use engine::pool::Pool;
use engine::settings::{AttentionRule, Retention, Settings, Verdict};
use engine::state::State;
use engine::tenant::{Home, Opening, Surroundings};
use engine::{Follow, Tenant};
use ledger::disk::{Disk, Fault, SimDisk};
use ledger::{Options, Prefill};
use model::topic::Pattern;
use model::{Code, Problem};

use super::World;
use crate::scan::scan;

/// How often opening may meet yet another fault before the disk is healed.
const OPENINGS_MAX: usize = 4;

/// Makes a folder and all above it, durably, on the simulated disk.
pub fn make_dirs(disk: &SimDisk, dir: &Path) -> Result<(), String> {
    let mut parents: Vec<&Path> = dir.ancestors().filter(|path| path.parent().is_some()).collect();
    parents.reverse();
    for path in parents {
        disk.create_dir(path).map_err(|error| error.to_string())?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        disk.sync_dir(parent).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn settings(respect_groups: bool) -> Result<Settings, String> {
    let rule = |topic: &str, verdict| {
        let topic = Pattern::parse(topic).map_err(|problem| problem.to_string())?;
        Ok::<_, String>(AttentionRule { topic, filter: None, rate: None, verdict })
    };
    let later = rule("later.#", Verdict::Defer { until: Duration::from_secs(3) })?;
    let attention = vec![later, rule("noise.#", Verdict::Drop)?];
    let retention = Retention { bytes: Some(12_000), respect_groups, ..Retention::default() };
    Ok(Settings { attention, retention, ..Settings::default() })
}

impl World {
    pub(super) fn open(&mut self) -> Result<(), String> {
        for attempt in 0.. {
            if attempt == OPENINGS_MAX {
                self.disk.heal();
                self.disk.set_capacity(None);
                self.full = false;
            }
            match self.try_open() {
                Ok(tenant) => {
                    self.tenant = Some(tenant);
                    break;
                }
                Err(problem) if problem.code() == Code::StoreCorrupt || attempt > OPENINGS_MAX => {
                    return Err(format!("the tenant does not open: {problem}"));
                }
                Err(problem) => {
                    self.note(format_args!("opening fails: {}", problem.code().as_str()));
                    self.oracle.groups.values_mut().for_each(|truth| truth.crash());
                    self.end_life();
                }
            }
        }
        self.lives += 1;
        self.calm = self.planned.is_none() && !self.full;
        self.check_ledger()?;
        self.check_live()?;
        self.begin_following()
    }

    fn try_open(&mut self) -> Result<Tenant, Problem> {
        self.pool = Pool::inline();
        *self.fatal.lock().expect("nothing panics while it holds it") = None;
        let fatal = self.fatal.clone();
        let broken = |what: String| Problem::new(Code::Internal, what);
        let around = Surroundings {
            telemetry: None,
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            bell: Arc::default(),
            effects: Arc::default(),
            health: Arc::default(),
            metrics: Arc::default(),
            settings: Arc::new(settings(!self.temper.ruthless).map_err(broken)?),
            on_fatal: Arc::new(move |problem: &Problem| {
                *fatal.lock().expect("nothing panics while it holds it") = Some(problem.to_string());
            }),
        };
        let options = Options { segment_bytes: 6_000, prefill: Prefill::Off, headroom: 8_192 };
        let home = Home::Directory { disk: Arc::new(self.disk.clone()), dir: self.dir.clone(), options };
        let entropy = Entropy::seeded(self.random.number());
        let opening = Opening { name: "main".to_owned(), home, layers: Vec::new(), entropy };
        Tenant::open(opening, around)
    }

    pub(super) fn begin_following(&mut self) -> Result<(), String> {
        let after = Some(self.followed.max(self.tenant().first() - 1));
        let follow = Follow { after, ..Follow::default() };
        self.follower = Some(self.tenant().follow(follow).map_err(|problem| problem.to_string())?);
        Ok(())
    }

    /// Everything found on the disk against everything that was answered.
    pub(super) fn check_ledger(&mut self) -> Result<(), String> {
        let plan = self.planned.take();
        self.disk.heal();
        let found = scan(&self.disk, &self.dir.join("ledger"))?;
        self.oracle.check(&found)?;
        let state = State::open(Some(&self.dir.join("state.db"))).map_err(|fault| fault.to_string())?;
        self.oracle.check_state(&state, &found)?;
        drop(state);
        if let Some((_, power)) = plan {
            self.note(format_args!("a planned fault (power: {power}) is taken back"));
        }
        Ok(())
    }

    /// The oracle folds what is durable by now.
    pub(super) fn catch_up(&mut self) -> Result<(), String> {
        let found = scan(&self.disk, &self.dir.join("ledger"))?;
        self.oracle.catch_up(&found)
    }

    /// Something goes wrong, now or at some later operation of the disk.
    pub(super) fn misfortune(&mut self) -> Result<(), String> {
        if self.planned.is_some() {
            return Ok(());
        }
        let weights = if self.temper.restless { [4, 30, 2, 1, 0, 0] } else { [4, 2, 3, 4, 1, 1] };
        match self.random.weighted(&weights) {
            0 => self.crash(true),
            1 => self.crash(false),
            2 => self.plan(Fault::PowerCut),
            3 => {
                let fault = *self.random.pick(&[Fault::Eio, Fault::Enospc, Fault::Short]);
                self.plan(fault)
            }
            4 => self.close(),
            _ => {
                let full = self.random.once_in(2);
                self.note(if full { "the disk fills up" } else { "the disk has room again" });
                self.disk.set_capacity(full.then_some(1));
                self.full = full;
                self.calm = false;
                Ok(())
            }
        }
    }

    fn plan(&mut self, fault: Fault) -> Result<(), String> {
        let (after, sticky) = (self.random.between(1, 12), self.random.once_in(3));
        self.note(format_args!("{fault:?} at the {after}th operation, sticky: {sticky}"));
        self.summary.faults += 1;
        self.planned = Some((self.disk.ops() + after, fault == Fault::PowerCut));
        self.disk.fail_after(after, fault, sticky);
        self.calm = false;
        Ok(())
    }

    /// After each step: has the process come to its end, or has the power gone?
    pub(super) fn meet_fate(&mut self) -> Result<(), String> {
        let struck = self.planned.is_some_and(|(at, _)| self.disk.ops() >= at);
        let power = self.planned.is_some_and(|(_, power)| power);
        if let Some(why) = self.fatal() {
            self.note(format_args!("the process stops: {}", if power { "no power" } else { "an error" }));
            if why.is_empty() {
                return Err("a process stops and does not say why".to_owned());
            }
            let cut = power || self.random.once_in(2);
            return self.crash(cut);
        }
        if struck && power {
            return self.crash(true);
        }
        if struck {
            self.disk.heal();
            self.planned = None;
        }
        Ok(())
    }

    /// The process ends without a word; with `power`, what was not synced is lost in any order.
    pub(super) fn crash(&mut self, power: bool) -> Result<(), String> {
        self.note(format_args!("crash, power lost: {power}"));
        self.summary.crashes += 1;
        self.oracle.groups.values_mut().for_each(|truth| truth.crash());
        self.end_life();
        if power {
            self.disk.power_cut()
        } else {
            self.disk.kill()
        }
        self.planned = None;
        self.lose_state();
        if self.random.once_in(4) {
            self.plan_for_opening(30);
        }
        self.clock.advance(Duration::from_millis(self.random.between(0, 2_000)));
        self.open()
    }

    /// Something fails among the first operations of the next opening.
    pub(super) fn plan_for_opening(&mut self, operations: u64) {
        let fault = *self.random.pick(&[Fault::Eio, Fault::Enospc, Fault::PowerCut]);
        let after = self.random.between(1, operations);
        self.note(format_args!("{fault:?} at the {after}th operation of opening"));
        self.planned = Some((self.disk.ops() + after, fault == Fault::PowerCut));
        self.disk.fail_after(after, fault, false);
    }

    /// `state.db` is derived: it may be gone, or half written, after any crash.
    fn lose_state(&mut self) {
        let path = self.dir.join("state.db");
        match self.random.below(8) {
            0 => {
                self.note("state.db is gone");
                for suffix in ["state.db", "state.db-wal", "state.db-shm"] {
                    let _ = std::fs::remove_file(self.dir.join(suffix));
                }
            }
            1 => {
                self.note("the WAL of state.db is gone");
                let _ = std::fs::remove_file(self.dir.join("state.db-wal"));
                let _ = std::fs::remove_file(self.dir.join("state.db-shm"));
            }
            2 if path.exists() => {
                self.note("state.db is torn");
                let bytes = std::fs::read(&path).unwrap_or_default();
                let _ = std::fs::write(&path, &bytes[..bytes.len() / 3]);
            }
            _ => {}
        }
    }

    /// What lives in memory is gone.
    fn end_life(&mut self) {
        for operation in std::mem::take(&mut self.operations) {
            self.abandon(operation);
        }
        let held = std::mem::take(&mut self.hands);
        self.stale.extend(held.into_iter().map(|hand| (hand.group, hand.token)));
        self.stale.truncate(20);
        self.late.append(&mut self.errands);
        self.late.truncate(20);
        self.follower = None;
        self.tenant = None;
        self.pool.forget_waiting();
        if self.planned.is_some_and(|(at, power)| power && self.disk.ops() >= at) {
            self.disk.power_cut();
            self.planned = None;
        }
    }

    /// An orderly stop and start.
    fn close(&mut self) -> Result<(), String> {
        self.pump();
        self.poll_all()?;
        self.note("close");
        match self.tenant().close_now() {
            Ok(()) => {
                // What was acked is recorded now; what was under way has no answer.
                self.oracle.groups.values_mut().for_each(|truth| truth.harden());
                self.end_life();
                self.disk.kill();
                self.open()
            }
            Err(_) if self.fatal().is_some() || !self.calm => self.crash(false),
            Err(problem) => Err(format!("closing fails: {problem}")),
        }
    }

    /// Ends in order, and begins from the ledger alone.
    pub(super) fn rebuild(&mut self) -> Result<(), String> {
        self.close()?;
        self.close_for_good()?;
        for file in ["state.db", "state.db-wal", "state.db-shm"] {
            let _ = std::fs::remove_file(self.dir.join(file));
        }
        self.open()
    }

    fn close_for_good(&mut self) -> Result<(), String> {
        let closed = self.tenant().close_now();
        self.end_life();
        self.disk.kill();
        closed.map_err(|problem| format!("closing fails: {problem}"))
    }
}
