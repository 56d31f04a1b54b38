//! How benchmarks count: latencies, rates, and the machine they ran on, as the JSON of contracts §6.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// Every latency, in microseconds; a benchmark has few enough to keep them all.
#[derive(Clone, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn with_capacity(capacity: usize) -> Latencies {
        Latencies(Vec::with_capacity(capacity))
    }

    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency.as_micros().min(u128::from(u32::MAX)) as u32);
    }

    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    pub fn percentile_us(&self, percent: f64) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = ((sorted.len() as f64 - 1.0) * percent / 100.0).round().max(0.0) as usize;
        sorted.get(rank).copied().unwrap_or_default().into()
    }
}

/// How fast something went.
pub struct Rate {
    pub seconds: Duration,
    pub events: u64,
    pub latencies: Latencies,
    pub fsyncs: u64,
}

impl Rate {
    pub fn per_second(&self) -> f64 {
        self.events as f64 / self.seconds.as_secs_f64().max(1e-9)
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let mut out = Map::new();
        out.insert("seconds".into(), json!(round(self.seconds.as_secs_f64(), 4)));
        out.insert("events".into(), json!(self.events));
        out.insert("events_per_s".into(), json!(round(self.per_second(), 1)));
        for (name, percent) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0)] {
            out.insert(name.into(), json!(self.latencies.percentile_us(percent)));
        }
        out.insert("fsyncs".into(), json!(self.fsyncs));
        out
    }
}

pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// What the figures were measured on; `./x bench` says which commit it built.
pub fn machine(dir: &Path) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let commit = std::env::var("EVERWHEN_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    json!({"cores": cores, "fs": file_system(dir), "commit": commit})
}

/// The file system of the longest mount point above `dir`.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = entries.filter(|(point, _)| dir.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map_or("unknown".to_owned(), |(_, fs)| fs.to_owned())
}

/// Resident memory of this process, in MiB.
pub fn resident_mib() -> f64 {
    resident_mib_of("self")
}

/// The same of another process.
pub fn resident_mib_of(pid: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
    round(kib / 1024.0, 1)
}

/// `{"bench":name,"args":…}` with the fields of the result and the machine.
pub fn report(name: &str, args: Value, result: Map<String, Value>, dir: &Path) -> Value {
    let mut out = Map::new();
    out.insert("bench".into(), json!(name));
    out.insert("args".into(), args);
    out.extend(result);
    out.insert("machine".into(), machine(dir));
    Value::Object(out)
}
