//! Reads a cron expression; what is wrong is said with the field it stands in.

use model::{Code, Problem};

use super::Cron;
use super::days::{Day, Days, Nearest, Weekday};
use super::field::{DAY, HOUR, MINUTE, MONTH, SECOND, Values, WEEKDAY, number};

const WORDS: [(&str, &str); 9] = [
    ("@yearly", "0 0 0 1 1 *"),
    ("@annually", "0 0 0 1 1 *"),
    ("@monthly", "0 0 0 1 * *"),
    ("@weekly", "0 0 0 * * 0"),
    ("@daily", "0 0 0 * * *"),
    ("@midnight", "0 0 0 * * *"),
    ("@hourly", "0 0 * * * *"),
    ("@every_minute", "0 * * * * *"),
    ("@every_second", "* * * * * *"),
];

pub(super) fn read(text: &str) -> Result<Cron, Problem> {
    let said = text.trim();
    let fields: Vec<&str> = match said.starts_with('@') {
        true => word(said)?.split(' ').collect(),
        false => said.split_whitespace().collect(),
    };
    let (second, rest) = match fields.as_slice() {
        [second, rest @ ..] if rest.len() == 5 => (*second, rest),
        rest if rest.len() == 5 => ("0", rest),
        _ => return Err(count(fields.len())),
    };
    let (second, minute, hour) = (SECOND.list(second)?, MINUTE.list(rest[0])?, HOUR.list(rest[1])?);
    let day = day(rest[2])?;
    let months = MONTH.list(rest[3])?.bits;
    let days = Days { day, weekday: weekday(rest[4])? };
    Ok(Cron {
        text: said.to_owned(),
        seconds: second.bits,
        minutes: minute.bits,
        hours: hour.bits,
        months,
        first_pass_only: !(second.many || minute.many || hour.many),
        comes: days.ever(months),
        days,
    })
}

fn word(said: &str) -> Result<&'static str, Problem> {
    let found = WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(said));
    found.map(|(_, means)| *means).ok_or_else(|| {
        let known: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
        let hint = match crate::expr::nearest(said, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("one of {}", known.join(", ")),
        };
        Problem::new(Code::CronInvalid, format!("the word {said:?} is not known")).hint(hint)
    })
}

fn count(fields: usize) -> Problem {
    let what = format!("a cron expression has 5 fields, or 6 with seconds first; this has {fields}");
    Problem::new(Code::CronInvalid, what).hint("every day at seven: \"0 7 * * *\"")
}

/// For an expression that is well written.
pub(super) fn never(text: &str) -> Problem {
    let what = format!("{:?} never fires: none of its months has such a day", text.trim());
    Problem::new(Code::CronNever, what).hint("for the last day of a month write L").with("field", DAY.name)
}

fn day(text: &str) -> Result<Option<Day>, Problem> {
    let (mut day, mut values) = (Day::default(), Values::default());
    let parts = DAY.parts(text)?;
    for part in &parts {
        let upper = part.to_ascii_uppercase();
        if let Some(to) = upper.strip_suffix('W') {
            if parts.len() > 1 {
                return Err(DAY.wrong(format!("the day {part:?} must stand alone, not in a list")));
            }
            day.nearest = Some(nearest(part, to)?);
        } else if upper.starts_with('L') {
            day.before_last |= 1 << before_last(part, &upper)?;
        } else if upper.split('/').next().is_some_and(|range| range.ends_with("-L")) {
            values.add(DAY.part(&upper.replacen("-L", "-31", 1))?);
        } else {
            values.add(DAY.part(part)?);
        }
    }
    day.values = values.bits;
    Ok((!values.any).then_some(day))
}

/// What stands before the `W`: `15`, `L` or `L-3`.
fn nearest(part: &str, to: &str) -> Result<Nearest, Problem> {
    if to.starts_with('L') {
        return before_last(part, to).map(Nearest::ToBeforeLast);
    }
    let wrong = || {
        let what = format!("the day {part:?} is not a day from 1 to 31 and W, for the weekday nearest to it");
        DAY.wrong(what)
    };
    number(to).filter(|day| (1..=31).contains(day)).map(Nearest::To).ok_or_else(wrong)
}

/// `L` is 0, `L-3` is 3.
fn before_last(part: &str, upper: &str) -> Result<u32, Problem> {
    let read = match upper.strip_prefix('L') {
        Some("") => Some(0),
        Some(rest) => rest.strip_prefix('-').and_then(number).filter(|before| *before <= 30),
        None => None,
    };
    read.ok_or_else(|| {
        DAY.wrong(format!("the day {part:?} is not L, or L-1 to L-30 for days before the last"))
    })
}

fn weekday(text: &str) -> Result<Option<Weekday>, Problem> {
    let (mut weekday, mut values) = (Weekday::default(), Values::default());
    for part in WEEKDAY.parts(text)? {
        if let Some((of, nth)) = part.split_once('#') {
            let nth =
                nth.parse().ok().filter(|n| (1..=5).contains(n) && nth.len() == 1).ok_or_else(|| {
                    let what = format!(
                        "the weekday {part:?} does not end in #1 to #5; a month has no more than five"
                    );
                    WEEKDAY.wrong(what)
                })?;
            let nth: usize = nth;
            weekday.nth[nth - 1] |= 1 << WEEKDAY.value(part, of)?;
        } else if let Some(of) = part.strip_suffix(['L', 'l']).filter(|of| !of.is_empty()) {
            weekday.last |= 1 << WEEKDAY.value(part, of)?;
        } else {
            values.add(WEEKDAY.part(part)?);
        }
    }
    weekday.values = values.bits;
    Ok((!values.any).then_some(weekday))
}
