//! The start of a salvaged ledger that was trimmed: the record that says why lines are missing, and a state to fold the rest on.
//!
//! Both usually lie behind the damage, where nothing is saved from. The record is then written anew behind the last line; its
//! chain is known from the damaged ledger, and proven by the first line kept. Where no snapshot reaches into what was
//! saved the state begins empty, and that is said.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::OsDisk;
use ledger::{AppendError, Batch, Chain, FileLedger, Head, Ledger, NewRecord, Prefill, Salvaged};
use model::record::Record;
use model::{Problem, Timestamp};

use crate::apply::{Place, apply};
use crate::maintain::{broken, files, refold, snapshot};
use crate::read;
use crate::state::State;

/// Completes what was saved of `dir` in `to`; what could not be.
pub fn complete(dir: &Path, to: &Path, saved: &mut Salvaged) -> Result<Option<String>, Problem> {
    if saved.first == 1 {
        return Ok(None);
    }
    let before = saved.before.or_else(|| known_to_state(dir, saved));
    let grounded =
        refold::ground(to, saved.first, saved.head.position)?.is_some() || keep_state(dir, to, saved)?;
    if grounded && saved.explained {
        return Ok(None);
    }
    let mut copy = Copy::open(to, saved)?;
    let start =
        Record::LedgerTrimmed { first: saved.first, before: before.unwrap_or(Chain::ZERO).to_string() };
    if !saved.explained && before.is_some() {
        copy.append(&start)?;
    }
    if !grounded {
        let taken = copy.take_empty(to, &start)?;
        copy.append(&taken)?;
    }
    saved.commits += copy.written;
    saved.records += copy.written;
    saved.head = copy.ledger.head();
    copy.ledger.close().map_err(AppendError::into_error).map_err(read::problem)?;
    let unexplained =
        format!("nothing says why positions below {} are gone; `verify` names that gap", saved.first);
    let empty = "no snapshot reaches into what was saved: groups, keys, rows and runs begin empty";
    let mut lost = Vec::from_iter((!grounded).then(|| empty.to_owned()));
    lost.extend((!saved.explained && before.is_none()).then_some(unexplained));
    Ok((!lost.is_empty()).then(|| lost.join("; ")))
}

/// The state notes each trim, too.
fn known_to_state(dir: &Path, saved: &Salvaged) -> Option<Chain> {
    let states = [dir.join("state.db")].into_iter().chain(snapshot::newest_first(dir));
    let known =
        states.filter_map(|path| State::copy_of(&path).ok()).filter(|state| state.first == saved.first);
    known.map(|state| state.before).find(|before| ledger::begins_after(&saved.first_line, *before))
}

/// The damaged directory's own state serves as a snapshot when all that it has seen was saved.
fn keep_state(dir: &Path, to: &Path, saved: &Salvaged) -> Result<bool, Problem> {
    let Ok(state) = State::copy_of(&dir.join("state.db")) else { return Ok(false) };
    let at = state.applied.position;
    let reaches = (saved.first..=saved.head.position).contains(&at) && refold::chain_is(to, state.applied)?;
    if reaches {
        snapshot::copy_to(&state, &place(to, state.applied)?)?;
    }
    Ok(reaches)
}

fn place(to: &Path, head: Head) -> Result<std::path::PathBuf, Problem> {
    let folder = to.join("snapshots");
    files::make_dir(&folder)?;
    Ok(folder.join(format!("{:020}.db", head.position)))
}

/// The copy, open to be written to.
struct Copy {
    ledger: FileLedger,
    time: Timestamp,
    written: u64,
}

impl Copy {
    fn open(to: &Path, saved: &Salvaged) -> Result<Copy, Problem> {
        let options = ledger::Options { prefill: Prefill::Off, headroom: 0, ..ledger::Options::default() };
        let opened = FileLedger::open(Arc::new(OsDisk), &to.join("ledger"), options);
        let (ledger, _) = opened.map_err(read::problem)?;
        // Nothing has happened since the last line.
        let time = saved.time.as_deref().and_then(|text| Timestamp::parse(text).ok());
        Ok(Copy { ledger, time: time.unwrap_or(Timestamp::EPOCH), written: 0 })
    }

    fn append(&mut self, record: &Record) -> Result<(), Problem> {
        let mut batch = Batch::new(self.ledger.head(), self.ledger.synced(), self.time);
        let (kind, version, data) = (record.kind(), record.version(), record.data());
        batch.commit(&[NewRecord { kind, version, data, body: None }]);
        self.written += 1;
        self.ledger.append(&batch, true).map_err(AppendError::into_error).map_err(read::problem)
    }

    /// A snapshot of nothing but where the ledger begins, as of its last line.
    fn take_empty(&self, to: &Path, start: &Record) -> Result<Record, Problem> {
        let head = self.ledger.head();
        let mut state = State::open(None).map_err(broken)?;
        state.begin().map_err(broken)?;
        apply(&mut state, Place { position: head.position, time: self.time }, start).map_err(broken)?;
        state.applied = head;
        state.commit().map_err(broken)?;
        snapshot::copy_to(&state, &place(to, head)?)?;
        let hash = state.dump_hash().map_err(broken)?;
        Ok(Record::SnapshotTaken { position: head.position, head: head.chain.to_string(), hash })
    }
}
