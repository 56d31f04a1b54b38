//! What deciding needs to know: `state.db` plus the cursors held in memory. Derived from the ledger, never the truth.
//!
//! **Invariant:** `applied` (position and chain) is committed together with everything folded up to it. A pair that is
//! not in the ledger means the file belongs to another history: it is discarded and rebuilt.

pub mod daily;
pub mod dump;
pub mod entity;
pub mod group;
pub mod rows;
pub mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ledger::{Chain, Head};
use model::{Position, Timestamp};
use rusqlite::backup::Backup;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, ffi, params};

pub use group::{Failure, Group};

use crate::entity::Catalog;
use crate::entity::seal::Key;
use crate::sealing::Seals;

/// Numbered, in order, never edited once released: the index is the version before it runs.
const MIGRATIONS: &[&str] = &[
    include_str!("state/schema.sql"),
    include_str!("state/suspect.sql"),
    include_str!("state/entity.sql"),
    include_str!("state/run.sql"),
    include_str!("state/subscription.sql"),
    include_str!("state/version.sql"),
];

/// Steps of the wall clock that are remembered.
const STEPS_MAX: usize = 64;

/// Memory for pages of a tenant that has concepts.
const ROWS_CACHE_KIB: i64 = 16 << 10;
/// Of a connection that reads rows beside the writer.
const READ_CACHE_KIB: i64 = 6 << 10;

/// SQLite could not do its work. The ledger is intact: the process stops and the next start folds again.
#[derive(Debug, thiserror::Error)]
#[error("state.db: {0}")]
pub struct Fault(#[from] pub rusqlite::Error);

impl Fault {
    /// Whether the disk had no room for it. Then it is worth another try, once there is some.
    pub fn is_full(&self) -> bool {
        let error = self.0.sqlite_error();
        // The second: the index of its log could not grow.
        error.is_some_and(|error| {
            error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        })
    }

    /// Whether a sort was too large for the cache, and there was no directory for its temporary file.
    pub fn lacks_temporary(&self) -> bool {
        self.0.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_GETTEMPPATH)
    }
}

pub type Result<T> = std::result::Result<T, Fault>;

/// A publish that waits for its time, by when it is due.
pub type Due = (Timestamp, Position);

pub struct State {
    pub(crate) db: Connection,
    pub applied: Head,
    /// The applied position that the file says.
    pub committed: Position,
    /// How often [`State::commit`] was done, for those who read beside.
    pub commits: Arc<AtomicU64>,
    pub groups: BTreeMap<String, Group>,
    pub deferred: BTreeSet<Due>,
    /// First position kept and the chain hash before it; (1, zeros) until something was trimmed.
    pub first: Position,
    pub before: Chain,
    pub format: u32,
    /// Where runs of no space write; set by whoever opens it, no part of what it says.
    pub default_space: String,
    /// Nothing goes outside, and somebody answers in its stead: steps ask also for what no runner is there for. Set as the
    /// default space is.
    pub pretends: bool,
    /// Seals what runs write; set as the default space is, and there once a concept with a secret is declared.
    pub key: Arc<OnceLock<Key>>,
    /// Seals what is written in sealed spaces; set as the default space is.
    pub seals: Arc<Seals>,
    /// Where the wall clock was set, and by how many milliseconds; the last few times. An event's `ttl` is counted over them.
    pub steps: Vec<(Position, i64)>,
    /// Runs that began today; memory.
    pub daily: Arc<daily::Daily>,
    pub catalog: Arc<Catalog>,
    pub(crate) carried: Option<entity::Carried>,
    pub(crate) at_hand: entity::at_hand::AtHand,
    pub runs: run::Runs,
    /// Rows written since the last commit of `state.db`.
    pub open_rows: usize,
    dirty: BTreeSet<String>,
    open: bool,
    /// The disk was full at the last COMMIT: nothing is written before the next that succeeds.
    held: bool,
}

