//! Followers: an event wakes those who want it, and nobody who slept has missed anything.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use engine::{Caller, Draft, Follow, Follower};
use model::topic::Pattern;
use serde_json::json;

use crate::temp::Bench;

fn of(bench: &Bench, pattern: &str, after: Option<u64>) -> Follower {
    let patterns = vec![Pattern::parse(pattern).unwrap()];
    bench.tenant.follow(Follow { patterns, after, ..Follow::default() }).unwrap()
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_event_wakes_only_those_who_want_it() {
    let bench = Bench::new();
    let mut follower = of(&bench, "mine.#", None);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut next = pin!(follower.next(10));
    assert!(next.as_mut().poll(&mut context).is_pending());
    for n in 0..100 {
        bench.publish("theirs", n).await;
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    let mine = bench.publish("mine.too", 1).await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(events) = next.as_mut().poll(&mut context) else { panic!("it was woken for nothing") };
    assert_eq!(events.unwrap()[0].position, mine);
}

/// Reads as soon as the head is raised, on the writer's own thread: nothing can have been noted after it.
struct ReadsAtOnce(Mutex<(Follower, Vec<u64>)>);

impl Wake for ReadsAtOnce {
    fn wake(self: Arc<Self>) {
        let mut reader = self.0.lock().unwrap();
        let read = reader.0.try_next(10).unwrap();
        reader.1.extend(read.iter().map(|event| event.position));
    }
}

#[tokio::test]
async fn what_is_visible_is_noted_already() {
    let bench = Bench::new();
    let reader = Arc::new(ReadsAtOnce(Mutex::new((of(&bench, "mine", None), Vec::new()))));
    let waker = Waker::from(reader.clone());
    let mut reached = pin!(bench.tenant.reached(bench.tenant.head() + 1));
    assert!(reached.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mine = bench.publish("mine", 1).await;
    assert_eq!(reader.0.lock().unwrap().1, [mine]);
}

#[tokio::test]
async fn who_slept_through_what_others_want_reads_none_of_it() {
    let bench = Bench::new();
    let mut follower = of(&bench, "mine", None);
    for n in 0..300 {
        bench.publish("theirs", n).await;
    }
    assert!(follower.try_next(10).unwrap().is_empty());
    assert_eq!(follower.behind(), 0);
    let mine = bench.publish("mine", 1).await;
    bench.publish("theirs", 0).await;
    assert_eq!(follower.try_next(10).unwrap()[0].position, mine);
    assert!(follower.try_next(10).unwrap().is_empty());
}

#[tokio::test]
async fn what_came_before_it_followed_is_read_whether_it_was_noted_or_not() {
    let bench = Bench::new();
    for n in 0..10 {
        bench.publish(if n % 2 == 0 { "mine" } else { "theirs" }, n).await;
    }
    let mut follower = of(&bench, "mine", Some(2));
    bench.publish("mine", 10).await;
    let mut seen = Vec::new();
    while let [event] = follower.try_next(1).unwrap().as_slice() {
        seen.push(event.position);
    }
    assert_eq!(seen, [3, 5, 7, 9, 11]);
}

/// Publishers and followers on all threads at once: arrays, so that batches hold several topics; small bites, so that a
/// follower looks in the middle of what is being handed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_all_of_theirs_once_and_in_order_while_all_publish() {
    const TOPICS: usize = 5;
    const ROUNDS: usize = 150;
    let bench = Bench::new();
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..TOPICS * 4 {
        let topic = format!("t{}", n % TOPICS);
        let mut follower = of(&bench, &topic, None);
        readers.spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 3 * ROUNDS {
                let events = follower.next(1 + n % 3).await.unwrap();
                assert!(events.iter().all(|event| event.envelope.topic == topic));
                seen.extend(events.iter().map(|event| event.position));
            }
            assert!(seen.is_sorted_by(|a, b| a < b), "{topic}: {seen:?}");
        });
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..3 {
        let tenant = bench.tenant.clone();
        writers.spawn(async move {
            for n in 0..ROUNDS {
                let drafts = (0..TOPICS).map(|t| Draft::new(format!("t{t}"), &json!([writer, n]))).collect();
                tenant.publish_all(&Caller::local(), drafts).await.unwrap();
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
}
