//! Crashes and who is blamed for them; seeks and dead letters; a clock that is set while deliveries are out.

use std::time::Duration;

use engine::clock::Clock;
use engine::{Draft, Redrive};
use model::Code;
use model::group::Start;
use serde_json::json;

use crate::rig::Rig;
use crate::temp::{positions, tokens};

#[tokio::test]
async fn many_crashes_bury_nothing_that_was_never_handed_out() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "a", "max_inflight": 2})).await.unwrap();
    let first = rig.publish("a", 1).await;
    let urgent = Draft { priority: 9, ..Draft::new("a", &json!(2)) };
    let second = rig.send(urgent).await.unwrap().position;
    let urgent = Draft { priority: 9, ..Draft::new("a", &json!(3)) };
    let third = rig.send(urgent).await.unwrap().position;
    for crash in 0..9 {
        assert_eq!(positions(&rig.pull("g").await), [second, third], "crash {crash}");
        rig.publish("b", 1).await; // its sync makes the hand-out durable
        rig.crash();
    }
    for suspect in [second, third, first] {
        let got = rig.pull("g").await;
        assert_eq!(positions(&got), [suspect], "alone");
        assert!(rig.pull("g").await.is_empty(), "nothing beside it");
        rig.tenant.ack("g", &tokens(&got), true).await.unwrap();
    }
    assert!(rig.dead("g").is_empty());
}

#[tokio::test]
async fn the_tenth_crash_buries_the_one_that_was_alone_and_spares_its_neighbours() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "a"})).await.unwrap();
    let poison = rig.publish("a", 1).await;
    let innocent = rig.publish("a", 2).await;
    for _ in 0..9 {
        assert_eq!(rig.pull("g").await.len(), 2);
        rig.publish("b", 1).await;
        rig.crash();
    }
    assert_eq!(positions(&rig.pull("g").await), [poison]);
    rig.crash();
    assert!(rig.pull("g").await.is_empty(), "the next suspect waits until the dead letter is written");
    assert_eq!(rig.dead("g"), [poison]);
    let page = rig.tenant.dead_letters("g", 10, None).unwrap();
    assert_eq!(
        (&page.dead_letters[0]["reason"], &page.dead_letters[0]["attempts"]),
        (&json!("quarantined"), &json!(10))
    );
    let got = rig.pull("g").await;
    assert_eq!((positions(&got), got[0].attempt), (vec![innocent], 11));
    rig.tenant.ack("g", &tokens(&got), true).await.unwrap();
    rig.tenant.redrive("g", Redrive::All).await.unwrap();
    assert_eq!(positions(&rig.pull("g").await), [poison]);
}

#[tokio::test]
async fn a_suspect_that_was_answered_for_is_not_blamed_for_a_later_crash() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "a", "backoff": {"base": 0, "max": 0}})).await.unwrap();
    let position = rig.publish("a", 1).await;
    for _ in 0..9 {
        rig.pull("g").await;
        rig.publish("b", 1).await;
        rig.crash();
    }
    let got = rig.pull("g").await;
    rig.tenant.nack("g", &tokens(&got), None, None).await.unwrap();
    rig.crash();
    assert_eq!(positions(&rig.pull("g").await), [position], "it was nacked; nobody had it");
}

#[tokio::test]
async fn a_clean_stop_with_a_suspect_out_is_no_conviction() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "a"})).await.unwrap();
    let position = rig.publish("a", 1).await;
    for _ in 0..9 {
        rig.pull("g").await;
        rig.publish("b", 1).await;
        rig.crash();
    }
    assert_eq!(positions(&rig.pull("g").await), [position]);
    rig.tenant.close_now().unwrap();
    rig.open_again();
    rig.publish("b", 1).await;
    rig.crash();
    assert_eq!(positions(&rig.pull("g").await), [position], "it was out in the life before the last");
}

#[tokio::test]
async fn a_poison_event_is_found_though_each_crash_is_followed_by_a_clean_stop() {
    let mut rig = Rig::new();
    rig.tenant.put_group("g", &json!({"pattern": "p", "backoff": {"base": 0, "max": 0}})).await.unwrap();
    let (poison, fine) = (rig.publish("p", 1).await, rig.publish("p", 2).await);
    let mut lives = 0;
    while rig.dead("g").is_empty() && lives < 20 {
        rig.tenant.pull("g", 1, Duration::ZERO).await.unwrap();
        rig.disk.kill();
        rig.open_again();
        // Somebody looks, as a command of the shell does.
        rig.tenant.close_now().unwrap();
        rig.open_again();
        lives += 1;
    }
    assert_eq!(
        (rig.dead("g"), lives),
        (vec![poison], 11),
        "ten crashes, and what then asks finds it convicted"
    );
    assert_eq!(positions(&rig.pull("g").await), [fine]);
}

