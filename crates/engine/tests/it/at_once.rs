//! Events of one commit come to what they would come to one after the other: of an array, of one run, of one lifted pause.

use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::tenant::backtest::Edge;
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

/// Publishes `in.x` with 0, which waits a minute, and five more behind it.
const BEHIND_ONE_THAT_WAITS: &str = "- automation: first\n  mode: queued\n  triggers: [{event: in.x}]\n  actions:\n    - if: event.payload.n == 0\n      then: [{delay: 1m}]\n    - publish: {topic: mid.x, payload: {n: \"{{ event.payload.n }}\"}}\n";

#[tokio::test]
async fn what_each_of_a_queue_publishes_finds_the_run_before_it_over() {
    let rig =
        rig(&(BEHIND_ONE_THAT_WAITS.to_owned() + &passes_on("second", "mid.x", "single", "out.x"))).await;
    for n in 0..6 {
        publish(&rig, "in.x", json!({ "n": n })).await;
    }
    rig.pass(60);
    assert_eq!(numbers(&rig, "out.x"), up_to(6));
}

#[tokio::test]
async fn what_a_run_publishes_is_over_before_what_it_calls_or_what_is_told_of_it() {
    for end in ["- {automation: sub, wait: true}", "- {automation: sub, wait: false}", ""] {
        let first = format!(
            "- automation: first\n  triggers: [{{event: in.x}}]\n  actions:\n    - publish: {{topic: mid.x, payload: {{n: 0}}}}\n    {end}\n"
        );
        let sub = "- automation: sub\n  actions: [{publish: {topic: mid.x, payload: {n: 1}}}]\n";
        let life = "- automation: life\n  triggers: [{event: automation.completed, filter: 'event.payload.automation == \"first\"'}]\n  actions: [{publish: {topic: mid.x, payload: {n: 2}}}]\n";
        let rig = rig(&(first + sub + life + &passes_on("second", "mid.x", "single", "out.x"))).await;
        publish(&rig, "in.x", json!({})).await;
        let mut seen = numbers(&rig, "out.x");
        seen.sort_unstable();
        assert_eq!(seen, if end.is_empty() { vec![0, 2] } else { vec![0, 1, 2] }, "{end}");
    }
}

#[tokio::test]
async fn a_wait_takes_no_event_of_its_array_that_has_not_been_looked_at() {
    let waits = "automation: a\ntriggers: [{event: start}]\nactions:\n  - wait_for: {event: go, timeout: 1h}\n  - publish: {topic: out.x, payload: {n: 0}}\n";
    let rig = rig(waits).await;
    let drafts = ["start", "start", "go"].map(|topic| Draft::new(topic, &json!({})));
    rig.tenant.publish_all(&Caller::local(), drafts.into()).await.unwrap();
    assert_eq!(emitted(&rig, "out.x").len(), 1, "the second found the first waiting");
}

#[tokio::test]
async fn the_first_event_of_an_array_wins_a_race_of_branches() {
    let race = "automation: a\ntriggers: [{event: start}]\nactions:\n  - parallel:\n      - - wait_for: {event: nok}\n        - publish: {topic: out.nok}\n      - - wait_for: {event: ok}\n        - publish: {topic: out.ok}\n    wait: any\n";
    let rig = rig(race).await;
    let drafts = ["start", "ok", "nok"].map(|topic| Draft::new(topic, &json!({})));
    rig.tenant.publish_all(&Caller::local(), drafts.into()).await.unwrap();
    assert_eq!((emitted(&rig, "out.ok").len(), emitted(&rig, "out.nok").len()), (1, 0));
}

#[tokio::test]
async fn what_a_pause_kept_finds_the_queue_that_it_held_over() {
    let yaml = BEHIND_ONE_THAT_WAITS.replace("mode: queued", "mode: queued\n  max: 3");
    let rig = rig(&yaml).await;
    for n in 0..2 {
        publish(&rig, "in.x", json!({ "n": n })).await;
    }
    rig.tenant.set_automation("first", Toggle::Pause).unwrap();
    rig.pass(60);
    for n in 2..8 {
        publish(&rig, "in.x", json!({ "n": n })).await;
    }
    rig.tenant.set_automation("first", Toggle::Resume).unwrap();
    assert_eq!(numbers(&rig, "mid.x"), up_to(8));
}

