//! One simulated run: clients, workers, time and misfortune around one real tenant, all drawn from one seed.
//!
//! Operations are the engine's own futures, polled by hand, so that the seed also decides what happens between two of
//! their steps, and which of them are dropped half way.

mod acts;
mod checks;
mod clients;
mod drain;
mod finish;
mod house;
mod lives;
mod operation;
mod rows;
mod workers;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::clock::Clock;
use engine::pool::Pool;
use engine::run::Effect;
use engine::{Follower, Tenant};
use ledger::disk::{Disk, SimDisk};
use model::Timestamp;

use crate::clock::SimClock;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::scratch::Scratch;
use operation::Operation;
use workers::Hand;

/// Most operations under way at once; beyond it the writer gets its turn.
const OPERATIONS_MAX: usize = 12;

/// What a run was like; equal for equal seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub events: usize,
    pub deliveries: usize,
    pub crashes: usize,
    pub faults: usize,
    /// Over every line of the transcript.
    pub hash: u64,
}

/// A promise that did not hold, and the way there.
#[derive(Debug)]
pub struct Broken {
    pub what: String,
    /// The last lines of the transcript.
    pub lines: Vec<String>,
}

/// What a run writes down: all of it goes into the hash, the end of it is kept.
#[derive(Default)]
pub struct Transcript {
    lines: std::collections::VecDeque<String>,
    hash: u64,
    pub aloud: bool,
}

impl Transcript {
    pub fn note(&mut self, line: String) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        }
        if self.aloud {
            println!("{line}");
        }
        self.lines.push_back(line);
        if self.lines.len() > 60 {
            self.lines.pop_front();
        }
    }
}

/// What a run is about, beside what every run is about.
#[derive(Clone, Copy)]
pub struct Temper {
    /// Trims do not wait for groups that lag behind.
    pub ruthless: bool,
    /// The process is killed again and again, and workers hardly come to answer.
    pub restless: bool,
    /// Clients also write rows. The other seeds are what they were without.
    pub rows: bool,
    /// Automations are at work; those need rows.
    pub acts: bool,
}

pub struct World {
    random: Random,
    disk: SimDisk,
    clock: Arc<SimClock>,
    /// `state.db` lies here; the ledger lies under the same name on the simulated disk.
    dir: PathBuf,
    _scratch: Scratch,
    tenant: Option<Tenant>,
    pool: Arc<Pool>,
    /// Why the process must stop, once it must.
    fatal: Arc<Mutex<Option<String>>>,
    /// The disk operation at which the planned fault strikes, and whether it takes the power.
    planned: Option<(u64, bool)>,
    /// Nothing has failed since the tenant opened.
    calm: bool,
    full: bool,
    temper: Temper,
    operations: Vec<Operation>,
    hands: Vec<Hand>,
    /// Effects that workers have, and those that workers of earlier lives may still answer.
    errands: Vec<Effect>,
    late: Vec<Effect>,
    /// Tokens of earlier lives: they must change nothing.
    stale: Vec<(&'static str, String)>,
    follower: Option<Follower>,
    followed: u64,
    oracle: Oracle,
    transcript: Transcript,
    summary: Summary,
    step: usize,
    lives: u64,
}

/// Runs one seed. `Err` names the promise that was broken.
pub fn run(seed: u64, steps: usize, aloud: bool) -> Result<Summary, Broken> {
    let mut world = match World::new(seed) {
        Ok(world) => world,
        Err(what) => return Err(Broken { what, lines: Vec::new() }),
    };
    world.transcript.aloud = aloud;
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live(steps)));
    let result = ran.unwrap_or_else(|panic| Err(format!("panicked: {}", words(panic.as_ref()))));
    let lines = world.transcript.lines.iter().cloned().collect();
    world.summary.hash = world.transcript.hash;
    if aloud && result.is_err() {
        world.print_ledger();
    }
    result.map(|()| world.summary.clone()).map_err(|what| Broken { what, lines })
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

impl World {
    fn new(seed: u64) -> Result<World, String> {
        let mut random = Random::new(seed);
        let temper = Temper {
            ruthless: random.once_in(3),
            restless: random.once_in(8),
            rows: seed % 3 != 2,
            acts: seed % 3 == 1,
        };
        let scratch = Scratch::in_memory().map_err(|error| error.to_string())?;
        let dir = scratch.path().join("tenant");
        std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
        let disk = SimDisk::new(random.number());
        disk.write_back_early(random.once_in(2));
        lives::make_dirs(&disk, &dir)?;
        let start = Timestamp::parse("2026-01-01T00:00:00Z").map_err(|problem| problem.to_string())?;
        let mut world = World {
            random,
            disk,
            clock: Arc::new(SimClock::at(start)),
            dir,
            _scratch: scratch,
            tenant: None,
            pool: Pool::inline(),
            fatal: Arc::default(),
            planned: None,
            calm: true,
            full: false,
            temper,
            operations: Vec::new(),
            hands: Vec::new(),
            errands: Vec::new(),
            late: Vec::new(),
            stale: Vec::new(),
            follower: None,
            followed: 0,
            oracle: Oracle::new()?,
            transcript: Transcript::default(),
            summary: Summary::default(),
            step: 0,
            lives: 0,
        };
        if world.random.once_in(2) {
            // The power may go while the ledger is made.
            world.plan_for_opening(8);
        }
        world.open()?;
        world.put_groups()?;
        if world.temper.rows {
            world.declare()?;
        }
        Ok(world)
    }

