//! Which days of a month a cron expression means: its day and weekday fields together, as bits 1 to 31.

use model::time::days_of;

/// Sunday is 0; 1970 began on a Thursday.
pub(super) fn weekday_of(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The day and the weekday field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) day: Option<Day>,
    pub(super) weekday: Option<Weekday>,
}

/// A day field that says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Day {
    pub(super) values: u64,
    /// Bit n: the n-th day before the last.
    pub(super) before_last: u64,
    /// The day from monday to friday that is nearest, in the same month.
    pub(super) nearest: Option<Nearest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearest {
    To(u32),
    ToBeforeLast(u32),
}

/// A weekday field that says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weekday {
    pub(super) values: u64,
    /// The last such weekday of the month.
    pub(super) last: u64,
    /// The first to fifth such weekday of the month.
    pub(super) nth: [u64; 5],
}

struct Month {
    length: u32,
    /// The weekday of its first day.
    first: i64,
}

impl Month {
    fn of(year: i64, month: i64) -> Month {
        let start = days_of(year, month, 1);
        let next = if month == 12 { days_of(year + 1, 1, 1) } else { days_of(year, month + 1, 1) };
        Month { length: (next - start) as u32, first: weekday_of(start) }
    }

    fn weekday(&self, day: u32) -> i64 {
        (self.first + i64::from(day) - 1).rem_euclid(7)
    }

    /// Day 1 to the last, as bits.
    fn all(&self) -> u64 {
        (1 << (self.length + 1)) - 2
    }

    fn nearest(&self, day: u32) -> u32 {
        match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

impl Days {
    pub(super) fn of(&self, year: i64, month: i64) -> u64 {
        let of = Month::of(year, month);
        let bits = match (&self.day, &self.weekday) {
            (None, None) => of.all(),
            (Some(day), None) => day.of(&of),
            (None, Some(weekday)) => weekday.of(&of),
            (Some(day), Some(weekday)) => day.of(&of) | weekday.of(&of),
        };
        bits & of.all()
    }

    /// Whether a day ever fits in one of these months. Twenty-eight years hold every kind of year there is.
    pub(super) fn ever(&self, months: u64) -> bool {
        let fits = |year: i64, month: i64| months & (1 << month) != 0 && self.of(year, month) != 0;
        (2001..2029).any(|year| (1..=12).any(|month| fits(year, month)))
    }
}

impl Day {
    fn of(&self, month: &Month) -> u64 {
        let mut bits = self.values;
        for before in (0..month.length).filter(|before| self.before_last & (1 << before) != 0) {
            bits |= 1 << (month.length - before);
        }
        let day = match self.nearest {
            Some(Nearest::To(day)) => Some(day),
            Some(Nearest::ToBeforeLast(before)) => month.length.checked_sub(before),
            None => None,
        };
        match day.filter(|day| (1..=month.length).contains(day)) {
            Some(day) => bits | 1 << month.nearest(day),
            None => bits,
        }
    }
}

impl Weekday {
    fn of(&self, month: &Month) -> u64 {
        let means = |day: u32| {
            let bit = 1 << month.weekday(day);
            let last = self.last & bit != 0 && day + 7 > month.length;
            self.values & bit != 0 || last || self.nth[((day - 1) / 7) as usize] & bit != 0
        };
        (1..=month.length).filter(|day| means(*day)).fold(0, |bits, day| bits | 1 << day)
    }
}
