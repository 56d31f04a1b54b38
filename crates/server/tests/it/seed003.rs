//! Seed 003's paths with that document's names.

use serde_json::json;

use crate::harness::Server;

#[test]
fn a_recorded_row_collapses_on_its_key_and_is_seen_newest_first() {
    let server = Server::start();
    let row = json!({"event_type":"price.changed","entity_type":"item","entity_id":"10472",
        "payload":{"new":9},"caused_by":"drain:push","source_system":"drain","idempotency_key":"k1"});
    let first = server.post("/api/events/record", row.to_string()).ok(201);
    assert_eq!(first["collapsed"], false);
    let again = server.post("/api/events/record", row.to_string()).ok(200);
    assert_eq!((&again["collapsed"], &again["event_id"]), (&json!(true), &first["event_id"]));
    server.post("/api/events/record", r#"{"event_type":"email.parsed.ok","payload":{}}"#).ok(201);
    let recent = server.get("/api/events/recent").ok(200);
    let rows = recent["events"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["event_type"], "email.parsed.ok");
    assert_eq!((&rows[1]["entity_id"], &rows[1]["source_system"]), (&json!("10472"), &json!("drain")));
    assert_eq!(rows[1]["event_id"], first["event_id"]);
}

#[test]
fn recent_is_narrowed_by_each_parameter() {
    let server = Server::start();
    for (kind, id) in [("item", "1"), ("item", "2"), ("order", "1")] {
        let row = json!({"event_type":format!("{kind}.changed.deep"),"entity_type":kind,"entity_id":id});
        server.post("/api/events/record", row.to_string()).ok(201);
    }
    let count = |query: &str| {
        server.get(&format!("/api/events/recent{query}")).ok(200)["events"].as_array().unwrap().len()
    };
    assert_eq!(count("?limit=2"), 2);
    assert_eq!(count("?event_type=item.*"), 2, "a final .* is read as .#");
    assert_eq!(count("?entity_type=item"), 2);
    assert_eq!(count("?entity_id=1"), 2);
    assert_eq!(count("?entity_type=item&entity_id=1"), 1);
    server.get("/api/events/recent?limit=0").refused(400, "request.invalid");
    server.get("/api/events/recent?type=x").refused(400, "request.invalid");
}

#[test]
fn a_row_without_a_type_or_with_a_foreign_column_is_refused() {
    let server = Server::start();
    assert_eq!(server.post("/api/events/record", "{}").status, 422);
    assert_eq!(server.post("/api/events/record", r#"{"event_type":"a.b","colour":1}"#).status, 422);
    server.post("/api/events/record", "{").refused(400, "json.invalid");
}

#[test]
fn a_drain_is_refused_while_nothing_dispatches() {
    let server = Server::start();
    let body = r#"{"drainer_id":"workflow_runner","limit":100}"#;
    server.post("/api/events/drain", body).refused(409, "drain.no_dispatcher");
    server.post("/api/events/drain", "").refused(409, "drain.no_dispatcher");
    server.post("/api/events/drain", r#"{"limit":-1}"#).refused(400, "request.invalid");
}

#[test]
fn a_drainer_is_named_by_a_text() {
    let server = Server::start();
    let refused = server.post("/api/events/drain", r#"{"drainer_id":5}"#).refused(422, "group.invalid");
    assert_eq!(refused["pointer"], "/drainer_id");
}

#[test]
fn the_seeds_own_drainer_goes_on_when_its_last_subscription_is_removed() {
    let server = Server::start();
    server.apply("a.yaml", "automation: a\nactions: [{fail: never}]\n");
    server.put("/v1/subscriptions/s", r#"{"pattern":"job.*","automation":"a"}"#).ok(201);
    server.publish("job.a", "{}");
    assert!(server.post("/api/events/drain", "{}").ok(200)["halted_on_event_id"].is_string());
    server.send("DELETE", "/v1/subscriptions/s", &[], "").gone();
    let drained = server.post("/api/events/drain", "{}").ok(200);
    assert!(drained["halted_on_event_id"].is_null(), "{drained}");
    assert!(drained["processed"].as_u64().unwrap() > 0, "{drained}");
}

#[test]
fn a_group_that_no_subscription_names_is_not_drained() {
    let server = Server::start();
    server.put("/v1/groups/jobs", r#"{"pattern":"job.*","start":"beginning"}"#).ok(201);
    server.publish("job.a", "{}");
    server.post("/v1/groups/jobs/dispatch", "{}").refused(409, "drain.no_dispatcher");
    server.post("/api/events/drain", r#"{"drainer_id":"jobs"}"#).refused(409, "drain.no_dispatcher");
    // Also not one that holds at what failed: whoever made it hands its events to a command.
    let strict = r#"{"pattern":"job.*","start":"beginning","ordering":"strict","on_exhausted":"halt"}"#;
    server.put("/v1/groups/sync", strict).ok(201);
    server.post("/v1/groups/sync/dispatch", "{}").refused(409, "drain.no_dispatcher");
    server.post("/api/events/drain", r#"{"drainer_id":"sync"}"#).refused(409, "drain.no_dispatcher");
    let pulled = server.post("/v1/groups/sync/pull", "{}").ok(200);
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1, "it is still there");
    let pulled = server.post("/v1/groups/jobs/pull", r#"{"max":9}"#).ok(200);
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1, "it is still there");
}
