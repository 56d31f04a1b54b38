//! What comes at one instant does not stand in each other's way: deferred publishes, two triggers of one event, places in a queue.

use std::time::Duration;

use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::settings::{AttentionRule, Verdict};
use engine::tenant::backtest::Edge;
use engine::{Caller, Draft, Settings};
use model::topic::Pattern;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{apply, emitted, publish, rig};

const MODES: [&str; 4] = ["single", "restart", "queued", "parallel"];
const MANY: usize = 25;

fn copies(mode: &str) -> String {
    format!(
        "automation: copy\ntriggers: [{{event: in.x}}]\nmode: {mode}\nactions:\n  - publish: {{topic: out.x, payload: {{n: \"{{{{ event.payload.n }}}}\"}}}}\n"
    )
}

fn numbers(rig: &Rig) -> Vec<u64> {
    emitted(rig, "out.x").iter().map(|one| one["n"].as_u64().unwrap()).collect()
}

fn every() -> Vec<u64> {
    (0..MANY as u64).collect()
}

#[tokio::test]
async fn each_publish_that_was_deferred_to_one_instant_finds_the_run_before_it_over() {
    for mode in MODES {
        let topic = Pattern::parse("in.x").unwrap();
        let verdict = Verdict::Defer { until: Duration::from_secs(3) };
        let attention = vec![AttentionRule { topic, filter: None, rate: None, verdict }];
        let rig = Rig::with(Settings { attention, ..Settings::default() });
        apply(&rig, &copies(mode)).await;
        for n in 0..MANY {
            let draft = Draft::new("in.x", &json!({ "n": n }));
            rig.tenant.publish(&Caller::local(), draft).await.unwrap();
        }
        rig.pass(4);
        assert_eq!(numbers(&rig), every(), "{mode}");
    }
}

/// `p` publishes `in.y`, which `a` takes at once; both also wait for a silence of their own.
const TWO_SILENCES: &str = "- automation: p\n  mode: MODE\n  triggers: [{event: in.p, debounce: {for: 10s}}]\n  actions: [{publish: {topic: in.y, payload: {n: 1}}}]\n- automation: a\n  triggers: [{id: slow, event: in.a, debounce: {for: 10s}}, {id: y, event: in.y}]\n  actions: [{publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\"}}}]\n";

#[tokio::test]
async fn what_one_timer_leads_to_is_over_before_the_next_of_its_instant() {
    for mode in MODES {
        let yaml = TWO_SILENCES.replace("MODE", mode);
        for (order, seen) in [(["in.p", "in.a"], [1, 0]), (["in.a", "in.p"], [0, 1])] {
            let mut rig = rig(&yaml).await;
            for topic in order {
                publish(&rig, topic, json!({ "n": 0 })).await;
            }
            rig.pass(10);
            assert_eq!(numbers(&rig), seen, "{mode}, {order:?}");
            rig.crash();
            assert_eq!(numbers(&rig), seen, "{mode}, {order:?}, after a crash");
            let checked = lang::declare::check_workspace(&[("a.yaml".to_owned(), yaml.clone())].into());
            let to = Edge::Position(rig.tenant.head());
            let told = rig.tenant.backtest(&checked.definitions, (Edge::Position(1), to)).unwrap();
            let of =
                told["automations"].as_array().unwrap().iter().find(|of| of["automation"] == "a").unwrap();
            assert_eq!((&of["would"], &of["did"]), (&json!(2), &json!(2)), "{mode}, {order:?}: {told}");
        }
    }
}

#[tokio::test]
async fn a_loop_that_yields_is_over_for_the_next_timer_of_its_instant() {
    let yaml = TWO_SILENCES.replace(
        "actions: [{publish: {topic: in.y",
        "actions: [{repeat: {count: 250, do: [{vars: {i: \"{{ index }}\"}}]}}, {publish: {topic: in.y",
    );
    let rig = rig(&yaml.replace("MODE", "single")).await;
    for topic in ["in.p", "in.a"] {
        publish(&rig, topic, json!({ "n": 0 })).await;
    }
    rig.pass(10);
    assert_eq!(numbers(&rig), [1, 0]);
}

