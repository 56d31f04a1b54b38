//! `bench route`: from a topic to every pattern it meets, with many patterns against few.

use std::path::Path;
use std::time::{Duration, Instant};

use model::Problem;
use model::topic::Pattern;
use model::topic::trie::Trie;
use serde_json::{Map, Value, json};

use super::measure::{report, round};

/// The same topics are routed through both tries, so that only the number of patterns differs.
const TOPICS: usize = 1_000;

pub fn run(dir: &Path, patterns: usize) -> Result<Value, Problem> {
    let topics: Vec<String> =
        (0..TOPICS).map(|i| format!("site{}.room{}.sensor.reading", i % 50, i)).collect();
    let few = best(&trie(TOPICS)?, &topics);
    let many = best(&trie(patterns)?, &topics);
    let per_s = |time: Duration| TOPICS as f64 / time.as_secs_f64().max(1e-12);
    let mut result = Map::new();
    result.insert("topics_per_s".into(), json!(round(per_s(many), 0)));
    result.insert("topics_per_s_with_1000_patterns".into(), json!(round(per_s(few), 0)));
    result.insert("cost_ratio".into(), json!(round(many.as_secs_f64() / few.as_secs_f64().max(1e-12), 3)));
    Ok(report("route", json!({"patterns": patterns}), result, dir))
}

/// Literals, one-word and many-word wildcards and globs inside words, in turn. The topics meet the first thousand.
fn trie(patterns: usize) -> Result<Trie<u32>, Problem> {
    let mut trie = Trie::new();
    for i in 0..patterns {
        let (site, room) = (i % 50, i);
        let text = match i % 4 {
            0 => format!("site{site}.room{room}.sensor.reading"),
            1 => format!("site{site}.room{room}.*.reading"),
            2 => format!("site{site}.room{room}.#"),
            _ => format!("site{site}.room{room}.sens*.reading"),
        };
        trie.insert(&Pattern::parse(&text)?, i as u32);
    }
    Ok(trie)
}

/// The best of many passes: what it costs when nothing else runs.
fn best(trie: &Trie<u32>, topics: &[String]) -> Duration {
    let mut found = Vec::new();
    let pass = |found: &mut Vec<u32>| {
        let started = Instant::now();
        for topic in topics {
            found.clear();
            trie.receivers(topic, found);
            std::hint::black_box(&found);
        }
        started.elapsed()
    };
    (0..200).map(|_| pass(&mut found)).min().unwrap_or_default()
}
