//! Lifecycle events quote the run they tell of: whatever keeps one is sealed, forgotten and erased with what that run read.

use std::path::PathBuf;

use engine::command::Toggle;
use engine::maintain::verify;
use engine::{Caller, Draft, Redrive};
use model::Position;
use serde_json::{Value, json};

use super::{holding, rebuilt};
use crate::temp::{Bench, tokens};

const CANARY: &str = "c4n4ry-that-a-run-quotes";

/// Runs that quote what they read, and every way of keeping what is told of them: a run that lives or has ended, a place
/// behind a gate, in a queue or in a pause, and a decision whose error says it.
const TOLD: &str = r#"
- automation: fails
  mode: parallel
  triggers: [{event: a}]
  actions: [{fail: "no bed for {{ event.payload.name }}"}]
- automation: answers
  mode: parallel
  triggers: [{event: a}]
  actions: [{return: "{{ event.payload.name }}"}]
- automation: listens
  mode: parallel
  triggers: [{event: begin}]
  actions: [{wait_for: {event: a}}, {fail: "heard {{ wait.event.payload.name }}"}]
- automation: lives
  mode: parallel
  triggers: [{event: automation.failed}, {event: automation.completed, filter: 'event.payload.automation == "answers"'}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
- automation: ends
  mode: parallel
  triggers: [{event: automation.failed}]
  actions: [{vars: {told: "{{ event.payload }}"}}]
- automation: settles
  triggers: [{event: automation.failed, debounce: 1h}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
- automation: queues
  mode: queued
  triggers: [{event: begin}, {event: automation.failed}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
- automation: pauses
  mode: parallel
  triggers: [{event: automation.failed}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
- automation: errs
  mode: parallel
  triggers: [{event: automation.failed}]
  conditions: ['int(event.payload.error.message) > 0']
  actions: [{delay: 1h}]
- automation: calls
  mode: parallel
  triggers: [{event: a}]
  actions: [{automation: called, wait: false, args: {name: "{{ event.payload.name }}"}}]
- automation: called
  mode: queued
  triggers: [{event: begin}]
  actions: [{vars: {told: "{{ input }}"}}, {delay: 1h}]
"#;

/// Three events would switch `fails` off, which is told as an event of the ledger.
const OFF: &str = r#"
- automation: fails
  mode: parallel
  triggers: [{event: a}]
  actions: [{fail: "no bed for {{ event.payload.name }}"}]
- automation: minds
  mode: parallel
  triggers: [{event: automation.disabled}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
- automation: slow
  mode: parallel
  triggers: [{event: b}]
  actions: [{vars: {name: "{{ event.payload.name }}"}}, {delay: 1h}]
- automation: reacts
  mode: parallel
  triggers: [{event: automation.failed, filter: 'event.payload.automation == "slow"'}]
  actions: [{vars: {told: "{{ event.payload }}"}}, {delay: 1h}]
"#;

fn said(topic: &str, space: &str, name: &str) -> Draft {
    Draft { space: Some(space.to_owned()), ..Draft::new(topic, &json!({"name": name})) }
}

async fn applied(text: &str) -> Bench {
    let bench = Bench::new();
    let checked = lang::declare::check_workspace(&[("t.yaml".to_owned(), text.to_owned())].into());
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    bench
}

/// What [`TOLD`] makes of an event of the clinic, whose place it is, and of one that begins in another space.
async fn told(sealed: bool) -> (Bench, Position) {
    let bench = applied(TOLD).await;
    if sealed {
        bench.tenant.seal_space(&Caller::local(), "clinic").await.unwrap();
    }
    let group = json!({"pattern": "automation.failed", "max_retries": 0, "start": "beginning"});
    bench.tenant.put_group("g", &group).await.unwrap();
    bench.tenant.set_automation("pauses", Toggle::Pause).unwrap();
    bench.engine.publish(said("begin", "other", "-")).await.unwrap();
    let mine = bench.engine.publish(said("a", "clinic", CANARY)).await.unwrap().position().unwrap();
    (bench, mine)
}

fn live(bench: &Bench) -> Vec<String> {
    let runs = bench.tenant.live_runs(None).unwrap();
    runs.iter().map(|run| run["automation"].as_str().unwrap().to_owned()).collect()
}

/// Dead letters of what was told of the clinic's own run; the other one's is in the group and stays there.
async fn give_up(bench: &Bench) {
    let out = bench.pull("g", 10).await;
    let quoting = |delivery: &engine::Delivery| {
        delivery.event.envelope.space == "clinic" && delivery.event.to_json().contains(CANARY)
    };
    let out: Vec<_> = out.into_iter().filter(quoting).collect();
    assert_eq!(out.len(), 1);
    bench.tenant.reject("g", &tokens(&out), Some(format!("cannot: {CANARY}"))).await.unwrap();
}

fn assert_sound(bench: &Bench) {
    let report = verify(bench.dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
}

/// Nothing says it any more, on disk or to who asks, and nothing that waited begins.
async fn is_gone(bench: Bench) {
    assert_eq!(holding(bench.dir.path(), CANARY), Vec::<PathBuf>::new());
    let dead = bench.tenant.dead_letters("g", 10, None).unwrap().dead_letters;
    let event = &dead[0]["event"];
    assert_eq!((&event["topic"], dead[0].get("error")), (&json!("automation.failed"), None), "{dead:?}");
    assert!(!dead[0].to_string().contains(CANARY), "{dead:?}");
    bench.tenant.redrive("g", Redrive::All).await.unwrap();
    let again = bench.pull("g", 10).await;
    assert!(!again.is_empty() && again.iter().all(|delivery| !delivery.event.to_json().contains(CANARY)));
    bench.tenant.set_automation("pauses", Toggle::Resume).unwrap();
    bench.pass(3_700.0);
    assert_eq!(holding(bench.dir.path(), CANARY), Vec::<PathBuf>::new());
    let left = bench.tenant.live_runs(None).unwrap();
    assert!(!json!(left).to_string().contains(CANARY), "{left:#?}");
    assert_sound(&bench);
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert_eq!(holding(dir.path(), CANARY), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn what_keeps_a_lifecycle_event_of_a_sealed_space_does_not_lay_it_open_and_is_forgotten_with_it() {
    let (bench, _) = told(true).await;
    give_up(&bench).await;
    let ledger = bench.dir.path().join("tenants/main/ledger");
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new(), "in the clear");
    let bench = bench.reopen().await;
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new());
    assert_eq!(live(&bench).iter().filter(|name| *name == "lives").count(), 3, "with the keys all is read");
    bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    is_gone(bench).await;
}

#[tokio::test]
async fn what_was_sealed_while_it_waited_is_read_again_after_a_rebuild() {
    let (bench, _) = told(true).await;
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    let at = model::Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    let bench = Bench::on(dir, at, |_| ());
    bench.pass(3_700.0);
    bench.tenant.set_automation("pauses", Toggle::Resume).unwrap();
    let runs = bench.tenant.live_runs(None).unwrap();
    for name in ["settles", "queues", "pauses", "called"] {
        let of = runs.iter().filter(|run| run["automation"] == name);
        let ids: Vec<_> = of.map(|run| run["id"].as_str().unwrap().to_owned()).collect();
        assert!(!ids.is_empty(), "{name} began: {runs:#?}");
        let says = |id: &String| bench.tenant.run(id).unwrap().to_string().contains(CANARY);
        assert!(ids.iter().any(says), "{name} has what it waited with");
    }
    let ledger = bench.dir.path().join("tenants/main/ledger");
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new(), "and is sealed as it was");
}

#[tokio::test]
async fn what_keeps_a_lifecycle_event_of_a_space_that_was_never_sealed_is_forgotten_with_it() {
    let (bench, _) = told(false).await;
    give_up(&bench).await;
    bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    is_gone(bench).await;
}

#[tokio::test]
async fn an_event_is_erased_with_what_lifecycle_events_quote_of_it() {
    let (bench, mine) = told(false).await;
    give_up(&bench).await;
    assert_eq!(bench.tenant.erase(&[mine]).await.unwrap(), 1);
    assert_eq!(live(&bench), ["called", "queues"], "they began with another one");
    is_gone(bench).await;
}

#[tokio::test]
async fn who_read_that_an_automation_was_switched_off_loses_the_quote_and_who_reads_of_the_loss_lives() {
    let bench = applied(OFF).await;
    let mut events = Vec::new();
    for topic in ["a", "a", "a", "b"] {
        let event = bench.engine.publish(said(topic, "clinic", CANARY)).await.unwrap();
        events.push(event.position().unwrap());
    }
    assert_eq!(live(&bench), ["minds", "slow"]);
    bench.tenant.erase(&events).await.unwrap();
    assert_eq!(live(&bench), ["reacts"], "it quotes only that something was erased");
    let reacts = bench.tenant.live_runs(None).unwrap()[0].clone();
    let reacts: Value = bench.tenant.run(reacts["id"].as_str().unwrap()).unwrap();
    assert!(reacts.to_string().contains("event.erased"), "{reacts}");
    assert_eq!(holding(bench.dir.path(), CANARY), Vec::<PathBuf>::new());
    assert_sound(&bench);
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert_eq!(holding(dir.path(), CANARY), Vec::<PathBuf>::new());
}