impl State {
    /// Opens or creates the file; `None` keeps the state in memory (backtest, tests).
    pub fn open(path: Option<&Path>) -> Result<State> {
        let db = match path {
            Some(path) => Connection::open(path)?,
            None => Connection::open_in_memory()?,
        };
        // `secure_delete`: what was erased or settled leaves no text behind in free pages.
        db.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0;
             PRAGMA temp_store=MEMORY; PRAGMA cache_size=-2000; PRAGMA journal_size_limit=4194304;
             PRAGMA secure_delete=ON;",
        )?;
        let mut state = State::over(db)?;
        // An earlier version may have known fewer uses of an index. They save work only: a full disk is no reason not to open.
        if let Err(Fault(err)) = state.index() {
            tracing::warn!(%err, "an index of a query could not be made");
        }
        Ok(state)
    }

    /// A copy in memory. The file is only read, and may be written to by its owner meanwhile.
    pub fn copy_of(path: &Path) -> Result<State> {
        let from = read_only(path)?;
        let mut db = Connection::open_in_memory()?;
        copy(&from, &mut db)?;
        State::over(db)
    }

    /// A look at a file that is nobody's at the moment, or at what a connection sees; nothing can be folded into it.
    pub(crate) fn over(db: Connection) -> Result<State> {
        db.set_prepared_statement_cache_capacity(64);
        migrate(&db)?;
        let mut state = State {
            db,
            applied: Head { position: 0, chain: Chain::ZERO },
            committed: 0,
            commits: Arc::default(),
            groups: BTreeMap::new(),
            deferred: BTreeSet::new(),
            first: 1,
            before: Chain::ZERO,
            format: 1,
            default_space: "default".to_owned(),
            pretends: false,
            key: Arc::default(),
            seals: Arc::default(),
            steps: Vec::new(),
            daily: Arc::default(),
            catalog: Arc::default(),
            carried: None,
            at_hand: Default::default(),
            runs: run::Runs::default(),
            open_rows: 0,
            dirty: BTreeSet::new(),
            open: false,
            held: false,
        };
        state.load()?;
        Ok(state)
    }

    /// Drops what was folded since the last commit and reads the committed state again.
    pub fn roll_back(&mut self) -> Result<()> {
        // SQLite has rolled back by itself when it failed for want of space.
        if self.open && !self.db.is_autocommit() {
            self.db.execute_batch("ROLLBACK")?;
        }
        self.open = false;
        self.load()
    }

    fn load(&mut self) -> Result<()> {
        let meta = |name: &str| -> Result<Option<String>> {
            let mut read = self.db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
            Ok(read.query_row([name], |row| row.get(0)).optional()?)
        };
        let number = |text: Option<String>| text.and_then(|t| t.parse().ok());
        let chain = |text: Option<String>| text.and_then(|t| Chain::parse(&t)).unwrap_or(Chain::ZERO);
        let applied =
            Head { position: number(meta("applied_position")?).unwrap_or(0), chain: chain(meta("chain")?) };
        let first = number(meta("first")?).unwrap_or(1);
        let before = chain(meta("before")?);
        let format = number(meta("format")?).unwrap_or(1) as u32;
        let steps = meta("steps")?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        (self.applied, self.first, self.before, self.format) = (applied, first, before, format);
        self.steps = steps;
        self.committed = applied.position;
        self.groups = group::load_all(&self.db)?;
        self.deferred = rows::load_deferred(&self.db)?;
        (self.catalog, self.carried) = (Arc::new(entity::load_catalog(&self.db)?), None);
        self.at_hand.clear();
        self.runs = run::load(&self.db)?;
        (self.open_rows, self.dirty) = (0, BTreeSet::new());
        self.make_room()
    }

    /// Rows of concepts are many and their indexes are written all over: with the small cache of a bus, pages of an open
    /// transaction would go to the disk and come back. It is taken only as far as it is used.
    pub(crate) fn make_room(&self) -> Result<()> {
        if self.catalog.concepts().next().is_some() {
            self.db.pragma_update(None, "cache_size", -ROWS_CACHE_KIB)?;
        }
        Ok(())
    }

    /// Begins a transaction unless one is open; everything folded goes into it.
    pub fn begin(&mut self) -> Result<()> {
        if !self.open {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.open = true;
        }
        Ok(())
    }

    /// Commits what was folded. **Only after every batch in it is synced**, or a crash leaves state ahead of the ledger.
    pub fn commit(&mut self) -> Result<()> {
        self.begin()?;
        for name in std::mem::take(&mut self.dirty) {
            if let Some(group) = self.groups.get(&name) {
                group::store(&self.db, group)?;
            }
        }
        self.write_rows()?;
        self.store_runs()?;
        self.put_meta("applied_position", &self.applied.position.to_string())?;
        self.put_meta("chain", &self.applied.chain.to_string())?;
        self.put_meta("first", &self.first.to_string())?;
        self.put_meta("before", &self.before.to_string())?;
        self.put_meta("format", &self.format.to_string())?;
        if !self.steps.is_empty() {
            self.put_meta("steps", &serde_json::to_string(&self.steps).unwrap_or_default())?;
        }
        self.db.execute_batch("COMMIT")?;
        (self.open, self.open_rows) = (false, 0);
        self.committed = self.applied.position;
        self.commits.fetch_add(1, Ordering::Release);
        self.hold(false)
    }

    /// While it is held, everything folded stays in memory: the disk is full.
    pub(crate) fn hold(&mut self, held: bool) -> Result<()> {
        if self.held != held {
            self.db.pragma_update(None, "cache_spill", !held)?;
            self.held = held;
        }
        Ok(())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether something was folded that is not yet committed.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Moves the WAL into the file and cuts it; false when somebody else looks at it. Slow: called off the loop's hot path.
    pub fn checkpoint(&self) -> Result<bool> {
        let mut run = self.db.prepare("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let busy: Option<i64> = run.query_row([], |row| row.get(0)).optional()?;
        Ok(busy != Some(1))
    }

    /// Notes which ledger this is the state of, by the chain after its first line. It is no part of the dump.
    pub fn set_origin(&self, origin: Chain) -> Result<()> {
        let known: i32 = self.db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        if known != short(origin) {
            self.db.pragma_update(None, "application_id", short(origin))?;
        }
        Ok(())
    }

    fn put_meta(&self, name: &str, value: &str) -> Result<()> {
        let mut put = self.db.prepare_cached(
            "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )?;
        put.execute(params![name, value])?;
        Ok(())
    }

    /// The group, to be changed; remembers to write its row.
    pub(crate) fn group_mut(&mut self, name: &str) -> Option<&mut Group> {
        let group = self.groups.get_mut(name)?;
        self.dirty.insert(name.to_owned());
        self.open_rows += 1;
        Some(group)
    }

    pub(crate) fn note_step(&mut self, position: Position, by_ms: i64) {
        self.steps.push((position, by_ms));
        let spare = self.steps.len().saturating_sub(STEPS_MAX);
        self.steps.drain(..spare);
    }

    /// A clean stop: what is out now was answered for or given back.
    pub(crate) fn nobody_is_out(&mut self) {
        let out = self.groups.values().filter(|group| group.alone != 0);
        for name in out.map(|group| group.name.clone()).collect::<Vec<_>>() {
            self.group_mut(&name).into_iter().for_each(|group| group.alone = 0);
        }
    }

    pub(crate) fn put_group(&mut self, group: Group) {
        self.dirty.insert(group.name.clone());
        self.open_rows += 1;
        self.groups.insert(group.name.clone(), group);
    }

    pub(crate) fn drop_group(&mut self, name: &str) -> Result<()> {
        self.groups.remove(name);
        self.dirty.remove(name);
        self.open_rows += 1;
        group::remove(&self.db, name)
    }
}

fn migrate(db: &Connection) -> Result<()> {
    let version: usize = db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))? as usize;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        db.execute_batch(&format!("BEGIN; {migration}; PRAGMA user_version = {}; COMMIT", index + 1))?;
    }
    Ok(())
}

