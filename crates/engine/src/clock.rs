//! Where time comes from: the machine, or a test that says what time it is. Read once per batch, handed on as a value.

#![expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the time")]

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use model::Timestamp;

/// The two clocks of a machine. `boot` counts suspend and never steps; `now` is the wall clock and may.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
    fn boot(&self) -> Duration;

    /// The machine's own time, for what somebody really waits for: connections, flushes, limits of work.
    fn real(&self) -> Duration {
        self.boot()
    }

    /// What moves it, when it stands still otherwise.
    fn told(&self) -> Option<&ManualClock> {
        None
    }
}

/// How far a clock that stands still is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    By(Duration),
    To(Timestamp),
}

/// The machine's own clocks.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let nanos = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        // Microseconds are enough for people and keep the lines short.
        Timestamp::from_nanos(nanos / 1_000 * 1_000)
    }

    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
    }
}

/// A clock that stands still until it is moved: simulation, scenarios and tests.
pub struct ManualClock(Mutex<(Timestamp, Duration)>);

impl ManualClock {
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock(Mutex::new((now, Duration::ZERO)))
    }

    /// Time passes: both clocks move.
    pub fn advance(&self, by: Duration) {
        let mut both = self.both();
        *both = (both.0.plus(by), both.1 + by);
    }

    /// Somebody sets the wall clock; the boot clock does not notice.
    pub fn step(&self, to: Timestamp) {
        self.both().0 = to;
    }

    /// Both clocks at once.
    pub fn read(&self) -> (Timestamp, Duration) {
        *self.both()
    }

    fn both(&self) -> std::sync::MutexGuard<'_, (Timestamp, Duration)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.both().0
    }

    fn boot(&self) -> Duration {
        self.both().1
    }
}

/// As [`ManualClock`] for the engine, while the machine's time goes on for those who wait: `serve --clock`.
pub struct ToldClock(ManualClock);

impl ToldClock {
    pub fn at(now: Timestamp) -> ToldClock {
        ToldClock(ManualClock::at(now))
    }
}

impl Clock for ToldClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn boot(&self) -> Duration {
        self.0.boot()
    }

    fn real(&self) -> Duration {
        SystemClock.boot()
    }

    fn told(&self) -> Option<&ManualClock> {
        Some(&self.0)
    }
}
