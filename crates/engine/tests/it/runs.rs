//! Automations end to end on a simulated disk and a clock that stands still: triggers, gates, waits, crashes.

use std::collections::BTreeMap;

use engine::command::Toggle;
use engine::{Caller, Draft};
use lang::declare::check_workspace;
use model::Timestamp;
use serde_json::{Value, json};

use crate::rig::Rig;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

pub async fn rig(yaml: &str) -> Rig {
    let rig = Rig::new();
    apply(&rig, yaml).await;
    rig
}

const CONCEPTS: &str =
    "@namespace(\"ha\")\n@version(\"1.0.0\")\nconcept entity {\n  state string\n  attributes object\n}\n";

pub async fn apply(rig: &Rig, yaml: &str) {
    let files: BTreeMap<String, String> =
        [("ha/concepts.ew".to_owned(), CONCEPTS.to_owned()), ("a.yaml".to_owned(), yaml.to_owned())].into();
    let checked = check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    rig.tenant.apply("test", checked.definitions).await.unwrap();
}

pub async fn publish(rig: &Rig, topic: &str, payload: Value) {
    rig.send(Draft::new(topic, &payload)).await.unwrap();
}

pub async fn set(rig: &Rig, id: &str, state: &str) {
    let Value::Object(fields) = json!({"state": state}) else { unreachable!() };
    let write = engine::entity::Write::of("v1:ha:entity", Some(id), engine::entity::Action::Upsert(fields));
    rig.tenant.write(&Caller::local(), write).await.unwrap();
}

/// Payloads of the user's events with this topic, in order.
pub fn emitted(rig: &Rig, topic: &str) -> Vec<Value> {
    let query = engine::tenant::Query {
        topic: Some(model::topic::Pattern::parse(topic).unwrap()),
        limit: 1_000,
        ..Default::default()
    };
    let page = rig.tenant.find(&query).unwrap();
    page.events.iter().map(|event| event.to_value()["payload"].clone()).collect()
}

#[tokio::test]
async fn an_event_starts_a_run_that_publishes_in_the_same_turn() {
    let rig = rig("automation: copy\ntriggers:\n  - event: in.*\n    filter: event.payload.n > 1\nactions:\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n").await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    publish(&rig, "in.a", json!({"n": 2})).await;
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 2})]);
    assert!(rig.tenant.live_runs(None).unwrap().is_empty(), "it ended");
}

#[tokio::test]
async fn a_delay_waits_and_survives_a_crash() {
    let mut rig = rig("automation: later\ntriggers:\n  - event: in.*\nactions:\n  - delay: 5m\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n").await;
    publish(&rig, "in.a", json!({"n": 7})).await;
    let runs = rig.tenant.live_runs(Some("later")).unwrap();
    assert_eq!(runs[0]["status"], "waiting");
    assert_eq!(runs[0]["waits"][0]["due"], json!(at("2026-01-01T00:05:00Z")));
    rig.crash();
    assert_eq!(rig.tenant.live_runs(None).unwrap(), runs, "as it was");
    rig.pass(299);
    assert!(emitted(&rig, "out.done").is_empty());
    rig.pass(1);
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 7})]);
}

#[tokio::test]
async fn wait_until_is_woken_by_the_change_it_looks_at_and_by_its_timeout() {
    let yaml = "automation: heal\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - wait_until: {condition: 'state[\"v1:ha:entity\"][\"a\"].state == \"ok\"', timeout: 60s}\n  - publish: {topic: out.done, payload: {completed: \"{{ wait.completed }}\", left: \"{{ wait.remaining }}\"}}\n";
    let mut rig = rig(yaml).await;
    set(&rig, "a", "bad").await;
    publish(&rig, "in.a", json!({})).await;
    rig.pass(20);
    set(&rig, "b", "ok").await;
    assert!(emitted(&rig, "out.done").is_empty(), "another row");
    rig.crash();
    set(&rig, "a", "ok").await;
    assert_eq!(emitted(&rig, "out.done"), [json!({"completed": true, "left": 40.0})]);
    set(&rig, "a", "bad").await;
    publish(&rig, "in.a", json!({})).await;
    rig.pass(60);
    assert_eq!(emitted(&rig, "out.done")[1], json!({"completed": false, "left": 0.0}));
}

