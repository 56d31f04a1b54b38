//! Failures that other systems shipped, each as a test named after what it prevents (docs/proofs.md says which is which).

use std::sync::Arc;
use std::time::Duration;

use engine::settings::{AttentionRule, Verdict};
use engine::{Caller, Draft, Follow, Redrive, Settings};
use ledger::disk::Fault;
use model::Code;
use model::group::Start;
use model::topic::Pattern;
use serde_json::json;

use crate::rig::Rig;
use crate::temp::{Bench, positions, tokens};

fn keyed(key: &str, n: i64) -> Draft {
    Draft { key: Some(key.to_owned()), ..Draft::new("a", &json!({"n": n})) }
}

#[tokio::test]
async fn an_event_with_an_older_id_is_not_missed_by_a_cursor() {
    let rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let mut follower = rig.tenant.follow(Follow { after: Some(0), ..Follow::default() }).unwrap();
    let mut seen = Vec::new();
    for id in ["01KZZZZZZZZZZZZZZZZZZZZZZZ", "01K00000000000000000000000", "01JZZZZZZZZZZZZZZZZZZZZZZZ"] {
        rig.send(Draft { id: Some(id.to_owned()), ..Draft::new("a", &json!(1)) }).await.unwrap();
        let got = rig.pull("g").await;
        assert_eq!(got[0].event.envelope.id, id, "the group's cursor is a position");
        rig.tenant.ack("g", &tokens(&got), true).await.unwrap();
        seen.extend(follower.try_next(10).unwrap().iter().map(|event| event.envelope.id.clone()));
        assert_eq!(seen.last().unwrap(), id);
    }
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn a_key_belongs_to_its_source_and_its_body_is_compared() {
    let rig = Rig::new();
    let from = |source: &str, n| Draft { source: Some(source.to_owned()), ..keyed("k", n) };
    let one = rig.send(from("shop", 1)).await.unwrap();
    let other = rig.send(from("till", 2)).await.unwrap();
    assert_ne!(one.position, other.position, "another source's key is another key");
    let problem = rig.send(from("shop", 2)).await.unwrap_err();
    assert_eq!(problem.code(), Code::EventKeyConflict);
}

#[tokio::test]
async fn a_publish_without_an_answer_is_settled_by_its_key_whatever_io_failed() {
    for nth in 1.. {
        let mut rig = Rig::new();
        rig.disk.fail_after(nth, Fault::PowerCut, false);
        let answer = rig.send(keyed("k", 1)).await;
        let struck = answer.is_err();
        rig.crash();
        let receipt = rig.send(keyed("k", 1)).await.unwrap();
        if let Ok(first) = answer {
            assert_eq!((receipt.position, receipt.duplicate), (first.position, true), "io {nth}");
        }
        let mut follower = rig.tenant.follow(Follow { after: Some(0), ..Follow::default() }).unwrap();
        assert_eq!(follower.try_next(10).unwrap().len(), 1, "once, io {nth}");
        if !struck {
            return;
        }
    }
}

#[tokio::test]
async fn a_key_is_known_after_a_crash_and_months_later() {
    let mut rig = Rig::new();
    let first = rig.send(keyed("k", 1)).await.unwrap();
    rig.crash();
    rig.pass(120 * 24 * 3600);
    let again = rig.send(keyed("k", 1)).await.unwrap();
    assert_eq!((again.position, again.duplicate), (first.position, true));
}

#[tokio::test]
async fn a_failed_handler_sees_its_keyed_event_again() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#", "backoff": {"base": 0, "max": 0}})).await.unwrap();
    let position = rig.send(keyed("k", 1)).await.unwrap().position;
    for _ in 0..2 {
        let got = rig.pull("g").await;
        assert_eq!(positions(&got), [position], "seen is not done");
        rig.tenant.nack("g", &tokens(&got), None, Some("down".into())).await.unwrap();
        assert!(rig.send(keyed("k", 1)).await.unwrap().duplicate);
    }
    rig.crash();
    assert_eq!(positions(&rig.pull("g").await), [position]);
}

#[tokio::test]
async fn a_full_disk_refuses_publishes_first_and_acks_go_on() {
    let rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    for n in 0..50 {
        rig.publish("a", n).await;
    }
    // Something else takes what is free, but for a little.
    rig.disk.set_capacity(Some(160_000));
    let pad = json!({"pad": "x".repeat(2_000)});
    let refused = loop {
        match rig.send(Draft::new("a", &pad)).await {
            Ok(_) => {}
            Err(problem) => break problem,
        }
    };
    assert_eq!(refused.code(), Code::StorageFull);
    assert!(rig.tenant.metrics().is_storage_full());
    for _ in 0..20 {
        let got = rig.tenant.pull("g", 1, Duration::ZERO).await.unwrap();
        assert_eq!(rig.tenant.ack("g", &tokens(&got), true).await.unwrap().done, 1, "acks go on");
    }
    let got = rig.tenant.pull("g", 1, Duration::ZERO).await.unwrap();
    rig.tenant.reject("g", &tokens(&got), None).await.unwrap();
    assert_eq!(rig.dead("g").len(), 1, "and dead letters");
    rig.disk.set_capacity(None);
    rig.send(Draft::new("a", &pad)).await.expect("publishing resumes by itself");
    assert!(!rig.tenant.metrics().is_storage_full(), "and who asks is told at once");
}

