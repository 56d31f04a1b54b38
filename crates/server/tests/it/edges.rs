//! What clients meet at the edge of runs and declarations: codes of their own door, and shapes without holes.

use serde_json::{Value, json};

use crate::harness::Server;

const AUTOMATIONS: &str = r#"
- automation: ship
  triggers: [{event: order.placed}]
  mode: parallel
  actions:
    - {id: ok, approve: {question: "ship it?"}}
    - publish: {topic: order.answered, payload: {ok: "{{ ok }}"}}
- automation: loops
  triggers: [{manual: true}]
  actions:
    - repeat: {while: "vars.done != true", do: [{vars: {done: false}}]}
- automation: stubborn
  triggers: [{manual: true}]
  actions:
    - {fail: no, retry: {max: 3, base: 1h, limit: 1h}}
- automation: hourly
  triggers: [{cron: "0 * * * *"}]
  mode: parallel
  actions:
    - publish: {topic: hour.struck, space: default, payload: {event: "{{ event }}"}}
"#;

fn server() -> Server {
    let server = Server::told("2026-01-01T00:00:00Z");
    server.apply("a.yaml", AUTOMATIONS);
    server
}

fn settle(server: &Server) {
    server.post("/v1/clock", r#"{"advance":0}"#).ok(200);
}

fn started(server: &Server, name: &str) -> Value {
    let id = server.post("/v1/runs", json!({ "automation": name }).to_string()).json()["id"].clone();
    settle(server);
    server.get(&format!("/v1/runs/{}", id.as_str().unwrap())).ok(200)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

#[test]
fn every_door_refuses_with_a_code_of_its_own() {
    let server = server();
    let posts = [
        ("/v1/runs", r#"{"automaton":"x"}"#),
        ("/v1/runs", "[]"),
        ("/v1/runs/bulk", r#"{"do":"cancel","where":{"since":"noon"}}"#),
        // Read as absent, each would mean every run there is.
        ("/v1/runs/bulk", r#"{"do":"cancel","where":{"automation":7}}"#),
        ("/v1/runs/bulk", r#"{"do":"retry","where":{"status":0.5}}"#),
        ("/v1/runs/bulk", r#"{"do":"run","where":{"reason":["budget"]}}"#),
        ("/v1/runs/bulk", r#"{"do":"run","where":{"outcome":false}}"#),
        ("/v1/clock", r#"{"by":"5m"}"#),
        ("/v1/clock", r#"{"to":"noon"}"#),
        ("/v1/simulate", r#"{"events":[]}"#),
        ("/v1/backtest", r#"{"files":{},"from":"noon"}"#),
        ("/v1/plan", r#"{"file":{}}"#),
        ("/v1/erase", r#"{"position":1}"#),
        ("/v1/queries/x", r#"{"arg":{}}"#),
        ("/v1/subscriptions", r#"{"colour":1}"#),
        ("/v1/waits/x.1/answer", r#"{"answer":1}"#),
        ("/api/events/drain", r#"{"limit":-1}"#),
    ];
    for (path, body) in posts {
        let refused = server.post(path, body).refused(400, "request.invalid");
        assert!(refused["detail"].is_string(), "{path}: {refused}");
    }
    for path in ["/v1/runs?since=noon", "/v1/decisions?since=noon", "/v1/explain/automation/ship?since=noon"]
    {
        let refused = server.get(path).refused(400, "request.invalid");
        assert_eq!(refused["parameter"], "since", "{path}");
    }
    let refused = server.get("/v1/decisions?outcome=bogus").refused(400, "request.invalid");
    assert!(refused["hint"].as_str().unwrap().contains("superseded"), "{refused}");
    server.get("/v1/decisions?outcome=ran").ok(200);
    server.put("/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    server.post("/v1/groups/g/pull", r#"{"colour":1}"#).refused(422, "group.invalid");
}

#[test]
fn what_stands_for_an_event_is_checked_like_one() {
    let server = server();
    let run = |event: Value, dry: bool| {
        server.post("/v1/runs", json!({"automation": "ship", "event": event, "dry_run": dry}).to_string())
    };
    let refused = run(json!({"topic": "a..b"}), false).refused(422, "event.topic_invalid");
    assert_eq!(refused["pointer"], "/event/topic");
    run(json!({"topic": "a..b"}), true).refused(422, "event.topic_invalid");
    run(json!({"topic": "graph.node.created.x"}), false).refused(422, "event.topic_reserved");
    run(json!({"topic": "graph.node.created.x"}), true).ok(200);
    let refused = run(json!({"topic": "a", "colour": 1}), false).refused(422, "event.invalid");
    assert_eq!(refused["pointer"], "/event/colour");
    let real = server.publish("order.placed", "{}");
    let real = server.get(&format!("/v1/events/{real}")).ok(200);
    assert_eq!(run(real, false).status, 202, "a recorded event may be given as it is");
}

#[test]
fn an_approval_is_yes_or_no_in_whatever_words_it_is_given() {
    for (given, is) in
        [(json!("approve"), true), (json!("No"), false), (json!(true), true), (json!("rejected"), false)]
    {
        let server = server();
        server.publish("order.placed", "{}");
        settle(&server);
        let wait = server.get("/v1/waits").ok(200)["waits"][0]["id"].as_str().unwrap().to_owned();
        let answer = |value: &Value| {
            server.post(&format!("/v1/waits/{wait}/answer"), json!({ "value": value }).to_string())
        };
        let refused = answer(&json!("perhaps")).refused(422, "answer.refused");
        assert_eq!(refused["pointer"], "/value");
        answer(&json!(7)).refused(422, "answer.refused");
        answer(&given).ok(200);
        settle(&server);
        let said = server.get("/v1/events?topic=order.answered").ok(200);
        assert_eq!(said["events"][0]["payload"], json!({ "ok": is }), "{given}");
        let topic = if is { "hitl.approved" } else { "hitl.rejected" };
        let told = server.get(&format!("/v1/events?topic={topic}")).ok(200)["events"][0]["payload"].clone();
        assert_eq!(
            (&told["answer"], &told["by"]),
            (&given, &json!("user:local")),
            "who answered is told, too"
        );
        let run = server.get(&format!("/v1/runs/{}", told["run"].as_str().unwrap())).ok(200);
        assert_eq!(run["steps"][0]["by"], "user:local", "{run}");
    }
}

#[test]
fn a_loop_that_never_ends_fails_its_run_and_says_why() {
    let server = server();
    let run = started(&server, "loops");
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("repeat.limit")), "{run}");
    assert!(run["error"]["message"].as_str().unwrap().contains("1000 rounds"), "{run}");
}

#[test]
fn a_run_shows_no_nulls_and_the_steps_it_stands_at() {
    let server = server();
    server.publish("order.placed", "{}");
    settle(&server);
    let id = server.get("/v1/runs?automation=ship").ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    let run = server.get(&format!("/v1/runs/{id}")).ok(200);
    let steps = &run["steps"];
    assert_eq!(
        (&steps[0]["path"], &steps[0]["kind"], &steps[0]["status"]),
        (&json!("actions[0]"), &json!("approve"), &json!("waiting")),
        "{run}"
    );
    server.post(&format!("/v1/runs/{id}/cancel"), "").ok(200);
    let cancelled = server.get(&format!("/v1/runs/{id}")).ok(200);
    let stubborn = started(&server, "stubborn");
    assert_eq!(stubborn["steps"].as_array().unwrap().len(), 1, "{stubborn}");
    assert_eq!(stubborn["steps"][0]["status"], "waiting");
    for _ in 0..3 {
        server.post("/v1/clock", r#"{"advance":"1h"}"#).ok(200);
    }
    let path = format!("/v1/runs/{}", stubborn["id"].as_str().unwrap());
    let failed = server.get(&path).ok(200);
    assert_eq!(failed["steps"].as_array().unwrap().len(), 1, "{failed}");
    assert_eq!(
        (&failed["steps"][0]["status"], &failed["steps"][0]["attempts"]),
        (&json!("failed"), &json!(4))
    );
    let explained = server.get(&format!("/v1/explain/run/{id}")).ok(200);
    for shown in [&run, &cancelled, &failed, &explained] {
        assert!(!has_null(shown), "{shown}");
    }
    let why = json!({"code": "cancelled", "message": "it was cancelled", "class": "permanent"});
    assert_eq!(cancelled["error"], why, "{cancelled}");
    let hours = server.get("/v1/events?topic=hour.struck").ok(200);
    let event = &hours["events"][0]["payload"]["event"];
    assert!(event["topic"].is_string() && event.get("id").is_none(), "{event}");
}

#[test]
fn what_is_told_of_a_run_that_was_cancelled_is_what_the_run_itself_says() {
    let server = Server::start();
    server.put("/v1/groups/hears", r##"{"pattern":"automation.#"}"##).ok(201);
    let mut watcher = crate::socket::Socket::open(&server, &[]);
    watcher.say(&json!({"type": "subscribe_automations"}));
    assert_eq!(watcher.json()["type"], "ok");
    server.apply(
        "a.yaml",
        "automation: asks\ntriggers: [{event: begin}]\nactions:\n  - ask: {question: well}\n",
    );
    server.publish("begin", "{}");
    let run = server.get("/v1/runs?automation=asks").ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    server.post(&format!("/v1/runs/{run}/cancel"), "").ok(200);
    let error = server.get(&format!("/v1/runs/{run}")).ok(200)["error"].clone();
    assert_eq!(error["class"], "permanent", "{error}");
    let pulled = server.post("/v1/groups/hears/pull", r#"{"max":10}"#).ok(200);
    let events = pulled["deliveries"].as_array().unwrap().iter().map(|delivery| &delivery["event"]);
    let told = events.filter(|event| event["topic"] == "automation.cancelled").collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{pulled}");
    assert_eq!(told[0]["payload"]["error"], error, "{pulled}");
    let live =
        std::iter::repeat_with(|| watcher.json()).find(|said| said["type"] == "automation_run_completed");
    assert_eq!(live.unwrap()["error"], error);
}

#[test]
fn an_explained_event_names_the_waits_that_it_ended() {
    let server = Server::told("2026-01-01T00:00:00Z");
    let waits = "automation: waits\ntriggers: [{event: begin}]\nactions:\n  - wait_for: {event: go.on}\n";
    server.apply("a.yaml", waits);
    server.publish("begin", "{}");
    settle(&server);
    let position = server.publish("go.on", "{}");
    settle(&server);
    let explained = server.get(&format!("/v1/explain/event/{position}")).ok(200);
    let wait = &explained["waits"][0];
    assert_eq!((&wait["automation"], &wait["how"]), (&json!("waits"), &json!("met")), "{explained}");
    assert_eq!(wait["id"], format!("{}.1", wait["run"].as_str().unwrap()));
}

#[test]
fn a_move_of_the_clock_has_an_end() {
    let server = Server::told("2026-01-01T00:00:00Z");
    let refused = server.post("/v1/clock", r#"{"advance":"1000000d"}"#).refused(400, "request.invalid");
    assert!(refused["hint"].as_str().unwrap().contains("36525d"), "{refused}");
    server.post("/v1/clock", r#"{"to":"9999-01-01T00:00:00Z"}"#).refused(400, "request.invalid");
    assert_eq!(server.post("/v1/clock", r#"{"advance":"36525d"}"#).ok(200)["now"], "2126-01-02T00:00:00Z");
}

#[test]
fn a_plan_tells_of_runs_that_a_change_or_a_removal_leaves_behind() {
    let server = server();
    server.publish("order.placed", "{}");
    settle(&server);
    let plan = |text: &str| {
        server.post("/v1/plan", json!({"files": {"a.yaml": text}}).to_string()).ok(200)["runs_on_old_versions"].clone()
    };
    assert_eq!(plan(AUTOMATIONS), json!({}));
    assert_eq!(plan(&AUTOMATIONS.replace("ship it?", "send it?")), json!({"ship": 1}));
    let rest = AUTOMATIONS.split_once("- automation: loops").unwrap().1;
    assert_eq!(plan(&format!("- automation: loops{rest}")), json!({"ship": 1}));
}

#[test]
fn files_that_are_no_declarations_though_they_look_like_it_are_refused() {
    let server = server();
    for text in [
        "}{",
        "trigger: {event: a}\naction: []",
        "automations: []",
        "just words",
        "automation: x\ntriggers: [{event: []}]",
    ] {
        let body = json!({"files": {"a.yaml": text}}).to_string();
        server.post("/v1/plan", &body).refused(422, "definition.invalid");
        server.post("/v1/backtest", &body).refused(422, "definition.invalid");
    }
}

#[test]
fn whoever_is_lost_is_told_every_beginning() {
    let server = Server::start();
    let hint = server.get("/v1/nothing").refused(404, "not_found")["hint"].as_str().unwrap().to_owned();
    for path in [
        "/v1/logic",
        "/v1/clock",
        "/v1/simulate",
        "/v1/backtest",
        "/v1/subscriptions",
        "/readyz",
        "/api/events",
    ] {
        assert!(hint.contains(path), "{path}: {hint}");
    }
    let mut seen: Vec<(&str, &str)> = server::ROUTES.iter().map(|route| (route.method, route.path)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), server::ROUTES.len(), "a route stands there twice");
}

#[test]
fn an_answer_to_an_old_question_does_not_answer_that_of_a_retried_run() {
    let server = Server::told("2026-01-01T00:00:00Z");
    let asks = r#"
automation: asks
triggers: [{manual: true}]
actions:
  - {id: ok, ask: {question: "go on?"}}
  - {fail: no}
"#;
    server.apply("a.yaml", asks);
    let answer = |wait: &Value| {
        let path = format!("/v1/waits/{}/answer", wait.as_str().unwrap());
        server.post(&path, r#"{"value":"yes"}"#)
    };
    let run = started(&server, "asks");
    let (path, first) = (format!("/v1/runs/{}", run["id"].as_str().unwrap()), run["waits"][0]["id"].clone());
    answer(&first).ok(200);
    settle(&server);
    assert_eq!(server.get(&path).json()["status"], "failed");
    // Failed, and then cancelled: how far it came is known of the one and not of the other.
    for verb in ["", "/cancel"] {
        if !verb.is_empty() {
            server.post(&format!("{path}{verb}"), "").ok(200);
        }
        server.post(&format!("{path}/retry"), "").ok(200);
        settle(&server);
        let second = server.get(&path).json()["waits"][0]["id"].clone();
        assert_ne!(second, first);
        assert!(answer(&first).status >= 400, "it was answered long ago");
        assert_eq!(server.get(&path).json()["status"], "waiting");
    }
}

#[test]
fn an_answer_is_held_to_the_form_of_its_question() {
    let server = Server::told("2026-01-01T00:00:00Z");
    let asks = r#"
automation: asks
triggers: [{manual: true}]
actions:
  - {id: sum, ask: {question: "how much?", form: {amount: "number!", why: string}}}
  - {id: ok, approve: {question: "really?", form: {note: "string!"}}}
"#;
    server.apply("a.yaml", asks);
    let run = started(&server, "asks");
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let open = || server.get(&path).json()["waits"][0].clone();
    let answer = |value: Value| {
        let path = format!("/v1/waits/{}/answer", open()["id"].as_str().unwrap());
        let said = server.post(&path, json!({"value": value}).to_string());
        settle(&server);
        said
    };
    assert_eq!(open()["form"][0]["name"], "amount", "{}", open());
    let refused = [
        (json!(5), "/value"),
        (json!({"why": "x"}), "/value/amount"),
        (json!({"amount": "five"}), "/value/amount"),
        (json!({"amount": 5, "reason": "x"}), "/value/reason"),
    ];
    for (value, pointer) in refused {
        let problem = answer(value.clone()).ok(422);
        assert_eq!(
            (&problem["code"], &problem["pointer"]),
            (&json!("answer.refused"), &json!(pointer)),
            "{value}: {problem}"
        );
    }
    answer(json!({"amount": 5})).ok(200);
    for lacks in [json!({"approved": true}), json!("yes"), json!(true)] {
        assert_eq!(answer(lacks).ok(422)["pointer"], "/value/note");
    }
    answer(json!({"approved": true, "note": "fine"})).ok(200);
    let run = server.get(&path).json();
    assert_eq!(
        (&run["status"], &run["steps"][1]["output"]["note"]),
        (&json!("completed"), &json!("fine")),
        "{run}"
    );
}

#[test]
fn an_approval_with_a_form_is_an_object_also_when_it_is_rejected_in_a_word() {
    let server = Server::told("2026-01-01T00:00:00Z");
    let asks = "automation: asks\ntriggers: [{manual: true}]\nactions:\n  - {id: ok, approve: {question: \"really?\", form: {note: \"string!\"}}}\n";
    server.apply("a.yaml", asks);
    for (answer, output) in [
        (json!("no"), json!({"approved": false})),
        (json!({"approved": false}), json!({"approved": false})),
        (json!({"approved": true, "note": "x"}), json!({"approved": true, "note": "x"})),
        (json!({"approved": "yes", "note": "x"}), json!({"approved": true, "note": "x"})),
    ] {
        let run = started(&server, "asks");
        let path = format!("/v1/waits/{}/answer", run["waits"][0]["id"].as_str().unwrap());
        server.post(&path, json!({ "value": answer }).to_string()).ok(200);
        settle(&server);
        let run = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).json();
        assert_eq!(run["steps"][0]["output"], output, "{run}");
    }
}

#[test]
fn an_array_under_a_key_starts_what_it_would_start_without_one() {
    let server = Server::told("2026-01-01T00:00:00Z");
    server.apply(
        "a.yaml",
        "automation: echo\nmode: queued\ntriggers: [{event: in.x}]\nactions: [{publish: {topic: out.x}}]\n",
    );
    let headers = ["content-type: application/json", "idempotency-key: k"];
    server.send("POST", "/v1/events", &headers, r#"[{"topic":"in.x"},{"topic":"in.x"}]"#).ok(201);
    settle(&server);
    let found = server.get("/v1/events?topic=out.x").ok(200);
    assert_eq!(found["events"].as_array().unwrap().len(), 2, "{found}");
}
