//! Durable publishing: N connections, each with one publish under way, for a fixed time.

use std::io;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::driver::Driver;
use crate::wire::Peer;

/// How fast one run went.
#[derive(Clone, Copy)]
pub struct Rate {
    pub per_s: f64,
    pub p50_us: u32,
    pub p95_us: u32,
}

impl Rate {
    pub fn of(mut latencies: Vec<u32>, took: Duration) -> Rate {
        latencies.sort_unstable();
        let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default();
        Rate { per_s: latencies.len() as f64 / took.as_secs_f64(), p50_us: at(50), p95_us: at(95) }
    }
}

pub fn micros(latency: Duration) -> u32 {
    latency.as_micros().min(u128::from(u32::MAX)) as u32
}

/// A JSON object of `bytes` bytes that begins with `sent`.
pub fn payload(sent: u128, bytes: usize) -> String {
    let frame = format!(r#"{{"sent":"{sent}","note":""}}"#).len();
    format!(r#"{{"sent":"{sent}","note":"{}"}}"#, "x".repeat(bytes.saturating_sub(frame)))
}

/// The first tenth is not counted: buffers grow, files are extended, connections meet for the first time.
pub fn run(peer: Peer, publishers: usize, plan: &Plan) -> io::Result<Rate> {
    let mut driver = Driver::open(peer, publishers, &payload(0, plan.bytes))?;
    let counted = Instant::now() + plan.seconds / 10;
    let latencies = driver.run(counted, counted + plan.seconds)?;
    Ok(Rate::of(latencies, counted.elapsed()))
}
