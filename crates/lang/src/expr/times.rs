//! Parts of instants and durations: `event.time` read as a year, an hour in some zone, minutes of a duration.

use model::Code;

use super::builtins::Part;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::instant::{self, SECOND, civil};
use super::program::Node;
use super::value::Val;

/// What looking up a zone costs.
const ZONE_STEPS: usize = 20;

pub(super) fn part<'a>(eval: &mut Eval<'a, '_>, part: Part, args: &'a [Node], span: Span) -> Out<'a> {
    let value = eval.node(&args[0])?;
    if let Val::Duration(nanos) = value {
        return of_duration(part, nanos, span);
    }
    let nanos = as_instant(eval, &value, &args[0])?;
    let civil = civil(nanos, offset(eval, args.get(1), nanos, span)?);
    Ok(Val::int(match part {
        Part::FullYear => civil.year,
        Part::Month => civil.month - 1,
        Part::MonthFromOne => civil.month,
        Part::Quarter => (civil.month + 2) / 3,
        Part::Date => civil.day,
        Part::DayOfMonth => civil.day - 1,
        Part::DayOfWeek => civil.weekday,
        Part::DayOfYear => civil.day_of_year,
        Part::Hours => civil.hour,
        Part::Minutes => civil.minute,
        Part::Seconds => civil.second,
        Part::Milliseconds => civil.nano / 1_000_000,
    }))
}

/// The day that an instant falls on in a zone: `localDate(now, "Europe/Berlin")` is `"2026-01-31"`.
pub(super) fn local_date<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node], span: Span) -> Out<'a> {
    let nanos = instant_of(eval, &args[0])?;
    let civil = civil(nanos, offset(eval, args.get(1), nanos, span)?);
    Ok(Val::text(format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day)))
}

/// How far the zone is from UTC at that instant; without a zone, UTC.
fn offset<'a>(
    eval: &mut Eval<'a, '_>,
    zone: Option<&'a Node>,
    nanos: i128,
    span: Span,
) -> Result<i64, Fault> {
    let Some(zone) = zone else { return Ok(0) };
    eval.pay(ZONE_STEPS, 0, span)?;
    let name = eval.text_of(zone, "a zone")?;
    instant::offset(&name, nanos).ok_or_else(|| {
        let what = format!("there is no zone {:?}", name.chars().take(60).collect::<String>());
        Fault::new(Code::ExprType, zone.span, what).hint("write \"Europe/Berlin\" or \"+02:00\"")
    })
}

/// All of it in that unit; only milliseconds are a part, which is CEL's way.
fn of_duration<'a>(part: Part, nanos: i128, span: Span) -> Out<'a> {
    let amount = match part {
        Part::Hours => nanos / (3600 * SECOND),
        Part::Minutes => nanos / (60 * SECOND),
        Part::Seconds => nanos / SECOND,
        Part::Milliseconds => nanos % SECOND / 1_000_000,
        _ => {
            let what = "a duration has hours, minutes, seconds and milliseconds only";
            return Err(Fault::new(Code::ExprType, span, what));
        }
    };
    Ok(Val::int(amount as i64))
}

/// An instant, also as text: RFC 3339 or a day.
pub(super) fn instant_of<'a>(eval: &mut Eval<'a, '_>, node: &'a Node) -> Result<i128, Fault> {
    let value = eval.node(node)?;
    as_instant(eval, &value, node)
}

fn as_instant(eval: &Eval<'_, '_>, value: &Val<'_>, node: &Node) -> Result<i128, Fault> {
    let read = match value {
        Val::Timestamp(nanos) => Some(*nanos),
        Val::Text(text) => instant::read(text),
        _ => None,
    };
    read.ok_or_else(|| eval.mismatch(value, node, "an instant is needed, such as \"2026-01-31T09:30:00Z\""))
}

/// A duration, also as text (`P1D`, `1h30m`) or as seconds.
pub(super) fn duration_of<'a>(eval: &mut Eval<'a, '_>, node: &'a Node) -> Result<i128, Fault> {
    let value = eval.node(node)?;
    let read = match &value {
        Val::Duration(nanos) => Some(*nanos),
        Val::Text(text) => instant::parse_duration(text),
        Val::Number(n) if n.to_f64().abs() < 1e10 => Some((n.to_f64() * 1e9) as i128),
        _ => None,
    };
    let read = read.filter(|nanos| instant::duration_in_range(*nanos));
    read.ok_or_else(|| eval.mismatch(&value, node, "a duration is needed, such as \"P1D\" or \"1h30m\""))
}
