//! What is true at a moment of a scenario, gathered for what is asked, and where it differs from what was expected.

use engine::tenant::Query;
use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Failure;
use super::read::{listed, object, row, wrong};
use super::subset::{self, Difference};
use super::world::World;

const KEYS: [&str; 7] = ["runs", "last_run", "emitted", "entities", "waits", "decisions", "effects"];
const RUNS: [&str; 8] =
    ["automation", "started", "active", "waiting", "queued", "completed", "failed", "cancelled"];
const LAST: [&str; 6] = ["automation", "status", "error", "vars", "wait", "output"];
const EMITTED: [&str; 3] = ["topic", "total", "payloads"];
const DECISIONS: [&str; 6] = ["automation", "trigger", "outcome", "reason", "gate", "total"];

const OUTCOMES: [&str; 9] =
    ["pending", "ran", "caught_up", "merged", "superseded", "skipped", "missed", "refused", "expired"];
const STATUSES: [&str; 6] = ["queued", "running", "waiting", "completed", "failed", "cancelled"];
const KINDS: [&str; 6] = ["delay", "until", "for", "ask", "effect", "call"];

type Only = fn(&Map<String, Value>, &str, &[&str]) -> Result<(), Problem>;

/// Whether every key means something, before anything is played.
pub fn check(expected: &Map<String, Value>, only: Only) -> Result<(), Problem> {
    only(expected, "expect", &KEYS)?;
    let known: [(&str, &[&str]); 4] =
        [("runs", &RUNS), ("last_run", &LAST), ("emitted", &EMITTED), ("decisions", &DECISIONS)];
    for (key, known) in known {
        for one in listed(expected.get(key)) {
            only(object(&one, key)?, key, known)?;
        }
    }
    for one in listed(expected.get("emitted")) {
        one["topic"].as_str().map(Pattern::parse).transpose()?;
    }
    for (key, field, known) in [
        ("decisions", "outcome", &OUTCOMES[..]),
        ("last_run", "status", &STATUSES),
        ("waits", "kind", &KINDS),
    ] {
        for one in listed(expected.get(key)) {
            let odd = one[field].as_str().filter(|given| !known.contains(given));
            if let Some(odd) = odd {
                return Err(wrong(format!("\"{odd}\" is no {field} of {key}"))
                    .hint(format!("one of {}", known.join(", "))));
            }
        }
    }
    if let Some(rows) = expected.get("entities") {
        object(rows, "entities")?.keys().try_for_each(|name| row(name).map(drop))?;
    }
    Ok(())
}

/// The automations that are asked about.
pub fn automations(expected: &Map<String, Value>) -> Vec<String> {
    let asked =
        ["runs", "last_run", "waits", "decisions"].into_iter().flat_map(|key| listed(expected.get(key)));
    asked.filter_map(|one| Some(one["automation"].as_str()?.to_owned())).collect()
}

pub fn failures(world: &World, expected: &Map<String, Value>, step: usize) -> Result<Vec<Failure>, Problem> {
    let mut found = Vec::new();
    for (key, expected) in expected {
        match key.as_str() {
            "waits" => subset::differences(expected, &json!(world.tenant.waits()?), key, &mut found),
            "effects" => subset::differences(expected, &json!(world.effects.seen), key, &mut found),
            "entities" => entities(world, expected, &mut found)?,
            _ => each(world, key, expected, &mut found)?,
        }
    }
    let failure = |Difference { path, expected, actual }| Failure { step, path, expected, actual };
    Ok(found.into_iter().map(failure).collect())
}

/// Keys that take one object or a list of them.
fn each(world: &World, key: &str, expected: &Value, found: &mut Vec<Difference>) -> Result<(), Problem> {
    let several = expected.as_array().is_some_and(|list| list.len() > 1);
    for (index, one) in listed(Some(expected)).iter().enumerate() {
        let path = if several { format!("{key}[{index}]") } else { key.to_owned() };
        let (wanted, actual) = match key {
            "runs" => (one.clone(), runs(world, one)),
            "last_run" => last_run(world, one),
            "emitted" => (without(one, &["topic"]), emitted(world, one)?),
            _ => decisions(world, one),
        };
        subset::differences(&wanted, &actual, &path, found);
    }
    Ok(())
}

