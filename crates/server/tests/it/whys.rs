//! Why something ran or did not, as a client reads it: lineage over calls and subscriptions, reasons and values of decisions,
//! what a debounce gathers, what the breaker refused and runs after all.

use serde_json::{Value, json};

use crate::harness::Server;

fn server() -> Server {
    Server::told("2026-01-01T00:00:00Z")
}

fn declare(server: &Server, automation: &Value) {
    server.post("/v1/automations", automation.to_string()).ok(201);
}

fn advance(server: &Server, by: &str) {
    server.post("/v1/clock", json!({ "advance": by }).to_string()).ok(200);
}

/// What became of each occurrence of an automation, oldest first.
fn decisions(server: &Server, name: &str) -> Vec<Value> {
    let told = server.get(&format!("/v1/decisions?automation={name}")).ok(200);
    let mut all = told["decisions"].as_array().unwrap().clone();
    all.reverse();
    all
}

fn outcomes(server: &Server, name: &str) -> Vec<String> {
    decisions(server, name).iter().map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
}

fn run_of(server: &Server, name: &str) -> Value {
    server.get(&format!("/v1/runs?automation={name}")).ok(200)["runs"][0].clone()
}

/// What `explain` says an event meant for one automation.
fn meant(server: &Server, event: u64, name: &str) -> Value {
    let told = server.get(&format!("/v1/explain/event/{event}")).ok(200);
    let of = told["automations"].as_array().unwrap().iter().find(|one| one["automation"] == name);
    of.unwrap_or_else(|| panic!("{told}")).clone()
}

#[test]
fn lineage_goes_on_below_a_call_and_back_to_its_event() {
    let server = server();
    let child = json!([{"publish": {"topic": "out.child", "space": "default"}}]);
    declare(&server, &json!({"automation": "child", "triggers": [{"manual": true}], "actions": child}));
    let call = json!([{"automation": "child"}]);
    declare(&server, &json!({"automation": "parent", "triggers": [{"event": "begin"}], "actions": call}));
    let event = server.publish("begin", "{}");
    advance(&server, "1s");
    let lineage = server.get(&format!("/v1/events/{event}/lineage")).ok(200);
    let parent = &lineage["effects"][0];
    let called = &parent["effects"][0];
    assert_eq!(
        (&parent["run"]["automation"], &called["run"]["automation"]),
        (&json!("parent"), &json!("child")),
        "{lineage}"
    );
    let out = &called["effects"][0]["event"];
    assert_eq!(out["topic"], "out.child", "{lineage}");
    let back = server.get(&format!("/v1/events/{}/lineage", out["id"].as_str().unwrap())).ok(200);
    assert_eq!(back["causes"][0]["topic"], "begin", "{back}");
    let child = run_of(&server, "child");
    assert_eq!(
        (&child["invoked_by"], &child["triggered_by"], &child["occurrence"]["kind"]),
        (&json!("automation:parent"), &json!("automation:parent"), &json!("call")),
        "{child}"
    );
    assert_eq!(run_of(&server, "parent")["triggered_by"], "event:begin");
}

