//! Tasks for workers in other processes: leased, fenced, done at least once under one key (rules R11).

use std::time::Duration;

use engine::tenant::tasks::Task;
use model::Code;
use serde_json::json;

use crate::rig::Rig;
use crate::runs::{emitted, publish, rig};

const PRINTS: &str = "automation: prints\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - id: made\n    retry: {max: 1, base: 1s}\n    task: {kind: print, input: {n: \"{{ event.payload.n }}\"}}\n  - publish: {topic: out.done, payload: {got: \"{{ steps.made.output }}\"}}\n";

fn take(rig: &Rig, kinds: &[&str]) -> Vec<Task> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    rig.tenant.take_tasks(&kinds, 10).unwrap().keep()
}

fn one(rig: &Rig) -> Task {
    let mut tasks = take(rig, &[]);
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

#[tokio::test]
async fn a_task_is_one_workers_and_its_output_goes_on_in_the_run() {
    let rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 7})).await;
    assert!(take(&rig, &["other"]).is_empty());
    assert!(rig.tenant.hand_out_effects([9, 9]).unwrap().is_empty(), "not for workers of this process");
    let task = take(&rig, &["other", "print"]).remove(0);
    let told = task.to_json();
    assert_eq!(
        (&told["kind"], &told["input"], &told["attempt"], &told["step"]),
        (&json!("print"), &json!({"n": 7}), &json!(1), &json!("actions[0]"))
    );
    assert_eq!(told["idempotency_key"], format!("{}:actions[0]", told["run"].as_str().unwrap()));
    assert!(take(&rig, &[]).is_empty(), "it is held");
    assert_eq!(rig.tenant.tasks().unwrap()[0]["state"], "held");
    rig.tenant.complete_task(&task.token, json!({"pages": 3})).await.unwrap();
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": {"pages": 3}})]);
    let again = rig.tenant.complete_task(&task.token, json!({"pages": 4})).await.unwrap_err();
    assert_eq!(again.code(), Code::TaskStale);
    assert_eq!(emitted(&rig, "out.done").len(), 1, "never twice");
    assert!(rig.tenant.tasks().unwrap().is_empty());
}

#[tokio::test]
async fn a_lost_lease_goes_to_the_next_worker_and_the_late_one_is_refused() {
    let rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let first = one(&rig);
    rig.pass(20);
    rig.tenant.heartbeat_task(&first.token).unwrap();
    rig.pass(20);
    assert!(take(&rig, &[]).is_empty(), "it was heard of");
    rig.pass(11);
    assert_eq!(rig.tenant.heartbeat_task(&first.token).unwrap_err().code(), Code::TaskStale);
    let second = one(&rig);
    assert_eq!((second.attempt, &second.effect.key), (2, &first.effect.key), "the same work");
    let before = rig.tenant.head();
    let late = rig.tenant.complete_task(&first.token, json!("late")).await.unwrap_err();
    assert_eq!(late.code(), Code::TaskStale);
    assert_eq!(rig.tenant.head(), before + 1, "it is written down");
    assert!(emitted(&rig, "out.done").is_empty());
    rig.tenant.complete_task(&second.token, json!("in time")).await.unwrap();
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": "in time"})]);
}

#[tokio::test]
async fn a_crash_of_the_server_between_any_two_steps_hands_the_same_task_out_again() {
    let mut rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    rig.crash();
    let first = one(&rig);
    rig.crash();
    let second = one(&rig);
    // It was not out at the first crash, and was at the second: that is an attempt, and never a failure.
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(rig.tenant.tasks().unwrap()[0]["attempt"], 2);
    assert_eq!(second.effect.key, first.effect.key);
    let stale = rig.tenant.complete_task(&first.token, json!(1)).await.unwrap_err();
    assert_eq!(stale.code(), Code::TaskStale, "of another life");
    rig.tenant.heartbeat_task(&second.token).unwrap();
    rig.tenant.complete_task(&second.token, json!(2)).await.unwrap();
    rig.crash();
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": 2})], "answered is written");
    assert!(take(&rig, &[]).is_empty());
}

#[tokio::test]
async fn a_failure_is_tried_again_as_the_step_says_unless_it_is_final() {
    let rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let first = one(&rig);
    let error = json!({"code": "printer.jammed", "message": "paper"});
    rig.tenant.fail_task(&first.token, error.clone(), true).await.unwrap();
    rig.pass(2);
    let second = one(&rig);
    assert_eq!((second.attempt, &second.effect.key), (2, &first.effect.key));
    rig.tenant.fail_task(&second.token, error.clone(), true).await.unwrap();
    rig.pass(60);
    let run = rig.tenant.run(&first.effect.run_id).unwrap();
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("printer.jammed")));
    publish(&rig, "in.a", json!({"n": 2})).await;
    let third = one(&rig);
    rig.tenant.fail_task(&third.token, error, false).await.unwrap();
    let run = rig.tenant.run(&third.effect.run_id).unwrap();
    assert_eq!((&run["status"], &run["error"]["class"]), (&json!("failed"), &json!("permanent")));
}