#[tokio::test]
async fn a_loop_that_yields_is_over_for_the_next_event_of_its_array() {
    let long = "automation: long\ntriggers: [{event: in.x}]\nactions:\n  - repeat: {count: 250, do: [{vars: {i: \"{{ index }}\"}}]}\n  - publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\"}}\n";
    let rig = rig(long).await;
    array(&rig, 3).await;
    assert_eq!(numbers(&rig, "out.x"), up_to(3));
}

#[tokio::test]
async fn all_that_is_told_of_one_event_or_one_run_is_heard() {
    let listens = |name: &str, topic: &str, of: &str| {
        format!(
            "- automation: {name}\n  triggers: [{{event: {topic}, filter: 'event.payload.automation in {of}'}}]\n  actions: [{{publish: {{topic: out.{name}}}}}]\n"
        )
    };
    let three = "- automation: c\n  triggers: [{event: in.x}]\n  actions: [{vars: {a: 1}}, {vars: {b: 2}}, {vars: {c: 3}}]\n";
    let yaml = passes_on("a", "in.x", "single", "out.x")
        + &passes_on("b", "in.x", "single", "out.y")
        + three
        + &listens("began", "automation.started", "[\"a\", \"b\", \"c\"]")
        + &listens("stepped", "automation.step.completed", "[\"c\"]");
    let rig = rig(&yaml).await;
    publish(&rig, "in.x", json!({ "n": 0 })).await;
    assert_eq!((emitted(&rig, "out.began").len(), emitted(&rig, "out.stepped").len()), (3, 3));
}

#[tokio::test]
async fn a_backtest_of_an_array_comes_to_what_happened() {
    let yaml = passes_on("copy", "in.x", "single", "out.x");
    let rig = rig(&yaml).await;
    array(&rig, 3).await;
    let checked = lang::declare::check_workspace(&[("a.yaml".to_owned(), yaml)].into());
    let (from, to) = (Edge::Position(1), Edge::Position(rig.tenant.head()));
    let told = rig.tenant.backtest(&checked.definitions, (from, to)).unwrap();
    let of = &told["automations"][0];
    assert_eq!((&of["would"], &of["did"], &of["both"]), (&json!(3), &json!(3), &json!(3)), "{told}");
}

/// Each event of `in` publishes two more, until the causes are too many.
#[tokio::test]
async fn what_multiplies_lets_others_in_between() {
    let rig = rig("automation: a\nmode: parallel\nmax: 100000\ntriggers: [{event: in.x}]\nactions: [{publish: {topic: in.x}}, {publish: {topic: in.x}}]\n").await;
    publish(&rig, "in.x", json!({})).await;
    let head = rig.tenant.head();
    assert!(head < 25_000, "the first answer comes after one commit of it, not after all: {head}");
    rig.tenant.set_automation("a", Toggle::Pause).unwrap();
    rig.pass(1);
    let kept = rig.tenant.head();
    (0..5).for_each(|_| rig.pass(1));
    assert_eq!(rig.tenant.head(), kept, "and it can be stopped");
}

#[tokio::test]
async fn a_wait_of_a_run_in_a_long_array_looks_no_further_than_its_event() {
    let yaml = "automation: a\ntriggers: [{event: in.x}]\nactions:\n  - wait_for: {event: stop, timeout: 0s, on_timeout: continue}\n  - publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\", had: \"{{ wait.completed }}\"}}\n";
    let rig = rig(yaml).await;
    let mut drafts: Vec<Draft> = (0..400).map(|n| Draft::new("in.x", &json!({ "n": n }))).collect();
    drafts.push(Draft::new("stop", &json!({})));
    rig.tenant.publish_all(&Caller::local(), drafts).await.unwrap();
    assert_eq!(numbers(&rig, "out.x"), up_to(400));
    assert!(emitted(&rig, "out.x").iter().all(|one| one["had"] == false), "what comes after all of them");
}

#[tokio::test]
async fn a_wait_of_a_run_in_an_array_finds_what_the_run_itself_has_published() {
    let yaml = "automation: a\ntriggers: [{event: in.x}]\nactions:\n  - publish: {topic: own.x}\n  - wait_for: {event: own.x, timeout: 0s, on_timeout: continue}\n  - publish: {topic: out.x, payload: {n: \"{{ event.payload.n }}\", had: \"{{ wait.completed }}\"}}\n";
    let rig = rig(yaml).await;
    array(&rig, 3).await;
    assert_eq!(numbers(&rig, "out.x"), up_to(3));
    assert!(emitted(&rig, "out.x").iter().all(|one| one["had"] == true));
}
