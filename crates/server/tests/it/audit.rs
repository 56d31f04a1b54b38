//! Acts of administration are written down with who asked and under which id.

use serde_json::{Value, json};

use crate::harness::Server;

fn acts(server: &Server) -> Vec<Value> {
    server.get("/v1/audit").ok(200)["acts"].as_array().unwrap().clone()
}

#[test]
fn an_act_is_an_event_with_actor_and_request_id_before_it_is_answered() {
    let server = Server::start();
    let headers = ["x-request-id: ours-1", "everwhen-actor: user:ann", "content-type: application/json"];
    let reply = server.send("PUT", "/v1/groups/g", &headers, r##"{"pattern":"a.#"}"##);
    assert_eq!(reply.headers.get("x-request-id").map(String::as_str), Some("ours-1"));
    reply.ok(201);
    server.put("/v1/secrets/pay", r#"{"value":"hunter22"}"#).ok(201);
    server.post("/v1/groups/g/seek", r#"{"to":"beginning"}"#).ok(200);
    server.post("/v1/groups/nobody/seek", r#"{"to":"beginning"}"#).refused(404, "group.not_found");
    server.publish("a.b", "{}");
    let found = acts(&server);
    let named: Vec<&str> = found.iter().filter_map(|act| act["act"].as_str()).collect();
    assert_eq!(named, ["groups.seek", "secrets.put", "groups.put"], "newest first, and only what was done");
    let put = &found[2];
    assert_eq!((&put["actor"], &put["request_id"]), (&json!("user:ann"), &json!("ours-1")));
    assert_eq!((&put["path"], &put["status"]), (&json!("/v1/groups/g"), &json!(201)));
    assert!(found[1]["request_id"].as_str().unwrap().starts_with("req_"));
    assert!(!json!(found).to_string().contains("hunter22"));
    let all = server.get("/v1/events").ok(200)["events"].to_string();
    assert!(!all.contains("engine.audit"), "who asks for everything means what was published: {all}");
    let asked = server.get("/v1/events?topic=engine.audit.groups.*").ok(200);
    assert_eq!(asked["events"].as_array().unwrap().len(), 2);
    server.post("/v1/events", r#"{"topic":"engine.audit.x"}"#).refused(422, "event.topic_reserved");
}

#[test]
fn a_request_id_is_echoed_in_answers_and_problems_and_made_when_it_is_unusable() {
    let server = Server::start();
    let reply = server.send("GET", "/v1/groups/none", &["x-request-id: q-7"], "");
    assert_eq!(reply.json()["request_id"], "q-7");
    assert_eq!(reply.headers["x-request-id"], "q-7");
    let long = format!("x-request-id: {}", "x".repeat(200));
    let reply = server.send("GET", "/livez", &[&long], "");
    assert!(reply.headers["x-request-id"].starts_with("req_"));
}

#[test]
fn checkpoints_are_signed_told_and_agree_with_the_ledger() {
    let server = Server::start();
    server.publish("a.b", "{}");
    let first = server.get("/v1/audit/checkpoints").ok(200);
    server.publish("a.c", "{}");
    let second = server.get("/v1/audit/checkpoints").ok(200);
    let count = |told: &Value| told["checkpoints"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (1, 2));
    let report = server.post("/v1/audit/verify", second.to_string()).ok(200);
    assert_eq!((&report["ok"], &report["checkpoints"]), (&json!(true), &json!(2)), "{report}");
    server.post("/v1/audit/verify", r#"{"checkpoints":[]}"#).refused(400, "request.invalid");
    server.post("/v1/audit/verify", "{}").ok(200);
    let mut forged = second.clone();
    forged["checkpoints"][1]["chain"] = "0".repeat(64).into();
    let report = server.post("/v1/audit/verify", forged.to_string()).ok(200);
    assert_eq!(report["ok"], false, "{report}");
}
