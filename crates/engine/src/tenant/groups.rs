//! What clients do with groups: define, pull, answer for deliveries, look, seek, pause, redrive.

use std::sync::Arc;
use std::time::Duration;

use lang::filter::Filter;
use model::group::{Definition, Start, check_name};
use model::record::{DeadReason, Moved};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::publish::unexpected;
use super::{ACK_FLUSH, Tenant};
use crate::command::{Answer, Command, Failing, Why};
use crate::deliver::dispatcher::{Delivery, Dispatcher};
use crate::deliver::{GroupHandle, matcher};
use crate::state::Group;

/// How many of the tokens were good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub done: usize,
    pub stale: Vec<String>,
}

/// A group as users see it.
#[derive(Clone, Debug)]
pub struct GroupView {
    pub group: Group,
    pub lag: u64,
    pub in_flight: usize,
    pub oldest_unacked: Option<Duration>,
    pub filter_errors: u64,
    /// Events that wait for their next try.
    pub delayed: usize,
}

#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    pub dead_letters: Vec<Value>,
    /// The same as JSON text, payloads digit for digit.
    pub texts: Vec<String>,
    pub next: Option<String>,
}

/// Which dead letters to try again.
pub enum Redrive {
    Positions(Vec<Position>),
    Filter(Filter),
    All,
}

/// Most events handed out by one pull, and the longest it waits.
pub const PULL_MAX: usize = 1_000;
pub const PULL_WAIT_MAX: Duration = Duration::from_secs(60);
/// Dead letters looked at in one go.
const DEAD_PAGE: usize = 1_000;

impl GroupView {
    pub fn to_json(&self) -> Value {
        let group = &self.group;
        let mut view = group.definition.to_json();
        view.insert("name".into(), json!(group.name));
        view.insert("floor".into(), json!(group.floor));
        view.insert("lag".into(), json!(self.lag));
        view.insert("inflight".into(), json!(self.in_flight));
        view.insert("dead_letters".into(), json!(group.dead_letters));
        view.insert("paused".into(), json!(group.paused));
        view.insert("events_processed_total".into(), json!(group.processed));
        view.insert("filter_errors".into(), json!(self.filter_errors));
        view.insert("delayed".into(), json!(self.delayed));
        if !group.parked.is_empty() {
            let keys: std::collections::BTreeSet<&String> = group.parked.values().collect();
            view.insert("parked_keys".into(), json!(keys));
        }
        let age = self.oldest_unacked.map_or(0.0, |age| age.as_secs_f64());
        view.insert("oldest_unacked_s".into(), json!(age));
        if group.halted_on != 0 {
            view.insert("halted_on".into(), json!(group.halted_on));
        }
        if let Some(at) = group.last_moved_at {
            view.insert("last_drained_at".into(), json!(at));
        }
        Value::Object(view)
    }
}

impl Tenant {
    pub(crate) fn handle(&self, name: &str) -> Result<Arc<GroupHandle>, Problem> {
        self.registry().get(name).ok_or_else(|| {
            Problem::new(Code::GroupNotFound, format!("there is no group \"{name}\""))
                .hint("list them with `everwhen groups list`, or create it with `everwhen groups put`")
        })
    }

    /// Creates the group or changes its definition; says whether it is new.
    pub async fn put_group(&self, name: &str, definition: &Value) -> Result<(bool, GroupView), Problem> {
        check_name(name)?;
        let definition = Definition::parse(definition)?;
        matcher::check(&definition)?;
        let known = self.registry().get(name).is_some();
        let floor = if known { 0 } else { self.place(&definition.start)? };
        match self.ask(Command::PutGroup { name: name.to_owned(), definition, floor }).await? {
            Answer::Group { created } => Ok((created, self.group(name)?)),
            _ => Err(unexpected()),
        }
    }

    pub async fn delete_group(&self, name: &str) -> Result<(), Problem> {
        self.ask(Command::DeleteGroup { name: name.to_owned() }).await.map(|_| ())
    }

    pub fn group(&self, name: &str) -> Result<GroupView, Problem> {
        let handle = self.handle(name)?;
        let mut dispatcher = handle.dispatcher();
        self.look(&handle, &mut dispatcher)?;
        let mut view = self.view(&dispatcher);
        drop(dispatcher);
        let recorded = self.with_writer(|writer| Ok(writer.state.groups.get(name).cloned()))?;
        if let Some(recorded) = recorded {
            (view.group.dead_letters, view.group.processed) = (recorded.dead_letters, recorded.processed);
            view.group.last_moved_at = recorded.last_moved_at;
        }
        Ok(view)
    }

