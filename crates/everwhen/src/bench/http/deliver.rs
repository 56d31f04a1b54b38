//! Delivery over HTTP: from a publish to the worker that pulls, and how fast a backlog leaves by `pull` and `ack`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::Problem;
use serde_json::json;

use super::connection::{Connection, post, request};
use super::{Served, on_one_thread};
use crate::bench::deliver::Load;
use crate::bench::failed;
use crate::bench::measure::{Latencies, Rate};

/// Publishing connections of the steady part: enough that a slow sync delays no other event.
const PUBLISHERS: u64 = 4;
/// Workers that drain; each has one pull or ack under way.
const WORKERS: u64 = 4;
/// The most that one pull gives (contracts §4).
const PULL_MAX: u64 = 1_000;

pub fn steady(served: &Served, load: Load) -> Result<Rate, Problem> {
    on_one_thread(steadily(served.address, load))
}

async fn steadily(address: SocketAddr, load: Load) -> Result<Rate, Problem> {
    put_group(address, "steady", json!({"pattern": "bench.steady", "max_inflight": 1000})).await?;
    let begun = Instant::now();
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..PUBLISHERS {
        publishers.spawn(publish_steadily(address, load, begun, publisher));
    }
    let latencies = worker(address, load.events, begun).await?;
    while let Some(done) = publishers.join_next().await {
        done.map_err(failed)??;
    }
    Ok(Rate { seconds: begun.elapsed(), events: load.events, latencies, fsyncs: 0 })
}

