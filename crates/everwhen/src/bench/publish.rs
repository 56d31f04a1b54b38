//! `bench publish`: durable publishing in process or over HTTP, beside the same writes done bare and beside SQLite.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::{Caller, Draft, Engine, Options, Tenant};
use model::Problem;
use serde_json::{Map, Value, json};

use super::http::{self, Served};
use super::measure::{Latencies, Rate, report, round};
use super::raw::{CountingDisk, Writes, replay};
use super::{failed, sqlite};

#[derive(Clone, Copy)]
pub struct Load {
    pub publishers: usize,
    pub events: u64,
    pub bytes: usize,
}

/// An event whose payload is about `bytes` long.
pub fn draft(bytes: usize) -> Draft {
    let frame = r#"{"sensor":"kitchen","value":21.5,"note":""}"#.len();
    let note = "x".repeat(bytes.saturating_sub(frame));
    Draft::new("bench.reading", &json!({"sensor": "kitchen", "value": 21.5, "note": note}))
}

/// In process, and beside SQLite if asked.
pub fn run(dir: &Path, load: Load, with_sqlite: bool) -> Result<Value, Problem> {
    let writes = Writes::default();
    let disk = Arc::new(CountingDisk { writes: writes.clone() });
    let engine = Engine::open_with(dir.join("data"), Options { disk, ..Options::default() })?;
    let tenant = engine.main()?;
    measure(&tenant, warm_up(load))?;
    writes.reset();
    let ours = measure(&tenant, load)?;
    let sizes = writes.sizes();
    super::block_on(engine.close())?;
    let mut result = beside_raw(dir, ours, &sizes)?;
    if with_sqlite {
        let sqlite = sqlite::group_commit(dir, load)?;
        result.insert("sqlite".into(), Value::Object(sqlite.to_json()));
    }
    let args = json!({"publishers": load.publishers, "events": load.events, "bytes": load.bytes});
    Ok(report("publish", args, result, dir))
}

/// Through a server of this process, one connection a publisher.
pub fn run_http(dir: &Path, load: Load, auth: bool) -> Result<Value, Problem> {
    let served = if auth { Served::asking(dir)? } else { Served::start(dir)? };
    http::publish(&served, warm_up(load))?;
    served.writes.reset();
    let ours = http::publish(&served, load)?;
    let sizes = served.writes.sizes();
    served.stop()?;
    let result = beside_raw(dir, ours, &sizes)?;
    let Load { publishers, events, bytes } = load;
    let args = json!({
        "http": true, "auth": auth, "connections": publishers, "publishers": publishers, "events": events, "bytes": bytes,
    });
    Ok(report("publish", args, result, dir))
}

/// Our figures, those of the same writes done bare, and the ratios between them.
fn beside_raw(dir: &Path, ours: Rate, sizes: &[usize]) -> Result<Map<String, Value>, Problem> {
    let (growing, filled) = replay(dir, sizes, ours.events).map_err(failed)?;
    let ratio = |ours: f64, raw: f64| json!(round(ours / raw.max(1e-9), 3));
    let latency = |percentile| {
        let of = |rate: &Rate| rate.latencies.percentile_us(percentile) as f64;
        ratio(of(&ours), of(&growing))
    };
    let ratios = json!({
        "events_per_s": ratio(ours.per_second(), growing.per_second()), "p50": latency(50.0), "p95": latency(95.0),
    });
    let mut result = Rate { fsyncs: sizes.len() as u64, ..ours }.to_json();
    result.insert("bytes_written".into(), json!(sizes.iter().sum::<usize>()));
    result.insert("ratio".into(), ratios);
    result.insert("raw".into(), Value::Object(growing.to_json()));
    result.insert("raw_zeroed".into(), Value::Object(filled.to_json()));
    Ok(result)
}

/// Long enough for the first segment to be prefilled, as in any process that has run for a second.
fn warm_up(load: Load) -> Load {
    Load { events: (load.events / 10).clamp(200, 20_000), ..load }
}

pub fn measure(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    match load.publishers {
        1 => alone(tenant, load),
        _ => super::block_on(together(tenant, load)),
    }
}

/// One publisher, on this thread: what an idle writer costs.
fn alone(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let (caller, draft) = (Caller::local(), draft(load.bytes));
    let mut latencies = Latencies::with_capacity(load.events as usize);
    let started = Instant::now();
    for _ in 0..load.events {
        let begun = Instant::now();
        tenant.publish_blocking(&caller, draft.clone())?;
        latencies.add(begun.elapsed());
    }
    Ok(Rate { seconds: started.elapsed(), events: load.events, latencies, fsyncs: 0 })
}

/// Many publishers, each waiting for its answer before it publishes again.
async fn together(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let left = Arc::new(AtomicU64::new(load.events));
    let mut tasks = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..load.publishers {
        let (tenant, left, draft) = (tenant.clone(), left.clone(), draft(load.bytes));
        tasks.spawn(async move {
            let caller = Caller::local();
            let mut latencies = Latencies::default();
            let take = |n: u64| n.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                let begun = Instant::now();
                tenant.publish(&caller, draft.clone()).await?;
                latencies.add(begun.elapsed());
            }
            Ok::<_, Problem>(latencies)
        });
    }
    let mut latencies = Latencies::with_capacity(load.events as usize);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(failed)??);
    }
    Ok(Rate { seconds: started.elapsed(), events: load.events, latencies, fsyncs: 0 })
}
