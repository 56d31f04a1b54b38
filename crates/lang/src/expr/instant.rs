//! Instants and durations of expressions: nanoseconds since 1970 within the years 1 to 9999, CEL's range.

use model::time::{date_of, days_of};
use model::{Timestamp, time};

use crate::cron::Zone;

pub(crate) const SECOND: i128 = 1_000_000_000;
const DAY: i64 = 86_400;
const FIRST: i128 = -62_135_596_800 * SECOND;
const END: i128 = 253_402_300_800 * SECOND;

pub(crate) fn in_range(nanos: i128) -> bool {
    (FIRST..END).contains(&nanos)
}

/// CEL's durations are what 64 bits of nanoseconds hold, about 292 years each way.
pub(crate) fn duration_in_range(nanos: i128) -> bool {
    i64::try_from(nanos).is_ok()
}

/// A place in the calendar of some zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// Sunday is 0.
    pub(crate) weekday: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) nano: i64,
}

pub(crate) fn civil(nanos: i128, offset_seconds: i64) -> Civil {
    let seconds = nanos.div_euclid(SECOND) as i64 + offset_seconds;
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    Civil {
        year,
        month,
        day,
        weekday: (days + 4).rem_euclid(7),
        day_of_year: days - days_of(year, 1, 1),
        hour: rest / 3600,
        minute: rest / 60 % 60,
        second: rest % 60,
        nano: nanos.rem_euclid(SECOND) as i64,
    }
}

/// RFC 3339, `2026-01-31T09:30:00.5+02:00`; without an offset it is no instant.
pub(crate) fn parse(text: &str) -> Option<i128> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !matches!(bytes[10], b'T' | b't') || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let day = parse_day(text.get(..10)?)?;
    let (hour, minute, second) = (digits(bytes, 11, 2)?, digits(bytes, 14, 2)?, digits(bytes, 17, 2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, rest) = fraction(text.get(19..)?)?;
    let offset = match rest {
        "Z" | "z" => 0,
        _ => offset_of(rest).filter(|_| rest.starts_with(['+', '-']))?,
    };
    let seconds = i128::from(hour * 3600 + minute * 60 + second - offset);
    let nanos = day + seconds * SECOND + fraction;
    in_range(nanos).then_some(nanos)
}

/// An instant as people write it: RFC 3339, or a day for its beginning.
pub(crate) fn read(text: &str) -> Option<i128> {
    parse(text).or_else(|| parse_day(text))
}

/// `2026-01-31`, the midnight in UTC at its beginning.
pub(crate) fn parse_day(text: &str) -> Option<i128> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(bytes, 0, 4)?, digits(bytes, 5, 2)?, digits(bytes, 8, 2)?);
    let days = days_of(year, month, day);
    let real = year >= 1 && (1..=12).contains(&month) && date_of(days) == (year, month, day);
    real.then(|| i128::from(days * DAY) * SECOND)
}

fn digits(bytes: &[u8], at: usize, len: usize) -> Option<i64> {
    let part = bytes.get(at..at + len)?;
    part.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0')))
}

/// The nanoseconds after a point, and what follows them.
fn fraction(text: &str) -> Option<(i128, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let len = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    if !(1..=9).contains(&len) {
        return None;
    }
    let value: i128 = rest[..len].parse().ok()?;
    Some((value * 10i128.pow(9 - len as u32), &rest[len..]))
}

/// `+02:00`, `-02:30`, `02:00`, in seconds.
fn offset_of(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let bytes = rest.as_bytes();
    if bytes.len() != 5 || bytes[2] != b':' {
        return None;
    }
    let (hours, minutes) = (digits(bytes, 0, 2)?, digits(bytes, 3, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// How far a zone is from UTC at an instant, in seconds: an offset, or a name of the zone database.
pub(crate) fn offset(zone: &str, nanos: i128) -> Option<i64> {
    Some(Zone::find(zone)?.offset_at(Timestamp::from_nanos(nanos)))
}

/// RFC 3339 in UTC, digits below a second only when they are not zero.
pub(crate) fn text(nanos: i128) -> String {
    let Civil { year, month, day, hour, minute, second, nano, .. } = civil(nanos, 0);
    let fraction = match nano {
        0 => String::new(),
        _ => format!(".{}", format!("{nano:09}").trim_end_matches('0')),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// A duration as users write it, with a sign if they wish.
pub(crate) fn parse_duration(text: &str) -> Option<i128> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let units = exact_units(rest).or_else(|| i128::try_from(time::parse_duration(rest)?.as_nanos()).ok());
    units.map(|nanos| sign * nanos)
}

/// A duration that JSON has as a number of seconds.
pub(crate) fn of_seconds(seconds: f64) -> i128 {
    (seconds * 1e9).round() as i128
}

/// `1h30m`, `999999999ns`, `1.5s`, to the nanosecond where binary fractions would miss it.
fn exact_units(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 9] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3600 * SECOND),
        ("d", 86_400 * SECOND),
        ("w", 604_800 * SECOND),
    ];
    let (mut rest, mut sum) = (text, 0i128);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|len| *len > 0)?;
        let (digits, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let scale = UNITS.iter().find(|(name, _)| *name == &after[..unit])?.1;
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let (whole, part) =
            (if whole.is_empty() { "0" } else { whole }, if part.is_empty() { "0" } else { part });
        // With 22 digits no number of weeks is too large for the sum.
        if whole.len() > 22 || part.len() > 12 {
            return None;
        }
        let fraction = part.parse::<i128>().ok()? * scale / 10i128.pow(part.len() as u32);
        sum = sum.checked_add(whole.parse::<i128>().ok()? * scale + fraction)?;
        rest = &after[unit..];
    }
    Some(sum)
}

/// A duration as CEL writes it: seconds, with a fraction when there is one.
pub(crate) fn duration_text(nanos: i128) -> String {
    let (sign, nanos) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    match rest {
        0 => format!("{sign}{seconds}s"),
        _ => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}
