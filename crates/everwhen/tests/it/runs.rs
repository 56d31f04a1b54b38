//! Automations from the command line, in a directory and through a server: started, looked at, answered, explained.

use serde_json::{Value, json};

use crate::support::Place;

const AUTOMATIONS: &str = r#"
automation: big_orders
triggers:
  - event: order.*
    filter: event.payload.total > 100
actions:
  - {id: ok, ask: {question: "Let it pass?"}}
  - publish: {topic: out.done, payload: {order: "{{ event.payload.id }}", ok: "{{ ok }}"}}
"#;

fn tour(place: &Place) {
    place.write("orders.yaml", AUTOMATIONS);
    place.run(&["apply", "orders.yaml"]).ok();
    let small = place.json(&["publish", "order.placed", r#"{"id":1,"total":7}"#])["position"].to_string();
    let small = place.json(&["explain", "event", &small]);
    assert_eq!(small["automations"][0]["outcome"], "filtered", "{small}");
    assert_eq!(small["automations"][0]["values"]["event.payload.total"], 7);
    place.run(&["publish", "order.placed", r#"{"id":2,"total":700}"#]).ok();
    let runs = place.run(&["runs", "list", "--since", "1h", "--json"]).ok();
    let run: Value = runs.lines()[0].clone();
    assert_eq!((run["automation"].as_str(), run["status"].as_str()), (Some("big_orders"), Some("waiting")));
    let id = run["id"].as_str().unwrap().to_owned();
    place.run(&["publish", "order.placed", r#"{"id":3,"total":800}"#]).ok();
    let told = place.json(&["explain", "automation", "big_orders"]);
    assert_eq!(told["counts"], json!({"ran": {"-": 1}, "skipped": {"busy": 1}}), "{told}");
    assert_eq!(told["nearest"][0]["gate"], "filter");
    let waits = place.run(&["waits", "list", "--kind", "ask", "--json"]).ok();
    let wait: Value = waits.lines()[0].clone();
    let wait = wait["id"].as_str().unwrap();
    place.run(&["waits", "answer", wait, "true", "--as", "nobody"]).exits(2);
    place.run(&["waits", "answer", wait, "true", "--as", "user:ann"]).ok();
    place.run(&["waits", "answer", wait, "true"]).exits(4);
    let done = place.json(&["runs", "get", &id]);
    assert_eq!(done["status"], "completed");
    assert_eq!(done["steps"][1]["kind"], "publish", "{done}");
    assert_eq!(place.json(&["explain", "run", &id])["decision"]["run"], id.as_str());
    let made = place.run(&["tail", "out.#", "--after", "0", "--no-follow", "--json"]).ok();
    let made: Value = made.lines()[0].clone();
    assert_eq!(made["payload"], json!({"order": 2, "ok": true}));
    assert_eq!(made["actor"], "system:automation:big_orders");
    assert_eq!(made["run"], id.as_str());
    switches(place);
}

fn switches(place: &Place) {
    assert_eq!(place.json(&["automations", "disable", "big_orders"])["enabled"], false);
    place.run(&["publish", "order.placed", r#"{"id":4,"total":900}"#]).ok();
    assert_eq!(place.run(&["waits", "list", "--json"]).ok().out, "");
    assert_eq!(place.json(&["automations", "enable", "big_orders"])["enabled"], true);
    let started = place.json(&["runs", "start", "big_orders", r#"{"id":5}"#]);
    place.run(&["runs", "start", "big_orders"]).exits(4);
    let id = started["id"].as_str().unwrap();
    assert_eq!(place.json(&["runs", "bulk", "cancel", "--dry-run"]), json!({"matched": 1, "done": 0}));
    let refused = ["runs", "bulk", "run", "--outcome", "refused", "--reason", "storm_paused"];
    assert_eq!(place.json(&refused), json!({"matched": 0, "done": 0}));
    assert_eq!(place.json(&["runs", "cancel", id])["status"], "cancelled");
    assert_eq!(place.json(&["runs", "retry", id])["attempt"], 2);
    assert_eq!(place.json(&["runs", "bulk", "cancel"]), json!({"matched": 1, "done": 1}));
    place.run(&["runs", "resume", id]).exits(4);
    let rerun = place.json(&["runs", "rerun", id]);
    assert_eq!(rerun["rerun_of"], id);
    place.run(&["runs", "cancel", rerun["id"].as_str().unwrap()]).ok();
    let event = r#"{"topic":"order.x","payload":{"id":9}}"#;
    let tried = place.json(&["runs", "start", "big_orders", "--event", event, "--dry-run"]);
    assert_eq!((&tried["status"], &tried["waits"][0]["kind"]), (&json!("waiting"), &json!("ask")));
    let told = place.json(&["simulate", "order.placed", r#"{"id":6,"total":700}"#]);
    assert_eq!(told["automations"][0]["outcome"], "ran", "{told}");
    assert!(place.run(&["simulate", "order.placed", r#"{"total":7}"#]).ok().out.contains("filtered"));
    assert_eq!(place.run(&["waits", "list", "--json"]).ok().out, "");
    one_by_one(place);
    place.run(&["runs", "get", "run_nope"]).exits(3);
    place.run(&["automations", "get", "nope"]).exits(3);
}

/// Without a workspace; and a draft over what has happened.
fn one_by_one(place: &Place) {
    let made = place.json(&["automations", "create", "automation: mine\nactions:\n  - delay: 1h\n"]);
    assert_eq!(made["managed_by"], "api");
    assert_eq!(place.json(&["automations", "patch", "mine", r#"{"mode":"queued"}"#])["managed_by"], "api");
    place.run(&["runs", "start", "mine"]).ok();
    assert_eq!(place.json(&["automations", "drain", "mine"])["reason"], "draining");
    place.run(&["automations", "rm", "mine"]).ok();
    place.run(&["automations", "rm", "big_orders"]).exits(4);
    let told = place.json(&["backtest", "orders.yaml"]);
    assert_eq!(told["automations"][0]["did"], 1, "{told}");
    assert_eq!(place.run(&["call", "nope", "a=1", "--json"]).exits(3).error()["code"], "logic.not_found");
}

#[test]
fn an_automation_runs_and_is_explained_in_a_directory() {
    tour(&Place::new());
}

#[test]
fn an_automation_runs_and_is_explained_through_a_server() {
    let place = Place::new();
    let server = place.serve();
    tour(&place);
    drop(server);
}

#[test]
fn a_dry_run_that_would_wait_in_the_queue_says_so_and_a_pause_is_explained() {
    let place = Place::new();
    place
        .write("a.yaml", "automation: slow\nmode: queued\ntriggers: [{event: in}]\nactions: [{delay: 1h}]\n");
    place.run(&["apply", "a.yaml"]).ok();
    place.run(&["runs", "start", "slow"]).ok();
    let said = place.run(&["runs", "start", "slow", "--dry-run"]).ok().out;
    assert!(said.contains("  queued  ") && said.contains("  slow  ") && !said.contains("null"), "{said}");
    let tried = place.json(&["runs", "start", "slow", "--dry-run"]);
    assert_eq!((&tried["status"], &tried["dry_run"]), (&json!("queued"), &json!(true)));
    let explained = || place.run(&["explain", "automation", "slow"]).ok().out;
    assert!(explained().starts_with("slow is on\n"), "{}", explained());
    place.run(&["automations", "pause", "slow"]).ok();
    assert!(explained().starts_with("slow is paused\n"), "{}", explained());
    assert_eq!(place.json(&["explain", "automation", "slow"])["paused"], true);
}

const DAILY: &str = r#"
automation: daily
triggers:
  - {cron: "0 7 * * *", tz: Europe/Berlin}
  - event: order.placed
actions:
  - delay: 10m
  - publish: {topic: out.done, space: default, payload: {at: "{{ now }}"}}
"#;

#[test]
fn the_time_of_a_server_is_moved_and_a_restart_goes_on_where_it_was_told() {
    let place = Place::new();
    place.write("daily.yaml", DAILY);
    let server = place.serve_with(&["daily.yaml", "--clock", "2026-03-28T12:00:00Z"]);
    place.run(&["publish", "order.placed"]).ok();
    assert_eq!(place.json(&["clock"])["now"], "2026-03-28T12:00:00Z");
    assert_eq!(place.json(&["clock", "--advance", "9m"])["now"], "2026-03-28T12:09:00Z");
    assert_eq!(server.signal("KILL"), -9);
    let server = place.serve_with(&["daily.yaml", "--clock", "2026-03-28T12:09:30Z"]);
    // Over the night in which Berlin's clocks go forward: 07:00 there is 05:00 UTC.
    place.run(&["clock", "--to", "2026-03-29T12:00:00Z"]).ok();
    let made = place.run(&["tail", "out.#", "--after", "0", "--no-follow", "--json"]).ok().lines();
    let at: Vec<&str> = made.iter().map(|event| event["payload"]["at"].as_str().unwrap()).collect();
    assert_eq!(at, ["2026-03-28T12:10:00Z", "2026-03-29T05:10:00Z"]);
    place.run(&["clock", "--to", "2026-03-29T11:00:00Z"]).exits(2);
    drop(server);
    assert_eq!(place.run(&["clock", "--json"]).exits(4).error()["code"], "clock.real");
    place.run(&["serve", "--clock", "noon"]).exits(2);
}
