//! Whether an event is what a trigger waits for, before its filter: changes of rows are looked at here.

use model::definition::{Bound, EntityRef, TriggerKind};
use model::event::{Event, Subject};
use serde_json::Value;

use crate::state::{Result, State};

/// `event` is the event as a value; its topic is known to fit. Thresholds may be fields of other rows.
pub fn matches(state: &State, on: &TriggerKind, event: &Event, value: &Value) -> Result<bool> {
    Ok(match on {
        TriggerKind::State { entities, field, from, to, not_from, not_to } => {
            let Some((old, new)) = change_of(entities, event, value, field) else { return Ok(false) };
            let one_of = |list: &Option<Vec<Value>>, value: &Value| {
                list.as_ref().is_none_or(|list| list.iter().any(|one| same(one, value)))
            };
            let none_of = |list: &[Value], value: &Value| !list.iter().any(|one| same(one, value));
            old != new
                && one_of(from, old)
                && one_of(to, new)
                && none_of(not_from, old)
                && none_of(not_to, new)
        }
        TriggerKind::NumericState { entities, field, above, below } => {
            let Some((old, new)) = change_of(entities, event, value, field) else { return Ok(false) };
            let space = event.envelope.space.as_str();
            let within = |value: &Value| within(state, space, value, above.as_ref(), below.as_ref());
            // What first appears past the threshold has not crossed it.
            number(old).is_some() && within(new)? && !within(old)?
        }
        _ => true,
    })
}

/// Which rows and which field of them a trigger looks at, if it does.
pub fn watched(on: &TriggerKind) -> Option<(&[EntityRef], &str)> {
    match on {
        TriggerKind::State { entities, field, .. } | TriggerKind::NumericState { entities, field, .. } => {
            Some((entities, field))
        }
        _ => None,
    }
}

/// The field before and after, when the event is a change of one of these rows.
fn change_of<'a>(
    entities: &[EntityRef],
    event: &Event,
    value: &'a Value,
    field: &str,
) -> Option<(&'a Value, &'a Value)> {
    is_named(entities, event)
        .then(|| (at(&value["payload"]["prev"], field), at(&value["payload"]["next"], field)))
}

/// Whether the event is about one of these rows.
pub fn is_named(entities: &[EntityRef], event: &Event) -> bool {
    let named = |subject: &Subject| {
        entities.iter().any(|entity| {
            entity.concept == subject.kind && entity.id.as_ref().is_none_or(|id| *id == subject.id)
        })
    };
    event.envelope.subject.as_ref().is_some_and(named)
}

/// A field by its dotted path; null when it is not there.
pub fn at<'a>(row: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(row, |value, step| value.get(step).unwrap_or(&Value::Null))
}

/// Equal as values; numbers by their value, and a number equals its text, as states are often texts.
pub fn same(a: &Value, b: &Value) -> bool {
    a == b
        || match (a, b) {
            (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (Value::Number(n), Value::String(text)) | (Value::String(text), Value::Number(n)) => {
                *text == n.to_string()
            }
            (Value::Bool(yes), Value::String(text)) | (Value::String(text), Value::Bool(yes)) => {
                *text == yes.to_string()
            }
            _ => false,
        }
}

/// Finite numbers, and texts that are one.
pub fn number(value: &Value) -> Option<f64> {
    let n = match value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    n.filter(|n| n.is_finite())
}

/// Strictly between the bounds that are given; a bound that is no number holds for nothing.
pub fn within(
    state: &State,
    space: &str,
    value: &Value,
    above: Option<&Bound>,
    below: Option<&Bound>,
) -> Result<bool> {
    let Some(n) = number(value) else { return Ok(false) };
    let over = match above {
        Some(bound) => threshold(state, space, bound)?.is_some_and(|bound| n > bound),
        None => true,
    };
    let under = match below {
        Some(bound) => threshold(state, space, bound)?.is_some_and(|bound| n < bound),
        None => true,
    };
    Ok(over && under && (above.is_some() || below.is_some()))
}

fn threshold(state: &State, space: &str, bound: &Bound) -> Result<Option<f64>> {
    Ok(match bound {
        Bound::Number(n) => Some(*n),
        Bound::Field { entity, field } => {
            let Some(id) = &entity.id else { return Ok(None) };
            let row = state.row_near(&entity.concept, space, id)?;
            row.and_then(|row| number(at(&Value::Object(row.fields), field)))
        }
    })
}
