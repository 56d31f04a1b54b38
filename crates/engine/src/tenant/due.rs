//! What a tenant does when its time has come, not when somebody asks: deadlines, retries, deferred publishes, flushes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{Problem, Timestamp};

use super::Tenant;
use crate::command::{Answer, Command};
use crate::maintain::retention;
use crate::writer::{Moment, STATE_OPEN_MAX, Writer};

impl Tenant {
    /// Somebody uses it.
    pub(crate) fn touch(&self) {
        self.0.used.store(self.boot().as_nanos() as u64 + 1, Ordering::Release);
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
        let used = self.0.used.load(Ordering::Acquire);
        if used > 0 && Duration::from_nanos(used - 1) + idle > self.boot() {
            return false;
        }
        let soon = self.moment().now.plus(idle);
        self.next_due().is_ok_and(|due| due.is_none_or(|due| due > soon))
    }

    /// When it must be open again though nobody asks: what is durable and waits for its time.
    pub(crate) fn next_due(&self) -> Result<Option<Timestamp>, Problem> {
        let first = |writer: &mut Writer| {
            let deferred = writer.state.deferred.first().map(|(until, _)| *until);
            let timer = writer.state.runs.timers.first().map(|(at, _)| *at);
            Ok(deferred.into_iter().chain(timer).min())
        };
        let waiting = self.with_writer(first)?;
        Ok([waiting, retention::next(self)?].into_iter().flatten().min())
    }

    /// The next thing a group, a deferred publish or an unflushed ack waits for is due `after` now.
    pub(crate) fn due_in(&self, after: Duration) {
        let due = self.boot().saturating_add(after).as_nanos().min(u128::from(u64::MAX) - 1) as u64;
        if self.0.due.fetch_min(due, Ordering::AcqRel) > due {
            self.0.around.bell.ring();
        }
    }

    /// When [`Tenant::tick`] wants to be called, on the boot clock.
    pub fn next_tick(&self) -> Option<Duration> {
        let due = self.0.due.load(Ordering::Acquire);
        (due != u64::MAX).then(|| Duration::from_nanos(due))
    }

    pub(crate) fn is_due(&self, boot: Duration) -> bool {
        self.next_tick().is_some_and(|due| due <= boot)
    }

    /// Does what is due by now: missed deadlines, retries, deferred publishes, unflushed acks, uncommitted state.
    pub fn tick(&self) {
        self.0.due.store(u64::MAX, Ordering::Release);
        let moment = self.moment();
        self.tick_groups(moment);
        self.admit_due(moment);
        self.run_due(moment);
        if self.history_waits() {
            self.fold_history(self.head());
        }
        let mut writer = self.hold_writer();
        let settled = match writer.as_mut() {
            Some(open) => match open.unsettled_since() {
                Some(since) if since + STATE_OPEN_MAX <= moment.boot => open.settle(),
                Some(_) => {
                    self.due_in(STATE_OPEN_MAX);
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
