//! `everwhen try KIND --jsonl` (contracts §5): one line of JSON in, one out, for anyone who wants to see
//! what a pattern, path, filter, expression or schedule does.

use model::topic::Pattern;
use model::topic::trie::Trie;
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::filter::Filter;
use crate::jsonpath::JsonPath;
use crate::mapper::Mapper;
use crate::{try_cron, try_expr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Topic,
    Jsonpath,
    Filter,
    Expr,
    Cron,
}

impl Kind {
    pub const NAMES: [(&'static str, Kind); 5] = [
        ("topic", Kind::Topic),
        ("jsonpath", Kind::Jsonpath),
        ("filter", Kind::Filter),
        ("expr", Kind::Expr),
        ("cron", Kind::Cron),
    ];

    pub fn parse(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// The answer to one line, without a line end. A blank line has an empty answer, which is not to be
/// printed. Keys that are not known are ignored; `id` is given back; bad input is answered by `{"error":
/// …}`. `now` is what an expression calls so when the line does not say.
pub fn try_line(kind: Kind, line: &str, now: Timestamp) -> String {
    if line.trim().is_empty() {
        return String::new();
    }
    let (id, answer) = match read(line) {
        Ok(case) => (case.get("id").cloned(), answer(kind, &case, now)),
        Err(problem) => (None, Err(problem)),
    };
    let mut out = answer.unwrap_or_else(|problem| Map::from_iter([error(&problem)]));
    if let Some(id) = id {
        out.insert("id".into(), id);
    }
    Value::Object(out).to_string()
}

fn read(line: &str) -> Result<Map<String, Value>, Problem> {
    model::json::check(line.as_bytes(), 120)?;
    match serde_json::from_str(line) {
        Ok(Value::Object(case)) => Ok(case),
        Ok(_) => Err(Problem::new(Code::RequestInvalid, "the line is not a JSON object")),
        Err(err) => Err(Problem::new(Code::JsonInvalid, err.to_string())),
    }
}

fn answer(kind: Kind, case: &Map<String, Value>, now: Timestamp) -> Result<Map<String, Value>, Problem> {
    match kind {
        Kind::Topic => topic(case),
        Kind::Jsonpath => jsonpath(case),
        Kind::Filter => filter(case),
        Kind::Expr => try_expr::answer(case, now),
        Kind::Cron => try_cron::answer(case),
    }
}

fn topic(case: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let topic = text(case, "topic")?;
    let Some(patterns) = case.get("patterns") else {
        let matches = Pattern::lenient(text(case, "pattern")?).matches(topic);
        return Ok(Map::from_iter([("match".into(), matches.into())]));
    };
    let Value::Object(patterns) = patterns else {
        return Err(Problem::new(
            Code::RequestInvalid,
            "\"patterns\" is not an object of names and patterns",
        ));
    };
    let mut trie = Trie::new();
    for (name, pattern) in patterns {
        let Value::String(pattern) = pattern else {
            return Err(Problem::new(Code::RequestInvalid, format!("the pattern {name:?} is not a string")));
        };
        trie.insert(&Pattern::lenient(pattern), name.as_str());
    }
    let mut names = Vec::new();
    trie.matches(topic, &mut names);
    Ok(Map::from_iter([("names".into(), names.into())]))
}

fn jsonpath(case: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let name = if case.contains_key("selector") { "selector" } else { "query" };
    let path = JsonPath::parse(text(case, name)?)?;
    let Some(document) = case.get("document") else { return Err(missing("document")) };
    let (paths, values): (Vec<String>, Vec<&Value>) = path.located(document).into_iter().unzip();
    Ok(Map::from_iter([("result".into(), json!(values)), ("result_paths".into(), json!(paths))]))
}

/// An expression that fails on this event does not match, and the answer says both.
fn filter(case: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let Some(filter) = case.get("filter") else { return Err(missing("filter")) };
    let filter = Filter::parse(filter)?;
    let mapper = case.get("map").map(Mapper::parse).transpose()?;
    let Some(event) = case.get("event") else { return Err(missing("event")) };
    if !event.is_object() {
        return Err(Problem::new(Code::RequestInvalid, "\"event\" is not a JSON object"));
    }
    let mut out = Map::new();
    let matches = filter.test(event).unwrap_or_else(|problem| {
        out.extend([error(&problem)]);
        false
    });
    out.insert("match".into(), matches.into());
    if let Some(mapper) = mapper.filter(|_| matches) {
        match mapper.apply(event) {
            Ok(input) => drop(out.insert("input".into(), input.into())),
            Err(problem) => out.extend([error(&problem)]),
        }
    }
    Ok(out)
}

pub(crate) fn text<'a>(case: &'a Map<String, Value>, name: &str) -> Result<&'a str, Problem> {
    let wrong = || Problem::new(Code::RequestInvalid, format!("the line needs {name:?}, a string"));
    case.get(name).and_then(Value::as_str).ok_or_else(wrong)
}

fn missing(name: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("the line needs {name:?}"))
}

fn error(problem: &Problem) -> (String, Value) {
    let mut error = json!({"code": problem.code().as_str(), "message": problem.detail()});
    if let Some(field) = problem.extra().get("field") {
        error["field"] = field.clone();
    }
    ("error".into(), error)
}
