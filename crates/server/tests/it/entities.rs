//! Rows over HTTP: contracts §10, from the declaration to the event.

use serde_json::{Value, json};

use crate::harness::Server;

const CONCEPTS: &str = r#"
concept system {
  status enum("ok", "degraded", "down")! @default("ok")
  latencyMs int @minimum(0)
  owner string
}
"#;
const QUERIES: &str = r#"
use health.concepts.{ system }

query system systemsByStatus {
  args { status string! }
  filter payload.status == args.status
}

query system howMany {
  count
}
"#;
const MUTATIONS: &str = r#"
use health.concepts.{ system }

mutation system createSystem {
  args { id string!  owner string }
  insert {
    accept { owner }
    stamp { status: "degraded" }
  }
}
"#;
const API: &str = "/v1/entities/v1:health:system/api";

fn files() -> Value {
    json!({"files": {
        "health/concepts.ew": CONCEPTS, "health/queries.ew": QUERIES, "health/mutations.ew": MUTATIONS,
    }})
}

fn declared() -> Server {
    let server = Server::start();
    server.post("/v1/apply", files().to_string()).ok(200);
    server
}

fn patch(server: &Server, body: Value) -> crate::client::Reply {
    server.send("PATCH", API, &["content-type: application/merge-patch+json"], body.to_string())
}

