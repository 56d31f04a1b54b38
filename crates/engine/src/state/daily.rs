//! How many runs began today, for a tenant that may have only so many. What is counted is memory; that a run was refused is
//! a record, and folding counts nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use model::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// Starts of one day, in UTC.
#[derive(Debug)]
pub struct Daily {
    most: AtomicU64,
    day: AtomicI64,
    began: AtomicU64,
}

impl Default for Daily {
    fn default() -> Daily {
        Daily { most: AtomicU64::new(u64::MAX), day: AtomicI64::new(0), began: AtomicU64::new(0) }
    }
}

impl Daily {
    /// At most so many from now on; `began` of them have begun today.
    pub fn limit(&self, most: Option<u64>, now: Timestamp, began: u64) {
        self.most.store(most.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.day.store(day_of(now), Ordering::Relaxed);
        self.began.store(began, Ordering::Relaxed);
    }

    /// Whether one more may begin beside `others` that are about to.
    pub fn has_room(&self, now: Timestamp, others: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        most == u64::MAX || self.began(now) + (others as u64) < most
    }

    pub fn note(&self, now: Timestamp) {
        let today = day_of(now);
        if self.day.swap(today, Ordering::Relaxed) != today {
            self.began.store(0, Ordering::Relaxed);
        }
        self.began.fetch_add(1, Ordering::Relaxed);
    }

    pub fn began(&self, now: Timestamp) -> u64 {
        if self.day.load(Ordering::Relaxed) == day_of(now) { self.began.load(Ordering::Relaxed) } else { 0 }
    }
}

fn day_of(now: Timestamp) -> i64 {
    now.millis().div_euclid(DAY_MS)
}

/// When the day of `now` began.
pub fn midnight(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(day_of(now) * DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_so_many_starts_and_the_next_has_its_own() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let daily = Daily::default();
        assert!(daily.has_room(at("2026-01-01T10:00:00Z"), 1_000_000));
        daily.limit(Some(2), at("2026-01-01T10:00:00Z"), 1);
        assert!(
            daily.has_room(at("2026-01-01T10:00:00Z"), 0) && !daily.has_room(at("2026-01-01T10:00:00Z"), 1)
        );
        daily.note(at("2026-01-01T23:59:59Z"));
        assert!(!daily.has_room(at("2026-01-01T23:59:59Z"), 0));
        assert!(daily.has_room(at("2026-01-02T00:00:00Z"), 1));
        daily.note(at("2026-01-02T00:00:00Z"));
        assert_eq!(daily.began(at("2026-01-02T12:00:00Z")), 1);
        assert_eq!(midnight(at("2026-01-02T12:00:00Z")), at("2026-01-02T00:00:00Z"));
    }
}
