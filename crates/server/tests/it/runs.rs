//! Runs over HTTP: started, tried, cancelled, retried, resumed and run again (contracts §11); simulate.

use serde_json::{Value, json};

use crate::harness::Server;

const CONCEPTS: &str = "@namespace(\"t\")\n@version(\"1.0.0\")\nconcept flag {\n  n int\n}\n";

const AUTOMATIONS: &str = r#"
- automation: share
  triggers: [{event: order.placed, filter: event.payload.total > 100}]
  actions:
    - {id: total, vars: {total: "{{ event.payload.total }}"}}
    - for: part
      in: [1, 2]
      do:
        - publish: {topic: part.begun, payload: {part: "{{ part }}"}}
        - vars: {each: '{{ vars.total / state["v1:t:flag"]["parts"].n }}'}
    - publish: {topic: order.shared, payload: {each: "{{ vars.each }}", by: "{{ actor }}"}}
- automation: slow
  triggers: [{manual: true}]
  mode: parallel
  actions:
    - publish: {topic: slow.begun, payload: {n: "{{ input.n }}"}, space: default}
    - delay: 5m
    - publish: {topic: slow.done, payload: {n: "{{ input.n }}"}, space: default}
- automation: caller
  triggers: [{manual: true}]
  actions:
    - {id: got, http: {method: GET, url: "https://example.com/x"}}
    - publish: {topic: called, payload: {}, space: default}
- automation: shell
  triggers: [{manual: true}]
  actions:
    - exec: {command: "date"}
"#;

fn server() -> Server {
    let server = Server::told("2026-01-01T00:00:00Z");
    let files = json!({"files": {"t/concepts.ew": CONCEPTS, "a.yaml": AUTOMATIONS}});
    server.post("/v1/apply", files.to_string()).ok(200);
    parts(&server, 0);
    server
}

fn parts(server: &Server, n: i64) {
    let put = server.put("/v1/entities/v1:t:flag/parts", json!({ "n": n }).to_string());
    assert!(put.status == 200 || put.status == 201, "{}", put.text());
}

