//! Home Assistant's own test cases (`shared/vectors`), converted into scenarios and played by `everwhen test`.

mod triggers;
mod waits;

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::Place;

const CONCEPT: &str = "v1:ha:entity";

/// The cases; `None`, said aloud, on a machine without them. CI must have them.
fn suite(name: &str) -> Option<Vec<Value>> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors").join(format!("{name}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("NOT RUN: {} is not there, so the vectors were not tried", path.display());
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have shared/vectors");
        return None;
    };
    let suite: Value = serde_json::from_str(&text).unwrap();
    Some(suite["cases"].as_array().unwrap().clone())
}

/// The row of an entity such as `switch.test`.
fn row(entity: &Value) -> String {
    format!("{CONCEPT}/{}", entity.as_str().unwrap())
}

fn scenario(case: &Value, start: &str, automations: Vec<Value>, steps: Vec<Value>) -> Value {
    json!({
        "scenario": case["id"], "description": case["case"], "start": start,
        "given": {"concepts": {CONCEPT: {"state": "any", "attributes": "object"}}, "automations": automations},
        "steps": steps,
    })
}

/// Writes of rows as Home Assistant makes them: the attributes are all there are, those left out are gone.
#[derive(Default)]
struct Rows(Map<String, Value>);

impl Rows {
    fn set(&mut self, set: &Value) -> Value {
        let name = row(&set["entity"]);
        let new = set["attributes"].as_object().cloned().unwrap_or_default();
        let old = self.0.insert(name.clone(), Value::Object(new.clone()));
        let gone = old.iter().flat_map(|old| old.as_object().unwrap().keys().cloned());
        let mut attributes: Map<String, Value> = gone.map(|key| (key, Value::Null)).collect();
        attributes.extend(new);
        let fields = json!({"state": set["state"], "attributes": attributes});
        json!({"set": {name: fields}, "force": set["force_update"] == json!(true)})
    }

    fn remove(&mut self, entity: &Value) -> Value {
        self.0.remove(&row(entity));
        json!({ "remove": row(entity) })
    }
}

/// Plays them; gives what failed, by id, and how.
fn play(scenarios: &[Value], flags: &[&str]) -> Vec<(String, String)> {
    let place = Place::new();
    place.write("ha.json", &Value::from(scenarios.to_vec()).to_string());
    let done = place.run(&[&["test", "ha.json", "--json"], flags].concat());
    assert!(matches!(done.code, 0 | 1), "{done:?}");
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), scenarios.len(), "one line per scenario");
    let failed = lines.iter().filter(|line| line["passed"] != json!(true));
    failed.map(|line| (line["scenario"].as_str().unwrap().to_owned(), line["failures"].to_string())).collect()
}

/// All that can be converted pass, but for those listed with the reason.
fn judge(failed: &[(String, String)], known: &[(&str, &str)]) {
    let unknown: Vec<_> =
        failed.iter().filter(|(id, _)| !known.iter().any(|(known, _)| id == known)).collect();
    assert!(unknown.is_empty(), "{} failed: {unknown:#?}", unknown.len());
    for (id, reason) in known {
        assert!(
            failed.iter().any(|(failed, _)| failed == id),
            "{id} passes now; it was listed because {reason}"
        );
    }
}
