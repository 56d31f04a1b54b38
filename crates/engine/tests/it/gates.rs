//! Occurrences on their way through the gates: one outcome each, whatever held them, and what a pause keeps.

use std::time::Duration;

use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::tenant::backtest::Edge;
use engine::tenant::runs::{Bulk, Verb};
use engine::{Caller, Draft};
use model::Timestamp;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{apply, emitted, publish, rig, set};

fn decisions(rig: &Rig, automation: &str) -> Vec<Value> {
    let wanted = Wanted { automation: Some(automation.to_owned()), limit: 1_000, ..Wanted::default() };
    let mut all = rig.tenant.decisions(&wanted).unwrap().0;
    all.reverse();
    all
}

/// Outcome and reason of every occurrence, oldest first.
fn outcomes(rig: &Rig, automation: &str) -> Vec<String> {
    let shown = |one: &Value| match one["reason"].as_str() {
        Some(reason) => format!("{}/{reason}", one["outcome"].as_str().unwrap()),
        None => one["outcome"].as_str().unwrap().to_owned(),
    };
    decisions(rig, automation).iter().map(shown).collect()
}

fn ids(rig: &Rig, status: &str) -> Vec<String> {
    let wanted = Wanted { status: Some(status.to_owned()), limit: 100, ..Wanted::default() };
    let (runs, _) = rig.tenant.runs(&wanted).unwrap();
    runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn one_that_goes_on_to_a_later_gate_is_one_occurrence_with_one_outcome() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\n    debounce: {for: 5s}\nmode: queued\nactions:\n  - delay: 60s\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let mut rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    rig.pass(5);
    publish(&rig, "in.a", json!({"n": 2})).await;
    rig.crash();
    rig.pass(5);
    let waits = &decisions(&rig, "a")[1];
    assert_eq!((&waits["gate"], &waits["reason"]), (&json!("mode"), &json!("queued")), "{waits}");
    rig.crash();
    rig.pass(55);
    rig.pass(60);
    assert_eq!(outcomes(&rig, "a"), ["ran", "ran"]);
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1}), json!({"n": 2})]);
    let runs: Vec<Value> = decisions(&rig, "a").iter().map(|one| one["run"].clone()).collect();
    assert!(runs.iter().all(Value::is_string) && runs[0] != runs[1], "{runs:?}");
}

