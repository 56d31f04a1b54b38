//! `ha_triggers`: state and numeric triggers with thresholds and dwells, events, time patterns, conditions.

use serde_json::{Map, Value, json};

use super::{Rows, judge, play, row, scenario, suite};

/// Cases that do not pass, and why.
const KNOWN: [(&str, &str); 0] = [];
const COUNT: usize = 123;

#[test]
fn home_assistants_triggers_fire_when_theirs_do() {
    let Some(cases) = suite("ha_triggers") else { return };
    let scenarios: Vec<Value> = cases.iter().map(convert).collect();
    assert!(scenarios.len() >= COUNT);
    judge(&play(&scenarios, &[]), &KNOWN);
}

#[test]
fn home_assistants_triggers_fire_the_same_with_a_kill_at_every_wait() {
    let Some(cases) = suite("ha_triggers") else { return };
    let scenarios: Vec<Value> = cases.iter().map(convert).collect();
    judge(&play(&scenarios, &["--kill-at-waits"]), &KNOWN);
}

fn convert(case: &Value) -> Value {
    let mut rows = Rows::default();
    let mut steps = Vec::new();
    let (mut now, mut total) = (0, 0);
    let all = case["steps"].as_array().unwrap();
    let refused = all.iter().any(|step| step["expect_config_rejected"] == json!(true));
    let is_time = all.iter().any(|step| step["setup"]["trigger"]["kind"] == "time_pattern");
    for step in all {
        let t = step["advance_to"].as_i64().or(step["t"].as_i64()).unwrap_or(0);
        if t > now {
            // A test that fires one far instant has nobody running in between.
            let far = is_time && now > 0 && t - now > 3_600;
            steps.push(if far { json!({"kill": {"down": t - now}}) } else { json!({ "at": t }) });
            now = t;
        }
        let (key, value) = step.as_object().unwrap().iter().find(|(key, _)| *key != "t").unwrap();
        match key.as_str() {
            "set" => steps.push(rows.set(value)),
            "remove" => steps.push(rows.remove(&value["entity"])),
            "setup" => steps.push(json!({"apply": {"automations": [automation(value)]}, "refused": refused})),
            "event" => {
                let payload = value.get("data").cloned().unwrap_or(json!({}));
                steps.push(json!({"publish": {"topic": value["type"], "payload": payload}}));
            }
            "control" => steps.push(json!({ "disable": "*" })),
            "expect_fired_total" => {
                total = value.as_u64().unwrap() as usize;
                steps.push(json!({"expect": {"emitted": {"topic": "ha.fired", "total": total}}}));
            }
            "expect_call" => {
                let mut payloads = vec![json!({}); total];
                payloads[value["index"].as_u64().unwrap() as usize] = called(value);
                steps.push(json!({"expect": {"emitted": {"topic": "ha.fired", "payloads": payloads}}}));
            }
            "advance_to" | "expect_config_rejected" | "expect_valid_automations" => {}
            other => panic!("{other} is not converted"),
        }
    }
    scenario(case, "2026-01-01T00:00:00Z", Vec::new(), steps)
}

/// Home Assistant calls the first trigger 0 and shows how long `for` is; here it has a name, and the length is not in scope.
fn called(call: &Value) -> Value {
    let value = match (&call["field"], &call["value"]) {
        (field, value) if field == "id" => json!(format!("t{}", value.as_u64().unwrap() + 1)),
        (_, Value::String(text)) => {
            let parts: Vec<&str> = text.split(" - ").filter(|part| !is_length(part)).collect();
            json!(parts.join(" - ").replace(" - 0", " - t1"))
        }
        (_, value) => value.clone(),
    };
    json!({ call["field"].as_str().unwrap(): value })
}

fn is_length(part: &str) -> bool {
    part == "None" || part.starts_with("0:00:")
}

fn automation(setup: &Value) -> Value {
    let variables = setup["trigger_variables"].as_object().cloned().unwrap_or_default();
    let mut trigger = trigger(&setup["trigger"], &variables);
    trigger["id"] = "t1".into();
    let fired = fired(&setup["call_fields"]);
    let actions: Vec<Value> = match setup["action_steps"].as_array() {
        None => vec![fired],
        Some(steps) => steps.iter().map(|step| action(step, &fired)).collect(),
    };
    let mut made = json!({"automation": "ha", "triggers": [trigger], "actions": actions});
    if let Some(condition) = setup.get("condition") {
        let mut state = json!({"field": "state", "is": condition["state"], "for": condition["for"]});
        if condition.get("entity_id").is_some() {
            state["entity"] = row(&condition["entity_id"]).into();
        }
        made["conditions"] = json!([{ "state": state }]);
    }
    made
}

fn action(step: &Value, fired: &Value) -> Value {
    if let Some(delay) = step["delay"].as_str() {
        return json!({"delay": delay.parse::<f64>().unwrap()});
    }
    let row = "state[\"v1:ha:entity\"][trigger.entity.id].state";
    match step["wait_template"].as_str() {
        None => fired.clone(),
        Some(wait) if wait.contains("is_state(trigger.entity_id, 'hello')") => {
            json!({"wait_until": {"condition": format!("{row} == \"hello\"")}})
        }
        Some(wait) if wait.contains("states(trigger.entity_id) | int < 10") => {
            json!({"wait_until": {"condition": format!("int({row}) < 10")}})
        }
        Some(other) => panic!("{other} is not converted"),
    }
}

