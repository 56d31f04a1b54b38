//! The single writer of a tenant: takes commands in batches, decides them, appends with one fdatasync, folds, answers.
//!
//! ```text
//!   for each command:  decide(state) ─▶ a line in the batch ─▶ apply(state)      the next command sees it
//!                      runs that would keep others from starting walk at once    and does not find them in its way
//!   per batch:         append + fdatasync ─▶ answers, events                     nothing leaves before the sync
//!   now and then:      COMMIT of state.db                                        never before its batches are synced
//! ```
//!
//! The writer owns ledger and state; it reads no clock and starts nothing, so the simulation runs this very code.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ledger::{AppendError, Batch, Head, Ledger};
use model::definition::Kind;
use model::event::Event;
use model::record::Record;
use model::{Code, Position, Problem, Timestamp};

use crate::apply::Place;
use crate::clock::Clock;
use crate::command::{Answer, Command};
use crate::decide::{self, Decided, Entry, Ground, Refusal, decide};
use crate::draft::Draft;
use crate::entropy::Entropy;
use crate::faults::planted;
use crate::gate::mode;
use crate::read;
use crate::route;
use crate::schedule;
use crate::state::{Fault, State};
use crate::walk;

/// Limits of one batch (R5). A larger command is a batch of its own.
pub const BATCH_COMMANDS_MAX: usize = 1024;
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// How long folded state may wait for its COMMIT, and how many rows.
pub const STATE_OPEN_MAX: Duration = Duration::from_millis(50);
const STATE_ROWS_MAX: usize = 8_192;
/// Walks in one batch, and for each command in it if those are more; the rest follow in the next.
const WALKS_MAX: usize = 512;
const WALKS_A_COMMAND: usize = 4;
/// Records that count for one walk, where one commit holds many.
const RECORDS_A_WALK: usize = 16;
/// Marked conditions that one batch tests; the rest follow in the next.
const TESTS_MAX: usize = 256;
/// A step of the wall clock against the boot clock that is worth a record.
pub(crate) const STEP_MIN_NANOS: i128 = 1_000_000_000;

/// Both clocks, read once per batch; and the machine's own, which `boot` is unless the engine's time was told.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now: Timestamp,
    pub boot: Duration,
    pub real: Duration,
}

impl Moment {
    pub fn of(clock: &dyn Clock) -> Moment {
        Moment { now: clock.now(), boot: clock.boot(), real: clock.real() }
    }

    /// Wall clock minus boot clock, in nanoseconds.
    pub(crate) fn offset(self) -> i128 {
        self.now.nanos() - self.boot.as_nanos() as i128
    }
}

/// The process must stop: acknowledged data can no longer be promised, or derived state can no longer be written.
#[derive(Debug, Clone)]
pub struct Fatal(pub Problem);

impl From<Fault> for Fatal {
    fn from(fault: Fault) -> Fatal {
        if fault.lacks_temporary() {
            let detail = "a sort that is too large for memory needs a temporary file, and none can be made in SQLITE_TMPDIR, \
                          TMPDIR, /var/tmp, /usr/tmp, /tmp or the working directory";
            return Fatal(Problem::new(Code::StorageReadOnly, detail).hint(
                "set TMPDIR of the server to a directory that its user may write, then start it again; in a container: \
                 --tmpfs /tmp; `everwhen doctor` says which one is used",
            ));
        }
        let code = if fault.is_full() { Code::StorageFull } else { Code::StorageFailed };
        Fatal(
            Problem::new(code, fault.to_string())
                .hint("the ledger is intact: free space or mend the disk, then start again"),
        )
    }
}

impl Fatal {
    /// `state.db` had no room. The writer has made what room it can and goes on: nothing is lost that the ledger holds.
    pub fn is_full(&self) -> bool {
        self.0.code() == Code::StorageFull
    }
}

/// What a batch made true, in the order of positions.
pub enum Committed {
    Event(Arc<Event>),
    Other(Place, Record),
    /// Heard by who listens now, written nowhere.
    Told(Arc<Event>),
}

#[derive(Default)]
pub struct Turn {
    pub answers: Vec<Result<Answer, Problem>>,
    pub committed: Vec<Committed>,
}

pub struct Writer {
    pub ledger: Box<dyn Ledger>,
    pub state: State,
    entropy: Entropy,
    batch: Batch,
    /// Wall clock minus boot clock when the writer last took note.
    pub(crate) offset: Option<i128>,
    state_opened: Option<Duration>,
    /// The disk was full at the last batch.
    full: bool,
    /// Somebody listens to what is told and not written.
    pub(crate) heard: bool,
    /// How many records the last batch had.
    last_committed: usize,
    /// Lines that `ack_early` answered for and did not write yet.
    held_back: Option<Batch>,
}

