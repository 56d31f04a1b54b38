//! From a publish to the worker that waits for it, at 1,000 events a second.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Plan;
use crate::publish::{Rate, micros, payload};
use crate::wire::{Connection, Peer, Worker, after};

const RATE: u32 = 1_000;
/// Publishers take turns, so that a slow sync delays no other event.
const PUBLISHERS: u32 = 4;

static RUNS: AtomicU64 = AtomicU64::new(0);

pub async fn run(peer: Peer, plan: &Plan) -> io::Result<Rate> {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let worker = Worker { topic: format!("bench.steady{run}"), name: format!("worker{run}") };
    let mut receiving = Connection::open(peer).await?;
    receiving.subscribe(&worker).await?;
    let events = (plan.seconds.as_secs_f64() * f64::from(RATE)) as u32;
    let begun = Instant::now();
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let connection = Connection::open(peer).await?;
        let turns = events / PUBLISHERS;
        publishers.spawn(publish(connection, worker.topic.clone(), plan.bytes, publisher, turns, begun));
    }
    let wanted = (events / PUBLISHERS * PUBLISHERS) as usize;
    let latencies = receive(peer, receiving, &worker, wanted, begun).await?;
    while let Some(done) = publishers.join_next().await {
        done.map_err(io::Error::other)??;
    }
    Ok(Rate::of(latencies, begun.elapsed()))
}

async fn publish(
    mut connection: Connection,
    topic: String,
    bytes: usize,
    publisher: u32,
    turns: u32,
    begun: Instant,
) -> io::Result<()> {
    let turn = Duration::from_secs(1) / RATE;
    let first = tokio::time::Instant::now() + turn * publisher;
    let mut beat = tokio::time::interval_at(first, turn * PUBLISHERS);
    for _ in 0..turns {
        beat.tick().await;
        let request = connection.publish(&topic, &payload(begun.elapsed().as_nanos(), bytes));
        connection.exchange(&request).await?;
    }
    Ok(())
}

/// Acks go out on a connection of their own where they are answered, so that the next pull is waiting already.
async fn receive(
    peer: Peer,
    mut receiving: Connection,
    worker: &Worker,
    wanted: usize,
    begun: Instant,
) -> io::Result<Vec<u32>> {
    let (acks, settled) = mpsc::unbounded_channel();
    let acking = tokio::spawn(ack_all(Connection::open(peer).await?, settled));
    let pull = peer.kind.pull(worker);
    let mut latencies = Vec::with_capacity(wanted);
    while latencies.len() < wanted {
        if let Some(pull) = &pull {
            receiving.send(pull).await?;
        }
        let page = receiving.receive().await?;
        let now = begun.elapsed();
        let before = latencies.len();
        for sent in after(page, "\"sent\":\"", &['"']) {
            let sent = Duration::from_nanos(sent.parse().map_err(io::Error::other)?);
            latencies.push(micros(now.saturating_sub(sent)));
        }
        if latencies.len() == before {
            return Err(io::Error::other("no event came within 20 s"));
        }
        let ack = peer.kind.ack(worker, page);
        match pull {
            Some(_) => _ = acks.send(ack),
            None => receiving.send(&ack).await?,
        }
    }
    drop(acks);
    acking.await.map_err(io::Error::other)??;
    Ok(latencies)
}

async fn ack_all(mut connection: Connection, mut acks: mpsc::UnboundedReceiver<Vec<u8>>) -> io::Result<()> {
    while let Some(ack) = acks.recv().await {
        connection.exchange(&ack).await?;
    }
    Ok(())
}
