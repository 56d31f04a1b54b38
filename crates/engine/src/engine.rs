//! An open data directory: its lock, its tenants, the threads they share, and the timekeeper that wakes them.

#![expect(clippy::disallowed_methods, reason = "the data directory itself is opened and locked here")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger::disk::{Disk, OsDisk};
use model::event::Event;
use model::{Code, Problem};

use crate::admit::{Caller, Draft, Layer};
use crate::clock::{Clock, SystemClock};
use crate::command::Outcome;
use crate::deliver::lock;
use crate::deliver::push::{self, Handling, Subscription};
use crate::entropy::Entropy;
use crate::maintain::housekeeper::{self, Housekeeper};
use crate::metrics::Metrics;
use crate::pool::{Bell, Pool, Watch, supervise};
use crate::settings::Settings;
use crate::tenant::{Home, Opening, Surroundings, Tenant};

/// The tenant that is meant when none is named.
pub const DEFAULT_TENANT: &str = "main";
/// Threads that write for tenants; a tenant is served by one at a time.
const WRITERS: usize = 2;
/// The timekeeper looks around at least this often.
const LOOK_AROUND: Duration = Duration::from_secs(60);

pub struct Options {
    pub settings: Settings,
    pub layers: Vec<Arc<dyn Layer>>,
    pub clock: Arc<dyn Clock>,
    /// Makes ids, salts and tokens repeatable. Tests only.
    pub seed: Option<u64>,
    /// Whether a missing data directory is created.
    pub create: bool,
    pub ledger: ledger::Options,
    /// What the ledgers are written to: the machine's disk, or one that counts or fails.
    pub disk: Arc<dyn Disk>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            settings: Settings::default(),
            layers: Vec::new(),
            clock: Arc::new(SystemClock),
            seed: None,
            create: true,
            ledger: ledger::Options::default(),
            disk: Arc::new(OsDisk),
        }
    }
}

/// Whether the engine can do its work, and if not, what fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub ready: bool,
    pub failing: Vec<String>,
}

#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    dir: PathBuf,
    /// Held for as long as the engine lives; the kernel lets go of it when the process dies.
    _lock: File,
    options: Options,
    around: Surroundings,
    tenants: Mutex<BTreeMap<String, Tenant>>,
    /// Tenants that would not open, and why. The others serve.
    refused: Mutex<BTreeMap<String, Problem>>,
    closed: Arc<AtomicBool>,
    /// Calls the housekeeper before its time.
    chores: Arc<Bell>,
}