fn without(value: &Value, keys: &[&str]) -> Value {
    let mut map = value.as_object().cloned().unwrap_or_default();
    map.retain(|key, _| !keys.contains(&key.as_str()));
    Value::Object(map)
}

/// Whether what is asked for is about this automation; without a name it is about all.
fn about(asked: &Value, automation: &str) -> bool {
    asked["automation"].as_str().is_none_or(|name| name == automation)
}

fn runs(world: &World, asked: &Value) -> Value {
    let seen: Vec<_> = world.chronicle.runs.values().filter(|run| about(asked, &run.automation)).collect();
    let with = |status: &str| seen.iter().filter(|run| run.status == status).count();
    let queued = world.chronicle.decisions().filter(|(decision, _)| {
        let waits = decision["outcome"] == "pending" && decision["reason"] == "queued";
        waits && about(asked, decision["automation"].as_str().unwrap_or_default())
    });
    json!({
        "automation": asked["automation"], "started": seen.len(),
        "active": seen.iter().filter(|run| !run.has_ended()).count(), "waiting": with("waiting"),
        "queued": queued.count(), "completed": with("completed"), "failed": with("failed"),
        "cancelled": with("cancelled"),
    })
}

/// The one that started last. An error is compared by its code when a text is expected.
fn last_run(world: &World, asked: &Value) -> (Value, Value) {
    let mut runs = world.chronicle.runs.values().rev();
    let Some(run) = runs.find(|run| about(asked, &run.automation)) else {
        return (asked.clone(), Value::Null);
    };
    let mut actual = run.to_json();
    if asked["error"].is_string() {
        actual["error"] = actual["error"]["code"].clone();
    }
    (asked.clone(), actual)
}

/// User publishes since the start; what the engine says itself only when a pattern begins with its very word.
fn emitted(world: &World, asked: &Value) -> Result<Value, Problem> {
    let topic = asked["topic"].as_str().map(Pattern::parse).transpose()?;
    let first = asked["topic"].as_str().and_then(|topic| topic.split('.').next()).unwrap_or_default();
    let mut query = Query { topic, after: Some(world.began), limit: 1_000, ..Query::default() };
    let mut payloads = Vec::new();
    loop {
        let page = world.tenant.find(&query)?;
        for event in &page.events {
            let word = event.envelope.topic.split('.').next().unwrap_or_default();
            if word == first || !matches!(word, "graph" | "automation" | "engine" | "workflow") {
                payloads.push(event.to_value()["payload"].clone());
            }
        }
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(json!({"total": payloads.len(), "payloads": payloads})),
        }
    }
}

fn entities(world: &World, expected: &Value, found: &mut Vec<Difference>) -> Result<(), Problem> {
    for (name, fields) in expected.as_object().into_iter().flatten() {
        let row = row(name)?;
        let actual = match world.tenant.entity(&world.caller(), &row.concept, None, &row.id) {
            Ok(row) => Value::Object(row.fields),
            Err(problem) if problem.code() == Code::NotFound => Value::Null,
            Err(problem) => return Err(problem),
        };
        subset::differences(fields, &actual, &format!("entities.{name}"), found);
    }
    Ok(())
}

/// How many decisions are like this; without a total, at least one.
fn decisions(world: &World, asked: &Value) -> (Value, Value) {
    let like = without(asked, &["total"]);
    let alike = world.chronicle.decisions().filter(|(decision, _)| subset::holds(&like, decision));
    let total: u64 = alike.map(|(_, count)| count).sum();
    let wanted = asked.get("total").cloned().unwrap_or_else(|| json!({"gte": 1}));
    (json!({ "total": wanted }), json!({ "total": total }))
}
