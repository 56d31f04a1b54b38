//! Conditions: expressions, `and or not`, the time of day, and what rows say; asked by gates, steps and waits.

use std::time::Duration;

use lang::expr::{EntityRef as Ref, Refs};
use model::definition::{self, Bound, Condition, Test, TimeOfDay};
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};

use crate::automation::matching::{at, same, within};
use crate::env::{Env, broken};
use crate::state::State;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const DAY: Duration = Duration::from_secs(86_400);

pub fn test(env: &Env, state: &State, condition: &Condition) -> Result<bool, Problem> {
    match condition {
        Condition::Expr(expr) => env.test(state, expr),
        Condition::Test(Test::And(parts)) => all(parts, |part| test(env, state, part)),
        Condition::Test(Test::Or(parts)) => all(parts, |part| Ok(!test(env, state, part)?)).map(|none| !none),
        Condition::Test(Test::Not(part)) => Ok(!test(env, state, part)?),
        Condition::Test(Test::Time(time)) => in_time(time, env.now),
        Condition::Test(Test::State { entity, field, is, held }) => {
            let Some(id) = &entity.id else { return Ok(false) };
            let row = env.row(state, &entity.concept, id)?;
            let Some(row) = row else { return Ok(is.iter().any(Value::is_null)) };
            let since = row.in_state_since(field.split('.').next().unwrap_or(field));
            let fields = Value::Object(row.fields);
            if !is.iter().any(|one| same(one, at(&fields, field))) {
                return Ok(false);
            }
            match held {
                Some(held) => Ok(since.plus(env.length(state, held)?) <= env.now),
                None => Ok(true),
            }
        }
        Condition::Test(Test::NumericState { value, above, below }) => {
            let value = env.eval(state, value)?;
            within(state, &env.space, &value, above.as_ref(), below.as_ref()).map_err(broken)
        }
    }
}

/// The first that does not hold decides; without one, the first that erred.
fn all(
    parts: &[Condition],
    mut holds: impl FnMut(&Condition) -> Result<bool, Problem>,
) -> Result<bool, Problem> {
    let mut failed = None;
    for part in parts {
        match holds(part) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(problem) => failed = failed.or(Some(problem)),
        }
    }
    failed.map_or(Ok(true), Err)
}

/// What it reads, joined over its parts; wakes a wait.
pub fn refs(condition: &Condition) -> Refs {
    let mut refs = Refs::default();
    match condition {
        Condition::Expr(expr) => refs = Refs::of(&expr.0),
        Condition::Test(Test::And(parts) | Test::Or(parts)) => {
            parts.iter().for_each(|part| refs.join(self::refs(part)));
        }
        Condition::Test(Test::Not(part)) => refs = self::refs(part),
        Condition::Test(Test::Time(_)) => refs.now = true,
        Condition::Test(Test::State { entity, held, .. }) => {
            refs.row(row_of(entity));
            refs.now = held.is_some();
        }
        Condition::Test(Test::NumericState { value, above, below }) => {
            refs = Refs::of(&value.0);
            for bound in [above, below].into_iter().flatten() {
                if let Bound::Field { entity, .. } = bound {
                    refs.row(row_of(entity));
                }
            }
        }
    }
    refs
}

/// What the clock says where each time of day is asked for, and whether that holds; for who asks why.
pub fn times(condition: &Condition, now: Timestamp) -> Vec<Value> {
    match condition {
        Condition::Test(Test::And(parts) | Test::Or(parts)) => {
            parts.iter().flat_map(|part| times(part, now)).collect()
        }
        Condition::Test(Test::Not(part)) => times(part, now),
        Condition::Test(Test::Time(time)) => {
            let (Ok((weekday, second)), Ok(holds)) = (local(now, time.tz.as_deref()), in_time(time, now))
            else {
                return Vec::new();
            };
            let clock = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
            let tz = time.tz.as_deref().unwrap_or("UTC");
            vec![json!({"is": clock, "weekday": weekday, "tz": tz, "holds": holds})]
        }
        _ => Vec::new(),
    }
}

/// When a condition that reads time is worth another try though no row changes: when its value can next change; once a day at
/// the least.
pub fn next_try(env: &Env, state: &State, condition: &Condition) -> Timestamp {
    turn(env, state, condition).into_iter().chain([env.now.plus(DAY)]).min().unwrap_or(env.now)
}