impl Engine {
    /// Opens a data directory with every default, making it if it is not there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Engine, Problem> {
        Engine::open_with(dir, Options::default())
    }

    pub fn open_with(dir: impl AsRef<Path>, options: Options) -> Result<Engine, Problem> {
        let dir = dir.as_ref().to_path_buf();
        prepare(&dir, options.create)?;
        let held = take_lock(&dir)?;
        let health = Arc::new(Watch::default());
        let around = Surroundings {
            clock: options.clock.clone(),
            pool: Pool::start(WRITERS, &health)?,
            bell: Arc::default(),
            health,
            metrics: Arc::default(),
            settings: Arc::new(options.settings.clone()),
            on_fatal: Arc::new(end_process),
        };
        let shared = Shared {
            dir,
            _lock: held,
            options,
            around,
            tenants: Mutex::default(),
            refused: Mutex::default(),
            closed: Arc::default(),
            chores: Arc::default(),
        };
        let engine = Engine(Arc::new(shared));
        engine.open_tenants()?;
        engine.start_timekeeper()?;
        engine.start_housekeeper()?;
        Ok(engine)
    }

    /// Every tenant that is there, and `main`. One that is damaged does not keep the others from serving.
    fn open_tenants(&self) -> Result<(), Problem> {
        let mut names = self.names_on_disk()?;
        if !names.iter().any(|name| name == DEFAULT_TENANT) {
            names.push(DEFAULT_TENANT.to_owned());
        }
        let alone = names.len() == 1;
        for name in names {
            match self.tenant(&name) {
                Ok(_) => {}
                Err(problem) if alone => return Err(problem),
                Err(problem) => {
                    tracing::error!(tenant = name, %problem, "this tenant does not open; the others serve");
                    lock(&self.0.refused).insert(name, problem);
                }
            }
        }
        Ok(())
    }

    fn names_on_disk(&self) -> Result<Vec<String>, Problem> {
        let tenants = self.0.dir.join("tenants");
        let entries = std::fs::read_dir(&tenants).map_err(|error| io_problem(&tenants, &error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| check_name(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.0.around.metrics.clone()
    }

    /// An open tenant, opened or created now if need be.
    pub fn tenant(&self, name: &str) -> Result<Tenant, Problem> {
        check_name(name)?;
        let mut tenants = lock(&self.0.tenants);
        if let Some(tenant) = tenants.get(name) {
            return Ok(tenant.clone());
        }
        if self.0.closed.load(Ordering::Acquire) {
            return Err(crate::tenant::closing());
        }
        let tenant = self.open_tenant(name)?;
        tenants.insert(name.to_owned(), tenant.clone());
        lock(&self.0.refused).remove(name);
        Ok(tenant)
    }

    fn open_tenant(&self, name: &str) -> Result<Tenant, Problem> {
        let parent = self.0.dir.join("tenants");
        let dir = parent.join(name);
        make_dir(&dir)?;
        let options = &self.0.options;
        let home = Home::Directory { disk: options.disk.clone(), dir, options: options.ledger };
        let entropy = options.seed.map_or_else(Entropy::kernel, Entropy::seeded);
        let opening = Opening { name: name.to_owned(), home, layers: options.layers.clone(), entropy };
        Tenant::open(opening, self.0.around.clone())
    }

    /// The tenant that is meant when none is named.
    pub fn main(&self) -> Result<Tenant, Problem> {
        self.tenant(DEFAULT_TENANT)
    }

    /// Whether there is such a tenant, open or refused for what is wrong with it.
    pub fn has_tenant(&self, name: &str) -> bool {
        lock(&self.0.tenants).contains_key(name) || lock(&self.0.refused).contains_key(name)
    }

    /// Every tenant that is open.
    pub fn tenants(&self) -> Vec<String> {
        lock(&self.0.tenants).keys().cloned().collect()
    }

    pub fn health(&self) -> Health {
        let mut failing = self.0.around.health.dead();
        let refused = lock(&self.0.refused);
        failing.extend(refused.iter().map(|(name, problem)| format!("tenant {name}: {problem}")));
        if self.0.around.metrics.is_storage_full() {
            failing.push("the disk is full: publishing is refused".to_owned());
        }
        if self.0.closed.load(Ordering::Acquire) {
            failing.push("shutting down".to_owned());
        }
        Health { ready: failing.is_empty(), failing }
    }

    /// Publishes to `main` as the local user; answers when it is durable.
    pub async fn publish(&self, draft: Draft) -> Result<Outcome, Problem> {
        self.main()?.publish(&Caller::local(), draft).await
    }

    /// Calls `handler` for every event of a subscription of `main`, at least once each, also over restarts.
    pub async fn subscribe<H, F>(&self, subscription: Subscription, handler: H) -> Result<(), Problem>
    where
        H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
        F: Future<Output = Handling> + Send + 'static,
    {
        self.main()?.subscribe(subscription, handler).await
    }

    /// Lets handlers finish, records acks and floors, syncs the end mark.
    pub async fn close(&self) -> Result<(), Problem> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let tenants: Vec<Tenant> = lock(&self.0.tenants).values().cloned().collect();
        let mut result = Ok(());
        for tenant in tenants {
            result = result.and(tenant.close().await);
        }
        self.0.around.bell.ring();
        self.0.chores.ring();
        self.0.around.pool.close();
        result
    }

    /// One thread wakes tenants when something is due: deadlines, retries, deferred publishes, unflushed acks.
    fn start_timekeeper(&self) -> Result<(), Problem> {
        let (shared, closed) = (Arc::downgrade(&self.0), self.0.closed.clone());
        let (bell, clock) = (self.0.around.bell.clone(), self.0.around.clock.clone());
        supervise("timekeeper", &self.0.around.health, move || {
            while !closed.load(Ordering::Acquire) {
                let Some(shared) = shared.upgrade() else { return };
                let tenants: Vec<Tenant> = lock(&shared.tenants).values().cloned().collect();
                drop(shared);
                let now = clock.boot();
                tenants.iter().filter(|t| t.next_tick().is_some_and(|due| due <= now)).for_each(Tenant::tick);
                let next = tenants.iter().filter_map(Tenant::next_tick).min();
                drop(tenants);
                bell.wait(next.map_or(LOOK_AROUND, |due| due.saturating_sub(clock.boot())).min(LOOK_AROUND));
            }
        })
    }
}

impl Engine {
    /// One thread does what tenants need now and then: trimming, sidecars, checkpoints, reading old data again.
    fn start_housekeeper(&self) -> Result<(), Problem> {
        let (shared, closed) = (Arc::downgrade(&self.0), self.0.closed.clone());
        let (chores, metrics) = (self.0.chores.clone(), self.0.around.metrics.clone());
        supervise("housekeeper", &self.0.around.health, move || {
            let mut housekeeper = Housekeeper::default();
            chores.wait(housekeeper::EVERY);
            while !closed.load(Ordering::Acquire) {
                let Some(shared) = shared.upgrade() else { return };
                let tenants: Vec<Tenant> = lock(&shared.tenants).values().cloned().collect();
                drop(shared);
                housekeeper.round(&tenants, &metrics);
                drop(tenants);
                chores.wait(housekeeper::EVERY);
            }
        })
    }
}

impl Tenant {
    /// Calls `handler` for every event of the subscription, at least once each, also over restarts. Creates the group if it is new.
    pub async fn subscribe<H, F>(&self, subscription: Subscription, handler: H) -> Result<(), Problem>
    where
        H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
        F: Future<Output = Handling> + Send + 'static,
    {
        self.put_group(&subscription.group, &subscription.definition).await?;
        push::start(self, &subscription, handler, &mut *self.0.workers.lock().await);
        Ok(())
    }
}

/// A failed fsync or a broken state: what was acknowledged is on the disk, and nothing more may be.
fn end_process(problem: &Problem) {
    // Nobody may be reading; that must not change how the process ends.
    let mut err = io::stderr();
    let _ = writeln!(err, "error: {problem}");
    if let Some(hint) = problem.hint_text() {
        let _ = writeln!(err, "help: {hint}");
    }
    std::process::exit(i32::from(problem.code().exit()));
}

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut bytes = name.bytes();
    let good = bytes.next().is_some_and(plain) && bytes.all(|b| plain(b) || b == b'_' || b == b'-');
    if good && name.len() <= 63 {
        return Ok(());
    }
    Err(Problem::new(Code::RequestInvalid, format!("\"{name}\" is not a tenant name"))
        .hint("use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit"))
}

