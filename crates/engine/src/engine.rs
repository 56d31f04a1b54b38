//! An open data directory: its lock, its tenants, the threads they share, and the timekeeper that wakes them.

#![expect(clippy::disallowed_methods, reason = "the data directory itself is opened and locked here")]

mod due;
mod house;
mod keepers;
mod tenants;
mod told;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger::disk::{Disk, OsDisk};
use model::event::Event;
use model::{Code, Problem};
use tokio::sync::{oneshot, watch};

use crate::admit::{Caller, Draft, Layer};
use crate::authority::Authority;
use crate::clock::{Clock, SystemClock};
use crate::command::Outcome;
use crate::deliver::lock;
use crate::deliver::push::{self, Handling, Subscription};
use crate::effect::workers::Workers;
use crate::metrics::Metrics;
use crate::pool::{self, Bell, Pool, Watch, supervise};
use crate::settings::Settings;
use crate::telemetry::{self, Telemetry};
use crate::tenant::{Surroundings, Tenant};
use due::Closed;
use house::House;
pub use house::no_tenant;

/// The tenant that is meant when none is named.
pub const DEFAULT_TENANT: &str = "main";
/// Threads that write for tenants; a tenant is served by one at a time.
const WRITERS: usize = 2;
/// Threads that end tenants when the engine closes.
const CLOSERS: usize = 16;
/// How long an engine that closes waits for effects that are out; what takes longer is tried again after the next start.
const EFFECTS_MOST: Duration = Duration::from_secs(5);

pub struct Options {
    pub settings: Settings,
    pub layers: Vec<Arc<dyn Layer>>,
    pub clock: Arc<dyn Clock>,
    /// Makes ids, salts and tokens repeatable. Tests only.
    pub seed: Option<u64>,
    /// Whether a missing data directory is created.
    pub create: bool,
    pub ledger: ledger::Options,
    /// Whether requests of runs are made here. If not, they wait for a process that makes them.
    pub effects: bool,
    /// What the ledgers are written to: the machine's disk, or one that counts or fails.
    pub disk: Arc<dyn Disk>,
    /// Where spans go.
    pub telemetry: Option<telemetry::Settings>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            settings: Settings::default(),
            layers: Vec::new(),
            clock: Arc::new(SystemClock),
            seed: None,
            create: true,
            effects: true,
            ledger: ledger::Options::default(),
            disk: Arc::new(OsDisk),
            telemetry: None,
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
    /// The open ones.
    tenants: Mutex<BTreeMap<String, Tenant>>,
    /// Held while a tenant is opened or closed, so that there is never a second one on the same files.
    gates: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Those that are not open, and when they must be.
    closed_tenants: Mutex<BTreeMap<String, Closed>>,
    /// Tenants that would not open, and why. The others serve.
    refused: Mutex<BTreeMap<String, Problem>>,
    closed: Arc<AtomicBool>,
    /// Calls the housekeeper before its time.
    chores: Arc<Bell>,
    /// Calls the opener: a closed tenant is due.
    openings: Arc<Bell>,
    /// Calls the historian: runs did something.
    histories: Arc<Bell>,
    /// Changes when a tenant begins to be.
    births: watch::Sender<()>,
    /// Held by whoever opens what is due, so that one who comes later finds it done.
    opening: Mutex<()>,
    /// Held by whoever moves a clock that stands still otherwise.
    moving: Mutex<()>,
    /// Who makes the requests of runs.
    workers: Option<Arc<Workers>>,
    authority: Authority,
    house: House,
}

