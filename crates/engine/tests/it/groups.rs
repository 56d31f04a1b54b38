//! Groups: what is handed out, when again, and where what cannot be handled ends up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::{Ack, Draft, Handling, Nack, Redrive, Subscription};
use model::event::Event;
use model::group::Start;
use serde_json::json;

use crate::temp::{Bench, positions, tokens};

#[tokio::test]
async fn a_group_gets_what_matches_and_its_floor_passes_what_does_not() {
    let bench = Bench::new();
    let (created, _) =
        bench.tenant.put_group("g", &json!({"pattern": "a.*", "filter": "payload.n > 1"})).await.unwrap();
    assert!(created);
    bench.publish("a.x", 1).await;
    bench.publish("b.x", 2).await;
    let third = bench.publish("a.x", 3).await;
    let view = bench.tenant.group("g").unwrap();
    assert_eq!((view.lag, view.group.floor), (1, third - 1));
    let got = bench.pull("g", 10).await;
    assert_eq!(positions(&got), [third]);
    let settled = bench.tenant.ack("g", &tokens(&got), true).await.unwrap();
    assert_eq!(settled.done, 1);
    let view = bench.tenant.group("g").unwrap();
    assert_eq!((view.lag, view.group.processed), (0, 1));
    assert!(view.group.floor >= third);
    let stale = bench.tenant.ack("g", &tokens(&got), false).await.unwrap();
    assert_eq!((stale.done, stale.stale.len()), (0, 1));
}

#[tokio::test]
async fn an_out_of_order_ack_does_not_move_the_floor_past_an_open_event() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let first = bench.publish("a", 1).await;
    bench.publish("a", 2).await;
    bench.publish("a", 3).await;
    let got = bench.pull("g", 10).await;
    bench.tenant.ack("g", &tokens(&got[1..]), true).await.unwrap();
    assert_eq!(bench.tenant.group("g").unwrap().group.floor, first - 1);
    let bench = bench.reopen().await;
    let again = bench.pull("g", 10).await;
    assert_eq!(positions(&again), [first], "what was acked stays acked, what was not comes again");
    assert_eq!(again[0].attempt, 1, "a clean stop is nobody's failure");
}

#[tokio::test]
async fn max_retries_five_means_six_deliveries_then_the_dead_letters() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let position = bench.publish("a", 1).await;
    for attempt in 1..=6 {
        let got = bench.pull("g", 10).await;
        assert_eq!(got[0].attempt, attempt);
        bench.tenant.nack("g", &tokens(&got), None, Some(format!("no {attempt}"))).await.unwrap();
        assert!(bench.pull("g", 10).await.is_empty() || attempt < 6);
        bench.pass(31.0);
    }
    assert!(bench.pull("g", 10).await.is_empty());
    let page = bench.tenant.dead_letters("g", 10, None).unwrap();
    let letter = &page.dead_letters[0];
    assert_eq!(letter["position"], position);
    assert_eq!(
        (&letter["attempts"], &letter["reason"], &letter["error"]),
        (&json!(6), &json!("exhausted"), &json!("no 6"))
    );
    assert_eq!(bench.tenant.group("g").unwrap().lag, 0);
    let bench = bench.reopen().await;
    assert_eq!(bench.tenant.redrive("g", Redrive::All).await.unwrap(), 1);
    let got = bench.pull("g", 10).await;
    assert_eq!((positions(&got), got[0].attempt), (vec![position], 1));
    bench.tenant.ack("g", &tokens(&got), true).await.unwrap();
    assert!(bench.reopen().await.pull("g", 10).await.is_empty());
}

#[tokio::test]
async fn a_missed_deadline_is_an_attempt_and_its_token_is_stale() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#", "ack_deadline": "5s"})).await.unwrap();
    bench.publish("a", 1).await;
    let first = bench.pull("g", 1).await;
    bench.tenant.extend("g", &tokens(&first), Duration::from_secs(10)).await.unwrap();
    bench.pass(6.0);
    assert!(bench.pull("g", 1).await.is_empty(), "extended");
    bench.pass(5.0);
    assert_eq!(bench.tenant.ack("g", &tokens(&first), false).await.unwrap().stale.len(), 1);
    bench.pass(2.0);
    assert_eq!(bench.pull("g", 1).await[0].attempt, 2);
    let topics = bench.tenant.metrics().topics();
    let (_, topic) = topics.iter().find(|(topic, _)| topic.as_ref() == "a").expect("it is counted");
    let handled = topic.groups();
    assert_eq!((handled[0].1.ok(), handled[0].1.err(), handled[0].1.seconds.read().count), (0, 1, 1));
}