#[tokio::test]
async fn who_comes_first_to_the_queue_runs_first_whoever_came_first_to_the_ledger() {
    let yaml = "automation: a\ntriggers:\n  - event: slow.*\n    debounce: {for: 9s}\n  - event: in.*\nmode: queued\nactions:\n  - delay: 20s\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    publish(&rig, "slow.a", json!({"n": 3})).await;
    publish(&rig, "in.a", json!({"n": 2})).await;
    (0..7).for_each(|_| rig.pass(10));
    let order: Vec<i64> = emitted(&rig, "out.done").iter().map(|one| one["n"].as_i64().unwrap()).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[tokio::test]
async fn a_batch_that_queues_keeps_its_events() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\n    batch: {count: 2, for: 1h}\nmode: queued\nactions:\n  - delay: 30s\n  - publish: {topic: out.done, payload: {all: \"{{ input.events.map(e, e.payload.n) }}\"}}\n";
    let mut rig = rig(yaml).await;
    for n in 1..=4 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    rig.crash();
    rig.pass(30);
    rig.pass(30);
    assert_eq!(emitted(&rig, "out.done"), [json!({"all": [1, 2]}), json!({"all": [3, 4]})]);
    assert_eq!(outcomes(&rig, "a"), ["merged/batch", "ran", "merged/batch", "ran"]);
}

#[tokio::test]
async fn every_instant_that_is_caught_up_with_runs_one_after_another_in_every_mode() {
    for mode in ["single", "restart", "queued", "parallel"] {
        let yaml = format!(
            "automation: tick\ntriggers:\n  - {{cron: \"*/5 * * * *\", tz: UTC, catch_up: {{all: 100}}}}\nmode: {mode}\nactions:\n  - delay: 10s\n  - publish: {{topic: out.tick, payload: {{at: \"{{{{ event.payload.scheduledAt }}}}\"}}}}\n"
        );
        let mut rig = rig(&yaml).await;
        rig.clock.advance(Duration::from_secs(16 * 60));
        rig.crash();
        rig.tenant.tick();
        (0..4).for_each(|_| rig.pass(10));
        let at: Vec<Value> = emitted(&rig, "out.tick").iter().map(|one| one["at"].clone()).collect();
        assert_eq!(at, ["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:15:00Z"], "{mode}");
        let ended = outcomes(&rig, "tick");
        assert!(ended[..2] == ["caught_up", "caught_up"] && ended.len() == 3, "{mode}: {ended:?}");
        let (runs, _) = rig.tenant.runs(&Wanted { limit: 9, ..Wanted::default() }).unwrap();
        assert_eq!(runs[0]["occurrence"]["at"], "2026-01-01T00:15:00Z", "{mode}");
    }
}

#[tokio::test]
async fn of_many_missed_instants_the_latest_run_and_every_other_has_its_reason() {
    let yaml = "automation: tick\ntriggers:\n  - every: 1m\n    catch_up: {all: 3, within: 3h}\nmode: {is: parallel, max: 10}\nactions:\n  - publish: {topic: out.tick, payload: {at: \"{{ event.payload.scheduledAt }}\"}}\n";
    let mut rig = rig(yaml).await;
    rig.clock.advance(Duration::from_secs(30 * 3_600 + 90));
    rig.crash();
    rig.tenant.tick();
    let last: Vec<Value> = emitted(&rig, "out.tick").iter().map(|one| one["at"].clone()).collect();
    assert_eq!(last, ["2026-01-02T05:59:00Z", "2026-01-02T06:00:00Z", "2026-01-02T06:01:00Z"]);
    let counts = rig.tenant.explain_automation("tick", None).unwrap()["counts"].clone();
    let missed = &counts["missed"];
    let sum = missed["older_than_window"].as_u64().unwrap() + missed["over_max"].as_u64().unwrap();
    assert_eq!((sum, &missed["over_max"]), (30 * 60 + 1 - 3, &json!(177)), "{counts}");
    let told: Vec<Value> = decisions(&rig, "tick").iter().map(|one| one["values"].clone()).collect();
    let (older, over) = (&told[0], &told[1]);
    assert_eq!(
        older,
        &json!({"from": "2026-01-01T00:01:00Z", "to": "2026-01-02T03:01:00Z", "count": 1621}),
        "the first and the last that were missed"
    );
    assert_eq!(over, &json!({"from": "2026-01-02T03:02:00Z", "to": "2026-01-02T05:58:00Z", "count": 177}));
}

#[tokio::test]
async fn what_is_skipped_for_the_latest_or_while_disabled_is_told_from_its_first_to_its_last() {
    let mut rig = rig("automation: tick\ntriggers:\n  - every: 10m\nactions:\n  - publish: out.tick\n").await;
    rig.pass(600);
    rig.clock.advance(Duration::from_secs(3_600));
    rig.crash();
    rig.tenant.tick();
    rig.tenant.set_automation("tick", Toggle::Disable).unwrap();
    rig.clock.advance(Duration::from_secs(1_200));
    rig.tenant.tick();
    assert_eq!(outcomes(&rig, "tick"), ["ran", "missed/not_latest", "caught_up", "skipped/disabled"]);
    let told: Vec<Value> = decisions(&rig, "tick").iter().map(|one| one["values"].clone()).collect();
    assert_eq!(told[1], json!({"from": "2026-01-01T00:20:00Z", "to": "2026-01-01T01:00:00Z", "count": 5}));
    assert_eq!(told[3], json!({"from": "2026-01-01T01:20:00Z", "to": "2026-01-01T01:30:00Z", "count": 2}));
}

#[tokio::test]
async fn a_window_that_fires_once_is_not_spent_on_a_run_that_conditions_stopped() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\n    window: {count: 2, minutes: 10, refire: once}\nconditions:\n  - event.payload.ok\nmode: parallel\nactions:\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(yaml).await;
    for (n, ok) in [(1, true), (2, false), (3, true), (4, true)] {
        publish(&rig, "in.a", json!({"n": n, "ok": ok})).await;
    }
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 3})]);
    rig.pass(601);
    publish(&rig, "in.a", json!({"n": 5, "ok": true})).await;
    publish(&rig, "in.a", json!({"n": 6, "ok": true})).await;
    assert_eq!(emitted(&rig, "out.done")[1], json!({"n": 6}), "armed again");
}

