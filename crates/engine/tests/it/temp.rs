//! A directory of its own for each test, gone when the test is over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::clock::ManualClock;
use engine::{Draft, Engine, Options, Tenant};
use model::{Position, Timestamp};
use serde_json::json;

pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("everwhen-engine-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An engine whose time only moves when told.
pub struct Bench {
    pub dir: TempDir,
    pub clock: Arc<ManualClock>,
    pub engine: Engine,
    pub tenant: Tenant,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Bench {
        Bench::on(TempDir::new(), Timestamp::parse("2026-01-01T00:00:00Z").unwrap(), change)
    }

    pub fn on(dir: TempDir, now: Timestamp, change: impl FnOnce(&mut Options)) -> Bench {
        let clock = Arc::new(ManualClock::at(now));
        let mut options = Options { clock: clock.clone(), seed: Some(7), ..Options::default() };
        change(&mut options);
        let engine = Engine::open_with(dir.path(), options).unwrap();
        let tenant = engine.main().unwrap();
        Bench { dir, clock, engine, tenant }
    }

    pub async fn publish(&self, topic: &str, n: i64) -> Position {
        self.engine.publish(Draft::new(topic, &json!({"n": n}))).await.unwrap().position().unwrap()
    }

    pub async fn pull(&self, group: &str, max: usize) -> Vec<engine::Delivery> {
        self.tenant.pull(group, max, Duration::ZERO).await.unwrap()
    }

    /// Time passes and everything due is done.
    pub fn pass(&self, seconds: f64) {
        self.clock.advance(Duration::from_secs_f64(seconds));
        self.tenant.tick();
    }

    /// Ends cleanly and opens again.
    pub async fn reopen(self) -> Bench {
        let now = engine::clock::Clock::now(self.clock.as_ref());
        self.engine.close().await.unwrap();
        let Bench { dir, engine, tenant, .. } = self;
        drop((engine, tenant));
        Bench::on(dir, now, |_| ())
    }
}

pub fn tokens(deliveries: &[engine::Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.token.to_string()).collect()
}

pub fn positions(deliveries: &[engine::Delivery]) -> Vec<Position> {
    deliveries.iter().map(|delivery| delivery.event.position).collect()
}

/// Copies a folder as it stands.
pub fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