    pub fn groups(&self) -> Vec<GroupView> {
        let handles = self.registry().all();
        handles.iter().filter_map(|handle| self.group(&handle.name).ok()).collect()
    }

    fn view(&self, dispatcher: &Dispatcher) -> GroupView {
        let now = self.0.around.clock.now();
        let mut group = dispatcher.group.clone();
        group.floor = dispatcher.floor();
        GroupView {
            group,
            lag: self.lag_in(dispatcher),
            in_flight: dispatcher.in_flight(),
            oldest_unacked: dispatcher.oldest_open().map(|event| now.since(event.recorded_at)),
            filter_errors: dispatcher.filter_errors,
            delayed: dispatcher.delayed(),
        }
    }

    /// Open events that were looked at, and for those that were not yet, how many there can be at most.
    fn lag_in(&self, dispatcher: &Dispatcher) -> u64 {
        dispatcher.open() as u64 + dispatcher.scan_to.saturating_sub(dispatcher.scanned)
    }

    pub(crate) fn lag_of(&self, handle: &GroupHandle) -> u64 {
        let mut dispatcher = handle.dispatcher();
        match self.look(handle, &mut dispatcher) {
            Ok(_) => self.lag_in(&dispatcher),
            Err(_) => 0,
        }
    }

    /// Looks at what is new; true when there is more than one go takes.
    fn look(&self, handle: &GroupHandle, dispatcher: &mut Dispatcher) -> Result<bool, Problem> {
        handle.intake(dispatcher, self.head(), |from, to| {
            let from = from.max(self.first());
            self.events_from(from, to, PULL_MAX)
        })
    }