impl Writer {
    pub fn new(ledger: Box<dyn Ledger>, state: State, entropy: Entropy) -> Writer {
        let batch = Batch::new(ledger.head(), ledger.synced(), Timestamp::EPOCH);
        Writer {
            ledger,
            state,
            entropy,
            batch,
            offset: None,
            state_opened: None,
            full: false,
            heard: false,
            last_committed: 0,
            held_back: None,
        }
    }

    /// Decides and makes durable one batch of commands. `Err` means the process must stop; nobody was answered.
    pub fn turn(&mut self, moment: Moment, commands: Vec<Command>) -> Result<Turn, Fatal> {
        let (asked, offset) = (commands.len(), self.offset);
        match self.try_turn(moment, commands) {
            // Folding comes before appending, so nothing of the batch is in the ledger.
            Err(fatal) if fatal.is_full() => {
                self.offset = offset;
                self.make_room()?;
                self.try_commit_state()?;
                let answers = (0..asked).map(|_| Err(storage_full())).collect();
                Ok(Turn { answers, committed: Vec::new() })
            }
            turned => turned,
        }
    }

    fn try_turn(&mut self, moment: Moment, commands: Vec<Command>) -> Result<Turn, Fatal> {
        self.write_held_back()?;
        self.batch.clear(self.ledger.head(), self.ledger.synced(), moment.now);
        self.state.begin()?;
        let full = self.ledger.is_full();
        self.full = full;
        // As many as last time: they are large, and a list that grows is copied again and again.
        let committed = Vec::with_capacity(self.last_committed);
        let (mut turn, offset) =
            (Turn { answers: Vec::with_capacity(commands.len()), committed }, self.offset);
        let mut sync = self.note_clock_step(moment, &mut turn)?;
        // A full disk fails nothing: runs stand still until there is space.
        let walks = !full && !commands.iter().any(is_close);
        let mut walks_left = if walks { WALKS_MAX.max(WALKS_A_COMMAND * commands.len()) } else { 0 };
        for command in commands {
            let ready = self.state.runs.ready.len();
            let refused = full
                && !self.is_repeat(&command)?
                && matches!(
                    command,
                    Command::Publish { .. }
                        | Command::AdmitDue
                        | Command::Write { .. }
                        | Command::Apply { .. }
                        | Command::Change(_)
                        | Command::Run(_)
                );
            let answer = if refused {
                Err(storage_full())
            } else {
                self.decide_one(moment, command, &mut turn, &mut sync)?
            };
            turn.answers.push(answer);
            // Before the next command: a run that takes no time must not be in its way only because both came in one batch.
            // Runs in nobody's way walk after all commands, which is quicker.
            if self.bring_forward(ready, None) {
                sync |= self.walk_ready(moment, &mut turn, (&mut walks_left, true))?;
            }
        }
        if walks {
            sync |= self.wake_marked(moment, &mut turn)?;
            sync |= self.walk_ready(moment, &mut turn, (&mut walks_left, false))?;
        }
        self.last_committed = turn.committed.len();
        self.make_durable(moment, offset, sync, turn)
    }