/// One of several publishers that take turns, so that together they keep the rate.
async fn publish_steadily(
    address: SocketAddr,
    load: Load,
    begun: Instant,
    publisher: u64,
) -> Result<(), Problem> {
    let mut connection = Connection::open(address).await.map_err(failed)?;
    let turn = Duration::from_secs_f64(1.0 / load.rate as f64);
    let first = tokio::time::Instant::now() + turn * publisher as u32;
    let mut beat = tokio::time::interval_at(first, turn * PUBLISHERS as u32);
    let payload = crate::bench::publish::draft(load.bytes).payload;
    for _ in (publisher..load.events).step_by(PUBLISHERS as usize) {
        beat.tick().await;
        let (sent, payload) = (begun.elapsed().as_nanos(), payload.get());
        let event = format!(r#"{{"topic":"bench.steady","caused_by":"{sent}","payload":{payload}}}"#);
        connection.exchange(&post("/v1/events", &event)).await.map_err(failed)?;
    }
    Ok(())
}

/// Pulls with a long wait, notes when each event came, and acks on a connection of its own, so that the next pull is
/// waiting already.
async fn worker(address: SocketAddr, events: u64, begun: Instant) -> Result<Latencies, Problem> {
    let mut pulling = Connection::open(address).await.map_err(failed)?;
    let (acks, settled) = tokio::sync::mpsc::unbounded_channel();
    let acking = tokio::spawn(ack_all(address, settled));
    let pull = post("/v1/groups/steady/pull", r#"{"max":1000,"wait":"20s"}"#);
    let mut latencies = Latencies::with_capacity(events as usize);
    let mut seen = 0;
    while seen < events {
        let page = pulling.exchange(&pull).await.map_err(failed)?;
        let now = begun.elapsed();
        let before = seen;
        for sent in after(page, "\"caused_by\":\"") {
            latencies.add(now.saturating_sub(Duration::from_nanos(sent.parse().map_err(failed)?)));
            seen += 1;
        }
        if seen == before {
            return Err(failed("no event came within 20 s"));
        }
        let _ = acks.send(ack("steady", page));
    }
    drop(acks);
    acking.await.map_err(failed)??;
    Ok(latencies)
}

async fn ack_all(
    address: SocketAddr,
    mut acks: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<(), Problem> {
    let mut connection = Connection::open(address).await.map_err(failed)?;
    while let Some(ack) = acks.recv().await {
        connection.exchange(&ack).await.map_err(failed)?;
    }
    Ok(())
}

/// Fills a backlog, then pulls and acks it, and says how many events a second left.
pub fn drain(served: &Served, load: Load) -> Result<f64, Problem> {
    on_one_thread(async {
        fill(served.address, load).await?;
        let group = json!({"pattern": "bench.backlog", "start": "beginning", "max_inflight": 10_000});
        put_group(served.address, "backlog", group).await?;
        let left = Arc::new(AtomicU64::new(load.backlog));
        let mut workers = tokio::task::JoinSet::new();
        let started = Instant::now();
        for _ in 0..WORKERS {
            workers.spawn(pull_and_ack(served.address, left.clone()));
        }
        // The first to end took the last event; the others wait for more, and are dropped here.
        let ended = workers.join_next().await.ok_or_else(|| failed("there was no worker"))?;
        ended.map_err(failed)??;
        Ok(load.backlog as f64 / started.elapsed().as_secs_f64())
    })
}

async fn fill(address: SocketAddr, load: Load) -> Result<(), Problem> {
    let mut connection = Connection::open(address).await.map_err(failed)?;
    let payload = crate::bench::publish::draft(load.bytes).payload;
    let event = format!(r#"{{"topic":"bench.backlog","payload":{}}}"#, payload.get());
    // An atomic array is at most 1 MiB long.
    let most = (900_000 / event.len() as u64).clamp(1, 500);
    let mut left = load.backlog;
    while left > 0 {
        let some = left.min(most);
        let array = format!("[{}]", vec![event.as_str(); some as usize].join(","));
        connection.exchange(&post("/v1/events", &array)).await.map_err(failed)?;
        left -= some;
    }
    Ok(())
}

/// Ends when nothing is `left` for anybody.
async fn pull_and_ack(address: SocketAddr, left: Arc<AtomicU64>) -> Result<(), Problem> {
    let mut connection = Connection::open(address).await.map_err(failed)?;
    let pull = post("/v1/groups/backlog/pull", &json!({"max": PULL_MAX, "wait": "20s"}).to_string());
    loop {
        let page = connection.exchange(&pull).await.map_err(failed)?;
        let pulled = after(page, TOKEN).count() as u64;
        if pulled == 0 {
            return Err(failed(format!("{} events never came", left.load(Ordering::Relaxed))));
        }
        let ack = ack("backlog", page);
        connection.exchange(&ack).await.map_err(failed)?;
        if left.fetch_sub(pulled, Ordering::Relaxed) <= pulled {
            return Ok(());
        }
    }
}

async fn put_group(address: SocketAddr, name: &str, definition: serde_json::Value) -> Result<(), Problem> {
    let mut connection = Connection::open(address).await.map_err(failed)?;
    let put = request("PUT", &format!("/v1/groups/{name}"), &definition.to_string());
    connection.exchange(&put).await.map_err(failed).map(|_| ())
}

const TOKEN: &str = "{\"token\":\"";

/// The request that acks every delivery of a page.
fn ack(group: &str, page: &str) -> Vec<u8> {
    let tokens: Vec<&str> = after(page, TOKEN).collect();
    let body = format!(r#"{{"tokens":["{}"]}}"#, tokens.join("\",\""));
    post(&format!("/v1/groups/{group}/ack"), &body)
}

/// The strings that follow `key` in JSON whose own strings hold neither that key nor an escape, as a benchmark's do.
fn after<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(key).filter_map(move |(at, _)| text[at + key.len()..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_of_a_page_is_acked() {
        let page = r#"{"deliveries":[{"token":"a.1","event":{}},{"token":"b.2","event":{}}]}"#;
        let request = String::from_utf8(ack("g", page)).unwrap();
        assert!(request.starts_with("POST /v1/groups/g/ack HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with(r#"{"tokens":["a.1","b.2"]}"#), "{request}");
    }
}
