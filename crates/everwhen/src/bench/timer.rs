//! `bench timer`: runs that wait for an instant, very many of them, while others come due at a steady rate.

use std::path::Path;
use std::time::{Duration, Instant};

use engine::clock::{Clock, SystemClock};
use engine::{Engine, Tenant};
use model::Problem;
use serde_json::{Map, Value, json};

use super::measure::{Latencies, report, round};
use super::react::{Heard, declare, fill};

const LATER: &str = r#"
automation: later
triggers:
  - event: bench.later
mode: parallel
max: 100000000
actions:
  - delay: "{{ event.payload.ms / 1000.0 }}"
  - publish: {topic: bench.fired, payload: {due: "{{ event.payload.due }}"}}
"#;

/// As many as one part of the filling arms before the time is looked at again.
const PART: u64 = 5_000;
const DAY_MS: f64 = 86_400_000.0;

#[derive(Clone, Copy)]
pub struct Load {
    /// Armed, and far away.
    pub timers: u64,
    /// Firings a second, and for how long.
    pub rate: u64,
    pub seconds: u64,
}

pub fn run(dir: &Path, load: Load, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let (armed, seconds, latencies) = super::block_on(async {
        let engine = Engine::open(dir.join("data"))?;
        let tenant = engine.main()?;
        declare(&tenant, &[("bench.yaml", LATER.to_owned())]).await?;
        let begun = Instant::now();
        let far = |_| json!({"ms": DAY_MS, "due": 0});
        fill(&tenant, "bench.later", 0..load.timers, far, progress).await?;
        let pace = begun.elapsed().as_secs_f64() / load.timers.max(1) as f64;
        let fired = fire(&tenant, load, pace).await?;
        engine.close().await?;
        Ok(fired)
    })?;
    let firings = load.rate * load.seconds;
    let mut result = Map::new();
    result.insert("armed".into(), json!(armed));
    result.insert("firings".into(), json!(firings));
    result.insert("firings_per_s".into(), json!(round(firings as f64 / seconds.max(1e-9), 1)));
    for (name, percent) in [("late_p50_us", 50.0), ("late_p99_us", 99.0)] {
        result.insert(name.into(), json!(latencies.percentile_us(percent)));
    }
    let args = json!({"timers": load.timers, "rate": load.rate, "seconds": load.seconds});
    Ok(report("timer", args, result, dir))
}

fn now_ms() -> f64 {
    SystemClock.now().nanos() as f64 / 1e6
}

/// Arms what is to fire, all of it before the first is due; then hears each.
async fn fire(tenant: &Tenant, load: Load, pace: f64) -> Result<(u64, f64, Latencies), Problem> {
    let firings = load.rate * load.seconds;
    let mut heard = Heard::of(tenant, "bench.fired")?;
    // Twice the time that filling took so far for as many, and some to settle.
    let first = now_ms() + pace * firings as f64 * 2_000.0 + 1_000.0;
    let apart = 1_000.0 / load.rate as f64;
    for from in (0..firings).step_by(PART as usize) {
        let now = now_ms();
        let near = |n: u64| {
            let due = first + n as f64 * apart;
            json!({"ms": due - now, "due": due})
        };
        fill(tenant, "bench.later", from..(from + PART).min(firings), near, &mut |_| ()).await?;
    }
    let armed = load.timers + firings;
    let mut latencies = Latencies::with_capacity(firings as usize);
    heard
        .take(firings, |payload| {
            let due = payload["due"].as_f64().unwrap_or_default();
            latencies.add(Duration::from_secs_f64((now_ms() - due).max(0.0) / 1e3));
        })
        .await?;
    Ok((armed, (now_ms() - first) / 1e3, latencies))
}
