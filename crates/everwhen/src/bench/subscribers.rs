//! `bench subscribers`: many WebSockets that hear nothing, what each weighs, and how soon one event reaches those that listen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use model::Problem;
use serde_json::{Map, Value, json};

use super::failed;
use super::http::Served;
use super::measure::{Latencies, report, resident_mib, round};

#[derive(Clone, Copy)]
pub struct Load {
    pub subscribers: usize,
    /// How many of them listen to what is published.
    pub live: usize,
    pub events: usize,
}

/// A buffer of its own for each, small: the clients' memory is counted, too.
type Socket = BufReader<TcpStream>;

pub fn run(dir: &Path, load: Load, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let served = Served::start(dir)?;
    // The first makes everything that is made once.
    let first = subscribed(served.address, "bench.idle")?;
    let before = resident_mib();
    let mut sockets = Vec::with_capacity(load.subscribers);
    for n in 0..load.subscribers {
        let topic = if n < load.live { "bench.live" } else { "bench.idle" };
        sockets.push(subscribed(served.address, topic)?);
        progress(n as u64 + 1);
    }
    let bytes_each = (resident_mib() - before).max(0.0) * 1_048_576.0 / load.subscribers.max(1) as f64;
    let live = &mut sockets[..load.live.min(load.subscribers)];
    let (mut latencies, mut last) = (Latencies::default(), Latencies::default());
    for _ in 0..load.events {
        let begun = Instant::now();
        publish(served.address)?;
        for socket in live.iter_mut() {
            frame(socket)?;
            latencies.add(begun.elapsed());
        }
        last.add(begun.elapsed());
    }
    drop((first, sockets));
    served.stop()?;
    let mut result = Map::new();
    result.insert("subscribers".into(), json!(load.subscribers));
    result.insert("bytes_per_subscriber".into(), json!(round(bytes_each, 0)));
    result.insert("fan_out".into(), json!(load.live));
    for (name, percent) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0)] {
        result.insert(name.into(), json!(latencies.percentile_us(percent)));
    }
    result.insert("last_p50_us".into(), json!(last.percentile_us(50.0)));
    let args = json!({"subscribers": load.subscribers, "live": load.live, "events": load.events});
    Ok(report("subscribers", args, result, dir))
}

fn subscribed(address: SocketAddr, topic: &str) -> Result<Socket, Problem> {
    let mut socket = connected(address)?;
    let head = "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.get_mut().write_all(head.as_bytes()).map_err(failed)?;
    let mut line = String::new();
    socket.read_line(&mut line).map_err(failed)?;
    if !line.contains(" 101 ") {
        return Err(failed(format!("the WebSocket was answered {line:?}")));
    }
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).map_err(failed)?;
    }
    let subscribe = json!({"subscription_id": "s", "kind": 550, "filter": topic});
    let text = json!({"message_id": "1", "payload": {"subscribe": subscribe}}).to_string();
    // Masked with zeros, which changes nothing.
    let mut message = vec![0x81, 0x80 | 126];
    message.extend((text.len() as u16).to_be_bytes());
    message.extend([0; 4]);
    message.extend(text.as_bytes());
    socket.get_mut().write_all(&message).map_err(failed)?;
    frame(&mut socket)?;
    Ok(socket)
}

fn connected(address: SocketAddr) -> Result<Socket, Problem> {
    let socket = TcpStream::connect(address).map_err(|error| {
        failed(error).hint("two files are open for each subscriber: `ulimit -n 25000` allows more")
    })?;
    socket.set_read_timeout(Some(Duration::from_secs(30))).map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    Ok(BufReader::with_capacity(1024, socket))
}

/// Reads one frame; pings are passed over.
fn frame(socket: &mut Socket) -> Result<(), Problem> {
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head).map_err(failed)?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                socket.read_exact(&mut length).map_err(failed)?;
                u16::from_be_bytes(length).into()
            }
            length => u64::from(length),
        };
        std::io::copy(&mut socket.by_ref().take(length), &mut std::io::sink()).map_err(failed)?;
        if head[0] == 0x81 {
            return Ok(());
        }
    }
}

fn publish(address: SocketAddr) -> Result<(), Problem> {
    let mut socket = connected(address)?;
    let body = r#"{"topic":"bench.live","payload":{"n":1}}"#;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.get_mut().write_all(head.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map_err(failed)?;
    if !answer.contains(" 201 ") {
        return Err(failed(format!("a publish was answered {answer:?}")));
    }
    Ok(())
}
