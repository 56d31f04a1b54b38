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
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - timeout: 30s\n    on_error: continue\n    parallel:\n      - delay: 10s\n      - task: never.done\n  - timeout: 5s\n    retry: {max: 1, base: 1ms, limit: 1ms}\n    task: never.done\n";
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

/// Every ten seconds, and each run says by the row `v1:ha:entity/x` whether it fails: after no time at all, with an error that may pass.
const OFTEN: &str = "automation: often\ntriggers:\n  - every: 10s\nactions:\n  - wait_until: {condition: 'state[\"v1:ha:entity\"][\"x\"].state == \"ok\"', timeout: 0, on_timeout: fail}\n";

/// The instant and the outcome of every occurrence that time brought, oldest first.
fn decided(rig: &Rig, automation: &str) -> Vec<(String, String)> {
    let automation = Some(automation.to_owned());
    let mut wanted = engine::history::read::Wanted { automation, limit: 1_000, ..Default::default() };
    let mut all = Vec::new();
    loop {
        let (decisions, next) = rig.tenant.decisions(&wanted).unwrap();
        all.extend(decisions);
        wanted.before = next;
        if next.is_none() {
            break;
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let timed = all.iter().rev().filter(|one| one["values"]["at"].is_string());
    timed.map(|one| (text(&one["values"]["at"]), text(&one["outcome"]))).collect()
}

/// When it ran, as seconds since the start.
fn ran_at(rig: &Rig, automation: &str) -> Vec<i128> {
    let start = model::Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    let ran = decided(rig, automation).into_iter().filter(|(_, outcome)| outcome == "ran");
    let at = ran.map(|(at, _)| model::Timestamp::parse(&at).unwrap());
    at.map(|at| (at.nanos() - start.nanos()) / 1_000_000_000).collect()
}

#[tokio::test]
async fn a_schedule_that_fails_is_left_alone_for_longer_each_time_and_a_success_ends_that() {
    let mut rig = rig(OFTEN).await;
    for n in 0..(3 * 3_600 / 10) {
        rig.pass(10);
        if n % 97 == 0 {
            rig.crash();
        }
    }
    let rungs = [10, 40, 100, 400, 1_300, 4_900, 8_500];
    assert_eq!(ran_at(&rig, "often"), rungs, "30 s, 1 m, 5 m, 15 m, 60 m, 60 m later");
    assert_eq!(decided(&rig, "often").len(), 3 * 360, "every instant has its outcome");
    crate::runs::set(&rig, "x", "ok").await;
    (0..180).for_each(|_| rig.pass(10));
    let after: Vec<i128> = ran_at(&rig, "often").split_off(rungs.len());
    assert_eq!(after[..3], [12_100, 12_110, 12_120]);
    crate::runs::set(&rig, "x", "bad").await;
    (0..4).for_each(|_| rig.pass(10));
    let ran = ran_at(&rig, "often");
    assert_eq!(ran[ran.len() - 2..], [12_610, 12_640], "it begins with the first rung");
}

#[tokio::test]
async fn an_instant_that_is_left_out_says_why_and_a_changed_definition_begins_anew() {
    let rig = rig(OFTEN).await;
    (0..6).for_each(|_| rig.pass(10));
    let why = rig.tenant.explain_automation("often", None).unwrap();
    let last = &why["recent"][0];
    assert_eq!(
        (&last["outcome"], &last["reason"], &last["gate"]),
        (&json!("skipped"), &json!("cooldown"), &json!("cooldown")),
        "{last}"
    );
    assert_eq!(
        (&last["values"]["failures"], &last["values"]["until"]),
        (&json!(2), &json!("2026-01-01T00:01:40Z"))
    );
    assert_eq!(why["counts"]["skipped"]["cooldown"], 4, "{why}");
    crate::runs::apply(&rig, &OFTEN.replace("timeout: 0", "timeout: 0s")).await;
    crate::runs::apply(&rig, &format!("{OFTEN}  - publish: {{topic: out.done}}\n")).await;
    rig.pass(10);
    assert_eq!(ran_at(&rig, "often"), [10, 40, 70]);
    rig.tenant.set_automation("often", Toggle::Enable).unwrap();
    rig.pass(10);
    assert_eq!(ran_at(&rig, "often"), [10, 40, 70, 80]);
}

#[tokio::test]
async fn a_schedule_that_fails_for_good_is_switched_off_after_three_and_events_are_not_left_out() {
    let yaml = "automation: bad\ntriggers:\n  - every: 10s\n  - event: in.*\nactions:\n  - fail: no\n";
    let rig = rig(yaml).await;
    rig.pass(10);
    publish(&rig, "in.a", json!({})).await;
    assert_eq!(last_run(&rig)["occurrence"]["kind"], "event", "only instants are left out");
    (0..3).for_each(|_| rig.pass(10));
    assert!(!is_on(&rig, "bad"));
    assert_eq!(ran_at(&rig, "bad"), [10, 20], "what fails for good is not left alone first");
}