#[test]
fn a_workspace_is_planned_applied_and_shown() {
    let server = Server::start();
    let plan = server.post("/v1/plan", files().to_string()).ok(200);
    assert_eq!(plan["added"].as_array().unwrap().len(), 4, "{plan}");
    server.get("/v1/concepts/v1:health:system").refused(404, "concept.not_found");
    let done = server.post("/v1/apply", files().to_string()).ok(200);
    assert!(done["position"].as_u64().unwrap() > 0 && done["runs_on_old_versions"].is_object(), "{done}");
    let again = server.post("/v1/apply", files().to_string()).ok(200);
    assert_eq!((&again["added"], &again["changed"]), (&json!([]), &json!([])));
    let concept = server.get("/v1/concepts/v1:health:system").ok(200);
    assert_eq!((&concept["name"], &concept["managed_by"]), (&json!("system"), &json!("workspace:default")));
    assert_eq!(server.get("/v1/concepts").ok(200)["concepts"].as_array().unwrap().len(), 1);
    let wrong = json!({"files": {"health/concepts.ew": "concept {"}});
    let refused = server.post("/v1/apply", wrong.to_string()).refused(422, "definition.invalid");
    assert!(!refused["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_row_is_put_patched_read_looked_back_at_and_deleted() {
    let server = declared();
    let made = server.put(API, r#"{"latencyMs":5}"#);
    let version = made.ok(201)["version"].as_u64().unwrap();
    assert_eq!(made.headers["etag"], format!("\"{version}\""));
    assert_eq!((&made.json()["changed"], &made.json()["fields"]["status"]), (&json!(true), &json!("ok")));
    let same = server.put(API, r#"{"fields":{"latencyMs":5}}"#).ok(200);
    assert_eq!((&same["changed"], same["version"].as_u64()), (&json!(false), Some(version)));
    let changed = patch(&server, json!({"status": "down", "latencyMs": null})).ok(200);
    assert_eq!(changed["fields"], json!({"status": "down"}));
    let read = server.get(API);
    assert_eq!(read.ok(200)["version"], changed["version"]);
    assert!(read.json().get("changed").is_none());
    let then = server.get(&format!("{API}?as_of={version}")).ok(200);
    assert_eq!(then["fields"], json!({"status": "ok", "latencyMs": 5}));
    assert_eq!(server.send("DELETE", API, &[], "").status, 204);
    server.send("DELETE", API, &[], "").refused(404, "not_found");
    server.get(API).refused(404, "not_found");
    let history = server.get(&format!("{API}/history")).ok(200);
    let kinds: Vec<&str> =
        history["changes"].as_array().unwrap().iter().map(|c| c["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["created", "updated", "deleted"]);
    let events = server.get("/v1/events?topic=graph.node.*.v1:health:system").ok(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 3);
    assert_eq!(events["events"][1]["payload"]["delta"], json!({"status": "down", "latencyMs": null}));
}

#[test]
fn what_does_not_fit_or_is_not_as_expected_is_refused() {
    let server = declared();
    let refused = server.put(API, r#"{"status":"sleepy"}"#).refused(422, "entity.invalid");
    assert_eq!(refused["pointer"], "/status");
    let refused = server.put(API, r#"{"fields":{"latencyMs":-1}}"#).refused(422, "entity.invalid");
    assert_eq!(refused["pointer"], "/fields/latencyMs");
    patch(&server, json!({})).refused(404, "not_found");
    server.put("/v1/entities/v1:no:such/x", "{}").refused(404, "concept.not_found");
    server.put(API, "[]").refused(422, "entity.invalid");
    let json = "content-type: application/json";
    let only_new = |body| server.send("PUT", API, &[json, "if-none-match: *"], body);
    let version = only_new("{}").ok(201)["version"].clone();
    only_new("{}").refused(412, "if_match.failed");
    let tag = format!("if-match: \"{version}\"");
    server.send("PUT", API, &[json, &tag], r#"{"latencyMs":1}"#).ok(200);
    server.send("PUT", API, &[json, &tag], r#"{"latencyMs":2}"#).refused(412, "if_match.failed");
    server.send("DELETE", API, &[&tag], "").refused(412, "if_match.failed");
    let version = server.get(API).ok(200)["version"].clone();
    let several = format!("if-match: \"1\", \"{version}\"");
    server.send("PUT", API, &[json, "if-match: \"1\", \"2\""], "{}").refused(412, "if_match.failed");
    server.send("PUT", API, &[json, &several], r#"{"latencyMs":3}"#).ok(200);
    for tag in ["garbage", "W/\"1\""] {
        let condition = format!("if-match: {tag}");
        for reply in [
            server.send("PUT", API, &[json, &condition], "{}"),
            server.send("DELETE", API, &[&condition], ""),
        ] {
            let problem = reply.refused(412, "if_match.failed");
            assert!(problem["hint"].as_str().unwrap().contains(tag), "{problem}");
            assert!(!problem["detail"].as_str().unwrap().contains("not 0"), "{problem}");
        }
    }
}

#[test]
fn rows_are_imported_listed_and_queried() {
    let server = declared();
    let lines = (0..30)
        .map(|n| {
            let status = if n % 3 == 0 { "down" } else { "ok" };
            format!("{{\"id\":\"s{n:02}\",\"status\":\"{status}\",\"latencyMs\":{n}}}\n")
        })
        .collect::<String>();
    let import = "/v1/entities/v1:health:system/import";
    let ndjson = ["content-type: application/x-ndjson"];
    let answer = server.send("POST", import, &ndjson, format!("{lines}{{\"id\":\"x\",\"status\":1}}\n"));
    let answers: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((answers.len(), &answers[3]["id"]), (31, &json!("s03")));
    assert_eq!(answers[30]["error"]["line"], 31);
    assert_eq!(answers[30]["error"]["code"], "entity.invalid");
    let list = "/v1/entities/v1:health:system";
    let first = server.get(&format!("{list}?limit=20")).ok(200);
    assert_eq!(first["entities"].as_array().unwrap().len(), 20);
    let cursor = first["next"].as_str().unwrap().replace('"', "%22");
    let rest = server.get(&format!("{list}?limit=20&cursor={cursor}")).ok(200);
    assert_eq!((rest["entities"].as_array().unwrap().len(), rest.get("next")), (10, None));
    let some = server.get(&format!("{list}?filter=payload.latencyMs%20%3E%2027")).ok(200);
    assert_eq!(some["entities"].as_array().unwrap().len(), 2, "{some}");
    let down = server.post("/v1/queries/systemsByStatus?explain=1", r#"{"args":{"status":"down"}}"#).ok(200);
    assert_eq!(down["rows"].as_array().unwrap().len(), 10);
    assert!(down["plan"].to_string().contains("USING INDEX entity_by_"), "{}", down["plan"]);
    assert_eq!(server.post("/v1/queries/howMany", "{}").ok(200), json!({"count": 30}));
    server.post("/v1/queries/none", "{}").refused(404, "query.not_found");
    let refused =
        server.post("/v1/queries/systemsByStatus", r#"{"args":{}}"#).refused(422, "definition.arguments");
    assert_eq!(refused["pointer"], "/args/status");
}

#[test]
fn a_mutation_writes_a_row_by_name() {
    let server = declared();
    let body = r#"{"args":{"id":"api","owner":"ann"}}"#;
    let made = server.post("/v1/mutations/createSystem", body).ok(200);
    assert_eq!((&made["changed"], &made["id"]), (&json!(true), &json!("api")));
    assert_eq!(made["fields"], json!({"owner": "ann", "status": "degraded"}));
    assert_eq!(made["provenance"], json!({"kind": "mutation", "name": "createSystem"}));
    assert_eq!(server.post("/v1/mutations/createSystem", body).ok(200)["changed"], false);
    let other = r#"{"args":{"id":"api","owner":"bob"}}"#;
    server.post("/v1/mutations/createSystem", other).refused(409, "entity.exists");
    server.post("/v1/mutations/none", "{}").refused(404, "mutation.not_found");
}

#[test]
fn since_when_a_field_has_its_value_and_how_often_it_changed_is_answered() {
    let server = declared();
    server.put(API, r#"{"status":"ok"}"#).ok(201);
    let down = patch(&server, json!({"status": "down"})).ok(200);
    let later = patch(&server, json!({"latencyMs": 7})).ok(200);
    assert_ne!(down["updated_at"], later["updated_at"]);
    let told = server.get(&format!("{API}?in_state_since=status&transitions=status&window=1h")).ok(200);
    assert_eq!((&told["in_state_since"], &told["transitions"]), (&down["updated_at"], &json!(1)));
    patch(&server, json!({"status": "ok"})).ok(200);
    assert_eq!(server.get(&format!("{API}?transitions=status&window=PT1H")).ok(200)["transitions"], 2);
    assert_eq!(server.get(&format!("{API}?transitions=latencyMs&window=1h")).ok(200)["transitions"], 1);
    for wrong in ["in_state_since=stats", "transitions=status", "transitions=status&window=soon"] {
        server.get(&format!("{API}?{wrong}")).refused(400, "request.invalid");
    }
}

#[test]
fn a_filter_of_rows_takes_a_bare_field_as_declared_queries_do() {
    let server = declared();
    server.put(API, r#"{"status":"down","latencyMs":7}"#).ok(201);
    server.put("/v1/entities/v1:health:system/web", r#"{"latencyMs":3}"#).ok(201);
    for filter in ["latencyMs%20%3E%205", "payload.latencyMs%20%3E%205", "status%3D%3D%22down%22"] {
        let found = server.get(&format!("/v1/entities/v1:health:system?filter={filter}")).ok(200);
        assert_eq!(found["entities"].as_array().unwrap().len(), 1, "{filter}: {found}");
        assert_eq!(found["entities"][0]["id"], "api");
    }
    server.get("/v1/entities/v1:health:system?filter=latencyM%20%3E%205").refused(422, "expr.unknown_name");
}
