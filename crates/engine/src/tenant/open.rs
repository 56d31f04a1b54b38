//! Opening a tenant: ledger, state that fits it or is rebuilt, then what a crash left is written down. And closing it.

#![expect(clippy::disallowed_methods, reason = "a state.db that does not fit its ledger is removed here")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ledger::disk::Disk;
use ledger::{FileLedger, Head, Ledger, Opened, Reader, Witness};
use model::event::{Content, Envelope, Event};
use model::record::{FORMAT, Record};
use model::{Code, Problem};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::{Inner, Surroundings, Tenant, closing, effects, spaces, witness};
use crate::admit::{Admitter, Layer};
use crate::command::Command;
use crate::deliver::{Registry, lock};
use crate::entity::seal::Key;
use crate::entropy::Entropy;
use crate::mailbox::Mailbox;
use crate::maintain::Upkeep;
use crate::maintain::snapshot::is_sound;
use crate::read;
use crate::sealing::{Unsealed, keys};
use crate::state::rows::no_later;
use crate::state::{self, State};
use crate::tail::Tail;
use crate::writer::{Fatal, Moment, Writer};

/// Where a tenant lives.
pub enum Home {
    /// A directory on a disk: `ledger/`, `state.db`, `snapshots/`.
    Directory { disk: Arc<dyn Disk>, dir: PathBuf, options: ledger::Options },
    /// Only a ledger; the state is folded in memory. Simulation and tests.
    Ledger(Box<dyn Ledger>, Opened),
}

pub struct Opening {
    pub name: String,
    pub home: Home,
    pub layers: Vec<Arc<dyn Layer>>,
    pub entropy: Entropy,
}

impl Tenant {
    pub fn open(opening: Opening, around: Surroundings) -> Result<Tenant, Problem> {
        let admitter =
            Admitter::new(&around.settings, opening.layers)?.counting(around.metrics.attention.clone());
        let mut entropy = opening.entropy;
        let epoch = entropy.number();
        let Ground { ledger, raw, opened, mut state, dir } = open_home(opening.home)?;
        known_format(&state)?;
        state.default_space.clone_from(&around.settings.default_space);
        crate::schedule::arm(&mut state).map_err(broken)?;
        state.runs.wakes.mark_all();
        let (key, seals) = (state.key.clone(), state.seals.clone());
        let mut writer = Writer::new(ledger, state, entropy.split());
        if writer.ledger.is_full() {
            around.metrics.storage_full(true);
        }
        let moment = Moment::of(around.clock.as_ref());
        writer.offset = Some(moment.offset());
        let (head, first) = (writer.head(), writer.ledger.first());
        let inner = Inner {
            name: opening.name,
            dir,
            around,
            admitter,
            mailbox: Mailbox::default(),
            looking: AtomicUsize::new(0),
            scheduled: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            looks: AtomicBool::new(false),
            entropy: Mutex::new(entropy),
            epoch,
            tail: RwLock::new(Tail::new(head + 1)),
            visible: AtomicU64::new(head),
            first: AtomicU64::new(first),
            seen: watch::channel(head).0,
            registry: RwLock::new(Registry::default()),
            followers: Default::default(),
            readers: Mutex::new(Vec::new()),
            buffers: Mutex::new(Vec::new()),
            first_reader: Mutex::new(writer.ledger.reader()),
            raw_reader: Mutex::new(raw),
            seals,
            sync_nanos: AtomicU64::new(0),
            ended_runs: Default::default(),
            due: AtomicU64::new(u64::MAX),
            flush: AtomicU64::new(u64::MAX),
            ticking: Mutex::default(),
            used: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            closed_at: (opened.clean || head == 0).then_some(head),
            upkeep: Upkeep::default(),
            unborn: std::sync::OnceLock::new(),
            catalog: RwLock::new(writer.state.catalog.clone()),
            row_readers: super::entity::RowReaders::of(writer.state.commits.clone()),
            starting_refused: Mutex::default(),
            past: super::history::Past::after(head),
            recent: Default::default(),
            live: super::live::channel(),
            key,
            draining: Mutex::default(),
            outside: effects::Outside::default(),
            allowance: Default::default(),
            workers: tokio::sync::Mutex::default(),
            writer: Mutex::new(Some(writer)),
        };
        let tenant = Tenant(Arc::new(inner));
        tenant.touch();
        tenant.go_on(opened)?;
        Ok(tenant)
    }

