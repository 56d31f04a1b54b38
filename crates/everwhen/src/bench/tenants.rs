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
    /// How many of them alone, and as many beside the neighbour.
    pub events: u64,
    /// In how many turns.
    pub turns: u64,
    /// How many of the neighbour publish without a pause.
    pub publishers: usize,
    /// What the neighbour may bring a second.
    pub quota: u64,
}

pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let runtime = super::runtime()?;
    let made = runtime.block_on(async {
        let engine = Engine::open(dir)?;
        let (quiet, loud) = (engine.tenant("quiet")?, engine.tenant("loud")?);
        engine.set_quota(&Caller::local(), "loud", quota(load)).await?;
        Ok::<_, Problem>((engine, quiet, loud))
    });
    let (engine, quiet, loud) = made?;
    let publish = async |n| {
        quiet.publish(&Caller::local(), Draft::new("bench.quiet", &json!({ "n": n }))).await.map(|_| ())
    };
    let measured = in_turns(load, |beside, events| {
        runtime.block_on(async {
            let flood = beside.then(|| Flood::begin(&loud, load.publishers));
            let latencies = steady(load.rate, events, publish).await?;
            let neighbour = match flood {
                Some(flood) => flood.end().await,
                None => (0, 0),
            };
            Ok((latencies, neighbour))
        })
    })?;
    drop((quiet, loud));
    runtime.block_on(engine.close())?;
    Ok(told(dir, load, &measured, false))
}

#[derive(Default)]
pub struct Measured {
    /// A turn each.
    alone: Vec<Latencies>,
    beside: Vec<Latencies>,
    /// How many of the neighbour's events were taken, and how many refused.
    neighbour: (u64, u64),
}

/// In turns, so that a slow minute of the disk meets both, and each as often the first of a turn. `quiet` is told whether the
/// neighbour is there and how many events are to be published; it says how long each took, and what became of the neighbour's.
pub fn in_turns(
    load: Load,
    mut quiet: impl FnMut(bool, u64) -> Result<(Latencies, (u64, u64)), Problem>,
) -> Result<Measured, Problem> {
    let mut measured = Measured::default();
    let events = (load.events / load.turns).max(1);
    quiet(false, events)?;
    for turn in 0..load.turns {
        for beside in [turn % 2 == 1, turn % 2 == 0] {
            let (latencies, (taken, refused)) = quiet(beside, events)?;
            let kept = if beside { &mut measured.beside } else { &mut measured.alone };
            kept.push(latencies);
            measured.neighbour = (measured.neighbour.0 + taken, measured.neighbour.1 + refused);
        }
    }
    Ok(measured)
}

pub fn quota(load: Load) -> Quota {
    Quota { events_per_s: Some(load.quota), ..Quota::default() }
}

/// All of several turns.
fn together<'a>(turns: impl Iterator<Item = &'a Latencies>) -> Latencies {
    let mut all = Latencies::default();
    turns.cloned().for_each(|turn| all.extend(turn));
    all
}

/// `noise` is what the same ratio says of turns that were alone, the odd ones to the even ones: what a ratio is to be seen beside.
pub fn told(dir: &Path, load: Load, measured: &Measured, http: bool) -> Value {
    let Measured { alone, beside, neighbour } = measured;
    let mut result = Map::new();
    for (name, turns) in [("alone", alone), ("beside", beside)] {
        let all = together(turns.iter());
        let at = |percent| all.percentile_us(percent);
        result.insert(name.into(), json!({"p50_us": at(50.0), "p95_us": at(95.0), "p99_us": at(99.0)}));
    }
    let p99 = |latencies: Latencies| latencies.percentile_us(99.0).max(1) as f64;
    let ratio = p99(together(beside.iter())) / p99(together(alone.iter()));
    result.insert("p99_ratio".into(), json!(round(ratio, 3)));
    let odd = p99(together(alone.iter().skip(1).step_by(2)));
    result.insert("noise".into(), json!(round(odd / p99(together(alone.iter().step_by(2))), 3)));
    result.insert("neighbour".into(), json!({"taken": neighbour.0, "refused": neighbour.1}));
    let Load { rate, events, turns, publishers, quota } = load;
    let args = json!({
        "rate": rate, "events": events, "turns": turns, "publishers": publishers, "quota": quota, "http": http,
    });
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