/// Opens a state for reading only, without leaving a trace beside a file that nobody has open.
pub fn read_only(path: &Path) -> Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = if Path::new(&log).exists() {
        Connection::open_with_flags(path, flags)?
    } else {
        let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)?
    };
    db.busy_timeout(Duration::from_secs(5))?;
    Ok(db)
}

/// A second connection to a state that its owner has open: sees what was committed, changes nothing.
pub fn read_beside(path: &Path) -> Result<Connection> {
    // One thread at a time has it, which Rust sees to; SQLite's own locks would cost a point read 5 %.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.set_prepared_statement_cache_capacity(32);
    // The inner pages of a million rows and of their index stay: of a row that nobody has read lately only its two leaves are fetched.
    db.pragma_update(None, "cache_size", -READ_CACHE_KIB)?;
    Ok(db)
}

/// An empty table of rows, for looks at what they were.
pub fn rows_in_memory() -> Result<Connection> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(include_str!("state/entity.sql"))?;
    Ok(db)
}

/// What a state says of itself to somebody who does not open it.
pub struct Peek {
    pub applied: Head,
    /// See [`State::set_origin`]; 0 while it is not known.
    pub origin: i32,
}

/// `None` when there is no state, or none that can be read.
pub fn peek(path: &Path) -> Option<Peek> {
    let db = path.exists().then(|| read_only(path).ok())??;
    let meta = |name: &str| -> Option<String> {
        db.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0)).ok()
    };
    let applied =
        Head { position: meta("applied_position")?.parse().ok()?, chain: Chain::parse(&meta("chain")?)? };
    Some(Peek { applied, origin: db.query_row("PRAGMA application_id", [], |row| row.get(0)).ok()? })
}

/// A chain as a state keeps it in the header of its file: enough to tell two ledgers apart, never 0.
pub fn short(origin: Chain) -> i32 {
    let [a, b, c, d, ..] = origin.0;
    match i32::from_be_bytes([a, b, c, d]) {
        0 => 1,
        some => some,
    }
}

/// Copies a whole database as `from` sees it now.
pub fn copy(from: &Connection, to: &mut Connection) -> Result<()> {
    Ok(Backup::new(from, to)?.run_to_completion(1_024, Duration::ZERO, None)?)
}

/// Whether the file was written by a newer version, which this one must not touch.
pub fn is_newer(path: &Path) -> Result<bool> {
    let Ok(db) = read_only(path) else { return Ok(false) };
    let version = db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    Ok(version.is_ok_and(|v| v as usize > MIGRATIONS.len()))
}
