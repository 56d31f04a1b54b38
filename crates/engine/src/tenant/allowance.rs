//! What a tenant may use: bytes, events a second, groups, automations, runs a day. One that is at its limit is refused by name;
//! its neighbours do not notice.
//!
//! Only what comes from outside is held to it: a run that is under way ends, and the engine's own events are written.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::definition::{Definition, Kind};
use model::{Code, Problem};
use serde_json::{Value, json};

use super::{Tenant, entity::broken};
use crate::admit::Caller;
use crate::deliver::lock;
use crate::settings::Quota;
use crate::state::daily::midnight;

/// For what does not pass by waiting: somebody has to act.
const ASK_AGAIN_S: u64 = 60;
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How much is left. Read on the path of every publish, so that no limit costs two loads.
pub struct Allowance {
    quota: Mutex<Quota>,
    /// `u64::MAX`: no limit.
    bytes_max: AtomicU64,
    /// Of the ledger, as of the last batch; kept only while there is a limit.
    bytes: AtomicU64,
    rate: AtomicU64,
    /// Events that may come now, and when that was so. Below zero when a list took more than there were.
    bucket: Mutex<(f64, Duration)>,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            quota: Mutex::default(),
            bytes_max: AtomicU64::new(u64::MAX),
            bytes: AtomicU64::new(0),
            rate: AtomicU64::new(u64::MAX),
            bucket: Mutex::new((0.0, Duration::ZERO)),
        }
    }
}

impl Allowance {
    /// Takes `count` events; how long to wait when there is none.
    fn take(&self, rate: u64, count: usize, now: Duration) -> Result<(), Duration> {
        let (rate, mut bucket) = (rate as f64, lock(&self.bucket));
        let since = now.saturating_sub(bucket.1).as_secs_f64();
        *bucket = ((bucket.0 + since * rate).min(rate.max(1.0)), now);
        if bucket.0 < 1.0 {
            let missing = 1.0 - bucket.0;
            return Err(Duration::from_secs_f64((missing / rate.max(0.001)).min(3_600.0)));
        }
        bucket.0 -= count as f64;
        Ok(())
    }
}

