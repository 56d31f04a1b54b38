//! The two lines about handlers: how late an event reaches one, and what the engine adds to the handler's own time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::{Ack, Caller, Draft, Subscription, Tenant};
use model::Problem;
use model::event::Event;
use tokio::sync::mpsc;

use crate::bench::failed;
use crate::bench::measure::{Latencies, Rate};
use crate::bench::publish::{Load, draft};

/// From before a publish to the handler, while `load.publishers` publish as fast as they are answered.
pub async fn delivery(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let begun = Instant::now();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |event: Arc<Event>| {
        let sent = event.envelope.caused_by.as_deref().and_then(|sent| sent.parse().ok());
        let _ = seen.send(begun.elapsed().saturating_sub(Duration::from_nanos(sent.unwrap_or_default())));
        async { Ok(Ack) }
    };
    let subscription = Subscription::new("bench.delivery", "delivery").set("max_inflight", 2000);
    tenant.subscribe(subscription, handler).await?;
    let left = Arc::new(AtomicU64::new(load.events));
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..load.publishers {
        publishers.spawn(publish_stamped(tenant.clone(), load, left.clone(), begun));
    }
    let mut latencies = Latencies::with_capacity(load.events as usize);
    for _ in 0..load.events {
        latencies.add(arrivals.recv().await.ok_or_else(|| failed("the handler stopped"))?);
    }
    while let Some(done) = publishers.join_next().await {
        done.map_err(failed)??;
    }
    Ok(Rate { seconds: begun.elapsed(), events: load.events, latencies, fsyncs: 0 })
}

async fn publish_stamped(
    tenant: Tenant,
    load: Load,
    left: Arc<AtomicU64>,
    begun: Instant,
) -> Result<(), Problem> {
    let (caller, draft) = (Caller::local(), Draft { topic: "bench.delivery".into(), ..draft(load.bytes) });
    let take = |n: u64| n.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let sent = begun.elapsed().as_nanos().to_string();
        tenant.publish(&caller, Draft { caused_by: Some(sent), ..draft.clone() }).await?;
    }
    Ok(())
}

/// What a handler of this length is charged beyond its own time.
const HANDLER: Duration = Duration::from_millis(2);

/// With a backlog waiting, the time a worker stands idle between the end of one handler and the start of its next. As
/// many events are in flight as there are workers, so that each of these times holds an ack and a hand-out.
pub async fn overhead(tenant: &Tenant, workers: usize, events: u64) -> Result<Rate, Problem> {
    let some = Draft { topic: "bench.handle".into(), ..draft(64) };
    for chunk in 0..events.div_ceil(500) {
        let drafts = vec![some.clone(); 500.min(events - chunk * 500) as usize];
        tenant.publish_all(&Caller::local(), drafts).await?;
    }
    let (idle, (told, mut gaps)) = (Arc::new(Idle::default()), mpsc::unbounded_channel());
    let handler = move |_: Arc<Event>| {
        let (idle, told) = (idle.clone(), told.clone());
        async move {
            let _ = told.send(idle.taken());
            tokio::time::sleep(HANDLER).await;
            idle.free();
            Ok(Ack)
        }
    };
    let subscription = Subscription::new("bench.handle", "handle").workers(workers);
    let subscription = subscription.set("start", "beginning").set("max_inflight", workers);
    let started = Instant::now();
    tenant.subscribe(subscription, handler).await?;
    let mut latencies = Latencies::with_capacity(events as usize);
    for _ in 0..events {
        let gap = gaps.recv().await.ok_or_else(|| failed("the handler stopped"))?;
        gap.into_iter().for_each(|gap| latencies.add(gap));
    }
    Ok(Rate { seconds: started.elapsed(), events, latencies, fsyncs: 0 })
}

/// When workers became free, oldest first: each start of a handler ends one such wait.
#[derive(Default)]
struct Idle(Mutex<VecDeque<Instant>>);

impl Idle {
    fn free(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(Instant::now());
    }

    /// `None` for a worker's first event.
    fn taken(&self) -> Option<Duration> {
        let freed = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        freed.map(|at| at.elapsed())
    }
}
