//! A tenant that is open: its writer, its mailbox and everything that waits on them. Cheap to clone.
//!
//! A command goes into the mailbox. If the writer is idle and the disk is quick, the caller commits it on its own
//! thread; else a pool thread takes whatever has queued, as one batch.

mod allowance;
pub mod audit;
mod automations;
pub mod backtest;
mod define;
mod due;
mod effects;
mod entity;
mod groups;
mod hand_on;
mod history;
pub mod hooks;
mod live;
mod look;
pub(crate) mod open;
mod post;
mod publish;
pub mod pushes;
pub mod runs;
mod sandbox;
mod search;
pub mod secrets;
mod seen;
mod simulate;
pub mod spaces;
pub mod subscriptions;
pub mod tasks;
mod traced;
mod turn;
mod unborn;
pub(crate) mod witness;

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ledger::Reader;
use model::event::Event;
use model::{Code, Position, Problem};
use tokio::sync::watch;

use entity::broken;
pub(crate) use entity::query as entity_query;
pub use entity::{Asking, Found, HistoryPage, Lately, Listing, Moment as AsOf, Paging};
pub(crate) use groups::PULL_MAX;
pub use groups::{DeadLetterPage, GroupView, Redrive, Settled};
pub use history::Explained;
pub use history::changes::{Change, Changes, Changing, Chosen};
pub(crate) use live::Hearing;
pub(crate) use open::event_from_json;
pub use open::{Home, Opening};
pub use post::{Post, Posted};
pub use publish::{Expected, Note};
pub use search::{Page, Query};
pub use seen::Seen;

use crate::admit::{Admitter, Handled};
use crate::clock::Clock;
use crate::command::{Answer, Command};
use crate::deliver::follow::{Follow, Follower};
use crate::deliver::followers::Followers;
use crate::deliver::{Registry, lock};
use crate::engine::Engine;
use crate::entity::Catalog;
use crate::entity::seal::Key;
use crate::entropy::Entropy;
use crate::mailbox::{Mailbox, Pending};
use crate::maintain::Upkeep;
use crate::metrics::Metrics;
use crate::pool::{Bell, Pool, Watch, Work};
use crate::read;
use crate::sealing::Seals;
use crate::settings::Settings;
use crate::tail::Tail;
use crate::telemetry::Telemetry;
use crate::writer::{Fatal, Moment, Writer};

/// A sync slower than this is not worth blocking an async worker for; a pool thread waits instead.
const INLINE_SYNC_MAX: Duration = Duration::from_millis(2);
/// Readers and buffers that are kept for the next who reads a backlog.
const SHELF: usize = 4;
/// Acks are recorded this long after they came, at the latest (R10 promises 100 ms).
const ACK_FLUSH: Duration = Duration::from_millis(50);

/// What a tenant shares with the engine that opened it.
#[derive(Clone)]
pub struct Surroundings {
    pub clock: Arc<dyn Clock>,
    pub pool: Arc<Pool>,
    pub bell: Arc<Bell>,
    pub health: Arc<Watch>,
    /// Calls whoever hands effects to workers.
    pub effects: Arc<Bell>,
    pub metrics: Arc<Metrics>,
    pub settings: Arc<Settings>,
    /// Who takes spans, when somebody does.
    pub telemetry: Option<Arc<Telemetry>>,
    /// Called when the process must stop. It does not return in production.
    pub on_fatal: Arc<dyn Fn(&Problem) + Send + Sync>,
}

