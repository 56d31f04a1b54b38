//! The child that is killed: publishes, pulls and acks without pause, and says on its standard output what it was told.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::settings::Retention;
use engine::{Caller, Delivery, Draft, Engine, Options, Outcome, Settings, Tenant};
use model::Problem;
use serde_json::json;
use serde_json::value::RawValue;

use super::{GROUPS, numbered};

pub struct Orders {
    pub data: PathBuf,
    /// The first number to publish.
    pub from: usize,
    /// Publishes of the last life that had no answer; those with a key are sent again.
    pub again: Vec<usize>,
    /// Publish nothing, settle everything, end cleanly.
    pub drain: bool,
    /// A tenant to create beside `main`.
    pub tenant: String,
}

/// One line, in one write: whole in the pipe or not at all.
fn say(line: String) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

pub fn options() -> Options {
    let retention = Retention { bytes: Some(96 << 10), ..Retention::default() };
    let ledger =
        ledger::Options { segment_bytes: 16 << 10, headroom: 64 << 10, ..ledger::Options::default() };
    Options { settings: Settings { retention, ..Settings::default() }, ledger, ..Options::default() }
}

pub fn run(orders: Orders) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(model::Code::Internal, error.to_string()))?;
    runtime.block_on(work(orders))
}

async fn work(orders: Orders) -> Result<(), Problem> {
    let engine = Engine::open_with(&orders.data, options())?;
    let tenant = engine.main()?;
    say("open".to_owned());
    for group in GROUPS {
        let mut body = json!({"pattern": "#", "start": "beginning", "ack_deadline": "20s"});
        if group == "keyed" {
            (body["ordering"], body["key"]) = ("key".into(), "event.payload.k".into());
        }
        tenant.put_group(group, &body).await?;
    }
    if orders.drain {
        drain(&tenant).await?;
        return engine.close().await;
    }
    let next = Arc::new(AtomicUsize::new(orders.from));
    let mut tasks = tokio::task::JoinSet::new();
    for n in orders.again {
        publish(&tenant, &[n]).await?;
    }
    for _ in 0..3 {
        let (tenant, next) = (tenant.clone(), next.clone());
        tasks.spawn(async move { publish_on(&tenant, &next).await });
    }
    for group in GROUPS {
        let tenant = tenant.clone();
        tasks.spawn(async move { consume(&tenant, group).await });
    }
    let keeper = tenant.clone();
    tasks.spawn_blocking(move || keep(&keeper));
    found(&engine, &orders.tenant).await?;
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Problem::new(model::Code::Internal, error.to_string()))??;
    }
    Ok(())
}

/// A tenant is made and used at once.
async fn found(engine: &Engine, name: &str) -> Result<(), Problem> {
    let tenant = engine.tenant(name)?;
    let outcome = tenant.publish(&Caller::local(), Draft::new("founded", &json!({"name": name}))).await?;
    if let Outcome::Recorded(receipt) = outcome {
        say(format!("founded {name} {}", receipt.position));
    }
    Ok(())
}

fn draft(n: usize) -> Draft {
    let numbered = numbered(n);
    let raw = RawValue::from_string(numbered.body).expect("our payloads are JSON");
    Draft { key: numbered.key, ..Draft::new(numbered.topic, &raw) }
}

async fn publish(tenant: &Tenant, numbers: &[usize]) -> Result<(), Problem> {
    numbers.iter().for_each(|n| say(format!("try {n}")));
    let drafts = numbers.iter().map(|n| draft(*n)).collect();
    let outcomes = tenant.publish_all(&Caller::local(), drafts).await?;
    for (n, outcome) in numbers.iter().zip(outcomes) {
        if let Outcome::Recorded(receipt) = outcome {
            say(format!("ok {n} {}", receipt.position));
        }
    }
    Ok(())
}

async fn publish_on(tenant: &Tenant, next: &AtomicUsize) -> Result<(), Problem> {
    loop {
        let first = next.fetch_add(4, Ordering::Relaxed);
        let count = if first.is_multiple_of(5) { 4 } else { 1 };
        publish(tenant, &(first..first + count).collect::<Vec<_>>()).await?;
    }
}

async fn consume(tenant: &Tenant, group: &'static str) -> Result<(), Problem> {
    loop {
        let deliveries = tenant.pull(group, 20, Duration::from_secs(1)).await?;
        settle(tenant, group, &deliveries).await?;
    }
}

async fn settle(tenant: &Tenant, group: &'static str, deliveries: &[Delivery]) -> Result<(), Problem> {
    for delivery in deliveries {
        let n = crate::oracle::number_of(&delivery.event).map_or("-".to_owned(), |n| n.to_string());
        say(format!("got {group} {} {n}", delivery.event.position));
    }
    // Only a part of them: the rest is what a crash must bring back.
    let some = deliveries.iter().filter(|delivery| delivery.event.position % 7 != 0 || delivery.attempt > 1);
    let some: Vec<&Delivery> = some.collect();
    let tokens: Vec<String> = some.iter().map(|delivery| delivery.token.to_string()).collect();
    if tenant.ack(group, &tokens, true).await?.stale.is_empty() {
        some.iter().for_each(|delivery| say(format!("ack {group} {}", delivery.event.position)));
    }
    let rest = deliveries.iter().filter(|delivery| !some.iter().any(|one| one.token == delivery.token));
    let tokens: Vec<String> = rest.map(|delivery| delivery.token.to_string()).collect();
    tenant.nack(group, &tokens, Some(Duration::ZERO), None).await.map(|_| ())
}

/// Snapshots and trims, as often as it can.
fn keep(tenant: &Tenant) -> Result<(), Problem> {
    loop {
        engine::maintain::retention::run(tenant)?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that is still open is settled.
async fn drain(tenant: &Tenant) -> Result<(), Problem> {
    for group in GROUPS {
        let mut idle = 0;
        while idle < 3 {
            let deliveries = tenant.pull(group, 100, Duration::from_millis(20)).await?;
            idle = if deliveries.is_empty() { idle + 1 } else { 0 };
            settle(tenant, group, &deliveries).await?;
        }
    }
    say("drained".to_owned());
    Ok(())
}