    /// Takes up to `max` events, waiting up to `wait` for the first. Dropping the future hands nothing out.
    pub async fn pull(&self, name: &str, max: usize, wait: Duration) -> Result<Vec<Delivery>, Problem> {
        let started = self.boot();
        loop {
            let handle = self.handle(name)?;
            let mut woken = std::pin::pin!(handle.wake.notified());
            woken.as_mut().enable();
            let (deliveries, more) = self.take(&handle, max.clamp(1, PULL_MAX)).await?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            let left = wait.min(PULL_WAIT_MAX).saturating_sub(self.boot().saturating_sub(started));
            if left.is_zero() || self.is_closing() {
                return Ok(deliveries);
            }
            if tokio::time::timeout(left, woken).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    async fn take(&self, handle: &Arc<GroupHandle>, max: usize) -> Result<(Vec<Delivery>, bool), Problem> {
        let (taken, moved, since, more) = {
            let mut dispatcher = handle.dispatcher();
            let more = self.look(handle, &mut dispatcher)?;
            let taken = dispatcher.take(max, self.0.around.clock.now());
            let moved = if taken.deliveries.is_empty() { None } else { dispatcher.progress() };
            (taken, moved, dispatcher.group.since, more)
        };
        let guard = HandOver { handle, deliveries: taken.deliveries };
        // Asked before anything is waited for: a caller that goes away takes no ack with it.
        let (recorded, failed) = tokio::join!(
            self.record_move(handle, moved, since, false),
            self.fail(handle, since, taken.dying)
        );
        recorded.and(failed)?;
        let mut deliveries = guard.done();
        // While the move was written, a record of another's may have settled or moved some of them.
        let dispatcher = handle.dispatcher();
        deliveries.retain(|delivery| dispatcher.is_out(&delivery.token));
        drop(dispatcher);
        if deliveries.len() == max {
            // There may be more for the next in line.
            handle.wake.notify_one();
        }
        if let Some(first) = deliveries.first() {
            self.due_in(first.deadline.since(self.0.around.clock.now()));
        }
        Ok((deliveries, more))
    }

    /// Returns deliveries that nobody will work on; no attempt is counted.
    pub(crate) fn give_back(&self, name: &str, deliveries: &[Delivery]) -> Result<(), Problem> {
        self.handle(name)?.dispatcher().take_back(deliveries);
        Ok(())
    }

    /// Settles deliveries. Durable within 100 ms, or when this returns if `sync`.
    pub async fn ack(&self, name: &str, tokens: &[String], sync: bool) -> Result<Settled, Problem> {
        self.observe_held(name, tokens, true)?;
        self.ack_uncounted(name, tokens, sync).await
    }

    /// Counts how long deliveries were held; handlers in process are counted where they run.
    fn observe_held(&self, name: &str, tokens: &[String], ok: bool) -> Result<(), Problem> {
        let handle = self.handle(name)?;
        let now = self.0.around.clock.now();
        let dispatcher = handle.dispatcher();
        for (event, held) in tokens.iter().filter_map(|token| dispatcher.held(token, now)) {
            self.metrics().handled(&event.envelope.topic, name, ok, held.as_secs_f64());
        }
        Ok(())
    }

    pub(crate) async fn ack_uncounted(
        &self,
        name: &str,
        tokens: &[String],
        sync: bool,
    ) -> Result<Settled, Problem> {
        let handle = self.handle(name)?;
        let now = self.0.around.clock.now();
        let (settled, moved, since) = {
            let mut dispatcher = handle.dispatcher();
            let settled = each(tokens, |token| dispatcher.ack(token, now));
            let moved = if sync { dispatcher.progress() } else { None };
            (settled, moved, dispatcher.group.since)
        };
        if settled.done > 0 {
            handle.freed.notify_waiters();
            handle.wake.notify_one();
            self.due_in(ACK_FLUSH);
        }
        if sync && moved.is_none() {
            self.ask(Command::Note { records: Vec::new() }).await?;
        }
        self.record_move(&handle, moved, since, true).await?;
        Ok(settled)
    }

    async fn record_move(
        &self,
        handle: &GroupHandle,
        moved: Option<Moved>,
        since: Position,
        sync: bool,
    ) -> Result<(), Problem> {
        let Some(moved) = moved else { return Ok(()) };
        let (ranges, acked) = (moved.ranges.clone(), moved.acked);
        let answer = self.ask(Command::Move { moved, since, sync }).await;
        answer.map(|_| ()).inspect_err(|_| handle.dispatcher().unrecord(&ranges, acked))
    }

    pub async fn nack(
        &self,
        name: &str,
        tokens: &[String],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled, Problem> {
        self.observe_held(name, tokens, false)?;
        self.nack_uncounted(name, tokens, delay, error).await
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
        let handle = self.handle(name)?;
        let now = self.0.around.clock.now();
        let settled = each(tokens, |token| handle.dispatcher().extend(token, by, now));
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
        let now = self.0.around.clock.now();
        let mut failing = Vec::new();
        let (settled, since) = {
            let mut dispatcher = handle.dispatcher();
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
        let limbo = Limbo { tenant: self, handle, since, positions: positions_of(&failing) };
        let command = Command::Fail { group: handle.name.clone(), since, failing };
        let answer = self.ask(command).await;
        drop(limbo);
        answer.map(|_| ())
    }

    /// Missed deadlines, retries that are due, acks to be recorded.
    pub(super) fn tick_groups(&self, now: Timestamp) {
        // The registry is let go of first: what the writer answers may change it.
        let handles = self.registry().all();
        for handle in handles {
            let (late, moved, since, due) = {
                let mut dispatcher = handle.dispatcher();
                let late = dispatcher.overdue(now);
                let moved = if dispatcher.is_dirty() { dispatcher.progress() } else { None };
                (late, moved, dispatcher.group.since, dispatcher.next_due())
            };
            if let Some(moved) = moved {
                let (ranges, acked) = (moved.ranges.clone(), moved.acked);
                if self.ask_blocking(Command::Move { moved, since, sync: true }).is_err() {
                    handle.dispatcher().unrecord(&ranges, acked);
                }
            }
            if !late.is_empty() {
                let limbo = Limbo { tenant: self, handle: &handle, since, positions: positions_of(&late) };
                let _ = self.ask_blocking(Command::Fail { group: handle.name.clone(), since, failing: late });
                drop(limbo);
            }
            match due {
                Some(due) if due <= now => handle.wake.notify_one(),
                Some(due) => self.due_in(due.since(now)),
                None => {}
            }
        }
    }

    /// The floor of a group that begins at `start`.
    fn place(&self, start: &Start) -> Result<Position, Problem> {
        Ok(match start {
            Start::Now => self.head(),
            Start::Beginning => self.first().saturating_sub(1),
            Start::Position(position) => (*position).max(self.first()).saturating_sub(1).min(self.head()),
            Start::Time(time) => self.position_before(*time)?,
        })
    }

    pub async fn seek(&self, name: &str, to: Start) -> Result<GroupView, Problem> {
        self.handle(name)?;
        let floor = self.place(&to)?.min(self.head());
        self.ask(Command::Seek { name: name.to_owned(), floor }).await?;
        self.group(name)
    }

    pub async fn pause(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Pause { name: name.to_owned(), paused: true }).await?;
        self.group(name)
    }

    /// Ends a pause and a halt.
    pub async fn resume(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Pause { name: name.to_owned(), paused: false }).await?;
        self.drain_pass(name).await
    }

    /// A halted group tries the event it halted on again.
    pub async fn drain_pass(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Unhalt { name: name.to_owned() }).await?;
        self.group(name)
    }

    pub fn dead_letters(
        &self,
        name: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<DeadLetterPage, Problem> {
        self.handle(name)?;
        let wrong = || Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out");
        let after: Position = cursor.map_or(Ok(0), |text| text.parse().map_err(|_| wrong()))?;
        if after > self.head() {
            return Err(wrong());
        }
        let mut rows = self.with_writer(|writer| {
            writer
                .state
                .dead_letters(name, after, limit + 1)
                .map_err(|fault| crate::writer::Fatal::from(fault).0)
        })?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.position.to_string());
        let shown = rows.into_iter().map(|row| {
            let mut letter = json!({
                "position": row.position, "attempts": row.attempts, "reason": row.reason, "at": row.at,
            });
            if let Some(error) = row.error {
                letter["error"] = error.into();
            }
            let rest = letter.to_string();
            let text = format!("{{\"event\":{},{}", row.event, &rest[1..]);
            letter["event"] = serde_json::from_str(&row.event).unwrap_or_default();
            (letter, text)
        });
        let (dead_letters, texts) = shown.unzip();
        Ok(DeadLetterPage { dead_letters, texts, next })
    }

    /// Tries dead letters again; says how many.
    pub async fn redrive(&self, name: &str, which: Redrive) -> Result<u64, Problem> {
        self.handle(name)?;
        let positions = match which {
            // What no event can stand at has no dead letter.
            Redrive::Positions(positions) => positions.into_iter().filter(|at| *at <= self.head()).collect(),
            Redrive::All => self.dead_positions(name, |_| true)?,
            Redrive::Filter(filter) => {
                self.dead_positions(name, |event| filter.test(event).unwrap_or(false))?
            }
        };
        let mut redriven = 0;
        for chunk in positions.chunks(DEAD_PAGE) {
            let command = Command::Redrive { group: name.to_owned(), positions: chunk.to_vec() };
            match self.ask(command).await? {
                Answer::Redriven(done) => redriven += done.len() as u64,
                _ => return Err(unexpected()),
            }
        }
        Ok(redriven)
    }

    fn dead_positions(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Position>, Problem> {
        let mut positions = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.dead_letters(name, DEAD_PAGE, cursor.as_deref())?;
            let chosen = page.dead_letters.iter().filter(|letter| wanted(&letter["event"]));
            positions.extend(chosen.filter_map(|letter| letter["position"].as_u64()));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(positions),
            }
        }
    }

