//! A server whose time is told: what is due is done when the clock has moved there, and real waits stay real.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Server;

const START: &str = "2026-01-01T00:00:00Z";

const AUTOMATIONS: &str = r#"
- automation: slow_order
  triggers: [{event: order.placed}]
  mode: parallel
  max: 500
  actions:
    - delay: 5m
    - publish: {topic: order.slow, payload: {at: "{{ now }}", order: "{{ event.payload.n }}"}}
- automation: hourly
  triggers: [{cron: "0 * * * *"}]
  mode: parallel
  actions:
    - publish: {topic: hour.struck, space: default, payload: {at: "{{ now }}"}}
"#;

fn payloads(server: &Server, topic: &str) -> Vec<Value> {
    let page = server.get(&format!("/v1/events?topic={topic}")).ok(200);
    page["events"].as_array().unwrap().iter().map(|event| event["payload"].clone()).collect()
}

#[test]
fn each_due_instant_is_done_at_its_own_time_before_the_clock_goes_on() {
    let server = Server::told(START);
    server.apply("a.yaml", AUTOMATIONS);
    server.publish("order.placed", r#"{"n":1}"#);
    assert_eq!(
        server.post("/v1/clock", r#"{"advance":"4m59s"}"#).ok(200),
        json!({"now": "2026-01-01T00:04:59Z"})
    );
    assert_eq!(payloads(&server, "order.slow"), [] as [Value; 0]);
    server.post("/v1/clock", r#"{"advance":"1s"}"#).ok(200);
    assert_eq!(payloads(&server, "order.slow"), [json!({"at": "2026-01-01T00:05:00Z", "order": 1})]);
    let to = server.post("/v1/clock", r#"{"to":"2026-01-01T03:30:00Z"}"#).ok(200);
    assert_eq!(to["now"], "2026-01-01T03:30:00Z");
    let hours = payloads(&server, "hour.struck");
    let expected: Vec<Value> = (1..=3).map(|h| json!({"at": format!("2026-01-01T0{h}:00:00Z")})).collect();
    assert_eq!(hours, expected);
    let records = server.get("/v1/records").text().to_owned();
    assert!(!records.contains("clock.stepped"), "{records}");
}

#[test]
fn advancing_by_nothing_is_a_barrier() {
    let server = Server::told(START);
    server.apply("a.yaml", AUTOMATIONS);
    for n in 0..200 {
        server.publish("order.placed", &json!({ "n": n }).to_string());
    }
    assert_eq!(server.post("/v1/clock", r#"{"advance":0}"#).ok(200)["now"], START);
    let waits = server.get("/v1/waits").ok(200);
    assert_eq!(waits["waits"].as_array().unwrap().len(), 200);
    server.post("/v1/clock", r#"{"advance":300}"#).ok(200);
    assert_eq!(payloads(&server, "order.slow").len(), 100, "a page");
    assert_eq!(server.get("/v1/waits").ok(200), json!({"waits": []}));
}

#[test]
fn a_pull_waits_in_real_time_and_deadlines_go_by_the_told_one() {
    let server = Server::told(START);
    server.put("/v1/groups/g", r#"{"pattern":"a","start":"beginning","ack_deadline":"30s"}"#).ok(201);
    let began = Instant::now();
    let none = server.post("/v1/groups/g/pull", r#"{"wait":"50ms"}"#).ok(200);
    assert_eq!(none["deliveries"], json!([]));
    assert!(began.elapsed() >= Duration::from_millis(50));
    server.publish("a", "1");
    let first = server.post("/v1/groups/g/pull", "{}").ok(200);
    assert_eq!(first["deliveries"][0]["deadline"], "2026-01-01T00:00:30Z");
    assert_eq!(server.post("/v1/groups/g/pull", "{}").ok(200)["deliveries"], json!([]));
    server.post("/v1/clock", r#"{"advance":"2m"}"#).ok(200);
    let again = server.post("/v1/groups/g/pull", "{}").ok(200);
    assert_eq!(again["deliveries"][0]["attempt"], 2, "{again}");
}

#[test]
fn what_cannot_be_a_move_is_refused() {
    let server = Server::told(START);
    for body in ["{}", r#"{"advance":"soon"}"#, r#"{"to":5}"#, r#"{"advance":1,"to":"2026-01-02T00:00:00Z"}"#]
    {
        server.post("/v1/clock", body).refused(400, "request.invalid");
    }
    let back = server.post("/v1/clock", r#"{"to":"2025-12-31T00:00:00Z"}"#);
    back.refused(400, "request.invalid");
    let real = Server::start();
    real.post("/v1/clock", r#"{"advance":0}"#).refused(409, "clock.real");
}
