//! A scenario from its YAML or JSON: every key is known, every value is of its kind, before anything is played.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use model::suggest::distance;
use model::time::duration_of;
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};

use super::effects::Answer;
use super::{Does, Given, RowName, Scenario, Step, expect};

const START: &str = "2026-01-01T00:00:00Z";
const TOP: [&str; 5] = ["scenario", "description", "start", "given", "steps"];
const GIVEN: [&str; 5] = ["files", "concepts", "automations", "entities", "effects"];
const APPLY: [&str; 3] = ["files", "concepts", "automations"];
const STEPS: [&str; 14] = [
    "set",
    "remove",
    "publish",
    "advance",
    "advance_to",
    "apply",
    "disable",
    "enable",
    "run",
    "cancel",
    "answer",
    "restart",
    "kill",
    "expect",
];
const BESIDE: [&str; 3] = ["at", "force", "refused"];

type Read<T> = Result<T, Problem>;

/// Whether a document is a scenario, and not an automation or other data that lies in the same folder.
pub fn is_scenario(document: &Value) -> bool {
    document.get("scenario").is_some()
}

pub fn read(file: &Path, document: &Value) -> Read<Scenario> {
    let name = document["scenario"].as_str().map(str::to_owned);
    let read = || -> Read<Scenario> {
        let top = object(document, "a scenario")?;
        only(top, "a scenario", &TOP)?;
        let name = name.clone().ok_or_else(|| wrong("a scenario has a name: scenario: <text>"))?;
        let start = top.get("start").map_or_else(|| instant(&json!(START)), instant)?;
        let given = top.get("given").map(given).transpose()?.unwrap_or_default();
        let steps = list(top.get("steps").unwrap_or(&Value::Null), "steps")?;
        let steps = steps
            .iter()
            .enumerate()
            .map(|(n, value)| step(value).map_err(|problem| placed(&format!("step {}: ", n + 1), problem)));
        Ok(Scenario { name, file: file.to_owned(), start, given, steps: steps.collect::<Read<_>>()? })
    };
    let place = match &name {
        Some(name) => format!("{}, \"{name}\": ", file.display()),
        None => format!("{}: ", file.display()),
    };
    read().map_err(|problem| placed(&place, problem))
}

fn given(value: &Value) -> Read<Given> {
    let map = object(value, "given")?;
    only(map, "given", &GIVEN)?;
    let entities = map.get("entities").map(rows).transpose()?.unwrap_or_default();
    let effects = listed(map.get("effects"));
    Ok(Given {
        files: texts(map.get("files"), "files")?,
        concepts: concepts(map.get("concepts"))?,
        automations: listed(map.get("automations")),
        entities,
        effects: effects.iter().map(Answer::read).collect::<Read<_>>()?,
    })
}

fn concepts(value: Option<&Value>) -> Read<Map<String, Value>> {
    let Some(value) = value else { return Ok(Map::new()) };
    let map = object(value, "concepts")?;
    for fields in map.values() {
        object(fields, "a concept")?;
    }
    Ok(map.clone())
}

fn step(value: &Value) -> Read<Step> {
    if let Value::String(word) = value {
        return step(&json!({ word.as_str(): true }));
    }
    let map = object(value, "a step")?;
    let known: Vec<&str> = STEPS.iter().chain(&BESIDE).copied().collect();
    only(map, "a step", &known)?;
    let mut verbs = map.iter().filter(|(key, _)| STEPS.contains(&key.as_str()));
    let does = match (verbs.next(), verbs.next()) {
        (None, _) if map.contains_key("at") => Does::Nothing,
        (None, _) => return Err(wrong("a step does something").hint(format!("one of {}", STEPS.join(", ")))),
        (Some((verb, value)), None) => does(verb, value, map)?,
        (Some(_), Some((second, _))) => {
            return Err(
                wrong(format!("a step does one thing; \"{second}\" is a second one")).hint("write two steps")
            );
        }
    };
    let at = map.get("at").map(length).transpose()?;
    let refused = map.get("refused").and_then(Value::as_bool);
    let refused = refused.or_else(|| map.get("apply").and_then(|apply| apply["refused"].as_bool()));
    Ok(Step { at, does, refused: refused.unwrap_or(false), shown: value.clone() })
}

fn does(verb: &str, value: &Value, step: &Map<String, Value>) -> Read<Does> {
    Ok(match verb {
        "set" => {
            let mut given = object(value, "set")?.clone();
            // Also inside, where a row's name would stand.
            let force = given.remove("force").or_else(|| step.get("force").cloned());
            let force = force.is_some_and(|force| force == Value::Bool(true));
            Does::Set { rows: rows(&Value::Object(given))?, force }
        }
        "remove" => {
            Does::Remove(texts(Some(value), "remove")?.iter().map(|name| row(name)).collect::<Read<_>>()?)
        }
        "publish" => Does::Publish(listed(Some(value))),
        "advance" => Does::Advance(length(value)?),
        "advance_to" => Does::AdvanceTo(instant(value)?),
        "apply" => apply(value)?,
        "disable" | "enable" => Does::Toggle { name: text(value, verb)?, enable: verb == "enable" },
        "run" => run(value)?,
        "cancel" => Does::Cancel(text(value, verb)?),
        "answer" => {
            let map = object(value, verb)?;
            only(map, verb, &["automation", "value", "by"])?;
            Does::Answer {
                automation: text(&value["automation"], "automation")?,
                value: value["value"].clone(),
                by: map.get("by").map(|by| text(by, "by")).transpose()?,
            }
        }
        "restart" | "kill" => {
            let down = match value {
                Value::Object(map) => {
                    only(map, verb, &["down"])?;
                    map.get("down").map(length).transpose()?.unwrap_or_default()
                }
                Value::Null | Value::Bool(true) => Duration::ZERO,
                _ => {
                    return Err(wrong(format!("\"{verb}\" stands alone, not with {value}")).hint(format!(
                        "write {verb}, or {verb}: {{down: 5m}} for a process that is away a while"
                    )));
                }
            };
            Does::Restart { kill: verb == "kill", down }
        }
        _ => {
            let map = object(value, "expect")?;
            expect::check(map, only)?;
            Does::Expect(map.clone())
        }
    })
}