/// The action under test: every firing is one event with what the case looks at.
fn fired(fields: &Value) -> Value {
    let mut payload = Map::new();
    for (name, template) in fields.as_object().into_iter().flatten() {
        let parts = template.as_str().unwrap().split(" - ").filter(|part| !part.contains("trigger.for"));
        let text = parts.collect::<Vec<_>>().join(" - ");
        let ours = [
            ("trigger.entity_id", "trigger.entity.id"),
            ("trigger.platform", "trigger.kind"),
            ("trigger.from_state.state", "trigger.from"),
            ("trigger.to_state.state", "trigger.to"),
        ];
        payload.insert(
            name.clone(),
            ours.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours)).into(),
        );
    }
    json!({"publish": {"topic": "ha.fired", "payload": payload}})
}

fn trigger(of: &Value, variables: &Map<String, Value>) -> Value {
    let mut made = match of["kind"].as_str().unwrap() {
        "event" => event(of, variables),
        "state" => state(of),
        "numeric_state" => numeric(of, variables),
        _ => time_pattern(of),
    };
    if let Some(length) = of.get("for") {
        made["for"] = dwell(length, variables);
    }
    made
}

fn event(of: &Value, variables: &Map<String, Value>) -> Value {
    let mut filters = Vec::new();
    leaves(&of["event_data"], "event.payload", &mut filters);
    let topic = match &of["event_type"] {
        Value::String(text) if text.starts_with("{{") => {
            variables[text.trim_matches(['{', '}', ' '])].clone()
        }
        other => other.clone(),
    };
    let mut made = json!({ "event": topic });
    if !filters.is_empty() {
        made["filter"] = filters.join(" && ").into();
    }
    made
}

/// Every value inside must be equal.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{path}.{key}"), found));
        }
        Value::Null => {}
        value => found.push(format!("{path} == {value}")),
    }
}

fn entities(of: &Value) -> Value {
    match &of["entity_id"] {
        Value::Array(several) => several.iter().map(row).collect(),
        one => row(one).into(),
    }
}

fn field(of: &Value) -> String {
    of["attribute"].as_str().map_or("state".to_owned(), |name| format!("attributes.{name}"))
}

fn state(of: &Value) -> Value {
    let mut state = json!({"entity": entities(of), "field": field(of)});
    for key in ["from", "to", "not_from", "not_to"] {
        if let Some(value) = of.get(key) {
            state[key] = value.clone();
        }
    }
    json!({ "state": state })
}

fn numeric(of: &Value, variables: &Map<String, Value>) -> Value {
    let mut numeric = json!({"entity": entities(of), "field": field(of)});
    if let Some(template) = of["value_template"].as_str() {
        let inner = template.trim_matches(['{', '}', ' ']).trim_start_matches("state.");
        if inner.contains(['*', '[']) {
            return computed(of, inner, variables);
        }
        numeric["field"] = inner.into();
    }
    for key in ["above", "below"] {
        match of.get(key) {
            Some(Value::String(entity)) => {
                numeric[key] = json!({"entity": row(&json!(entity)), "field": "state"})
            }
            Some(number) => numeric[key] = number.clone(),
            None => {}
        }
    }
    json!({ "numeric_state": numeric })
}

/// A computed value that crosses a fixed bound: the edge is written out.
fn computed(of: &Value, value: &str, variables: &Map<String, Value>) -> Value {
    let value =
        variables.iter().fold(value.to_owned(), |text, (name, is)| text.replace(name, &is.to_string()));
    let below = of["below"].as_f64().unwrap();
    let side = |of: &str| format!("event.payload.{of}.{value} < {below}");
    let entity: Vec<&str> = of["entity_id"].as_str().into_iter().collect();
    let filter = format!("event.payload.id == \"{}\" && {} && !({})", entity[0], side("next"), side("prev"));
    json!({"entity": super::CONCEPT, "on": "updated", "filter": filter})
}

fn dwell(length: &Value, variables: &Map<String, Value>) -> Value {
    match length {
        Value::Object(map) if map.len() == 1 && map.values().all(Value::is_string) => {
            let (unit, text) = map.iter().next().unwrap();
            let inner = text.as_str().unwrap().trim_matches(['{', '}', ' ']);
            let inner = variables.get(inner).map_or(inner.to_owned(), Value::to_string);
            match (inner.parse::<u64>(), unit.as_str()) {
                (Ok(n), _) => json!({ unit.as_str(): n }),
                (Err(_), _) => json!({ unit.as_str(): text }),
            }
        }
        Value::String(text) if text.contains(" if ") => {
            let inner = text.trim_matches(['{', '}', ' ']);
            let (yes, rest) = inner.split_once(" if ").unwrap();
            let (test, no) = rest.split_once(" else ").unwrap();
            json!(format!(
                "{{{{ {} ? {yes} : {no} }}}}",
                test.replace("trigger.entity_id", "trigger.entity.id")
            ))
        }
        Value::String(text) if text.split(':').count() == 3 => {
            json!(text.split(':').fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap()))
        }
        other => other.clone(),
    }
}

/// `/2` is every second one.
fn time_pattern(of: &Value) -> Value {
    let part = |key: &str| match &of[key] {
        Value::String(text) if text.starts_with('/') => format!("*{text}"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let cron = format!("{} {} {} * * *", part("seconds"), part("minutes"), part("hours"));
    json!({"cron": cron, "tz": "UTC"})
}
