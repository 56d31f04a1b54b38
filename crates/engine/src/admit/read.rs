//! One field of a draft, from its raw JSON text to its type, with a problem that names the field when it is
//! another.

use std::borrow::Cow;
use std::time::Duration;

use model::event::{Band, Subject};
use model::json::{self, Field};
use model::suggest::nearest;
use model::time::parse_duration;
use model::{Code, Position, Problem, Timestamp};
use serde_json::value::RawValue;

use super::draft::raw;
use super::payload::Payload;
use crate::settings::Limits;

pub(super) fn text(name: &str, value: &str) -> Result<String, Problem> {
    text_of(name, value).map(Cow::into_owned)
}

fn text_of<'a>(name: &str, value: &'a str) -> Result<Cow<'a, str>, Problem> {
    json::unquote(value).ok_or_else(|| wrong(name, value, "text"))
}

pub(super) fn time(name: &str, value: &str) -> Result<Timestamp, Problem> {
    Timestamp::parse(&text_of(name, value)?).map_err(|problem| {
        Problem::new(Code::EventInvalid, format!("{:?}: {problem}", name)).hint(TIME).at(at(name))
    })
}

const TIME: &str = "write it like 2026-01-31T09:30:00Z";

pub(super) fn integer(name: &str, value: &str) -> Result<i64, Problem> {
    value.parse().map_err(|_| wrong(name, value, "an integer"))
}

pub(super) fn position(name: &str, value: &str) -> Result<Position, Problem> {
    match value.parse() {
        Ok(position) if position >= 1 => Ok(position),
        _ => Err(wrong(name, value, "a position, an integer from 1 on")),
    }
}

pub(super) fn priority(name: &str, value: &str) -> Result<u8, Problem> {
    match value.parse() {
        Ok(priority @ 0..=9) => Ok(priority),
        _ => Err(wrong(name, value, "an integer from 0 to 9")),
    }
}

pub(super) fn band(name: &str, value: &str) -> Result<Band, Problem> {
    let band = json::unquote(value).and_then(|text| Band::parse(&text));
    band.ok_or_else(|| wrong(name, value, "one of green, amber, red, black"))
}

pub(super) fn duration(name: &str, value: &str) -> Result<Duration, Problem> {
    let parsed = match json::unquote(value) {
        Some(text) => parse_duration(&text),
        None => value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    };
    parsed.ok_or_else(|| wrong(name, value, "a duration such as \"30s\", \"PT5M\" or a number of seconds"))
}

/// `{"kind":…,"id":…}`, both and nothing else.
pub(super) fn subject(name: &str, value: &str) -> Result<Subject, Problem> {
    let shape = "an object {\"kind\":…,\"id\":…}";
    let mut kind = None;
    let mut id = None;
    for Field { key, value: member } in members(value).ok_or_else(|| wrong(name, value, shape))? {
        match key.as_ref() {
            "kind" => kind = Some(text("kind", member).map_err(|problem| problem.within(&at(name)))?),
            "id" => id = Some(text("id", member).map_err(|problem| problem.within(&at(name)))?),
            other => return Err(unknown(other, &["kind", "id"]).within(&at(name))),
        }
    }
    match (kind, id) {
        (Some(kind), Some(id)) => Ok(Subject { kind, id }),
        _ => Err(wrong(name, value, shape)),
    }
}

pub(super) fn ext(name: &str, value: &str) -> Result<Box<RawValue>, Problem> {
    match members(value) {
        Some(_) => Ok(raw(value)),
        None => Err(wrong(name, value, "an object of extensions")),
    }
}

/// Any JSON value, a part of what the scanner has read; too long is said before it is copied.
pub(super) fn payload(value: &str, limits: &Limits) -> Result<Payload, Problem> {
    check_size("payload", value.len(), limits)?;
    Ok(Payload::scanned(value, limits))
}

pub(super) fn check_size(name: &str, bytes: usize, limits: &Limits) -> Result<(), Problem> {
    if bytes <= limits.max_payload {
        return Ok(());
    }
    let detail = format!("\"{name}\" has {bytes} bytes, more than {}", limits.max_payload);
    Err(Problem::new(Code::BodyTooLarge, detail)
        .hint("put large content elsewhere and publish where it is")
        .at(at(name))
        .with("limit", limits.max_payload))
}

/// The members of a part of a text that was checked as a whole; `None` when it is no object.
pub(super) fn members(value: &str) -> Option<Vec<Field<'_>>> {
    json::fields(value.as_bytes(), usize::MAX >> 1).ok().flatten()
}

/// A field of the wrong type. `null` is no way to leave a field out.
pub(super) fn wrong(name: &str, value: &str, wanted: &str) -> Problem {
    let shown: String = value.chars().take(60).collect();
    let dots = if shown.len() < value.len() { "…" } else { "" };
    let hint = if value == "null" { "leave the field out".to_owned() } else { format!("write {wanted}") };
    Problem::new(Code::EventInvalid, format!("\"{name}\" is {shown}{dots}, not {wanted}"))
        .hint(hint)
        .at(at(name))
}

/// A field nobody knows, with the nearest one that is known.
pub(super) fn unknown(name: &str, known: &[&str]) -> Problem {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"? what is your own goes into \"ext\" or \"payload\""),
        None => format!("known are {}; what is your own goes into \"ext\" or \"payload\"", known.join(", ")),
    };
    let shown: String = name.chars().take(60).collect();
    Problem::new(Code::EventInvalid, format!("unknown field {shown:?}")).hint(hint).at(at(name))
}

/// The pointer of a field.
pub(super) fn at(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