#[tokio::test]
async fn a_poison_event_stops_nobody_but_its_own_delivery() {
    let rig = Rig::new();
    let body = json!({"pattern": "#", "max_retries": 1, "backoff": {"base": 0, "max": 0}});
    rig.tenant.put_group("sick", &body).await.unwrap();
    rig.tenant.put_group("well", &body).await.unwrap();
    let poison = rig.publish("a", 1).await;
    let later = rig.publish("a", 2).await;
    for _ in 0..2 {
        let got = rig.pull("sick").await;
        let bad: Vec<String> = tokens(&got[..1]);
        rig.tenant.nack("sick", &bad, None, Some("poison".into())).await.unwrap();
        rig.tenant.ack("sick", &tokens(&got[1..]), true).await.unwrap();
    }
    assert_eq!(rig.dead("sick"), [poison]);
    assert!(rig.pull("sick").await.is_empty(), "{later} was handled, {poison} lies aside");
    assert_eq!(positions(&rig.pull("well").await), [poison, later]);
    assert!(rig.dead("well").is_empty());
}

#[tokio::test]
async fn a_dead_letter_is_in_exactly_one_place_whatever_io_failed() {
    for nth in 1.. {
        let mut rig = Rig::new();
        rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
        let position = rig.publish("a", 1).await;
        let got = rig.pull("g").await;
        rig.disk.fail_after(nth, Fault::PowerCut, false);
        let answer = rig.tenant.reject("g", &tokens(&got), None).await;
        rig.crash();
        let (dead, open) = (rig.dead("g"), positions(&rig.pull("g").await));
        assert_eq!(dead.len() + open.len(), 1, "io {nth}: dead {dead:?}, open {open:?}");
        if answer.is_ok() {
            return assert_eq!(dead, [position]);
        }
    }
}

#[tokio::test]
async fn a_filter_that_errs_is_counted_and_the_floor_goes_on() {
    let rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#", "filter": "payload.n / 0 > 1"})).await.unwrap();
    let position = rig.publish("a", 1).await;
    assert!(rig.pull("g").await.is_empty());
    let view = rig.tenant.group("g").unwrap();
    assert_eq!((view.filter_errors, view.lag), (1, 0));
    assert!(view.group.floor >= position);
}

#[tokio::test]
async fn ten_crashes_quarantine_what_was_in_flight_and_a_redrive_gives_it_ten_more() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "a", "max_retries": 0})).await.unwrap();
    let position = rig.publish("a", 1).await;
    for crash in 0..10 {
        let got = rig.pull("g").await;
        assert_eq!(positions(&got), [position], "crash {crash} is not the event's failure");
        assert_eq!(got[0].attempt, crash + 1);
        rig.publish("b", 1).await; // its sync makes the hand-out durable
        rig.crash();
    }
    assert!(rig.pull("g").await.is_empty());
    let page = rig.tenant.dead_letters("g", 10, None).unwrap();
    assert_eq!(&page.dead_letters[0]["reason"], &json!("quarantined"), "and it can be seen");
    rig.tenant.redrive("g", Redrive::Positions(vec![position])).await.unwrap();
    assert_eq!(positions(&rig.pull("g").await), [position], "a redrive is a new beginning");
}

#[tokio::test]
async fn a_loop_of_events_is_cut_at_the_depth_limit() {
    let rig = Rig::new();
    let mut cause = rig.publish("a", 0).await;
    for depth in 1..100 {
        match rig.send(Draft { cause: Some(cause), ..Draft::new("a", &json!(depth)) }).await {
            Ok(receipt) => cause = receipt.position,
            Err(problem) => {
                assert_eq!(problem.code(), Code::EventTooDeep);
                return assert!(depth > 30, "cut at {depth}");
            }
        }
    }
    panic!("a loop goes on for ever");
}