    /// Records every floor, also of groups that only passed over what does not concern them. At seal and at stop.
    pub(crate) fn record_floors(&self) {
        // The registry is let go of first: what the writer answers may change it.
        let handles = self.registry().all();
        for handle in handles {
            let (moved, since) = {
                let mut dispatcher = handle.dispatcher();
                let _ = self.look(&handle, &mut dispatcher);
                (dispatcher.quiet_progress(), dispatcher.group.since)
            };
            if let Some(moved) = moved {
                let _ = self.ask_blocking(Command::Move { moved, since, sync: false });
            }
        }
    }
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
            self.handle.wake.notify_one();
        }
    }
}

/// Deliveries whose failure is on its way to the writer. What the record has not met by the end goes back to the ready
/// ones, also when whoever asked went away.
struct Limbo<'a> {
    tenant: &'a Tenant,
    handle: &'a GroupHandle,
    since: Position,
    positions: Vec<Position>,
}

impl Drop for Limbo<'_> {
    fn drop(&mut self) {
        let mut dispatcher = self.handle.dispatcher();
        if dispatcher.group.since == self.since {
            self.positions.iter().for_each(|position| dispatcher.forgive(*position));
        }
        let due = dispatcher.next_due();
        drop(dispatcher);
        self.handle.wake.notify_one();
        self.handle.freed.notify_waiters();
        if let Some(due) = due {
            self.tenant.due_in(due.since(self.tenant.0.around.clock.now()));
        }
    }
}

fn positions_of(failing: &[Failing]) -> Vec<Position> {
    failing.iter().map(|one| one.event.position).collect()
}

fn each(tokens: &[String], mut good: impl FnMut(&str) -> bool) -> Settled {
    let mut settled = Settled::default();
    for token in tokens {
        match good(token) {
            true => settled.done += 1,
            false => settled.stale.push(token.clone()),
        }
    }
    settled
}