#[test]
fn a_subscription_starts_the_run_of_its_event_and_a_pass_without_success_says_how_far_it_is() {
    let server = server();
    let steps = json!([
        {"if": "input.bad == true", "fail": "no"}, {"publish": {"topic": "out.flow", "payload": {"kind": "{{ trigger.kind }}"}}},
    ]);
    declare(&server, &json!({"automation": "flow", "triggers": [{"manual": true}], "actions": steps}));
    let asked = json!({"id": "s", "pattern": "price.*", "automation": "flow", "input_mapper": {"bad": "$.payload.bad"}});
    server.post("/v1/subscriptions", asked.to_string()).ok(201);
    let event = server.publish("price.changed", "{}");
    let first = server.post("/api/events/drain", "{}").ok(200);
    let run = run_of(&server, "flow");
    let id = server.get(&format!("/v1/events/{event}")).ok(200)["id"].as_str().unwrap().to_owned();
    assert_eq!(run["occurrence"]["position"], event, "{run}");
    assert_eq!(
        (&run["invoked_by"], &run["triggered_by"]),
        (&json!(format!("event:price.changed:{id}")), &json!("event:price.changed")),
        "{run}"
    );
    let told = server.get(&format!("/v1/explain/run/{}", run["id"].as_str().unwrap())).ok(200);
    assert_eq!(told["decision"]["outcome"], "ran", "{told}");
    assert_eq!(told["lineage"]["effects"][0]["run"]["automation"], "flow", "{told}");
    let lineage = server.get(&format!("/v1/events/{event}/lineage")).ok(200);
    assert_eq!(
        lineage["effects"][0]["effects"][0]["event"]["payload"],
        json!({"kind": "event"}),
        "{lineage}"
    );
    assert_eq!(meant(&server, event, "flow")["outcome"], "ran");
    let last = first["last_event_id"].clone();
    assert!(last.is_string(), "{first}");
    let nothing_new = server.post("/api/events/drain", "{}").ok(200);
    assert_eq!((&nothing_new["processed"], &nothing_new["last_event_id"]), (&json!(0), &last));
    server.publish("price.changed", r#"{"bad":true}"#);
    let halted = server.post("/api/events/drain", "{}").ok(200);
    assert!(halted["halted_on_event_id"].is_string() && halted["last_event_id"] == last, "{halted}");
}

#[test]
fn cancel_and_retry_take_the_body_of_a_resume_and_a_waiting_step_is_told_like_an_ended_one() {
    let server = server();
    let steps = json!([{"id": "nap", "delay": "1h"}]);
    declare(&server, &json!({"automation": "slow", "triggers": [{"event": "begin"}], "actions": steps}));
    server.publish("begin", "{}");
    let id = run_of(&server, "slow")["id"].as_str().unwrap().to_owned();
    let step = &server.get(&format!("/v1/runs/{id}")).ok(200)["steps"][0];
    let parts = (&step["id"], &step["attempts"], &step["status"], &step["kind"]);
    assert_eq!(parts, (&json!("nap"), &json!(1), &json!("waiting"), &json!("delay")), "{step}");
    let body = r#"{"from_step":"actions[0]","allow_side_effects":true}"#;
    let cancelled = server.post(&format!("/v1/runs/{id}/cancel"), body).ok(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled["error"]["message"].is_string() && cancelled["error"]["class"].is_string());
    assert_eq!(server.post(&format!("/v1/runs/{id}/retry"), body).ok(200)["attempt"], 2);
}

#[test]
fn a_decision_says_its_reason_and_what_its_condition_read() {
    let server = server();
    let done = json!([{"publish": "out.done"}]);
    declare(&server, &json!({"automation": "off", "triggers": [{"event": "in"}], "actions": done}));
    server.post("/v1/automations/off/disable", "").ok(200);
    declare(
        &server,
        &json!({"automation": "picky", "triggers": [{"event": "in"}], "conditions": ["event.payload.x > 3"], "actions": done}),
    );
    let event = server.publish("in", r#"{"x":1}"#);
    let off = meant(&server, event, "off");
    assert_eq!((&off["outcome"], &off["reason"]), (&json!("skipped"), &json!("disabled")), "{off}");
    let picky = meant(&server, event, "picky");
    assert_eq!((&picky["gate"], &picky["reason"]), (&json!("conditions"), &json!("conditions")));
    assert_eq!(
        (&picky["values"]["event.payload.x"], &picky["values"]["expr"]),
        (&json!(1), &json!("event.payload.x > 3")),
        "{picky}"
    );
    let tried = server.post("/v1/simulate", r#"{"event":{"topic":"in","payload":{"x":2}}}"#).ok(200);
    let tried = tried["automations"].as_array().unwrap();
    let of = |name: &str| tried.iter().find(|one| one["automation"] == name).unwrap();
    assert_eq!(of("off")["reason"], "disabled", "{tried:?}");
    assert_eq!(of("picky")["values"]["event.payload.x"], 2, "{tried:?}");
}

#[test]
fn what_a_debounce_or_a_batch_gathers_is_pending_until_its_run_and_merged_into_that() {
    let server = server();
    let done = json!([{"publish": "out.done"}]);
    for (name, gate) in [("quiet", json!({"for": "10s"})), ("picky", json!({"for": "10s"}))] {
        let conditions = if name == "picky" { json!(["event.payload.ok"]) } else { json!([]) };
        let trigger = json!([{"event": "in", "debounce": gate}]);
        declare(
            &server,
            &json!({"automation": name, "triggers": trigger, "conditions": conditions, "actions": done}),
        );
    }
    let trigger = json!([{"event": "in", "batch": {"for": "30s"}}]);
    declare(&server, &json!({"automation": "many", "triggers": trigger, "actions": done}));
    for n in 0..3 {
        server.publish("in", &json!({"n": n, "ok": false}).to_string());
        advance(&server, "2s");
    }
    for name in ["quiet", "many"] {
        assert_eq!(outcomes(&server, name), ["pending"; 3], "{name}");
    }
    let first = &decisions(&server, "quiet")[0];
    assert_eq!(
        (&first["gate"], &first["until"]),
        (&json!("debounce"), &json!("2026-01-01T00:00:14Z")),
        "with the one that takes it: {first}"
    );
    advance(&server, "1m");
    assert_eq!(outcomes(&server, "quiet"), ["merged", "merged", "ran"]);
    assert_eq!(outcomes(&server, "many"), ["ran", "merged", "merged"]);
    for name in ["quiet", "many"] {
        let run = run_of(&server, name)["id"].clone();
        assert!(decisions(&server, name).iter().all(|one| one["run"] == run), "{name}");
        let told = server.get(&format!("/v1/explain/run/{}", run.as_str().unwrap())).ok(200);
        assert_eq!(told["decision"]["outcome"], "ran", "{told}");
        let counts = server.get(&format!("/v1/explain/automation/{name}")).ok(200)["counts"].clone();
        assert_eq!(counts["merged"].as_object().unwrap().values().next(), Some(&json!(2)), "{counts}");
    }
    let picky = decisions(&server, "picky");
    assert!(
        picky.iter().all(|one| one["outcome"] == "skipped" && one["reason"] == "conditions"),
        "{picky:?}"
    );
}

#[test]
fn what_the_breaker_refused_runs_after_all_and_once() {
    let server = server();
    let done = json!([{"publish": {"topic": "out.done", "payload": {"n": "{{ event.payload.n }}", "id": "{{ event.id }}"}}}]);
    declare(
        &server,
        &json!({"automation": "page", "triggers": [{"event": "in"}], "storm": {"per_minute": 2, "pause": true}, "actions": done}),
    );
    let events: Vec<u64> = (0..5).map(|n| server.publish("in", &json!({ "n": n }).to_string())).collect();
    assert_eq!(outcomes(&server, "page"), ["ran", "ran", "refused", "refused", "refused"]);
    server.post("/v1/automations/page/resume", "").ok(200);
    let chosen = json!({"automation": "page", "outcome": "refused", "reason": "storm_paused", "since": "2026-01-01T00:00:00Z"});
    let bulk = |dry_run: bool, chosen: &Value| {
        let asked = json!({"do": "run", "where": chosen, "dry_run": dry_run});
        server.post("/v1/runs/bulk", asked.to_string())
    };
    assert_eq!(bulk(true, &chosen).ok(200), json!({"matched": 3, "done": 0}));
    assert_eq!(bulk(false, &chosen).ok(200), json!({"matched": 3, "done": 3}));
    assert_eq!(bulk(false, &chosen).ok(200), json!({"matched": 0, "done": 0}), "each runs once");
    advance(&server, "1s");
    let out = server.get("/v1/events?topic=out.done").ok(200);
    let out: Vec<&Value> = out["events"].as_array().unwrap().iter().map(|one| &one["payload"]["n"]).collect();
    assert_eq!(json!(out), json!([0, 1, 2, 3, 4]));
    let last = run_of(&server, "page");
    assert_eq!(
        (&last["occurrence"]["kind"], &last["occurrence"]["position"], &last["triggered_by"]),
        (&json!("event"), &json!(events[4]), &json!("event:in")),
        "{last}"
    );
    let decided = meant(&server, events[4], "page");
    assert_eq!((&decided["outcome"], &decided["run"]), (&json!("ran"), &last["id"]), "{decided}");
    bulk(false, &json!({"reason": "conditions"})).refused(400, "request.invalid");
    bulk(false, &json!({"outcome": "skipped"})).refused(400, "request.invalid");
    bulk(false, &json!({"status": "failed"})).refused(400, "request.invalid");
    assert_eq!(server.get("/v1/verify").ok(200)["tenants"][0]["state"], "equal");
}

#[test]
fn a_call_that_was_refused_is_not_run_in_bulk() {
    let server = server();
    declare(
        &server,
        &json!({"automation": "page", "triggers": [{"event": "in"}], "storm": {"per_minute": 1, "pause": true}, "actions": []}),
    );
    let call = json!([{"automation": "page", "retry": {"max": 2, "base": "1s"}}]);
    declare(&server, &json!({"automation": "caller", "triggers": [{"event": "go"}], "actions": call}));
    server.publish("in", "{}");
    server.publish("go", "{}");
    advance(&server, "20s");
    server.post("/v1/runs", r#"{"automation":"page"}"#).refused(409, "run.refused");
    let refused = |one: &&Value| one["outcome"] == "refused" && one["reason"] == "storm_paused";
    assert_eq!(
        decisions(&server, "page").iter().filter(refused).count(),
        4,
        "three calls and a start by hand"
    );
    assert_eq!(run_of(&server, "caller")["status"], "failed");
    server.publish("in", "{}");
    server.post("/v1/automations/page/resume", "").ok(200);
    let asked = json!({"do": "run", "where": {"automation": "page"}}).to_string();
    let done = server.post("/v1/runs/bulk", asked).ok(200);
    assert_eq!(
        done,
        json!({"matched": 1, "done": 1}),
        "who called was told; only the event waits for its run"
    );
}

#[test]
fn refused_ones_queue_behind_each_other_where_the_mode_says_so() {
    let server = server();
    let slow = json!([{"delay": "10s"}, {"publish": {"topic": "out.done", "payload": {"n": "{{ event.payload.n }}"}}}]);
    declare(
        &server,
        &json!({"automation": "page", "mode": "queued", "max": 10, "triggers": [{"event": "in"}], "storm": {"per_minute": 1, "pause": true}, "actions": slow}),
    );
    for n in 0..4 {
        server.publish("in", &json!({ "n": n }).to_string());
    }
    server.post("/v1/automations/page/resume", "").ok(200);
    let asked = json!({"do": "run", "where": {"automation": "page"}}).to_string();
    assert_eq!(server.post("/v1/runs/bulk", asked.clone()).ok(200), json!({"matched": 3, "done": 3}));
    assert_eq!(outcomes(&server, "page"), ["ran", "pending", "pending", "pending"]);
    assert_eq!(server.get("/v1/verify").ok(200)["tenants"][0]["state"], "equal");
    for _ in 0..4 {
        advance(&server, "10s");
    }
    assert_eq!(outcomes(&server, "page"), ["ran"; 4]);
    let out = server.get("/v1/events?topic=out.done").ok(200);
    let out: Vec<&Value> = out["events"].as_array().unwrap().iter().map(|one| &one["payload"]["n"]).collect();
    assert_eq!(json!(out), json!([0, 1, 2, 3]));
    assert_eq!(server.post("/v1/runs/bulk", asked).ok(200), json!({"matched": 0, "done": 0}));
}

#[test]
fn a_start_by_hand_pulls_the_trigger_that_is_there_for_it_and_says_what_began_it() {
    let server = server();
    let said = json!([{"publish": {"topic": "out.said", "space": "default", "payload": {"id": "{{ trigger.id }}", "by": "{{ event.payload.triggeredBy }}", "given": "{{ input }}"}}}]);
    let triggers = json!([{"id": "h", "manual": true}, {"every": "1h"}]);
    declare(&server, &json!({"automation": "page", "triggers": triggers, "actions": said}));
    server.post("/v1/runs", r#"{"automation":"page","input":{"n":1}}"#).ok(202);
    server.post("/v1/runs", r#"{"automation":"page"}"#).ok(202);
    advance(&server, "1s");
    let run = run_of(&server, "page");
    assert_eq!((&run["trigger"], &run["triggered_by"]), (&json!("h"), &json!("manual")), "{run}");
    advance(&server, "1h");
    assert_eq!(run_of(&server, "page")["triggered_by"], "schedule");
    let out = server.get("/v1/events?topic=out.said").ok(200);
    let out: Vec<&Value> = out["events"].as_array().unwrap().iter().map(|one| &one["payload"]).collect();
    assert_eq!(
        (&out[0]["id"], &out[0]["by"], &out[0]["given"]),
        (&json!("h"), &json!("manual"), &json!({"n": 1})),
        "{out:?}"
    );
    assert_eq!((&out[1]["given"], &out[2]["by"]), (&json!({}), &json!("schedule")), "{out:?}");
}
