//! Tasks over HTTP: polled for, held, answered once, and waited for.

use serde_json::{Value, json};

use crate::harness::Server;

const PRINTS: &str = "automation: prints\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - id: made\n    task: {kind: print, input: {n: \"{{ event.payload.n }}\"}}\n  - publish: {topic: out.done, payload: {got: \"{{ steps.made.output }}\"}}\n";

fn poll(server: &Server, said: &Value) -> Vec<Value> {
    server.post("/v1/tasks/poll", said.to_string()).ok(200)["tasks"].as_array().unwrap().clone()
}

#[test]
fn a_worker_polls_says_that_it_is_there_and_completes_once() {
    let server = Server::start();
    server.apply("a.yaml", PRINTS);
    assert!(poll(&server, &json!({})).is_empty());
    server.publish("in.a", r#"{"n":7}"#);
    assert!(poll(&server, &json!({"kinds": ["other"]})).is_empty());
    let task = poll(&server, &json!({"kinds": ["print"], "max": 5})).remove(0);
    for field in ["token", "run", "step", "kind", "input", "idempotency_key", "attempt", "deadline"] {
        assert!(!task[field].is_null(), "{field} in {task}");
    }
    let listed = server.get("/v1/tasks").ok(200);
    assert_eq!(
        (&listed["tasks"][0]["state"], &listed["tasks"][0]["kind"]),
        (&json!("held"), &json!("print"))
    );
    let token = json!({"token": task["token"]});
    assert!(server.post("/v1/tasks/heartbeat", token.to_string()).ok(200)["deadline"].is_string());
    let done = json!({"token": task["token"], "output": {"pages": 3}}).to_string();
    server.post("/v1/tasks/complete", &done).ok(200);
    server.post("/v1/tasks/complete", &done).refused(409, "task.stale");
    server.post("/v1/tasks/fail", token.to_string()).refused(409, "task.stale");
    server.post("/v1/tasks/heartbeat", token.to_string()).refused(409, "task.stale");
    let events = server.get("/v1/events?topic=out.done").ok(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    assert_eq!(events["events"][0]["payload"], json!({"got": {"pages": 3}}));
}

#[test]
fn a_poll_waits_for_the_task_that_is_asked_for_meanwhile() {
    let server = Server::start();
    server.apply("a.yaml", PRINTS);
    let mut waiting = server.client();
    let body = r#"{"kinds":["print"],"wait":"20s"}"#;
    waiting.head("POST", "/v1/tasks/poll", &["content-type: application/json"], Some(body.len()));
    waiting.write(body.as_bytes());
    server.publish("in.a", r#"{"n":1}"#);
    assert_eq!(waiting.reply().ok(200)["tasks"][0]["input"], json!({"n": 1}));
}

#[test]
fn a_failure_ends_the_run_with_what_the_worker_said() {
    let server = Server::start();
    server.apply("a.yaml", PRINTS);
    server.publish("in.a", r#"{"n":1}"#);
    let task = poll(&server, &json!({})).remove(0);
    let said = json!({"token": task["token"], "error": "no paper", "retryable": false});
    server.post("/v1/tasks/fail", said.to_string()).ok(200);
    let run = server.get(&format!("/v1/runs/{}", task["run"].as_str().unwrap())).ok(200);
    assert_eq!(run["error"], json!({"code": "task.failed", "message": "no paper", "class": "permanent"}));
}

#[test]
fn what_is_said_wrongly_is_named() {
    let server = Server::start();
    for (path, body, pointer) in [
        ("poll", r#"{"max":0}"#, "/max"),
        ("poll", r#"{"wait":"2m"}"#, "/wait"),
        ("poll", r#"{"kinds":[1]}"#, "/kinds"),
        ("poll", r#"{"kind":"print"}"#, "/kind"),
        ("complete", r#"{"output":1}"#, "/token"),
        ("fail", r#"{"token":"a","error":7}"#, "/error"),
        ("fail", r#"{"token":"a","retryable":"no"}"#, "/retryable"),
    ] {
        let refused = server.post(&format!("/v1/tasks/{path}"), body).refused(400, "request.invalid");
        assert_eq!(refused["pointer"], pointer, "{path} {body}");
    }
    server.post("/v1/tasks/complete", r#"{"token":"never.was.a.token"}"#).refused(409, "task.stale");
    let long = json!({"token": "a", "output": "x".repeat(1 << 20)}).to_string();
    server.post("/v1/tasks/complete", long).refused(413, "body.too_large");
}

#[test]
fn kinds_are_a_list_that_names_some() {
    let server = Server::start();
    server.apply("a.yaml", PRINTS);
    server.publish("in.a", r#"{"n":1}"#);
    for kinds in [json!([]), json!("print"), json!(null), json!([""]), json!([1])] {
        let refused = server.post("/v1/tasks/poll", json!({ "kinds": kinds }).to_string());
        assert_eq!(refused.refused(400, "request.invalid")["pointer"], "/kinds", "{kinds}");
    }
    assert_eq!(poll(&server, &json!({"kinds": ["print"]})).len(), 1);
}
