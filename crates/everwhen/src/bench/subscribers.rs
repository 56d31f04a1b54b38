//! `bench subscribers`: many WebSockets that hear nothing, what each weighs, and how soon one event reaches those that listen.
//!
//! The server is a process of its own: what a subscriber weighs is then the server's alone, and each of the two has one open
//! file for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::Problem;
use serde_json::{Map, Value, json};

use super::failed;
use super::measure::{Latencies, report, resident_mib_of, round};

#[derive(Clone, Copy)]
pub struct Load {
    pub subscribers: usize,
    /// How many of them listen to what is published.
    pub live: usize,
    pub events: usize,
}

type Socket = BufReader<TcpStream>;

/// `everwhen serve` beside this process, until it is dropped.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Serving {
    fn start(dir: &Path) -> Result<Serving, Problem> {
        let exe = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(exe)
            .args(["serve", "--no-auth", "--json", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut ready = String::new();
        if let Some(out) = child.stdout.as_mut() {
            BufReader::new(out).read_line(&mut ready).map_err(failed)?;
        }
        let said: Value = serde_json::from_str(&ready).unwrap_or_default();
        let address = said["url"].as_str().and_then(|url| url.strip_prefix("http://")?.parse().ok());
        match address {
            Some(address) => Ok(Serving { child, address }),
            None => Err(failed(format!("the server said {ready:?}"))),
        }
    }

    fn resident_mib(&self) -> f64 {
        resident_mib_of(&self.child.id().to_string())
    }
}

impl Drop for Serving {
    /// What it wrote is thrown away.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(dir: &Path, load: Load, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let served = Serving::start(dir)?;
    // The first makes everything that is made once.
    let first = subscribed(served.address, "bench.idle")?;
    let before = served.resident_mib();
    let mut sockets = Vec::with_capacity(load.subscribers);
    for n in 0..load.subscribers {
        let topic = if n < load.live { "bench.live" } else { "bench.idle" };
        sockets.push(subscribed(served.address, topic)?);
        progress(n as u64 + 1);
    }
    let bytes_each = (served.resident_mib() - before).max(0.0) * 1_048_576.0 / load.subscribers.max(1) as f64;
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
        failed(error)
            .hint("a file is open for each subscriber, here and in the server: `ulimit -n` allows more")
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
