//! `kill -9` of a real `everwhen serve` while automations run: orders are charged at a sink, reminded after a delay and closed
//! by a wait for the charge.
//!
//! ```text
//!   parent: orders, sink                      everwhen serve (a child process)
//!   POST order.placed {n} ──────────────────▶ three runs each
//!   sink: n under key k ◀──── POST /charge/n ─ charge ─▶ order.charged {n} ─▶ close ─▶ order.closed {n}
//!   kill ───────────────────────────────────▶ ✝                       remind ─▶ order.reminded {n}
//! ```
//!
//! In the end every acknowledged order has each outcome once, and came to the sink at least once, always under one key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use serde_json::json;

use super::http::Client;
use super::rounds::{ERA, Tally, text, verify};
use super::server::Server;
use super::sink::Sink;
use crate::random::Random;
use crate::scratch::Scratch;

const PUBLISHERS: usize = 3;
/// Orders of one life: enough to be in the middle of everything, few enough to be done in the end.
const ORDERS: usize = 200;
const OUTCOMES: [&str; 3] = ["order.charged", "order.reminded", "order.closed"];
/// What is due by then and is not done never will be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Orders sent, and those that were acknowledged.
#[derive(Default)]
struct Orders {
    sent: BTreeSet<usize>,
    acked: BTreeSet<usize>,
}

pub fn kill9(rounds: usize, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    while tally.rounds < rounds {
        let scratch = Scratch::in_memory().map_err(text)?;
        let data = scratch.path().join("data");
        let sink = Sink::open().map_err(text)?;
        let mut orders = Orders::default();
        for round in 0..ERA.min(rounds - tally.rounds) {
            let killed = life(&data, round, &sink, (&mut random, &mut orders));
            killed.map_err(|what| format!("round {}: {what}", tally.rounds))?;
            tally.rounds += 1;
        }
        last_life(&data, &sink, &orders).map_err(|what| format!("after round {}: {what}", tally.rounds))?;
        tally.acked += orders.acked.len();
    }
    Ok(tally)
}

fn life(
    data: &Path,
    round: usize,
    sink: &Sink,
    (random, orders): (&mut Random, &mut Orders),
) -> Result<(), String> {
    let mut server = Server::start(data)?;
    if round == 0 {
        declare(&server.url, sink.port)?;
    }
    let (say, said) = std::sync::mpsc::channel();
    let next = Arc::new(AtomicUsize::new(round * ORDERS));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|_| {
            let (url, say, next) = (server.url.clone(), say.clone(), next.clone());
            std::thread::spawn(move || place(&url, &next, (round + 1) * ORDERS, &say))
        })
        .collect();
    drop(say);
    std::thread::sleep(Duration::from_micros(random.between(0, 250_000)));
    server.kill()?;
    let ended: Vec<_> =
        publishers.into_iter().map(|one| one.join().unwrap_or(Err("a client panicked".into()))).collect();
    for (n, acked) in said {
        let list = if acked { &mut orders.acked } else { &mut orders.sent };
        list.insert(n);
    }
    ended.into_iter().collect()
}

fn declare(url: &str, port: u16) -> Result<(), String> {
    let texts = format!(
        r#"
- automation: charge
  mode: parallel
  max: 10000
  triggers: [{{event: order.placed}}]
  actions:
    - http: {{method: POST, url: "http://127.0.0.1:{port}/charge/{{{{ event.payload.n }}}}"}}
    - publish: {{topic: order.charged, payload: {{n: "{{{{ event.payload.n }}}}"}}}}
- automation: remind
  mode: parallel
  max: 10000
  triggers: [{{event: order.placed}}]
  actions:
    - delay: 100ms
    - publish: {{topic: order.reminded, payload: {{n: "{{{{ event.payload.n }}}}"}}}}
- automation: close
  mode: parallel
  max: 10000
  triggers: [{{event: order.placed}}]
  actions:
    - wait_for: {{event: order.charged, filter: 'event.payload.n == trigger.event.payload.n'}}
    - publish: {{topic: order.closed, payload: {{n: "{{{{ event.payload.n }}}}"}}}}
"#
    );
    let body = json!({"workspace": "storm", "files": {"storm.yaml": texts}}).to_string();
    let (status, answer) =
        Client::to(url).and_then(|mut client| client.ask("POST", "/v1/apply", &body)).map_err(text)?;
    if status == 200 { Ok(()) } else { Err(format!("POST /v1/apply: {status} {answer}")) }
}

