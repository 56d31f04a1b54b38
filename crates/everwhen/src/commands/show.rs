//! Events and groups as people read them; with `--json` they stay as they came.

use std::borrow::Cow;

use model::event::Subject;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{Output, Stop, columns};

/// Prints an event: its own text with `--json`, else `position time topic subject payload`.
pub fn event(out: &Output, text: &str) -> Result<(), Stop> {
    match out.json {
        true => out.line(text),
        false => out.line(&one_line(text)),
    }
}

#[derive(Deserialize)]
struct Seen<'a> {
    /// Live events have none.
    position: Option<u64>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    topic: Cow<'a, str>,
    subject: Option<Subject>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
}

/// A payload that is `null` is there; only an erased one is not.
pub fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// A position as typed.
pub fn parse_position(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a position; they are whole numbers, 0 is before the first".to_owned())
}

/// Says what a pattern of another system means here; it stays what it is.
pub fn remark_on_pattern(out: &Output, pattern: &str) {
    let foreign = pattern.split('.').find(|word| ["**", ">", "+"].contains(word));
    match foreign {
        Some("**") => out.note("\"**\" is one word, as \"*\" is; \"#\" is any number of words"),
        Some(word) => out.note(&format!(
            "\"{word}\" is a word like any other; \"*\" is one word, \"#\" is any number of words"
        )),
        None => {}
    }
}

/// Where an event stands; 0 for what is none.
pub fn position(text: &str) -> u64 {
    serde_json::from_str(text).map_or(0, |Seen { position, .. }| position.unwrap_or(0))
}

/// An event in one line for a terminal.
pub fn one_line(text: &str) -> String {
    let Ok(Seen { position, time, topic, subject, payload }) = serde_json::from_str(text) else {
        return text.to_owned();
    };
    let subject = subject.map(|s| format!(" {}/{}", s.kind, s.id)).unwrap_or_default();
    let payload = payload.map_or("(erased)", RawValue::get);
    let position = position.map_or("live".to_owned(), |position| position.to_string());
    format!("{position} {time} {topic}{subject} {payload}")
}

/// A lineage as a tree: what came first stands first, what came of the event is indented under it.
pub fn lineage(text: &str) -> String {
    #[derive(Deserialize)]
    struct Lineage<'a> {
        #[serde(borrow)]
        event: &'a RawValue,
        #[serde(borrow)]
        causes: Vec<&'a RawValue>,
        #[serde(borrow)]
        effects: Vec<Effect<'a>>,
    }
    #[derive(Deserialize)]
    struct Effect<'a> {
        #[serde(borrow)]
        event: Option<&'a RawValue>,
        #[serde(default)]
        run: Value,
        #[serde(borrow)]
        effects: Vec<Effect<'a>>,
    }
    fn below(effects: &[Effect<'_>], depth: usize, lines: &mut Vec<String>) {
        for effect in effects {
            let what = effect.event.map_or_else(|| run(&effect.run), |event| one_line(event.get()));
            lines.push(format!("{}{what}", "  ".repeat(depth)));
            below(&effect.effects, depth + 1, lines);
        }
    }
    let Ok(Lineage { event, causes, effects }) = serde_json::from_str(text) else { return text.to_owned() };
    let path = causes.iter().rev().chain([&event]).map(|event| event.get());
    let mut lines: Vec<String> =
        path.enumerate().map(|(depth, event)| format!("{}{}", "  ".repeat(depth), one_line(event))).collect();
    below(&effects, lines.len(), &mut lines);
    lines.join("\n")
}

/// A run among what came of something.
pub fn run(run: &Value) -> String {
    format!("{}  {}  {}", cell(&run["id"]), cell(&run["status"]), cell(&run["automation"]))
}

/// A table with a heading; nothing but a remark when it is empty.
pub fn table(out: &Output, heading: &[&str], rows: Vec<Vec<String>>, none: &str) -> Result<(), Stop> {
    if rows.is_empty() {
        out.note(none);
        return Ok(());
    }
    let mut all = vec![heading.iter().map(|word| (*word).to_owned()).collect()];
    all.extend(rows);
    out.line(&columns(&all))?;
    out.flush()
}

/// A field as it reads in a cell: text without quotes and in one line, absent as `-`.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_payload_digit_for_digit() {
        let text =
            r#"{"position":7,"topic":"a.b","time":"T","subject":{"kind":"k","id":"1"},"payload":{"n":1.10}}"#;
        assert_eq!(one_line(text), r#"7 T a.b k/1 {"n":1.10}"#);
        let chain = lineage(&format!(
            r#"{{"event":{text},"causes":[{text}],"effects":[{{"run":{{"id":"run_1","status":"failed","automation":"a"}},
                "effects":[{{"event":{text},"effects":[]}}]}}]}}"#
        ));
        let line = one_line(text);
        assert_eq!(chain, format!("{line}\n  {line}\n    run_1  failed  a\n      {line}"));
        assert_eq!(one_line(r#"{"position":8,"topic":"a","time":"T","erased":true}"#), "8 T a (erased)");
    }
}