#[derive(Clone)]
pub struct Tenant(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    name: String,
    dir: Option<PathBuf>,
    around: Surroundings,
    admitter: Admitter,
    writer: Mutex<Option<Writer>>,
    /// Those who wait for the writer without mail. Under load it has mail without end, so it must see them.
    looking: AtomicUsize,
    mailbox: Mailbox,
    scheduled: AtomicBool,
    /// Runs can walk on that no command stands for.
    ready: AtomicBool,
    /// Waits are to look back, beside the writer.
    looks: AtomicBool,
    entropy: Mutex<Entropy>,
    /// Tells this opening's delivery tokens from all others.
    epoch: u64,
    tail: RwLock<Tail>,
    /// The newest durable position; readers stop here.
    visible: AtomicU64,
    first: AtomicU64,
    seen: watch::Sender<Position>,
    registry: RwLock<Registry>,
    followers: Followers,
    readers: Mutex<Vec<Box<dyn Reader>>>,
    /// What backlogs are read into.
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Where further readers come from.
    first_reader: Mutex<Box<dyn Reader>>,
    /// As lines stand in their files.
    raw_reader: Mutex<Box<dyn Reader>>,
    /// Keys of sealed spaces.
    seals: Arc<Seals>,
    sync_nanos: AtomicU64,
    /// Runs that ended since it was opened: completed, failed, cancelled.
    ended_runs: [AtomicU64; 3],
    /// Boot time, in nanoseconds, at which [`Tenant::tick`] next has something to do; `u64::MAX`: never.
    due: AtomicU64,
    /// The same of what only waits to be written out, in the machine's time.
    flush: AtomicU64,
    /// One tick at a time, so that whoever ticks after another finds it done.
    ticking: Mutex<()>,
    /// The machine's time, in nanoseconds and one more, at which somebody last asked for it; 0: nobody wants it.
    used: AtomicU64,
    closing: AtomicBool,
    /// The last head that a clean stop marked; nothing was written since while it equals the head.
    closed_at: Option<Position>,
    upkeep: Upkeep,
    /// Who makes the tenant that this one stands for until something is recorded.
    unborn: std::sync::OnceLock<Engine>,
    /// What is declared, as of the newest commit that was handed on.
    catalog: RwLock<Arc<Catalog>>,
    /// Idle connections that read rows beside the writer.
    row_readers: entity::RowReaders,
    /// What happened, beside the writer.
    past: history::Past,
    /// Rows that those connections do not see yet.
    recent: entity::Recent,
    /// To those who follow at this moment.
    live: live::Live,
    /// What secrets are sealed with; read or made when the first one is.
    key: Arc<std::sync::OnceLock<Key>>,
    /// Held while occurrences that were refused are started, so that each starts once.
    starting_refused: Mutex<()>,
    /// Groups whose events are being dispatched.
    draining: Mutex<BTreeSet<String>>,
    /// Who works outside for it.
    outside: effects::Outside,
    /// What it may use, and how much is left.
    allowance: allowance::Allowance,
    pub(crate) workers: tokio::sync::Mutex<tokio::task::JoinSet<()>>,
}

/// Waits for an answer on this thread, also on one that drives tasks: `close` ends in here from anywhere, and the
/// writer that answers is never a task.
fn wait_here(pending: Pending) -> Result<Answer, Problem> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut pending = pin!(tokio::task::unconstrained(pending));
    loop {
        match pending.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer.unwrap_or_else(|_| Err(closing())),
            Poll::Pending => std::thread::park(),
        }
    }
}

pub(crate) fn closing() -> Problem {
    Problem::new(Code::ShuttingDown, "the engine is shutting down").hint("try again once it is back")
}

/// A command in the mailbox whose caller may go away before it has seen to the writer.
struct Mailed<'a>(&'a Tenant);

impl Drop for Mailed<'_> {
    fn drop(&mut self) {
        self.0.hand_over_rest();
    }
}

impl Tenant {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The tenant's directory; `None` in memory.
    pub fn dir(&self) -> Option<&PathBuf> {
        self.0.dir.as_ref()
    }

    /// The newest durable position.
    pub fn head(&self) -> Position {
        self.0.visible.load(Ordering::Acquire)
    }

    /// The first position kept.
    pub fn first(&self) -> Position {
        self.0.first.load(Ordering::Acquire)
    }

    pub(crate) fn begins_at(&self, first: Position) {
        self.0.first.store(first, Ordering::Release);
    }