    fn print_ledger(&self) {
        let dir = self.dir.join("ledger");
        let mut names: Vec<String> =
            self.disk.list(&dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect();
        names.sort();
        for name in names.iter().filter(|name| name.ends_with(".jsonl")) {
            let bytes = self.disk.contents(&dir.join(name)).unwrap_or_default();
            println!("{}", String::from_utf8_lossy(&bytes).trim_end());
        }
    }

    fn live(&mut self, steps: usize) -> Result<(), String> {
        for step in 0..steps {
            self.step = step;
            self.take_step()?;
            self.meet_fate()?;
        }
        self.drain()?;
        self.summary.events = self.oracle.live.len();
        Ok(())
    }

    fn take_step(&mut self) -> Result<(), String> {
        if self.operations.len() >= OPERATIONS_MAX {
            self.pump();
            return self.poll_all();
        }
        let writes = if self.temper.rows { 20 } else { 0 };
        let people = if self.temper.acts { 10 } else { 0 };
        let weights = match self.temper.restless {
            true => [12, 24, 5, 16, 8, 3, 1, 1, 1, 2, 16, 4, 1, writes, people],
            false => [30, 14, 22, 16, 8, 10, 2, 1, 2, 4, 4, 4, 3, writes, people],
        };
        match self.random.weighted(&weights) {
            0 => self.start_publish(),
            1 => self.start_pull(),
            2 => self.answer_hands(),
            3 => self.poll_one(),
            4 => {
                self.pump();
                Ok(())
            }
            5 => self.pass_time(),
            6 => self.step_clock(),
            7 => self.drop_one(),
            8 => self.drag(),
            9 => self.administrate(),
            10 => self.misfortune(),
            11 => self.look_around(),
            12 => self.follow(),
            13 => self.start_write(),
            _ => self.operate(),
        }
    }

    fn note(&mut self, line: impl std::fmt::Display) {
        let line = format!("{:>4} {line}", self.step);
        self.transcript.note(line);
    }

    fn tenant(&self) -> &Tenant {
        self.tenant.as_ref().expect("a tenant is open between two steps")
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The writer's thread gets its turn.
    fn pump(&mut self) {
        self.pool.run_waiting();
    }

    fn pass_time(&mut self) -> Result<(), String> {
        let ms = match self.random.weighted(&[6, 3, 1]) {
            0 => self.random.between(1, 120),
            1 => self.random.between(100, 3_000),
            _ => self.random.between(3_000, 40_000),
        };
        self.clock.advance(Duration::from_millis(ms));
        self.note(format_args!("{ms} ms pass"));
        self.tick()
    }

    /// The timekeeper's look, when something is due.
    fn tick(&mut self) -> Result<(), String> {
        let due = self.tenant().next_tick().is_some_and(|due| due <= self.clock.boot());
        if !due {
            return Ok(());
        }
        for operation in &mut self.operations {
            operation.disturbed = true;
        }
        let settled = self.operations.is_empty() && self.calm;
        self.tenant().tick();
        if settled && self.fatal().is_none() {
            self.oracle.groups.values_mut().for_each(|truth| truth.harden());
        }
        Ok(())
    }

    fn step_clock(&mut self) -> Result<(), String> {
        let by = self.random.between(1, 100_000) as i128 * 1_000_000;
        let back = self.random.once_in(2);
        let to = self.now().nanos() + if back { -by } else { by };
        self.clock.step(Timestamp::from_nanos(to));
        self.operations.iter_mut().for_each(|operation| operation.disturbed = true);
        self.note(format_args!("the wall clock steps by {} ms", if back { -by } else { by } / 1_000_000));
        Ok(())
    }

    fn drag(&mut self) -> Result<(), String> {
        let ms = *self.random.pick(&[0, 0, 1, 30]);
        self.clock.drag(ms);
        self.note(format_args!("the disk takes {ms} ms"));
        Ok(())
    }

    /// A live stream reads on.
    fn follow(&mut self) -> Result<(), String> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        let events = match follower.try_next(20) {
            Ok(events) => events,
            // A read may meet the planned fault.
            Err(_) if self.planned.is_some() || !self.calm => return Ok(()),
            Err(problem) if problem.code() == model::Code::EventGone => {
                self.followed = self.tenant().first() - 1;
                return self.begin_following();
            }
            Err(problem) => return Err(format!("a follower was told: {problem}")),
        };
        for event in &events {
            if event.position <= self.followed {
                return Err(format!("a follower saw {} after {}", event.position, self.followed));
            }
            self.followed = event.position;
            self.oracle.show(event)?;
        }
        let at = self.followed;
        self.note(format_args!("follower at {at}"));
        Ok(())
    }

    fn fatal(&self) -> Option<String> {
        self.fatal.lock().expect("nothing panics while it holds it").clone()
    }
}
