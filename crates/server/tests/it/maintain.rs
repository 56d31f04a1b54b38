//! The care of a data directory through the server that holds it.

use engine::settings::Settings;
use serde_json::{Value, json};

use crate::harness::{Server, TempDir};
use crate::rights;

#[test]
fn an_erased_event_answers_without_its_content() {
    let server = Server::start();
    let position = server.publish("a.b", r#"{"name":"ann"}"#);
    let body = json!({ "positions": [position] }).to_string();
    assert_eq!(server.post("/v1/erase", &body).ok(200), json!({"erased": 1}));
    assert_eq!(server.post("/v1/erase", &body).ok(200), json!({"erased": 0}));
    let event = server.get(&format!("/v1/events/{position}")).ok(200);
    assert_eq!((&event["erased"], event.get("payload")), (&json!(true), None));
    server.post("/v1/erase", r#"{"positions":[99]}"#).refused(404, "event.not_found");
    server.post("/v1/erase", r#"{"positions":[-1]}"#).refused(400, "request.invalid");
    server.post("/v1/erase", r#"{"position":1}"#).refused(400, "request.invalid");
    server.send("POST", "/v1/erase", &[], &body).refused(415, "body.type");
    let other = ["content-type: application/json", "everwhen-tenant: other"];
    server.send("POST", "/v1/erase", &other, &body).refused(404, "event.not_found");
    assert!(!server.engine.has_tenant("other"), "erasing makes no tenant");
}

#[test]
fn verify_answers_beside_the_writer() {
    let server = Server::start();
    server.publish("a.b", "1");
    let report = server.get("/v1/verify").ok(200);
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")));
    assert_eq!(server.get("/v1/verify?quick=true").ok(200)["tenants"][0]["state"], "skipped");
    server.get("/v1/verify?quick=maybe").refused(400, "request.invalid");
}

#[test]
fn a_backup_goes_to_a_new_directory_only() {
    let dir = TempDir::new();
    let server = Server::set(Settings { backups: Some(dir.0.clone()), ..Settings::default() }, None);
    server.publish("a.b", "1");
    let body = r#"{"to":"monday"}"#;
    let made = server.post("/v1/backup", body).ok(200);
    assert_eq!(made["tenants"][0]["tenant"], "main");
    assert!(dir.0.join("monday/backup.json").exists());
    server.post("/v1/backup", body).refused(409, "store.exists");
    server.post("/v1/backup", r#"{"to":7}"#).refused(400, "request.invalid");
}

#[test]
fn an_imported_event_that_names_nobody_is_of_who_brought_it() {
    let server = rights::server();
    let (text, _) = rights::token(&server, "main", json!({"role": "owner", "name": "mover"}));
    let send = |headers: &[&str], lines: &str| {
        let all = [&["content-type: application/x-ndjson"], headers].concat();
        server.send("POST", "/v1/import", &all, lines).ok(200)
    };
    let lines = "{\"topic\":\"a.b\"}\n{\"topic\":\"a.c\",\"actor\":\"device:d\"}\n{\"topic\":\"a.d\"}\n";
    send(&[&format!("authorization: Bearer {text}")], lines);
    let holder = format!("authorization: Bearer {}", rights::LOCAL);
    send(&[&holder, "everwhen-actor: user:ada"], "{\"topic\":\"a.e\"}\n");
    send(&[&holder], "{\"topic\":\"a.f\"}\n");
    let found = rights::asked(&server, &text, "GET", "/v1/events?topic=a.*", "").ok(200);
    let actors: Vec<&Value> =
        found["events"].as_array().unwrap().iter().map(|event| &event["actor"]).collect();
    assert_eq!(json!(actors), json!(["token:mover", "device:d", "token:mover", "user:ada", "user:local"]));
}

#[test]
fn an_export_is_imported_with_new_positions_and_records_are_gapless() {
    let server = Server::start();
    for n in 0..5 {
        server.publish("a.b", &n.to_string());
    }
    let lines: String = (0..3)
        .map(|n| json!({"id": format!("x{n}"), "topic": "graph.node.created.x", "position": 7, "payload": n}))
        .map(|line| format!("{line}\n"))
        .collect();
    let ndjson = ["content-type: application/x-ndjson"];
    let imported = server.send("POST", "/v1/import", &ndjson, &lines).ok(200);
    assert_eq!(imported, json!({"imported": 3, "duplicates": 0}));
    let refused = server.send("POST", "/v1/import", &ndjson, "{\"topic\":\"a b\"}\n");
    assert_eq!((refused.status, &refused.json()["line"]), (422, &json!(1)));
    server.send("POST", "/v1/import", &[], &lines).refused(415, "body.type");

    let reply = server.get("/v1/records");
    let records: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let positions: Vec<u64> = records.iter().map(|record| record["position"].as_u64().unwrap()).collect();
    // The last one says who imported.
    assert_eq!(positions, (1..=9).collect::<Vec<u64>>());
    assert_eq!(server.get("/v1/records?from=9").text().lines().count(), 1);
    assert_eq!(server.get("/v1/records?from=99").text(), "");
    server.get("/v1/records?from=-1").refused(400, "request.invalid");
}
