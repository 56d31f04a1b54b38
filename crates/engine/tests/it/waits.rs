//! Waits against everything that may happen around them: changes and events before and after, crowds, crashes, refusals.

use engine::Caller;
use engine::entity::{Action, Write};
use ledger::disk::Fault;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{emitted, publish, rig, set};

const ONE_ROW: &str = r#"state["v1:ha:entity"]["a"].state == "ok""#;
const COMPUTED: &str = r#"state["v1:ha:entity"][event.payload.id].state == "ok""#;
const ANY_ROW: &str = r#"state["v1:ha:entity"].exists(id, state["v1:ha:entity"][id].state == "ok")"#;
const ANYTHING: &str = r#"state[event.payload.kind]["a"].state == "ok""#;

fn until(condition: &str) -> String {
    format!(
        "automation: w\ntriggers:\n  - event: begin\nmode: parallel\nmax: 10000\nactions:\n  - wait_until: {{condition: '{condition}'}}\n  - publish: {{topic: out.done}}\n"
    )
}

fn begin() -> Value {
    json!({"id": "a", "kind": "v1:ha:entity"})
}

/// Every order of these.
fn orders(of: &[&'static str]) -> Vec<Vec<&'static str>> {
    if of.len() <= 1 {
        return vec![of.to_vec()];
    }
    let without = |at: usize| [&of[..at], &of[at + 1..]].concat();
    let rest = |at: usize| orders(&without(at)).into_iter().map(move |rest| [&[of[at]], &rest[..]].concat());
    (0..of.len()).flat_map(rest).collect()
}

#[tokio::test]
async fn a_row_that_comes_to_hold_and_stays_ends_every_wait_in_every_order() {
    for condition in [ONE_ROW, COMPUTED, ANY_ROW, ANYTHING] {
        for order in orders(&["begin", "other", "holds", "crash", "tick"]) {
            let mut rig = rig(&until(condition)).await;
            for step in &order {
                match *step {
                    "begin" => publish(&rig, "begin", begin()).await,
                    "other" => set(&rig, "b", "bad").await,
                    "holds" => set(&rig, "a", "ok").await,
                    "crash" => rig.crash(),
                    _ => rig.pass(1),
                }
            }
            rig.pass(1);
            assert_eq!(emitted(&rig, "out.done").len(), 1, "{condition}: {order:?}");
        }
    }
}

#[tokio::test]
async fn a_computed_kind_is_a_concepts_id_or_its_bare_name() {
    for kind in ["v1:ha:entity", "entity"] {
        let rig = rig(&until(ANYTHING)).await;
        publish(&rig, "begin", json!({ "kind": kind })).await;
        set(&rig, "a", "ok").await;
        rig.pass(1);
        assert_eq!(emitted(&rig, "out.done").len(), 1, "{kind}");
    }
}

/// More rows than one expression looks through.
async fn crowd(rig: &Rig) {
    let Value::Object(fields) = json!({"state": "bad"}) else { unreachable!() };
    let write = |n: usize| Write::of("v1:ha:entity", Some(&format!("x{n}")), Action::Upsert(fields.clone()));
    for from in (0..10_500).step_by(500) {
        let writes = (from..from + 500).map(write).collect();
        rig.tenant.write_all(&Caller::local(), writes).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_of_a_computed_kind_is_one_row_however_many_there_are() {
    let mut rig = rig(&until(ANYTHING)).await;
    crowd(&rig).await;
    publish(&rig, "begin", begin()).await;
    rig.crash();
    set(&rig, "a", "ok").await;
    set(&rig, "a", "bad").await;
    assert_eq!(emitted(&rig, "out.done").len(), 1, "it is asked in the commit of its own row");
}

#[tokio::test]
async fn a_wait_that_would_look_through_too_many_rows_fails_and_says_so() {
    let failed = |rig: &Rig| rig.tenant.runs(&Default::default()).unwrap().0[0]["error"]["code"].clone();
    let of_row = r#"state[state["v1:ha:entity"]["a"].state]["a"].state == "ok""#;
    for condition in [of_row, ANY_ROW] {
        let before = rig(&until(condition)).await;
        crowd(&before).await;
        publish(&before, "begin", begin()).await;
        assert_eq!(failed(&before), "expr.limit", "{condition}");
        let after = rig(&until(condition)).await;
        publish(&after, "begin", begin()).await;
        crowd(&after).await;
        after.pass(1);
        assert_eq!(failed(&after), "expr.limit", "{condition}, and they came later");
    }
}

#[tokio::test]
async fn a_value_that_held_for_one_commit_was_seen_by_a_wait_that_names_its_row() {
    for condition in [ONE_ROW, COMPUTED, ANYTHING] {
        let rig = rig(&until(condition)).await;
        publish(&rig, "begin", begin()).await;
        set(&rig, "a", "ok").await;
        set(&rig, "a", "bad").await;
        assert_eq!(emitted(&rig, "out.done").len(), 1, "{condition}");
    }
}

#[tokio::test]
async fn an_event_counts_from_the_runs_own_event_on_in_every_order() {
    let yaml = "automation: w\ntriggers:\n  - event: begin\nactions:\n  - delay: 5s\n  - wait_for: {event: go, filter: 'event.payload.n == 2'}\n  - publish: {topic: out.done, payload: {n: \"{{ wait.event.payload.n }}\"}}\n";
    for order in orders(&["begin", "go", "other", "crash", "pass"]) {
        let mut rig = rig(yaml).await;
        for step in &order {
            match *step {
                "begin" => publish(&rig, "begin", json!({})).await,
                "go" => publish(&rig, "go", json!({"n": 2})).await,
                "other" => publish(&rig, "go", json!({"n": 1})).await,
                "crash" => rig.crash(),
                _ => rig.pass(5),
            }
        }
        (0..3).for_each(|_| rig.pass(5));
        let at = |step: &str| order.iter().position(|other| *other == step);
        let want = if at("begin") < at("go") { vec![json!({"n": 2})] } else { Vec::new() };
        assert_eq!(emitted(&rig, "out.done"), want, "{order:?}");
    }
}

#[tokio::test]
async fn a_window_counts_the_same_wherever_a_crash_falls() {
    let yaml = "automation: w\ntriggers:\n  - event: begin\n    window: {count: 3, minutes: 1, refire: once}\nactions:\n  - publish: {topic: out.done}\n";
    for order in orders(&["a", "b", "c", "crash", "late"]) {
        let mut rig = rig(yaml).await;
        let (mut seen, mut times) = (0u64, Vec::new());
        for step in &order {
            match *step {
                "crash" => rig.crash(),
                "late" => {
                    rig.pass(61);
                    seen += 61;
                }
                _ => {
                    publish(&rig, "begin", json!({})).await;
                    times.push(seen);
                }
            }
        }
        let all_within = times.iter().max().unwrap() - times.iter().min().unwrap() < 60;
        assert_eq!(emitted(&rig, "out.done").len(), usize::from(all_within), "{order:?}");
    }
}

const FAR: &str = "automation: w\ntriggers:\n  - event: begin\nactions:\n  - wait_for: {event: go}\n  - wait_for: {event: paid, filter: 'event.payload.id == trigger.event.payload.id'}\n  - publish: {topic: out.done, payload: {n: \"{{ wait.event.payload.n }}\"}}\n";

/// A run that has to look back over more than a commit should.
async fn far() -> Rig {
    let rig = rig(FAR).await;
    publish(&rig, "begin", json!({"id": 7})).await;
    for n in 0..1_200 {
        let id = if n == 5 { 7 } else { 8 };
        publish(&rig, "paid", json!({"id": id, "n": n})).await;
    }
    rig
}

#[tokio::test]
async fn what_came_long_before_a_step_is_found_beside_the_writer() {
    let rig = far().await;
    publish(&rig, "go", json!({})).await;
    assert!(emitted(&rig, "out.done").is_empty(), "nobody has looked yet");
    publish(&rig, "paid", json!({"id": 7, "n": 9_999})).await;
    rig.pass(0);
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 5})], "the first one counts");
}

