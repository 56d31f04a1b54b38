//! Maintenance beside a running engine: what it promises, and what it must never take away.

mod backup;
mod erase;
mod forget;
mod retention;
mod sidecars;
mod together;
mod told;
mod verify;

use std::path::{Path, PathBuf};

use engine::state::State;
use engine::{Draft, Engine, Options};
use model::Position;
use serde_json::json;

use crate::temp::{Bench, TempDir};

/// Segments so small that a handful of events fills one.
pub fn small(options: &mut Options) {
    options.ledger.segment_bytes = 2_000;
    options.ledger.headroom = 0;
}

pub fn dump(path: &Path) -> Vec<String> {
    let state = State::copy_of(path).unwrap();
    let mut lines = Vec::new();
    state.dump(|line| lines.push(line.to_owned())).unwrap();
    lines
}

pub fn segments(dir: &Path) -> Vec<PathBuf> {
    files(&dir.join("tenants/main/ledger"), "jsonl")
}

pub fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

/// A file that its engine has renamed or removed meanwhile is read under its next name, or holds nothing.
fn read(path: &Path) -> Vec<u8> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read.unwrap(),
    }
}

/// Files below `dir` that hold these bytes.
pub fn holding(dir: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, needle));
        } else if read(&path).windows(needle.len()).any(|w| w == needle.as_bytes()) {
            found.push(path);
        }
    }
    found
}

pub async fn publish_keyed(engine: &Engine, topic: &str, n: i64) -> Position {
    let draft =
        Draft { key: Some(format!("k{n}")), ..Draft::new(topic, &json!({"n": n, "pad": "x".repeat(100)})) };
    engine.publish(draft).await.unwrap().position().unwrap()
}

/// Closes, throws the derived state away, opens again; the dumps before and after.
pub async fn rebuilt(bench: Bench) -> (Vec<String>, Vec<String>, TempDir) {
    bench.engine.close().await.unwrap();
    let Bench { dir, engine, tenant, clock } = bench;
    drop((engine, tenant));
    let path = dir.path().join("tenants/main/state.db");
    let before = dump(&path);
    std::fs::remove_file(&path).unwrap();
    // Closed, and not only dropped: its threads would go on while the directory is taken away.
    // On the same clock: by that of the machine all that waits would be long due.
    let options = Options { clock, ..Options::default() };
    Engine::open_with(dir.path(), options).unwrap().close().await.unwrap();
    (before, dump(&path), dir)
}
