//! The world of a scenario: a whole tenant on a simulated disk, whose clock moves only when told and stops wherever
//! something is due.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::clock::{Clock, ManualClock};
use engine::entropy::Entropy;
use engine::pool::Pool;
use engine::tenant::{Home, Opening, Surroundings};
use engine::{Caller, Settings, Tenant};
use ledger::disk::{Disk, SimDisk};
use ledger::{FileLedger, Options, Prefill};
use model::definition::Definition;
use model::{Code, Position, Problem, Timestamp};

use super::chronicle::Chronicle;
use super::effects::Effects;

const DIR: &str = "/ledger";
/// The same for every play, so that a scenario always goes the same way.
const SEED: u64 = 7;
/// Rounds of work at one instant after which a scenario is said to run in circles.
const ROUNDS_MAX: usize = 100_000;

pub struct World {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    pool: Arc<Pool>,
    pub tenant: Tenant,
    pub chronicle: Chronicle,
    pub effects: Effects,
    /// Where the scenario itself begins; what is given stands before it.
    pub began: Position,
    lives: u64,
    /// Drives what answers later; nothing here really waits.
    calls: tokio::runtime::Runtime,
}

impl World {
    pub fn new(start: Timestamp, effects: Effects) -> Result<World, Problem> {
        let disk = SimDisk::new(SEED);
        FileLedger::create(Arc::new(disk.clone()), Path::new(DIR), options()).map_err(failed)?;
        disk.sync_dir(Path::new("/")).map_err(failed)?;
        let clock = Arc::new(ManualClock::at(start));
        let pool = Pool::inline();
        let tenant = open(&disk, &clock, &pool, 0)?;
        let calls = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let chronicle = Chronicle::default();
        Ok(World { disk, clock, pool, tenant, chronicle, effects, began: 0, lives: 0, calls })
    }

    pub fn apply(&self, definitions: Vec<Definition>) -> Result<(), Problem> {
        self.calls.block_on(self.tenant.apply("scenario", definitions)).map(drop)
    }

    pub fn caller(&self) -> Caller {
        Caller::local()
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Does all that is due now, and what follows from it.
    pub fn settle(&mut self) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            self.pool.run_waiting();
            if self.tenant.next_tick().is_some_and(|due| due <= self.clock.boot()) {
                self.tenant.tick();
            } else if !self.effects.answer(&self.tenant)? {
                return Ok(());
            }
        }
        Err(Problem::new(Code::QuotaExceeded, format!("at {} the work never ends", self.now()))
            .hint("an automation probably starts itself again and again"))
    }

    /// As [`World::settle`], and reads what became of it.
    pub fn look(&mut self) -> Result<(), Problem> {
        self.settle()?;
        self.chronicle.follow(&self.tenant)
    }

    /// Time passes: from one due instant to the next, each done with before the next comes.
    pub fn advance_to(&mut self, to: Timestamp) -> Result<(), Problem> {
        self.settle()?;
        while let Some(due) = self.tenant.next_tick() {
            let by = due.saturating_sub(self.clock.boot());
            if self.now().plus(by) > to {
                break;
            }
            self.clock.advance(by);
            self.settle()?;
        }
        self.clock.advance(to.since(self.now()));
        self.settle()
    }

    /// The process ends, cleanly or by the power; after `down` it begins again.
    pub fn restart(&mut self, kill: bool, down: Duration) -> Result<(), Problem> {
        if kill {
            self.pool.forget_waiting();
            self.disk.power_cut();
        } else {
            self.calls.block_on(self.tenant.close())?;
        }
        self.clock.advance(down);
        self.lives += 1;
        self.pool = Pool::inline();
        self.tenant = open(&self.disk, &self.clock, &self.pool, self.lives)?;
        self.tenant.tick();
        self.settle()
    }
}

fn options() -> Options {
    Options { segment_bytes: 1 << 20, prefill: Prefill::Off, headroom: 64 << 10 }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>, pool: &Arc<Pool>, life: u64) -> Result<Tenant, Problem> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (ledger, opened) = FileLedger::open(disk, Path::new(DIR), options()).map_err(failed)?;
    let around = Surroundings {
        telemetry: None,
        clock: clock.clone(),
        pool: pool.clone(),
        bell: Arc::default(),
        health: Arc::default(),
        effects: Arc::default(),
        metrics: Arc::default(),
        settings: Arc::new(Settings::default()),
        on_fatal: Arc::new(|_| ()),
    };
    let home = Home::Ledger(Box::new(ledger), opened);
    let entropy = Entropy::seeded(life);
    let tenant =
        Tenant::open(Opening { name: "main".to_owned(), home, layers: Vec::new(), entropy }, around)?;
    tenant.pretend_outside()?;
    Ok(tenant)
}

fn failed(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Internal, format!("the simulated disk failed: {error}"))
}