#[tokio::test]
async fn a_look_back_that_a_crash_cut_short_is_done_again() {
    let mut rig = far().await;
    publish(&rig, "go", json!({})).await;
    rig.crash();
    rig.pass(0);
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 5})]);
}

#[tokio::test]
async fn what_comes_while_a_wait_looks_back_in_vain_is_not_missed() {
    for crash in [false, true] {
        let mut rig = rig(FAR).await;
        publish(&rig, "begin", json!({"id": 7})).await;
        for n in 0..1_200 {
            publish(&rig, "paid", json!({"id": 8, "n": n})).await;
        }
        publish(&rig, "go", json!({})).await;
        publish(&rig, "paid", json!({"id": 7, "n": 1})).await;
        if crash {
            rig.crash();
        }
        rig.pass(0);
        assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1})]);
    }
}

#[tokio::test]
async fn a_wait_that_looked_back_in_vain_is_armed() {
    let rig = rig(FAR).await;
    publish(&rig, "begin", json!({"id": 7})).await;
    for n in 0..1_200 {
        publish(&rig, "paid", json!({"id": 8, "n": n})).await;
    }
    publish(&rig, "go", json!({})).await;
    rig.pass(0);
    assert!(emitted(&rig, "out.done").is_empty());
    publish(&rig, "paid", json!({"id": 7, "n": 1})).await;
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1})], "in the turn of the event");
}