    /// From where the last stop left it.
    fn go_on(&self, opened: Opened) -> Result<(), Problem> {
        self.key_at_hand()?;
        self.spaces_at_hand()?;
        self.wake_groups()?;
        // Before anything is recorded now: it looks at when the last record was.
        self.hold_to_length()?;
        self.note_opening(opened)?;
        self.begin_schedules()?;
        self.begin_effects()?;
        crate::maintain::finish(self)?;
        self.due_in(std::time::Duration::ZERO);
        Ok(())
    }

    /// What runs write can be sealed from the first one on.
    fn key_at_hand(&self) -> Result<(), Problem> {
        let has_secrets = self.catalog().concepts().any(|concept| !concept.secrets.is_empty());
        if has_secrets { self.key().map(drop) } else { Ok(()) }
    }

    /// Every group begins where its durable half stands.
    fn wake_groups(&self) -> Result<(), Problem> {
        let now = self.0.around.clock.now();
        let writer = lock(&self.0.writer);
        let writer = writer.as_ref().ok_or_else(closing)?;
        let mut registry = self.0.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        for name in writer.state.groups.keys() {
            self.register(writer, &mut registry, name, self.head());
            let Some(handle) = registry.get(name) else { continue };
            for failure in handle.dispatcher().group.failures.values_mut() {
                failure.until = no_later(failure.until, now, failure.delay_ms);
            }
        }
        Ok(())
    }

    /// Writes down what the last stop left: a torn tail, deliveries without an answer.
    fn note_opening(&self, opened: Opened) -> Result<(), Problem> {
        let mut records = Vec::new();
        if let Some(torn) = opened.torn {
            let file =
                torn.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            tracing::warn!(
                tenant = self.name(),
                position = torn.position,
                file,
                offset = torn.offset,
                bytes = torn.bytes,
                "the last line was cut short, as by a crash; it was blanked"
            );
            let (position, offset, bytes) = (torn.position, torn.offset, torn.bytes);
            records.push(Record::LedgerTruncated { position, file, offset, bytes });
        }
        if !opened.clean {
            self.with_writer(|writer| {
                let head = writer.head();
                // Written ahead of what was there, perhaps. A redriven event lies below the floor and may have been out all the same.
                let may_be_out = |group: &&crate::state::Group| {
                    group.delivered_to.min(head) > group.floor || !group.redriven.is_empty()
                };
                let open = writer.state.groups.values().filter(may_be_out);
                let crashed = |group: &crate::state::Group| Record::GroupCrashed {
                    group: group.name.clone(),
                    through: group.delivered_to.min(head),
                };
                records.extend(open.map(crashed));
                records.extend(super::effects::crashed(&writer.state).map_err(broken)?);
                Ok(())
            })?;
        }
        let now = self.0.around.clock.now();
        let ahead = self.with_writer(|writer| writer.state.ahead_ms(now).map_err(broken))?;
        if ahead > 0 {
            records.push(Record::ClockStepped { by_ms: -ahead });
        }
        if records.is_empty() {
            return Ok(());
        }
        self.ask_blocking(Command::Note { records }).map(|_| ())
    }

    /// Ends cleanly: handlers finish, acks and floors are recorded, the end mark is synced.
    pub async fn close(&self) -> Result<(), Problem> {
        if self.is_closing() {
            return Ok(());
        }
        self.begin_close();
        self.drain().await;
        self.close_now()
    }

    /// Takes no more, and tells those who wait.
    pub(crate) fn begin_close(&self) {
        if !self.0.closing.swap(true, Ordering::AcqRel) {
            self.registry().all().iter().for_each(|handle| handle.wake.notify_waiters());
        }
    }

    /// Lets handlers finish.
    pub(crate) async fn drain(&self) {
        let mut workers = self.0.workers.lock().await;
        while workers.join_next().await.is_some() {}
    }

    /// The part of closing that waits for nobody.
    pub fn close_now(&self) -> Result<(), Problem> {
        self.0.closing.store(true, Ordering::Release);
        // A directory that was only looked at stays as it was.
        let changed = self.0.closed_at != Some(self.head());
        if changed {
            self.record_floors();
            self.ask_blocking(Command::Note { records: vec![Record::LedgerClosed] })?;
        }
        let mut writer = lock(&self.0.writer).take().ok_or_else(closing)?;
        let settled = writer.settle();
        self.0.row_readers.close();
        writer.ledger.close().map_err(|error| Problem::new(Code::StorageFailed, error.to_string()))?;
        match settled.map_err(|Fatal(problem)| problem).and_then(|()| put_away(&writer)) {
            // A state that found no room is folded at the next start.
            Err(problem) if problem.code() == Code::StorageFull => {
                tracing::warn!(%problem, "state.db is left behind")
            }
            ended => ended?,
        }
        if let Some(dir) = self.dir().filter(|_| changed) {
            crate::maintain::audit::sign_end(dir, self.name(), writer.ledger.head(), self.now());
        }
        lock(&self.0.readers).clear();
        self.0.seen.send_replace(self.head());
        Ok(())
    }
}

