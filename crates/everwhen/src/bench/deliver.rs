//! `bench deliver`: from publish to handler at a steady rate, and how fast a backlog drains.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{Ack, Caller, Draft, Engine, Options, Subscription, Tenant};
use model::Problem;
use model::event::Event;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use super::failed;
use super::http::{self, Served};
use super::measure::{Latencies, Rate, report, round};
use super::raw::{CountingDisk, Writes, replay};

#[derive(Clone, Copy)]
pub struct Load {
    pub rate: u64,
    pub events: u64,
    pub backlog: u64,
    pub bytes: usize,
}

/// In process, by a handler.
pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    super::block_on(async {
        let writes = Writes::default();
        let disk = Arc::new(CountingDisk { writes: writes.clone() });
        let engine = Engine::open_with(dir.join("data"), Options { disk, ..Options::default() })?;
        let tenant = engine.main()?;
        writes.reset();
        let steady = steady(&engine, load).await?;
        let sizes = writes.sizes();
        let drained = drain(&tenant, load).await?;
        engine.close().await?;
        let args =
            json!({"rate": load.rate, "events": load.events, "backlog": load.backlog, "bytes": load.bytes});
        Ok(report("deliver", args, result(dir, steady, drained, &sizes)?, dir))
    })
}

/// Through a server of this process, by `pull` and `ack`.
pub fn run_http(dir: &Path, load: Load) -> Result<Value, Problem> {
    let served = Served::start(dir)?;
    served.writes.reset();
    let steady = http::deliver::steady(&served, load)?;
    let sizes = served.writes.sizes();
    let drained = http::deliver::drain(&served, load)?;
    served.stop()?;
    let Load { rate, events, backlog, bytes } = load;
    let args = json!({"http": true, "rate": rate, "events": events, "backlog": backlog, "bytes": bytes});
    Ok(report("deliver", args, result(dir, steady, drained, &sizes)?, dir))
}

fn result(dir: &Path, steady: Rate, drained: f64, sizes: &[usize]) -> Result<Map<String, Value>, Problem> {
    let (growing, _) = replay(dir, sizes, steady.events).map_err(failed)?;
    let mut result = Rate { fsyncs: sizes.len() as u64, ..steady }.to_json();
    result.insert("drain_events_per_s".into(), json!(round(drained, 0)));
    result.insert("raw".into(), Value::Object(growing.to_json()));
    Ok(result)
}

/// Publishes at a steady rate and takes the time from before the publish to the handler.
async fn steady(engine: &Engine, load: Load) -> Result<Rate, Problem> {
    let begun = Instant::now();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |event: Arc<Event>| {
        let seen = seen.clone();
        async move {
            let sent: u64 =
                event.envelope.caused_by.as_deref().and_then(|t| t.parse().ok()).unwrap_or_default();
            let _ = seen.send(begun.elapsed().saturating_sub(Duration::from_nanos(sent)));
            Ok(Ack)
        }
    };
    engine.subscribe(Subscription::new("bench.steady", "steady").set("max_inflight", 1000), handler).await?;
    let publisher = {
        let tenant = engine.main()?;
        tokio::spawn(async move { publish_steadily(&tenant, load, begun).await })
    };
    let mut latencies = Latencies::with_capacity(load.events as usize);
    for _ in 0..load.events {
        latencies.add(arrivals.recv().await.ok_or_else(|| failed("the handler stopped"))?);
    }
    publisher.await.map_err(failed)??;
    Ok(Rate { seconds: begun.elapsed(), events: load.events, latencies, fsyncs: 0 })
}

async fn publish_steadily(tenant: &Tenant, load: Load, begun: Instant) -> Result<(), Problem> {
    let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / load.rate as f64));
    let mut publishes = tokio::task::JoinSet::new();
    for _ in 0..load.events {
        beat.tick().await;
        let (tenant, bytes) = (tenant.clone(), load.bytes);
        publishes.spawn(async move {
            let sent = begun.elapsed().as_nanos().to_string();
            let draft =
                Draft { topic: "bench.steady".into(), caused_by: Some(sent), ..super::publish::draft(bytes) };
            tenant.publish(&Caller::local(), draft).await
        });
    }
    while let Some(done) = publishes.join_next().await {
        done.map_err(failed)??;
    }
    Ok(())
}

/// Fills a backlog, then drains it through an in-process handler.
async fn drain(tenant: &Tenant, load: Load) -> Result<f64, Problem> {
    for chunk in 0..load.backlog.div_ceil(500) {
        let some = 500.min(load.backlog - chunk * 500);
        let drafts =
            (0..some).map(|_| Draft { topic: "bench.backlog".into(), ..super::publish::draft(load.bytes) });
        tenant.publish_all(&Caller::local(), drafts.collect()).await?;
    }
    let (count, done) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counted, finished) = (count.clone(), done.clone());
    let handler = move |_: Arc<Event>| {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 == load.backlog {
            finished.notify_one();
        }
        async { Ok(Ack) }
    };
    let subscription =
        Subscription::new("bench.backlog", "backlog").set("start", "beginning").set("max_inflight", 2000);
    let started = Instant::now();
    tenant.subscribe(subscription, handler).await?;
    done.notified().await;
    Ok(load.backlog as f64 / started.elapsed().as_secs_f64())
}
