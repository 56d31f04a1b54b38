//! Tenants open on first use, close when idle, and are woken when something of theirs is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::clock::{Clock, ManualClock, Move, ToldClock};
use engine::settings::{AttentionRule, Switches, Verdict};
use engine::{Caller, Draft, Engine, Options, Outcome, Query, Tenant};
use model::topic::Pattern;
use model::{Code, Timestamp};
use serde_json::{Value, json};

use crate::temp::{TempDir, copy_tree, tokens};

const IDLE: Duration = Duration::from_secs(300);

struct Node {
    engine: Engine,
    clock: Arc<ManualClock>,
}

fn start() -> Timestamp {
    Timestamp::parse("2026-01-01T00:00:00Z").unwrap()
}

/// Defers what is published under `later` by an hour.
fn open_at(dir: &TempDir, now: Timestamp, change: impl FnOnce(&mut Options)) -> Node {
    let clock = Arc::new(ManualClock::at(now));
    let mut options = Options { clock: clock.clone(), ..Options::default() };
    let verdict = Verdict::Defer { until: Duration::from_secs(3600) };
    let topic = Pattern::parse("later.#").unwrap();
    options.settings.attention = vec![AttentionRule { topic, filter: None, rate: None, verdict }];
    change(&mut options);
    Node { engine: Engine::open_with(dir.path(), options).unwrap(), clock }
}

fn open(dir: &TempDir) -> Node {
    open_at(dir, start(), |_| ())
}

impl Node {
    async fn publish(&self, tenant: &str, topic: &str) -> Outcome {
        let tenant = self.engine.tenant(tenant).unwrap();
        tenant.publish(&Caller::local(), Draft::new(topic, &json!({"n": 1}))).await.unwrap()
    }

    fn open_names(&self) -> Vec<String> {
        self.engine.open_tenants().iter().map(|tenant| tenant.name().to_owned()).collect()
    }

    /// Time passes, and those who keep it look around.
    fn pass(&self, by: Duration) {
        self.engine.close_idle();
        self.clock.advance(by);
        self.engine.open_due();
        self.engine.open_tenants().iter().for_each(Tenant::tick);
        self.engine.close_idle();
    }

    /// Waits until every tenant that nothing was known of was seen, and closed again.
    fn settled(&self) {
        self.engine.open_due();
        self.only_main();
    }

    /// What is idle closes once the timekeeper, who may be ticking it, has let go of it.
    fn only_main(&self) {
        for _ in 0..1_000_000 {
            if self.open_names() == ["main"] {
                return;
            }
            self.engine.close_idle();
            std::thread::yield_now();
        }
        panic!("still open: {:?}", self.open_names());
    }

    async fn close(self) -> Timestamp {
        self.engine.close().await.unwrap();
        self.clock.now()
    }
}

fn due(dir: &TempDir) -> Value {
    serde_json::from_slice(&std::fs::read(dir.path().join("due.json")).unwrap()).unwrap()
}

#[tokio::test]
async fn only_main_opens_at_start_and_others_on_first_use() {
    let dir = TempDir::new();
    let node = open(&dir);
    for n in 0..5 {
        node.publish(&format!("t{n}"), "a").await;
    }
    node.close().await;
    assert_eq!(due(&dir)["tenants"].as_object().unwrap().len(), 5);
    let node = open(&dir);
    node.engine.open_due();
    assert_eq!(node.open_names(), ["main"]);
    assert_eq!(node.engine.tenants().unwrap().len(), 6);
    assert!(node.engine.has_tenant("t3") && !node.engine.has_tenant("t9"));
    assert_eq!(node.engine.tenant("t3").unwrap().event("1").unwrap().envelope.topic, "a");
    assert_eq!(node.open_names(), ["main", "t3"]);
}

#[tokio::test]
async fn an_idle_tenant_closes_cleanly_and_opens_again_as_it_was() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("acme", "a").await;
    node.pass(IDLE / 2);
    assert_eq!(node.open_names(), ["acme", "main"]);
    node.pass(IDLE / 2);
    node.only_main();
    assert!(dir.path().join("tenants/acme/ledger/closed").exists(), "the end mark is there");
    assert!(node.engine.health().ready);
    node.publish("acme", "b").await;
    assert_eq!(node.engine.tenant("acme").unwrap().head(), 3, "two events and the end between them");
}

#[tokio::test]
async fn a_tenant_in_use_does_not_close() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("held", "a").await;
    let held = node.engine.tenant("held").unwrap();
    node.publish("working", "a").await;
    let working = node.engine.tenant("working").unwrap();
    let group = json!({"pattern": "#", "start": "beginning", "ack_deadline": "1h"});
    working.put_group("g", &group).await.unwrap();
    let taken = working.pull("g", 1, Duration::ZERO).await.unwrap();
    drop(working);
    node.pass(2 * IDLE);
    assert_eq!(node.open_names(), ["held", "main", "working"]);
    drop(held);
    node.engine.tenant("working").unwrap().ack("g", &tokens(&taken), true).await.unwrap();
    node.pass(2 * IDLE);
    node.only_main();
}

