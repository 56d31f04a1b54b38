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

/// After which the neighbour tries again: as soon as a client over a network would.
pub const PAUSE: Duration = Duration::from_millis(1);

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
    engine.set_quota(&Caller::local(), "loud", quota(load)).await?;
    let publish = async |n| {
        quiet.publish(&Caller::local(), Draft::new("bench.quiet", &json!({ "n": n }))).await.map(|_| ())
    };
    steady(load.rate, load.events.min(200), publish).await?;
    let alone = steady(load.rate, load.events, publish).await?;
    let flood = Flood::begin(&loud, load.publishers);
    let beside = steady(load.rate, load.events, publish).await?;
    let neighbour = flood.end().await;
    drop((quiet, loud));
    engine.close().await?;
    Ok(told(dir, load, Told { alone, beside, neighbour, http: false }))
}

/// What was measured.
pub struct Told {
    pub alone: Latencies,
    pub beside: Latencies,
    /// How many of the neighbour's events were taken, and how many refused.
    pub neighbour: (u64, u64),
    pub http: bool,
}

pub fn quota(load: Load) -> Quota {
    Quota { events_per_s: Some(load.quota), ..Quota::default() }
}

pub fn told(dir: &Path, load: Load, Told { alone, beside, neighbour, http }: Told) -> Value {
    let mut result = Map::new();
    for (name, latencies) in [("alone", &alone), ("beside", &beside)] {
        let at = |percent| latencies.percentile_us(percent);
        result.insert(name.into(), json!({"p50_us": at(50.0), "p95_us": at(95.0), "p99_us": at(99.0)}));
    }
    let p99 = |latencies: &Latencies| latencies.percentile_us(99.0).max(1) as f64;
    result.insert("p99_ratio".into(), json!(round(p99(&beside) / p99(&alone), 3)));
    result.insert("neighbour".into(), json!({"taken": neighbour.0, "refused": neighbour.1}));
    let Load { rate, events, publishers, quota } = load;
    let args =
        json!({"rate": rate, "events": events, "publishers": publishers, "quota": quota, "http": http});
    report("tenants", args, result, dir)
}

/// Publishes at a steady rate; how long each took.
pub async fn steady(
    rate: u64,
    events: u64,
    mut publish: impl AsyncFnMut(u64) -> Result<(), Problem>,
) -> Result<Latencies, Problem> {
    let (mut latencies, began) = (Latencies::with_capacity(events as usize), Instant::now());
    for n in 0..events {
        let due = began + Duration::from_secs_f64(n as f64 / rate.max(1) as f64);
        tokio::time::sleep_until(due.into()).await;
        let started = Instant::now();
        publish(n).await?;
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
                            tokio::time::sleep(PAUSE).await;
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
