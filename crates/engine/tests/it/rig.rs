//! A tenant on a simulated disk, without threads: it can be crashed at any operation and opened again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::clock::ManualClock;
use engine::entropy::Entropy;
use engine::pool::Pool;
use engine::tenant::{Home, Opening, Surroundings};
use engine::{Caller, Delivery, Draft, Outcome, Receipt, Settings, Tenant};
use ledger::disk::{Disk, SimDisk};
use ledger::{FileLedger, Options, Prefill};
use model::{Position, Problem, Timestamp};
use serde_json::json;

pub struct Rig {
    pub disk: SimDisk,
    pub clock: Arc<ManualClock>,
    pub tenant: Tenant,
    settings: Settings,
    lives: u64,
}

const DIR: &str = "/ledger";

impl Rig {
    pub fn new() -> Rig {
        Rig::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Rig {
        let disk = SimDisk::new(7);
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-01T00:00:00Z").unwrap()));
        FileLedger::create(Arc::new(disk.clone()), Path::new(DIR), options()).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let tenant = open(&disk, &clock, &settings, 0).unwrap();
        Rig { disk, clock, tenant, settings, lives: 0 }
    }

    /// The power goes and comes back.
    pub fn crash(&mut self) {
        self.disk.power_cut();
        self.open_again();
    }

    /// The next life, after whatever ended the last.
    pub fn open_again(&mut self) {
        self.lives += 1;
        self.tenant = open(&self.disk, &self.clock, &self.settings, self.lives).unwrap();
    }

    pub async fn send(&self, draft: Draft) -> Result<Receipt, Problem> {
        match self.tenant.publish(&Caller::local(), draft).await? {
            Outcome::Recorded(receipt) => Ok(receipt),
            other => panic!("{other:?}"),
        }
    }

    pub async fn publish(&self, topic: &str, n: i64) -> Position {
        self.send(Draft::new(topic, &json!({"n": n}))).await.unwrap().position
    }

    pub async fn pull(&self, group: &str) -> Vec<Delivery> {
        self.tenant.pull(group, 100, Duration::ZERO).await.unwrap()
    }

    pub fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.tenant.tick();
    }

    pub fn dead(&self, group: &str) -> Vec<Position> {
        let page = self.tenant.dead_letters(group, 100, None).unwrap();
        page.dead_letters.iter().map(|letter| letter["position"].as_u64().unwrap()).collect()
    }
}

fn options() -> Options {
    Options { segment_bytes: 1 << 20, prefill: Prefill::Off, headroom: 64 << 10 }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>, settings: &Settings, life: u64) -> Result<Tenant, Problem> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (ledger, opened) = FileLedger::open(disk, Path::new(DIR), options()).unwrap();
    let around = Surroundings {
        telemetry: None,
        clock: clock.clone(),
        pool: Pool::inline(),
        bell: Arc::default(),
        health: Arc::default(),
        effects: Arc::default(),
        metrics: Arc::default(),
        settings: Arc::new(settings.clone()),
        on_fatal: Arc::new(|_| ()),
    };
    let home = Home::Ledger(Box::new(ledger), opened);
    let entropy = Entropy::seeded(life);
    Tenant::open(Opening { name: "main".to_owned(), home, layers: Vec::new(), entropy }, around)
}
