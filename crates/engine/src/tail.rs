//! The newest events, kept in memory, so that what was just published reaches its readers without touching the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use model::Position;
use model::event::Event;

/// How much of the newest events is kept: enough for readers that keep up, small enough for an edge device.
const BYTES_MAX: usize = 4 << 20;

pub struct Tail {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event at or after this position is here.
    from: Position,
}

impl Tail {
    pub fn new(from: Position) -> Tail {
        Tail { events: VecDeque::new(), bytes: 0, from }
    }

    pub fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.size();
        self.events.push_back(event);
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.size();
            self.from = oldest.position + 1;
        }
    }

    /// Events from `from` on, at most `max`; `None` when some of them are no longer here.
    pub fn read(&self, from: Position, max: usize) -> Option<Vec<Arc<Event>>> {
        if from < self.from {
            return None;
        }
        let start = self.events.partition_point(|event| event.position < from);
        Some(self.events.range(start..).take(max).cloned().collect())
    }

    /// The newest copy of an event that was erased must not be served from here.
    pub fn forget(&mut self) {
        self.from = self.events.back().map_or(self.from, |event| event.position + 1);
        self.events.clear();
        self.bytes = 0;
    }
}
