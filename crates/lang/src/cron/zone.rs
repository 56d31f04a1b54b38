//! Time zones by name, from the database that is compiled in: the same on every machine, never the system's.

use std::sync::LazyLock;

use jiff::Timestamp as Moment;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use model::time::date_of;
use model::{Code, Problem, Timestamp};

use super::seconds_down;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

const DAY: i64 = 86_400;

/// A zone of the IANA database such as `Europe/Berlin`, `UTC`, or an offset such as `+02:00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// A stretch of time in which a zone keeps one offset, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// The first second in it.
    pub(super) start: i64,
    /// The first second after it.
    pub(super) end: i64,
    pub(super) offset: i64,
    /// The offset just before the start; none when it always was so.
    pub(super) offset_before: Option<i64>,
    /// Local times before this one have been shown already, by an earlier stretch.
    pub(super) reached: i64,
}

impl Zone {
    pub fn utc() -> Zone {
        Zone { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    pub fn parse(name: &str) -> Result<Zone, Problem> {
        Zone::find(name).ok_or_else(|| unknown(name))
    }

    /// [`Zone::parse`] for those who have their own words when there is none.
    pub fn find(name: &str) -> Option<Zone> {
        if matches!(name, "" | "UTC" | "Z") {
            return Some(Zone::utc());
        }
        let zone = match fixed(name) {
            Some(offset) => Some(TimeZone::fixed(offset)),
            None => DATABASE.get(name).ok(),
        };
        zone.map(|zone| Zone { name: name.to_owned(), zone })
    }

    /// As it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far it is ahead of UTC, in seconds.
    pub fn offset_at(&self, at: Timestamp) -> i64 {
        self.offset(seconds_down(at))
    }

    /// RFC 3339 with the zone's own offset at that instant. An offset that has seconds is written without them, and the
    /// time with it, so that the instant is the same.
    pub fn show(&self, at: Timestamp) -> String {
        if self.zone == TimeZone::UTC {
            return at.to_string();
        }
        let minutes = self.offset_at(at).div_euclid(60);
        let local = seconds_down(at) + minutes * 60;
        let (year, month, day) = date_of(local.div_euclid(DAY));
        let time = local.rem_euclid(DAY);
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        let fraction = match at.nanos().rem_euclid(super::SECOND) {
            0 => String::new(),
            nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
        };
        let (sign, minutes) = if minutes < 0 { ('-', -minutes) } else { ('+', minutes) };
        let offset = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}")
    }

    /// The stretch that `at` lies in.
    pub(super) fn stretch(&self, at: i64) -> Stretch {
        let offset = self.offset(at);
        let mut stretch =
            Stretch { start: i64::MIN, end: i64::MAX, offset, offset_before: None, reached: i64::MIN };
        let differs = self.zone.following(instant(at)).find(|next| seconds(next.offset()) != offset);
        if let Some(next) = differs {
            stretch.end = next.timestamp().as_second();
        }
        // An offset is less than 26 hours, so what was put back longer ago than that is over.
        for before in self.zone.preceding(instant(at.saturating_add(1))) {
            let change = before.timestamp().as_second();
            let offset_before = self.offset(change - 1);
            if offset_before != seconds(before.offset()) && stretch.offset_before.is_none() {
                (stretch.start, stretch.offset_before) = (change, Some(offset_before));
            }
            if change < at.saturating_sub(2 * DAY) && stretch.offset_before.is_some() {
                break;
            }
            stretch.reached = stretch.reached.max(change + offset_before);
        }
        stretch
    }

    fn offset(&self, at: i64) -> i64 {
        seconds(self.zone.to_offset(instant(at)))
    }
}

fn seconds(offset: Offset) -> i64 {
    i64::from(offset.seconds())
}

/// The calendar of the database ends a day before ours.
fn instant(at: i64) -> Moment {
    let end = if at < 0 { Moment::MIN } else { Moment::MAX };
    Moment::from_second(at).unwrap_or(end)
}

/// `+02:00`, `-02:30` or `02:00`.
fn fixed(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (hours, minutes) = rest.split_once(':').filter(|(h, m)| h.len() == 2 && m.len() == 2)?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) || rest.contains(['+', '-']) {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).ok()
}

fn unknown(name: &str) -> Problem {
    let said: String = name.chars().take(60).collect();
    let problem = Problem::new(Code::CronInvalid, format!("there is no zone {said:?}"));
    let known: Vec<String> = DATABASE.available().map(|name| name.to_string()).collect();
    match crate::expr::nearest(&said, known.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem.hint("write a name such as \"Europe/Berlin\", or an offset such as \"+02:00\""),
    }
}