#[tokio::test]
async fn new_limits_leave_what_is_out_under_its_token_and_a_new_pattern_does_not() {
    let bench = Bench::new();
    let put = async |pattern: &str, max_retries: u32| {
        let body = json!({"pattern": pattern, "ordering": "strict", "max_retries": max_retries, "ack_deadline": "5s"});
        bench.tenant.put_group("g", &body).await.unwrap();
    };
    put("a", 0).await;
    let first = bench.publish("a", 1).await;
    let second = bench.publish("a", 2).await;
    let got = bench.pull("g", 10).await;
    put("a", 7).await;
    assert!(bench.pull("g", 10).await.is_empty(), "the first is still out");
    bench.tenant.nack("g", &tokens(&got), Some(Duration::ZERO), None).await.unwrap();
    let got = bench.pull("g", 10).await;
    assert_eq!((positions(&got), got[0].attempt), (vec![first], 2), "the new limit holds");
    assert_eq!(bench.tenant.ack("g", &tokens(&got), true).await.unwrap().done, 1);
    let got = bench.pull("g", 10).await;
    put("#", 7).await;
    assert_eq!(bench.tenant.ack("g", &tokens(&got), true).await.unwrap().stale.len(), 1);
    assert_eq!(positions(&bench.pull("g", 10).await), [second]);
}

#[tokio::test]
async fn a_strict_halting_group_stands_still_and_says_so_once() {
    let bench = Bench::new();
    let body = json!({"pattern": "#", "ordering": "strict", "on_exhausted": "halt", "max_retries": 0});
    bench.tenant.put_group("drain", &body).await.unwrap();
    bench.tenant.put_group("alarm", &json!({"pattern": "workflow.dispatch_failed"})).await.unwrap();
    let first = bench.publish("a", 1).await;
    bench.publish("a", 2).await;
    for _ in 0..3 {
        let got = bench.pull("drain", 10).await;
        assert_eq!(positions(&got), [first]);
        bench.tenant.nack("drain", &tokens(&got), None, Some("down".into())).await.unwrap();
        assert!(bench.pull("drain", 10).await.is_empty());
        assert_eq!(bench.tenant.group("drain").unwrap().group.halted_on, first);
        bench.tenant.drain_pass("drain").await.unwrap();
    }
    assert_eq!(bench.pull("alarm", 10).await.len(), 1, "once per stuck event, not once per pass");
    let got = bench.pull("drain", 10).await;
    bench.tenant.ack("drain", &tokens(&got), true).await.unwrap();
    assert_eq!(bench.pull("drain", 10).await.len(), 1, "and `#` does not see the engine's own event");
}

#[tokio::test]
async fn keys_keep_their_order_and_a_parked_key_waits_for_its_dead_letter() {
    let bench = Bench::new();
    let body = json!({"pattern": "#", "ordering": "key", "key": "event.payload.n", "max_retries": 0,
        "on_exhausted": "park_key"});
    bench.tenant.put_group("g", &body).await.unwrap();
    let one = bench.publish("a", 1).await;
    let later = bench.publish("a", 1).await;
    let other = bench.publish("a", 2).await;
    let got = bench.pull("g", 10).await;
    assert_eq!(positions(&got), [one, other]);
    bench.tenant.nack("g", &tokens(&got[..1]), None, None).await.unwrap();
    bench.tenant.ack("g", &tokens(&got[1..]), true).await.unwrap();
    assert!(bench.pull("g", 10).await.is_empty(), "key 1 is parked");
    let bench = bench.reopen().await;
    assert!(bench.pull("g", 10).await.is_empty(), "still parked");
    bench.tenant.redrive("g", Redrive::Positions(vec![one])).await.unwrap();
    let got = bench.pull("g", 10).await;
    assert_eq!(positions(&got), [one]);
    bench.tenant.ack("g", &tokens(&got), false).await.unwrap();
    assert_eq!(positions(&bench.pull("g", 10).await), [later]);
}

#[tokio::test]
async fn seek_goes_back_and_old_tokens_mean_nothing() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let first = bench.publish("a", 1).await;
    let old = bench.pull("g", 1).await;
    bench.tenant.seek("g", Start::Now).await.unwrap();
    assert!(bench.pull("g", 10).await.is_empty());
    bench.tenant.seek("g", Start::Beginning).await.unwrap();
    assert_eq!(bench.tenant.ack("g", &tokens(&old), true).await.unwrap().stale.len(), 1);
    assert_eq!(positions(&bench.pull("g", 10).await), [first]);
    bench.tenant.pause("g").await.unwrap();
    bench.publish("a", 2).await;
    assert!(bench.pull("g", 10).await.is_empty());
    bench.tenant.resume("g").await.unwrap();
    assert_eq!(bench.pull("g", 10).await.len(), 1);
}

