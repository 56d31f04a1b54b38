//! Values as SQLite compares them: which values of a column hold every row that a comparison wants.
//!
//! SQLite orders no value, then numbers, then texts; a comparison of the language holds only inside one kind, so that what lies
//! beyond in another kind is left to the expression. Texts are compared by their bytes in both.

use lang::expr::Val;
use lang::number::Number;
use model::Timestamp;
use model::time::parse_duration;
use rusqlite::types::Value as Sql;

use super::narrow::Op;
use crate::entity::check::instant;

/// What a column is compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Plain,
    /// A text without the `Z` at its end.
    Instant,
    /// A number of seconds.
    Length,
}

/// Values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// One of these; null among them is no value.
    OneOf(Vec<Sql>),
    /// Between these, each with whether it is wanted itself.
    Between(Option<(Sql, bool)>, Option<(Sql, bool)>),
}

impl Want {
    /// Whether rows that have it have one value.
    pub fn is_one(&self) -> bool {
        matches!(self, Want::OneOf(values) if values.len() == 1)
    }
}

/// Whole numbers up to here are the same as integers and as doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Values in a list that are looked for one by one.
const VALUES_MAX: usize = 500;

/// `None` when it cannot be said.
pub fn want(op: Op, of: Of, value: &Val<'_>) -> Option<Want> {
    if op == Op::In {
        return among(of, value);
    }
    if op == Op::Equal
        && let Some(values) = equal(of, value)
    {
        return Some(Want::OneOf(values));
    }
    if matches!(value, Val::Null) {
        // An order against nothing is a no.
        return Some(Want::OneOf(Vec::new()));
    }
    let bound = bound(of, value)?;
    let low = || Some((bound.low.clone(), true));
    let high = || Some((bound.high.clone(), true));
    let beyond = |near| Some(bound.exact.clone().map_or((near, true), |exact| (exact, false)));
    Some(match op {
        Op::Equal => Want::Between(low(), high()),
        Op::Less => Want::Between(None, beyond(bound.high.clone())),
        Op::LessEqual => Want::Between(None, high()),
        Op::Greater => Want::Between(beyond(bound.low.clone()), None),
        Op::GreaterEqual => Want::Between(low(), None),
        Op::In => return None,
    })
}

fn among(of: Of, list: &Val<'_>) -> Option<Want> {
    let values: Vec<Vec<Sql>> = match list {
        Val::Array(items) if items.len() <= VALUES_MAX => {
            items.iter().map(|item| equal(of, &Val::of(item))).collect::<Option<_>>()?
        }
        Val::List(items, _) if items.len() <= VALUES_MAX => {
            items.iter().map(|item| equal(of, item)).collect::<Option<_>>()?
        }
        _ => return None,
    };
    Some(Want::OneOf(values.into_iter().flatten().collect()))
}

/// What equals the value, when that is a few values.
fn equal(of: Of, value: &Val<'_>) -> Option<Vec<Sql>> {
    match (of, value) {
        // What is missing equals the empty text, on either side.
        (_, Val::Null) => Some(vec![Sql::Null, Sql::Text(String::new())]),
        (_, Val::Text(text)) if text.is_empty() => Some(vec![Sql::Null, Sql::Text(String::new())]),
        (Of::Length, _) => None,
        _ => bound(of, value)?.exact.map(|exact| vec![exact]),
    }
}

/// A value as a bound from below and from above: apart where SQLite may hold what equals the value as something a little
/// beside it.
struct Bound {
    low: Sql,
    high: Sql,
    /// What is beyond the value is also beyond this for SQLite.
    exact: Option<Sql>,
}

impl Bound {
    fn at(value: Sql) -> Bound {
        Bound { low: value.clone(), high: value.clone(), exact: Some(value) }
    }

    fn around(value: f64, slack: f64) -> Option<Bound> {
        let slack = slack + value.abs() * 2f64.powi(-50) + f64::MIN_POSITIVE;
        let (low, high) = (Sql::Real(value - slack), Sql::Real(value + slack));
        value.is_finite().then_some(Bound { low, high, exact: None })
    }
}

fn bound(of: Of, value: &Val<'_>) -> Option<Bound> {
    match (of, value) {
        (Of::Plain, Val::Text(text)) => Some(Bound::at(Sql::Text(text.to_string()))),
        (Of::Plain, Val::Bool(yes)) => Some(Bound::at(Sql::Integer((*yes).into()))),
        (Of::Plain, Val::Number(number)) => match number {
            _ if !is_exact(*number) => Bound::around(number.to_f64(), 0.0),
            Number::Int(n) => Some(Bound::at(Sql::Integer(*n))),
            _ => Some(Bound::at(Sql::Real(number.to_f64()))),
        },
        (Of::Instant, Val::Text(text)) => Some(Bound::at(moment(instant(text)?))),
        (Of::Instant, Val::Timestamp(nanos)) => Some(Bound::at(moment(Timestamp::from_nanos(*nanos)))),
        (Of::Length, value) => {
            let (seconds, is_whole) = seconds(value)?;
            let is_whole = is_whole && seconds.fract() == 0.0 && seconds.abs() < EXACT_MAX;
            // Rows are compared by the nanosecond: one that is beyond a whole second as such is so as a number.
            Some(Bound { exact: is_whole.then_some(Sql::Real(seconds)), ..Bound::around(seconds, 2e-9)? })
        }
        _ => None,
    }
}

fn moment(at: Timestamp) -> Sql {
    Sql::Text(at.to_string().trim_end_matches('Z').to_owned())
}

/// A duration in seconds, and whether none of its digits can have been lost on the way.
fn seconds(value: &Val<'_>) -> Option<(f64, bool)> {
    match value {
        Val::Number(number) => Some((number.to_f64(), true)),
        Val::Duration(nanos) => Some((*nanos as f64 / 1e9, nanos % 1_000_000_000 == 0)),
        Val::Text(text) => Some((parse_duration(text)?.as_secs_f64(), !text.contains('.'))),
        _ => None,
    }
}

/// Whether what equals the number in the language equals it in SQLite. Integers beyond 53 bits beside doubles are compared as
/// doubles in the one and exactly in the other, and the last of many digits is read with less care.
fn is_exact(number: Number) -> bool {
    let value = number.to_f64();
    if value.fract() == 0.0 {
        return value.abs() < EXACT_MAX;
    }
    let written = format!("{value:e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    value.is_finite() && digits <= 15 && exponent.parse::<i32>().is_ok_and(|e| e.abs() <= 20)
}
