//! Subscriptions of seed 003: events of a group start runs, and one that fails holds the rest.

use engine::Caller;
use engine::command::Toggle;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::runs::{apply, emitted, publish, rig};

const GOOD: &str = "automation: reprice\nmode: parallel\nactions:\n  - publish: {topic: out.priced, payload: {sku: \"{{ input.sku }}\", why: \"{{ input.why }}\"}}\n";
const BAD: &str = "---\nautomation: second\nmode: parallel\nactions:\n  - fail: no\n";
const MENDED: &str = "---\nautomation: second\nmode: parallel\nactions:\n  - publish: {topic: out.second, payload: \"{{ input }}\"}\n";

async fn put(rig: &Rig, id: &str, definition: Value) {
    rig.tenant.put_subscription(id, &definition).await.unwrap();
}

fn price(rig: &Rig) -> impl Future<Output = ()> {
    put(
        rig,
        "a-price",
        json!({
            "pattern": "price.*", "filter": "event.payload.new > 9", "automation": "reprice",
            "input_mapper": {"sku": "$.payload.sku", "why": "literal:changed"},
        }),
    )
}

#[tokio::test]
async fn an_event_that_a_subscription_wants_starts_one_run_with_the_mapped_input() {
    let mut rig = rig(GOOD).await;
    publish(&rig, "price.changed", json!({"sku": "early", "new": 10})).await;
    price(&rig).await;
    publish(&rig, "price.changed", json!({"sku": "low", "new": 1})).await;
    publish(&rig, "price.changed", json!({"sku": "late", "new": 11})).await;
    let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!((drained.triggered.len(), &drained.halted_on), (2, &None));
    assert_eq!(drained.triggered[0]["subscription"], "a-price");
    let both = [json!({"sku": "early", "why": "changed"}), json!({"sku": "late", "why": "changed"})];
    assert_eq!(emitted(&rig, "out.priced"), both);
    rig.crash();
    let again = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert!(again.triggered.is_empty(), "{again:?}");
    assert_eq!(rig.tenant.subscription("a-price").unwrap()["enabled"], true);
    rig.tenant.enable_subscription("a-price", false).await.unwrap();
    publish(&rig, "price.changed", json!({"sku": "off", "new": 11})).await;
    rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!(emitted(&rig, "out.priced").len(), 2);
    rig.tenant.drop_subscription("a-price").await.unwrap();
    assert!(rig.tenant.subscriptions().unwrap().is_empty());
}

#[tokio::test]
async fn a_run_that_fails_holds_the_drain_is_said_once_and_only_it_runs_again() {
    let mut rig = rig(&format!("{GOOD}{BAD}")).await;
    price(&rig).await;
    put(&rig, "b-second", json!({"pattern": "price.*", "automation": "second"})).await;
    publish(&rig, "price.changed", json!({"sku": "one", "new": 10})).await;
    publish(&rig, "price.changed", json!({"sku": "two", "new": 11})).await;
    for pass in 0..2 {
        let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
        assert!(drained.halted_on.is_some(), "{drained:?}");
        assert_eq!(emitted(&rig, "out.priced").len(), 1, "pass {pass}: what succeeded is not run again");
        rig.crash();
    }
    let said = emitted(&rig, "workflow.dispatch_failed");
    assert_eq!((said.len(), &said[0]["subscription"]), (1, &json!("b-second")));
    assert!(said[0]["error"].as_str().unwrap().contains(" did not end well: "), "{said:?}");
    apply(&rig, &format!("{GOOD}{MENDED}")).await;
    let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!(drained.halted_on, None);
    assert_eq!((emitted(&rig, "out.priced").len(), emitted(&rig, "out.second").len()), (2, 2));
}

#[tokio::test]
async fn a_run_that_asks_a_person_holds_the_drain_and_is_found_again() {
    let yaml = "automation: asks\nmode: parallel\nactions:\n  - ask: {question: sure?}\n  - publish: {topic: out.sure}\n";
    let rig = rig(yaml).await;
    put(&rig, "s", json!({"pattern": "price.*", "automation": "asks"})).await;
    publish(&rig, "price.changed", json!({})).await;
    let first = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!((first.triggered.len(), first.halted_on.is_some()), (1, true));
    assert!(emitted(&rig, "workflow.dispatch_failed").is_empty(), "it has not failed");
    let wait = rig.tenant.waits().unwrap()[0]["id"].as_str().unwrap().to_owned();
    rig.tenant.answer_wait(&Caller::local(), &wait, json!(true)).unwrap();
    let second = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!((second.triggered.len(), second.halted_on), (0, None));
    assert_eq!(emitted(&rig, "out.sure").len(), 1);
}