fn prepare(dir: &Path, create: bool) -> Result<(), Problem> {
    if !create && !dir.join("tenants").is_dir() {
        return Err(Problem::new(
            Code::StoreNotFound,
            format!("there is no data directory at \"{}\"", dir.display()),
        )
        .hint("`everwhen init` makes one; `--data DIR` names another"));
    }
    std::fs::create_dir_all(dir).map_err(|error| io_problem(dir, &error))?;
    make_dir(&dir.join("tenants"))
}

/// Makes a folder whose name is durable when this returns.
fn make_dir(dir: &Path) -> Result<(), Problem> {
    match std::fs::create_dir(dir) {
        Ok(()) => {
            let parent = dir.parent().unwrap_or(Path::new("."));
            File::open(parent)
                .and_then(|folder| folder.sync_all())
                .map_err(|error| io_problem(parent, &error))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_problem(dir, &error)),
    }
}

/// One process per data directory. The file is never removed, so the lock is always on the same inode.
fn take_lock(dir: &Path) -> Result<File, Problem> {
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| io_problem(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Problem::new(Code::StoreLocked, format!("another process holds \"{}\"", dir.display()))
                .hint("stop it, or reach it with --server URL"))
        }
        Err(TryLockError::Error(error)) => Err(io_problem(&path, &error)),
    }
}

pub(crate) fn io_problem(path: &Path, error: &io::Error) -> Problem {
    let code = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Code::StorageReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::StorageFull,
        _ => Code::StorageFailed,
    };
    Problem::new(code, format!("\"{}\": {error}", path.display()))
        .hint("check the disk and the permissions of the data directory")
}
