//! `bench entity`: durable writes of rows beside publishing in the same run, point reads, and a query by index over many.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::entity::{Action, Write};
use engine::{Asking, Caller, Engine, Options, Tenant};
use lang::declare::check_workspace;
use model::Problem;
use serde_json::{Map, Value, json};

use super::failed;
use super::measure::{Latencies, Rate, report, round};
use super::publish;

/// Rows of one shelf: what a query finds, however many shelves there are.
pub const OF_A_SHELF: u64 = 10;
/// Rows in one commit while filling.
const AT_ONCE: u64 = 500;
const READS: u64 = 20_000;

const DECLARED: &str = "
concept item { shelf string! n int! note string }
query item itemsOfShelf { args { shelf string! } filter payload.shelf == args.shelf }
";

#[derive(Clone, Copy)]
pub struct Load {
    pub writers: usize,
    pub writes: u64,
    pub rows: u64,
    pub bytes: usize,
}

pub fn run(dir: &Path, load: Load, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let engine = Engine::open_with(dir.join("data"), Options::default())?;
    let tenant = engine.main()?;
    let files = BTreeMap::from([("bench.ew".to_owned(), DECLARED.to_owned())]);
    super::block_on(tenant.apply("bench", check_workspace(&files).definitions))?;

    let publishing = publish::Load { publishers: load.writers, events: load.writes, bytes: 512 };
    publish::measure(&tenant, publish::Load { events: (load.writes / 10).max(1), ..publishing })?;
    let published = publish::measure(&tenant, publishing)?;
    let written = super::block_on(together(&tenant, load))?;
    let ratio = written.per_second() / published.per_second().max(1e-9);

    let tenth = (load.rows / 10).max(load.writes);
    super::block_on(fill(&tenant, load.writes..tenth, progress))?;
    let query_tenth = query_us(&tenant, tenth)?;
    super::block_on(fill(&tenant, tenth..load.rows, progress))?;
    let rows = load.rows.max(load.writes);
    let (query, get) = (query_us(&tenant, rows)?, get_us(&tenant, rows)?);
    super::block_on(engine.close())?;

    let mut result = written.to_json();
    result.insert("writes_per_s".into(), json!(round(written.per_second(), 1)));
    result.insert("publish_events_per_s".into(), json!(round(published.per_second(), 1)));
    result.insert("ratio".into(), json!(round(ratio, 3)));
    result.insert("rows".into(), json!(rows));
    result.insert("get_us".into(), json!(round(get, 3)));
    result.insert("query_us".into(), json!(round(query, 3)));
    result.insert("query_rows".into(), json!(OF_A_SHELF));
    result.insert("query_us_at_a_tenth".into(), json!(round(query_tenth, 3)));
    let Load { writers, writes, rows, bytes } = load;
    let args = json!({"writers": writers, "writes": writes, "rows": rows, "bytes": bytes});
    Ok(report("entity", args, result, dir))
}

fn item(n: u64, bytes: usize) -> Write {
    let mut fields = Map::new();
    fields.insert("shelf".into(), format!("s{}", n / OF_A_SHELF).into());
    fields.insert("n".into(), n.into());
    fields.insert("note".into(), "x".repeat(bytes.saturating_sub(40)).into());
    Write::of("item", Some(&n.to_string()), Action::Put(fields))
}

/// Many writers, each waiting until its row is durable before it writes the next; every row is new.
async fn together(tenant: &Tenant, load: Load) -> Result<Rate, Problem> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..load.writers.max(1) {
        let (tenant, next) = (tenant.clone(), next.clone());
        tasks.spawn(async move {
            let (caller, mut latencies) = (Caller::local(), Latencies::default());
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= load.writes {
                    return Ok::<_, Problem>(latencies);
                }
                let begun = Instant::now();
                tenant.write(&caller, item(n, load.bytes)).await?;
                latencies.add(begun.elapsed());
            }
        });
    }
    let mut latencies = Latencies::with_capacity(load.writes as usize);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(failed)??);
    }
    Ok(Rate { seconds: started.elapsed(), events: load.writes, latencies, fsyncs: 0 })
}

async fn fill(
    tenant: &Tenant,
    rows: std::ops::Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Problem> {
    let mut from = rows.start;
    while from < rows.end {
        let to = (from + AT_ONCE).min(rows.end);
        tenant.write_all(&Caller::local(), (from..to).map(|n| item(n, 80)).collect()).await?;
        from = to;
        progress(from);
    }
    Ok(())
}

/// One row by its id, a different one each time.
fn get_us(tenant: &Tenant, rows: u64) -> Result<f64, Problem> {
    let (caller, mut worth) = (Caller::local(), Duration::ZERO);
    for i in 0..READS {
        let id = scattered(i, rows).to_string();
        let begun = Instant::now();
        tenant.entity(&caller, "item", None, &id)?;
        worth += begun.elapsed();
    }
    Ok(worth.as_secs_f64() * 1e6 / READS as f64)
}

/// All rows of one shelf, a different one each time.
fn query_us(tenant: &Tenant, rows: u64) -> Result<f64, Problem> {
    let (caller, mut worth, asked) = (Caller::local(), Duration::ZERO, READS / 10);
    for i in 0..asked {
        let shelf = scattered(i, rows / OF_A_SHELF);
        let args = Map::from_iter([("shelf".to_owned(), Value::from(format!("s{shelf}")))]);
        let asking = Asking { args, ..Asking::default() };
        let begun = Instant::now();
        let found = tenant.query(&caller, "itemsOfShelf", &asking)?;
        worth += begun.elapsed();
        if found.rows.len() as u64 != OF_A_SHELF {
            return Err(failed(format!("shelf {shelf} has {} rows", found.rows.len())));
        }
    }
    Ok(worth.as_secs_f64() * 1e6 / asked as f64)
}

/// Numbers below `below` in an order that no cache foresees.
fn scattered(i: u64, below: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % below.max(1)
}