#[tokio::test]
async fn a_window_that_fires_once_is_spent_on_a_place_in_the_queue() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\n    window: {count: 2, minutes: 10, refire: once}\n  - event: first\nmode: queued\nactions:\n  - delay: 30s\n  - publish: {topic: out.done}\n";
    let rig = rig(yaml).await;
    publish(&rig, "first", json!({})).await;
    for n in 1..=4 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    (0..4).for_each(|_| rig.pass(30));
    assert_eq!(emitted(&rig, "out.done").len(), 2);
}

#[tokio::test]
async fn events_that_come_late_count_in_the_window_that_they_belong_to() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\n    window: {count: 3, minutes: 10}\nmode: parallel\nactions:\n  - publish: {topic: out.done}\n";
    let rig = rig(yaml).await;
    for minute in [0, 5, 30, 31, 9] {
        let time = Timestamp::parse("2025-12-31T12:00:00Z").unwrap().plus(Duration::from_secs(minute * 60));
        rig.send(Draft { time: Some(time), ..Draft::new("in.a", &json!({})) }).await.unwrap();
    }
    assert_eq!(emitted(&rig, "out.done").len(), 1, "the one of 12:09 is the third of its window");
}

#[tokio::test]
async fn a_pause_keeps_instants_whose_time_stays_and_whose_gates_are_asked_after_it() {
    let yaml = "automation: tick\ntriggers:\n  - {cron: \"*/5 * * * *\", tz: UTC}\nmode: single\nactions:\n  - delay: 1h\n  - publish: {topic: out.tick}\n";
    let mut rig = rig(yaml).await;
    rig.tenant.set_automation("tick", Toggle::Pause).unwrap();
    rig.pass(300);
    rig.pass(300);
    assert_eq!(outcomes(&rig, "tick"), ["pending/paused", "pending/paused"]);
    assert!(rig.tenant.live_runs(None).unwrap().is_empty());
    rig.crash();
    rig.pass(60);
    rig.tenant.set_automation("tick", Toggle::Resume).unwrap();
    assert_eq!(outcomes(&rig, "tick"), ["ran", "skipped/busy"], "the mode is asked of both");
    let run = &rig.tenant.live_runs(None).unwrap()[0];
    assert_eq!(run["occurrence"]["at"], "2026-01-01T00:05:00Z");
}

#[tokio::test]
async fn what_a_pause_kept_runs_one_after_the_other_where_a_run_takes_no_time() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let mut rig = rig(yaml).await;
    rig.tenant.set_automation("a", Toggle::Pause).unwrap();
    for n in 0..300 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    rig.crash();
    rig.tenant.set_automation("a", Toggle::Resume).unwrap();
    (0..4).for_each(|_| rig.pass(1));
    let all: Vec<Value> = (0..300).map(|n| json!({"n": n})).collect();
    assert_eq!(emitted(&rig, "out.done"), all, "more than one commit holds, each once and in order");
}