/// The state of a tenant that ends: which ledger it is of, and no log beside it.
fn put_away(writer: &Writer) -> Result<(), Problem> {
    note_origin(writer.ledger.as_ref(), &writer.state)?;
    writer.state.checkpoint().map(drop).map_err(broken)
}

/// The tenant's key from `DATA/keys/<tenant>`, made on first use: durable before anything is sealed with it.
pub(super) fn key_at(path: &Path, fresh: [u8; 32]) -> Result<Key, Problem> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            return model::id::unhex(text.trim()).map(Key::new).ok_or_else(|| {
                Problem::new(Code::StoreCorrupt, format!("\"{}\" is not a key", path.display()))
                    .hint("restore it from a backup: what it sealed cannot be opened without it")
            });
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(path, &error)),
        Err(_) => {}
    }
    let made = || -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Under its name only when whole: a torn key would be a lost one.
        let aside = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(model::id::hex(&fresh).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)?;
        std::fs::File::open(dir)?.sync_all()
    };
    made().map_err(|error| io(path, &error))?;
    Ok(Key::new(fresh))
}

/// What an open tenant stands on.
struct Ground {
    ledger: Box<dyn Ledger>,
    /// Sees lines as they stand.
    raw: Box<dyn Reader>,
    opened: Opened,
    state: State,
    dir: Option<PathBuf>,
}

fn open_home(home: Home) -> Result<Ground, Problem> {
    match home {
        Home::Ledger(ledger, opened) => {
            let mut state = State::open(None).map_err(broken)?;
            fold(ledger.as_ref(), &mut state)?;
            Ok(Ground { raw: ledger.reader(), ledger, opened, state, dir: None })
        }
        Home::Directory { disk, dir, options } => {
            let (ledger, opened) = open_ledger(disk, &dir, options)?;
            let (raw, seals) = (ledger.reader(), Arc::new(keys::load(&dir)?));
            let mut ledger: Box<dyn Ledger> =
                Box::new(Unsealed { within: Box::new(ledger), seals: seals.clone() });
            // On a full disk it gives up what is kept back: the state's log needs room before anything can be read.
            ledger.is_full();
            let mut state = open_state(ledger.as_ref(), &dir)
                .map_err(|problem| seals.missed().map_or(problem, |id| spaces::missing(None, &id)))?;
            state.seals = seals;
            Ok(Ground { ledger, raw, opened, state, dir: Some(dir) })
        }
    }
}

/// A ledger may say that it holds more than this version knows.
pub(crate) fn known_format(state: &State) -> Result<(), Problem> {
    if state.format <= FORMAT {
        return Ok(());
    }
    let detail = format!("the ledger is of format {}, this version knows up to {FORMAT}", state.format);
    Err(Problem::new(Code::StoreNewer, detail).hint("use the everwhen version that wrote it"))
}

fn open_ledger(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: ledger::Options,
) -> Result<(FileLedger, Opened), Problem> {
    let (witness, dir) = (witness::find(disk.as_ref(), dir), dir.join("ledger"));
    let found = match &witness {
        Some(witness) => FileLedger::open_with(disk.clone(), &dir, options, witness),
        None => FileLedger::open(disk.clone(), &dir, options),
    };
    match (found, witness.filter(|witness| witness.position > 0)) {
        (Err(ledger::Error::Missing { dir }), Some(Witness { position, who })) => {
            let detail = format!(
                "there is no ledger in \"{}\", but \"{who}\" shows that it reached position {position}",
                dir.display()
            );
            Err(Problem::new(Code::StoreCorrupt, detail)
                .hint("restore a backup; remove the whole tenant's folder to begin anew"))
        }
        (Err(ledger::Error::Missing { .. }), None) => {
            let ledger = FileLedger::create(disk, &dir, options).map_err(read::problem)?;
            Ok((ledger, Opened { clean: true, ..Opened::default() }))
        }
        (found, _) => found.map_err(read::problem),
    }
}

fn broken(fault: state::Fault) -> Problem {
    Fatal::from(fault).0
}

