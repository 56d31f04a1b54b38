//! `everwhen try expr` (contracts §5): an expression over values that the line brings along.
//!
//! ```text
//!  {"expr": "event.n + x", "with": {"event": {"n": 1}}, "bindings": {"x": {"int": "2"}}, "now": "2026-…Z"}
//!  {"value": 3, "type": "int"}
//! ```
//! An unknown name is an error when it is needed, as in CEL, so that `x || true` is true.

use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value};

use crate::expr::{Expr, Scope, Val, from_base64, parse_duration, parse_instant};
use crate::number::Number;

/// The names that automations, filters and templates may begin with (contracts §8).
pub const ROOTS: [&str; 19] = [
    "event", "topic", "payload", "subject", "trigger", "input", "args", "vars", "steps", "state", "health",
    "item", "index", "wait", "actor", "now", "prev", "next", "delta",
];

/// `value` and `type` of a case; `now` is what it calls so when it does not say.
pub fn answer(case: &Map<String, Value>, now: Timestamp) -> Result<Map<String, Value>, Problem> {
    let Some(source) = case.get("expr").and_then(Value::as_str) else {
        return Err(Problem::new(Code::RequestInvalid, "the line needs \"expr\", a string"));
    };
    let now = match case.get("now").filter(|now| !now.is_null()) {
        Some(now) => now.as_str().and_then(parse_instant).ok_or_else(|| wrong("now", "an instant"))?,
        None => now.nanos(),
    };
    let (mut names, mut values) = bound(case)?;
    if !names.contains(&"now") {
        names.push("now");
        values.push(Val::Timestamp(now));
    }
    let expr = Expr::compile(source, &Scope { late: true, ..Scope::of(&names) })?;
    let value = expr.eval(&values)?;
    let kind = value.type_name();
    Ok(Map::from_iter([("value".into(), value.to_json()?), ("type".into(), kind.into())]))
}

/// Names and values of `with`, which is plain JSON, and `bindings`, which names its types.
fn bound(case: &Map<String, Value>) -> Result<(Vec<&str>, Vec<Val<'_>>), Problem> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (part, typed) in [("bindings", true), ("with", false)] {
        let Some(given) = case.get(part).filter(|given| !given.is_null()) else { continue };
        let given = given.as_object().ok_or_else(|| wrong(part, "an object of names and values"))?;
        for (name, value) in given {
            let value = if typed { read(value) } else { Some(Val::of(value)) };
            values.push(value.ok_or_else(|| wrong(&format!("bindings.{name}"), "a typed value"))?);
            names.push(name.as_str());
        }
    }
    Ok((names, values))
}

fn wrong(name: &str, what: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("{name:?} is not {what}"))
        .hint("write \"with\": {\"x\": 1} or \"bindings\": {\"x\": {\"int\": \"1\"}}")
}

/// `{"int": "1"}`, `{"list": [typed …]}`, `{"map": [[typed, typed] …]}`, and so on.
fn read(value: &Value) -> Option<Val<'_>> {
    let (kind, inner) = value.as_object().filter(|map| map.len() == 1)?.iter().next()?;
    let text = inner.as_str();
    Some(match kind.as_str() {
        "null" => Val::Null,
        "bool" => Val::Bool(inner.as_bool()?),
        "int" => Val::int(text.map_or_else(|| inner.as_i64(), |text| text.parse().ok())?),
        "uint" => Val::Number(Number::Uint(text.map_or_else(|| inner.as_u64(), |text| text.parse().ok())?)),
        "double" => Val::double(match text {
            Some("NaN") => f64::NAN,
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            Some(text) => text.parse().ok()?,
            None => inner.as_f64()?,
        }),
        "string" => Val::text(text?),
        "bytes" | "bytes_b64" => Val::Bytes(from_base64(text?)?.into()),
        "timestamp" => Val::Timestamp(parse_instant(text?)?),
        "duration" => Val::Duration(parse_duration(text?)?),
        "list" => Val::list(inner.as_array()?.iter().map(read).collect::<Option<_>>()?),
        "map" => {
            let pair = |pair: &'_ Value| pair.as_array().filter(|pair| pair.len() == 2).is_some();
            let pairs = inner.as_array().filter(|pairs| pairs.iter().all(pair))?;
            let pairs = pairs.iter().map(|pair| Some((read(&pair[0])?, read(&pair[1])?)));
            Val::map(pairs.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
