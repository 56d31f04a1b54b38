//! Instants and durations as users write them (contracts §0); the clock itself is a value that others hand in.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Code, Problem};

mod instant;

pub use instant::{date_of, days_of};

/// An instant in UTC, to the nanosecond, in the years 0000 to 9999: all that RFC 3339 can write. Written with `Z`,
/// sub-second digits only when not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since 1970, rounded down.
    seconds: i64,
    nanos: u32,
}

const NANOS: i128 = 1_000_000_000;
const DAY: i64 = 86_400;

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp { seconds: 0, nanos: 0 };
    /// `0000-01-01T00:00:00Z`
    pub const MIN: Timestamp = Timestamp { seconds: -62_167_219_200, nanos: 0 };
    /// `9999-12-31T23:59:59.999999999Z`
    pub const MAX: Timestamp = Timestamp { seconds: 253_402_300_799, nanos: 999_999_999 };

    /// From nanoseconds since 1970; an instant outside the calendar's years becomes its nearest end.
    pub fn from_nanos(nanos: i128) -> Timestamp {
        let nanos = nanos.clamp(Timestamp::MIN.nanos(), Timestamp::MAX.nanos());
        Timestamp { seconds: nanos.div_euclid(NANOS) as i64, nanos: nanos.rem_euclid(NANOS) as u32 }
    }

    pub fn from_millis(millis: i64) -> Timestamp {
        Timestamp::from_nanos(i128::from(millis) * 1_000_000)
    }

    pub const fn nanos(self) -> i128 {
        self.seconds as i128 * NANOS + self.nanos as i128
    }

    pub fn millis(self) -> i64 {
        self.seconds * 1_000 + i64::from(self.nanos / 1_000_000)
    }

    /// Reads RFC 3339; any offset is understood and turned into UTC. A leap second is read as the second before it.
    pub fn parse(text: &str) -> Result<Timestamp, Problem> {
        instant::read(text.as_bytes()).ok_or_else(|| {
            Problem::new(Code::EventInvalid, format!("\"{text}\" is not an RFC 3339 instant"))
                .hint("write it like 2026-01-31T09:30:00Z")
        })
    }

    /// Later by `by`, staying inside the calendar.
    pub fn plus(self, by: Duration) -> Timestamp {
        Timestamp::from_nanos(self.nanos().saturating_add(by.as_nanos().min(i128::MAX as u128) as i128))
    }

    pub fn minus(self, by: Duration) -> Timestamp {
        Timestamp::from_nanos(self.nanos().saturating_sub(by.as_nanos().min(i128::MAX as u128) as i128))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let nanos = (self.nanos() - earlier.nanos()).max(0);
        Duration::new((nanos / NANOS) as u64, (nanos % NANOS) as u32)
    }
}

impl Timestamp {
    /// As it is shown, without the detour of formatting.
    pub fn push_to(self, out: &mut String) {
        out.push_str(instant::write(self, &mut [0; instant::LENGTH_MAX]));
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(instant::write(*self, &mut [0; instant::LENGTH_MAX]))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(instant::write(*self, &mut [0; instant::LENGTH_MAX]))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Timestamp::parse(&text).map_err(de::Error::custom)
    }
}

/// Reads a duration as users write it: `500ms`, `1h30m`, `2d`, ISO `PT5M`, or bare seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return from_seconds(seconds);
    }
    match text.strip_prefix(['P', 'p']) {
        Some(rest) => parse_iso(rest),
        None => parse_units(text),
    }
}

/// A duration from a JSON value: a string as above or a number of seconds.
pub fn duration_of(value: &serde_json::Value) -> Option<Duration> {
    match value {
        serde_json::Value::String(text) => parse_duration(text),
        serde_json::Value::Number(number) => from_seconds(number.as_f64()?),
        _ => None,
    }
}

/// A duration as we write it: seconds, without a fraction when there is none.
pub fn duration_json(duration: Duration) -> serde_json::Value {
    match duration.subsec_nanos() {
        0 => duration.as_secs().into(),
        _ => duration.as_secs_f64().into(),
    }
}

fn from_seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn parse_units(text: &str) -> Option<Duration> {
    let units: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
        ("w", 604_800.0),
    ];
    sum(text, |unit| units.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds))
}

fn parse_iso(text: &str) -> Option<Duration> {
    let (days, times) = text.split_once(['T', 't']).unwrap_or((text, ""));
    if days.is_empty() && times.is_empty() {
        return None;
    }
    let day = |unit: &str| match unit {
        "W" | "w" => Some(604_800.0),
        "D" | "d" => Some(86_400.0),
        _ => None,
    };
    let time = |unit: &str| match unit {
        "H" | "h" => Some(3600.0),
        "M" | "m" => Some(60.0),
        "S" | "s" => Some(1.0),
        _ => None,
    };
    let days = if days.is_empty() { Duration::ZERO } else { sum(days, day)? };
    let times = if times.is_empty() { Duration::ZERO } else { sum(times, time)? };
    days.checked_add(times)
}

/// Adds up `number unit number unit …`; nothing may be left over.
fn sum(text: &str, seconds_of: impl Fn(&str) -> Option<f64>) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        total = total.checked_add(from_seconds(number * seconds_of(&tail[..end])?)?)?;
        rest = &tail[end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests;