#[tokio::test]
async fn more_timers_of_one_instant_than_a_commit_serves_all_run_in_their_order() {
    let yaml = "automation: copy\nmode: MODE\ntriggers: [{event: in.x, debounce: {for: 10s, key: event.payload.n}}]\nactions:\n  - publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\"}}\n";
    for mode in MODES {
        let rig = rig(&yaml.replace("MODE", mode)).await;
        let drafts = (0..300).map(|n| Draft::new("in.x", &json!({ "n": n }))).collect();
        rig.tenant.publish_all(&Caller::local(), drafts).await.unwrap();
        rig.pass(10);
        assert_eq!(numbers(&rig), (0..300).collect::<Vec<u64>>(), "{mode}");
    }
}

#[tokio::test]
async fn one_that_waits_is_in_the_way_of_the_others_of_its_commit() {
    let yaml = "automation: slow\ntriggers: [{event: in.x}]\nactions:\n  - delay: 1m\n  - publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(yaml).await;
    let drafts = (0..3).map(|n| Draft::new("in.x", &json!({ "n": n }))).collect();
    rig.tenant.publish_all(&Caller::local(), drafts).await.unwrap();
    rig.pass(60);
    assert_eq!(numbers(&rig), [0], "single: the others were skipped");
}

#[tokio::test]
async fn an_event_that_two_triggers_take_restarts_what_the_first_of_them_began() {
    let yaml = "automation: a\nmode: restart\ntriggers: [{id: p, event: \"r.*\"}, {id: q, event: r.x}]\nactions: [{delay: 1m}, {publish: {topic: out.x}}]\n";
    let rig = rig(yaml).await;
    publish(&rig, "r.x", json!({})).await;
    assert_eq!(rig.tenant.live_runs(None).unwrap().len(), 1);
    rig.pass(60);
    assert_eq!(emitted(&rig, "out.x").len(), 1);
    let (runs, _) = rig.tenant.runs(&Wanted { limit: 9, ..Wanted::default() }).unwrap();
    let statuses: Vec<&str> = runs.iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["completed", "cancelled"]);
}

#[tokio::test]
async fn places_that_one_event_takes_in_a_queue_count() {
    let yaml = "automation: a\nmode: queued\nmax: 2\ntriggers: [{id: p, event: \"r.*\"}, {id: q, event: r.x}, {id: r, event: \"r.#\"}]\nactions: [{delay: 1m}, {publish: {topic: out.x}}]\n";
    let rig = rig(yaml).await;
    publish(&rig, "r.x", json!({})).await;
    (0..3).for_each(|_| rig.pass(60));
    assert_eq!(emitted(&rig, "out.x").len(), 2);
    let (decisions, _) = rig.tenant.decisions(&Wanted { limit: 9, ..Wanted::default() }).unwrap();
    let refused = decisions.iter().filter(|one| one["reason"] == "max_runs").count();
    assert_eq!(refused, 1, "{decisions:#?}");
}

#[tokio::test]
async fn what_waits_in_a_queue_is_asked_again_whether_it_repeats_another() {
    let yaml = "automation: a\nmode: queued\ndedup: event.payload.n\ntriggers: [{event: in.x}]\nactions: [{delay: 1m}, {publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\"}}}]\n";
    let mut rig = rig(yaml).await;
    for n in [1, 2, 2] {
        publish(&rig, "in.x", json!({ "n": n })).await;
    }
    rig.crash();
    (0..4).for_each(|_| rig.pass(60));
    assert_eq!(numbers(&rig), [1, 2]);
    let (decisions, _) = rig.tenant.decisions(&Wanted { limit: 9, ..Wanted::default() }).unwrap();
    let last: (&Value, &Value) = (&decisions[0]["outcome"], &decisions[0]["reason"]);
    assert_eq!(last, (&json!("skipped"), &json!("duplicate")), "{decisions:#?}");
}

#[tokio::test]
async fn what_a_pause_kept_runs_once_each_in_every_mode() {
    for mode in MODES {
        let rig = rig(&copies(mode)).await;
        rig.tenant.set_automation("copy", Toggle::Pause).unwrap();
        let drafts = (0..5).map(|n| Draft::new("in.x", &json!({ "n": n }))).collect();
        rig.tenant.publish_all(&Caller::local(), drafts).await.unwrap();
        rig.tenant.set_automation("copy", Toggle::Resume).unwrap();
        assert_eq!(numbers(&rig), (0..5).collect::<Vec<u64>>(), "{mode}");
    }
}
