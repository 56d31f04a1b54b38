//! `bench gate`: one topic that very many automations listen to, each with a filter of its own.

use std::path::Path;
use std::time::Instant;

use engine::{Caller, Draft, Engine, Tenant};
use model::Problem;
use serde_json::{Map, Value, json};

use super::measure::{Latencies, report, round};
use super::react::declare;

#[derive(Clone, Copy)]
pub struct Load {
    pub automations: u64,
    pub events: u64,
}

pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let engine = Engine::open(dir.join("data"))?;
    let tenant = engine.main()?;
    let files = [("bench.yaml", (0..load.automations).map(automation).collect())];
    super::block_on(declare(&tenant, &files))?;
    publish(&tenant, (load.events / 10).max(1), load.automations)?;
    let started = Instant::now();
    let latencies = publish(&tenant, load.events, load.automations)?;
    let seconds = started.elapsed().as_secs_f64();
    super::block_on(engine.close())?;
    let evaluations = load.automations * load.events;
    let mut result = Map::new();
    result.insert("seconds".into(), json!(round(seconds, 4)));
    result.insert("evaluations".into(), json!(evaluations));
    result.insert("evaluations_per_s".into(), json!(round(evaluations as f64 / seconds.max(1e-9), 0)));
    result.insert("publish_p50_us".into(), json!(latencies.percentile_us(50.0)));
    let args = json!({"automations": load.automations, "events": load.events});
    Ok(report("gate", args, result, dir))
}

fn automation(n: u64) -> String {
    format!(
        "- automation: a{n}\n  triggers:\n    - event: bench.reading\n      filter: event.payload.sensor == \"s{n}\" && event.payload.value > {}\n  actions:\n    - publish: {{topic: bench.out}}\n",
        n % 100
    )
}

/// Each event passes one filter's first half and none of the second, so that filters are all there is to do.
fn publish(tenant: &Tenant, events: u64, automations: u64) -> Result<Latencies, Problem> {
    let mut latencies = Latencies::with_capacity(events as usize);
    for n in 0..events {
        let sensor = format!("s{}", n * 7 % automations.max(1));
        let payload = json!({"sensor": sensor, "value": -1, "note": "x".repeat(300)});
        let begun = Instant::now();
        tenant.publish_blocking(&Caller::local(), Draft::new("bench.reading", &payload))?;
        latencies.add(begun.elapsed());
    }
    Ok(latencies)
}