#[tokio::test]
async fn a_crowd_on_one_row_is_woken_to_the_last() {
    for crash in [false, true] {
        let mut rig = rig(&until(ONE_ROW)).await;
        set(&rig, "a", "bad").await;
        for _ in 0..1_100 {
            publish(&rig, "begin", begin()).await;
        }
        if crash {
            rig.crash();
        }
        set(&rig, "a", "ok").await;
        let few = rig.tenant.live_runs(None).unwrap().len();
        // Each batch goes on with what the one before left.
        for _ in 0..8 {
            publish(&rig, "more", json!({})).await;
        }
        assert_eq!((rig.tenant.live_runs(None).unwrap().len(), few > 0), (0, true), "crash: {crash}");
    }
}

#[tokio::test]
async fn schedules_are_armed_again_after_a_batch_was_refused() {
    let yaml = "automation: tick\ntriggers:\n  - {cron: \"*/5 * * * *\", tz: UTC}\nactions:\n  - publish: {topic: out.tick}\n";
    let mut refused = 0;
    for nth in 1..6 {
        let rig = rig(yaml).await;
        rig.disk.fail_after(nth, Fault::Eio, false);
        let answer = rig.send(engine::Draft::new("in.a", &json!({}))).await;
        rig.disk.heal();
        // A failed sync ends the process; here only what was refused and went on counts.
        if answer.is_ok() || rig.send(engine::Draft::new("in.a", &json!({}))).await.is_err() {
            continue;
        }
        refused += 1;
        rig.pass(300);
        assert_eq!(emitted(&rig, "out.tick").len(), 1, "operation {nth}");
    }
    assert!(refused > 0, "no batch was refused");
}

#[tokio::test]
async fn the_event_of_a_run_that_waits_is_kept_after_the_commit_of_the_state() {
    let yaml = "automation: later\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - delay: 5m\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(yaml).await;
    publish(&rig, "in.a", json!({"n": 1})).await;
    (0..3).for_each(|_| rig.pass(10));
    publish(&rig, "in.a", json!({"n": 2})).await;
    (0..40).for_each(|_| rig.pass(10));
    assert_eq!(emitted(&rig, "out.done"), [json!({"n": 1}), json!({"n": 2})]);
}

#[tokio::test]
async fn a_row_that_only_its_event_names_wakes_also_beside_one_that_is_named() {
    let yaml = "automation: a\ntriggers:\n  - event: in.*\nactions:\n  - wait_until: 'state[event.payload.kind][\"b\"].state == \"ok\" && state[\"v1:ha:entity\"][\"a\"].state == \"ok\"'\n  - publish: {topic: out.done}\n";
    let mut rig = rig(yaml).await;
    set(&rig, "a", "ok").await;
    set(&rig, "b", "bad").await;
    publish(&rig, "in.a", json!({"kind": "v1:ha:entity"})).await;
    rig.crash();
    assert!(emitted(&rig, "out.done").is_empty());
    set(&rig, "b", "ok").await;
    rig.pass(1);
    assert_eq!(emitted(&rig, "out.done").len(), 1);
}
