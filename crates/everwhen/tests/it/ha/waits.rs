//! `ha_waits`: waits inside a run, timeouts, cancelling, overlapping runs; each again with a kill wherever a run waits.

use serde_json::{Value, json};

use super::{Rows, judge, play, row, scenario, suite};

/// Cases that do not pass, and why.
const KNOWN: [(&str, &str); 0] = [];
const COUNT: usize = 24;

#[test]
fn home_assistants_waits_end_as_theirs_do() {
    let Some(cases) = suite("ha_waits") else { return };
    let scenarios: Vec<Value> = cases.iter().map(convert).collect();
    assert!(scenarios.len() >= COUNT);
    judge(&play(&scenarios, &[]), &KNOWN);
}

#[test]
fn home_assistants_waits_survive_a_kill_at_every_suspended_step() {
    let Some(cases) = suite("ha_waits") else { return };
    let scenarios: Vec<Value> = cases.iter().map(convert).collect();
    judge(&play(&scenarios, &["--kill-at-waits"]), &KNOWN);
}

fn convert(case: &Value) -> Value {
    let mut rows = Rows::default();
    let mut start = "2026-01-01T00:00:00Z";
    let mut steps = Vec::new();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let (key, value) = step.as_object().unwrap().iter().find(|(key, _)| *key != "t").unwrap();
        match key.as_str() {
            "clock" if index == 0 => start = value.as_str().unwrap(),
            "clock" => steps.push(json!({ "advance_to": value })),
            "advance_to" => steps.push(json!({ "at": value })),
            "set" => steps.push(rows.set(value)),
            "start_run" => steps.push(json!({"publish": {"topic": "ha.start", "payload": {}}})),
            "stop_run" => steps.push(json!({ "cancel": "ha" })),
            other => steps.push(json!({"expect": expected(other, value)})),
        }
    }
    scenario(case, start, vec![automation(case)], steps)
}

fn expected(key: &str, value: &Value) -> Value {
    match key {
        "expect_running" => json!({"runs": {"automation": "ha", "active": value}}),
        "expect_runs_incl_queued" => {
            json!({"runs": {"automation": "ha", "active": 1, "queued": value.as_u64().unwrap() - 1}})
        }
        "expect_emitted_total" => json!({"emitted": {"topic": "ha.emit", "total": value}}),
        "expect_emitted" => {
            let payloads: Vec<Value> = value.as_array().unwrap().iter().map(|n| json!({ "n": n })).collect();
            json!({"emitted": {"topic": "ha.emit", "payloads": payloads}})
        }
        "expect_start_refused" if value == "already running" => {
            json!({"decisions": {"automation": "ha", "outcome": "skipped", "reason": "busy", "total": 1}})
        }
        "expect_start_refused" => {
            json!({"decisions": {"automation": "ha", "outcome": "refused", "reason": "max_runs", "total": 1}})
        }
        "expect_run_result" => {
            let status = if value == "finished" { "completed" } else { "failed" };
            json!({"last_run": {"automation": "ha", "status": status}})
        }
        "expect_wait" => json!({"last_run": {"automation": "ha", "wait": wait(value)}}),
        other => panic!("{other} is not converted"),
    }
}

fn wait(value: &Value) -> Value {
    let mut made = json!({"completed": value["completed"], "remaining": value["remaining"]});
    match value.get("trigger") {
        None => {}
        Some(Value::Null) => made["event"] = Value::Null,
        Some(trigger) => {
            made["event"] =
                json!({"subject": {"id": trigger["entity"]}, "payload": {"next": {"state": trigger["to"]}}});
        }
    }
    made
}

fn automation(case: &Value) -> Value {
    let actions: Vec<Value> = case["sequence"].as_array().unwrap().iter().map(action).collect();
    let mut made = json!({"automation": "ha", "triggers": [{"event": "ha.start"}], "actions": actions});
    for key in ["mode", "max"] {
        if let Some(value) = case.get(key) {
            made[key] = value.clone();
        }
    }
    made
}

fn action(step: &Value) -> Value {
    if let Some(n) = step.get("emit") {
        return json!({"publish": {"topic": "ha.emit", "payload": {"n": n}}});
    }
    let (kind, mut wait) = if let Some(until) = step.get("wait_until") {
        ("wait_until", json!({"condition": condition(until)}))
    } else {
        let of = &step["wait_for_trigger"];
        let state = json!({"entity": row(&of["entity"]), "field": "state", "to": of["to"]});
        ("wait_for", json!({"trigger": {"state": state}}))
    };
    if let Some(timeout) = step.get("timeout") {
        wait["timeout"] = timeout.clone();
    }
    // Theirs goes on unless told otherwise; our `wait_for` fails unless told otherwise, as seed 001 does.
    let goes_on = step["continue_on_timeout"].as_bool().unwrap_or(true);
    if step.get("timeout").is_some() {
        wait["on_timeout"] = if goes_on { "continue" } else { "fail" }.into();
    }
    json!({ kind: wait })
}

fn condition(until: &Value) -> String {
    match until["clock_hour_utc"].as_u64() {
        Some(hour) => format!("now.getHours() == {hour}"),
        None => format!(
            "state[\"{}\"][\"{}\"].state == {}",
            super::CONCEPT,
            until["entity"].as_str().unwrap(),
            until["state"]
        ),
    }
}
