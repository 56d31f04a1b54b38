//! Publishing: positions, keys, batches, followers.

use engine::{Caller, Draft, Follow, Outcome, Query};
use model::Code;
use serde_json::json;

use crate::temp::Bench;

fn keyed(key: &str, n: i64) -> Draft {
    Draft { key: Some(key.to_owned()), ..Draft::new("a.b", &json!({"n": n})) }
}

#[tokio::test]
async fn positions_rise_by_one_and_events_read_back_digit_for_digit() {
    let bench = Bench::new();
    assert_eq!(bench.publish("a.b", 1).await, 1);
    assert_eq!(bench.publish("a.c", 2).await, 2);
    let event = bench.tenant.event("2").unwrap();
    assert_eq!(event.envelope.topic, "a.c");
    assert_eq!(event.content.payload(), Some(r#"{"n":2}"#));
    let by_id = bench.tenant.event(&event.envelope.id).unwrap();
    assert_eq!(by_id.position, 2);
    assert_eq!(bench.tenant.event("3").unwrap_err().code(), Code::EventNotFound);
}

#[tokio::test]
async fn a_repeated_key_answers_with_the_first_position_and_another_body_is_refused() {
    let bench = Bench::new();
    let first = bench.engine.publish(keyed("k", 1)).await.unwrap();
    let again = bench.engine.publish(keyed("k", 1)).await.unwrap();
    let (Outcome::Recorded(first), Outcome::Recorded(again)) = (first, again) else { panic!() };
    assert_eq!((again.position, again.id, again.duplicate), (first.position, first.id, true));
    let problem = bench.engine.publish(keyed("k", 2)).await.unwrap_err();
    assert_eq!(problem.code(), Code::EventKeyConflict);
    assert_eq!(problem.extra()["position"], 1);
    let bench = bench.reopen().await;
    let Outcome::Recorded(third) = bench.engine.publish(keyed("k", 1)).await.unwrap() else { panic!() };
    assert!(third.duplicate, "a key lives as long as its event");
}

#[tokio::test]
async fn a_batch_is_all_or_none() {
    let bench = Bench::new();
    bench.engine.publish(keyed("k", 1)).await.unwrap();
    let batch = vec![Draft::new("x", &json!(1)), keyed("k", 2)];
    let problem = bench.tenant.publish_all(&Caller::local(), batch).await.unwrap_err();
    assert_eq!((problem.code(), problem.pointer()), (Code::EventKeyConflict, Some("/1/key")));
    assert_eq!(bench.tenant.head(), 1);
    let alone = bench.tenant.publish_all(&Caller::local(), vec![keyed("k", 2)]).await.unwrap_err();
    assert_eq!(alone.pointer(), Some("/0/key"), "an array of one is an array");
    let alone = bench.tenant.publish(&Caller::local(), keyed("k", 2)).await.unwrap_err();
    assert_eq!(alone.pointer(), Some("/key"));
    let batch = vec![Draft::new("x", &json!(1)), Draft::new("y", &json!(2)), keyed("z", 1), keyed("z", 1)];
    let outcomes = bench.tenant.publish_all(&Caller::local(), batch).await.unwrap();
    let positions: Vec<_> = outcomes.iter().map(Outcome::position).collect();
    assert_eq!(positions, [Some(2), Some(3), Some(4), Some(4)]);
}

#[tokio::test]
async fn a_follower_sees_what_was_and_what_comes() {
    let bench = Bench::new();
    bench.publish("a.1", 1).await;
    bench.publish("b.1", 2).await;
    let patterns = vec![model::topic::Pattern::parse("a.#").unwrap()];
    let mut follower = bench.tenant.follow(Follow { patterns, after: Some(0), ..Follow::default() }).unwrap();
    assert_eq!(follower.next(10).await.unwrap()[0].position, 1);
    let waiting = tokio::spawn(async move { follower.next(10).await.unwrap()[0].position });
    bench.publish("b.2", 3).await;
    bench.publish("a.2", 4).await;
    assert_eq!(waiting.await.unwrap(), 4);
}

#[tokio::test]
async fn a_search_pages_in_both_directions() {
    let bench = Bench::new();
    for n in 0..25 {
        bench.publish(if n % 2 == 0 { "even" } else { "odd" }, n).await;
    }
    let topic = || Some(model::topic::Pattern::parse("even").unwrap());
    for descending in [false, true] {
        let mut query = Query { topic: topic(), limit: 5, descending, ..Query::default() };
        let mut seen = Vec::new();
        loop {
            let page = bench.tenant.find(&query).unwrap();
            seen.extend(page.events.iter().map(|event| event.position));
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        let mut want: Vec<u64> = (1..=25).step_by(2).collect();
        if descending {
            want.reverse();
        }
        assert_eq!(seen, want);
    }
}

#[tokio::test]
async fn a_cursor_of_another_search_is_refused() {
    let bench = Bench::new();
    for n in 0..5 {
        bench.publish("a", n).await;
    }
    let first = bench.tenant.find(&Query { limit: 2, ..Query::default() }).unwrap();
    let with = |descending, topic: Option<&str>, cursor: &str| {
        let topic = topic.map(|text| model::topic::Pattern::parse(text).unwrap());
        let cursor = Some(cursor.to_owned());
        bench.tenant.find(&Query { limit: 2, descending, topic, cursor, ..Query::default() })
    };
    let next = first.next.unwrap();
    assert_eq!(with(false, None, &next).unwrap().events[0].position, 3);
    for (descending, topic, cursor) in [
        (true, None, &*next),
        (false, Some("a"), &next),
        (false, None, "3"),
        (false, None, "3-0"),
        (false, None, ""),
    ] {
        let problem = with(descending, topic, cursor).err().unwrap();
        assert_eq!(problem.code(), model::Code::RequestInvalid, "{descending} {topic:?} {cursor}");
    }
}

#[tokio::test]
async fn a_repeated_key_is_answered_as_the_first_time_whatever_would_become_of_a_new_event() {
    let topic = model::topic::Pattern::parse("rt").unwrap();
    let rate = Some(engine::settings::Rate { events: 1, per: std::time::Duration::from_secs(60) });
    let verdict = engine::settings::Verdict::Drop;
    let rule = engine::settings::AttentionRule { topic, filter: None, rate, verdict };
    let bench = Bench::with(|options| options.settings.attention = vec![rule]);
    let lagging = json!({"pattern": "l", "on_lag": {"do": "refuse", "events": 1}});
    bench.tenant.put_group("g", &lagging).await.unwrap();
    let draft = |topic: &str, n| Draft { topic: topic.into(), ..keyed(topic, n) };
    let repeat = |outcome: Outcome| matches!(outcome, Outcome::Recorded(receipt) if receipt.duplicate);
    for topic in ["rt", "l"] {
        assert!(!repeat(bench.engine.publish(draft(topic, 1)).await.unwrap()));
        assert!(repeat(bench.engine.publish(draft(topic, 1)).await.unwrap()), "{topic}");
        assert!(repeat(bench.tenant.publish_blocking(&Caller::local(), draft(topic, 1)).unwrap()), "{topic}");
        let other = bench.engine.publish(draft(topic, 2)).await.unwrap_err();
        assert_eq!(other.code(), Code::EventKeyConflict, "{topic}");
    }
    let dropped = bench.engine.publish(Draft::new("rt", &json!(1))).await.unwrap();
    assert!(matches!(dropped, Outcome::Dropped { .. }));
    let both = vec![Draft::new("rt", &json!(1)), draft("l", 2)];
    let conflict = bench.tenant.publish_all(&Caller::local(), both).await.unwrap_err();
    assert_eq!(conflict.pointer(), Some("/1/key"), "what was dropped has its place in the array, too");
    let new = Draft { key: Some("new".into()), ..Draft::new("rt", &json!(1)) };
    assert!(matches!(bench.engine.publish(new).await.unwrap(), Outcome::Dropped { .. }));
    let refused = bench.engine.publish(Draft::new("l", &json!(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::GroupLagging);
    // Every verdict counts; what was dropped was not published.
    let metrics = bench.tenant.metrics();
    assert!(metrics.attention.read().iter().all(|(verdict, times)| (*verdict == "drop") == (*times > 0)));
    let topics = metrics.topics();
    let (_, counted) = topics.iter().find(|(topic, _)| &**topic == "rt").unwrap();
    assert_eq!(counted.publish.read().count, 3);
}

#[tokio::test]
async fn an_id_that_reads_as_a_number_to_some_is_an_id() {
    let bench = Bench::new();
    bench.publish("a.b", 1).await;
    let draft = Draft { id: Some("+1".to_owned()), ..Draft::new("a.c", &json!({})) };
    bench.engine.publish(draft).await.unwrap();
    assert_eq!(bench.tenant.event("+1").unwrap().envelope.topic, "a.c");
}