#[tokio::test]
async fn an_expired_event_is_dropped_or_buried_as_the_group_says() {
    let bench = Bench::new();
    bench.tenant.put_group("drop", &json!({"pattern": "#"})).await.unwrap();
    bench.tenant.put_group("bury", &json!({"pattern": "#", "on_expired": "dead_letter"})).await.unwrap();
    let draft = engine::Draft { ttl: Some(Duration::from_secs(5)), ..engine::Draft::new("a", &json!({})) };
    bench.engine.publish(draft).await.unwrap();
    bench.pass(6.0);
    assert!(bench.pull("drop", 10).await.is_empty());
    assert!(bench.pull("bury", 10).await.is_empty());
    assert_eq!(bench.tenant.group("drop").unwrap().lag, 0);
    assert_eq!(bench.tenant.dead_letters("bury", 10, None).unwrap().dead_letters[0]["reason"], "expired");
    // Whoever gives it back wants it delivered.
    assert_eq!(bench.tenant.redrive("bury", Redrive::All).await.unwrap(), 1);
    let out = bench.pull("bury", 10).await;
    assert_eq!(out.len(), 1);
    bench.tenant.ack("bury", &tokens(&out), true).await.unwrap();
    assert_eq!(bench.tenant.group("bury").unwrap().lag, 0);
    assert!(bench.tenant.dead_letters("bury", 10, None).unwrap().dead_letters.is_empty());
}

#[tokio::test]
async fn a_handler_that_panics_is_a_nack_and_the_event_comes_again() {
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let seen = calls.clone();
    let handler = move |event: Arc<Event>| {
        let (seen, done) = (seen.clone(), done.clone());
        async move {
            match seen.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("first time"),
                1 => Handling::Err(Nack { delay: Some(Duration::ZERO), error: None }),
                _ => {
                    done.send(event.position).unwrap();
                    Ok(Ack)
                }
            }
        }
    };
    let subscription = Subscription::new("a", "g").set("backoff", json!({"base": 0, "max": 0}));
    bench.engine.subscribe(subscription, handler).await.unwrap();
    let position = bench.publish("a", 1).await;
    assert_eq!(finished.recv().await, Some(position));
    bench.engine.close().await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn positions_beyond_the_ledger_are_answered_and_stop_nobody() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    let far = [u64::MAX, u64::MAX - 1, i64::MAX as u64, i64::MAX as u64 + 1];
    for (index, position) in far.into_iter().enumerate() {
        let name = format!("g{index}");
        let body = json!({"pattern": "#", "start": {"position": position}});
        let (_, view) = bench.tenant.put_group(&name, &body).await.unwrap();
        assert!(view.group.floor <= bench.tenant.head(), "a floor lies in what is there");
        assert_eq!(bench.tenant.redrive(&name, Redrive::Positions(vec![position])).await.unwrap(), 0);
        assert!(bench.tenant.dead_letters(&name, 10, Some(&position.to_string())).is_err());
        let query = engine::Query { after: Some(position), ..engine::Query::default() };
        assert!(bench.tenant.find(&query).unwrap().events.is_empty());
        let follow = engine::Follow { after: Some(position), ..engine::Follow::default() };
        assert!(bench.tenant.follow(follow).unwrap().try_next(10).unwrap().is_empty());
        bench.tenant.seek(&name, Start::Position(position)).await.unwrap();
    }
    let bench = bench.reopen().await;
    bench.publish("a", 2).await;
    assert_eq!(bench.pull("g0", 10).await.len(), 1);
}

#[tokio::test]
async fn on_lag_refuses_nobody_for_events_that_do_not_concern_the_group() {
    let bench = Bench::new();
    // More than one look at the ledger takes.
    for n in 0..60 {
        let drafts =
            (0..500).map(|m| Draft::new("other", &json!({"n": n * 500 + m, "pad": "x".repeat(600)})));
        bench.tenant.publish_all(&engine::Caller::local(), drafts.collect()).await.unwrap();
    }
    let limit = |events: u64| json!({"do": "refuse", "events": events});
    let definition = json!({"pattern": "mine", "start": "beginning", "on_lag": limit(3)});
    bench.tenant.put_group("g", &definition).await.unwrap();
    let mut accepted = 0;
    let refused = loop {
        match bench.engine.publish(Draft::new("mine", &json!(accepted))).await {
            Ok(_) => accepted += 1,
            Err(problem) => break problem,
        }
        assert!(accepted < 100, "nobody is refused at all");
    };
    assert_eq!(refused.code(), model::Code::GroupLagging);
    assert!(accepted >= 3, "{accepted} were accepted of 3 that fit");
    // The first look at a long ledger may not come to its end, but it does in a few.
    assert_eq!(bench.tenant.group("g").unwrap().lag, accepted);
}

