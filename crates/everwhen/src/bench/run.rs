//! `bench run`: from an event to a run that wrote a row, published and completed; many at once, and at a steady rate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{Caller, Draft, Engine, Options, Tenant};
use model::Problem;
use serde_json::{Value, json};

use super::failed;
use super::measure::{Latencies, Rate, report, round};
use super::raw::{CountingDisk, Writes, replay};
use super::react::{Heard, declare};

/// Rows that the runs write to.
const ROWS: u64 = 1_000;

const CONCEPTS: &str = "
concept sensor { value number!  n int! }
mutation sensor noteReading { args { id string!  value number!  n int! } upsert { accept { value, n } } }
";

const REACT: &str = r#"
automation: react
triggers:
  - event: bench.reading
mode: parallel
max: 1000000
actions:
  - mutate: noteReading
    args: {id: "{{ event.payload.sensor }}", value: "{{ event.payload.value }}", n: "{{ event.payload.n }}"}
  - publish: {topic: bench.done, payload: {n: "{{ event.payload.n }}"}}
"#;

#[derive(Clone, Copy)]
pub struct Load {
    pub publishers: usize,
    pub events: u64,
    /// Events a second in the steady part, and how many of them.
    pub rate: u64,
    pub steady: u64,
}

pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let writes = Writes::default();
    let disk = Arc::new(CountingDisk { writes: writes.clone() });
    let engine = Engine::open_with(dir.join("data"), Options { disk, ..Options::default() })?;
    let tenant = engine.main()?;
    let (busy, sizes, steady, steady_sizes) = super::block_on(async {
        declare(&tenant, &[("bench.ew", CONCEPTS.to_owned()), ("bench.yaml", REACT.to_owned())]).await?;
        together(&tenant, Load { events: (load.events / 10).clamp(200, 20_000), ..load }).await?;
        writes.reset();
        let busy = together(&tenant, load).await?;
        let sizes = writes.sizes();
        writes.reset();
        let steady = steadily(&tenant, load).await?;
        let measured = (busy, sizes, steady, writes.sizes());
        engine.close().await?;
        Ok(measured)
    })?;
    let (growing, filled) = replay(dir, &sizes, load.events).map_err(failed)?;
    let (bare, _) = replay(dir, &steady_sizes, load.steady).map_err(failed)?;
    let p50 = |rate: &Rate| rate.latencies.percentile_us(50.0);
    let ratio = round(p50(&steady) as f64 / (p50(&bare) as f64).max(1.0), 3);
    let runs_per_s = round(busy.per_second(), 1);
    let mut result = Rate { fsyncs: sizes.len() as u64, ..busy }.to_json();
    result.insert("runs_per_s".into(), json!(runs_per_s));
    result.insert("bytes_written".into(), json!(sizes.iter().sum::<usize>()));
    result.insert("raw".into(), Value::Object(growing.to_json()));
    result.insert("raw_zeroed".into(), Value::Object(filled.to_json()));
    result.insert("steady".into(), Value::Object(steady.to_json()));
    result.insert("steady_raw".into(), Value::Object(bare.to_json()));
    result.insert("ratio".into(), json!({"steady_p50": ratio}));
    let Load { publishers, events, rate, steady } = load;
    let args = json!({"publishers": publishers, "events": events, "rate": rate, "steady": steady});
    Ok(report("run", args, result, dir))
}

fn reading(n: u64) -> Draft {
    let payload = json!({"sensor": format!("s{}", n % ROWS), "value": n as f64 / 2.0, "n": n});
    Draft::new("bench.reading", &payload)
}

/// Many publishers, each waiting for its answer; over once the last run has completed and its event is durable.
async fn together(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let next = Arc::new(AtomicU64::new(0));
    let mut heard = Heard::of(tenant, "bench.done")?;
    let mut tasks = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..load.publishers.max(1) {
        let (tenant, next) = (tenant.clone(), next.clone());
        tasks.spawn(async move {
            let (caller, mut latencies) = (Caller::local(), Latencies::default());
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= load.events {
                    return Ok::<_, Problem>(latencies);
                }
                let begun = Instant::now();
                tenant.publish(&caller, reading(n)).await?;
                latencies.add(begun.elapsed());
            }
        });
    }
    heard.take(load.events, |_| ()).await?;
    let seconds = started.elapsed();
    let mut latencies = Latencies::with_capacity(load.events as usize);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(failed)??);
    }
    Ok(Rate { seconds, events: load.events, latencies, fsyncs: 0 })
}

/// From before the publish until what the run published can be read, with nothing else going on.
async fn steadily(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let mut heard = Heard::of(tenant, "bench.done")?;
    let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / load.rate.max(1) as f64));
    let mut latencies = Latencies::with_capacity(load.steady as usize);
    let started = Instant::now();
    for n in 0..load.steady {
        beat.tick().await;
        let begun = Instant::now();
        tenant.publish(&Caller::local(), reading(n)).await?;
        heard.take(1, |_| ()).await?;
        latencies.add(begun.elapsed());
    }
    Ok(Rate { seconds: started.elapsed(), events: load.steady, latencies, fsyncs: 0 })
}
