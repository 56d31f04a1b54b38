//! A group's half in memory: what is ready, in flight or waiting for its next try, and how far the floor may move.
//!
//! Pure: events, acks and `now` go in; deliveries and moves come out. After a crash it is built again from the durable
//! half, and what was in flight is delivered again.
//!
//! **Invariant:** every matching position between floor and `scanned` that is not settled has a slot. The floor moves
//! over a contiguous prefix without slots only, so parallel workers cannot make it pass an event that is still open.

mod hand_out;
mod lag;
mod losses;
mod progress;
#[cfg(test)]
mod tests;
mod time;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use model::event::Event;
use model::group::Ordering;
use model::record::Span;
use model::{Position, Timestamp};

use super::matcher::{Match, Matcher};
use super::token::Token;
use crate::command::{Failing, Fate, Why};
use crate::state::Group;

/// How far ahead of the workers events are kept ready.
const READY_MAX: usize = 4_096;
/// Slots of all kinds, and their bytes, above which nothing more is read until something settles.
const SLOTS_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Ready,
    /// Behind an earlier event of its key, or its key is parked.
    Blocked,
    InFlight {
        serial: u64,
        deadline: Timestamp,
    },
    Delayed {
        until: Timestamp,
    },
    /// The failure of this delivery is being recorded.
    Limbo {
        serial: u64,
    },
}

impl Stand {
    fn is_busy(self) -> bool {
        matches!(self, Stand::InFlight { .. } | Stand::Limbo { .. })
    }
}

struct Slot {
    event: Arc<Event>,
    stand: Stand,
    handed_out_at: Timestamp,
    failures: u32,
    key: Option<String>,
}

/// One event handed to one worker.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub token: Token,
    pub attempt: u32,
    pub deadline: Timestamp,
    pub event: Arc<Event>,
}

/// How much is handed out at once: that many events, of about that many bytes in all. One is, however large.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub events: usize,
    pub bytes: usize,
}

impl Most {
    /// Of whatever size.
    pub fn events(events: usize) -> Most {
        Most { events, bytes: usize::MAX }
    }
}

#[derive(Default)]
pub struct Taken {
    pub deliveries: Vec<Delivery>,
    /// The next one was ready, and its bytes too many.
    pub is_cut: bool,
    /// Events that must become dead letters instead: expired, or crashed too often.
    pub dying: Vec<Failing>,
}

pub struct Dispatcher {
    pub group: Group,
    matcher: Matcher,
    /// Everything at or below it was looked at.
    pub scanned: Position,
    /// Up to here the ledger must be read, because offers were dropped or never made.
    pub scan_to: Position,
    slots: BTreeMap<Position, Slot>,
    ready: BTreeSet<(Reverse<u8>, Position)>,
    delayed: BTreeSet<(Timestamp, Position)>,
    deadlines: BTreeSet<(Timestamp, Position)>,
    keys: HashMap<String, BTreeSet<Position>>,
    /// Keys with an event in flight or in limbo: a redriven one may lie before it.
    busy: HashMap<String, u32>,
    in_limbo: usize,
    bytes: usize,
    /// Settled since the last flush, and how many of them by an ack.
    settled: Vec<Position>,
    /// Those of them that were redriven: the move must name each, because no floor says that it is done.
    settled_again: Vec<Position>,
    acked: u64,
    /// Floor, `delivered_to` and `alone` as they were last recorded.
    flushed: (Position, Position, Position),
    delivered_to: Position,
    /// The ledger says that something was handed out since it was opened. What went out before may go out again without raising
    /// `delivered_to`, and where nothing is written a crash would look like the clean stop before it.
    said: bool,
    /// A worker in process had taken all there was when it last looked.
    kept_up: bool,
    /// The suspect in flight with nothing beside it; 0: none is.
    alone: Position,
    /// Wall clock minus boot clock, in nanoseconds, at the last step the writer saw.
    pub offset: Option<i128>,
    /// Where the wall clock was set, and by how many milliseconds.
    pub steps: Vec<(Position, i64)>,
    counted: lag::Counted,
    epoch: u64,
    serial: u64,
    pub filter_errors: u64,
}

