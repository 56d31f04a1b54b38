//! One test of one field of an event: `{"field": "payload.items[0].price", "gte": 9}`.
//!
//! A field that is missing passes `exists: false` and `ne`, which is exactly "not `eq`"; every other test
//! of it is no. A field that is there and null exists, and equals `null`. A value of another kind than the
//! test needs is no, never an error.

use std::cmp::Ordering;

use model::{Problem, Timestamp, wildcard};
use regex::Regex;
use serde_json::{Map, Value};

use super::{invalid, kind_of, pointer, refuse_unknown};
use crate::expr::build_regex;
use crate::number::{Number, same};

const OPERATORS: [&str; 13] =
    ["eq", "ne", "in", "contains", "prefix", "suffix", "glob", "regex", "gt", "gte", "lt", "lte", "exists"];

#[derive(Clone, Debug)]
pub(super) struct FieldTest {
    steps: Vec<Step>,
    operator: Operator,
}

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

#[derive(Clone, Debug)]
enum Operator {
    Equal(Value),
    Unequal(Value),
    In(Vec<Value>),
    Contains(Value),
    Prefix(String),
    Suffix(String),
    Glob(Vec<char>),
    Regex(Regex),
    Order(Bound, fn(Ordering) -> bool),
    Exists(bool),
}

/// What to order against. A text that is an instant orders instants, as instants.
#[derive(Clone, Debug)]
enum Bound {
    Number(Number),
    Instant(Timestamp),
    Text(String),
}

impl FieldTest {
    pub(super) fn parse(map: &Map<String, Value>) -> Result<FieldTest, Problem> {
        let Value::String(path) = &map["field"] else {
            return Err(invalid("\"field\" is not a string".into(), "write {\"field\": \"payload.x\", …}")
                .at("/field"));
        };
        let steps = parse_path(path).map_err(|p| p.at("/field"))?;
        let known = ["field"].into_iter().chain(OPERATORS).collect::<Vec<_>>();
        refuse_unknown(map, &known)?;
        let given: Vec<&str> = OPERATORS.into_iter().filter(|op| map.contains_key(*op)).collect();
        let name = match given[..] {
            [name] => name,
            [] => {
                let hint = format!("give one of {}", OPERATORS.join(", "));
                return Err(invalid(format!("the test of field {path:?} has no operator"), &hint));
            }
            [one, two, ..] => {
                let what = format!("the test of field {path:?} has two operators, {one:?} and {two:?}");
                return Err(invalid(what, "write two tests inside {\"and\": […]}"));
            }
        };
        let operator = Operator::parse(name, &map[name]).map_err(|p| p.at(pointer(name)))?;
        Ok(FieldTest { steps, operator })
    }

    /// The field of the event that it reads in.
    pub(super) fn first(&self) -> &str {
        match self.steps.first() {
            Some(Step::Key(key)) => key,
            _ => "",
        }
    }

    pub(super) fn run(&self, event: &Value) -> bool {
        let mut at = Some(event);
        for step in &self.steps {
            at = match (step, at) {
                (Step::Key(key), Some(Value::Object(map))) => map.get(key),
                (Step::Index(n), Some(Value::Array(items))) => items.get(*n),
                _ => None,
            };
        }
        match at {
            Some(value) => self.operator.holds(value),
            None => matches!(self.operator, Operator::Exists(false) | Operator::Unequal(_)),
        }
    }
}

impl Operator {
    fn parse(name: &str, value: &Value) -> Result<Operator, Problem> {
        let wrong = |needs: &str| {
            let what = format!("{name:?} needs {needs}, not {}", kind_of(value));
            let example = match name {
                "in" => "[\"a\", \"b\"]",
                "exists" => "false",
                "prefix" | "suffix" | "glob" | "regex" => "\"text\"",
                _ => "9.5",
            };
            Err(invalid(what, &format!("write {{\"field\": \"payload.x\", {name:?}: {example}}}")))
        };
        Ok(match (name, value) {
            ("eq", _) => Operator::Equal(value.clone()),
            ("ne", _) => Operator::Unequal(value.clone()),
            ("contains", _) => Operator::Contains(value.clone()),
            ("in", Value::Array(items)) => Operator::In(items.clone()),
            ("in", _) => return wrong("a list"),
            ("exists", Value::Bool(wanted)) => Operator::Exists(*wanted),
            ("exists", _) => return wrong("true or false"),
            ("prefix", Value::String(text)) => Operator::Prefix(text.clone()),
            ("suffix", Value::String(text)) => Operator::Suffix(text.clone()),
            ("glob", Value::String(text)) => Operator::Glob(text.chars().collect()),
            ("regex", Value::String(text)) => Operator::Regex(build_regex(text).map_err(|what| {
                invalid(what, "look-around and back-references are not part of this syntax")
            })?),
            ("prefix" | "suffix" | "glob" | "regex", _) => return wrong("a string"),
            (_, Value::Number(n)) => Operator::Order(Bound::Number(Number::of(n)), order(name)),
            (_, Value::String(text)) => {
                let instant = Timestamp::parse(text).ok().map(Bound::Instant);
                Operator::Order(instant.unwrap_or_else(|| Bound::Text(text.clone())), order(name))
            }
            _ => return wrong("a number or a string"),
        })
    }

