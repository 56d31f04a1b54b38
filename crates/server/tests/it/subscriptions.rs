//! Subscriptions over HTTP, and seed 003's drain that dispatches them.

use serde_json::json;

use crate::harness::Server;

const AUTOMATIONS: &str = "
- automation: reprice
  triggers: [{manual: true}]
  mode: parallel
  actions: [{publish: {topic: out.priced, payload: '{{ input }}'}}]
- automation: picky
  triggers: [{manual: true}]
  mode: parallel
  actions: [{if: input.bad == true, fail: no good}]
";

#[test]
fn a_drain_starts_what_subscriptions_want_and_halts_where_one_fails() {
    let server = Server::start();
    server.apply("a.yaml", AUTOMATIONS);
    let price = json!({"id": "price", "pattern": "price.*", "automation": "reprice",
        "input_mapper": {"sku": "$.payload.sku", "why": "literal:cost"}});
    server.post("/v1/subscriptions", price.to_string()).ok(201);
    let picky =
        json!({"pattern": "price.*", "automation": "picky", "input_mapper": {"bad": "$.payload.bad"}});
    server.put("/v1/subscriptions/picky", picky.to_string()).ok(201);
    server.publish("price.changed", r#"{"sku":"a"}"#);
    server.publish("price.changed", r#"{"sku":"b","bad":true}"#);
    server.publish("price.changed", r#"{"sku":"c"}"#);
    let first = server.post("/api/events/drain", "{}").ok(200);
    assert_eq!(first["processed"], 1, "{first}");
    assert!(first["halted_on_event_id"].is_string(), "{first}");
    let again = server.post("/api/events/drain", "{}").ok(200);
    assert_eq!(again["halted_on_event_id"], first["halted_on_event_id"]);
    let said = server.get("/v1/events?topic=workflow.dispatch_failed").ok(200);
    assert_eq!(said["events"].as_array().unwrap().len(), 1, "{said}");
    server.post("/v1/subscriptions/picky/disable", "{}").ok(200);
    server.post("/api/events/drain", "{}").ok(200);
    let priced = server.get("/v1/events?topic=out.priced").ok(200);
    let skus: Vec<_> =
        priced["events"].as_array().unwrap().iter().map(|event| event["payload"]["sku"].clone()).collect();
    assert_eq!(json!(skus), json!(["a", "b", "c"]), "each once: what succeeded is not run again");
}

#[test]
fn a_subscription_is_read_changed_and_deleted_and_a_bad_one_is_refused() {
    let server = Server::start();
    server.apply("a.yaml", AUTOMATIONS);
    server.put("/v1/subscriptions/p", r#"{"pattern":"price.*","automation":"reprice"}"#).ok(201);
    let listed = server.get("/v1/subscriptions").ok(200);
    assert_eq!(listed["subscriptions"][0]["id"], "p", "{listed}");
    assert_eq!(server.get("/v1/subscriptions/p").ok(200)["enabled"], true);
    for body in [r#"{"pattern":"a..b","automation":"reprice"}"#, r#"{"pattern":"a.*"}"#, r#"{"colour":1}"#] {
        let refused = server.put("/v1/subscriptions/q", body);
        assert!((400..500).contains(&refused.status), "{body}: {}", refused.status);
    }
    let gone = server.send("DELETE", "/v1/subscriptions/p", &[], "");
    assert!((200..300).contains(&gone.status));
    server.get("/v1/subscriptions/p").refused(404, "not_found");
}

#[test]
fn the_seeds_names_of_columns_are_taken_on_write() {
    let server = Server::start();
    server.apply("a.yaml", AUTOMATIONS);
    let row = json!({"subscription_id": "s", "event_type_glob": "price.*", "workflow_type": "reprice",
        "filter_expr": "event.payload.n > 1"});
    let made = server.post("/v1/subscriptions", row.to_string()).ok(201);
    let want =
        [("id", "s"), ("pattern", "price.#"), ("automation", "reprice"), ("filter", "event.payload.n > 1")];
    for (name, value) in want {
        assert_eq!(made[name], value, "{made}");
    }
    let patched = server.send(
        "PATCH",
        "/v1/subscriptions/s",
        &["content-type: application/json"],
        r#"{"event_type_glob":"cost.*"}"#,
    );
    assert_eq!(patched.ok(200)["pattern"], "cost.#");
    let both = r#"{"pattern":"a","event_type_glob":"b","automation":"reprice"}"#;
    let refused = server.put("/v1/subscriptions/t", both).refused(400, "request.invalid");
    assert_eq!(refused["pointer"], "/event_type_glob");
}