fn settle(server: &Server) {
    server.post("/v1/clock", r#"{"advance":0}"#).ok(200);
}

fn topics(server: &Server, topic: &str) -> usize {
    server.get(&format!("/v1/events?topic={topic}")).ok(200)["events"].as_array().unwrap().len()
}

/// A run that failed in the first round of its loop.
fn failed(server: &Server) -> Value {
    server.publish("order.placed", r#"{"total":700}"#);
    settle(server);
    let runs = server.get("/v1/runs?automation=share&status=failed").ok(200);
    runs["runs"][0].clone()
}

#[test]
fn a_resumed_run_goes_on_inside_the_loop_where_it_failed() {
    let server = server();
    let run = failed(&server);
    assert_eq!(run["error"]["code"], "expr.divide_by_zero", "{run}");
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(topics(&server, "part.begun"), 1);
    parts(&server, 2);
    let resumed = server.post(&format!("{path}/resume"), "").ok(200);
    assert_eq!((&resumed["id"], &resumed["attempt"]), (&run["id"], &json!(1)));
    settle(&server);
    let done = server.get(&path).ok(200);
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["started_at"], run["started_at"]);
    assert_eq!(topics(&server, "part.begun"), 2, "the first round's publish stands");
    assert_eq!(topics(&server, "order.shared"), 1);
    assert!(done.get("error").is_none(), "{done}");
    let steps = done["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["status"] == "completed"), "{done}");
    server.post(&format!("{path}/resume"), "{}").refused(409, "run.not_resumable");
    server.post(&format!("{path}/cancel"), "").refused(409, "run.not_resumable");
    server.post("/v1/runs/run_nope/resume", "").refused(404, "run.not_found");
}

#[test]
fn a_retried_run_begins_anew_and_a_rerun_is_a_new_one() {
    let server = server();
    let run = failed(&server);
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    parts(&server, 7);
    let retried = server.post(&format!("{path}/retry"), "").ok(200);
    assert_eq!((&retried["id"], &retried["attempt"]), (&run["id"], &json!(2)));
    settle(&server);
    assert_eq!(server.get(&path).ok(200)["status"], "completed");
    assert_eq!(topics(&server, "part.begun"), 3);
    let rerun = server.post(&format!("{path}/rerun"), r#"{"from_step":"actions[2]"}"#).ok(200);
    assert_ne!(rerun["id"], run["id"]);
    assert_eq!(rerun["rerun_of"], run["id"]);
    settle(&server);
    assert_eq!(topics(&server, "part.begun"), 3, "the loop was not run again");
    let shared = server.get("/v1/events?topic=order.shared").ok(200);
    assert_eq!(shared["events"][0]["payload"], shared["events"][1]["payload"], "{shared}");
    assert_eq!(shared["events"][1]["payload"]["each"], 100);
    server.post(&format!("{path}/rerun"), r#"{"from_step":"actions[9]"}"#).refused(400, "request.invalid");
    server.post(&format!("{path}/dance"), "").refused(404, "not_found");
}

#[test]
fn a_start_may_wait_for_the_end_bring_its_event_or_be_only_tried() {
    let server = server();
    parts(&server, 7);
    let head = server.engine.main().unwrap().head();
    let event = json!({"topic": "order.placed", "payload": {"total": 70}, "space": "default"});
    let dry = json!({"automation": "share", "event": event, "dry_run": true}).to_string();
    let tried = server.post("/v1/runs", &dry).ok(200);
    assert_eq!((&tried["status"], &tried["dry_run"]), (&json!("completed"), &json!(true)), "{tried}");
    assert_eq!(tried["events"][2]["payload"]["each"], 10, "{tried}");
    assert_eq!(server.engine.main().unwrap().head(), head, "nothing was written");
    server.get(&format!("/v1/runs/{}", tried["id"].as_str().unwrap())).refused(404, "run.not_found");
    let headers = ["content-type: application/json", "prefer: wait=10"];
    let real = json!({"automation": "share", "event": event}).to_string();
    let ran = server.send("POST", "/v1/runs", &headers, &real).ok(200);
    assert_eq!(ran["status"], "completed", "{ran}");
    assert_eq!(ran["steps"].as_array().map(Vec::len), tried["steps"].as_array().map(Vec::len));
    let outside = server.post("/v1/runs", r#"{"automation":"caller","dry_run":true}"#).ok(200);
    assert_eq!(outside["effects"][0]["url"], "https://example.com/x", "{outside}");
    assert_eq!(outside["events"][0]["topic"], "called");
    let shell = server.post("/v1/runs", r#"{"automation":"shell","dry_run":true}"#).ok(200);
    assert_eq!(
        (&shell["status"], &shell["effects"][0]["kind"]),
        (&json!("completed"), &json!("exec")),
        "{shell}"
    );
    assert_eq!(shell["effects"][0]["command"], "date", "{shell}");
    let failed = server.send("POST", "/v1/runs", &headers, r#"{"automation":"shell"}"#).ok(200);
    assert_eq!(failed["error"]["code"], "effect.no_runner", "{failed}");
    server.post("/v1/runs", r#"{"automation":"nope","dry_run":true}"#).refused(404, "not_found");
    server.post("/v1/runs", r#"{"automation":"share","event":5}"#).refused(400, "request.invalid");
}

#[test]
fn many_runs_are_cancelled_at_once_and_filters_choose_them() {
    let server = server();
    for n in 0..3 {
        let start = json!({"automation": "slow", "input": {"n": n}}).to_string();
        assert_eq!(server.post("/v1/runs", start).status, 202);
        server.post("/v1/clock", r#"{"advance":"500ms"}"#).ok(200);
    }
    let since = server.get("/v1/runs?status=waiting&since=2026-01-01T00:00:00.5Z").ok(200);
    assert_eq!(since["runs"].as_array().unwrap().len(), 2, "{since}");
    let all = server.get("/v1/runs?since=2026-01-01T00:00:00Z&automation=slow&limit=2").ok(200);
    let next = all["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/runs?automation=slow&limit=2&cursor={next}")).ok(200);
    assert_eq!(rest["runs"].as_array().unwrap().len(), 1);
    server.get("/v1/runs?status=asleep").refused(400, "request.invalid");
    let bulk = |body: Value| server.post("/v1/runs/bulk", body.to_string());
    let chosen = json!({"automation": "slow", "since": "2026-01-01T00:00:00.5Z"});
    let tried = bulk(json!({"do": "cancel", "where": chosen, "dry_run": true})).ok(200);
    assert_eq!(tried, json!({"matched": 2, "done": 0}));
    let done = bulk(json!({"do": "cancel", "where": chosen})).ok(200);
    assert_eq!(done, json!({"matched": 2, "done": 2}));
    assert_eq!(server.get("/v1/runs?status=cancelled").ok(200)["runs"].as_array().unwrap().len(), 2);
    let again = bulk(json!({"do": "retry", "where": {"status": "cancelled"}})).ok(200);
    assert_eq!(again, json!({"matched": 2, "done": 2}));
    server.post("/v1/clock", r#"{"advance":"5m"}"#).ok(200);
    assert_eq!((topics(&server, "slow.begun"), topics(&server, "slow.done")), (5, 3));
    bulk(json!({"do": "dance", "where": {}})).refused(400, "request.invalid");
    bulk(json!({"do": "cancel"})).refused(400, "request.invalid");
    bulk(json!({"do": "cancel", "where": {"name": "slow"}})).refused(400, "request.invalid");
}

#[test]
fn a_simulated_event_shows_what_it_would_do_and_writes_nothing() {
    let server = server();
    parts(&server, 7);
    let head = server.engine.main().unwrap().head();
    let event = json!({"event": {"topic": "order.placed", "payload": {"total": 700}}}).to_string();
    let told = server.post("/v1/simulate", event).ok(200);
    let share = told["automations"].as_array().unwrap().iter().find(|a| a["automation"] == "share").unwrap();
    assert_eq!(share["outcome"], "ran", "{told}");
    assert_eq!(told["runs"][0]["status"], "completed");
    let topics: Vec<&str> =
        told["events"].as_array().unwrap().iter().map(|e| e["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["part.begun", "part.begun", "order.shared"]);
    let small = json!({"event": {"topic": "order.placed", "payload": {"total": 7}}}).to_string();
    let told = server.post("/v1/simulate", small).ok(200);
    assert_eq!(told["runs"], json!([]));
    assert_eq!(told["automations"][0]["outcome"], "not_matched", "{told}");
    assert!(told.to_string().contains("\"outcome\":\"filtered\""), "{told}");
    assert_eq!(server.engine.main().unwrap().head(), head);
    server.post("/v1/simulate", r#"{"event":{"topic":"a..b"}}"#).refused(422, "event.topic_invalid");
    server.post("/v1/simulate", "{}").refused(400, "request.invalid");
}

const DRAFT: &str = r#"
automation: share
triggers: [{event: order.placed, filter: event.payload.total > 50}]
mode: parallel
actions:
  - delay: 1m
  - if: 'state["v1:t:flag"]["parts"].n > 1'
    publish: {topic: order.shared, payload: {}}
"#;

#[test]
fn a_draft_is_tried_over_the_past_beside_what_really_ran() {
    let server = server();
    parts(&server, 7);
    server.publish("order.placed", r#"{"total":900}"#);
    server.post("/v1/clock", r#"{"advance":"1h"}"#).ok(200);
    let mut placed = Vec::new();
    for total in [10, 60, 700] {
        placed.push(server.publish("order.placed", &json!({ "total": total }).to_string()));
        server.post("/v1/clock", r#"{"advance":"10m"}"#).ok(200);
    }
    let head = server.engine.main().unwrap().head();
    let files = json!({"t/concepts.ew": CONCEPTS, "a.yaml": DRAFT});
    let asked = json!({"files": files, "from": "2026-01-01T00:30:00Z"}).to_string();
    let told = server.post("/v1/backtest", asked).ok(200);
    let share = &told["automations"][0];
    assert_eq!((&share["would"], &share["did"], &share["both"]), (&json!(2), &json!(1), &json!(1)), "{told}");
    assert_eq!(share["only_did"], json!([]), "{told}");
    assert_eq!(share["only_would"][0]["status"], "completed", "{told}");
    assert_eq!((&told["events"], &told["published"]), (&json!(3), &json!(2)), "{told}");
    let all = server.post("/v1/backtest", json!({ "files": files }).to_string()).ok(200);
    assert_eq!(all["automations"][0]["would"], 3, "{all}");
    let would = |from: Value, to: Value| {
        let asked = json!({"files": files, "from": from, "to": to}).to_string();
        server.post("/v1/backtest", asked).ok(200)["automations"][0]["would"].clone()
    };
    let (second, third) = (placed[1], placed[2]);
    assert_eq!(would(json!(second), json!(head)), 2, "positions");
    assert_eq!(would(json!(second.to_string()), json!(third - 1)), 1, "the last one is not in it");
    assert_eq!(would(json!("15m"), Value::Null), 1, "how long ago");
    for from in [json!("noon"), json!(-1), json!([1])] {
        let asked = json!({"files": files, "from": from}).to_string();
        server.post("/v1/backtest", asked).refused(400, "request.invalid");
    }
    assert_eq!(server.engine.main().unwrap().head(), head);
    server.post("/v1/backtest", r#"{"files":{"a.yaml":"automation: 5"}}"#).refused(422, "definition.invalid");
}

#[test]
fn why_not_counts_what_was_filtered_and_lineage_goes_through_runs() {
    let server = server();
    parts(&server, 7);
    server.publish("order.placed", r#"{"total":7}"#);
    let big = server.publish("order.placed", r#"{"total":700}"#);
    server.post("/v1/automations/share/disable", "").ok(200);
    server.publish("order.placed", r#"{"total":800}"#);
    settle(&server);
    let told = server.get("/v1/explain/automation/share").ok(200);
    assert_eq!(told["stopped"], json!({"disabled": 1, "filtered": 1}), "{told}");
    assert_eq!(told["nearest"].as_array().unwrap().len(), 2, "{told}");
    let lineage = server.get(&format!("/v1/events/{big}/lineage")).ok(200);
    let run = &lineage["effects"][0];
    assert_eq!(run["run"]["automation"], "share", "{lineage}");
    assert_eq!(run["effects"].as_array().unwrap().len(), 3, "{lineage}");
    assert_eq!(run["effects"][2]["event"]["topic"], "order.shared");
    let slow = server.post("/v1/runs", r#"{"automation":"slow","input":{"n":1}}"#);
    settle(&server);
    let path = format!("/v1/explain/run/{}", slow.json()["id"].as_str().unwrap());
    let told = server.get(&path).ok(200);
    assert_eq!(told["lineage"]["effects"][0]["effects"][0]["event"]["topic"], "slow.begun", "{told}");
    assert_eq!(server.get("/v1/verify").ok(200)["ok"], true);
}
