//! Automations one by one over HTTP: created, changed, drained, deleted (contracts §14); logic from outside.

use serde_json::{Value, json};

use crate::harness::Server;

const LOGIC: &str = r#"
concept item {
  name string
  closed bool @default(false)
}

mutation item renameItem {
  args { id string!  name string! }
  upsert {
    accept { name }
  }
}

logic renameBoth {
  args { first string!  second string!  name string! }
  body {
    one := renameItem({ id: args.first, name: args.name })
    two := renameItem({ id: args.second, name: args.name })
    return { renamed: 2 }
  }
}
"#;

fn server() -> Server {
    Server::told("2026-01-01T00:00:00Z")
}

fn create(server: &Server, automation: &Value) -> Value {
    server.post("/v1/automations", automation.to_string()).ok(201)
}

fn slow(name: &str) -> Value {
    json!({
        "automation": name, "triggers": [{"event": "go", "debounce": {"for": "10s"}}, {"cron": "0 * * * *"}],
        "mode": "parallel",
        "actions": [{"delay": "5m"}, {"publish": {"topic": "done", "payload": {"by": name}, "space": "default"}}],
    })
}

fn advance(server: &Server, by: &str) {
    server.post("/v1/clock", json!({ "advance": by }).to_string()).ok(200);
}

fn done(server: &Server) -> usize {
    server.get("/v1/events?topic=done").ok(200)["events"].as_array().unwrap().len()
}

fn delete(server: &Server, path: &str) {
    let gone = server.send("DELETE", path, &[], "");
    assert_eq!(gone.status, 204, "{}", gone.text());
}

#[test]
fn an_automation_is_created_changed_and_deleted_without_a_workspace() {
    let server = server();
    let made = create(&server, &slow("one"));
    assert_eq!((&made["managed_by"], &made["enabled"]), (&json!("api"), &json!(true)), "{made}");
    server.post("/v1/automations", slow("one").to_string()).refused(409, "definition.conflict");
    let unknown = json!({"automation": "two", "triggers": [{"event": "a"}], "actions": [{"call": "nope"}]});
    server.post("/v1/automations", unknown.to_string()).refused(422, "definition.invalid");
    server.post("/v1/automations", "[]").refused(422, "definition.invalid");
    server.publish("go", "{}");
    advance(&server, "10s");
    let patch =
        |body: &str| server.send("PATCH", "/v1/automations/one", &["content-type: application/json"], body);
    let patched = patch(r#"{"actions":[{"publish":{"topic":"quick"}}],"description":"q"}"#).ok(200);
    assert_ne!(patched["version"], made["version"]);
    assert_eq!(patched["definition"]["triggers"], made["definition"]["triggers"].clone(), "{patched}");
    assert_eq!(patch(r#"{"description":null}"#).ok(200).get("description"), None);
    patch(r#"{"automation":"other"}"#).refused(400, "request.invalid");
    patch(r#"{"acts":[]}"#).refused(422, "definition.invalid");
    // The run that began goes on under its version.
    let plan = server.post("/v1/plan", r#"{"files":{}}"#).ok(200);
    assert_eq!(plan["runs_on_old_versions"], json!({"one": 1}));
    advance(&server, "5m");
    assert_eq!(done(&server), 1);
    delete(&server, "/v1/automations/one");
    server.get("/v1/automations/one").refused(404, "not_found");
    server.send("DELETE", "/v1/automations/one", &[], "").refused(404, "not_found");
    server
        .send("PATCH", "/v1/automations/one", &["content-type: application/json"], "{}")
        .refused(404, "not_found");
}

#[test]
fn deleting_cancels_runs_or_lets_them_finish_and_takes_what_was_armed_along() {
    let server = server();
    for name in ["cut", "kept"] {
        create(&server, &slow(name));
        assert_eq!(server.post(&format!("/v1/automations/{name}/run"), "").status, 202);
    }
    server.publish("go", "{}");
    delete(&server, "/v1/automations/cut");
    delete(&server, "/v1/automations/kept?runs=finish");
    server.send("DELETE", "/v1/automations/kept?runs=maybe", &[], "").refused(400, "request.invalid");
    // Another change of definitions does not touch what finishes.
    create(&server, &slow("later"));
    advance(&server, "6m");
    let ended = server.get("/v1/runs?automation=cut").ok(200);
    assert_eq!(ended["runs"][0]["error"]["code"], "automation_deleted", "{ended}");
    assert_eq!(server.get("/v1/runs?automation=kept").ok(200)["runs"][0]["status"], "completed");
    assert_eq!(done(&server), 1);
    let decisions = server.get("/v1/decisions?outcome=pending").ok(200);
    assert_eq!(decisions["decisions"], json!([]), "{decisions}");
    advance(&server, "2h");
    assert_eq!(done(&server), 3, "only the schedule of the third is left");
}

#[test]
fn a_workspace_keeps_its_automations_and_leaves_those_of_the_api() {
    let server = server();
    create(&server, &slow("mine"));
    server.apply("a.yaml", "automation: theirs\ntriggers: [{event: x}]\nactions: [{publish: {topic: y}}]\n");
    assert_eq!(server.get("/v1/automations/theirs").ok(200)["managed_by"], "workspace:default");
    server.send("DELETE", "/v1/automations/theirs", &[], "").refused(409, "definition.conflict");
    server.apply("a.yaml", "");
    assert_eq!(server.get("/v1/automations").ok(200)["automations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_drained_automation_finishes_what_it_has_taken_and_takes_no_more() {
    let server = server();
    create(&server, &slow("one"));
    server.publish("go", "{}");
    let drained = server.post("/v1/automations/one/drain", "").ok(200);
    assert_eq!((&drained["enabled"], &drained["reason"]), (&json!(false), &json!("draining")), "{drained}");
    server.publish("go", "{}");
    advance(&server, "10m");
    assert_eq!(done(&server), 1);
    server.post("/v1/automations/one/enable", "").ok(200);
    server.post("/v1/automations/one/dance", "").refused(404, "not_found");
}

#[test]
fn logic_is_called_from_outside_in_one_commit_or_not_at_all() {
    let server = server();
    server.apply("shop/all.ew", LOGIC);
    let args = json!({"args": {"first": "a", "second": "b", "name": "x"}}).to_string();
    let head = server.engine.main().unwrap().head();
    assert_eq!(server.post("/v1/logic/renameBoth", &args).ok(200), json!({"output": {"renamed": 2}}));
    let event = server.get(&format!("/v1/events?after={head}")).ok(200)["events"][0].clone();
    assert_eq!((&event["actor"], event.get("run")), (&json!("user:local"), None), "{event}");
    assert_eq!(event["payload"]["provenance"]["name"], "renameBoth");
    server.post("/v1/logic/renameBoth", r#"{"args":{"first":"a"}}"#).refused(422, "definition.arguments");
    server.post("/v1/logic/nope", "{}").refused(404, "logic.not_found");
    server.post("/v1/logic/renameBoth", r#"{"args":[]}"#).refused(400, "request.invalid");
}
