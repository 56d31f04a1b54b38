//! Schedules as people write them: cron expressions in a zone, `every`, `at`; pure, asked by whoever arms timers.
//!
//! ```text
//!  [second] minute hour day month weekday      names, lists, ranges (also round the end: 22-2, sat-sun),
//!   0-59    0-59   0-23 1-31 1-12   0-7        steps (*/5, 10-40/5, 10/5), ? for *, Sunday is 0 and 7
//!                       L L-3 LW 15W  5L 5#2   last day, third before it, last and nearest weekday; last and second friday
//!  @yearly @annually @monthly @weekly @daily @midnight @hourly @every_minute @every_second
//! ```
//! Day and weekday both said: either is enough. `*` and `*/1` say nothing. Where the zone's clock is put forward over
//! matching times there is one firing at the first instant after it, for every pattern. Where it is put back, a pattern
//! whose second, minute and hour are values or lists of values fires in the first pass only, every other in both.

mod calendar;
mod days;
mod field;
mod parse;
#[cfg(test)]
mod tests;
mod walk;
mod zone;

use model::{Problem, Timestamp};

pub use calendar::{Calendar, EVERY_MIN, jitter};
pub use zone::Zone;

use days::Days;
use walk::Walk;

/// A cron expression that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    /// A bit for each value, as in all of these.
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    /// Second, minute and hour are values or lists of values: a repeated hour is for the first pass only.
    first_pass_only: bool,
    /// There is a day in some month that fits.
    comes: bool,
}

impl Cron {
    /// Reads an expression that fires some day; `cron.invalid` with the name of the wrong `field`, or `cron.never`.
    pub fn parse(text: &str) -> Result<Cron, Problem> {
        let cron = Cron::read(text)?;
        if cron.comes { Ok(cron) } else { Err(parse::never(text)) }
    }

    /// Reads also one that is well written and never fires, such as the 30th of February.
    pub fn read(text: &str) -> Result<Cron, Problem> {
        parse::read(text)
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first firing after `after`; none when there is none before the year 10000.
    pub fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        self.next_from(Timestamp::from_nanos(after.nanos() + 1), zone)
    }

    /// The first firing at `from` or after it.
    pub fn next_from(&self, from: Timestamp, zone: &Zone) -> Option<Timestamp> {
        self.firings(from, zone).next()
    }

    /// All firings at `from` or after it, in order; quicker than asking for one after the other.
    pub fn firings<'a>(&'a self, from: Timestamp, zone: &'a Zone) -> impl Iterator<Item = Timestamp> + 'a {
        let mut from = seconds_up(from);
        let mut walk = Walk::new(self, zone);
        std::iter::from_fn(move || {
            let found = walk.next(from)?;
            from = found + 1;
            Some(instant(found))
        })
    }

    pub fn fires_at(&self, at: Timestamp, zone: &Zone) -> bool {
        self.next_from(at, zone) == Some(at)
    }

    /// How many firings lie in `(after, until]`, without visiting each of them.
    pub fn count(&self, after: Timestamp, until: Timestamp, zone: &Zone) -> u64 {
        let (from, end) = (seconds_up(Timestamp::from_nanos(after.nanos() + 1)), seconds_down(until));
        walk::count(self, zone, from, end)
    }
}

const SECOND: i128 = 1_000_000_000;

fn seconds_down(at: Timestamp) -> i64 {
    at.nanos().div_euclid(SECOND) as i64
}

fn seconds_up(at: Timestamp) -> i64 {
    seconds_down(at) + i64::from(at.nanos().rem_euclid(SECOND) > 0)
}

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(i128::from(seconds) * SECOND)
}
