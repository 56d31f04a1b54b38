//! How runs end, and what that means for their automation: timeouts, errors in a row, one-shots.

use engine::command::Toggle;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{emitted, publish, rig};

fn last_run(rig: &Rig) -> Value {
    let (runs, _) = rig.tenant.runs(&Default::default()).unwrap();
    rig.tenant.run(runs[0]["id"].as_str().unwrap()).unwrap()
}

fn is_on(rig: &Rig, name: &str) -> bool {
    rig.tenant.automation(name).unwrap()["enabled"] == true
}

#[tokio::test]
async fn a_run_that_takes_longer_than_its_automation_allows_ends() {
    let mut rig = rig("automation: a\ntriggers:\n  - event: in.*\ntimeout: 60s\nactions:\n  - delay: 10s\n  - wait_for: {event: never.comes, timeout: 1h}\n").await;
    publish(&rig, "in.a", json!({})).await;
    rig.pass(10);
    rig.crash();
    rig.pass(49);
    assert_eq!(rig.tenant.live_runs(None).unwrap().len(), 1);
    rig.pass(1);
    let run = last_run(&rig);
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("run.timeout")));
    assert!(rig.tenant.waits().unwrap().is_empty());
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_given_up_with_all_that_is_in_it() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - timeout: 30s\n    on_error: continue\n    parallel:\n      - delay: 10s\n      - task: never.done\n  - timeout: 5s\n    retry: {max: 1, base: 1ms, limit: 1ms}\n    delay: 1h\n";
    let mut rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    rig.pass(10);
    rig.crash();
    rig.pass(20);
    let waits = rig.tenant.waits().unwrap();
    let steps: Vec<&str> = waits.iter().map(|wait| wait["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["actions[1]", "actions[1]"], "the second step, and its limit");
    rig.pass(5);
    rig.pass(1);
    assert_eq!(rig.tenant.live_runs(None).unwrap().len(), 1, "a second try with its own time");
    rig.pass(5);
    let run = last_run(&rig);
    assert_eq!(
        (&run["error"]["code"], &run["error"]["class"]),
        (&json!("step.timeout"), &json!("transient"))
    );
}

#[tokio::test]
async fn three_permanent_errors_in_a_row_switch_an_automation_off_and_it_is_said() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - if: event.payload.bad\n    then:\n      - fail: no\n";
    let mut rig = rig(yaml).await;
    for bad in [true, true, false, true, true] {
        publish(&rig, "in.a", json!({"bad": bad})).await;
    }
    assert!(is_on(&rig, "a"), "never three in a row");
    rig.crash();
    publish(&rig, "in.a", json!({"bad": true})).await;
    assert!(!is_on(&rig, "a"));
    assert_eq!(rig.tenant.automation("a").unwrap()["reason"], "run.failed");
    let said = emitted(&rig, "automation.disabled");
    assert_eq!(
        (said.len(), &said[0]["automation"], &said[0]["reason"]),
        (1, &json!("a"), &json!("run.failed"))
    );
    rig.tenant.set_automation("a", Toggle::Enable).unwrap();
    publish(&rig, "in.a", json!({"bad": true})).await;
    assert!(is_on(&rig, "a"), "it begins to count anew");
}

#[tokio::test]
async fn a_one_shot_that_ran_is_over() {
    let yaml = "automation: once\ntriggers:\n  - at: 2026-01-01T00:01:00Z\nactions:\n  - publish: {topic: out.done}\n";
    let rig = rig(yaml).await;
    rig.pass(60);
    assert_eq!(emitted(&rig, "out.done").len(), 1);
    assert!(!is_on(&rig, "once"));
    assert!(emitted(&rig, "automation.disabled").is_empty(), "that is no error");
}

#[tokio::test]
async fn a_one_shot_that_fails_is_tried_three_times_on_the_ladder_and_then_switched_off() {
    let yaml = "automation: once\ntriggers:\n  - at: 2026-01-01T00:01:00Z\nactions:\n  - publish: {topic: out.tried}\n  - fail: no\n";
    let mut rig = rig(yaml).await;
    rig.pass(60);
    for (tried, wait) in [(1, 30), (2, 60), (3, 300)] {
        assert_eq!(emitted(&rig, "out.tried").len(), tried);
        rig.crash();
        rig.pass(wait - 1);
        assert_eq!(emitted(&rig, "out.tried").len(), tried, "not before {wait} s");
        rig.pass(1);
    }
    assert_eq!(emitted(&rig, "out.tried").len(), 4);
    assert!(!is_on(&rig, "once"));
    assert_eq!(emitted(&rig, "automation.disabled").len(), 1);
    assert_eq!(last_run(&rig)["status"], "failed");
}
