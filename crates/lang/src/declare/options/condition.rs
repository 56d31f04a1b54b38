//! Conditions: an expression, or and, or, not, time, state, numeric_state.

use model::Code;
use model::definition::{Bound, EntityRef, TimeOfDay};

use super::trigger::{bound, placed, zone};
use super::{Pairs, entity_ref};
use crate::declare::doc::{Doc, Kind, Read, get, only, parse_within};
use crate::declare::finding::{fault, suggest};
use crate::declare::print::quoted;
use crate::declare::tree::{Condition, Watched, Word};
use crate::expr::ast::Node;
use crate::expr::fault::Fault;

const KINDS: [&str; 6] = ["and", "or", "not", "time", "state", "numeric_state"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

pub(crate) fn condition(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Condition> {
    let Kind::Map(pairs) = &doc.kind else { return doc.expr().map(Condition::Expr) };
    let [(key, inner)] = pairs.as_slice() else {
        return Err(doc.wrong("a condition with one key").hint(format!("one of {}", KINDS.join(", "))));
    };
    match key.text.as_str() {
        "and" => Ok(Condition::And(conditions(inner, faults)?)),
        "or" => Ok(Condition::Or(conditions(inner, faults)?)),
        "not" => Ok(Condition::Not(Box::new(match &inner.kind {
            Kind::List(_) => Condition::Or(conditions(inner, faults)?),
            _ => condition(inner, faults)?,
        }))),
        "time" => time(inner, faults).map(Condition::Time),
        "state" => state(inner, faults),
        "numeric_state" => numeric(inner, faults),
        other => {
            let what = format!("there is no condition {other:?}");
            Err(suggest(fault(Code::DefinitionUnknownKey, key.span, what), other, KINDS))
        }
    }
}

fn conditions(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Vec<Condition>> {
    let items = doc.list("a list of conditions")?;
    if items.is_empty() {
        return Err(doc.wrong("at least one condition"));
    }
    items.iter().map(|item| condition(item, faults)).collect()
}

fn time(doc: &Doc, faults: &mut Vec<Fault>) -> Read<TimeOfDay> {
    let pairs = doc.map("after, before, weekday, tz")?;
    only(pairs, "time", &["after", "before", "weekday", "tz"], faults);
    let clock = |key: &str| get(pairs, key).map(clock).transpose();
    let time = TimeOfDay {
        after: clock("after")?,
        before: clock("before")?,
        weekday: get(pairs, "weekday").map(weekdays).transpose()?.unwrap_or_default(),
        tz: get(pairs, "tz").map(zone).transpose()?,
    };
    if time.after.is_none() && time.before.is_none() && time.weekday.is_empty() {
        return Err(doc.wrong("time with \"after\", \"before\" or \"weekday\""));
    }
    Ok(time)
}

/// `HH:mm` or `HH:mm:ss`.
fn clock(doc: &Doc) -> Read<String> {
    let word = doc.text("a time such as \"22:00\"")?;
    let parts: Vec<Option<u32>> = word.text.split(':').map(|part| part.parse().ok()).collect();
    let fits = match parts.as_slice() {
        [Some(h), Some(m)] => *h < 24 && *m < 60,
        [Some(h), Some(m), Some(s)] => *h < 24 && *m < 60 && *s < 60,
        _ => false,
    };
    if fits { Ok(word.text) } else { Err(doc.wrong("a time such as \"22:00\"")) }
}

fn weekdays(doc: &Doc) -> Read<Vec<u8>> {
    let words = doc.texts("a weekday, such as mon")?;
    words.iter().map(weekday).collect()
}

fn weekday(word: &Word) -> Read<u8> {
    let lower = word.text.to_lowercase();
    let by_name = DAYS.iter().position(|day| lower.starts_with(day));
    let by_number = lower.parse::<u8>().ok().filter(|day| *day <= 7).map(|day| usize::from(day % 7));
    by_name.or(by_number).map(|day| day as u8).ok_or_else(|| {
        let what = format!("there is no weekday {:?}", word.text);
        suggest(fault(Code::DefinitionInvalid, word.span, what), &lower, DAYS)
    })
}

fn entity(pairs: &Pairs, doc: &Doc) -> Read<(EntityRef, String)> {
    let lacks = || doc.wrong("\"entity\" (concept/id) and \"field\"");
    let entity = entity_ref(&get(pairs, "entity").ok_or_else(lacks)?.text("concept/id")?)?;
    if entity.id.is_none() {
        return Err(lacks());
    }
    Ok((entity, get(pairs, "field").ok_or_else(lacks)?.text("a field")?.text))
}

fn state(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Condition> {
    let pairs = doc.map("entity, field, is")?;
    only(pairs, "state", &["entity", "field", "is", "to", "state", "status", "for"], faults);
    let (entity, field) = match get(pairs, "field") {
        Some(_) => entity(pairs, doc)?,
        None if get(pairs, "status").is_some() => {
            let lacks = || doc.wrong("\"entity\" (concept/id)");
            let entity = entity_ref(&get(pairs, "entity").ok_or_else(lacks)?.text("concept/id")?)?;
            (entity, "status".to_owned())
        }
        None => return Err(doc.wrong("state with \"field\"")),
    };
    let is = ["is", "to", "state", "status"].iter().find_map(|key| get(pairs, key));
    let is = is.ok_or_else(|| doc.wrong("state with \"is\""))?;
    let place = |key: &str| get(pairs, key).map(|doc| doc.span);
    let watched = Watched { field: place("field"), values: placed(is) };
    let is = match is.literal()? {
        serde_json::Value::Array(items) => items,
        one => vec![one],
    };
    let held = get(pairs, "for").map(Doc::length).transpose()?;
    let place = place("entity").unwrap_or(doc.span);
    Ok(Condition::State { entity, place, field, is, watched, held })
}

fn numeric(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Condition> {
    let pairs = doc.map("value or entity and field, above, below")?;
    only(pairs, "numeric_state", &["value", "entity", "field", "above", "below"], faults);
    let value = match get(pairs, "value") {
        Some(value) => value.expr()?,
        None => {
            let (entity, field) = entity(pairs, doc)?;
            row_field(&entity, &field, doc)?
        }
    };
    let (above, below) = bounds(doc, get(pairs, "above"), get(pairs, "below"))?;
    Ok(Condition::Numeric { value, place: doc.span, above, below })
}

/// Between what a number has to be: at least one of them, and with room in between.
pub(super) fn bounds(
    doc: &Doc,
    above: Option<&Doc>,
    below: Option<&Doc>,
) -> Read<(Option<Bound>, Option<Bound>)> {
    let bounds = (above.map(bound).transpose()?, below.map(bound).transpose()?);
    match &bounds {
        (None, None) => Err(doc.wrong("numeric_state with \"above\" or \"below\"")),
        (Some(Bound::Number(above)), Some(Bound::Number(below))) if above >= below => Err(doc
            .wrong("numeric_state with \"above\" less than \"below\": no number is between them otherwise")),
        _ => Ok(bounds),
    }
}

/// `state["concept"]["id"].field`
fn row_field(entity: &EntityRef, field: &str, doc: &Doc) -> Read<Node> {
    let id = entity.id.as_deref().unwrap_or_default();
    parse_within(&format!("state[{}][{}].{field}", quoted(&entity.concept), quoted(id)), doc.span, 0)
}
