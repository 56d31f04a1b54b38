//! How far a group has come: the floor, and what a flush records of it.

use model::Position;
use model::record::{Moved, Span};

use super::Dispatcher;
use crate::faults::planted;

/// How far ahead of what was handed out `delivered_to` is written for workers in process, who take what comes at once: a hand-out
/// then need not wait until the writer has time for its record. After a crash some that were never out count one more (decision 0008
/// says why that does no harm).
const AHEAD: Position = 4_096;

impl Dispatcher {
    /// How far the floor may move: just before the first open event.
    pub fn floor(&self) -> Position {
        if planted("floor_past_unacked") {
            return self.delivered_to.max(self.group.floor);
        }
        match self.slots.range(self.group.floor + 1..).next() {
            Some((first, _)) => first - 1,
            None => self.scanned.max(self.group.floor),
        }
    }

    /// What has moved since the last call, to be recorded; `None` when nothing an ack or a delivery did.
    pub fn progress(&mut self) -> Option<Moved> {
        let floor = self.floor();
        if !self.is_dirty() && !self.must_record() {
            return None;
        }
        self.said |= self.in_flight() > 0;
        let settled = std::mem::take(&mut self.settled);
        let again = std::mem::take(&mut self.settled_again);
        let acked = std::mem::take(&mut self.acked);
        let delivered_to = self.ahead().max(self.flushed.1);
        self.flushed = (floor, delivered_to, self.alone);
        let before = self.group.floor;
        let apart = settled.into_iter().filter(|position| *position > floor || *position <= before);
        let ranges = spans(apart.chain(again));
        self.group.raise_floor(floor);
        let (group, alone) = (self.group.name.clone(), self.alone);
        Some(Moved { group, floor, ranges, delivered_to, acked, alone })
    }

    /// Whether what was handed out must be written before anybody gets it.
    pub fn must_record(&self) -> bool {
        let unsaid = !self.said && self.in_flight() > 0;
        unsaid || self.delivered_to > self.flushed.1 || self.alone != self.flushed.2
    }

    /// Whoever takes from here does it as soon as something comes, and has taken all there was.
    pub fn keeps_up(&mut self, keeps_up: bool) {
        self.kept_up = keeps_up && self.ready.is_empty();
    }

    fn ahead(&self) -> Position {
        if self.kept_up && self.alone == 0 { self.delivered_to + AHEAD } else { self.delivered_to }
    }

    /// The floor, if it has moved over events that did not match; recorded at seal and at stop only.
    pub fn quiet_progress(&mut self) -> Option<Moved> {
        self.progress().or_else(|| {
            let floor = self.floor();
            let moved = Moved {
                group: self.group.name.clone(),
                floor,
                ranges: Vec::new(),
                delivered_to: self.delivered_to.max(floor).max(self.flushed.1),
                acked: 0,
                alone: self.alone,
            };
            (floor > self.flushed.0).then(|| {
                self.flushed = (floor, moved.delivered_to, moved.alone);
                self.delivered_to = self.delivered_to.max(floor);
                self.group.raise_floor(floor);
                moved
            })
        })
    }

    /// Whether an ack waits to be recorded.
    pub fn is_dirty(&self) -> bool {
        !self.settled.is_empty() || !self.settled_again.is_empty()
    }
}

fn spans(positions: impl Iterator<Item = Position>) -> Vec<Span> {
    positions.map(|position| (position, position)).collect::<crate::ranges::Ranges>().spans()
}