#[tokio::test]
async fn a_deferred_publish_wakes_its_closed_tenant() {
    let dir = TempDir::new();
    let node = open(&dir);
    assert!(matches!(node.publish("acme", "later.x").await, Outcome::Deferred { .. }));
    let waiting = node.engine.tenant("acme").unwrap().deferred(9).unwrap();
    let shown: Value = serde_json::from_str(&waiting[0]).unwrap();
    assert_eq!((waiting.len(), &shown["until"]), (1, &json!("2026-01-01T01:00:00Z")));
    assert_eq!((&shown["event"]["topic"], shown["event"].get("position")), (&json!("later.x"), None));
    node.pass(IDLE);
    node.only_main();
    assert_eq!(due(&dir)["tenants"]["acme"]["due"], "2026-01-01T01:00:00Z");
    node.pass(Duration::from_secs(3600));
    let acme = node.engine.open_tenants().into_iter().find(|tenant| tenant.name() == "acme").unwrap();
    let found = acme.event(&acme.head().to_string()).unwrap();
    assert_eq!((found.envelope.topic.as_str(), found.recorded_at > start()), ("later.x", true));
    assert!(acme.deferred(9).unwrap().is_empty());
}

#[tokio::test]
async fn a_key_that_waits_says_until_when() {
    let dir = TempDir::new();
    let node = open(&dir);
    let acme = node.engine.tenant("acme").unwrap();
    let keyed = |n: u32| Draft { key: Some("k".into()), ..Draft::new("later.y", &json!(n)) };
    acme.publish(&Caller::local(), keyed(1)).await.unwrap();
    let problem = acme.publish(&Caller::local(), keyed(2)).await.unwrap_err();
    let detail = "key \"k\" waits until 2026-01-01T01:00:00Z with another topic, space, subject or payload";
    assert_eq!((problem.detail(), problem.extra().get("position")), (detail, None));
}

#[tokio::test]
async fn a_due_time_survives_a_stop_a_lost_file_and_a_crash() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("acme", "later.x").await;
    let crashed = TempDir::new();
    copy_tree(dir.path(), crashed.path());
    node.close().await;
    let (lost, stale) = (TempDir::new(), TempDir::new());
    copy_tree(dir.path(), lost.path());
    std::fs::remove_file(lost.path().join("due.json")).unwrap();
    copy_tree(dir.path(), stale.path());
    // It says "nothing is due" of a ledger that ended elsewhere.
    let text = std::fs::read_to_string(stale.path().join("due.json")).unwrap();
    let mut old: Value = serde_json::from_str(&text).unwrap();
    old["tenants"]["acme"] = json!({"last": 1, "chain": "0".repeat(64)});
    std::fs::write(stale.path().join("due.json"), old.to_string()).unwrap();
    for (name, dir) in [("clean", dir), ("lost", lost), ("stale", stale), ("crashed", crashed)] {
        let node = open_at(&dir, start().plus(Duration::from_secs(4000)), |_| ());
        node.engine.open_due();
        let acme = node.engine.tenant("acme").unwrap();
        acme.tick();
        let topics: Vec<String> = (1..=acme.head())
            .filter_map(|position| acme.event(&position.to_string()).ok())
            .map(|event| event.envelope.topic.clone())
            .collect();
        assert_eq!(topics, ["later.x"], "{name}");
        drop(acme);
        node.close().await;
    }
}

#[tokio::test]
async fn what_an_unclean_stop_left_unknown_is_looked_at_once_and_closed() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("acme", "later.x").await;
    node.publish("quiet", "a").await;
    let crashed = TempDir::new();
    copy_tree(dir.path(), crashed.path());
    let node = open(&crashed);
    node.settled();
    node.clock.advance(Duration::from_secs(3601));
    node.engine.open_due();
    assert_eq!(node.open_names(), ["acme", "main"], "only what is due");
}

#[tokio::test]
async fn a_damaged_tenant_is_named_when_used_and_others_serve() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("bad", "a").await;
    node.publish("good", "a").await;
    node.close().await;
    let path = dir.path().join("tenants/bad/ledger/00000000000000000001.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let node = open(&dir);
    assert_eq!(node.engine.tenant("bad").err().unwrap().code(), Code::StoreCorrupt);
    let health = node.engine.health();
    assert!(!health.ready && health.failing[0].starts_with("tenant bad: "), "{health:?}");
    node.publish("good", "b").await;
}

