//! Deliveries: handed to workers, answered for, and what their time brings: retries, missed deadlines, moves to record.

use std::sync::Arc;
use std::time::Duration;

use model::record::{DeadReason, Moved, Span};
use model::{Code, Position, Problem, Timestamp};

use super::{PULL_MAX, PULL_WAIT_MAX, Settled};
use crate::authority::Sight;
use crate::command::{Command, Failing, Why};
use crate::deliver::dispatcher::{Delivery, Dispatcher};
use crate::deliver::{GroupHandle, Most, Token};
use crate::mailbox::Pending;
use crate::tenant::{ACK_FLUSH, Tenant};
use crate::writer::Moment;

/// How long the record of a failure has to come after whoever reported it went away.
const ABANDONED: Duration = Duration::from_secs(1);

/// Longest that a worker may keep a delivery, or put it off, with one word.
const HOLD_MAX: Duration = Duration::from_secs(12 * 3600);

fn bounded(name: &str, length: Duration) -> Result<(), Problem> {
    if length <= HOLD_MAX {
        return Ok(());
    }
    Err(Problem::new(Code::GroupInvalid, format!("\"{name}\" is at most 12 h"))
        .hint("say it again before the time is over")
        .at(format!("/{name}")))
}

impl Tenant {
    /// Takes up to `max` events, waiting up to `wait` for the first. Dropping the future hands nothing out.
    pub async fn pull(&self, name: &str, max: usize, wait: Duration) -> Result<Vec<Delivery>, Problem> {
        self.pull_seen(name, Most::events(max), wait, &Sight::default()).await
    }

