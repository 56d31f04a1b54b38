//! When a schedule trigger is due: cron in its zone, `every`, `at`, and the jitter that spreads firings.

use std::time::Duration;

use model::definition::TriggerKind;
use model::{Code, Problem, Timestamp};
use sha2::{Digest, Sha256};

use super::{Cron, Zone};

/// The shortest `every`.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// Longer than this, and a calendar is meant.
const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The instants of a schedule. What it says depends on nothing but the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calendar {
    Cron {
        cron: Cron,
        zone: Zone,
    },
    /// Multiples of the duration since 1970-01-01T00:00:00Z, whatever the process did before. So `15m` is at full
    /// quarters of an hour, `1d` at midnight UTC in every zone and across every change of a clock, `7d` on Thursdays.
    /// What is to follow a zone's clock is written as cron.
    Every(Duration),
    At(Timestamp),
}

impl Calendar {
    /// The calendar of a trigger; none if time does not start it.
    pub fn of(trigger: &TriggerKind) -> Result<Option<Calendar>, Problem> {
        Ok(Some(match trigger {
            TriggerKind::Cron { cron, tz, .. } => Calendar::Cron {
                cron: Cron::parse(cron)?,
                zone: Zone::parse(tz.as_deref().unwrap_or("UTC"))?,
            },
            TriggerKind::Every(every) => Calendar::every(every.every)?,
            TriggerKind::At(at) => Calendar::At(*at),
            _ => return Ok(None),
        }))
    }

    pub fn every(every: Duration) -> Result<Calendar, Problem> {
        if (EVERY_MIN..=EVERY_MAX).contains(&every) {
            return Ok(Calendar::Every(every));
        }
        let what = format!(
            "\"every\" is {} seconds, which is not within 1 second and 366 days",
            every.as_secs_f64()
        );
        Err(Problem::new(Code::CronInvalid, what).hint("write every: 15m; for days of a calendar write cron"))
    }

    /// The first instant after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Calendar::Cron { cron, zone } => cron.next_after(after, zone),
            Calendar::Every(every) => {
                let every = nanos(*every);
                let next = (after.nanos().div_euclid(every) + 1) * every;
                (next <= Timestamp::MAX.nanos()).then(|| Timestamp::from_nanos(next))
            }
            Calendar::At(at) => (*at > after).then_some(*at),
        }
    }

    /// The last instant in `(after, until]`: what is left of a time in which nobody looked.
    pub fn latest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let due = |from: Timestamp| self.next_after(from).filter(|next| *next <= until);
        // Steps back that double, then a search between the last two: whether something is due after an instant only
        // changes once as that instant moves on.
        let mut back = Duration::from_secs(60);
        let mut low = until.minus(back).max(after);
        let mut high = until;
        while due(low).is_none() {
            if low <= after {
                return None;
            }
            (high, back) = (low, back * 2);
            low = until.minus(back).max(after);
        }
        loop {
            let latest = due(low)?;
            if due(latest).is_none() {
                return Some(latest);
            }
            let middle = Timestamp::from_nanos(latest.nanos() + (high.nanos() - latest.nanos()) / 2);
            (low, high) = if due(middle).is_some() { (middle, high) } else { (latest, middle) };
        }
    }

    /// How many instants lie in `(after, until]`.
    pub fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        if until <= after {
            return 0;
        }
        match self {
            Calendar::Cron { cron, zone } => cron.count(after, until, zone),
            Calendar::Every(every) => {
                let every = nanos(*every);
                (until.nanos().div_euclid(every) - after.nanos().div_euclid(every)) as u64
            }
            Calendar::At(at) => u64::from(*at > after && *at <= until),
        }
    }
}

fn nanos(duration: Duration) -> i128 {
    duration.as_nanos() as i128
}

/// How much later than `instant` the firing happens: less than `max`, in whole milliseconds, the same each time it is
/// asked. `seed` is the trigger's id, so that schedules with equal expressions spread.
pub fn jitter(seed: &str, instant: Timestamp, max: Duration) -> Duration {
    let span = max.as_millis().min(u128::from(u64::MAX)) as u64;
    if span == 0 {
        return Duration::ZERO;
    }
    let hash = Sha256::new().chain_update(instant.nanos().to_be_bytes()).chain_update(seed).finalize();
    let chance = hash.iter().take(8).fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    Duration::from_millis(chance % span)
}
