//! Filters (contracts §5): which of the events that match a pattern are wanted; the last question before
//! delivery.
//!
//! ```text
//!  "event.payload.new > 9"                                an expression
//!  {"field": "payload.price", "gt": 9}                    one test of one field
//!  {"jsonpath": "$..sku", "eq": "A7"}                     any node, or any node equal to a value
//!  {"and": […]}  {"or": […]}  {"not": …}
//! ```
//! Compiled once. A test answers yes or no; only an expression can fail, and the caller counts that as "no".
//! `and` and `or` forgive a failing part as `&&` and `||` do.

use model::{Code, Problem};
use serde_json::{Map, Value};

use crate::expr::{Expr, Scope, Val, nearest};
use crate::jsonpath::JsonPath;
use crate::number::same;

mod field;

#[cfg(test)]
mod tests;

use field::FieldTest;

/// Tests that one filter may hold.
const TESTS_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Filter {
    test: Test,
    fields: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
enum Test {
    Expr(Box<Expr>),
    Field(FieldTest),
    Path { path: JsonPath, eq: Option<Value> },
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
}

impl Filter {
    /// Compiles a filter. Fails with `filter.invalid`, also for what is wrong inside an expression, or with
    /// `jsonpath.invalid`; `pointer` says which part.
    pub fn parse(filter: &Value) -> Result<Filter, Problem> {
        let mut tests = 0;
        let test = Test::parse(filter, &mut tests)?;
        let mut fields = Some(Vec::new());
        test.reads(&mut fields);
        Ok(Filter { test, fields })
    }

    /// From a command line or a query string: JSON when it begins with `{`, else an expression.
    pub fn parse_text(text: &str) -> Result<Filter, Problem> {
        if !text.trim_start().starts_with('{') {
            return Filter::parse(&Value::from(text));
        }
        model::json::check(text.as_bytes(), 64)?;
        let value = serde_json::from_str(text).map_err(|err| {
            Problem::new(Code::JsonInvalid, format!("the filter is not readable: {err}"))
                .hint("check its JSON")
        })?;
        Filter::parse(&value)
    }

    /// Whether the event passes. `event` is the whole envelope of contracts §2, defaults filled in. An
    /// error is an expression's: for delivery it means "does not match", and is counted.
    pub fn test(&self, event: &Value) -> Result<bool, Problem> {
        self.test.run(event)
    }

    /// The fields of the event that it may read; `None` when it may read any.
    pub fn fields(&self) -> Option<&[String]> {
        self.fields.as_deref()
    }

    /// Whether it may read the payload: without need the caller need not parse it.
    pub fn needs_payload(&self) -> bool {
        self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == "payload"))
    }
}

/// An expression's problem as one of the filter it stands in.
fn unreadable(problem: Problem) -> Problem {
    Problem::new(Code::FilterInvalid, problem.to_string()).hint(problem.advice())
}

impl Test {
    fn parse(filter: &Value, tests: &mut usize) -> Result<Test, Problem> {
        *tests += 1;
        if *tests > TESTS_MAX {
            return Err(invalid(
                format!("the filter has more than {TESTS_MAX} tests"),
                "use \"in\" with a list",
            ));
        }
        match filter {
            Value::String(text) => {
                let expr = Expr::compile(text, &Scope::EVENT).map_err(unreadable)?;
                Ok(Test::Expr(expr.into()))
            }
            Value::Object(map) => Test::object(map, tests),
            other => Err(invalid(
                format!("a filter is a string or an object, not {}", kind_of(other)),
                "write \"event.payload.price > 9\" or {\"field\": \"payload.price\", \"gt\": 9}",
            )),
        }
    }

    fn object(map: &Map<String, Value>, tests: &mut usize) -> Result<Test, Problem> {
        let forms: Vec<&str> = ["field", "jsonpath", "and", "or", "not"]
            .into_iter()
            .filter(|form| map.contains_key(*form))
            .collect();
        let allowed: &[&str] = match forms[..] {
            ["field"] => return FieldTest::parse(map).map(Test::Field),
            ["jsonpath"] => &["jsonpath", "eq"],
            ["and"] => &["and"],
            ["or"] => &["or"],
            [_] => &["not"],
            [] => return Err(no_form(map)),
            [one, two, ..] => {
                let what = format!("a filter has either {one:?} or {two:?}, not both");
                return Err(invalid(what, "join them with {\"and\": […]}"));
            }
        };
        refuse_unknown(map, allowed)?;
        match forms[0] {
            "jsonpath" => Test::path(map),
            "and" => Test::list(map, "and", tests).map(Test::All),
            "or" => Test::list(map, "or", tests).map(Test::Any),
            _ => Ok(Test::Not(Test::parse(&map["not"], tests).map_err(|p| p.within("/not"))?.into())),
        }
    }