impl Drop for Shared {
    /// Another process may hold the directory from here on: a worker that is still out must not write there.
    fn drop(&mut self) {
        self.workers.iter().for_each(|workers| workers.abandon());
        lock(&self.tenants).values().for_each(Tenant::stop_effects);
    }
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
        let metrics: Arc<Metrics> = Arc::default();
        let told = options.telemetry.clone();
        let start = |settings| Telemetry::start(settings, options.clock.clone(), metrics.clone(), &health);
        let telemetry = told.map(start).transpose()?;
        let around = Surroundings {
            clock: options.clock.clone(),
            pool: Pool::start(WRITERS, &health)?,
            bell: Arc::default(),
            health,
            effects: Arc::default(),
            metrics,
            telemetry,
            settings: Arc::new(options.settings.clone()),
            on_fatal: Arc::new(end_process),
        };
        let workers = options
            .effects
            .then(|| Workers::new(&options.settings.effects, around.effects.clone()))
            .transpose()?;
        let (authority, house) = (Authority::open(&dir)?, House::open(&dir)?);
        let shared = Shared {
            dir,
            _lock: held,
            options,
            around,
            tenants: Mutex::default(),
            gates: Mutex::default(),
            closed_tenants: Mutex::default(),
            refused: Mutex::default(),
            closed: Arc::default(),
            chores: Arc::default(),
            openings: Arc::default(),
            histories: Arc::default(),
            births: watch::Sender::new(()),
            opening: Mutex::default(),
            moving: Mutex::default(),
            workers,
            authority,
            house,
        };
        let engine = Engine(Arc::new(shared));
        engine.begin_tenants()?;
        engine.start_timekeeper()?;
        engine.start_housekeeper()?;
        engine.start_opener()?;
        engine.start_workers()?;
        engine.start_historian()?;
        Ok(engine)
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// The engine's time.
    pub fn now(&self) -> model::Timestamp {
        self.0.around.clock.now()
    }

    /// The machine's own time, which only goes on.
    pub fn real(&self) -> Duration {
        self.0.around.clock.real()
    }

    /// Who may do what here.
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.0.around.metrics.clone()
    }

    pub fn health(&self) -> Health {
        let mut failing = self.0.around.health.dead();
        let refused = lock(&self.0.refused);
        failing.extend(refused.iter().map(|(name, problem)| format!("tenant {name}: {problem}")));
        if self.0.around.metrics.is_storage_full() {
            failing.push("the disk is full: publishing is refused".to_owned());
        }
        drop(refused);
        for tenant in self.open_tenants() {
            let ahead = tenant.schedules_ahead().unwrap_or_default();
            failing.extend(ahead.into_iter().map(|said| format!("tenant {}: {said}", tenant.name())));
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

    /// Sends an event that nobody published where a push leads, and tells what came of it.
    pub async fn test_push(&self, tenant: &Tenant, name: &str) -> Result<serde_json::Value, Problem> {
        let push = tenant.push(name)?;
        match &self.0.workers {
            Some(workers) => workers.senders.test(tenant, push).await,
            None => Err(Problem::new(Code::UsageInvalid, "pushes are sent by a running server")
                .hint("start one with: everwhen serve")),
        }
    }

    /// Lets handlers finish, records acks and floors, syncs the end mark.
    pub async fn close(&self) -> Result<(), Problem> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let tenants = self.open_tenants();
        tenants.iter().for_each(Tenant::begin_close);
        for tenant in &tenants {
            tenant.drain().await;
        }
        if let Some(workers) = &self.0.workers {
            workers.senders.abandon();
            workers.finish(EFFECTS_MOST).await;
        }
        tenants.iter().for_each(Tenant::stop_effects);
        drop(tenants);
        let ended = self.end_all().await.and(self.0.authority.save());
        let around = &self.0.around;
        for bell in [&around.bell, &around.effects, &self.0.chores, &self.0.openings] {
            bell.ring();
        }
        self.0.around.pool.close();
        self.flush_spans().await;
        ended
    }

    /// The last spans go out; at most a little is waited for that.
    async fn flush_spans(&self) {
        let Some(telemetry) = self.0.around.telemetry.clone() else { return };
        let (done, flushed) = oneshot::channel();
        let flush = move || {
            telemetry.flush();
            let _ = done.send(());
        };
        if supervise("last-spans", &self.0.around.health, flush).is_ok() {
            let _ = flushed.await;
        }
    }

    /// Ends every tenant, many at a time: each waits for a few syncs, and the disk does those together.
    async fn end_all(&self) -> Result<(), Problem> {
        let gates: Vec<_> =
            lock(&self.0.gates).iter().map(|(name, gate)| (name.clone(), gate.clone())).collect();
        let (engine, (done, ended)) = (self.clone(), oneshot::channel());
        supervise("closer", &self.0.around.health, move || {
            let ended = pool::each(CLOSERS, &gates, |(name, gate)| engine.end_last(name, gate));
            engine.write_due();
            // Whoever hears of it may open the directory again at once.
            drop(engine);
            let _ = done.send(ended.into_iter().collect());
        })?;
        ended.await.unwrap_or_else(|_| Err(Problem::new(Code::TaskDied, "the closing task died")))
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

/// Whether a tenant may be called that.
pub fn check_name(name: &str) -> Result<(), Problem> {
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
    if dir.ancestors().any(Path::is_file) {
        let detail = format!("\"{}\" is a file or lies in one", dir.display());
        return Err(Problem::new(Code::UsageInvalid, detail).hint("`--data DIR` names a directory"));
    }
    let there = std::fs::metadata(dir.join("tenants"));
    // What may not be looked into is not what is not there.
    if let Err(error) = &there
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        return Err(io_problem(dir, error));
    }
    if !create && !there.is_ok_and(|tenants| tenants.is_dir()) {
        return Err(Problem::new(
            Code::StoreNotFound,
            format!("there is no data directory at \"{}\"", dir.display()),
        )
        .hint(format!("make it: everwhen init --data {}; or name another with --data DIR", dir.display())));
    }
    std::fs::create_dir_all(dir).map_err(|error| unmakeable(dir, &error))?;
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
        Err(error) => Err(unmakeable(dir, &error)),
    }
}