#[tokio::test]
async fn wait_for_takes_an_event_that_came_before_the_step_was_reached() {
    let yaml = "automation: pay\ntriggers:\n  - event: order.placed\nactions:\n  - delay: 10s\n  - wait_for: {event: order.paid, filter: 'event.payload.id == trigger.event.payload.id', timeout: 1d, on_timeout: fail}\n  - publish: {topic: out.paid, payload: {id: \"{{ wait.event.payload.id }}\"}}\n";
    let rig = rig(yaml).await;
    publish(&rig, "order.placed", json!({"id": 1})).await;
    publish(&rig, "order.paid", json!({"id": 2})).await;
    publish(&rig, "order.paid", json!({"id": 1})).await;
    rig.pass(10);
    assert_eq!(emitted(&rig, "out.paid"), [json!({"id": 1})]);
}

#[tokio::test]
async fn what_came_is_the_envelope_and_a_while_sees_what_the_round_before_came_to() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.ctx, payload: {topic: \"{{ ctx.input.topic }}\", k: \"{{ ctx.input.payload.k }}\"}}\n  - repeat:\n      while: 'index == 0 || steps.got.output.duplicate == false && index < 3'\n      max: 10\n      do:\n        - id: got\n          publish: {topic: out.round}\n        - delay: 1s\n";
    let mut rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"k": 7})).await;
    assert_eq!(emitted(&rig, "out.ctx"), [json!({"topic": "in.a", "k": 7})]);
    for _ in 0..5 {
        rig.crash();
        rig.pass(1);
    }
    assert_eq!(emitted(&rig, "out.round").len(), 3);
}

#[tokio::test]
async fn modes_share_the_stage() {
    for (mode, live, out) in [
        ("single", 1, vec![1]),
        ("restart", 1, vec![3]),
        ("parallel", 3, vec![1, 2, 3]),
        ("queued", 1, vec![1, 2, 3]),
    ] {
        let yaml = format!(
            "automation: a\ntriggers:\n  - event: in.*\nmode: {mode}\nactions:\n  - delay: 10s\n  - publish: {{topic: out.done, payload: {{n: \"{{{{ event.payload.n }}}}\"}}}}\n"
        );
        let rig = rig(&yaml).await;
        for n in 1..=3 {
            publish(&rig, "in.a", json!({"n": n})).await;
        }
        assert_eq!(rig.tenant.live_runs(None).unwrap().len(), live, "{mode}");
        (0..3).for_each(|_| rig.pass(10));
        let got: Vec<i64> = emitted(&rig, "out.done").iter().map(|p| p["n"].as_i64().unwrap()).collect();
        assert_eq!(got, out, "{mode}");
    }
}

#[tokio::test]
async fn a_state_that_holds_for_a_while_starts_and_one_that_leaves_does_not() {
    let yaml = "automation: page\ntriggers:\n  - state: {entity: v1:ha:entity/a, field: state, to: bad}\n    for: 5m\nactions:\n  - publish: {topic: out.page}\n";
    let mut rig = rig(yaml).await;
    set(&rig, "a", "ok").await;
    set(&rig, "a", "bad").await;
    rig.pass(200);
    set(&rig, "a", "ok").await;
    rig.pass(200);
    assert!(emitted(&rig, "out.page").is_empty());
    set(&rig, "a", "bad").await;
    rig.pass(100);
    rig.crash();
    rig.pass(200);
    assert_eq!(emitted(&rig, "out.page").len(), 1);
}

#[tokio::test]
async fn a_schedule_fires_on_the_minute_and_catches_up_once_after_a_stop() {
    let yaml = "automation: tick\ntriggers:\n  - {cron: \"*/5 * * * *\", tz: UTC}\nactions:\n  - publish: {topic: out.tick, payload: {at: \"{{ event.payload.scheduledAt }}\"}}\n";
    let mut rig = rig(yaml).await;
    rig.pass(299);
    assert!(emitted(&rig, "out.tick").is_empty());
    rig.pass(1);
    assert_eq!(emitted(&rig, "out.tick"), [json!({"at": "2026-01-01T00:05:00Z"})]);
    rig.clock.advance(std::time::Duration::from_secs(3_600));
    rig.crash();
    rig.tenant.tick();
    assert_eq!(emitted(&rig, "out.tick").len(), 2, "the latest only");
    assert_eq!(emitted(&rig, "out.tick")[1]["at"], "2026-01-01T01:05:00Z");
}

