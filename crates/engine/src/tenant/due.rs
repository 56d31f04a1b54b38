//! What a tenant does when its time has come, not when somebody asks: deadlines, retries, deferred publishes, flushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::{Problem, Timestamp};

use super::Tenant;
use crate::command::{Answer, Command};
use crate::deliver::lock;
use crate::maintain::retention;
use crate::writer::{Moment, STATE_OPEN_MAX, Writer};

/// Batches without a pause after which what runs is said to run in circles.
const WORK_OFF_MAX: usize = 10_000;

fn read(slot: &AtomicU64) -> Option<Duration> {
    let at = slot.load(Ordering::Acquire);
    (at != u64::MAX).then(|| Duration::from_nanos(at))
}

impl Tenant {
    /// Somebody uses it.
    pub(crate) fn touch(&self) {
        self.0.used.store(self.real().as_nanos() as u64 + 1, Ordering::Release);
    }

    /// It was opened to look at it, not to be used: it may go as soon as nobody holds it.
    pub(crate) fn let_go(&self) {
        self.0.used.store(0, Ordering::Release);
    }

    /// Whether nobody has asked for it for `idle`, nobody but the caller, who shows it to no one, holds it, and nothing is
    /// in flight or due soon.
    pub(crate) fn rests(&self, idle: Duration) -> bool {
        let held = Arc::strong_count(&self.0) > 1;
        if held || self.registry().all().iter().any(|handle| handle.dispatcher().in_flight() > 0) {
            return false;
        }
        if self.holds_leases() {
            return false;
        }
        let used = self.0.used.load(Ordering::Acquire);
        if used > 0 && Duration::from_nanos(used - 1) + idle > self.real() {
            return false;
        }
        let soon = self.moment().now.plus(idle);
        self.next_due().is_ok_and(|due| due.is_none_or(|due| due > soon))
    }

    /// When it must be open again though nobody asks: what is durable and waits for its time.
    pub(crate) fn next_due(&self) -> Result<Option<Timestamp>, Problem> {
        let now = self.moment().now;
        let first = |writer: &mut Writer| {
            let deferred = writer.state.deferred.first().map(|(until, _)| *until);
            let timer = writer.state.runs.timers.first().map(|(at, _)| *at);
            // An effect that waits for a worker needs its tenant open.
            let effect = writer.state.runs.wakes.wants_worker().then_some(now);
            Ok(deferred.into_iter().chain(timer).chain(effect).min())
        };
        let waiting = self.with_writer(first)?;
        // Who posts events to others needs them as they come.
        let pushing = self.is_pushing()?.then_some(now);
        Ok([waiting, pushing, retention::next(self)?].into_iter().flatten().min())
    }

    /// The next thing a group, a run or a deferred publish waits for is due `after` now.
    pub(crate) fn due_in(&self, after: Duration) {
        self.wake_at(&self.0.due, self.boot().saturating_add(after));
    }

    /// Something that was done wants to be written out, or tried again, whatever the engine's time is.
    pub(crate) fn flush_in(&self, after: Duration) {
        self.wake_at(&self.0.flush, self.real().saturating_add(after));
    }

    fn wake_at(&self, slot: &AtomicU64, at: Duration) {
        let at = at.as_nanos().min(u128::from(u64::MAX) - 1) as u64;
        if slot.fetch_min(at, Ordering::AcqRel) > at {
            self.0.around.bell.ring();
        }
    }

    /// When something is due, on the boot clock.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        read(&self.0.due)
    }

    /// As [`Tenant::due_at`], and never asked in the middle of a tick, which knows nothing until it has looked around.
    pub(crate) fn due_for_sure(&self) -> Option<Duration> {
        let _none_ticks = lock(&self.0.ticking);
        self.due_at()
    }

    /// When something wants to be written out, in the machine's time.
    pub(crate) fn flush_at(&self) -> Option<Duration> {
        read(&self.0.flush)
    }

    /// When [`Tenant::tick`] wants to be called, on a clock whose boot time is the real one.
    pub fn next_tick(&self) -> Option<Duration> {
        self.due_at().into_iter().chain(self.flush_at()).min()
    }

    pub(crate) fn is_due(&self, moment: Moment) -> bool {
        self.due_at().is_some_and(|due| due <= moment.boot)
            || self.flush_at().is_some_and(|flush| flush <= moment.real)
    }

    /// Walks on whatever can, batch after batch, on this thread; false when there is no end to it.
    pub(crate) fn work_off(&self) -> bool {
        let mut writer = self.hold_writer();
        (0..WORK_OFF_MAX).any(|_| !self.turn(&mut writer))
    }

    /// Does what is due by now: missed deadlines, retries, deferred publishes, unflushed acks, uncommitted state.
    pub fn tick(&self) {
        let _alone = lock(&self.0.ticking);
        self.0.due.store(u64::MAX, Ordering::Release);
        self.0.flush.store(u64::MAX, Ordering::Release);
        let moment = self.moment();
        self.tick_groups(moment);
        self.admit_due(moment);
        self.run_due(moment);
        self.tick_beside();
        let mut writer = self.hold_writer();
        let settled = match writer.as_mut() {
            Some(open) => match open.unsettled_since() {
                Some(since) if since + STATE_OPEN_MAX <= moment.real => open.settle(),
                Some(_) => {
                    self.flush_in(STATE_OPEN_MAX);
                    Ok(())
                }
                None => Ok(()),
            },
            None => Ok(()),
        };
        match settled {
            // It is tried again when the housekeeper finds room, or with the next command.
            Err(fatal) if fatal.is_full() => self.metrics().storage_full(true),
            Err(fatal) => {
                *writer = None;
                self.stop(fatal);
            }
            Ok(()) => {}
        }
        drop(writer);
        self.hand_over_rest();
    }

    fn admit_due(&self, moment: Moment) {
        loop {
            let next = {
                let writer = self.hold_writer();
                writer.as_ref().and_then(|open| open.state.deferred.first().map(|(until, _)| *until))
            };
            match next {
                Some(until) if until <= moment.now => match self.ask_blocking(Command::AdmitDue) {
                    Ok(Answer::Admitted { more: true }) => {}
                    _ => return,
                },
                Some(until) => return self.due_in(until.since(moment.now)),
                None => return,
            }
        }
    }
}