/// Why a folder could not be made. Nothing is damaged by that: it is a place where nothing can be, such as below /proc.
pub(crate) fn unmakeable(dir: &Path, error: &io::Error) -> Problem {
    let problem = io_problem(dir, error);
    if problem.code() != Code::StorageFailed {
        return problem;
    }
    Problem::new(Code::StorageReadOnly, format!("\"{}\" cannot be made: {error}", dir.display()))
        .hint("name a place where you may make a directory")
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
    let problem = Problem::new(code, format!("\"{}\": {error}", path.display()));
    match error.kind() {
        io::ErrorKind::PermissionDenied => problem.hint(who_may(path)),
        io::ErrorKind::ReadOnlyFilesystem => problem.hint(
            "that disk is mounted read-only: remount it writable, or name another place with --data; in a container, mount a \
             volume there",
        ),
        _ => problem.hint("check the disk and the permissions of the data directory"),
    }
}

/// Whose the place is and who we are: one of the two has to change.
pub(crate) fn who_may(path: &Path) -> String {
    let uid = rustix::process::geteuid().as_raw();
    // What is not there would be made in what is.
    let there = path.ancestors().find_map(|place| Some((place, std::fs::metadata(place).ok()?)));
    let Some((place, meta)) = there else {
        return format!("this process runs as uid {uid}: name a place that it may write with --data");
    };
    let (place, owner, mode) = (place.display(), meta.uid(), meta.mode() & 0o777);
    format!(
        "this process runs as uid {uid}, and \"{place}\" belongs to uid {owner} with mode {mode:03o}: \
         chown -R {uid} {place}, or run as uid {owner}; in a container, a volume that uid {uid} may write"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_answers_has_its_own_code() {
        let code = |kind: io::ErrorKind| io_problem(Path::new("d"), &kind.into()).code();
        assert_eq!(code(io::ErrorKind::ReadOnlyFilesystem), Code::StorageReadOnly);
        assert_eq!(code(io::ErrorKind::PermissionDenied), Code::StorageReadOnly);
        assert_eq!(code(io::ErrorKind::StorageFull), Code::StorageFull);
        assert_eq!(code(io::ErrorKind::Other), Code::StorageFailed);
        let place = std::env::temp_dir();
        let denied = io_problem(&place.join("no/such/data"), &io::ErrorKind::PermissionDenied.into());
        let uid = rustix::process::geteuid().as_raw();
        let said = denied.hint_text().unwrap_or_default();
        assert!(
            said.starts_with(&format!("this process runs as uid {uid}, and \"{}\"", place.display())),
            "{said}"
        );
        assert!(said.contains(&format!("chown -R {uid} {}", place.display())), "{said}");
        let making = |kind: io::ErrorKind| unmakeable(Path::new("d"), &kind.into()).code();
        assert_eq!(making(io::ErrorKind::NotFound), Code::StorageReadOnly);
        assert_eq!(making(io::ErrorKind::StorageFull), Code::StorageFull);
    }
}