/// Places orders one after the other until the server is gone or all of this life are placed.
fn place(url: &str, next: &AtomicUsize, end: usize, say: &Sender<(usize, bool)>) -> Result<(), String> {
    let Ok(mut client) = Client::to(url) else { return Ok(()) };
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= end {
            return Ok(());
        }
        let _ = say.send((n, false));
        let body = json!({"topic": "order.placed", "payload": {"n": n}}).to_string();
        match client.ask("POST", "/v1/events", &body) {
            Err(_) | Ok((503, _)) => return Ok(()),
            Ok((201, _)) => _ = say.send((n, true)),
            Ok((status, answer)) => return Err(format!("order {n}: {status} {answer}")),
        }
    }
}

/// Nobody interrupts: everything that is due gets done, and the server stops in order.
fn last_life(data: &Path, sink: &Sink, orders: &Orders) -> Result<(), String> {
    let mut server = Server::start(data)?;
    let mut client = Client::to(&server.url).map_err(text)?;
    until_idle(&mut client)?;
    let placed = numbers(&mut client, "order.placed")?;
    for outcome in OUTCOMES {
        check_outcome(outcome, &placed, &numbers(&mut client, outcome)?)?;
    }
    if let Some(n) = orders.acked.iter().find(|n| !placed.contains_key(n)) {
        return Err(format!("order {n} was acknowledged and is not there"));
    }
    if let Some(n) = placed.keys().find(|n| !orders.sent.contains(n)) {
        return Err(format!("order {n} is there and was never placed"));
    }
    check_sink(sink, &placed)?;
    server.stop()?;
    verify(data)
}

fn until_idle(client: &mut Client) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let mut open = 0;
        for status in ["queued", "running", "waiting"] {
            let path = format!("/v1/runs?status={status}&limit=1000");
            let (status, answer) = client.ask("GET", &path, "").map_err(text)?;
            let runs = answer["runs"].as_array().filter(|_| status == 200);
            open += runs.ok_or_else(|| format!("GET {path}: {status} {answer}"))?.len();
        }
        if open == 0 {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("{open} runs are not done after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How often each number stands under a topic.
fn numbers(client: &mut Client, topic: &str) -> Result<BTreeMap<usize, usize>, String> {
    let (mut counts, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("/v1/events?topic={topic}&limit=1000{cursor}");
        let (status, answer) = client.ask("GET", &path, "").map_err(text)?;
        let events = answer["events"].as_array().filter(|_| status == 200);
        for event in events.ok_or_else(|| format!("GET {path}: {status} {answer}"))? {
            let n = event["payload"]["n"].as_u64().ok_or_else(|| format!("{event} has no number"))?;
            *counts.entry(n as usize).or_insert(0) += 1;
        }
        match answer["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(counts),
        }
    }
}

fn check_outcome(
    topic: &str,
    placed: &BTreeMap<usize, usize>,
    found: &BTreeMap<usize, usize>,
) -> Result<(), String> {
    for n in placed.keys() {
        match found.get(n) {
            Some(1) => {}
            None => return Err(format!("order {n} never came to {topic}")),
            Some(times) => return Err(format!("order {n} came to {topic} {times} times")),
        }
    }
    match found.keys().find(|n| !placed.contains_key(n)) {
        Some(n) => Err(format!("{topic} of order {n}, which was never placed")),
        None => Ok(()),
    }
}

fn check_sink(sink: &Sink, placed: &BTreeMap<usize, usize>) -> Result<(), String> {
    let seen = sink.seen();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for n in placed.keys() {
        let keys: Vec<&String> = seen.get(n).into_iter().flatten().collect();
        let [key] = keys.as_slice() else {
            return Err(format!("order {n} came to the sink under the keys {keys:?}"));
        };
        if let Some(other) = known.insert(key.as_str(), *n) {
            return Err(format!("orders {other} and {n} came to the sink under the key {key:?}"));
        }
    }
    Ok(())
}
