//! Effects on a simulated disk: who is given them, what crashes do, which answer counts (rules R11).

mod detached;
mod pushes;
mod secrets;
mod tasks;
mod workers;

use engine::run::Effect;
use model::record::How;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{emitted, publish, rig};

const CALLS: &str = "automation: calls\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - id: asked\n    retry: {max: 3, base: 1s}\n    http: {url: \"https://example.org/x\", body: {n: \"{{ event.payload.n }}\"}}\n  - publish: {topic: out.done, payload: {got: \"{{ steps.asked.output }}\"}}\n";

fn all(rig: &Rig) -> Vec<Effect> {
    rig.tenant.hand_out_effects([100, 100]).unwrap()
}

fn failed(class: &str) -> Value {
    json!({"code": "http.failed", "message": "no", "class": class})
}

fn waits(rig: &Rig) -> Vec<Value> {
    rig.tenant.waits().unwrap()
}

#[tokio::test]
async fn an_effect_is_handed_out_once_and_again_after_a_crash_under_the_same_key() {
    let mut rig = rig(CALLS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let first = all(&rig);
    assert_eq!(
        first[0].with,
        json!({"method": "POST", "url": "https://example.org/x", "headers": null, "body": {"n": 1}})
    );
    assert!(all(&rig).is_empty(), "a worker has it");
    rig.crash();
    assert_eq!(all(&rig), first, "the same, with the same key");
    rig.tenant.effect_done(&first[0], How::Done, json!({"status": 200})).unwrap();
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": {"status": 200}})]);
    assert!(all(&rig).is_empty());
}

#[tokio::test]
async fn a_transient_failure_is_tried_again_under_the_same_key_and_a_permanent_one_is_not() {
    let rig = rig(CALLS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let first = all(&rig).remove(0);
    rig.tenant.effect_done(&first, How::Failed, failed("transient")).unwrap();
    assert!(all(&rig).is_empty(), "not before its time");
    rig.pass(2);
    let second = all(&rig).remove(0);
    assert_eq!((second.attempt, second.key.as_str()), (2, first.key.as_str()));
    assert_ne!(second.id(), first.id());
    rig.tenant.effect_done(&first, How::Done, json!("late")).unwrap();
    assert!(emitted(&rig, "out.done").is_empty(), "only the current attempt completes");
    rig.tenant.effect_done(&second, How::Failed, failed("permanent")).unwrap();
    assert!(rig.tenant.live_runs(None).unwrap().is_empty());
    let run = rig.tenant.run(&first.run_id).unwrap();
    assert_eq!((run["status"].as_str(), &run["error"]["class"]), (Some("failed"), &json!("permanent")));
}

#[tokio::test]
async fn workers_of_schedules_and_of_events_have_their_own_room() {
    let yaml = format!(
        "{CALLS}---\nautomation: nightly\ntriggers:\n  - every: 1m\nmode: parallel\nactions:\n  - http: {{url: \"https://example.org/n\"}}\n"
    );
    let rig = rig(&yaml).await;
    for n in 0..3 {
        publish(&rig, "in.a", json!({"n": n})).await;
        rig.pass(60);
    }
    let scheduled = |effects: &[Effect]| effects.iter().filter(|effect| effect.scheduled).count();
    let some = rig.tenant.hand_out_effects([1, 2]).unwrap();
    assert_eq!((some.len(), scheduled(&some)), (3, 2));
    let rest = all(&rig);
    assert_eq!((rest.len(), scheduled(&rest)), (3, 1));
}

#[tokio::test]
async fn ten_crashes_quarantine_an_effect_until_it_is_redriven() {
    let mut rig = rig(CALLS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    for crash in 0..10 {
        assert_eq!(all(&rig).len(), 1, "after {crash} crashes");
        rig.tenant.tick();
        rig.clock.advance(std::time::Duration::from_secs(1));
        rig.tenant.tick();
        rig.crash();
    }
    assert!(all(&rig).is_empty());
    assert_eq!(waits(&rig)[0]["quarantined"], json!({"crashes": 10}));
    publish(&rig, "in.a", json!({"n": 2})).await;
    assert_eq!(all(&rig).len(), 1, "others go on");
    let wait = waits(&rig)[0]["id"].as_str().unwrap().to_owned();
    rig.tenant.redrive_effect(&wait).unwrap();
    assert_eq!(all(&rig).len(), 1);
    assert!(rig.tenant.redrive_effect(&wait).is_err(), "it is not in quarantine");
}

#[tokio::test]
async fn a_clean_stop_is_no_crash() {
    let mut rig = rig(CALLS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    for _ in 0..11 {
        assert_eq!(all(&rig).len(), 1);
        rig.tenant.close().await.unwrap();
        rig.open_again();
    }
    assert_eq!(all(&rig).len(), 1);
}

#[tokio::test]
async fn an_answer_to_a_run_that_was_cancelled_is_late_and_changes_nothing() {
    let mut rig = rig(CALLS).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    let effect = all(&rig).remove(0);
    rig.tenant.cancel_run(&effect.run_id).unwrap();
    let before = rig.tenant.head();
    rig.tenant.effect_done(&effect, How::Done, json!({"status": 200})).unwrap();
    assert_eq!(rig.tenant.head(), before + 1, "it is written down");
    assert!(emitted(&rig, "out.done").is_empty());
    assert_eq!(rig.tenant.run(&effect.run_id).unwrap()["status"], "cancelled");
    rig.crash();
    assert!(rig.tenant.open_effects().unwrap().is_empty());
}

const ONCE: &str = "automation: pays\ntriggers:\n  - event: in.*\nactions:\n  - http: {method: POST, url: \"https://example.org/pay\", once: true}\n  - publish: {topic: out.done}\n";

#[tokio::test]
async fn what_is_sent_once_is_not_sent_again_by_itself_and_a_person_says_what_happened() {
    for (answer, status) in [("done", "completed"), ("failed", "failed")] {
        let mut rig = rig(ONCE).await;
        publish(&rig, "in.a", json!({})).await;
        let effect = all(&rig).remove(0);
        rig.crash();
        assert!(all(&rig).is_empty(), "it may have happened");
        let asked = waits(&rig).remove(0);
        assert_eq!(asked["options"], json!(["done", "again", "failed"]));
        let wait = asked["id"].as_str().unwrap();
        rig.tenant.answer_wait(&engine::Caller::local(), wait, json!("again")).unwrap();
        let again = all(&rig).remove(0);
        assert_eq!(again.key, effect.key);
        let unknown =
            json!({"code": "effect.unknown", "message": "the connection broke", "class": "permanent"});
        rig.tenant.effect_done(&again, How::Failed, unknown).unwrap();
        let wait = waits(&rig)[0]["id"].as_str().unwrap().to_owned();
        rig.tenant.answer_wait(&engine::Caller::local(), &wait, json!(answer)).unwrap();
        assert_eq!(rig.tenant.run(&effect.run_id).unwrap()["status"], status);
    }
}

#[tokio::test]
async fn what_is_sent_once_and_was_out_at_a_clean_stop_is_asked_about_too() {
    let mut rig = rig(ONCE).await;
    publish(&rig, "in.a", json!({})).await;
    assert_eq!(all(&rig).len(), 1);
    rig.tenant.close().await.unwrap();
    rig.open_again();
    rig.tenant.tick();
    assert_eq!(waits(&rig)[0]["kind"], "ask");
}

#[tokio::test]
async fn a_budget_that_is_used_up_pauses_the_automation_until_somebody_lifts_that() {
    let mut rig = rig(&CALLS.replace("mode: parallel", "mode: queued")).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    publish(&rig, "in.a", json!({"n": 2})).await;
    rig.tenant.effect_done(&all(&rig)[0], How::Failed, failed("budget")).unwrap();
    rig.crash();
    publish(&rig, "in.a", json!({"n": 3})).await;
    rig.pass(3_600);
    assert!(all(&rig).is_empty() && rig.tenant.live_runs(None).unwrap().is_empty(), "nothing is tried again");
    let automation = rig.tenant.automation("calls").unwrap();
    assert_eq!((&automation["paused"], &automation["reason"]), (&json!(true), &json!("budget")));
    let said = emitted(&rig, "automation.paused");
    assert_eq!(
        (said.len(), &said[0]["reason"], &said[0]["code"]),
        (1, &json!("budget"), &json!("http.failed"))
    );
    rig.tenant.set_automation("calls", engine::command::Toggle::Resume).unwrap();
    for n in [2, 3] {
        let next = all(&rig);
        assert_eq!((next.len(), &next[0].with["body"]), (1, &json!({"n": n})));
        rig.tenant.effect_done(&next[0], How::Done, json!(n)).unwrap();
    }
    assert_eq!(emitted(&rig, "out.done"), [json!({"got": 2}), json!({"got": 3})]);
}