    fn holds(&self, value: &Value) -> bool {
        let text = value.as_str();
        match self {
            Operator::Equal(want) => same(value, want),
            Operator::Unequal(want) => !same(value, want),
            Operator::In(wanted) => wanted.iter().any(|want| same(value, want)),
            Operator::Contains(part) => match (value, part) {
                (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
                (Value::Array(items), part) => items.iter().any(|item| same(item, part)),
                _ => false,
            },
            Operator::Prefix(part) => text.is_some_and(|text| text.starts_with(part.as_str())),
            Operator::Suffix(part) => text.is_some_and(|text| text.ends_with(part.as_str())),
            Operator::Glob(pattern) => text.is_some_and(|text| glob(pattern, text)),
            Operator::Regex(regex) => text.is_some_and(|text| regex.is_match(text)),
            Operator::Order(bound, test) => bound.order(value).is_some_and(test),
            Operator::Exists(wanted) => *wanted,
        }
    }
}

fn order(name: &str) -> fn(Ordering) -> bool {
    match name {
        "gt" => Ordering::is_gt,
        "gte" => Ordering::is_ge,
        "lt" => Ordering::is_lt,
        _ => Ordering::is_le,
    }
}

impl Bound {
    /// How the field's value stands to the bound; `None` when they are of different kinds.
    fn order(&self, value: &Value) -> Option<Ordering> {
        match (self, value) {
            (Bound::Number(bound), Value::Number(n)) => Number::of(n).compare(*bound),
            (Bound::Instant(bound), Value::String(text)) => Some(Timestamp::parse(text).ok()?.cmp(bound)),
            (Bound::Text(bound), Value::String(text)) => Some(text.as_str().cmp(bound)),
            _ => None,
        }
    }
}

/// The whole text against `*` (any run) and `?` (one character).
fn glob(pattern: &[char], text: &str) -> bool {
    wildcard::matches(pattern, text.chars(), |p| *p == '*', |p, c| *p == '?' || p == c)
}

/// `payload.items[0].x`, `payload["odd key"]`.
fn parse_path(path: &str) -> Result<Vec<Step>, Problem> {
    let wrong = |what: &str| {
        let hint = match path.starts_with('$') {
            true => "a JSONPath goes into {\"jsonpath\": …}",
            false => "write it like payload.items[0].price",
        };
        invalid(format!("the field {path:?} {what}"), hint)
    };
    if path == "$" || path.starts_with("$.") || path.starts_with("$[") {
        return Err(wrong("is a JSONPath"));
    }
    let mut steps = Vec::new();
    let mut rest = path;
    loop {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end == 0 {
            return Err(wrong("has an empty name"));
        }
        steps.push(Step::Key(rest[..end].to_owned()));
        rest = &rest[end..];
        while let Some(inside) = rest.strip_prefix('[') {
            let (step, after) = bracket(inside)
                .ok_or_else(|| wrong("has a bracket that is not a number or a quoted name"))?;
            steps.push(step);
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(steps),
            None => return Err(wrong("goes on after a bracket without a dot")),
        }
    }
}

/// What stands in brackets, and what follows them.
fn bracket(inside: &str) -> Option<(Step, &str)> {
    if let Some(quote) = inside.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let (name, after) = inside[1..].split_once(quote)?;
        return Some((Step::Key(name.to_owned()), after.strip_prefix(']')?));
    }
    let (digits, after) = inside.split_once(']')?;
    Some((Step::Index(digits.parse().ok()?), after))
}