#[tokio::test]
async fn a_subscription_to_an_automation_that_is_not_there_is_refused_with_the_one_that_is_meant() {
    let rig = rig("automation: reprice\nactions: []\n").await;
    let to = |automation: &str| json!({"pattern": "price.*", "automation": automation});
    for (automation, hint) in [("repirce", "did you mean \"reprice\"?"), ("zzz", "everwhen apply")] {
        let problem = rig.tenant.put_subscription("s", &to(automation)).await.unwrap_err();
        assert_eq!(problem.pointer(), Some("/automation"), "{problem}");
        assert!(problem.hint_text().unwrap().contains(hint), "{problem}");
    }
    assert!(rig.tenant.group("workflow_runner").is_err(), "nothing was made for it");
    put(&rig, "s", to("reprice")).await;
    apply(&rig, "automation: other\nactions: []\n").await;
    let off = json!({"pattern": "price.*", "automation": "reprice", "enabled": false});
    put(&rig, "s", off).await;
}

/// `#` leaves out what tells of the engine itself: a group that is made for such a subscription has it by name.
#[tokio::test]
async fn what_the_engine_tells_of_itself_starts_runs_or_is_refused() {
    let rig = rig(&format!("{GOOD}{MENDED}")).await;
    let own = json!({"pattern": "engine.note.#", "automation": "second", "group": "notes"});
    put(&rig, "notes", own.clone()).await;
    put(&rig, "notes", own.clone()).await;
    put(&rig, "prices", json!({"pattern": "price.*", "automation": "second", "group": "notes"})).await;
    let caller = Caller { outside: false, ..Caller::local() };
    let draft = engine::Draft::new("engine.note.taken", &json!({"n": 1}));
    rig.tenant.publish(&caller, draft).await.unwrap();
    publish(&rig, "price.changed", json!({})).await;
    let drained = rig.tenant.drain_subscriptions("notes", 1_000).await.unwrap();
    let started: Vec<_> = drained.triggered.iter().map(|run| run["subscription"].as_str().unwrap()).collect();
    assert_eq!(started, ["notes", "prices"]);
    price(&rig).await;
    let more = json!({"pattern": "engine.note.#", "automation": "second"});
    let refused = rig.tenant.put_subscription("more", &more).await.unwrap_err();
    assert_eq!(refused.pointer(), Some("/group"));
    assert!(refused.detail().contains("no event of \"engine.note.#\" comes there"), "{refused}");
}

#[tokio::test]
async fn what_cannot_be_a_subscription_is_refused_where_it_is_wrong() {
    let rig = Rig::new();
    for (definition, pointer) in [
        (json!({"automation": "a"}), "/pattern"),
        (json!({"pattern": "a..b", "automation": "a"}), "/pattern"),
        (json!({"pattern": "a"}), "/automation"),
        (json!({"pattern": "a", "automation": "a", "filter": "1 +"}), "/filter"),
        (json!({"pattern": "a", "automation": "a", "input_mapper": 1}), "/input_mapper"),
        (json!({"pattern": "a", "automation": "a", "more": 1}), "/more"),
    ] {
        let problem = rig.tenant.put_subscription("s", &definition).await.unwrap_err();
        assert_eq!(problem.pointer(), Some(pointer), "{problem}");
    }
}

#[tokio::test]
async fn an_automation_that_is_paused_or_off_holds_the_drain_until_it_takes_events_again() {
    let rig = rig(GOOD).await;
    price(&rig).await;
    let on_and_off = [
        ([Toggle::Pause].as_slice(), Toggle::Resume),
        (&[Toggle::Disable], Toggle::Enable),
        (&[Toggle::Pause, Toggle::Disable, Toggle::Resume], Toggle::Enable),
    ];
    for (done, (offs, on)) in on_and_off.into_iter().enumerate() {
        publish(&rig, "price.changed", json!({"sku": done, "new": 10})).await;
        for off in offs {
            rig.tenant.set_automation("reprice", *off).unwrap();
            let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
            assert!(drained.triggered.is_empty() && drained.halted_on.is_some(), "{off:?}: {drained:?}");
        }
        assert!(emitted(&rig, "workflow.dispatch_failed").is_empty(), "nothing failed");
        rig.tenant.set_automation("reprice", on).unwrap();
        let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
        assert_eq!((drained.halted_on, emitted(&rig, "out.priced").len()), (None, done + 1));
    }
    publish(&rig, "price.changed", json!({"sku": "off", "new": 10})).await;
    rig.tenant.set_automation("reprice", Toggle::Disable).unwrap();
    rig.tenant.enable_subscription("a-price", false).await.unwrap();
    let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!(drained.halted_on, None, "a subscription that is off holds nothing");
}

#[tokio::test]
async fn an_automation_that_switched_itself_off_still_holds_the_event_it_failed_on() {
    let rig = rig(&format!("{GOOD}{BAD}")).await;
    put(&rig, "second", json!({"pattern": "price.*", "automation": "second"})).await;
    publish(&rig, "price.changed", json!({"sku": "one"})).await;
    for pass in 1..=5 {
        let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
        assert!(drained.halted_on.is_some(), "pass {pass}: {drained:?}");
    }
    assert_eq!(emitted(&rig, "automation.disabled").len(), 1);
    apply(&rig, &format!("{GOOD}{MENDED}")).await;
    rig.tenant.set_automation("second", Toggle::Enable).unwrap();
    let drained = rig.tenant.drain_subscriptions("workflow_runner", 1_000).await.unwrap();
    assert_eq!((drained.halted_on, emitted(&rig, "out.second").len()), (None, 1));
}
