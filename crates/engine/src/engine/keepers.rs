//! The engine's own threads: one keeps the time, one the house, one opens what is due. Each lives as long as the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::Problem;

use super::{Engine, Shared};
use crate::deliver::lock;
use crate::effect::workers::Workers;
use crate::maintain::housekeeper::{self, Housekeeper};
use crate::pool::{Bell, supervise};
use crate::tenant::Tenant;
use crate::writer::Moment;

/// The timekeeper and the opener look around at least this often.
const LOOK_AROUND: Duration = Duration::from_secs(60);

/// Rounds of the housekeeper between two times that the uses of tokens are written down.
const SAVE_USES: u64 = 6;

/// As many as there is room for; the rest wait for the next round.
fn hand_out(workers: &Arc<Workers>, tenant: Tenant) {
    let room = workers.room();
    if room == [0, 0] || !tenant.wants_worker() {
        return;
    }
    match tenant.hand_out_effects(room) {
        Ok(effects) => effects.into_iter().for_each(|effect| workers.begin(tenant.clone(), effect)),
        // A full disk fails nothing: what waits is looked at again.
        Err(problem) => tracing::debug!(tenant = tenant.name(), %problem, "no effects were handed out"),
    }
}

impl Engine {
    /// Wakes tenants when something is due: deadlines, retries, deferred publishes, unflushed acks.
    pub(super) fn start_timekeeper(&self) -> Result<(), Problem> {
        self.keep("timekeeper", &self.0.around.bell.clone(), |engine| {
            let now = Moment::of(engine.0.around.clock.as_ref());
            let wake = engine.next_wake();
            if wake == Some(Duration::ZERO) {
                engine.0.openings.ring();
            }
            // Only what is due is held, and that is what it is held for.
            let due: Vec<Tenant> =
                lock(&engine.0.tenants).values().filter(|t| t.is_due(now)).cloned().collect();
            let shared = Arc::downgrade(&engine.0);
            drop(engine);
            due.iter().for_each(Tenant::tick);
            drop(due);
            let next = shared.upgrade().and_then(|shared| {
                let moment = Moment::of(shared.around.clock.as_ref());
                let until = |tenant: &Tenant| {
                    // How far off the engine's next instant is, nobody knows when its time is told.
                    let due = tenant.due_at().filter(|_| shared.around.clock.told().is_none());
                    let due = due.map(|due| due.saturating_sub(moment.boot));
                    let flush = tenant.flush_at().map(|flush| flush.saturating_sub(moment.real));
                    due.into_iter().chain(flush).min()
                };
                lock(&shared.tenants).values().filter_map(until).min()
            });
            [next, wake.filter(|wake| !wake.is_zero())].into_iter().flatten().min().unwrap_or(LOOK_AROUND)
        })
    }

    /// How long until a closed tenant wants to be opened.
    fn next_wake(&self) -> Option<Duration> {
        let now = self.0.around.clock.now();
        let closed = lock(&self.0.closed_tenants);
        let wait = |due: model::Timestamp| due.since(now);
        if closed.values().any(|closed| closed.wants_opening(now)) {
            return Some(Duration::ZERO);
        }
        closed.values().filter_map(|closed| closed.due()).min().map(wait)
    }

    /// Opens closed tenants that are due. Apart from the timekeeper, because a fold may take long.
    pub(super) fn start_opener(&self) -> Result<(), Problem> {
        self.keep("opener", &self.0.openings.clone(), |engine| {
            engine.open_due();
            LOOK_AROUND
        })
    }

    /// Hands effects to workers: after each batch that asks for one, and when a worker has room again.
    pub(super) fn start_workers(&self) -> Result<(), Problem> {
        let Some(workers) = self.0.workers.clone() else { return Ok(()) };
        let mut turn = 0;
        self.keep("effects", &self.0.around.effects.clone(), move |engine| {
            let mut tenants = engine.open_tenants();
            drop(engine);
            // Not always the same one first.
            turn += 1;
            let first = turn % tenants.len().max(1);
            tenants.rotate_left(first);
            for tenant in tenants {
                workers.senders.tend(&tenant);
                hand_out(&workers, tenant);
            }
            LOOK_AROUND
        })
    }

    /// Folds what runs did into histories and looks back for waits, beside writers and timers.
    pub(super) fn start_historian(&self) -> Result<(), Problem> {
        self.keep("historian", &self.0.histories.clone(), |engine| {
            let tenants = engine.open_tenants();
            drop(engine);
            tenants.iter().for_each(Tenant::work_beside);
            LOOK_AROUND
        })
    }

    /// Does what tenants need now and then: trimming, sidecars, checkpoints, reading old data again, closing.
    pub(super) fn start_housekeeper(&self) -> Result<(), Problem> {
        let mut housekeeper = Housekeeper::default();
        let mut rounds = 0;
        self.keep("housekeeper", &self.0.chores.clone(), move |engine| {
            rounds += 1;
            if rounds == 1 {
                return housekeeper::EVERY;
            }
            let (tenants, metrics) = (engine.open_tenants(), engine.metrics());
            let shared = Arc::downgrade(&engine.0);
            drop(engine);
            housekeeper.round(&tenants, &metrics);
            drop(tenants);
            if let Some(shared) = shared.upgrade() {
                let engine = Engine(shared);
                engine.close_idle();
                let saved = if rounds % SAVE_USES == 0 { engine.authority().save_uses() } else { Ok(()) };
                if let Err(problem) = saved {
                    tracing::warn!(%problem, "when tokens were last used could not be written");
                }
            }
            housekeeper::EVERY
        })
    }

    /// Runs `round` until the engine closes or is dropped, with a wait of what it says in between.
    fn keep(
        &self,
        name: &str,
        bell: &Arc<Bell>,
        mut round: impl FnMut(Engine) -> Duration + Send + 'static,
    ) -> Result<(), Problem> {
        let (shared, closed, bell) = (Arc::downgrade(&self.0), self.0.closed.clone(), bell.clone());
        let upgrade = move |shared: &std::sync::Weak<Shared>| shared.upgrade().map(Engine);
        supervise(name, &self.0.around.health, move || {
            while !closed.load(Ordering::Acquire) {
                let Some(engine) = upgrade(&shared) else { return };
                bell.wait(round(engine).min(LOOK_AROUND));
            }
        })
    }
}
