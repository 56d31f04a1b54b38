//! `bench tenants`: what a quiet tenant feels of a neighbour that floods against its quota.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::settings::Quota;
use engine::{Caller, Draft, Engine, Tenant};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::measure::{Latencies, report, round};

#[derive(Clone, Copy)]
pub struct Load {
    /// Events a second of the quiet one.
    pub rate: u64,
    pub events: u64,
    /// How many of the neighbour publish without a pause.
    pub publishers: usize,
    /// What the neighbour may bring a second.
    pub quota: u64,
}

pub async fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let engine = Engine::open(dir)?;
    let (quiet, loud) = (engine.tenant("quiet")?, engine.tenant("loud")?);
    engine
        .set_quota(&Caller::local(), "loud", Quota { events_per_s: Some(load.quota), ..Quota::default() })
        .await?;
    steady(&quiet, load.rate, load.events.min(200)).await?;
    let alone = steady(&quiet, load.rate, load.events).await?;
    let flood = Flood::begin(&loud, load.publishers);
    let beside = steady(&quiet, load.rate, load.events).await?;
    let (taken, refused) = flood.end().await;
    drop((quiet, loud));
    engine.close().await?;
    let mut result = Map::new();
    for (name, latencies) in [("alone", &alone), ("beside", &beside)] {
        let at = |percent| latencies.percentile_us(percent);
        result.insert(name.into(), json!({"p50_us": at(50.0), "p95_us": at(95.0), "p99_us": at(99.0)}));
    }
    let p99 = |latencies: &Latencies| latencies.percentile_us(99.0).max(1) as f64;
    result.insert("p99_ratio".into(), json!(round(p99(&beside) / p99(&alone), 3)));
    result.insert("neighbour".into(), json!({"taken": taken, "refused": refused}));
    let args =
        json!({"rate": load.rate, "events": load.events, "publishers": load.publishers, "quota": load.quota});
    Ok(report("tenants", args, result, dir))
}

/// Publishes at a steady rate; how long each took.
async fn steady(tenant: &Tenant, rate: u64, events: u64) -> Result<Latencies, Problem> {
    let (mut latencies, began) = (Latencies::with_capacity(events as usize), Instant::now());
    for n in 0..events {
        let due = began + Duration::from_secs_f64(n as f64 / rate.max(1) as f64);
        tokio::time::sleep_until(due.into()).await;
        let started = Instant::now();
        tenant.publish(&Caller::local(), Draft::new("bench.quiet", &json!({ "n": n }))).await?;
        latencies.add(started.elapsed());
    }
    Ok(latencies)
}

/// A neighbour without manners: a refusal makes it try again at once.
struct Flood {
    over: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
    tasks: tokio::task::JoinSet<()>,
}

impl Flood {
    fn begin(tenant: &Tenant, publishers: usize) -> Flood {
        let mut flood =
            Flood { over: Arc::default(), counts: Arc::default(), tasks: tokio::task::JoinSet::new() };
        for _ in 0..publishers {
            let (tenant, over, counts) = (tenant.clone(), flood.over.clone(), flood.counts.clone());
            flood.tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let draft = Draft::new("bench.loud", &json!({"n": 1}));
                    match tenant.publish(&Caller::local(), draft).await {
                        Ok(_) => counts[0].fetch_add(1, Ordering::Relaxed),
                        Err(problem) if problem.code() == Code::QuotaExceeded => {
                            // As fast as a client over the network would come again.
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            counts[1].fetch_add(1, Ordering::Relaxed)
                        }
                        Err(_) => return,
                    };
                }
            });
        }
        flood
    }

    async fn end(mut self) -> (u64, u64) {
        self.over.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        (self.counts[0].load(Ordering::Relaxed), self.counts[1].load(Ordering::Relaxed))
    }
}