    /// As [`Tenant::pull`], for a worker of this process that comes again as soon as it is done.
    pub(crate) async fn pull_on(
        &self,
        name: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Problem> {
        let puller = Puller { sight: &Sight::default(), comes_again: true };
        self.pull_as(name, Most::events(max), wait, &puller).await
    }

    /// As [`Tenant::pull`], passing over what is not seen: that stays for others.
    pub(in crate::tenant) async fn pull_seen(
        &self,
        name: &str,
        most: Most,
        wait: Duration,
        sight: &Sight,
    ) -> Result<Vec<Delivery>, Problem> {
        self.pull_as(name, most, wait, &Puller { sight, comes_again: false }).await
    }

    async fn pull_as(
        &self,
        name: &str,
        most: Most,
        wait: Duration,
        puller: &Puller<'_>,
    ) -> Result<Vec<Delivery>, Problem> {
        let (started, sight) = (self.real(), puller.sight);
        let most = Most { events: most.events.clamp(1, PULL_MAX), ..most };
        loop {
            let handle = self.handle(name)?;
            let takes_all = sight.sees_all() || sight.takes_all_of(&handle.dispatcher().group.definition);
            let _choosy = (!takes_all).then(|| handle.choosy());
            let mut woken = std::pin::pin!(handle.wake.notified());
            woken.as_mut().enable();
            let (deliveries, more) = self.take(&handle, most, puller).await?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            let left = wait.min(PULL_WAIT_MAX).saturating_sub(self.real().saturating_sub(started));
            if left.is_zero() || self.is_closing() {
                return Ok(deliveries);
            }
            if tokio::time::timeout(left, woken).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    async fn take(
        &self,
        handle: &Arc<GroupHandle>,
        most: Most,
        puller: &Puller<'_>,
    ) -> Result<(Vec<Delivery>, bool), Problem> {
        let (taken, moving, since, more, stepped) = {
            let mut dispatcher = handle.dispatcher();
            let more = self.look(handle, &mut dispatcher)?;
            let moment = self.moment();
            let now = dispatcher.now(moment);
            let taken = dispatcher.take_seen(most, now, puller.sight);
            dispatcher.keeps_up(puller.comes_again && !more);
            let moving = if !taken.deliveries.is_empty() && dispatcher.must_record() {
                self.begin_move(&mut dispatcher, false)
            } else {
                None
            };
            (taken, moving, dispatcher.group.since, more, dispatcher.is_stepped(moment))
        };
        let guard = HandOver { handle, deliveries: taken.deliveries };
        // Asked before anything is waited for: a caller that goes away takes no ack with it.
        let (recorded, failed) =
            tokio::join!(self.end_move(handle, moving), self.fail(handle, since, taken.dying));
        recorded.and(failed)?;
        if stepped {
            // So that the deadlines below are in the time that the callers see.
            self.ask(Command::Note { records: Vec::new() }).await?;
        }
        let mut deliveries = guard.done();
        let dispatcher = handle.dispatcher();
        // While the move was written, a record of another's may have settled or moved some of them.
        deliveries.retain_mut(|delivery| match dispatcher.deadline_of(delivery.token) {
            Some(deadline) => {
                delivery.deadline = deadline;
                true
            }
            None => false,
        });
        let now = dispatcher.now(self.moment());
        drop(dispatcher);
        if deliveries.len() == most.events || taken.is_cut {
            // There may be more for the next in line.
            handle.call_one();
        }
        if let Some(first) = deliveries.first() {
            self.due_in(first.deadline.since(now));
        }
        Ok((deliveries, more))
    }

    /// Puts what has moved into the writer's mailbox while the group is held, so that moves are recorded in the order in
    /// which they happened.
    fn begin_move(&self, dispatcher: &mut Dispatcher, sync: bool) -> Option<Moving> {
        let moved = dispatcher.progress()?;
        self.submit_move(dispatcher, moved, sync)
    }

    fn submit_move(&self, dispatcher: &Dispatcher, moved: Moved, sync: bool) -> Option<Moving> {
        let (ranges, acked, since) = (moved.ranges.clone(), moved.acked, dispatcher.group.since);
        let pending = self.submit(Command::Move { moved, since, sync }).ok()?;
        Some(Moving { pending, ranges, acked })
    }

    async fn end_move(&self, handle: &GroupHandle, moving: Option<Moving>) -> Result<(), Problem> {
        let Some(Moving { pending, ranges, acked }) = moving else { return Ok(()) };
        let answer = self.answer(pending).await;
        answer.map(|_| ()).inspect_err(|_| handle.dispatcher().unrecord(&ranges, acked))
    }

    fn end_move_blocking(&self, handle: &GroupHandle, moving: Option<Moving>) {
        let Some(Moving { pending, ranges, acked }) = moving else { return };
        if self.answer_blocking(pending).is_err() {
            handle.dispatcher().unrecord(&ranges, acked);
        }
    }

    /// Returns deliveries that nobody will work on; no attempt is counted.
    pub(crate) fn give_back(&self, name: &str, deliveries: &[Delivery]) -> Result<(), Problem> {
        self.handle(name)?.dispatcher().take_back(deliveries);
        Ok(())
    }

    /// Settles deliveries. Durable within 100 ms, or when this returns if `sync`.
    pub async fn ack(&self, name: &str, tokens: &[String], sync: bool) -> Result<Settled, Problem> {
        self.observe_held(name, tokens, true)?;
        self.settle(name, sync, |dispatcher, now| each(tokens, |token| dispatcher.ack(token, now))).await
    }

    /// As [`Tenant::ack`], for handlers in process, who are counted where they run.
    pub(crate) async fn ack_handled(&self, name: &str, tokens: &[Token]) -> Result<(), Problem> {
        let ack_all = |dispatcher: &mut Dispatcher, now| {
            let done = tokens.iter().filter(|token| dispatcher.ack(**token, now)).count();
            Settled { done, stale: Vec::new() }
        };
        self.settle(name, false, ack_all).await.map(drop)
    }

    /// Counts how long deliveries were held.
    fn observe_held(&self, name: &str, tokens: &[String], ok: bool) -> Result<(), Problem> {
        let handle = self.handle(name)?;
        let dispatcher = handle.dispatcher();
        let now = dispatcher.now(self.moment());
        let good = tokens.iter().filter_map(|token| dispatcher.held(Token::parse(token)?, now));
        for (event, attempt, held) in good {
            self.metrics().handled(&event.envelope.topic, name, ok, held.as_secs_f64());
            self.trace_handled(name, (event, attempt), ok, (now, held));
        }
        Ok(())
    }

    async fn settle(
        &self,
        name: &str,
        sync: bool,
        acks: impl FnOnce(&mut Dispatcher, Timestamp) -> Settled,
    ) -> Result<Settled, Problem> {
        let handle = self.handle(name)?;
        let (settled, moving) = {
            let mut dispatcher = handle.dispatcher();
            let now = dispatcher.now(self.moment());
            let settled = acks(&mut dispatcher, now);
            let moving = if sync { self.begin_move(&mut dispatcher, true) } else { None };
            (settled, moving)
        };
        if settled.done > 0 {
            handle.freed.notify_waiters();
            handle.call_one();
            self.flush_in(ACK_FLUSH);
        }
        if sync && moving.is_none() {
            self.ask(Command::Note { records: Vec::new() }).await?;
        }
        self.end_move(&handle, moving).await?;
        Ok(settled)
    }

    pub async fn nack(
        &self,
        name: &str,
        tokens: &[String],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled, Problem> {
        bounded("delay", delay.unwrap_or_default())?;
        self.observe_held(name, tokens, false)?;
        self.nack_uncounted(name, tokens, delay, error).await
    }

    /// As [`Tenant::nack`], at the end of a pass: a group that halts does so at once and keeps the event for the next pass.
    pub async fn nack_halting(
        &self,
        name: &str,
        tokens: &[String],
        error: Option<String>,
    ) -> Result<Settled, Problem> {
        self.observe_held(name, tokens, false)?;
        let change = move |failing: Failing| Failing { halt: true, error: error.clone(), ..failing };
        self.release(name, tokens, Why::Failed, change).await
    }

    pub(crate) async fn nack_uncounted(
        &self,
        name: &str,
        tokens: &[String],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled, Problem> {
        let change = move |failing: Failing| Failing { delay, error: error.clone(), ..failing };
        self.release(name, tokens, Why::Failed, change).await
    }

    /// Straight to the dead letters.
    pub async fn reject(
        &self,
        name: &str,
        tokens: &[String],
        error: Option<String>,
    ) -> Result<Settled, Problem> {
        self.observe_held(name, tokens, false)?;
        let change = move |failing: Failing| Failing { error: error.clone(), ..failing };
        self.release(name, tokens, Why::Dead(DeadReason::Rejected), change).await
    }

    pub async fn extend(&self, name: &str, tokens: &[String], by: Duration) -> Result<Settled, Problem> {
        bounded("by", by)?;
        let handle = self.handle(name)?;
        let mut dispatcher = handle.dispatcher();
        let now = dispatcher.now(self.moment());
        let settled = each(tokens, |token| dispatcher.extend(token, by, now));
        drop(dispatcher);
        self.due_in(by);
        Ok(settled)
    }

    async fn release(
        &self,
        name: &str,
        tokens: &[String],
        why: Why,
        change: impl Fn(Failing) -> Failing,
    ) -> Result<Settled, Problem> {
        let handle = self.handle(name)?;
        let mut failing = Vec::new();
        let (settled, since) = {
            let mut dispatcher = handle.dispatcher();
            let now = dispatcher.now(self.moment());
            let settled = each(tokens, |token| match dispatcher.release(token, why, now) {
                Some(one) => {
                    failing.push(change(one));
                    true
                }
                None => false,
            });
            (settled, dispatcher.group.since)
        };
        self.fail(&handle, since, failing).await?;
        Ok(settled)
    }

    async fn fail(
        &self,
        handle: &Arc<GroupHandle>,
        since: Position,
        failing: Vec<Failing>,
    ) -> Result<(), Problem> {
        if failing.is_empty() {
            return Ok(());
        }
        let mut limbo = Limbo::new(self, handle, since, &failing);
        let command = Command::Fail { group: handle.name.clone(), since, failing };
        let answer = self.ask(command).await;
        limbo.answered = true;
        answer.map(|_| ())
    }

    /// Missed deadlines, retries that are due, acks to be recorded.
    pub(in crate::tenant) fn tick_groups(&self, moment: Moment) {
        // The registry is let go of first: what the writer answers may change it.
        let handles = self.registry().all();
        for handle in handles {
            let (held, late, moving, since, due, now) = {
                let mut dispatcher = handle.dispatcher();
                let now = dispatcher.now(moment);
                let held = dispatcher.held_too_long(now);
                let late = dispatcher.overdue(now);
                let dirty = dispatcher.is_dirty();
                let moving = if dirty { self.begin_move(&mut dispatcher, true) } else { None };
                (held, late, moving, dispatcher.group.since, dispatcher.next_due(), now)
            };
            for (event, attempt, held) in held {
                self.metrics().handled(&event.envelope.topic, &handle.name, false, held.as_secs_f64());
                self.trace_handled(&handle.name, (&event, attempt), false, (now, held));
            }
            self.end_move_blocking(&handle, moving);
            if !late.is_empty() {
                let mut limbo = Limbo::new(self, &handle, since, &late);
                let _ = self.ask_blocking(Command::Fail { group: handle.name.clone(), since, failing: late });
                limbo.answered = true;
            }
            match due {
                Some(due) if due <= now => handle.call_one(),
                Some(due) => self.due_in(due.since(now)),
                None => {}
            }
        }
    }

    /// Records every floor, also of groups that only passed over what does not concern them. At seal and at stop.
    pub(crate) fn record_floors(&self) {
        // The registry is let go of first: what the writer answers may change it.
        let handles = self.registry().all();
        for handle in handles {
            let moving = {
                let mut dispatcher = handle.dispatcher();
                let _ = self.look(&handle, &mut dispatcher);
                let moved = dispatcher.quiet_progress();
                moved.and_then(|moved| self.submit_move(&dispatcher, moved, false))
            };
            self.end_move_blocking(&handle, moving);
        }
    }
}

/// Who takes deliveries.
struct Puller<'a> {
    sight: &'a Sight,
    /// As soon as it is done with what it took.
    comes_again: bool,
}

/// A move on its way to the writer, and what it had to say.
struct Moving {
    pending: Pending,
    ranges: Vec<Span>,
    acked: u64,
}

/// Deliveries on their way to a worker; given back when the way ends early.
struct HandOver<'a> {
    handle: &'a Arc<GroupHandle>,
    deliveries: Vec<Delivery>,
}

impl HandOver<'_> {
    fn done(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        if !self.deliveries.is_empty() {
            self.handle.dispatcher().take_back(&self.deliveries);
            self.handle.call_one();
        }
    }
}

/// Deliveries whose failure is on its way to the writer. What the record has not met by the end goes back to the ready
/// ones: at once when the writer refused, a little later when whoever asked went away and the record may still come.
struct Limbo<'a> {
    tenant: &'a Tenant,
    handle: &'a GroupHandle,
    since: Position,
    deliveries: Vec<(Position, u64)>,
    answered: bool,
}

impl<'a> Limbo<'a> {
    fn new(tenant: &'a Tenant, handle: &'a GroupHandle, since: Position, failing: &[Failing]) -> Limbo<'a> {
        let deliveries = failing.iter().map(|one| (one.event.position, one.serial)).collect();
        Limbo { tenant, handle, since, deliveries, answered: false }
    }
}

impl Drop for Limbo<'_> {
    fn drop(&mut self) {
        let mut dispatcher = self.handle.dispatcher();
        let now = dispatcher.now(self.tenant.moment());
        let until = (!self.answered).then(|| now.plus(ABANDONED));
        if dispatcher.group.since == self.since {
            self.deliveries.iter().for_each(|delivery| dispatcher.forgive(*delivery, until));
        }
        let due = dispatcher.next_due();
        drop(dispatcher);
        self.handle.call_one();
        self.handle.freed.notify_waiters();
        if let Some(due) = due {
            self.tenant.due_in(due.since(now));
        }
    }
}

fn each(tokens: &[String], mut good: impl FnMut(Token) -> bool) -> Settled {
    let mut settled = Settled::default();
    for token in tokens {
        match Token::parse(token).is_some_and(&mut good) {
            true => settled.done += 1,
            false => settled.stale.push(token.clone()),
        }
    }
    settled
}
