//! RFC 3339 to seconds and back, by hand: the whole calendar of four-digit years in every offset, and nothing else.

use super::{DAY, Timestamp};

/// `9999-12-31T23:59:59.999999999Z`
pub const LENGTH_MAX: usize = 30;

/// `YYYY-MM-DDTHH:MM:SS[.f…](Z|±HH:MM)`, nothing left out and nothing after it; at most nine digits of a second.
pub fn read(text: &[u8]) -> Option<Timestamp> {
    let (head, rest) = text.split_at_checked(19)?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, mark)| head[*at].eq_ignore_ascii_case(mark)) {
        return None;
    }
    let (year, month, day) = (number(&head[..4])?, number(&head[5..7])?, number(&head[8..10])?);
    let (hour, minute, second) = (number(&head[11..13])?, number(&head[14..16])?, number(&head[17..19])?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanos, rest) = fraction(rest)?;
    let seconds =
        days_of(year, month, day) * DAY + hour * 3_600 + minute * 60 + second.min(59) - offset(rest)?;
    let instant = Timestamp { seconds, nanos };
    (Timestamp::MIN..=Timestamp::MAX).contains(&instant).then_some(instant)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

/// Nanoseconds, and what stands behind them.
fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    // Finer than we count is cut off.
    let kept = count.min(9);
    let nanos = number(&digits[..kept])? * 10_i64.pow(9 - kept as u32);
    Some((nanos as u32, &digits[count..]))
}

/// Seconds that the written time is ahead of UTC.
fn offset(text: &[u8]) -> Option<i64> {
    let sign = match text {
        b"Z" | b"z" => return Some(0),
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(&text[1..3])?, number(&text[4..6])?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01. The year is counted from March, so that the leap day is its last; 146,097 days are 400 years.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_of`]: year, month, day.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

pub fn write(instant: Timestamp, out: &mut [u8; LENGTH_MAX]) -> &str {
    let (year, month, day) = date_of(instant.seconds.div_euclid(DAY));
    let second = instant.seconds.rem_euclid(DAY);
    out[..20].copy_from_slice(b"0000-00-00T00:00:00Z");
    put(&mut out[..4], year);
    put(&mut out[5..7], month);
    put(&mut out[8..10], day);
    put(&mut out[11..13], second / 3_600);
    put(&mut out[14..16], second / 60 % 60);
    put(&mut out[17..19], second % 60);
    let mut length = 20;
    if instant.nanos > 0 {
        out[19] = b'.';
        put(&mut out[20..29], i64::from(instant.nanos));
        length = 29;
        while out[length - 1] == b'0' {
            length -= 1;
        }
        out[length] = b'Z';
        length += 1;
    }
    std::str::from_utf8(&out[..length]).expect("only digits and marks were written")
}

/// Fills `out` with digits, from the right.
fn put(out: &mut [u8], mut number: i64) {
    for byte in out.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
