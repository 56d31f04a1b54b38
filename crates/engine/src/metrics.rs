//! What the bus counts about itself on the path of an event; the `/metrics` door turns it into text.
//!
//! Counting must cost next to nothing and must not grow without bound: plain atomics, fixed buckets, and at most
//! [`TOPICS_MAX`] topics and [`GROUPS_MAX`] groups per topic; whatever comes later is counted under [`OTHER`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

pub mod automations;
#[cfg(test)]
mod tests;

/// Most values of the label `topic` (contracts §13).
pub const TOPICS_MAX: usize = 200;
/// Most values of the label `group` under one topic.
pub const GROUPS_MAX: usize = 1_000;
/// The label of everything beyond those.
pub const OTHER: &str = "_other";

/// Upper ends of the histograms' buckets, in seconds; one more bucket takes what is longer.
pub const BUCKETS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters of one engine, shared by its tenants.
#[derive(Default)]
pub struct Metrics {
    topics: Named<Topic>,
    queries: Named<Histogram>,
    append_sync: Histogram,
    storage_full: AtomicBool,
    spans_lost: AtomicU64,
    pub attention: Arc<Verdicts>,
    pub automations: automations::Automations,
}

/// How often attention rules said what.
#[derive(Default)]
pub struct Verdicts([AtomicU64; VERDICTS.len()]);

/// What attention rules may say.
const VERDICTS: [&str; 4] = ["admit", "defer", "boost", "drop"];

impl Verdicts {
    pub fn given(&self, verdict: &str) {
        if let Some(at) = VERDICTS.iter().position(|known| *known == verdict) {
            self.0[at].fetch_add(1, Relaxed);
        }
    }

    pub fn read(&self) -> [(&'static str, u64); VERDICTS.len()] {
        std::array::from_fn(|at| (VERDICTS[at], self.0[at].load(Relaxed)))
    }
}

/// What is counted per topic.
#[derive(Default)]
pub struct Topic {
    /// From the call to the answer of a publish.
    pub publish: Histogram,
    dead: AtomicU64,
    groups: Named<Handled>,
}

/// What is counted per topic and group.
#[derive(Default)]
pub struct Handled {
    ok: AtomicU64,
    err: AtomicU64,
    /// From the hand-out of a delivery to its ack or nack.
    pub seconds: Histogram,
}

impl Metrics {
    /// A publish was answered, `seconds` after it was asked for.
    pub fn observe_publish(&self, topic: &str, seconds: f64) {
        self.topics.get(topic, TOPICS_MAX).publish.observe(seconds);
    }

    /// A delivery ended, `seconds` after it was handed out: `ok` when acked.
    pub fn handled(&self, topic: &str, group: &str, ok: bool, seconds: f64) {
        let handled = self.topics.get(topic, TOPICS_MAX).groups.get(group, GROUPS_MAX);
        let count = if ok { &handled.ok } else { &handled.err };
        count.fetch_add(1, Relaxed);
        handled.seconds.observe(seconds);
    }

    /// A declared query was answered.
    pub fn queried(&self, query: &str, seconds: f64) {
        self.queries.get(query, TOPICS_MAX).observe(seconds);
    }

    /// Every query answered so far, by name.
    pub fn queries(&self) -> Vec<(Arc<str>, Arc<Histogram>)> {
        self.queries.all()
    }

    /// An event became a dead letter of a group.
    pub fn dead(&self, topic: &str) {
        self.topics.get(topic, TOPICS_MAX).dead.fetch_add(1, Relaxed);
    }

    /// A batch was appended and synced.
    pub fn synced(&self, seconds: f64) {
        self.append_sync.observe(seconds);
    }

    pub fn storage_full(&self, full: bool) {
        self.storage_full.store(full, Relaxed);
    }

    pub fn is_storage_full(&self) -> bool {
        self.storage_full.load(Relaxed)
    }

    /// Spans that nobody took.
    pub fn lost_spans(&self, spans: u64) {
        self.spans_lost.fetch_add(spans, Relaxed);
    }

    pub fn spans_lost(&self) -> u64 {
        self.spans_lost.load(Relaxed)
    }

    pub fn append_sync(&self) -> &Histogram {
        &self.append_sync
    }

    /// Every topic counted so far, by name.
    pub fn topics(&self) -> Vec<(Arc<str>, Arc<Topic>)> {
        self.topics.all()
    }
}

impl Topic {
    pub fn dead_letters(&self) -> u64 {
        self.dead.load(Relaxed)
    }

    /// Every group that handled an event of this topic, by name.
    pub fn groups(&self) -> Vec<(Arc<str>, Arc<Handled>)> {
        self.groups.all()
    }
}

impl Handled {
    pub fn ok(&self) -> u64 {
        self.ok.load(Relaxed)
    }

    pub fn err(&self) -> u64 {
        self.err.load(Relaxed)
    }
}

/// A histogram of durations over [`BUCKETS`].
#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    sum_nanos: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How many took at most the bucket's upper end, for each of [`BUCKETS`].
    pub cumulative: [u64; BUCKETS.len()],
    pub count: u64,
    /// In seconds.
    pub sum: f64,
}

impl Histogram {
    pub fn observe(&self, seconds: f64) {
        let bucket = BUCKETS.partition_point(|end| *end < seconds);
        self.counts[bucket].fetch_add(1, Relaxed);
        // A float cast to an integer saturates, so a clock that went back counts as zero.
        self.sum_nanos.fetch_add((seconds * 1e9) as u64, Relaxed);
    }

    /// `count` is made of the buckets themselves, so that it fits them while others go on counting.
    pub fn read(&self) -> Reading {
        let mut count = 0;
        let cumulative = std::array::from_fn(|i| {
            count += self.counts[i].load(Relaxed);
            count
        });
        count += self.counts[BUCKETS.len()].load(Relaxed);
        Reading { cumulative, count, sum: self.sum_nanos.load(Relaxed) as f64 / 1e9 }
    }
}

/// A growing set of named counters with a bound; one read lock and one look-up when the name is known.
struct Named<T>(RwLock<HashMap<Arc<str>, Arc<T>>>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(RwLock::new(HashMap::new()))
    }
}

impl<T: Default> Named<T> {
    fn get(&self, name: &str, names_max: usize) -> Arc<T> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(name) {
            return found.clone();
        }
        // Once the set is full, unknown names need no write lock.
        if known.len() > names_max
            && let Some(other) = known.get(OTHER)
        {
            return other.clone();
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let others = usize::from(known.contains_key(OTHER));
        let full = known.len() - others >= names_max && !known.contains_key(name);
        let name = if full { OTHER } else { name };
        known.entry(Arc::from(name)).or_default().clone()
    }

    fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = known.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
