//! `bench wait`: what many suspended runs weigh, what they cost while nothing happens, and how soon a change wakes one.

use std::path::Path;
use std::time::{Duration, Instant};

use engine::entity::{Action, Write};
use engine::{Caller, Engine, Tenant};
use model::Problem;
use serde_json::{Map, Value, json};

use super::failed;
use super::measure::{Latencies, report, resident_mib, round};
use super::react::{Heard, cpu_time, declare, fill, idle_percent, settled};

/// Waits that are there when the cost of a change is measured for the first time.
const FEW: u64 = 10_000;

const CONCEPTS: &str = "concept item { done bool! }\n";

const PATIENT: &str = r#"
automation: patient
triggers:
  - event: bench.begin
mode: parallel
max: 100000000
actions:
  - wait_until: {condition: 'state.item[event.payload.id].done', timeout: 30d}
  - publish: {topic: bench.woken, payload: {n: "{{ event.payload.n }}"}}
"#;

#[derive(Clone, Copy)]
pub struct Load {
    pub waits: u64,
    /// Changes a second, and how many.
    pub rate: u64,
    pub changes: u64,
    pub idle: Duration,
}

/// What waking that many costs.
struct Woken {
    latencies: Latencies,
    cpu_us: f64,
}

pub fn run(dir: &Path, load: Load, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let data = dir.join("data");
    let (few, many) = (FEW.min(load.waits), load.waits);
    let mut result = Map::new();
    let (at_few, woken) = super::block_on(async {
        let engine = Engine::open(&data)?;
        let tenant = engine.main()?;
        declare(&tenant, &[("bench.ew", CONCEPTS.to_owned()), ("bench.yaml", PATIENT.to_owned())]).await?;
        let before = resident_mib();
        suspend(&tenant, 0..few, progress).await?;
        let at_few = wake(&tenant, 0, load).await?;
        suspend(&tenant, few..many, progress).await?;
        settled().await;
        let bytes = (resident_mib() - before) * 1_048_576.0 / many as f64;
        result.insert("bytes_per_wait".into(), json!(round(bytes, 0)));
        result.insert("idle_cpu_percent".into(), json!(idle_percent(load.idle).await));
        let woken = wake(&tenant, many.saturating_sub(load.changes), load).await?;
        engine.close().await?;
        Ok((at_few, woken))
    })?;
    result.insert("waits".into(), json!(many));
    for (name, percent) in [("wake_p50_us", 50.0), ("wake_p95_us", 95.0), ("wake_p99_us", 99.0)] {
        result.insert(name.into(), json!(woken.latencies.percentile_us(percent)));
    }
    result.insert("wake_p99_us_at_10000".into(), json!(at_few.latencies.percentile_us(99.0)));
    result.insert("cpu_us_per_change".into(), json!(round(woken.cpu_us, 1)));
    result.insert("cost_ratio".into(), json!(round(woken.cpu_us / at_few.cpu_us.max(1e-9), 3)));
    let opened = super::open::in_a_process_of_its_own(&data)?;
    result.insert("reopen_ms".into(), opened["open_ms"].clone());
    let resident = opened["rss_mib"].as_f64().unwrap_or_default() * 1_048_576.0 / many as f64;
    result.insert("bytes_per_wait_reopened".into(), json!(round(resident, 0)));
    let args = json!({"waits": many, "rate": load.rate, "changes": load.changes});
    Ok(report("wait", args, result, dir))
}

async fn suspend(
    tenant: &Tenant,
    numbers: std::ops::Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Problem> {
    fill(tenant, "bench.begin", numbers, |n| json!({"id": n.to_string(), "n": n}), progress).await
}

/// Changes rows at a steady rate; each ends one wait, and what its run publishes is heard.
async fn wake(tenant: &Tenant, from: u64, load: Load) -> Result<Woken, Problem> {
    let (begun, used) = (Instant::now(), cpu_time());
    let mut heard = Heard::of(tenant, "bench.woken")?;
    let pace = Duration::from_secs_f64(1.0 / load.rate.max(1) as f64);
    let writer = {
        let tenant = tenant.clone();
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(pace);
            let mut writes = tokio::task::JoinSet::new();
            let mut sent = Vec::with_capacity(load.changes as usize);
            for n in from..from + load.changes {
                beat.tick().await;
                sent.push(begun.elapsed());
                let tenant = tenant.clone();
                writes.spawn(async move { tenant.write(&Caller::local(), done(n)).await });
            }
            while let Some(written) = writes.join_next().await {
                written.map_err(failed)??;
            }
            Ok::<_, Problem>(sent)
        })
    };
    let mut arrived = vec![Duration::ZERO; load.changes as usize];
    heard
        .take(load.changes, |payload| {
            let n = payload["n"].as_u64().unwrap_or_default().saturating_sub(from) as usize;
            arrived[n.min(load.changes as usize - 1)] = begun.elapsed();
        })
        .await?;
    let sent = writer.await.map_err(failed)??;
    let mut latencies = Latencies::with_capacity(sent.len());
    sent.iter().zip(&arrived).for_each(|(sent, arrived)| latencies.add(arrived.saturating_sub(*sent)));
    let cpu_us = (cpu_time() - used).as_secs_f64() * 1e6 / load.changes as f64;
    Ok(Woken { latencies, cpu_us })
}

fn done(n: u64) -> Write {
    let Value::Object(fields) = json!({"done": true}) else { unreachable!("an object is a map") };
    Write::of("item", Some(&n.to_string()), Action::Upsert(fields))
}
