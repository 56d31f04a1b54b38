//! State × command → records and an answer. Pure: `now` and entropy are handed in, nothing is changed.

mod define;
pub(crate) mod effect;
pub(crate) mod entity;
mod group;
pub(crate) mod publish;
pub(crate) mod run;
pub(crate) mod subscription;
mod trim;

use std::sync::Arc;

use ledger::{NewBody, NewRecord};
use model::event::Event;
use model::record::{FORMAT_OF_ENTITIES, Record};
use model::{Code, Position, Problem, Timestamp};

use crate::command::{Answer, Command};
use crate::entropy::Entropy;
use crate::state::{Fault, State};
pub(crate) use group::ERASED;

/// A record and its bytes. Formed together, so that what is folded is what is written.
pub struct Entry {
    pub record: Record,
    pub encoded: NewRecord,
    /// Events that go out with it to whoever listens, and are written nowhere.
    pub told: Vec<Arc<Event>>,
    /// Whose keys its body is sealed with, when the record itself does not say.
    pub spaces: Option<Vec<String>>,
}

impl Entry {
    pub fn new(record: Record, entropy: &mut Entropy) -> Entry {
        let body = record.body().map(|json| NewBody::new(entropy.bytes(), json));
        let encoded = NewRecord { kind: record.kind(), version: record.version(), data: record.data(), body };
        Entry::formed(record, encoded)
    }

    /// The same, of an event in this space.
    pub fn within(self, space: &str) -> Entry {
        Entry { spaces: Some(vec![space.to_owned()]), ..self }
    }

    pub fn formed(record: Record, encoded: NewRecord) -> Entry {
        Entry { record, encoded, told: Vec::new(), spaces: None }
    }

    /// How long its body is.
    pub fn bytes(&self) -> usize {
        self.encoded.body.as_ref().map_or(0, |body| body.json.len())
    }
}

/// What a command comes to: one commit (no entries: nothing changes) and what its caller hears once it is durable.
pub struct Decided {
    pub entries: Vec<Entry>,
    pub answer: Answer,
    /// Only group moves may wait for somebody else's sync.
    pub sync: bool,
}

/// What deciding may use besides the state.
pub struct Ground<'a> {
    pub now: Timestamp,
    /// Where the first record of this commit will stand.
    pub next: Position,
    pub entropy: &'a mut Entropy,
}

/// Why a command came to nothing.
pub enum Refusal {
    Problem(Problem),
    /// The state could not be read; the process stops.
    Fault(Fault),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::Problem(problem)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Fault(fault)
    }
}

pub fn decide(state: &State, command: Command, ground: &mut Ground<'_>) -> Result<Decided, Refusal> {
    match command {
        Command::Publish { events } => publish::publish(state, events, ground),
        Command::AdmitDue => publish::admit_due(state, ground),
        Command::PutGroup { name, definition, floor } => group::put(state, name, definition, floor, ground),
        Command::DeleteGroup { name } => {
            group::known(state, &name)?;
            Ok(one(Record::GroupDeleted { group: name }, ground))
        }
        Command::Seek { name, floor } => group::seek(state, name, floor, ground),
        Command::Pause { name, paused } => group::pause(state, name, paused, ground),
        Command::Unhalt { name } => group::unhalt(state, name, ground),
        Command::Move { moved, since, sync } => group::moved(state, moved, since, sync, ground),
        Command::Fail { group, since, failing } => group::fail(state, &group, since, failing, ground),
        Command::Redrive { group, positions } => group::redrive(state, group, &positions, ground),
        Command::Trim { first, before, respect_groups } => {
            trim::trim(state, first, before, respect_groups, ground)
        }
        Command::Apply { managed_by, definitions, dry_run } => {
            define::apply(state, managed_by, definitions, dry_run, ground)
        }
        Command::Change(change) => define::change(state, change, ground),
        Command::Write { writes } => entity::write(state, writes, ground),
        // Decided on a draft, see `decide::run`.
        Command::Run(_) => Ok(nothing(ground)),
        Command::Note { records } => {
            let entries = records.into_iter().map(|record| Entry::new(record, ground.entropy)).collect();
            Ok(Decided { entries, answer: done(ground), sync: true })
        }
    }
}

/// What goes before the first record of a kind that a ledger of an earlier format does not have.
fn raised(state: &State, ground: &mut Ground<'_>) -> Vec<Entry> {
    if state.format >= FORMAT_OF_ENTITIES {
        return Vec::new();
    }
    vec![Entry::new(Record::FormatRaised { format: FORMAT_OF_ENTITIES }, ground.entropy)]
}

fn one(record: Record, ground: &mut Ground<'_>) -> Decided {
    Decided { entries: vec![Entry::new(record, ground.entropy)], answer: done(ground), sync: true }
}

fn nothing(ground: &Ground<'_>) -> Decided {
    Decided { entries: Vec::new(), answer: done(ground), sync: true }
}

fn done(ground: &Ground<'_>) -> Answer {
    Answer::Done { head: ground.next }
}

fn not_found(name: &str) -> Problem {
    Problem::new(Code::GroupNotFound, format!("there is no group \"{name}\""))
        .hint("list them with `everwhen groups list`, or create it with `everwhen groups put`")
}