#[tokio::test]
async fn what_comes_due_at_one_moment_does_not_stand_in_each_others_way() {
    let yaml = "automation: page\ntriggers:\n  - state: {entity: \"v1:ha:entity\", field: state, to: down}\n    for: 5m\nactions:\n  - publish: {topic: out.page, payload: {id: \"{{ trigger.entity.id }}\"}}\n---\nautomation: tick\ntriggers:\n  - {cron: \"0 * * * *\"}\n  - {every: 1h}\nactions:\n  - publish: {topic: out.tick}\n";
    let rig = rig(yaml).await;
    for id in ["api", "db", "web"] {
        set(&rig, id, "ok").await;
        set(&rig, id, "down").await;
    }
    rig.pass(300);
    assert_eq!(emitted(&rig, "out.page").len(), 3, "{:?}", outcomes(&rig, "page"));
    rig.pass(3_300);
    assert_eq!(emitted(&rig, "out.tick").len(), 2, "{:?}", outcomes(&rig, "tick"));
}

#[tokio::test]
async fn a_pause_that_is_lifted_ends_no_draining() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nmode: queued\nactions:\n  - delay: 1h\n  - publish: {topic: out.done}\n";
    let rig = rig(yaml).await;
    for _ in 0..3 {
        publish(&rig, "in.a", json!({})).await;
    }
    for toggle in [Toggle::Pause, Toggle::Drain] {
        rig.tenant.set_automation("a", toggle).unwrap();
    }
    rig.pass(3_600);
    rig.tenant.set_automation("a", Toggle::Resume).unwrap();
    (0..3).for_each(|_| rig.pass(3_600));
    assert_eq!(outcomes(&rig, "a"), ["ran", "ran", "ran"], "what was taken is finished");
}

#[tokio::test]
async fn an_instant_delayed_by_its_jitter_is_on_time() {
    let yaml = "automation: hourly\ntriggers:\n  - {cron: \"0 * * * *\", jitter: 30m, catch_up: none}\nactions:\n  - publish: {topic: out.hour}\n---\nautomation: often\ntriggers:\n  - {every: 1m, jitter: 3m}\nactions:\n  - publish: {topic: out.often}\n";
    let rig = rig(yaml).await;
    (0..5 * 3_600 / 15).for_each(|_| rig.pass(15));
    let hourly = outcomes(&rig, "hourly");
    assert!((4..=5).contains(&hourly.len()) && hourly.iter().all(|of| of == "ran"), "{hourly:?}");
    let often = outcomes(&rig, "often");
    assert!((296..=300).contains(&often.len()) && often.iter().all(|of| of == "ran"), "{often:?}");
}

#[tokio::test]
async fn a_pause_holds_what_a_gate_lets_go_and_those_in_the_queue() {
    let yaml = "automation: a\ntriggers:\n  - event: slow.*\n    debounce: {for: 5s}\n  - event: in.*\nmode: queued\nactions:\n  - delay: 10s\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let mut rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    publish(&rig, "in.a", json!({"n": 2})).await;
    publish(&rig, "slow.a", json!({"n": 3})).await;
    rig.tenant.set_automation("a", Toggle::Pause).unwrap();
    rig.crash();
    (0..4).for_each(|_| rig.pass(10));
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1})], "what had begun goes on");
    rig.tenant.set_automation("a", Toggle::Resume).unwrap();
    (0..4).for_each(|_| rig.pass(10));
    assert_eq!(emitted(&rig, "out.done")[1..], [json!({"n": 2}), json!({"n": 3})]);
    assert_eq!(outcomes(&rig, "a"), ["ran", "ran", "ran"]);
}