fn turn(env: &Env, state: &State, condition: &Condition) -> Option<Timestamp> {
    match condition {
        Condition::Expr(expr) | Condition::Test(Test::NumericState { value: expr, .. })
            if Refs::of(&expr.0).now =>
        {
            env.next_turn(state, expr).unwrap_or_else(|_| Some(next_minute(env.now)))
        }
        Condition::Test(Test::And(parts) | Test::Or(parts)) => {
            parts.iter().filter_map(|part| turn(env, state, part)).min()
        }
        Condition::Test(Test::Not(part)) => turn(env, state, part),
        Condition::Test(Test::Time(time)) => Some(next_boundary(time, env.now)),
        Condition::Test(Test::State { entity, field, held: Some(held), .. }) => {
            let row = env.row(state, &entity.concept, entity.id.as_ref()?).ok().flatten()?;
            let since = row.in_state_since(field.split('.').next().unwrap_or(field));
            Some(since.plus(env.length(state, held).ok()?)).filter(|at| *at > env.now)
        }
        Condition::Expr(_) | Condition::Test(Test::State { .. } | Test::NumericState { .. }) => None,
    }
}

fn next_minute(now: Timestamp) -> Timestamp {
    Timestamp::from_nanos((now.nanos().div_euclid(MINUTE) + 1) * MINUTE)
}

/// The next full minute, or a boundary that lies before it.
fn next_boundary(time: &TimeOfDay, now: Timestamp) -> Timestamp {
    let minute = next_minute(now);
    let Ok((_, second)) = local(now, time.tz.as_deref()) else { return minute };
    let bounds =
        [&time.after, &time.before].into_iter().flatten().filter_map(|text| second_of_day(text).ok());
    let full = now.nanos().div_euclid(SECOND) * SECOND;
    let ahead = bounds.map(|bound| (i128::from(bound) - i128::from(second)).rem_euclid(86_400));
    let ahead = ahead.filter(|seconds| *seconds > 0).map(|n| Timestamp::from_nanos(full + n * SECOND));
    ahead.chain([minute]).min().unwrap_or(minute)
}

fn row_of(entity: &definition::EntityRef) -> Ref {
    let kind = entity.concept.clone();
    match &entity.id {
        Some(id) => Ref::One { kind, id: id.clone() },
        None => Ref::All { kind },
    }
}

/// `after` is in it, `before` is not; over midnight when `after` is the later one.
fn in_time(time: &TimeOfDay, now: Timestamp) -> Result<bool, Problem> {
    let (weekday, second) = local(now, time.tz.as_deref())?;
    if !time.weekday.is_empty() && !time.weekday.contains(&weekday) {
        return Ok(false);
    }
    let clock = |text: &Option<String>| text.as_deref().map(second_of_day).transpose();
    Ok(match (clock(&time.after)?, clock(&time.before)?) {
        (Some(after), Some(before)) if after <= before => (after..before).contains(&second),
        (Some(after), Some(before)) => second >= after || second < before,
        (Some(after), None) => second >= after,
        (None, Some(before)) => second < before,
        (None, None) => true,
    })
}

/// `HH:mm` or `HH:mm:ss`.
pub fn second_of_day(text: &str) -> Result<u32, Problem> {
    let mut parts = text.split(':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (parts.next().flatten(), parts.next().flatten(), parts.next());
    match (hour, minute, second.unwrap_or(Some(0))) {
        (Some(hour @ 0..24), Some(minute @ 0..60), Some(second @ 0..60)) => {
            Ok(hour * 3_600 + minute * 60 + second)
        }
        _ => Err(Problem::new(Code::DefinitionInvalid, format!("\"{text}\" is not a time of day"))
            .hint("write it like 22:00")),
    }
}

/// The weekday (0 is Sunday) and the second of the day where it is `now`.
fn local(now: Timestamp, tz: Option<&str>) -> Result<(u8, u32), Problem> {
    let zone = lang::cron::Zone::parse(tz.unwrap_or("UTC"))?;
    let seconds = now.nanos().div_euclid(1_000_000_000) as i64 + zone.offset_at(now);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    Ok(((days + 4).rem_euclid(7) as u8, second as u32))
}