/// The state beside a ledger: as it is when it belongs to this ledger, else rebuilt.
fn open_state(ledger: &dyn Ledger, dir: &Path) -> Result<State, Problem> {
    let path = dir.join("state.db");
    if state::is_newer(&path).map_err(broken)? {
        return Err(Problem::new(
            Code::StoreNewer,
            format!("\"{}\" was written by a newer version", path.display()),
        )
        .hint("use the everwhen version that wrote it"));
    }
    let mut state = match State::open(Some(&path)) {
        Ok(state) if belongs(ledger, state.applied)? => state,
        Err(fault) if fault.is_full() => return Err(broken(fault)),
        Ok(state) if state.applied == Head::EMPTY => rebuild(state, ledger, dir, &path)?,
        found => {
            let why = found
                .as_ref()
                .err()
                .map_or("it belongs to another history".to_owned(), |fault| fault.to_string());
            tracing::warn!(path = %path.display(), why, "state.db is discarded and rebuilt from the ledger");
            drop(found);
            discard(&path)?;
            rebuild(State::open(Some(&path)).map_err(broken)?, ledger, dir, &path)?
        }
    };
    fold(ledger, &mut state)?;
    note_origin(ledger, &state)?;
    state.checkpoint().map_err(broken)?;
    Ok(state)
}

/// Which ledger a state belongs to, said while its first line is there to tell.
fn note_origin(ledger: &dyn Ledger, state: &State) -> Result<(), Problem> {
    if ledger.first() != 1 || state.applied == Head::EMPTY {
        return Ok(());
    }
    let origin = ledger::head_at(ledger.reader().as_mut(), 1).map_err(read::problem)?;
    state.set_origin(origin.chain).map_err(broken)
}

/// Whether the state's position and chain are in this ledger.
///
/// A ledger that cannot be read now is an error, not a no: what is derived would be thrown away for nothing.
fn belongs(ledger: &dyn Ledger, applied: Head) -> Result<bool, Problem> {
    if applied == Head::EMPTY {
        return Ok(ledger.first() == 1);
    }
    match ledger::head_at(ledger.reader().as_mut(), applied.position) {
        Ok(head) => Ok(head == applied),
        Err(ledger::Error::Gone { .. } | ledger::Error::Beyond { .. }) => Ok(false),
        Err(error) => Err(read::problem(error)),
    }
}

/// From the first line on, or from the newest snapshot once lines were trimmed.
fn rebuild(state: State, ledger: &dyn Ledger, dir: &Path, path: &Path) -> Result<State, Problem> {
    if ledger.first() == 1 {
        return Ok(state);
    }
    drop(state);
    for snapshot in crate::maintain::snapshot::newest_first(dir) {
        discard(path)?;
        std::fs::copy(&snapshot, path).map_err(|error| io(&snapshot, &error))?;
        match State::open(Some(path)) {
            Ok(state) if belongs(ledger, state.applied)? && is_sound(dir, &snapshot, &state) => {
                return Ok(state);
            }
            _ => tracing::warn!(path = %snapshot.display(), "this snapshot does not fit the ledger"),
        }
    }
    Err(Problem::new(
        Code::StoreCorrupt,
        format!("\"{}\" is gone, and no snapshot fits the trimmed ledger", path.display()),
    )
    .hint(
        "on the machine that has the data: restore a backup, or `everwhen salvage --data DIR --to NEW` to keep the events",
    ))
}

fn discard(path: &Path) -> Result<(), Problem> {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io(Path::new(&file), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn io(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::StorageFailed, format!("\"{}\": {error}", path.display()))
}

fn fold(ledger: &dyn Ledger, state: &mut State) -> Result<(), Problem> {
    let behind = ledger.head().position.saturating_sub(state.applied.position);
    if behind > 1_000_000 {
        tracing::info!(records = behind, "folding the ledger into state.db");
    }
    read::fold_tail(ledger.reader().as_mut(), state, |_| ())?;
    if state.is_open() {
        state.commit().map_err(broken)?;
    }
    Ok(())
}

/// Reads back an event as [`Event::to_json`] wrote it: dead letters keep theirs in this form. Payload and extensions are
/// taken as they stand, never parsed.
pub(crate) fn event_from_json(text: &str) -> Option<Event> {
    let mut parts: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    let mut take = |name: &str| parts.remove(name);
    let position = serde_json::from_str(take("position")?.get()).ok()?;
    let recorded_at = serde_json::from_str(take("recorded_at")?.get()).ok()?;
    let ttl: Option<f64> = take("ttl").and_then(|ttl| serde_json::from_str(ttl.get()).ok());
    let (payload, ext) = (take("payload"), take("ext"));
    let mut envelope: Envelope = serde_json::from_str(&serde_json::to_string(&parts).ok()?).ok()?;
    envelope.ttl_ms = ttl.map(|seconds| (seconds * 1000.0) as u64);
    let ext = ext.as_deref().map(RawValue::get);
    let content = payload.map_or(Content::Erased, |payload| Content::new(payload.get(), ext));
    Some(Event { position, recorded_at, envelope, content })
}