#[tokio::test]
async fn a_run_in_the_queue_is_listed_shown_counted_and_cancelled_by_its_id() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nmode: queued\nactions:\n  - delay: 10s\n  - publish: {topic: out.done, payload: {n: \"{{ input.n }}\"}}\n";
    let mut rig = rig(yaml).await;
    for n in 1..=3 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    let by_hand = rig.tenant.start_run(&Caller::local(), "a", json!({"n": 4}), None).unwrap();
    rig.crash();
    let queued = ids(&rig, "queued");
    assert_eq!((queued.len(), Some(&queued[0])), (3, by_hand.run.as_ref()), "newest first");
    let (all, next) = rig.tenant.runs(&Wanted { limit: 2, ..Wanted::default() }).unwrap();
    assert_eq!((all.len(), next.is_some()), (2, true));
    let rest = Wanted { limit: 9, before: next, ..Wanted::default() };
    assert_eq!(rig.tenant.runs(&rest).unwrap().0.len(), 2, "each is on one page");
    let run = rig.tenant.run(&queued[2]).unwrap();
    assert_eq!((&run["status"], &run["occurrence"]["kind"]), (&json!("queued"), &json!("event")));
    assert_eq!(rig.tenant.standing().runs[0], ("queued", 3));
    rig.tenant.cancel_run(&queued[1]).unwrap();
    assert_eq!(rig.tenant.run(&queued[1]).unwrap()["status"], "cancelled");
    (0..4).for_each(|_| rig.pass(10));
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1}), json!({"n": 2}), json!({"n": 4})]);
    assert_eq!(rig.tenant.run(&queued[2]).unwrap()["status"], "completed", "under the id it had");
    assert_eq!(outcomes(&rig, "a"), ["ran"; 4]);
    rig.tenant.retry_run(&queued[1]).unwrap();
    rig.pass(10);
    assert_eq!(emitted(&rig, "out.done")[3], json!({"n": 3}));
}

#[tokio::test]
async fn many_starts_in_a_minute_are_said_once_and_a_trigger_may_hear_it() {
    let yaml = "- automation: a\n  triggers: [{event: 'in.*'}]\n  mode: parallel\n  actions: []\n- automation: hears\n  triggers: [{event: automation.storm}]\n  actions:\n    - publish: {topic: out.storm, payload: {of: \"{{ event.payload.automation }}\"}}\n";
    let rig = rig(yaml).await;
    for n in 0..30 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    let said = emitted(&rig, "automation.storm");
    assert_eq!((said.len(), &said[0]["per_minute"]), (1, &json!(20)), "{said:?}");
    assert_eq!(emitted(&rig, "out.storm"), [json!({"of": "a"})]);
}

#[tokio::test]
async fn those_who_hear_of_runs_and_call_automations_do_not_multiply() {
    let yaml = "- automation: work\n  triggers: [{event: 'in.*'}]\n  mode: {is: parallel, max: 1000}\n  actions:\n    - publish: {topic: did.work}\n- automation: watcher\n  triggers: [{event: 'automation.#'}]\n  mode: {is: parallel, max: 1000}\n  actions:\n    - automation: work\n      wait: false\n    - publish: {topic: in.again}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    // Each batch goes on with what the one before left.
    for _ in 0..200 {
        publish(&rig, "more", json!({})).await;
    }
    let did = emitted(&rig, "did.work").len();
    assert!((2..5_000).contains(&did), "{did} runs");
    assert!(rig.tenant.live_runs(None).unwrap().is_empty(), "it came to an end");
}

#[tokio::test]
async fn a_run_that_failed_tells_how_many_steps_it_took() {
    let yaml = "- automation: a\n  triggers: [{event: 'in.*'}]\n  actions:\n    - vars: {x: 1}\n    - delay: 5s\n    - fail: no\n- automation: hears\n  triggers: [{event: automation.failed}]\n  actions:\n    - publish: {topic: out.failed, payload: {steps: \"{{ event.payload.stepCount }}\"}}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    rig.pass(5);
    assert_eq!(emitted(&rig, "out.failed"), [json!({"steps": 3})]);
}

#[tokio::test]
async fn near_misses_of_a_disabled_one_are_counted_also_of_what_happens_to_runs() {
    let yaml = "- automation: a\n  triggers: [{event: 'in.*'}]\n  actions: []\n- automation: hears\n  triggers:\n    - event: automation.completed\n    - event: in.*\n      filter: event.payload.n > 1\n  actions: []\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    rig.tenant.set_automation("hears", Toggle::Disable).unwrap();
    publish(&rig, "in.a", json!({"n": 2})).await;
    let told = rig.tenant.explain_automation("hears", None).unwrap();
    assert_eq!(told["stopped"], json!({"disabled": 2, "filtered": 1}), "the event and the view");
    assert_eq!(told["nearest"][0]["gate"], "enabled", "{told}");
}

