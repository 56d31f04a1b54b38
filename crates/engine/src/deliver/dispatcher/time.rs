//! A group's time: retries and deadlines that come due, and a wall clock that somebody sets.

use std::collections::BTreeSet;

use model::{Position, Timestamp};

use super::lag::shifted;
use super::{Dispatcher, Stand};
use crate::writer::{Moment, STEP_MIN_NANOS};

impl Dispatcher {
    /// The time that this group's deadlines and retries are written in. When the wall clock was stepped and the record
    /// that shifts them is still to come, that is the time as it was, gone on.
    pub fn now(&self, moment: Moment) -> Timestamp {
        match self.offset.filter(|_| self.is_stepped(moment)) {
            Some(offset) => Timestamp::from_nanos(moment.boot.as_nanos() as i128 + offset),
            None => moment.now,
        }
    }

    /// Whether the writer has yet to see that the wall clock was stepped.
    pub fn is_stepped(&self, moment: Moment) -> bool {
        self.offset.is_some_and(|offset| (moment.offset() - offset).abs() >= STEP_MIN_NANOS)
    }

    pub(super) fn wake_delayed(&mut self, now: Timestamp) {
        while let Some((until, position)) = self.delayed.first().copied()
            && until <= now
        {
            self.free(position);
        }
    }

    /// When this group next has something to do by itself: a deadline or a retry.
    pub fn next_due(&self) -> Option<Timestamp> {
        let first = |set: &BTreeSet<(Timestamp, Position)>| set.first().map(|(at, _)| *at);
        [first(&self.deadlines), first(&self.delayed)].into_iter().flatten().min()
    }

    /// Elapsed waits keep their length when the wall clock is stepped.
    pub fn shift(&mut self, position: Position, by_ms: i64) {
        let shift = |at: Timestamp| shifted(at, by_ms);
        if self.steps.last().is_none_or(|(last, _)| *last < position) {
            self.steps.push((position, by_ms));
        }
        self.shift_counted(by_ms);
        self.offset = self.offset.map(|offset| offset + i128::from(by_ms) * 1_000_000);
        self.group.failures.values_mut().for_each(|failure| failure.until = shift(failure.until));
        let positions: Vec<Position> = self.slots.keys().copied().collect();
        for position in positions {
            if let Some(slot) = self.slots.get_mut(&position) {
                slot.handed_out_at = shift(slot.handed_out_at);
            }
            match self.slots[&position].stand {
                Stand::InFlight { serial, deadline } => {
                    self.set(position, Stand::InFlight { serial, deadline: shift(deadline) });
                }
                Stand::Delayed { until } => self.set(position, Stand::Delayed { until: shift(until) }),
                _ => {}
            }
        }
    }
}