fn apply(value: &Value) -> Read<Does> {
    let map = object(value, "apply")?;
    let known: Vec<&str> = APPLY.iter().chain(&["refused"]).copied().collect();
    only(map, "apply", &known)?;
    Ok(Does::Apply {
        files: map.get("files").map(|files| texts(Some(files), "files")).transpose()?,
        concepts: map.get("concepts").map(|given| concepts(Some(given))).transpose()?,
        automations: map.get("automations").map(|given| listed(Some(given))),
    })
}

fn run(value: &Value) -> Read<Does> {
    if let Value::String(name) = value {
        return Ok(Does::Run { automation: name.clone(), input: Value::Null, event: None });
    }
    let map = object(value, "run")?;
    only(map, "run", &["automation", "input", "event"])?;
    let automation = text(&value["automation"], "automation")?;
    Ok(Does::Run { automation, input: value["input"].clone(), event: map.get("event").cloned() })
}

fn rows(value: &Value) -> Read<Vec<(RowName, Map<String, Value>)>> {
    let map = object(value, "rows")?;
    map.iter().map(|(name, fields)| Ok((row(name)?, object(fields, name)?.clone()))).collect()
}

/// `concept/id`.
pub(super) fn row(name: &str) -> Read<RowName> {
    match name.split_once('/') {
        Some((concept, id)) if !concept.is_empty() && !id.is_empty() => {
            Ok(RowName { concept: concept.to_owned(), id: id.to_owned() })
        }
        _ => {
            Err(wrong(format!("\"{name}\" names no row"))
                .hint("write concept/id, such as v1:health:system/api"))
        }
    }
}

pub(super) fn wrong(what: impl Into<String>) -> Problem {
    Problem::new(Code::ScenarioInvalid, what)
}

/// The same problem, with its place in front.
pub fn placed(place: &str, problem: Problem) -> Problem {
    let placed = wrong(format!("{place}{}", problem.detail()));
    match problem.hint_text() {
        Some(hint) => placed.hint(hint),
        None => placed,
    }
}

pub(super) fn object<'v>(value: &'v Value, what: &str) -> Read<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| wrong(format!("{what} is written as keys and values, not {value}")))
}

fn list<'v>(value: &'v Value, what: &str) -> Read<&'v Vec<Value>> {
    value.as_array().ok_or_else(|| wrong(format!("\"{what}\" is a list")))
}

/// One, or a list of them.
pub(super) fn listed(value: Option<&Value>) -> Vec<Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(one) => vec![one.clone()],
    }
}

fn text(value: &Value, what: &str) -> Read<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(format!("\"{what}\" is a text, not {value}")))
}

fn texts(value: Option<&Value>, what: &str) -> Read<Vec<String>> {
    listed(value).iter().map(|value| text(value, what)).collect()
}

pub(super) fn length(value: &Value) -> Read<Duration> {
    duration_of(value)
        .ok_or_else(|| wrong(format!("{value} is no length of time")).hint("such as 300, 30s, 5m, 1h30m"))
}

fn instant(value: &Value) -> Read<Timestamp> {
    let read = value.as_str().and_then(|text| Timestamp::parse(text).ok());
    read.ok_or_else(|| wrong(format!("{value} is no instant")).hint("such as 2026-01-01T00:00:00Z"))
}

/// An automation that is never declared.
pub(super) fn unknown(name: &str, known: &BTreeSet<String>) -> Problem {
    let near = known.iter().map(|word| (distance(name, word), word)).min().filter(|(edits, _)| *edits <= 2);
    let hint = match near {
        Some((_, near)) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "declare it in given.files or given.automations".to_owned(),
        None => format!("declared are {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
    };
    wrong(format!("there is no automation \"{name}\"")).hint(hint)
}

/// Refuses keys that mean nothing here, and names the nearest that does.
pub(super) fn only(map: &Map<String, Value>, what: &str, known: &[&str]) -> Read<()> {
    let Some(odd) = map.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let near = known.iter().map(|word| (distance(odd, word), *word)).min().filter(|(edits, _)| *edits <= 2);
    let hint = match near {
        Some((_, near)) => format!("did you mean \"{near}\"?"),
        None => format!("known are {}", known.join(", ")),
    };
    Err(wrong(format!("\"{odd}\" is no key of {what}")).hint(hint))
}