#[tokio::test]
async fn a_seek_keeps_dead_letters_that_the_group_would_not_take_again() {
    let rig = Rig::new();
    let body = |pattern: &str| json!({"pattern": pattern, "start": "beginning", "max_retries": 0});
    rig.tenant.put_group("g", &body("x.#")).await.unwrap();
    let position = rig.publish("x.a", 1).await;
    let got = rig.pull("g").await;
    rig.tenant.nack("g", &tokens(&got), None, None).await.unwrap();
    rig.tenant.put_group("g", &json!({"pattern": "y.#"})).await.unwrap();
    rig.tenant.seek("g", Start::Beginning).await.unwrap();
    assert_eq!(rig.dead("g"), [position], "nothing else would tell of it");
    assert_eq!(rig.tenant.group("g").unwrap().group.definition.start, Start::Beginning, "as it was made");
    rig.tenant.put_group("g", &body("x.#")).await.unwrap();
    rig.tenant.seek("g", Start::Beginning).await.unwrap();
    assert!(rig.dead("g").is_empty());
    assert_eq!(positions(&rig.pull("g").await), [position]);
}

#[tokio::test]
async fn a_seek_back_takes_the_dead_letters_it_delivers_again_out_of_the_list() {
    let mut rig = Rig::new();
    let body = json!({"pattern": "#", "max_retries": 0, "ordering": "key", "key": "event.topic",
        "on_exhausted": "park_key"});
    rig.tenant.put_group("g", &body).await.unwrap();
    let (kept, back) = (rig.publish("a", 1).await, rig.publish("b", 2).await);
    let got = rig.pull("g").await;
    rig.tenant.nack("g", &tokens(&got), None, Some("no".into())).await.unwrap();
    assert_eq!(rig.dead("g"), [kept, back]);
    rig.tenant.seek("g", Start::Position(back)).await.unwrap();
    assert_eq!(rig.dead("g"), [kept]);
    assert_eq!(rig.tenant.group("g").unwrap().group.dead_letters, 1);
    assert_eq!(positions(&rig.pull("g").await), [back], "its key is not parked any more");
    rig.crash();
    assert_eq!(rig.dead("g"), [kept]);
    assert_eq!(positions(&rig.pull("g").await), [back]);
}

#[tokio::test]
async fn deliveries_keep_their_deadline_when_the_clock_is_set_before_the_writer_looks() {
    for forward in [true, false] {
        let rig = Rig::new();
        let body = json!({"pattern": "#", "ack_deadline": "30s", "backoff": {"base": 0, "max": 0}});
        rig.tenant.put_group("g", &body).await.unwrap();
        rig.publish("a", 1).await;
        let first = rig.pull("g").await;
        let hour = Duration::from_secs(3600);
        let now = rig.clock.now();
        rig.clock.step(if forward { now.plus(hour) } else { now.minus(hour) });
        rig.tenant.tick();
        let again = rig.tenant.extend("g", &tokens(&first), Duration::from_secs(30)).await.unwrap();
        assert_eq!(again.done, 1, "no time has passed");
        rig.tenant.nack("g", &tokens(&first), None, None).await.unwrap();
        let now = rig.clock.now();
        rig.clock.step(if forward { now.plus(hour) } else { now.minus(hour) });
        let second = rig.pull("g").await;
        assert_eq!(
            (second[0].attempt, second[0].deadline),
            (2, rig.clock.now().plus(Duration::from_secs(30)))
        );
        rig.publish("b", 1).await;
        rig.pass(29);
        assert_eq!(rig.tenant.extend("g", &tokens(&second), Duration::from_secs(30)).await.unwrap().done, 1);
        rig.pass(31);
        assert_eq!(rig.tenant.ack("g", &tokens(&second), true).await.unwrap().done, 0, "31 s have");
    }
}

#[tokio::test]
async fn a_key_that_does_not_compile_is_the_groups_fault_and_says_where() {
    let rig = Rig::new();
    let body = json!({"pattern": "#", "ordering": "key", "key": "event.("});
    let problem = rig.tenant.put_group("g", &body).await.err().unwrap();
    assert_eq!((problem.code(), problem.pointer()), (Code::GroupInvalid, Some("/key")));
    let body = json!({"pattern": "#", "filter": "event.("});
    let problem = rig.tenant.put_group("g", &body).await.err().unwrap();
    assert_eq!((problem.code(), problem.pointer()), (Code::FilterInvalid, Some("/filter")));
}

#[tokio::test]
async fn what_comes_after_a_crash_was_not_in_it_though_deliveries_are_written_ahead() {
    let mut rig = Rig::new();
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |event: std::sync::Arc<model::event::Event>| {
        let _ = seen.send(event.position);
        // Whoever handles it is still at it when the power goes.
        std::future::pending()
    };
    rig.tenant.subscribe(engine::Subscription::new("a", "g"), handler).await.unwrap();
    let first = rig.publish("a", 1).await;
    assert_eq!(arrivals.recv().await, Some(first));
    rig.publish("b", 1).await; // its sync makes the hand-out durable
    rig.crash();
    let second = rig.publish("a", 2).await;
    // A life in which nobody takes anything.
    rig.crash();
    let got = rig.pull("g").await;
    let attempts: Vec<_> = got.iter().map(|one| (one.event.position, one.attempt)).collect();
    assert_eq!(attempts, [(first, 3), (second, 1)]);
}
