//! `kill -9` of a real `everwhen serve`: clients publish, pull and ack over HTTP until it dies under them.
//!
//! ```text
//!   parent: clients, books                    everwhen serve --listen 127.0.0.1:0 (a child process)
//!   try 17 ── POST /v1/events ──────────────▶ fdatasync
//!   ok 17 42 ◀───────────── 201 ──────────────
//!   kill ───────────────────────────────────▶ ✝   every client sees its connection end
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::account::Account;
use super::http::Client;
use super::rounds::{ERA, Tally, text, verify};
use super::server::Server;
use super::{GROUPS, numbered};
use crate::random::Random;
use crate::scratch::Scratch;

const PUBLISHERS: usize = 3;

/// Why a client stopped: its server died, or it was told something that must not be.
type Ended = Result<(), String>;

pub fn kill9(rounds: usize, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    while tally.rounds < rounds {
        let scratch = Scratch::in_memory().map_err(text)?;
        let data = scratch.path().join("data");
        let mut account = Account::default();
        for round in 0..ERA.min(rounds - tally.rounds) {
            let said = |what: String| format!("round {}: {what}", tally.rounds);
            life(&data, round, (&mut random, &mut account)).map_err(said)?;
            account.check(&data).map_err(said)?;
            tally.rounds += 1;
        }
        last_life(&data, &mut account).map_err(|what| format!("after round {}: {what}", tally.rounds))?;
        tally.acked += account.acked.len();
    }
    Ok(tally)
}

fn life(data: &Path, round: usize, (random, account): (&mut Random, &mut Account)) -> Result<(), String> {
    let mut server = Server::start(data)?;
    let (say, said) = std::sync::mpsc::channel();
    put_groups(&server.url)?;
    let next = Arc::new(AtomicUsize::new(round * 1_000_000));
    let mut clients: Vec<JoinHandle<Ended>> = Vec::new();
    let (url, again) = (server.url.clone(), account.unanswered());
    let first = say.clone();
    clients.push(std::thread::spawn(move || until_cut(again.into_iter(), &url, &first)));
    for _ in 0..PUBLISHERS {
        let (url, say, next) = (server.url.clone(), say.clone(), next.clone());
        let numbers = std::iter::repeat_with(move || next.fetch_add(1, Ordering::Relaxed));
        clients.push(std::thread::spawn(move || until_cut(numbers, &url, &say)));
    }
    for group in GROUPS {
        let (url, say) = (server.url.clone(), say.clone());
        clients.push(std::thread::spawn(move || consume(&url, group, &say, usize::MAX)));
    }
    drop(say);
    std::thread::sleep(Duration::from_micros(random.between(0, 150_000)));
    server.kill()?;
    let ended: Vec<Ended> = clients
        .into_iter()
        .map(|client| client.join().unwrap_or(Err("a client panicked".to_owned())))
        .collect();
    said.iter().try_for_each(|line: String| account.line(&line))?;
    ended.into_iter().collect()
}

/// Everything comes to every group, and the server stops in order.
fn last_life(data: &Path, account: &mut Account) -> Result<(), String> {
    let mut server = Server::start(data)?;
    put_groups(&server.url)?;
    let (say, said) = std::sync::mpsc::channel();
    for group in GROUPS {
        consume(&server.url, group, &say, 3)?;
    }
    drop(say);
    said.iter().try_for_each(|line: String| account.line(&line))?;
    account.line("drained")?;
    server.stop()?;
    account.check(data)?;
    account.check_drained()?;
    verify(data)
}

fn put_groups(url: &str) -> Result<(), String> {
    let mut client = Client::to(url).map_err(text)?;
    for group in GROUPS {
        let mut body = json!({"pattern": "#", "start": "beginning", "ack_deadline": "20s"});
        if group == "keyed" {
            (body["ordering"], body["key"]) = ("key".into(), "event.payload.k".into());
        }
        let path = format!("/v1/groups/{group}");
        let (status, answer) = client.ask("PUT", &path, &body.to_string()).map_err(text)?;
        if !matches!(status, 200 | 201) {
            return Err(format!("PUT {path}: {status} {answer}"));
        }
    }
    Ok(())
}

/// Publishes one after the other until the server is gone.
fn until_cut(numbers: impl Iterator<Item = usize>, url: &str, say: &Sender<String>) -> Ended {
    let Ok(mut client) = Client::to(url) else { return Ok(()) };
    for n in numbers {
        let _ = say.send(format!("try {n}"));
        let sent = numbered(n);
        let key = sent.key.map_or(String::new(), |key| format!(r#","key":"{key}""#));
        let body = format!(r#"{{"topic":"{}","payload":{}{key}}}"#, sent.topic, sent.body);
        match client.ask("POST", "/v1/events", &body) {
            Err(_) => return Ok(()),
            Ok((200 | 201, answer)) => {
                let _ = say.send(format!("ok {n} {}", answer["position"]));
            }
            Ok((503, _)) => return Ok(()),
            Ok((status, answer)) => return Err(format!("publish {n}: {status} {answer}")),
        }
    }
    Ok(())
}

/// Pulls and acks until the server is gone, or until `idle` pulls in a row found nothing.
fn consume(url: &str, group: &str, say: &Sender<String>, idle: usize) -> Ended {
    let Ok(mut client) = Client::to(url) else { return Ok(()) };
    let mut empty = 0;
    while empty < idle {
        let pulled = client.ask("POST", &format!("/v1/groups/{group}/pull"), r#"{"max":20,"wait":"50ms"}"#);
        let Ok((200, answer)) = pulled else { return Ok(()) };
        let deliveries = answer["deliveries"].as_array().cloned().unwrap_or_default();
        empty = if deliveries.is_empty() { empty + 1 } else { 0 };
        for delivery in &deliveries {
            let event = &delivery["event"];
            let _ = say.send(format!("got {group} {} {}", event["position"], event["payload"]["n"]));
        }
        if !settle(&mut client, group, &deliveries, say) {
            return Ok(());
        }
    }
    Ok(())
}

/// False when no answer came: the ack may have happened or not.
fn settle(client: &mut Client, group: &str, deliveries: &[Value], say: &Sender<String>) -> bool {
    let tokens: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["token"]).collect();
    let body = json!({"tokens": tokens, "sync": true}).to_string();
    let Ok((200, answer)) = client.ask("POST", &format!("/v1/groups/{group}/ack"), &body) else {
        return false;
    };
    let stale = answer["stale"].as_array().cloned().unwrap_or_default();
    for delivery in deliveries.iter().filter(|delivery| !stale.contains(&delivery["token"])) {
        let _ = say.send(format!("ack {group} {}", delivery["event"]["position"]));
    }
    true
}
