//! From one firing to the next: over the calendar day by day, over a zone stretch by stretch of one offset.

use model::time::{date_of, days_of};

use super::Cron;
use super::zone::{Stretch, Zone};

const DAY: i64 = 86_400;
const YEAR_MAX: i64 = 9_999;

/// Goes from firing to firing and remembers the stretch it is in, because asking the zone is most of the work.
pub(super) struct Walk<'a> {
    cron: &'a Cron,
    zone: &'a Zone,
    stretch: Option<Stretch>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(cron: &'a Cron, zone: &'a Zone) -> Walk<'a> {
        Walk { cron, zone, stretch: None }
    }

    /// The first firing at or after `from`, in seconds since 1970.
    pub(super) fn next(&mut self, from: i64) -> Option<i64> {
        let cron = self.cron;
        let mut at = from;
        loop {
            let stretch = self.stretch(at);
            if at == stretch.start && leapt_over(cron, &stretch) {
                return Some(at);
            }
            let found = next_local(cron, first_local(cron, &stretch, at))? - stretch.offset;
            if found < stretch.end {
                return Some(found);
            }
            at = stretch.end;
        }
    }

    fn stretch(&mut self, at: i64) -> Stretch {
        match self.stretch {
            Some(known) if (known.start..known.end).contains(&at) => known,
            _ => *self.stretch.insert(self.zone.stretch(at)),
        }
    }
}

/// How many firings lie in `from..=until`. Whole days inside a stretch are multiplied, not walked.
pub(super) fn count(cron: &Cron, zone: &Zone, from: i64, until: i64) -> u64 {
    let a_day = cron.hours.count_ones() * cron.minutes.count_ones() * cron.seconds.count_ones();
    let (mut at, mut count, mut walk) = (from, 0, Walk::new(cron, zone));
    while let Some(found) = walk.next(at).filter(|found| *found <= until) {
        let stretch = walk.stretch(found);
        let local = found + stretch.offset;
        let next_midnight = (local.div_euclid(DAY) + 1) * DAY - stretch.offset;
        // At the start of a stretch it may be the firing of a gap, and its day need not match.
        let whole = found > stretch.start
            && next_time(cron, 0) == Some(local.rem_euclid(DAY))
            && local - local.rem_euclid(DAY)
                >= stretch.reached.max(stretch.start.saturating_add(stretch.offset))
            && next_midnight <= stretch.end
            && next_midnight - 1 <= until;
        (at, count) = match whole {
            true => (next_midnight, count + u64::from(a_day)),
            false => (found + 1, count + 1),
        };
    }
    count
}

/// Whether the clock was put forward at the stretch's start, over times that match.
fn leapt_over(cron: &Cron, stretch: &Stretch) -> bool {
    let Some(before) = stretch.offset_before.filter(|before| *before < stretch.offset) else { return false };
    next_local(cron, stretch.start + before).is_some_and(|found| found < stretch.start + stretch.offset)
}

fn first_local(cron: &Cron, stretch: &Stretch, at: i64) -> i64 {
    let local = at + stretch.offset;
    if cron.first_pass_only { local.max(stretch.reached) } else { local }
}

/// The first matching local time at or after `from`, both in seconds since 1970 as that clock shows it.
fn next_local(cron: &Cron, from: i64) -> Option<i64> {
    if !cron.comes {
        return None;
    }
    let (today, time) = (from.div_euclid(DAY), from.rem_euclid(DAY));
    let (mut year, mut month, first) = date_of(today);
    let mut days_from = first;
    while year <= YEAR_MAX {
        if cron.months & (1 << month) != 0 {
            let mut days = cron.days.of(year, month) & (u64::MAX << days_from);
            while days != 0 {
                let day = days_of(year, month, i64::from(days.trailing_zeros()));
                if let Some(time) = next_time(cron, if day == today { time } else { 0 }) {
                    return Some(day * DAY + time);
                }
                days &= days - 1;
            }
        }
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        days_from = 1;
    }
    None
}

/// The first matching second of a day at or after `from`.
fn next_time(cron: &Cron, from: i64) -> Option<i64> {
    let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
    let at = |hour: i64, minute: i64, second: i64| hour * 3_600 + minute * 60 + second;
    if cron.hours & (1 << hour) != 0 {
        if cron.minutes & (1 << minute) != 0
            && let Some(second) = bit_from(cron.seconds, second)
        {
            return Some(at(hour, minute, second));
        }
        if let Some(minute) = bit_from(cron.minutes, minute + 1) {
            return Some(at(hour, minute, bit_from(cron.seconds, 0)?));
        }
    }
    let hour = bit_from(cron.hours, hour + 1)?;
    Some(at(hour, bit_from(cron.minutes, 0)?, bit_from(cron.seconds, 0)?))
}

/// The lowest bit at or above `from`, which is at most 60.
fn bit_from(bits: u64, from: i64) -> Option<i64> {
    match bits & (u64::MAX << from) {
        0 => None,
        bits => Some(i64::from(bits.trailing_zeros())),
    }
}