#[tokio::test]
async fn an_answer_from_before_a_crash_changes_nothing() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let position = rig.publish("a", 1).await;
    let old = tokens(&rig.pull("g").await);
    rig.crash();
    let new = rig.pull("g").await;
    assert_eq!(rig.tenant.ack("g", &old, true).await.unwrap().stale, old);
    assert_eq!(rig.tenant.reject("g", &old, None).await.unwrap().done, 0);
    assert_eq!(positions(&new), [position]);
    assert_eq!(rig.tenant.ack("g", &tokens(&new), true).await.unwrap().done, 1);
}

#[test]
fn a_part_that_dies_is_named() {
    let health = Arc::new(engine::pool::Watch::default());
    let (done, ended) = std::sync::mpsc::channel::<()>();
    engine::pool::supervise("sweeper", &health, move || {
        let _held = done;
        panic!("planted");
    })
    .unwrap();
    assert!(ended.recv().is_err(), "it is gone");
    for _ in 0..1_000 {
        if !health.dead().is_empty() {
            return assert_eq!(health.dead(), ["task sweeper died"]);
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn opening_again_publishes_nothing() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let last = bench.publish("a", 1).await;
    let bench = bench.reopen().await;
    let follow = Follow { after: Some(last), patterns: vec![], ..Follow::default() };
    assert!(bench.tenant.follow(follow).unwrap().try_next(10).unwrap().is_empty());
}

#[tokio::test]
async fn a_redriven_event_that_was_acked_stays_acked() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let first = rig.publish("a", 1).await;
    rig.publish("a", 2).await;
    let got = rig.pull("g").await;
    rig.tenant.reject("g", &tokens(&got[..1]), None).await.unwrap();
    rig.tenant.redrive("g", Redrive::All).await.unwrap();
    let again = rig.pull("g").await;
    assert_eq!(positions(&again), [first]);
    rig.tenant.ack("g", &tokens(&again), true).await.unwrap();
    rig.tenant.ack("g", &tokens(&got[1..]), true).await.unwrap();
    rig.crash();
    assert!(rig.pull("g").await.is_empty(), "the floor went over it, and the move must name it all the same");
}

#[tokio::test]
async fn redriven_events_of_one_key_come_one_by_one_and_in_order() {
    let rig = Rig::new();
    let body = json!({"pattern": "#", "ordering": "key", "key": "event.topic"});
    rig.tenant.put_group("g", &body).await.unwrap();
    let (one, two) = (rig.publish("a", 1).await, rig.publish("a", 2).await);
    let three = rig.publish("a", 3).await;
    for _ in 0..2 {
        let got = rig.pull("g").await;
        rig.tenant.reject("g", &tokens(&got), None).await.unwrap();
    }
    let out = rig.pull("g").await;
    assert_eq!(positions(&out), [three]);
    rig.tenant.redrive("g", Redrive::All).await.unwrap();
    assert!(rig.pull("g").await.is_empty(), "one of the key is out");
    rig.tenant.ack("g", &tokens(&out), true).await.unwrap();
    for expected in [one, two] {
        let got = rig.pull("g").await;
        assert_eq!(positions(&got), [expected]);
        rig.tenant.ack("g", &tokens(&got), true).await.unwrap();
    }
}

#[tokio::test]
async fn changing_a_group_forgets_no_ack() {
    let rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    rig.publish("a", 1).await;
    let got = rig.pull("g").await;
    rig.tenant.ack("g", &tokens(&got), false).await.unwrap();
    rig.tenant.put_group("g", &json!({"pattern": "#", "max_retries": 9})).await.unwrap();
    assert!(rig.pull("g").await.is_empty());
}

#[tokio::test]
async fn an_event_that_dies_again_after_a_seek_is_one_dead_letter() {
    let rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let position = rig.publish("a", 1).await;
    for _ in 0..2 {
        rig.tenant.seek("g", Start::Beginning).await.unwrap();
        let got = rig.pull("g").await;
        rig.tenant.reject("g", &tokens(&got), None).await.unwrap();
    }
    assert_eq!(rig.dead("g"), [position]);
    assert_eq!(rig.tenant.group("g").unwrap().group.dead_letters, 1);
}

#[tokio::test]
async fn a_clock_set_back_while_nobody_looked_does_not_hold_a_deferred_event() {
    let topic = Pattern::parse("later").unwrap();
    let verdict = Verdict::Defer { until: Duration::from_secs(3) };
    let attention = vec![AttentionRule { topic, filter: None, rate: None, verdict }];
    let mut rig = Rig::with(Settings { attention, ..Settings::default() });
    rig.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    rig.tenant.publish(&Caller::local(), Draft::new("later", &json!(1))).await.unwrap();
    let hour = Duration::from_secs(3600);
    rig.clock.step(engine::clock::Clock::now(rig.clock.as_ref()).minus(hour));
    rig.crash();
    rig.pass(4);
    assert_eq!(rig.pull("g").await.len(), 1);
}