#[tokio::test]
async fn an_error_of_the_definition_switches_off_at_once() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - task: {kind: \"{{ event.payload.kind }}\"}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    let shown = rig.tenant.automation("a").unwrap();
    assert_eq!(
        (&shown["enabled"], &shown["reason"]),
        (&json!(false), &json!("definition.invalid")),
        "{shown}"
    );
    assert_eq!(emitted(&rig, "automation.disabled").len(), 1);
}

#[tokio::test]
async fn a_schedule_that_is_taken_away_and_comes_back_or_changes_begins_at_its_deploy() {
    let with = |cron: &str| {
        format!(
            "automation: tick\ntriggers:\n  - {{id: t, cron: \"{cron}\", tz: UTC}}\n  - manual: true\nactions:\n  - publish: {{topic: out.tick}}\n"
        )
    };
    let rig = rig(&with("0 * * * *")).await;
    apply(&rig, "automation: tick\ntriggers:\n  - manual: true\nactions:\n  - publish: {topic: out.tick}\n")
        .await;
    rig.pass(5 * 3_600);
    apply(&rig, &with("0 * * * *")).await;
    rig.pass(0);
    assert!(outcomes(&rig, "tick").is_empty(), "{:?}", outcomes(&rig, "tick"));
    rig.pass(600);
    apply(&rig, &with("5 * * * *")).await;
    rig.pass(0);
    assert!(outcomes(&rig, "tick").is_empty(), "00:05 was before it was said");
    rig.pass(3_600);
    assert_eq!(outcomes(&rig, "tick"), ["caught_up"], "that of 06:05");
}

#[tokio::test]
async fn a_schedule_that_fired_ahead_of_now_is_said_and_can_be_lowered() {
    let yaml = "automation: tick\ntriggers:\n  - {cron: \"0 * * * *\", tz: UTC}\nactions:\n  - publish: {topic: out.tick}\n";
    let mut rig = rig(yaml).await;
    rig.pass(100 * 24 * 3_600);
    assert_eq!(rig.tenant.schedules_ahead().unwrap(), [] as [&str; 0]);
    rig.clock.step(Timestamp::parse("2026-01-01T00:30:00Z").unwrap());
    rig.crash();
    assert_eq!(rig.tenant.schedules_ahead().unwrap().len(), 1);
    rig.pass(3_600);
    assert_eq!(emitted(&rig, "out.tick").len(), 1, "it never fires twice by itself");
    rig.tenant.lower_schedules().unwrap();
    assert_eq!(rig.tenant.schedules_ahead().unwrap(), [] as [&str; 0]);
    rig.pass(3_600);
    assert_eq!(emitted(&rig, "out.tick").len(), 2);
}

#[tokio::test]
async fn a_silence_lasts_no_longer_when_the_clock_was_set_back_while_nobody_ran() {
    let yaml = "automation: quiet\ntriggers:\n  - absent: {event: beat, for: 5m}\nactions:\n  - publish: {topic: out.quiet}\n";
    let mut rig = rig(yaml).await;
    rig.pass(24 * 3_600);
    publish(&rig, "beat", json!({})).await;
    let before = emitted(&rig, "out.quiet").len();
    rig.clock.step(Timestamp::parse("2026-01-01T00:30:00Z").unwrap());
    rig.crash();
    rig.pass(299);
    rig.pass(2);
    assert_eq!(emitted(&rig, "out.quiet").len(), before + 1);
}