#[tokio::test]
async fn a_group_with_more_open_events_than_it_keeps_is_counted_on() {
    let bench = Bench::new();
    let definition = json!({"pattern": "a", "on_lag": {"do": "refuse", "events": 9_000}});
    bench.tenant.put_group("g", &definition).await.unwrap();
    let mut accepted = 0;
    while accepted < 20_000 {
        let drafts = (0..500).map(|n| Draft::new("a", &json!(n))).collect();
        match bench.tenant.publish_all(&engine::Caller::local(), drafts).await {
            Ok(_) => accepted += 500,
            Err(problem) => {
                assert_eq!(problem.code(), model::Code::GroupLagging);
                break;
            }
        }
    }
    assert_eq!(accepted, 9_000);
}

#[tokio::test]
async fn expired_events_hold_no_publish_up() {
    let bench = Bench::new();
    let definition = json!({"pattern": "a", "on_lag": {"do": "refuse", "events": 2}});
    bench.tenant.put_group("g", &definition).await.unwrap();
    let draft = || Draft { ttl: Some(Duration::from_secs(60)), ..Draft::new("a", &json!(1)) };
    for _ in 0..2 {
        bench.engine.publish(draft()).await.unwrap();
    }
    assert_eq!(bench.engine.publish(draft()).await.unwrap_err().code(), model::Code::GroupLagging);
    let both = vec![Draft::new("b", &json!(1)), draft()];
    let problem = bench.tenant.publish_all(&engine::Caller::local(), both).await.unwrap_err();
    assert_eq!((problem.code(), problem.pointer()), (model::Code::GroupLagging, Some("/1")));
    bench.pass(61.0);
    bench.engine.publish(draft()).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_set_forward_expires_nothing_also_over_a_restart() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "a", "on_expired": "dead_letter"})).await.unwrap();
    let draft = Draft { ttl: Some(Duration::from_secs(60)), ..Draft::new("a", &json!(1)) };
    let position = bench.engine.publish(draft).await.unwrap().position().unwrap();
    bench.clock.step(model::Timestamp::parse("2026-01-01T05:00:00Z").unwrap());
    bench.publish("tick", 1).await;
    let bench = bench.reopen().await;
    assert_eq!(positions(&bench.pull("g", 10).await), [position]);
}

#[tokio::test]
async fn a_redriven_event_holds_the_floor_that_is_shown() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "m"})).await.unwrap();
    let mut published = Vec::new();
    for n in 0..2 {
        published.push(bench.publish("m", n).await);
        let out = bench.pull("g", 1).await;
        bench.tenant.reject("g", &tokens(&out), None).await.unwrap();
    }
    bench.tenant.redrive("g", Redrive::All).await.unwrap();
    let out = bench.pull("g", 10).await;
    assert_eq!(positions(&out), published);
    assert_eq!(bench.tenant.group("g").unwrap().to_json()["floor"], published[0] - 1);
    bench.tenant.ack("g", &tokens(&out), true).await.unwrap();
    assert!(bench.tenant.group("g").unwrap().group.floor >= published[1]);
}

#[tokio::test]
async fn equal_numbers_are_one_ordering_key() {
    let bench = Bench::new();
    let definition = json!({"pattern": "k", "ordering": "key", "key": "event.payload.a"});
    bench.tenant.put_group("g", &definition).await.unwrap();
    for payload in ["1", "1.0", "1e0", "100", "1e2", "1.5", "[1]", "[1.0]"] {
        let payload = serde_json::value::RawValue::from_string(format!("{{\"a\":{payload}}}")).unwrap();
        bench.engine.publish(Draft { payload: payload.into(), ..Draft::new("k", &json!(0)) }).await.unwrap();
    }
    assert_eq!(bench.pull("g", 100).await.len(), 4);
}

#[tokio::test]
async fn a_pass_that_fails_halts_a_halting_group_at_once_and_says_so_once() {
    let bench = Bench::new();
    let definition = json!({"pattern": "d", "ordering": "strict", "on_exhausted": "halt"});
    bench.tenant.put_group("g", &definition).await.unwrap();
    let position = bench.publish("d", 1).await;
    for _ in 0..3 {
        let view = bench.tenant.drain_pass("g").await.unwrap();
        assert_eq!(view.group.halted_on, 0);
        let out = bench.pull("g", 1).await;
        bench.tenant.nack_halting("g", &tokens(&out), Some("no".into())).await.unwrap();
        assert_eq!(bench.tenant.group("g").unwrap().group.halted_on, position);
        assert!(bench.pull("g", 1).await.is_empty());
    }
    let topic = model::topic::Pattern::parse("workflow.#").ok();
    let query = engine::Query { topic, ..engine::Query::default() };
    assert_eq!(bench.tenant.find(&query).unwrap().events.len(), 1);
}
