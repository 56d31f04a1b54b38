//! Events of one commit come to what they would come to one after the other: of an array, of one run, of one lifted pause.

use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::{Caller, Draft};
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{emitted, publish, rig};

const MODES: [&str; 4] = ["single", "restart", "queued", "parallel"];
const MANY: usize = 25;

/// An automation that publishes the number it was given, on another topic.
fn passes_on(name: &str, on: &str, mode: &str, to: &str) -> String {
    format!(
        "- automation: {name}\n  triggers: [{{event: {on}}}]\n  mode: {mode}\n  actions:\n    - publish: {{topic: {to}, payload: {{n: \"{{{{ event.payload.n }}}}\"}}}}\n"
    )
}

async fn array(rig: &Rig, many: usize) {
    let drafts = (0..many).map(|n| Draft::new("in.x", &json!({ "n": n }))).collect();
    rig.tenant.publish_all(&Caller::local(), drafts).await.unwrap();
}

fn numbers(rig: &Rig, topic: &str) -> Vec<u64> {
    emitted(rig, topic).iter().map(|one| one["n"].as_u64().unwrap()).collect()
}

fn up_to(many: usize) -> Vec<u64> {
    (0..many as u64).collect()
}

#[tokio::test]
async fn each_event_of_an_array_finds_the_run_before_it_over() {
    for mode in MODES {
        let mut rig = rig(&passes_on("copy", "in.x", mode, "out.x")).await;
        array(&rig, MANY).await;
        assert_eq!(numbers(&rig, "out.x"), up_to(MANY), "{mode}");
        rig.crash();
        assert_eq!(numbers(&rig, "out.x"), up_to(MANY), "{mode}, after a crash");
    }
}

#[tokio::test]
async fn each_event_that_one_run_publishes_finds_the_run_before_it_over() {
    let many = format!(
        "- automation: many\n  triggers: [{{event: loop}}]\n  actions:\n    - repeat: {{count: {MANY}, do: [{{publish: {{topic: in.x, payload: {{n: \"{{{{ index }}}}\"}}}}}}]}}\n"
    );
    for mode in MODES {
        let rig = rig(&(passes_on("copy", "in.x", mode, "out.x") + &many)).await;
        publish(&rig, "loop", json!({})).await;
        assert_eq!(numbers(&rig, "out.x"), up_to(MANY), "{mode}");
    }
}

#[tokio::test]
async fn what_runs_of_an_array_publish_finds_the_run_before_it_over_too() {
    for mode in MODES {
        let yaml =
            passes_on("first", "in.x", mode, "mid.x") + &passes_on("second", "mid.x", "single", "out.x");
        let rig = rig(&yaml).await;
        array(&rig, 300).await;
        assert_eq!(numbers(&rig, "out.x"), up_to(300), "{mode}");
    }
}

#[tokio::test]
async fn the_largest_array_is_one_commit_with_all_its_runs() {
    let rig = rig(&passes_on("copy", "in.x", "single", "out.x")).await;
    array(&rig, 1_000).await;
    assert_eq!(numbers(&rig, "out.x"), up_to(1_000));
}

#[tokio::test]
async fn what_is_told_of_each_run_finds_the_run_before_it_over() {
    let listener = "- automation: life\n  triggers: [{event: automation.completed, filter: 'event.payload.automation != \"life\"'}]\n  actions: [{publish: {topic: out.life, payload: {of: \"{{ event.payload.automation }}\"}}}]\n";
    let two = passes_on("a", "in.x", "single", "out.x") + &passes_on("b", "in.x", "single", "out.y");
    let rig = rig(&(two + listener)).await;
    array(&rig, 3).await;
    let told: Vec<Value> = emitted(&rig, "out.life").iter().map(|one| one["of"].clone()).collect();
    assert_eq!(told, ["a", "b", "a", "b", "a", "b"]);
}

#[tokio::test]
async fn what_each_run_calls_finds_the_call_before_it_over() {
    for (mode, waits) in [("single", true), ("single", false), ("queued", true), ("queued", false)] {
        let caller = format!(
            "- automation: caller\n  mode: {mode}\n  triggers: [{{event: in.x}}]\n  actions:\n    - {{automation: sub, wait: {waits}, args: {{n: \"{{{{ event.payload.n }}}}\"}}}}\n    - publish: {{topic: out.after, payload: {{n: \"{{{{ event.payload.n }}}}\"}}}}\n"
        );
        let called =
            "- automation: sub\n  actions: [{publish: {topic: out.x, payload: {n: \"{{ input.n }}\"}}}]\n";
        let rig = rig(&(caller + called)).await;
        array(&rig, MANY).await;
        assert_eq!(numbers(&rig, "out.x"), up_to(MANY), "{mode}, wait: {waits}");
        assert_eq!(numbers(&rig, "out.after"), up_to(MANY), "{mode}, wait: {waits}");
    }
}

#[tokio::test]
async fn a_wait_that_the_first_event_of_an_array_ends_is_over_for_the_second() {
    let yaml = "automation: door\ntriggers: [{event: open}]\nactions:\n  - wait_for: {event: in.x, timeout: 1h}\n  - publish: {topic: out.x, payload: {n: 0}}\n";
    let rig = rig(yaml).await;
    publish(&rig, "open", json!({})).await;
    let drafts = ["in.x", "open", "in.x"].map(|topic| Draft::new(topic, &json!({})));
    rig.tenant.publish_all(&Caller::local(), drafts.into()).await.unwrap();
    assert_eq!(emitted(&rig, "out.x").len(), 2);
}

#[tokio::test]
async fn what_a_lifted_pause_publishes_finds_the_run_before_it_over() {
    let yaml =
        passes_on("copy", "in.x", "single", "mid.x") + &passes_on("second", "mid.x", "single", "out.x");
    let rig = rig(&yaml).await;
    rig.tenant.set_automation("copy", Toggle::Pause).unwrap();
    array(&rig, MANY).await;
    rig.tenant.set_automation("copy", Toggle::Resume).unwrap();
    assert_eq!(numbers(&rig, "out.x"), up_to(MANY));
}

#[tokio::test]
async fn what_others_wrote_in_the_same_commit_does_not_make_a_run_too_big() {
    let yaml = "automation: wide\ntriggers: [{event: in.x}]\nactions:\n  - repeat: {count: 180, do: [{publish: {topic: out.x, payload: {n: 0}}}]}\n";
    let rig = rig(yaml).await;
    array(&rig, 60).await;
    let (runs, _) = rig.tenant.runs(&Wanted { limit: 100, ..Wanted::default() }).unwrap();
    assert!(runs.len() > 50, "{}", runs.len());
    assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:#?}");
}