#[tokio::test]
async fn a_paused_automation_keeps_what_comes_and_a_disabled_one_does_not() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(yaml).await;
    rig.tenant.set_automation("a", Toggle::Disable).unwrap();
    publish(&rig, "in.a", json!({"n": 1})).await;
    rig.tenant.set_automation("a", Toggle::Enable).unwrap();
    rig.tenant.set_automation("a", Toggle::Pause).unwrap();
    publish(&rig, "in.a", json!({"n": 2})).await;
    assert!(emitted(&rig, "out.done").is_empty());
    rig.tenant.set_automation("a", Toggle::Resume).unwrap();
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 2})]);
}

#[tokio::test]
async fn what_a_failing_step_wrote_is_taken_back_and_what_earlier_ones_wrote_stands() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.before}\n  - atomic:\n      - publish: {topic: out.inside}\n      - fail: no\n  - publish: {topic: out.after}\n";
    let mut rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    let count = |rig: &Rig, topic| emitted(rig, topic).len();
    let seen = |rig: &Rig| [count(rig, "out.before"), count(rig, "out.inside"), count(rig, "out.after")];
    assert_eq!(seen(&rig), [1, 0, 0]);
    rig.crash();
    assert_eq!(seen(&rig), [1, 0, 0], "the ledger says the same");
    assert!(rig.tenant.live_runs(None).unwrap().is_empty(), "it failed and ended");
}

#[tokio::test]
async fn a_group_that_names_them_takes_what_became_of_runs_and_no_other_does() {
    let mut rig = rig("- automation: good\n  triggers: [{event: in.good}]\n  actions:\n    - publish: {topic: out.done, payload: {}}\n- automation: bad\n  triggers: [{event: in.bad}]\n  actions:\n    - fail: {message: broken}\n").await;
    let put = async |name: &str, pattern: &str| {
        rig.tenant.put_group(name, &json!({"pattern": pattern, "max_retries": 0})).await.unwrap();
    };
    put("ends", "automation.completed").await;
    put("all", "automation.#").await;
    put("users", "#").await;
    let steps = json!({"pattern": ["in.*", "automation.step.*"]});
    let refused = rig.tenant.put_group("steps", &steps).await.unwrap_err();
    assert_eq!((refused.code(), refused.pointer()), (model::Code::PatternInvalid, Some("/pattern/1")));
    publish(&rig, "in.good", json!({})).await;
    publish(&rig, "in.bad", json!({})).await;
    let told = |deliveries: &[engine::Delivery]| -> Vec<(String, String)> {
        let said = |event: Value| {
            (
                event["topic"].as_str().unwrap().to_owned(),
                event["payload"]["automation"].as_str().unwrap().to_owned(),
            )
        };
        deliveries.iter().map(|delivery| said(delivery.event.to_value())).collect()
    };
    let ends = rig.pull("ends").await;
    assert_eq!(told(&ends), [("automation.completed".to_owned(), "good".to_owned())]);
    let payload = &ends[0].event.to_value()["payload"];
    assert_eq!(payload["status"], "completed", "{payload}");
    assert!(rig.pull("users").await.iter().all(|got| !got.event.envelope.topic.starts_with("automation.")));

    rig.crash();
    rig.open_again();
    let again = rig.pull("ends").await;
    assert_eq!(again[0].event.to_value(), ends[0].event.to_value(), "the same view of the same record");
    let all = rig.pull("all").await;
    let names = ["started good", "completed good", "started bad", "failed bad"];
    let seen: Vec<String> =
        told(&all).iter().map(|(topic, of)| format!("{} {of}", &topic["automation.".len()..])).collect();
    assert_eq!(seen, names);
    assert_eq!(all[0].event.to_value()["payload"]["triggeredBy"], "event:in.good");
    let tokens: Vec<String> = again.iter().map(|got| got.token.to_string()).collect();
    rig.tenant.nack("ends", &tokens, None, None).await.unwrap();
    assert_eq!(rig.dead("ends"), [ends[0].event.position], "a dead letter like any other");
    assert_eq!(rig.tenant.redrive("ends", engine::Redrive::All).await.unwrap(), 1);
    assert_eq!(rig.pull("ends").await[0].event.to_value(), ends[0].event.to_value());
}
