//! Snapshots and trimming: what goes, what must stay, and what a rebuild on top of a snapshot gives.

use std::time::Duration;

use engine::maintain::{housekeeper, retention, snapshot, verify};
use engine::{Draft, Engine, Options, Query};
use model::Code;
use model::group::Start;
use model::topic::Pattern;
use serde_json::json;

use super::{dump, files, publish_keyed, rebuilt, segments, small};
use crate::temp::{Bench, tokens};

fn keeping(bytes: u64) -> impl FnOnce(&mut Options) {
    move |options| {
        small(options);
        options.settings.retention.bytes = Some(bytes);
    }
}

#[tokio::test]
async fn a_state_deleted_after_a_trim_is_rebuilt_from_a_snapshot_and_the_tail() {
    let bench = Bench::with(keeping(6_000));
    bench.tenant.put_group("g", &json!({"pattern": "#", "start": "beginning"})).await.unwrap();
    for n in 0..60 {
        publish_keyed(&bench.engine, "a", n).await;
        if n % 10 == 5 {
            let out = bench.pull("g", 100).await;
            bench.tenant.ack("g", &tokens(&out), true).await.unwrap();
        }
    }
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    assert!(trimmed.segments > 3, "{trimmed:?}");
    assert!(segments(bench.dir.path())[0].ends_with(format!("{:020}.jsonl", trimmed.first)));
    assert_eq!(bench.tenant.first(), trimmed.first);
    assert_eq!(files(&bench.dir.path().join("tenants/main/snapshots"), "db").len(), 2);
    assert_eq!(bench.tenant.event("2").unwrap_err().code(), Code::EventGone);
    // A place that is named is there, or it is said; the beginning is where it is now.
    let below = json!({"pattern": "#", "start": {"position": trimmed.first - 1}});
    let gone = bench.tenant.put_group("below", &below).await.unwrap_err();
    assert_eq!((gone.code(), &gone.extra()["first"]), (Code::EventGone, &json!(trimmed.first)));
    let gone = bench.tenant.seek("g", Start::Position(1)).await.unwrap_err();
    assert_eq!(gone.code(), Code::EventGone);
    let query = Query { before: Some(trimmed.first), ..Query::default() };
    assert_eq!(bench.tenant.find(&query).err().unwrap().code(), Code::EventGone);
    bench.tenant.seek("g", Start::Position(trimmed.first)).await.unwrap();
    bench.tenant.seek("g", Start::Beginning).await.unwrap();
    // Keys live as long as their event.
    let again = publish_keyed(&bench.engine, "a", 0).await;
    assert!(again > trimmed.first);
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    let report = verify(dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
    assert_eq!(report["tenants"][0]["first"], trimmed.first);
    // A damaged newest snapshot is passed over.
    let newest = files(&dir.path().join("tenants/main/snapshots"), "db").pop().unwrap();
    std::fs::write(&newest, b"no database").unwrap();
    let path = dir.path().join("tenants/main/state.db");
    std::fs::remove_file(&path).unwrap();
    drop(Engine::open(dir.path()).unwrap());
    assert_eq!(dump(&path), after);
}

#[tokio::test]
async fn a_trim_by_size_never_leaves_less_than_the_size() {
    const KEPT: u64 = 100_000;
    let bench = Bench::with(|options| {
        options.ledger.headroom = 0;
        options.settings.retention.bytes = Some(KEPT);
    });
    let sizes = || segments(bench.dir.path()).iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let mut trims = 0;
    for round in 0..6 {
        // Far more than a quarter of the limit between two looks.
        for n in 0..60 {
            let draft = Draft::new("a", &json!({"n": n, "pad": "x".repeat(1_000)}));
            bench.engine.publish(draft).await.unwrap();
        }
        trims += usize::from(retention::run(&bench.tenant).unwrap().is_some());
        let size: u64 = sizes();
        if round > 1 {
            assert!((KEPT..2 * KEPT).contains(&size), "round {round}: {size} bytes are left");
        }
    }
    assert!(trims > 2, "{trims} trims");
}

#[tokio::test]
async fn a_lagging_group_holds_a_trim_back() {
    let bench = Bench::with(keeping(3_000));
    for n in 0..20 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    bench.tenant.put_group("g", &json!({"pattern": "a", "start": {"position": 10}})).await.unwrap();
    for n in 20..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    assert!(trimmed.first > 1 && trimmed.first <= 10, "{trimmed:?}");
    assert_eq!(bench.pull("g", 1).await[0].event.position, 10);
    assert!(retention::run(&bench.tenant).unwrap().is_none());
}

#[tokio::test]
async fn a_run_that_may_look_back_holds_a_trim_back_unless_told_not_to() {
    let yaml = "automation: pay\ntriggers:\n  - event: placed\nactions:\n  - delay: 10s\n  - if: \"true\"\n    \
                then:\n      - wait_for: {event: a, filter: 'event.payload.n == 25', timeout: 5s}\n  - publish: {topic: paid}\n";
    for respect_runs in [true, false] {
        let bench = Bench::with(|options| {
            keeping(3_000)(options);
            options.settings.retention.respect_runs = respect_runs;
        });
        let files = [("a.yaml".to_owned(), yaml.to_owned())].into();
        let checked = lang::declare::check_workspace(&files);
        assert!(!checked.has_errors(), "{:#?}", checked.findings);
        bench.tenant.apply("test", checked.definitions).await.unwrap();
        for n in 0..20 {
            publish_keyed(&bench.engine, "a", n).await;
        }
        let placed = bench.publish("placed", 1).await;
        for n in 20..60 {
            publish_keyed(&bench.engine, "a", n).await;
        }
        let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
        assert_eq!(trimmed.first <= placed, respect_runs, "{trimmed:?}");
        bench.pass(10.0);
        let paid = Query { topic: Some(Pattern::parse("paid").unwrap()), ..Query::default() };
        assert_eq!(bench.tenant.find(&paid).unwrap().events.len(), usize::from(respect_runs));
        let live = bench.tenant.live_runs(None).unwrap();
        assert_eq!(live.len(), usize::from(!respect_runs), "what was trimmed is not looked at");
    }
}

#[tokio::test]
async fn a_group_whose_pattern_never_matches_holds_nothing_back() {
    let bench = Bench::with(keeping(3_000));
    bench.tenant.put_group("g", &json!({"pattern": "never", "start": "beginning"})).await.unwrap();
    for n in 0..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    assert!(retention::run(&bench.tenant).unwrap().unwrap().segments > 3);
}

#[tokio::test]
async fn a_group_that_loses_events_is_told_and_goes_on_at_the_floor() {
    let bench = Bench::with(|options| {
        keeping(3_000)(options);
        options.settings.retention.respect_groups = false;
    });
    bench.tenant.put_group("g", &json!({"pattern": "a", "start": "beginning"})).await.unwrap();
    for n in 0..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let lost_token = tokens(&bench.pull("g", 1).await);
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    let query = Query { topic: Some(Pattern::parse("engine.group.lost").unwrap()), ..Query::default() };
    let told = bench.tenant.find(&query).unwrap().events;
    assert_eq!(told.len(), trimmed.segments);
    let payload = told.last().unwrap().to_value()["payload"].clone();
    assert_eq!((&payload["group"], &payload["to"]), (&json!("g"), &json!(trimmed.first - 1)));
    assert_eq!(bench.tenant.ack("g", &lost_token, true).await.unwrap().done, 0);
    let next = bench.pull("g", 1).await;
    assert_eq!((next[0].event.position, next[0].attempt), (trimmed.first, 1));
    assert_eq!(bench.tenant.group("g").unwrap().group.floor, trimmed.first - 1);
    let (before, after, _dir) = rebuilt(bench).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn old_events_go_by_age_once_all_of_a_segment_is_old() {
    let bench = Bench::with(|options| {
        options.ledger.headroom = 0;
        options.settings.retention.age = Some(Duration::from_secs(3600));
    });
    for n in 0..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    assert!(retention::run(&bench.tenant).unwrap().is_none());
    bench.pass(3601.0);
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    assert!(trimmed.first > 40, "{trimmed:?}");
    let alone = bench.publish("a", 1).await;
    assert!(retention::run(&bench.tenant).unwrap().is_none(), "it is not old");
    assert_eq!(bench.tenant.event(&alone.to_string()).unwrap().position, alone);
    bench.pass(3601.0);
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    assert!(trimmed.first > alone, "one old event is enough: {trimmed:?}");
    assert_eq!(bench.tenant.event(&alone.to_string()).unwrap_err().code(), model::Code::EventGone);
    let again = || {
        bench.pass(3601.0);
        retention::run(&bench.tenant).unwrap();
        bench.tenant.head()
    };
    let rest: Vec<_> = (0..5).map(|_| again()).collect();
    assert_eq!(rest[3], rest[4], "what the housekeeping wrote does not keep it busy: {rest:?}");
}

#[tokio::test]
async fn a_trim_that_a_crash_interrupted_is_finished_at_the_next_open() {
    let bench = Bench::with(keeping(5_000));
    for n in 0..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let all: Vec<_> =
        segments(bench.dir.path()).iter().map(|p| (p.clone(), std::fs::read(p).unwrap())).collect();
    let trimmed = retention::run(&bench.tenant).unwrap().unwrap();
    bench.engine.close().await.unwrap();
    let dir = bench.dir;
    drop((bench.engine, bench.tenant));
    // As if the process had died between the record and the last removal.
    let (path, bytes) = &all[trimmed.segments - 1];
    std::fs::write(path, bytes).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    assert_eq!(engine.main().unwrap().first(), trimmed.first);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_snapshot_is_the_state_at_its_position() {
    let bench = Bench::new();
    for n in 0..10 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let head = bench.tenant.head();
    assert_eq!(snapshot::take(&bench.tenant).unwrap(), head);
    let path = bench.dir.path().join(format!("tenants/main/snapshots/{head:020}.db"));
    assert!(dump(&path).iter().filter(|line| line.starts_with("key")).count() == 10);
    for _ in 0..3 {
        snapshot::take(&bench.tenant).unwrap();
    }
    assert_eq!(files(&bench.dir.path().join("tenants/main/snapshots"), "db").len(), 2);
}

#[tokio::test]
async fn the_scrubber_finds_rot_and_the_engine_is_no_longer_ready() {
    let bench = Bench::with(small);
    for n in 0..20 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let mut next = 0;
    for _ in 0..3 {
        next = housekeeper::scrub(&bench.tenant, next).unwrap();
    }
    assert!(bench.engine.health().ready);
    let sealed = segments(bench.dir.path())[0].clone();
    let text = std::fs::read_to_string(&sealed).unwrap().replacen("\"n\":1", "\"n\":7", 1);
    std::fs::write(&sealed, text).unwrap();
    housekeeper::scrub(&bench.tenant, 0).unwrap();
    let health = bench.engine.health();
    assert!(!health.ready && health.failing[0].contains("main"), "{health:?}");
}