#[tokio::test]
async fn a_cancelled_run_takes_its_task_from_the_worker() {
    let rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let task = one(&rig);
    rig.tenant.cancel_run(&task.effect.run_id).unwrap();
    assert_eq!(rig.tenant.heartbeat_task(&task.token).unwrap_err().code(), Code::TaskStale);
    assert!(rig.tenant.complete_task(&task.token, json!(1)).await.is_err());
    assert!(emitted(&rig, "out.done").is_empty());
}

#[tokio::test]
async fn a_step_that_takes_too_long_takes_its_task_back() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - {task: print, timeout: 1m, on_error: continue}\n  - publish: {topic: out.after}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    let task = one(&rig);
    for _ in 0..3 {
        rig.pass(19);
        rig.tenant.heartbeat_task(&task.token).unwrap();
    }
    rig.pass(5);
    assert_eq!(emitted(&rig, "out.after").len(), 1, "the step gave up");
    assert!(rig.tenant.heartbeat_task(&task.token).is_err());
}

#[tokio::test]
async fn ten_lost_workers_fail_the_attempt() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - task: {kind: poison}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    let mut run = String::new();
    for attempt in 1..=10 {
        let task = one(&rig);
        assert_eq!(task.attempt, attempt);
        run = task.effect.run_id;
        rig.pass(31);
    }
    assert!(take(&rig, &[]).is_empty());
    let run = rig.tenant.run(&run).unwrap();
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("task.lost")));
}

#[tokio::test]
async fn what_a_poller_that_went_away_was_given_is_given_to_the_next_at_once() {
    let rig = rig(PRINTS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    drop(rig.tenant.take_tasks(&[], 10).unwrap());
    assert_eq!(one(&rig).attempt, 1, "nobody was lost with it");
    let nobody = rig.tenant.take_tasks(&[], 10).unwrap();
    assert!(nobody.is_empty());
    assert_eq!(nobody.free_in, Some(Duration::from_secs(30)), "when to look again");
}

const UNLOCKS: &str = "automation: unlocks\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - id: made\n    retry: {max: 1, base: 1s}\n    task: {kind: unlock, input: {key: \"Bearer {{ secret('door') }}\", again: \"{{ Secret('door') }}\", said: \"{{ event.payload.said }}\"}}\n  - publish: {topic: out.done, payload: {got: \"{{ steps.made.output }}\"}}\n";

#[tokio::test]
async fn a_secret_in_the_input_goes_to_the_worker_alone_and_is_masked_in_what_it_says() {
    let mut rig = rig(UNLOCKS).await;
    let by = engine::Caller::local();
    rig.tenant.put_secret(&by, "door", "sesame-\"1\"").await.unwrap();
    publish(&rig, "in.a", json!({"said": "{{secret(\"door\")}}"})).await;
    let listed = json!(rig.tenant.tasks().unwrap()).to_string();
    assert!(listed.contains("Bearer {{secret") && !listed.contains("sesame"), "{listed}");
    let task = one(&rig);
    let input = task.to_json()["input"].clone();
    assert_eq!(
        input,
        json!({"key": "Bearer sesame-\"1\"", "again": "sesame-\"1\"", "said": "{{secret(\"door\")}}"}),
        "an event is only text"
    );
    // The value that its worker was told is masked, also when it is another by now.
    rig.tenant.put_secret(&by, "door", "sesame-2").await.unwrap();
    let error = json!({"code": "door.shut", "message": "sesame-\"1\" does not open it"});
    rig.tenant.fail_task(&task.token, error, true).await.unwrap();
    rig.pass(2);
    let task = one(&rig);
    assert_eq!(task.to_json()["input"]["key"], "Bearer sesame-2", "as it is at the attempt");
    let output = json!({"hex": "736573616d652d32", "sesame-2": "c2VzYW1lLTI="});
    answer_twice(&rig, &task.token, output).await;
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": {"hex": "***", "***": "***="}})]);
    let mut records = String::new();
    engine::maintain::some_records(&rig.tenant, (1, rig.tenant.head()), &mut records).unwrap();
    assert!(records.contains("*** does not open it") && !records.contains("sesame"), "{records}");
    rig.crash();
    assert!(!json!(rig.tenant.tasks().unwrap()).to_string().contains("sesame"));
}

/// The answer, and the same once more, which is late and written down all the same.
async fn answer_twice(rig: &Rig, token: &str, output: serde_json::Value) {
    rig.tenant.complete_task(token, output.clone()).await.unwrap();
    let late = rig.tenant.complete_task(token, output).await.unwrap_err();
    assert_eq!(late.code(), Code::TaskStale);
}

#[tokio::test]
async fn a_task_whose_secret_is_not_there_fails_before_a_worker_has_it() {
    let rig = rig(UNLOCKS).await;
    publish(&rig, "in.a", json!({"said": 1})).await;
    assert!(take(&rig, &[]).is_empty());
    assert!(rig.tenant.tasks().unwrap().is_empty(), "it was permanent");
}
