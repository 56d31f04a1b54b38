//! How far a group is behind, and which events are too old to count.
//!
//! ```text
//!   floor ───────── scanned ─────────── counted ──────────── scan_to
//!         │ open: kept     │ matching: only counted  │ not looked at: any number may match
//! ```
//! A group keeps as many events as its workers can use soon; those after it are only counted. `on_lag` judges by what
//! is known to match, so nobody is refused for events that concern the group no more than they concern the publisher.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::Event;
use model::{Position, Timestamp};

use super::{Dispatcher, Match};

/// Matching events after `scanned`.
#[derive(Default)]
pub(super) struct Counted {
    through: Position,
    events: u64,
    /// When those of them expire that do. One that has expired is no longer among them.
    expiring: BTreeMap<Position, Timestamp>,
}

impl Dispatcher {
    /// When the event is older than its `ttl`: that long after it happened, however the wall clock was set meanwhile.
    pub(super) fn expires_at(&self, event: &Event) -> Option<Timestamp> {
        let later = self.steps.iter().filter(|(at, _)| *at > event.position);
        let by_ms: i64 = later.map(|(_, by_ms)| by_ms).sum();
        event.expires_at().map(|at| shifted(at, by_ms))
    }

    /// Whoever gives a dead letter back wants it delivered, also when its time is over.
    pub(super) fn is_expired(&self, event: &Event, now: Timestamp) -> bool {
        self.expires_at(event).is_some_and(|at| at <= now) && !self.group.redriven.contains(&event.position)
    }

    /// Events known to match and not settled.
    fn known(&self) -> u64 {
        self.slots.len() as u64 + self.counted.events
    }

    /// At most how many events the group is behind, and whether it is just as many.
    pub fn lag(&self) -> (u64, bool) {
        let unknown = self.scan_to.saturating_sub(self.scanned.max(self.counted.through));
        (self.known() + unknown, unknown == 0)
    }

    /// As many as are known to match and not expired; exact only once `limit` is reached.
    pub fn behind_by(&mut self, limit: u64, now: Timestamp) -> u64 {
        if self.known() < limit {
            return self.known();
        }
        let before = self.counted.expiring.len();
        self.counted.expiring.retain(|_, at| *at > now);
        self.counted.events -= (before - self.counted.expiring.len()) as u64;
        let expired = self.slots.values().filter(|slot| self.is_expired(&slot.event, now)).count();
        self.known() - expired as u64
    }

    /// What has to be counted before it is known whether the group is `limit` behind.
    pub fn uncounted(&self, limit: u64) -> Option<(Position, Position)> {
        let from = self.scanned.max(self.counted.through) + 1;
        (self.known() < limit && from <= self.scan_to).then_some((from, self.scan_to))
    }

    /// Counts the next events in order of position, everything up to `through`.
    pub fn count(&mut self, events: &[Arc<Event>], through: Position, now: Timestamp) {
        let from = self.scanned.max(self.counted.through);
        for event in events.iter().filter(|event| event.position > from) {
            let matches = matches!(self.matcher.test(event), Match::Yes { .. });
            if !matches || self.group.is_settled(event.position) || self.is_expired(event, now) {
                continue;
            }
            self.counted.events += 1;
            if let Some(at) = self.expires_at(event) {
                self.counted.expiring.insert(event.position, at);
            }
        }
        self.counted.through = self.counted.through.max(through);
    }

    /// A matching event that gets a slot is no longer one that is only counted.
    pub(super) fn uncount(&mut self, event: &Event) {
        let counted = &mut self.counted;
        let expires = event.envelope.ttl_ms.is_some();
        if event.position <= counted.through
            && (!expires || counted.expiring.remove(&event.position).is_some())
        {
            counted.events = counted.events.saturating_sub(1);
        }
    }

    pub(super) fn count_anew(&mut self) {
        self.counted = Counted::default();
    }

    pub(super) fn shift_counted(&mut self, by_ms: i64) {
        self.counted.expiring.values_mut().for_each(|at| *at = shifted(*at, by_ms));
    }
}

pub(super) fn shifted(at: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_nanos(at.nanos() + i128::from(by_ms) * 1_000_000)
}