    fn path(map: &Map<String, Value>) -> Result<Test, Problem> {
        let Value::String(text) = &map["jsonpath"] else {
            return Err(invalid(
                "\"jsonpath\" is not a string".into(),
                "write {\"jsonpath\": \"$.payload.x\"}",
            )
            .at("/jsonpath"));
        };
        let path = JsonPath::parse_bounded(text).map_err(|p| p.within("/jsonpath"))?;
        Ok(Test::Path { path, eq: map.get("eq").cloned() })
    }

    fn list(map: &Map<String, Value>, form: &str, tests: &mut usize) -> Result<Vec<Test>, Problem> {
        let Value::Array(parts) = &map[form] else {
            let what = format!("{form:?} is not a list of filters");
            return Err(invalid(what, "write it in brackets").at(format!("/{form}")));
        };
        let part = |(n, part): (usize, &Value)| {
            Test::parse(part, tests).map_err(|p| p.within(&format!("/{form}/{n}")))
        };
        parts.iter().enumerate().map(part).collect()
    }

    fn run(&self, event: &Value) -> Result<bool, Problem> {
        match self {
            Test::Expr(expr) => expr.test(&[Val::of(event)]),
            Test::Field(test) => Ok(test.run(event)),
            Test::Path { path, eq: None } => Ok(!path.values(event).is_empty()),
            Test::Path { path, eq: Some(want) } => {
                Ok(path.values(event).into_iter().any(|value| same(value, want)))
            }
            Test::All(tests) => decide(tests, event, false),
            Test::Any(tests) => decide(tests, event, true),
            Test::Not(test) => test.run(event).map(|yes| !yes),
        }
    }

    /// Adds the event's fields that it reads; `None` once it may read any.
    fn reads(&self, fields: &mut Option<Vec<String>>) {
        let mut add = |field: Option<&str>| match (&mut *fields, field) {
            (Some(known), Some(field)) if !known.iter().any(|k| k == field) => known.push(field.to_owned()),
            (Some(_), Some(_)) => {}
            _ => *fields = None,
        };
        match self {
            Test::Expr(expr) => expr.reads().iter().for_each(|read| add(read.field.as_deref())),
            Test::Field(test) => add(Some(test.first())),
            Test::Path { path, .. } => add(path.first_member()),
            Test::All(tests) | Test::Any(tests) => tests.iter().for_each(|test| test.reads(fields)),
            Test::Not(test) => test.reads(fields),
        }
    }
}

/// One part that is `decisive` settles it; else a part that failed is what failed.
fn decide(tests: &[Test], event: &Value, decisive: bool) -> Result<bool, Problem> {
    let mut failed = None;
    for test in tests {
        match test.run(event) {
            Ok(value) if value == decisive => return Ok(decisive),
            Ok(_) => {}
            Err(problem) => failed = failed.or(Some(problem)),
        }
    }
    failed.map_or(Ok(!decisive), Err)
}

fn no_form(map: &Map<String, Value>) -> Problem {
    const FORMS: [&str; 5] = ["field", "jsonpath", "and", "or", "not"];
    let Some(first) = map.keys().next() else {
        return invalid("the filter is empty".into(), "leave it out to let everything pass");
    };
    let meant = map.keys().find_map(|key| Some((key, nearest(key, FORMS)?)));
    let (key, hint) = match meant {
        Some((key, near)) => (key, format!("did you mean {near:?}?")),
        None => (first, format!("a filter has one of {}", FORMS.join(", "))),
    };
    invalid(format!("the filter has no test; {key:?} is not known"), &hint).at(pointer(key))
}

/// Names every key that does not belong.
fn refuse_unknown(map: &Map<String, Value>, allowed: &[&str]) -> Result<(), Problem> {
    let unknown: Vec<&str> = map.keys().map(String::as_str).filter(|key| !allowed.contains(key)).collect();
    let Some(first) = unknown.first() else { return Ok(()) };
    let named: Vec<String> = unknown.iter().map(|key| format!("{key:?}")).collect();
    let hint = match nearest(first, allowed.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known here: {}", allowed.join(", ")),
    };
    Err(invalid(format!("the filter has unknown keys: {}", named.join(", ")), &hint).at(pointer(first)))
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn invalid(what: String, hint: &str) -> Problem {
    Problem::new(Code::FilterInvalid, what).hint(hint)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