impl Dispatcher {
    /// `epoch` tells this process's tokens from those of an earlier one.
    pub fn new(group: Group, matcher: Matcher, epoch: u64) -> Dispatcher {
        Dispatcher {
            scanned: group.floor,
            scan_to: group.floor,
            flushed: (group.floor, group.delivered_to, group.alone),
            delivered_to: group.delivered_to,
            said: false,
            kept_up: false,
            alone: 0,
            offset: None,
            steps: Vec::new(),
            counted: lag::Counted::default(),
            group,
            matcher,
            slots: BTreeMap::new(),
            ready: BTreeSet::new(),
            delayed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            keys: HashMap::new(),
            busy: HashMap::new(),
            in_limbo: 0,
            bytes: 0,
            settled: Vec::new(),
            settled_again: Vec::new(),
            acked: 0,
            epoch,
            serial: 0,
            filter_errors: 0,
        }
    }

    /// Events that wait for their next try.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub fn in_flight(&self) -> usize {
        self.deadlines.len()
    }

    /// Where an event stands that the group wants, for people who ask.
    pub fn state_of(&self, event: &Event) -> &'static str {
        if !matches!(self.matcher.test(event), Match::Yes { .. }) {
            return "filtered";
        }
        match self.slots.get(&event.position).map(|slot| &slot.stand) {
            Some(Stand::InFlight { .. }) => "in_flight",
            Some(_) => "ready",
            // What was looked at, is wanted and has no slot is settled, whether or not that is recorded yet.
            None if event.position <= self.scanned || self.group.is_settled(event.position) => "acked",
            None => "ready",
        }
    }

    /// Why the group does not want an event, if it does not, and what its filter said if that could not be evaluated.
    pub fn why_not(&self, event: &Event) -> Option<(&'static str, Option<String>)> {
        match self.matcher.test(event) {
            Match::Yes { .. } => None,
            Match::Error(error) => Some(("filter_error", Some(error))),
            Match::No if self.matcher.concerns(event) => Some(("filter", None)),
            Match::No => Some(("pattern", None)),
        }
    }

    pub fn oldest_open(&self) -> Option<&Event> {
        self.slots.values().next().map(|slot| slot.event.as_ref())
    }

    pub fn hears_runs(&self) -> bool {
        self.matcher.hears_runs()
    }

    /// Whether it pays to look at further events now.
    pub fn wants_more(&self) -> bool {
        self.ready.len() < READY_MAX && self.slots.len() < SLOTS_MAX && self.bytes < BYTES_MAX
    }

    /// Looks at the next event in order of position.
    pub fn look_at(&mut self, event: &Arc<Event>) {
        if event.position <= self.scanned {
            return;
        }
        self.scanned = event.position;
        if self.group.is_settled(event.position) {
            return;
        }
        match self.matcher.test(event) {
            Match::No => {}
            Match::Error(error) => {
                self.filter_errors += 1;
                tracing::debug!(group = %self.group.name, position = event.position, %error, "filter error");
            }
            Match::Yes { key } => {
                self.uncount(event);
                self.insert(event.clone(), key);
            }
        }
    }

    /// Puts a redriven dead letter back among the open events.
    pub fn bring_back(&mut self, event: Arc<Event>) {
        self.group.redriven.insert(event.position);
        let parked = self.group.parked.remove(&event.position);
        self.group.pardon(event.position);
        let key = match self.matcher.test(&event) {
            Match::Yes { key } => key,
            _ => None,
        };
        self.insert(event, key.clone());
        // The last of several dead letters that parked the key sets it free. An erased one has no key of its own any more.
        key.into_iter().chain(parked).for_each(|key| self.go_on(&key));
    }

    /// Everything up to here was looked at, though nothing of it may have matched.
    pub fn looked_through(&mut self, position: Position) {
        self.scanned = self.scanned.max(position);
    }

    /// Whether nothing has to be read from the ledger before an offer at `first`.
    pub fn is_live_from(&self, first: Position) -> bool {
        self.scanned >= self.scan_to && (self.wants_more() || first == 0)
    }

    /// Everything up to here was offered and looked at.
    pub fn live_through(&mut self, position: Position) {
        self.looked_through(position);
        self.scan_to = self.scan_to.max(self.scanned);
    }

    /// The ledger has to be read up to here.
    pub fn behind(&mut self, position: Position) {
        self.scan_to = self.scan_to.max(position);
    }

    fn insert(&mut self, event: Arc<Event>, key: Option<String>) {
        let position = event.position;
        // A redriven event is found by the scan too.
        if self.slots.contains_key(&position) {
            return;
        }
        let failure = self.group.failures.get(&position);
        let failures = failure.map_or(0, |failure| failure.failures);
        let until = failure.map(|failure| failure.until);
        self.bytes += size(&event);
        if let Some(key) = &key {
            let positions = self.keys.entry(key.clone()).or_default();
            positions.insert(position);
            // A redriven event may come before one that is ready already.
            let next = positions.range(position + 1..).next().copied();
            if let Some(next) = next.filter(|next| self.slots[next].stand == Stand::Ready) {
                self.set(next, Stand::Blocked);
            }
        }
        self.slots.insert(
            position,
            Slot { event, stand: Stand::Blocked, handed_out_at: Timestamp::EPOCH, failures, key },
        );
        match until {
            Some(until) => self.set(position, Stand::Delayed { until }),
            None => self.free(position),
        }
    }

    /// Ready, unless an earlier event of its key is open, one of its key is in flight, or the key is parked.
    fn free(&mut self, position: Position) {
        self.set(position, Stand::Blocked);
        let blocked = self.slots.get(&position).and_then(|slot| slot.key.as_ref()).is_some_and(|key| {
            let first = self.keys.get(key).and_then(|positions| positions.first());
            first != Some(&position)
                || self.busy.contains_key(key)
                || self.group.parked.values().any(|parked| parked == key)
        });
        if !blocked {
            self.set(position, Stand::Ready);
        }
    }

    fn set(&mut self, position: Position, stand: Stand) {
        let Some(slot) = self.slots.get_mut(&position) else { return };
        let before = std::mem::replace(&mut slot.stand, stand);
        if self.alone == position && !matches!(stand, Stand::InFlight { .. }) {
            self.alone = 0;
        }
        let freed = match (slot.key.as_ref(), before.is_busy(), stand.is_busy()) {
            (Some(key), false, true) => {
                *self.busy.entry(key.clone()).or_default() += 1;
                None
            }
            (Some(key), true, false) => Some(key.clone()),
            _ => None,
        };
        let rank = match self.group.definition.ordering {
            Ordering::None => slot.event.envelope.priority,
            Ordering::Key | Ordering::Strict => 0,
        };
        match before {
            Stand::Ready => _ = self.ready.remove(&(Reverse(rank), position)),
            Stand::Delayed { until } => _ = self.delayed.remove(&(until, position)),
            Stand::InFlight { deadline, .. } => _ = self.deadlines.remove(&(deadline, position)),
            Stand::Limbo { .. } => self.in_limbo -= 1,
            Stand::Blocked => {}
        }
        match stand {
            Stand::Ready => _ = self.ready.insert((Reverse(rank), position)),
            Stand::Delayed { until } => _ = self.delayed.insert((until, position)),
            Stand::InFlight { deadline, .. } => _ = self.deadlines.insert((deadline, position)),
            Stand::Limbo { .. } => self.in_limbo += 1,
            Stand::Blocked => {}
        }
        if let Some(key) = freed {
            self.rest(&key);
        }
    }

    /// An event of this key is in nobody's hands any more: the first of the key may go.
    fn rest(&mut self, key: &str) {
        if let Some(count) = self.busy.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(key);
            }
        }
        self.go_on(key);
    }

    /// The first of the key goes, if nothing holds it back.
    fn go_on(&mut self, key: &str) {
        let first = self.keys.get(key).and_then(|positions| positions.first().copied());
        let waits = |first: &Position| self.slots.get(first).is_some_and(|slot| slot.stand == Stand::Blocked);
        if let Some(first) = first.filter(waits) {
            self.free(first);
        }
    }

    /// The deadline of a delivery that is still the current one of its event.
    pub fn deadline_of(&self, token: Token) -> Option<Timestamp> {
        let position = self.flight(token, Timestamp::EPOCH)?;
        match self.slots.get(&position)?.stand {
            Stand::InFlight { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// The position a good token stands for; `None` when it is stale.
    fn flight(&self, token: Token, now: Timestamp) -> Option<Position> {
        let Token { epoch, position, serial } = token;
        if epoch != self.epoch {
            return None;
        }
        match self.slots.get(&position)?.stand {
            Stand::InFlight { serial: current, deadline } if current == serial && deadline > now => {
                Some(position)
            }
            _ => None,
        }
    }

    /// What a good token is held for, which attempt it is, and for how long it is held already.
    pub fn held(&self, token: Token, now: Timestamp) -> Option<(&Event, u32, Duration)> {
        let slot = self.slots.get(&self.flight(token, now)?)?;
        Some((slot.event.as_ref(), slot.failures + 1, now.since(slot.handed_out_at)))
    }

    pub fn ack(&mut self, token: Token, now: Timestamp) -> bool {
        let Some(position) = self.flight(token, now) else { return false };
        self.settle(position);
        self.acked += 1;
        true
    }

    pub fn extend(&mut self, token: Token, by: Duration, now: Timestamp) -> bool {
        let Some(position) = self.flight(token, now) else { return false };
        let Stand::InFlight { serial, .. } = self.slots[&position].stand else { return false };
        self.set(position, Stand::InFlight { serial, deadline: now.plus(by) });
        true
    }

    /// Ends a delivery that went wrong; its fate is decided by the writer and told to [`Dispatcher::meet`].
    pub fn release(&mut self, token: Token, why: Why, now: Timestamp) -> Option<Failing> {
        let position = self.flight(token, now)?;
        self.doom(position, why)
    }

    fn doom(&mut self, position: Position, why: Why) -> Option<Failing> {
        let serial = match self.slots.get(&position)?.stand {
            Stand::InFlight { serial, .. } => serial,
            _ => {
                self.serial += 1;
                self.serial
            }
        };
        self.set(position, Stand::Limbo { serial });
        let slot = self.slots.get(&position)?;
        let (event, key) = (slot.event.clone(), slot.key.clone());
        Some(Failing { event, why, delay: None, error: None, halt: false, key, serial })
    }

    fn late(&self, now: Timestamp) -> impl Iterator<Item = Position> {
        self.deadlines.iter().take_while(move |(at, _)| *at <= now).map(|(_, position)| *position)
    }

    /// Those that [`Dispatcher::overdue`] ends now, which attempt each was, and for how long it was held.
    pub fn held_too_long(&self, now: Timestamp) -> Vec<(Arc<Event>, u32, Duration)> {
        let slots = self.late(now).filter_map(|position| self.slots.get(&position));
        slots.map(|slot| (slot.event.clone(), slot.failures + 1, now.since(slot.handed_out_at))).collect()
    }

    /// Deliveries whose deadline has passed: each is a failed attempt.
    pub fn overdue(&mut self, now: Timestamp) -> Vec<Failing> {
        let late: Vec<Position> = self.late(now).collect();
        let missed = |failing: Failing| Failing { error: Some("ack deadline missed".to_owned()), ..failing };
        late.into_iter().filter_map(|position| self.doom(position, Why::Failed)).map(missed).collect()
    }

    /// What became of a failing delivery. Told by the record that says so, because whoever asked may be gone.
    pub fn meet(&mut self, position: Position, fate: Fate) {
        let Some(slot) = self.slots.get_mut(&position) else { return };
        match fate {
            Fate::Dead => self.remove(position),
            Fate::Retry { at, failures } => {
                slot.failures = failures;
                // It may have been given back and have gone out again meanwhile; then that delivery goes on.
                if !matches!(slot.stand, Stand::InFlight { .. }) {
                    self.set(position, Stand::Delayed { until: at });
                }
                if self.flushed.2 == position {
                    self.flushed.2 = 0;
                }
            }
            Fate::Halted | Fate::Gone => {}
        }
    }

    /// The failure of this delivery was not recorded: the event simply runs into its next try, at once or at `until`.
    /// Nothing happens if the event has met its fate: it may be out, or failing, a second time by now.
    pub fn forgive(&mut self, (position, serial): (Position, u64), until: Option<Timestamp>) {
        if self.slots.get(&position).is_none_or(|slot| slot.stand != Stand::Limbo { serial }) {
            return;
        }
        match until {
            Some(until) => self.set(position, Stand::Delayed { until }),
            None => self.free(position),
        }
    }

    /// What a move that was refused had to say is said by the next one.
    pub fn unrecord(&mut self, ranges: &[Span], acked: u64) {
        self.settled_again.extend(ranges.iter().flat_map(|(first, last)| *first..=*last));
        self.acked += acked;
        // Nor was anything else of it recorded.
        self.flushed = (0, 0, Position::MAX);
    }

    /// Goes on where `before` stood on the same cursor: what it settled stays settled, recorded or not.
    pub fn inherit(&mut self, before: Dispatcher) {
        // Whoever still holds one of its deliveries must not take one of ours for it.
        (self.serial, self.offset, self.steps) = (before.serial, before.offset, before.steps);
        if before.group.since != self.group.since {
            return;
        }
        self.group.raise_floor(before.group.floor);
        before.group.settled.spans().into_iter().for_each(|span| self.group.settled.insert(span));
        self.group.settled.drop_through(self.group.floor);
        self.looked_through(self.group.floor);
        (self.settled, self.settled_again, self.acked) = (before.settled, before.settled_again, before.acked);
        self.delivered_to = self.delivered_to.max(before.delivered_to);
    }

    /// The dead letter at `position` parks its key.
    pub fn park(&mut self, position: Position, key: String) {
        self.group.parked.insert(position, key.clone());
        for waiting in self.keys.get(&key).cloned().unwrap_or_default() {
            if self.slots.get(&waiting).is_some_and(|slot| slot.stand == Stand::Ready) {
                self.set(waiting, Stand::Blocked);
            }
        }
    }

    pub fn unhalt(&mut self) {
        let position = std::mem::take(&mut self.group.halted_on);
        self.group.failures.remove(&position);
        if let Some(slot) = self.slots.get_mut(&position) {
            slot.failures = 0;
        }
    }

    fn settle(&mut self, position: Position) {
        match self.group.redriven.contains(&position) {
            true => self.settled_again.push(position),
            false => self.settled.push(position),
        }
        self.remove(position);
    }

    fn remove(&mut self, position: Position) {
        let Some(key) = self.slots.get(&position).map(|slot| slot.key.clone()) else { return };
        if let Some(positions) = key.as_ref().and_then(|key| self.keys.get_mut(key)) {
            positions.remove(&position);
        }
        self.set(position, Stand::Blocked);
        self.bytes -= self.slots.remove(&position).map_or(0, |slot| size(&slot.event));
        self.group.redriven.remove(&position);
        if position > self.group.floor {
            self.group.settled.insert((position, position));
        }
        if let Some(key) = key {
            if self.keys.get(&key).is_some_and(BTreeSet::is_empty) {
                self.keys.remove(&key);
            }
            self.go_on(&key);
        }
    }
}

fn size(event: &Event) -> usize {
    512 + event.content.payload().map_or(0, str::len)
}