impl Tenant {
    /// What holds from now on.
    pub fn set_quota(&self, quota: Quota) -> Result<(), Problem> {
        let allowance = &self.0.allowance;
        let now = self.moment().now;
        let began = match quota.runs_per_day {
            Some(_) => self.with_history(|history| history.began_since(midnight(now)).map_err(broken))?,
            None => 0,
        };
        self.with_writer(|writer| {
            writer.state.daily.limit(quota.runs_per_day, now, began);
            allowance.bytes.store(writer.ledger.segments().iter().map(|s| s.bytes).sum(), Ordering::Relaxed);
            Ok(())
        })?;
        allowance.bytes_max.store(quota.bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        *lock(&allowance.bucket) = (quota.events_per_s.unwrap_or_default() as f64, self.real());
        allowance.rate.store(quota.events_per_s.unwrap_or(u64::MAX), Ordering::Relaxed);
        *lock(&allowance.quota) = quota;
        Ok(())
    }

    /// What is used of what may be, for people.
    pub fn usage(&self) -> Result<Value, Problem> {
        let now = self.moment().now;
        let (bytes, runs) = self.with_writer(|writer| {
            let bytes: u64 = writer.ledger.segments().iter().map(|segment| segment.bytes).sum();
            Ok((bytes, writer.state.daily.began(now)))
        })?;
        let limited = lock(&self.0.allowance.quota).runs_per_day.is_some();
        let runs = match limited {
            true => runs,
            false => self.with_history(|history| history.began_since(midnight(now)).map_err(broken))?,
        };
        let automations = self.catalog().entries().filter(|((kind, _), _)| *kind == Kind::Automation).count();
        let groups = self.registry().all().len();
        Ok(json!({"bytes": bytes, "groups": groups, "automations": automations, "runs_today": runs}))
    }

    /// What is said to who starts a run when those of the day are used up: after midnight there are some again.
    pub fn runs_used_up(&self) -> Problem {
        let now = self.moment().now;
        let most = lock(&self.0.allowance.quota).runs_per_day.unwrap_or_default();
        let left = midnight(now).plus(DAY).since(now).as_secs_f64().ceil();
        over(
            format!("tenant \"{}\" may begin {most} runs a day", self.name()),
            ("runs_per_day", most),
            left.max(1.0) as u64,
        )
        .hint("wait for midnight, UTC, or ask the owner of the server for more")
    }

    /// Refuses a publish or a write of rows from outside that is more than the tenant may bring: a row that changes is an event.
    pub(crate) fn allow_events(&self, caller: &Caller, count: usize) -> Result<(), Problem> {
        let allowance = &self.0.allowance;
        let (rate, most) =
            (allowance.rate.load(Ordering::Relaxed), allowance.bytes_max.load(Ordering::Relaxed));
        if (rate == u64::MAX && most == u64::MAX) || !caller.outside {
            return Ok(());
        }
        let bytes = allowance.bytes.load(Ordering::Relaxed);
        if bytes >= most {
            let detail =
                format!("tenant \"{}\" has a ledger of {bytes} bytes, and may have {most}", self.name());
            return Err(over(detail, ("bytes", most), ASK_AGAIN_S).hint(
                "keep less (`[retention]` in everwhen.toml), or ask the owner of the server for more",
            ));
        }
        if rate == u64::MAX {
            return Ok(());
        }
        allowance.take(rate, count, self.real()).map_err(|wait| {
            let detail = format!("tenant \"{}\" may bring {rate} events a second", self.name());
            over(detail, ("events_per_s", rate), wait.as_secs_f64().ceil().max(1.0) as u64)
                .hint("wait and try again with the same key, or ask the owner of the server for more")
        })
    }

    /// After a batch: how long the ledger is, if anybody wants to know.
    pub(super) fn note_bytes(&self, writer: &crate::writer::Writer) {
        let allowance = &self.0.allowance;
        if allowance.bytes_max.load(Ordering::Relaxed) != u64::MAX {
            let bytes = writer.ledger.segments().iter().map(|segment| segment.bytes).sum();
            allowance.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Refuses one group more than there may be.
    pub(super) fn allow_group(&self) -> Result<(), Problem> {
        let (most, there) = (lock(&self.0.allowance.quota).groups, self.registry().all().len() as u64);
        match most {
            Some(most) if there >= most => {
                let detail = format!("tenant \"{}\" has {there} groups, and may have {most}", self.name());
                Err(over(detail, ("groups", most), ASK_AGAIN_S)
                    .hint("delete one that nobody pulls from, or ask the owner of the server for more"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses definitions that bring more automations than there may be. Who has too many already may have fewer.
    pub(super) fn allow_automations(&self, managed_by: &str, set: &[Definition]) -> Result<(), Problem> {
        let Some(most) = lock(&self.0.allowance.quota).automations else { return Ok(()) };
        let catalog = self.catalog();
        let there: Vec<_> = catalog.entries().filter(|((kind, _), _)| *kind == Kind::Automation).collect();
        let is_new = |name: &str| !there.iter().any(|((_, other), _)| other == name);
        let named: Vec<&str> = set
            .iter()
            .filter_map(|definition| match definition {
                Definition::Automation(automation) => Some(automation.name.as_str()),
                _ => None,
            })
            .collect();
        let dropped = there.iter().filter(|((_, name), entry)| {
            managed_by.starts_with("workspace:")
                && entry.managed_by == managed_by
                && !named.contains(&name.as_str())
        });
        let (before, dropped) = (there.len(), dropped.count());
        let after = before - dropped + named.iter().filter(|name| is_new(name)).count();
        if after as u64 <= most || after <= before {
            return Ok(());
        }
        let detail =
            format!("tenant \"{}\" would have {after} automations, and may have {most}", self.name());
        Err(over(detail, ("automations", most), ASK_AGAIN_S)
            .hint("delete some that nobody needs, or ask the owner of the server for more"))
    }
}

fn over(detail: String, (quota, limit): (&str, u64), retry_after: u64) -> Problem {
    Problem::new(Code::QuotaExceeded, detail)
        .with("quota", quota)
        .with("limit", limit)
        .with("retry_after", retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_events_and_a_list_may_borrow_from_the_next() {
        let allowance = Allowance::default();
        *lock(&allowance.bucket) = (10.0, Duration::ZERO);
        let at = Duration::from_secs_f64;
        assert!((0..10).all(|_| allowance.take(10, 1, at(0.0)).is_ok()));
        assert_eq!(allowance.take(10, 1, at(0.0)), Err(Duration::from_millis(100)));
        assert!(allowance.take(10, 1, at(0.1)).is_ok() && allowance.take(10, 1, at(0.1)).is_err());
        assert!(
            allowance.take(10, 25, at(5.0)).is_ok(),
            "at most a second's worth is saved, and more is owed"
        );
        assert!(allowance.take(10, 1, at(6.0)).is_err() && allowance.take(10, 1, at(6.7)).is_ok());
        assert!(allowance.take(0, 1, at(60.0)).is_ok() && allowance.take(0, 1, at(6e4)).is_err());
    }
}