    /// Whether it only asks again for what is written: there is always room for that answer.
    fn is_repeat(&self, command: &Command) -> Result<bool, Fatal> {
        let Command::Publish { events } = command else { return Ok(false) };
        for event in events {
            let envelope = &event.event.envelope;
            let Some(key) = &envelope.key else { return Ok(false) };
            if self.state.key(envelope.source.as_deref(), key)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn decide_one(
        &mut self,
        moment: Moment,
        command: Command,
        turn: &mut Turn,
        sync: &mut bool,
    ) -> Result<Result<Answer, Problem>, Fatal> {
        let next = self.batch.head().position + 1;
        let decided = match command {
            Command::Run(command) => {
                let draft = Draft::new(&mut self.state, &mut self.entropy, moment.now, next);
                let mut draft = draft.over(self.ledger.as_ref()).heard(self.heard);
                let answer = decide::run::decide(&mut draft, command);
                let answer = answer.and_then(|answer| Ok(route::all(&mut draft).map(|()| answer)?));
                let entries = draft.into_entries();
                answer.map(|answer| {
                    let sync = must_sync(&answer);
                    (entries, answer, sync)
                })
            }
            command => {
                let quiet = is_quiet(&command);
                let finish_runs = matches!(&command, Command::Change(change) if change.finish_runs);
                let mut ground = Ground { now: moment.now, next, entropy: &mut self.entropy };
                let decided = decide(&self.state, command, &mut ground);
                decided.and_then(|decided| self.routed(moment, next, decided, (quiet, finish_runs)))
            }
        };
        match decided {
            Ok((entries, answer, needs_sync)) => {
                *sync |= needs_sync;
                self.commit(moment.now, entries, turn);
                Ok(Ok(answer))
            }
            Err(Refusal::Problem(problem)) => {
                // A refusal may rest on what an unsynced batch wrote; it must not be heard before that is durable.
                *sync |= self.ledger.synced() < self.ledger.head().position;
                Ok(Err(problem))
            }
            Err(Refusal::Fault(fault)) => Err(fault.into()),
        }
    }

    /// Folds what was decided and finds whom its events concern; all of it is one commit.
    fn routed(
        &mut self,
        moment: Moment,
        next: Position,
        decided: Decided,
        (quiet, finish_runs): (bool, bool),
    ) -> Result<(Vec<Entry>, Answer, bool), Refusal> {
        let Decided { entries, answer, sync } = decided;
        if !quiet && route::listens(&self.state) {
            route::check(&self.state, entries.iter().filter_map(topic_of))?;
        }
        let removed = entries.iter().find_map(removed_by);
        let before = self.state.catalog.clone();
        let draft = Draft::new(&mut self.state, &mut self.entropy, moment.now, next);
        let mut draft = draft.over(self.ledger.as_ref()).heard(self.heard);
        draft.add_all(entries)?;
        if let Some(removed) = removed {
            decide::run::deployed(&mut draft, &before.automations, &removed, finish_runs)?;
        }
        if !quiet {
            route::all(&mut draft)?;
        }
        Ok((draft.into_entries(), answer, sync))
    }

    /// Tests conditions that changes have only marked. True when one held.
    fn wake_marked(&mut self, moment: Moment, turn: &mut Turn) -> Result<bool, Fatal> {
        let mut woke = false;
        for _ in 0..TESTS_MAX {
            let Some(wait) = self.state.runs.wakes.next_marked() else { break };
            let next = self.batch.head().position + 1;
            let mut draft = Draft::new(&mut self.state, &mut self.entropy, moment.now, next);
            route::recheck_wait(&mut draft, wait)?;
            let entries = draft.into_entries();
            woke |= !entries.is_empty();
            self.commit(moment.now, entries, turn);
        }
        Ok(woke)
    }

    /// Runs that can go on do so, each in a commit of its own. True when one did.
    /// `once`: one that yields goes to the back of the queue and is left there.
    fn walk_ready(
        &mut self,
        moment: Moment,
        turn: &mut Turn,
        (left, once): (&mut usize, bool),
    ) -> Result<bool, Fatal> {
        let (mut walked, mut yielded) = (false, None);
        while *left > 0 {
            let Some(run) = self.state.runs.ready.front().copied() else { break };
            if once && yielded == Some(run) {
                break;
            }
            *left -= 1;
            let others = self.state.runs.ready.len() - 1;
            let next = self.batch.head().position + 1;
            let draft = Draft::new(&mut self.state, &mut self.entropy, moment.now, next);
            let mut draft = draft.over(self.ledger.as_ref()).heard(self.heard);
            walk::walk(&mut draft, run)?;
            let entries = draft.into_entries();
            if entries.is_empty() {
                // It is gone: nothing to write, and not to be asked again.
                self.state.runs.ready.pop_front();
                continue;
            }
            // What walked along in its commit counts, too: others wait for the end of the turn.
            *left = left.saturating_sub(entries.len() / RECORDS_A_WALK);
            self.commit(moment.now, entries, turn);
            walked = true;
            if self.state.runs.ready.iter().skip(others).any(|ready| *ready == run) {
                yielded = yielded.or(Some(run));
            }
            self.bring_forward(others, Some(run));
        }
        Ok(walked)
    }

    /// Of the runs that became ready after the first `known`, those go before all others that the next of their automation would find
    /// in its way. False when there are none. One that has just walked and yielded stays where it went, at the back.
    fn bring_forward(&mut self, known: usize, walked: Option<Position>) -> bool {
        let state = &self.state;
        let fresh = state.runs.ready.iter().skip(known).copied().filter(|run| Some(*run) != walked);
        let first: Vec<Position> = fresh.filter(|run| mode::is_in_the_way(state, *run)).collect();
        if first.is_empty() {
            return false;
        }
        let ready = &mut self.state.runs.ready;
        if ready.len() > first.len() {
            ready.retain(|run| !first.contains(run));
            first.iter().rev().for_each(|run| ready.push_front(*run));
        }
        true
    }

    /// One commit, then the fold.
    fn fold(&mut self, now: Timestamp, entries: Vec<Entry>, turn: &mut Turn) -> Result<(), Fatal> {
        let next = self.batch.head().position + 1;
        let mut draft = Draft::new(&mut self.state, &mut self.entropy, now, next);
        draft.add_all(entries)?;
        let entries = draft.into_entries();
        self.commit(now, entries, turn);
        Ok(())
    }

    /// What was folded becomes a line in the batch.
    fn commit(&mut self, now: Timestamp, entries: Vec<Entry>, turn: &mut Turn) {
        if entries.is_empty() {
            return;
        }
        let first = self.batch.commit(entries.iter().map(|entry| &entry.encoded));
        for (index, Entry { record, told, .. }) in entries.into_iter().enumerate() {
            let place = Place { position: first + index as u64, time: now };
            turn.committed.push(match record {
                Record::Event(event) => Committed::Event(event),
                record => Committed::Other(place, record),
            });
            turn.committed.extend(told.into_iter().map(Committed::Told));
        }
        self.state.applied = self.batch.head();
    }

    fn make_durable(
        &mut self,
        moment: Moment,
        offset: Option<i128>,
        sync: bool,
        turn: Turn,
    ) -> Result<Turn, Fatal> {
        if self.batch.is_empty() {
            if sync && self.ledger.synced() < self.ledger.head().position {
                self.ledger.sync().map_err(fatal)?;
            }
            return Ok(turn);
        }
        if planted("ack_early") && sync {
            self.held_back = Some(std::mem::replace(&mut self.batch, Batch::new(Head::EMPTY, 0, moment.now)));
            return Ok(turn);
        }
        match self.ledger.append(&self.batch, sync) {
            Ok(()) => {
                self.state_opened.get_or_insert(moment.real);
                Ok(turn)
            }
            Err(AppendError::Refused(error)) => {
                // A step of the clock that was in it must be seen again.
                self.offset = offset;
                let problem = read::problem(error);
                tracing::warn!(%problem, "batch refused, nothing of it was kept");
                self.fold_again()?;
                Ok(Turn {
                    answers: turn.answers.iter().map(|_| Err(problem.clone())).collect(),
                    committed: Vec::new(),
                })
            }
            Err(AppendError::Fatal(error)) => Err(fatal(AppendError::Fatal(error))),
        }
    }

    /// The batch is not in the ledger: the open state is dropped and the ledger's tail folded again.
    fn fold_again(&mut self) -> Result<(), Fatal> {
        self.state.roll_back()?;
        self.state_opened = None;
        read::fold_tail(self.ledger.reader().as_mut(), &mut self.state, |_| ()).map_err(Fatal)?;
        self.state.runs.wakes.mark_all();
        Ok(schedule::arm(&mut self.state)?)
    }

    /// The COMMIT of `state.db` once enough was folded. Called between batches, when everybody has been answered: the
    /// ledger keeps the promise, so nobody waits for this.
    pub fn commit_state_if_due(&mut self, moment: Moment) -> Result<(), Fatal> {
        let Some(opened) = self.state_opened else { return Ok(()) };
        let old = moment.real.saturating_sub(opened) >= STATE_OPEN_MAX;
        let due = old || self.state.open_rows >= STATE_ROWS_MAX;
        if due && !self.is_stuck() { self.try_commit_state() } else { Ok(()) }
    }

    /// Unless something in it is not synced yet, or there is no room for it.
    fn try_commit_state(&mut self) -> Result<(), Fatal> {
        if self.ledger.synced() < self.state.applied.position {
            return Ok(());
        }
        self.commit_state().or_else(|fatal| if fatal.is_full() { Ok(()) } else { Err(fatal) })
    }

    /// On a full disk what is kept back is given up for it. When even that is not enough, the state stays open, in memory
    /// and whole, until there is room again; a crash before that folds it from the ledger.
    fn commit_state(&mut self) -> Result<(), Fatal> {
        let opened = self.state_opened;
        for _ in 0..2 {
            match self.state.commit() {
                Err(fault) if fault.is_full() => self.make_room()?,
                Err(fault) => return Err(fault.into()),
                Ok(()) => {
                    self.state_opened = None;
                    return Ok(());
                }
            }
        }
        self.state_opened = opened;
        Err(Fatal(storage_full()))
    }

    /// A COMMIT is not worth a try.
    fn is_stuck(&mut self) -> bool {
        self.state.is_held() && self.ledger.is_full()
    }

    /// `state.db` found the disk full and has lost what was open in it.
    fn make_room(&mut self) -> Result<(), Fatal> {
        tracing::warn!("state.db found the disk full; publishing is refused until there is room");
        self.ledger.make_room();
        self.state.roll_back()?;
        self.state.hold(true)?;
        self.fold_again()
    }

    /// Makes durable what was only written, and commits the state: what is left to do when nobody asks for more.
    pub fn settle(&mut self) -> Result<(), Fatal> {
        self.write_held_back()?;
        if self.ledger.synced() < self.ledger.head().position {
            self.ledger.sync().map_err(fatal)?;
        }
        if self.state_opened.is_some() || self.state.is_open() {
            if self.is_stuck() {
                return Err(Fatal(storage_full()));
            }
            self.commit_state()?;
        }
        Ok(())
    }

    /// Since when, in the machine's time, something waits for [`Writer::settle`].
    pub fn unsettled_since(&self) -> Option<Duration> {
        self.state_opened
    }

    /// Whether runs can walk on that no command stands for.
    pub fn has_ready(&self) -> bool {
        let runs = &self.state.runs;
        (!runs.ready.is_empty() || runs.wakes.has_marked()) && !self.full
    }

    pub fn head(&self) -> Position {
        self.ledger.head().position
    }

    /// A step of the wall clock is a record, because it shifts every elapsed timer.
    fn note_clock_step(&mut self, moment: Moment, turn: &mut Turn) -> Result<bool, Fatal> {
        let offset = moment.offset();
        let before = self.offset.replace(offset);
        let Some(step) = before.map(|before| offset - before).filter(|step| step.abs() >= STEP_MIN_NANOS)
        else {
            // Small drifts add up to nothing: the reference stays where it was.
            self.offset = before.or(self.offset);
            return Ok(false);
        };
        let record = Record::ClockStepped { by_ms: (step / 1_000_000) as i64 };
        let entry = Entry::new(record, &mut self.entropy);
        self.fold(moment.now, vec![entry], turn)?;
        Ok(true)
    }

    fn write_held_back(&mut self) -> Result<(), Fatal> {
        match self.held_back.take() {
            Some(batch) => self.ledger.append(&batch, true).map_err(fatal),
            None => Ok(()),
        }
    }
}

/// That an effect was handed out need not survive a loss of power, unless it must not be sent again.
fn must_sync(answer: &Answer) -> bool {
    match answer {
        Answer::Effects(effects) => effects.iter().any(|effect| effect.once),
        _ => true,
    }
}

/// What an import brings starts nothing, nor what takes rows away for good. A note beside the events of others is no import.
fn is_quiet(command: &Command) -> bool {
    match command {
        Command::Publish { events } => events.iter().all(|event| event.quiet),
        Command::Write { writes } => writes.iter().any(|write| write.quiet),
        _ => false,
    }
}

/// Nothing may follow the mark of a clean stop.
fn is_close(command: &Command) -> bool {
    matches!(command, Command::Note { records } if matches!(records[..], [Record::LedgerClosed]))
}

/// Automations that definitions take away; `None` when it is about no definitions.
fn removed_by(entry: &Entry) -> Option<Vec<String>> {
    let Record::DefinitionsApplied(applied) = &entry.record else { return None };
    let automations = applied.removed.iter().filter(|(kind, _)| *kind == Kind::Automation);
    Some(automations.map(|(_, name)| name.clone()).collect())
}

fn topic_of(entry: &Entry) -> Option<&str> {
    match &entry.record {
        Record::Event(event) => Some(event.envelope.topic.as_str()),
        _ => None,
    }
}

fn fatal(error: AppendError) -> Fatal {
    let (AppendError::Refused(error) | AppendError::Fatal(error)) = error;
    Fatal(
        Problem::new(Code::StorageFailed, format!("the ledger could not be made durable: {error}")).hint(
            "nothing more is acknowledged; check the disk (`dmesg`, `everwhen doctor`), then start again",
        ),
    )
}

fn storage_full() -> Problem {
    Problem::new(Code::StorageFull, "the disk is full: publishing is refused, acks and reads go on")
        .hint("free space on the data directory's disk; publishing resumes by itself")
}