#[tokio::test]
async fn a_condition_that_reads_time_is_tried_when_it_can_next_change() {
    for (condition, due, after) in [
        ("now > event.payload.due", "2026-01-01T00:03:07Z", 188),
        ("now >= event.payload.due", "2026-01-01T00:03:07Z", 187),
        ("now - duration(\"90s\") >= event.payload.due", "2026-01-01T00:01:37Z", 187),
        ("now - timestamp(event.payload.due) > duration(\"7s\")", "2026-01-01T00:03:00Z", 188),
        ("!(event.payload.due > now) && now > event.payload.due", "2026-01-01T00:03:07Z", 188),
        ("now > state[\"v1:ha:entity\"][\"a\"].state", "", 188),
    ] {
        let yaml = format!(
            "automation: w\ntriggers:\n  - event: begin\nactions:\n  - wait_until: {{condition: '{condition}'}}\n  - publish: {{topic: out.done}}\n"
        );
        for crash in [false, true] {
            let mut rig = rig(&yaml).await;
            set(&rig, "a", "2026-01-01T09:00:00Z").await;
            publish(&rig, "begin", json!({"due": due})).await;
            set(&rig, "a", "2026-01-01T00:03:07Z").await;
            if crash {
                rig.crash();
                publish(&rig, "other", json!({})).await;
            }
            rig.pass(after - 2);
            assert!(emitted(&rig, "out.done").is_empty(), "{condition}, crash {crash}");
            let next = rig.tenant.next_tick().unwrap();
            rig.pass(2);
            assert_eq!(emitted(&rig, "out.done").len(), 1, "{condition}, crash {crash}, armed for {next:?}");
        }
    }
}

const SEES: &str = "automation: a\ntriggers:\n  - event: in.*\n    filter: event.payload.n > LIMIT\nactions:\n  - if: event.payload.n > 10\n    then:\n      - fail: no\n";

#[tokio::test]
async fn an_old_event_is_explained_by_the_definition_of_its_time() {
    let mut rig = rig(&SEES.replace("LIMIT", "1")).await;
    let old = rig.publish("in.a", 1).await;
    apply(&rig, &SEES.replace("LIMIT", "0")).await;
    rig.crash();
    let told = rig.tenant.explain_event(&old.to_string()).unwrap().told["automations"][0].clone();
    assert_eq!((&told["outcome"], &told["gate"]), (&json!("filtered"), &json!("filter")), "{told}");
    assert_eq!(told["values"]["filter"], "event.payload.n > 1");
    apply(
        &rig,
        &format!(
            "{}---\n{}",
            SEES.replace("LIMIT", "0"),
            SEES.replace("automation: a", "automation: b").replace("LIMIT", "0")
        ),
    )
    .await;
    let told = rig.tenant.explain_event(&old.to_string()).unwrap().told["automations"][1].clone();
    assert_eq!((&told["automation"], &told["outcome"]), (&json!("b"), &json!("not_matched")), "{told}");
    assert_eq!(told["values"]["declared"], "after the event");
}

#[tokio::test]
async fn a_failed_run_resumes_on_its_version_after_the_definition_changed() {
    let before = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.first}\n  - if: state[\"v1:ha:entity\"][\"a\"].state != \"ok\"\n    fail: no\n  - publish: {topic: out.before}\n";
    let mut rig = rig(before).await;
    set(&rig, "a", "bad").await;
    publish(&rig, "in.a", json!({})).await;
    let id = ids(&rig, "failed")[0].clone();
    apply(&rig, "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.after}\n")
        .await;
    rig.crash();
    set(&rig, "a", "ok").await;
    let run = rig.tenant.resume_run(&id).unwrap();
    assert_eq!(run["id"], id.as_str());
    rig.crash();
    rig.pass(0);
    assert_eq!(rig.tenant.run(&id).unwrap()["status"], "completed");
    assert_eq!((emitted(&rig, "out.first").len(), emitted(&rig, "out.before").len()), (1, 1));
    assert!(emitted(&rig, "out.after").is_empty());
}

#[tokio::test]
async fn a_subscription_that_names_a_group_which_does_not_hold_is_refused() {
    let rig = rig("automation: a\nactions: []\n").await;
    rig.tenant.put_group("loose", &json!({"pattern": "#"})).await.unwrap();
    let said = json!({"pattern": "in.*", "automation": "a", "group": "loose"});
    let problem = rig.tenant.put_subscription("s", &said).await.unwrap_err();
    assert_eq!(problem.pointer(), Some("/group"), "{problem}");
}