    pub fn settings(&self) -> &Settings {
        &self.0.around.settings
    }

    /// From here on nothing goes outside: whoever says so answers [`Tenant::open_effects`], of whatever kind.
    pub fn pretend_outside(&self) -> Result<(), Problem> {
        self.with_writer(|writer| {
            writer.state.pretends = true;
            Ok(())
        })
    }

    pub fn limits(&self) -> crate::settings::Limits {
        self.0.admitter.limits()
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.around.metrics
    }

    /// How often each attention rule said what.
    pub fn attention(&self) -> Vec<(String, &'static str, u64)> {
        self.0.admitter.counts()
    }

    pub fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    /// Whether its writer is there: neither closed nor stopped.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.0.writer).is_some()
    }

    pub(crate) fn boot(&self) -> Duration {
        self.0.around.clock.boot()
    }

    /// The engine's time.
    pub fn now(&self) -> model::Timestamp {
        self.0.around.clock.now()
    }

    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        lock(&self.0.entropy).bytes()
    }

    /// The machine's own time.
    pub(crate) fn real(&self) -> Duration {
        self.0.around.clock.real()
    }

    pub(crate) fn report_dead(&self, what: &str) {
        self.0.around.health.report(what);
    }

    /// Committed data cannot be read: the tenant goes on with what is sound, and is not ready. The first place is said.
    pub(crate) fn report_damage(&self, problem: &Problem) {
        let prefix = format!("tenant {}: ", self.name());
        if !self.health().dead().iter().any(|said| said.starts_with(&prefix)) {
            tracing::error!(tenant = self.name(), %problem, "committed data is damaged; see `everwhen verify`");
            self.report_dead(&format!("{prefix}{problem}"));
        }
    }

    pub(crate) fn health(&self) -> &Arc<Watch> {
        &self.0.around.health
    }

    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.0.upkeep
    }

    /// Held for a moment only: whoever holds a group may be waiting to read the newest events.
    fn tail_mut(&self) -> std::sync::RwLockWriteGuard<'_, Tail> {
        self.0.tail.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What groups hold of erased events loses its content, too.
    pub(crate) fn forget_content(&self, positions: &BTreeSet<Position>) {
        let handles = self.registry().all();
        handles.iter().for_each(|handle| handle.forget_content(positions));
    }

    /// Ready once `position` is durable and can be read; never, when it stays ahead of the ledger.
    pub async fn reached(&self, position: Position) -> Result<(), Problem> {
        let mut seen = self.watch();
        seen.wait_for(|seen| *seen >= position).await.map(drop).map_err(|_| closing())
    }

    pub(crate) fn followers(&self) -> &Followers {
        &self.0.followers
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Position> {
        self.0.seen.subscribe()
    }

    pub(crate) fn layers_allow(&self, event: &Event) -> Handled {
        let verdicts = self.0.admitter.layers().iter().map(|layer| layer.handle(event));
        verdicts.into_iter().find(|verdict| !matches!(verdict, Handled::Go)).unwrap_or(Handled::Go)
    }

    /// Reads on from a position as the ledger grows.
    pub fn follow(&self, follow: Follow) -> Result<Follower, Problem> {
        Follower::new(self.clone(), follow)
    }

    /// Asks the writer; the answer comes once it is durable.
    pub(crate) async fn ask(&self, command: Command) -> Result<Answer, Problem> {
        let begun = self.begun_by(&command)?;
        let tenant = begun.as_ref().unwrap_or(self);
        tenant.answer(tenant.submit(command)?).await
    }

    /// The writer's answer to what was put into its mailbox before.
    async fn answer(&self, mut pending: Pending) -> Result<Answer, Problem> {
        // Somebody writes, and a pool thread looks into the mailbox once more before it steps back (`Inner::work`).
        if self.0.scheduled.load(Ordering::Acquire) && self.0.writer.try_lock().is_err() {
            return pending.await.unwrap_or_else(|_| Err(closing()));
        }
        let mailed = Mailed(self);
        // Whoever else on this thread is about to ask does it first: one sync then carries all of them.
        tokio::task::yield_now().await;
        if let Ok(answer) = pending.try_recv() {
            return answer;
        }
        let here = self.run_or_hand_over();
        drop(mailed);
        if here {
            // The sync was on this thread, and those whom the batch woke wait for it: a caller that publishes one event after
            // the other would keep them waiting as long as the runtime lets it, which is many syncs.
            tokio::task::yield_now().await;
        }
        pending.await.unwrap_or_else(|_| Err(closing()))
    }

    /// As [`Tenant::ask`], for one of many in a row: never commits on the caller's thread, which would make each of
    /// them a sync of its own.
    pub(crate) async fn ask_queued(&self, command: Command) -> Result<Answer, Problem> {
        let begun = self.begun_by(&command)?;
        let tenant = begun.as_ref().unwrap_or(self);
        let pending = tenant.submit(command)?;
        tenant.hand_over();
        pending.await.unwrap_or_else(|_| Err(closing()))
    }

    /// As [`Tenant::ask`], for callers that may block; commits on their own thread when the writer is idle.
    pub(crate) fn ask_blocking(&self, command: Command) -> Result<Answer, Problem> {
        let begun = self.begun_by(&command)?;
        let tenant = begun.as_ref().unwrap_or(self);
        tenant.answer_blocking(tenant.submit(command)?)
    }

    fn answer_blocking(&self, mut pending: Pending) -> Result<Answer, Problem> {
        match self.0.writer.try_lock() {
            Ok(mut writer) => {
                self.turn(&mut writer);
                drop(writer);
                self.hand_over_rest();
            }
            Err(_) => self.hand_over(),
        }
        match pending.try_recv() {
            Ok(answer) => answer,
            Err(_) => wait_here(pending),
        }
    }

    fn submit(&self, command: Command) -> Result<Pending, Problem> {
        let begins = matches!(
            command,
            Command::Publish { .. } | Command::Write { .. } | Command::Apply { .. } | Command::Change(_)
        );
        if begins {
            self.takes_more()?;
        }
        Ok(self.0.mailbox.push(command))
    }

    /// One that closes begins nothing new.
    fn takes_more(&self) -> Result<(), Problem> {
        if self.is_closing() { Err(closing()) } else { Ok(()) }
    }

    /// True when the batch was written on this thread.
    fn run_or_hand_over(&self) -> bool {
        let quick = self.0.sync_nanos.load(Ordering::Relaxed) < INLINE_SYNC_MAX.as_nanos() as u64;
        match self.0.writer.try_lock() {
            Ok(mut writer) if quick && self.0.looking.load(Ordering::Acquire) == 0 => {
                self.turn(&mut writer);
                drop(writer);
                self.hand_over_rest();
                true
            }
            _ => {
                self.hand_over();
                false
            }
        }
    }

    fn hand_over(&self) {
        if !self.0.scheduled.swap(true, Ordering::AcqRel) {
            self.0.around.pool.push(self.0.clone());
        }
    }

    /// Whoever held the writer looks once more after letting go: what came meanwhile found it taken.
    fn hand_over_rest(&self) {
        if !self.0.mailbox.is_empty() || self.0.ready.load(Ordering::Acquire) {
            self.hand_over();
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment::of(self.0.around.clock.as_ref())
    }

    /// A failed sync or a broken state: nothing more is answered, the process ends.
    fn stop(&self, Fatal(problem): Fatal) {
        self.0.closing.store(true, Ordering::Release);
        self.report_dead(&format!("tenant {}: {problem}", self.name()));
        (self.0.around.on_fatal)(&problem);
    }

    /// The writer, between two batches.
    fn hold_writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.0.looking.fetch_add(1, Ordering::AcqRel);
        let writer = lock(&self.0.writer);
        self.0.looking.fetch_sub(1, Ordering::AcqRel);
        writer
    }

    /// Waits until those who were waiting have the writer: a lock that is let go of and taken again goes to the same
    /// thread nearly always.
    fn let_look(&self) {
        while self.0.looking.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }

    /// Runs `look` on the writer between two batches. Short things only: nothing else is answered meanwhile.
    pub(crate) fn with_writer<T>(
        &self,
        look: impl FnOnce(&mut Writer) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let mut writer = self.hold_writer();
        let result = writer.as_mut().ok_or_else(closing).and_then(look);
        drop(writer);
        self.hand_over_rest();
        result
    }

    /// A reader of the ledger, from the shelf if one is idle.
    pub(crate) fn with_reader<T>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let shelved = lock(&self.0.readers).pop();
        // Never by way of the writer: a group may be held here that the writer waits for.
        let mut reader = shelved.unwrap_or_else(|| lock(&self.0.first_reader).another());
        let result = read(reader.as_mut());
        let mut shelf = lock(&self.0.readers);
        if shelf.len() < SHELF {
            shelf.push(reader);
        }
        drop(shelf);
        result.inspect_err(|problem| {
            // A key that is not there is said by whoever misses it.
            if problem.code() == Code::StoreCorrupt && self.0.seals.missed().is_none() {
                self.report_damage(problem);
            }
        })
    }

    /// A reader that sees lines as they stand, sealed or not.
    pub(crate) fn with_raw_reader<T>(&self, read: impl FnOnce(&mut dyn Reader) -> T) -> T {
        let mut reader = lock(&self.0.raw_reader).another();
        read(reader.as_mut())
    }

    pub(crate) fn seals(&self) -> &Arc<Seals> {
        &self.0.seals
    }

    /// Events in `from..=to`, about `max`, and how far that looked: from memory when they are recent, else a chunk of
    /// the ledger.
    pub(crate) fn events_from(
        &self,
        from: Position,
        to: Position,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, Position), Problem> {
        let recent = self.0.tail.read().unwrap_or_else(std::sync::PoisonError::into_inner).read(from, max);
        if let Some(mut events) = recent {
            let whole = events.len() < max;
            events.retain(|event| event.position <= to);
            let through = if whole { to } else { events.last().map_or(to, |event| event.position) };
            return Ok((events, through));
        }
        let mut bytes = lock(&self.0.buffers).pop().unwrap_or_default();
        let mut events = Vec::with_capacity(max);
        let end = self.with_reader(|reader| {
            let end = reader.read(from, read::CHUNK, &mut bytes).map_err(read::problem)?;
            match read::events(&bytes, (from, to), |event| events.push(event))? {
                0 => Ok(end),
                next if next == end.next => Ok(end),
                next => Err(read::misplaced(next, end.next)),
            }
        })?;
        let mut buffers = lock(&self.0.buffers);
        if buffers.len() < SHELF && bytes.capacity() <= 4 * read::CHUNK {
            buffers.push(bytes);
        }
        Ok((events, end.next.saturating_sub(1).clamp(from, to)))
    }

    fn registry(&self) -> std::sync::RwLockReadGuard<'_, Registry> {
        self.0.registry.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Work for Inner {
    /// Batch after batch until nothing is left; then steps back, and looks once more for what came just then.
    fn work(self: Arc<Self>) {
        let tenant = Tenant(self);
        loop {
            let mut writer = lock(&tenant.0.writer);
            while tenant.turn(&mut writer) {
                if tenant.0.looking.load(Ordering::Acquire) > 0 {
                    drop(writer);
                    tenant.let_look();
                    writer = lock(&tenant.0.writer);
                }
            }
            drop(writer);
            tenant.0.scheduled.store(false, Ordering::Release);
            let idle = tenant.0.mailbox.is_empty() && !tenant.0.ready.load(Ordering::Acquire);
            if idle || tenant.0.scheduled.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