#[tokio::test]
async fn a_backup_holds_tenants_that_are_closed() {
    let dir = TempDir::new();
    let node = open(&dir);
    node.publish("acme", "a").await;
    node.close().await;
    let node = open(&dir);
    node.settled();
    let to = TempDir::new();
    let backed = engine::maintain::backup(&node.engine, &to.path().join("b")).await.unwrap();
    let names: Vec<&str> = backed.tenants.iter().map(|copied| copied.tenant.as_str()).collect();
    assert_eq!((names, backed.left_out.len()), (vec!["acme", "main"], 0));
    // It is closed again behind the copy.
    node.only_main();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_race_the_closing_open_again_and_lose_nothing() {
    let dir = TempDir::new();
    let node = open_at(&dir, start(), |options| options.settings.idle = Duration::ZERO);
    let engine = node.engine.clone();
    let closing = tokio::spawn(async move {
        let mut closed = 0;
        while closed < 20 {
            closed += engine.close_idle();
            tokio::task::yield_now().await;
        }
    });
    let mut events = 0;
    while !closing.is_finished() {
        assert!(matches!(node.publish("acme", "a").await, Outcome::Recorded(_)));
        events += 1;
        tokio::task::yield_now().await;
    }
    closing.await.unwrap();
    let acme = node.engine.tenant("acme").unwrap();
    let kept = (1..=acme.head()).filter(|position| acme.event(&position.to_string()).is_ok()).count();
    assert_eq!((kept, acme.head() as usize), (events, events + 20), "each closing is a record");
}

#[tokio::test]
async fn age_based_retention_wakes_a_closed_tenant() {
    let dir = TempDir::new();
    let day = Duration::from_secs(86_400);
    let node = open_at(&dir, start(), |options| {
        options.settings.retention.age = Some(day);
        options.ledger.segment_bytes = 4_000;
    });
    for _ in 0..60 {
        node.publish("acme", "a").await;
    }
    node.pass(IDLE);
    node.only_main();
    assert_eq!(due(&dir)["tenants"]["acme"]["due"], "2026-01-02T00:00:00Z");
    node.pass(day);
    assert_eq!(node.open_names(), ["acme", "main"]);
    engine::maintain::retention::run(&node.engine.tenant("acme").unwrap()).unwrap().unwrap();
}

#[tokio::test]
async fn layers_are_switched_per_tenant() {
    let dir = TempDir::new();
    let node = open_at(&dir, start(), |options| {
        let off = Switches { attention: false, ..Switches::default() };
        options.settings.tenants = BTreeMap::from([("plain".to_owned(), off)]);
    });
    assert!(matches!(node.publish("plain", "later.x").await, Outcome::Recorded(_)));
    assert!(matches!(node.publish("acme", "later.x").await, Outcome::Deferred { .. }));
}

#[tokio::test]
async fn many_open_tenants_all_close_cleanly() {
    let dir = TempDir::new();
    let node = open(&dir);
    for n in 0..40 {
        node.publish(&format!("t{n}"), "a").await;
    }
    node.close().await;
    for n in 0..40 {
        assert!(dir.path().join(format!("tenants/t{n}/ledger/closed")).exists(), "t{n}");
    }
    assert_eq!(due(&dir)["tenants"].as_object().unwrap().len(), 40);
}

#[tokio::test]
async fn a_tenant_begins_with_the_first_thing_recorded_in_it() {
    let dir = TempDir::new();
    let node = open(&dir);
    let seen = || node.engine.visit("new").unwrap();
    assert!(seen().is_unborn() && seen().groups().unwrap().is_empty());
    let refused = seen().publish(&Caller::local(), Draft::new("a b", &json!(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::EventTopicInvalid);
    assert!(seen().plan("w", Vec::new()).await.is_ok());
    assert_eq!(seen().pause("g").await.unwrap_err().code(), Code::GroupNotFound);
    assert!(!node.engine.has_tenant("new") && !dir.path().join("tenants/new").exists());
    let visitor = seen();
    let outcome = visitor.publish(&Caller::local(), Draft::new("a", &json!(1))).await.unwrap();
    assert_eq!(outcome.position(), Some(1));
    assert_eq!((visitor.head(), seen().head()), (0, 1), "it is another one that has it");
    assert!(!seen().is_unborn());
    assert!(node.engine.visit("later").unwrap().put_group("g", &json!({"pattern": "#"})).await.unwrap().0);
    assert_eq!(node.engine.visit("later").unwrap().groups().unwrap().len(), 1);
    node.engine.close().await.unwrap();
}

/// The timekeeper ticks whenever something wants to be written out; while it looks around, nothing seems due.
#[tokio::test]
async fn a_clock_that_is_moved_stops_at_every_instant_also_while_others_tick() {
    let dir = TempDir::new();
    let node = open_at(&dir, start(), |options| options.clock = Arc::new(ToldClock::at(start())));
    for _ in 0..200 {
        node.publish("main", "later.a").await;
        node.engine.move_clock(Move::By(Duration::from_secs(1))).unwrap();
    }
    let (tenant, stop) = (node.engine.main().unwrap(), Arc::new(AtomicBool::new(false)));
    let ticker = std::thread::spawn({
        let (tenant, stop) = (tenant.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                tenant.tick();
            }
        }
    });
    node.engine.move_clock(Move::By(Duration::from_secs(7200))).unwrap();
    stop.store(true, Ordering::Relaxed);
    ticker.join().unwrap();
    let topic = Some(Pattern::parse("later.a").unwrap());
    let admitted = tenant.find(&Query { topic, limit: 1_000, ..Query::default() }).unwrap();
    let after = |event: &Arc<model::event::Event>| event.recorded_at.since(start()).as_secs();
    let at: Vec<u64> = admitted.events.iter().map(after).collect();
    assert_eq!(at, (3600..3800).collect::<Vec<u64>>());
}
