//! The simulated clock: stands still until moved, or drags a little at every look, which makes the disk seem slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::clock::{Clock, ManualClock};
use model::Timestamp;

pub struct SimClock {
    manual: ManualClock,
    drag_ms: AtomicU64,
}

impl SimClock {
    pub fn at(now: Timestamp) -> SimClock {
        SimClock { manual: ManualClock::at(now), drag_ms: AtomicU64::new(0) }
    }

    pub fn advance(&self, by: Duration) {
        self.manual.advance(by);
    }

    pub fn step(&self, to: Timestamp) {
        self.manual.step(to);
    }

    /// From now on every look at the boot clock takes this long. A slow disk is what makes callers queue.
    pub fn drag(&self, ms: u64) {
        self.drag_ms.store(ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.manual.now()
    }

    fn boot(&self) -> Duration {
        self.manual.advance(Duration::from_millis(self.drag_ms.load(Ordering::Relaxed)));
        self.manual.boot()
    }
}