#[tokio::test]
async fn cancelling_all_of_a_queue_begins_none_of_it() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nmode: queued\nactions:\n  - publish: {topic: out.began, payload: {n: \"{{ event.payload.n }}\"}}\n  - delay: 5m\n";
    for by_name in [false, true] {
        let rig = rig(yaml).await;
        for n in 1..=4 {
            publish(&rig, "in.a", json!({"n": n})).await;
        }
        if by_name {
            rig.tenant.cancel_runs_of("a").unwrap();
        } else {
            let automation = Some("a".to_owned());
            let (status, reason, since) = (None, None, None);
            let bulk = Bulk { verb: Verb::Cancel, automation, status, reason, since, dry_run: false };
            let done = rig.tenant.runs_in_bulk(&bulk).unwrap();
            assert_eq!((&done["matched"], &done["done"]), (&json!(4), &json!(4)), "{done}");
        }
        assert_eq!(emitted(&rig, "out.began"), [json!({"n": 1})], "by name: {by_name}");
        assert!(rig.tenant.live_runs(None).unwrap().is_empty());
        assert!(ids(&rig, "queued").is_empty());
    }
}

#[tokio::test]
async fn a_call_that_is_not_taken_has_an_outcome() {
    let yaml = "- automation: sub\n  triggers:\n    - manual: true\n  actions:\n    - delay: 5m\n- automation: caller\n  mode: parallel\n  triggers:\n    - event: in.*\n  actions:\n    - automation: sub\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({})).await;
    publish(&rig, "in.a", json!({})).await;
    assert_eq!(outcomes(&rig, "sub"), ["ran", "skipped/busy"]);
    assert_eq!(ids(&rig, "failed").len(), 1, "its caller is told");
}

#[tokio::test]
async fn a_backtest_lets_runs_end_between_two_commits_of_one_instant() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - publish: {topic: out.done}\n";
    let rig = rig(yaml).await;
    for n in 1..=4 {
        publish(&rig, "in.a", json!({"n": n})).await;
    }
    let draft = yaml.replace("in.*", "in.*\n    filter: event.payload.n > 1");
    let checked = lang::declare::check_workspace(&[("a.yaml".to_owned(), draft)].into());
    let (from, to) = (Edge::Position(1), Edge::Position(rig.tenant.head()));
    let told = rig.tenant.backtest(&checked.definitions, (from, to)).unwrap();
    let of = &told["automations"][0];
    assert_eq!((&of["would"], &of["did"], &of["both"]), (&json!(3), &json!(4), &json!(3)), "{told}");
}

#[tokio::test]
async fn a_long_loop_that_keeps_others_from_starting_lets_other_runs_walk() {
    let yaml = "- automation: slow\n  triggers:\n    - event: in.slow\n  actions:\n    - repeat: {count: 5000, do: [{vars: {n: \"{{ 1 + 1 }}\"}}]}\n    - publish: {topic: out.slow}\n- automation: quick\n  mode: parallel\n  triggers:\n    - event: in.quick\n  actions:\n    - publish: {topic: out.quick}\n";
    let rig = rig(yaml).await;
    let both = ["in.slow", "in.quick"].map(|topic| Draft::new(topic, &json!({}))).to_vec();
    rig.tenant.publish_all(&Caller::local(), both).await.unwrap();
    (0..20).for_each(|_| rig.pass(1));
    let query = engine::tenant::Query {
        topic: Some(model::topic::Pattern::parse("out.*").unwrap()),
        limit: 10,
        ..Default::default()
    };
    let told = rig.tenant.find(&query).unwrap().events;
    let topics: Vec<&str> = told.iter().map(|event| event.envelope.topic.as_str()).collect();
    assert_eq!(topics, ["out.quick", "out.slow"]);
}
