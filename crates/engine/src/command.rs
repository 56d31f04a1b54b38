//! What can be asked of a tenant's writer, and what it answers. Everything that changes state goes through here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::event::Event;
use model::group::Definition;
use model::record::{DeadReason, How, Moved, OccurrenceId, Record, RunStarted};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use crate::admit::{Caller, Prepared};
use crate::entity::{Write, Written};
use crate::route::lost::Lost;
use crate::run::{WaitId, Walked};

pub enum Command {
    /// All or none become true, in one commit.
    Publish {
        events: Vec<Prepared>,
    },
    PutGroup {
        name: String,
        definition: Definition,
        floor: Position,
    },
    DeleteGroup {
        name: String,
    },
    Seek {
        name: String,
        floor: Position,
    },
    Pause {
        name: String,
        paused: bool,
    },
    /// A halted group goes on with the event it halted on.
    Unhalt {
        name: String,
    },
    /// How far a group's deliveries have come. Without `sync` a crash may undo it, which is a redelivery.
    Move {
        moved: Moved,
        since: Position,
        sync: bool,
    },
    Fail {
        group: String,
        since: Position,
        failing: Vec<Failing>,
    },
    Redrive {
        group: String,
        positions: Vec<Position>,
    },
    /// Deferred publishes whose time has come.
    AdmitDue,
    /// Everything below `first` is given up; `before` is the chain there. Unless groups are respected, those that still
    /// needed some of it are told.
    Trim {
        first: Position,
        before: String,
        respect_groups: bool,
    },
    /// What a workspace declares now: all of it, or nothing when something does not fit. A dry run only says what it
    /// would do.
    Apply {
        managed_by: String,
        definitions: Vec<model::definition::Definition>,
        dry_run: bool,
    },
    /// Sets and removes single definitions of one who manages them.
    Change(Change),
    /// Writes of rows, all or none, in one commit.
    Write {
        writes: Vec<Write>,
    },
    /// About automations and their runs.
    Run(RunCommand),
    /// What the housekeeping found or did.
    Note {
        records: Vec<Record>,
    },
}

/// Definitions by themselves, not a whole workspace.
pub struct Change {
    pub managed_by: String,
    pub set: Vec<model::definition::Definition>,
    pub removed: Vec<(model::definition::Kind, String)>,
    /// What is set must be new.
    pub create: bool,
    /// Runs of automations that are removed go on to their end; else they are cancelled.
    pub finish_runs: bool,
}

/// What is asked about automations and their runs.
pub enum RunCommand {
    Start {
        automation: String,
        input: Value,
        /// What stands for the event, when one was given.
        event: Option<Value>,
        actor: String,
        /// The W3C traceparent of the request.
        trace: Option<String>,
    },
    Cancel {
        run: String,
        why: String,
    },
    /// Its runs are over, and what waits with something of it never begins.
    Lose(Box<Lost>),
    /// A run that has ended goes on or begins anew; with another id, beside it.
    Again(Box<Again>),
    /// Of a person who was asked.
    Answer {
        run: String,
        wait: u32,
        value: Value,
        actor: String,
    },
    /// Of a worker.
    EffectDone {
        run: Position,
        wait: u32,
        how: How,
        value: Value,
    },
    /// The next effects go to workers: as many of events, and of schedules.
    HandOut {
        room: [usize; 2],
    },
    /// Workers in other processes have these.
    HandTasks {
        of: Vec<WaitId>,
    },
    /// An answer of a worker whose lease was lost.
    Late {
        run: Position,
        wait: u32,
        how: How,
        value: Value,
    },
    /// Effects that are sent only once and were out when the process ended get their answer: nobody knows.
    Unknown,
    /// An effect leaves quarantine.
    Redrive {
        run: String,
        wait: u32,
    },
    Set {
        automation: String,
        toggle: Toggle,
    },
    /// Calls logic from outside a run.
    Logic {
        name: String,
        args: serde_json::Map<String, Value>,
        caller: Caller,
        space: Option<String>,
    },
    /// A wait looked back up to a position, beside the writer.
    Looked {
        run: Position,
        wait: u32,
        through: Position,
        found: Option<Arc<Event>>,
    },
    /// Whatever is due by now.
    Due,
    Subscription(SubscriptionCommand),
    /// Schedules that were declared before this version could run them begin now, and silences that would begin later.
    Deployed,
    /// Schedules that fired ahead of now go on from now.
    Lower,
    /// An occurrence that was refused runs after all.
    Refused(Box<Refused>),
}

/// An occurrence that was refused, and what it came with.
pub struct Refused {
    pub of: OccurrenceId,
    pub automation: String,
    pub trigger: String,
    pub event: Value,
    /// Where the event stands; 0: a due instant brought it.
    pub position: Position,
    pub at: Timestamp,
}

/// What a run that has ended is to do once more.
pub struct Again {
    /// As it began; an empty id asks for a new one.
    pub started: RunStarted,
    /// How far it is, unless it begins at its beginning.
    pub walked: Option<Walked>,
    /// Under the version that it ended under, or the one that is declared now.
    pub pinned: bool,
}

/// What is asked about subscriptions.
pub enum SubscriptionCommand {
    Put {
        id: String,
        definition: Value,
    },
    Drop {
        id: String,
    },
    /// An event starts the run of a subscription.
    Dispatch {
        id: String,
        automation: String,
        input: Value,
        event: Value,
        position: Position,
    },
    /// It failed; said once of each event.
    Stuck {
        id: String,
        event: Position,
        payload: Value,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    Enable,
    Disable,
    Pause,
    Resume,
    /// Takes nothing new and finishes what it has taken.
    Drain,
}

/// A delivery that did not end well.
pub struct Failing {
    pub event: Arc<Event>,
    pub why: Why,
    pub delay: Option<Duration>,
    pub error: Option<String>,
    /// A group that halts does so now, whatever retries are left: a pass over it ends here.
    pub halt: bool,
    /// The event's ordering key, for groups that park keys.
    pub key: Option<String>,
    /// Which delivery of the event it was.
    pub serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A nack, a panic or a missed deadline: tried again until the retries are used up.
    Failed,
    /// Straight to the dead letters.
    Dead(DeadReason),
}

#[derive(Debug)]
pub enum Answer {
    Published(Vec<Outcome>),
    Group { created: bool },
    Fates(Vec<Fate>),
    Redriven(Vec<Position>),
    Admitted { more: bool },
    Applied(Plan),
    Written(Vec<Written>),
    Output(Value),
    Started { run: Option<String>, outcome: model::record::Outcome, reason: Option<String> },
    Effects(Vec<crate::run::Effect>),
    Done { head: Position },
}

/// What an apply does or would do; each as `kind name`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// The hash of each that is changed or removed, as it is before: who looked at the plan looked at these.
    pub replaces: BTreeMap<String, String>,
    /// Runs in progress that stay on a version other than the one in force then, by automation and version.
    pub runs_on_old: BTreeMap<String, BTreeMap<String, u64>>,
    /// Runs in progress of automations that are removed, which end with them.
    pub runs_cancelled: BTreeMap<String, u64>,
    /// Where it was recorded; the head when nothing was.
    pub position: Position,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    /// As contracts §10 answers it.
    pub fn to_json(&self) -> Value {
        let on_old = self.runs_on_old.iter().map(|(name, versions)| (name, versions.values().sum()));
        let on_old: BTreeMap<&String, u64> = on_old.collect();
        let mut told = json!({
            "added": self.added, "changed": self.changed, "removed": self.removed,
            "runs_on_old_versions": on_old, "position": self.position,
        });
        if !self.runs_on_old.is_empty() {
            told["runs_by_old_version"] = json!(self.runs_on_old);
        }
        if !self.replaces.is_empty() {
            told["replaces"] = json!(self.replaces);
        }
        if !self.runs_cancelled.is_empty() {
            told["runs_cancelled"] = json!(self.runs_cancelled);
        }
        told
    }
}

/// What became of a failing delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Retry {
        at: Timestamp,
        failures: u32,
    },
    Dead,
    Halted,
    /// It was settled or the group was moved meanwhile.
    Gone,
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Recorded(Receipt),
    Deferred { until: Timestamp },
    Dropped { rule: String },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    pub id: String,
    pub position: Position,
    pub recorded_at: Timestamp,
    pub duplicate: bool,
}

impl Outcome {
    /// The position, unless the event was deferred or dropped.
    pub fn position(&self) -> Option<Position> {
        match self {
            Outcome::Recorded(receipt) => Some(receipt.position),
            _ => None,
        }
    }

    /// As contracts §2 answers it.
    pub fn to_json(&self) -> Value {
        match self {
            Outcome::Recorded(receipt) => {
                let mut answer = json!({
                    "id": receipt.id, "position": receipt.position, "recorded_at": receipt.recorded_at
                });
                if receipt.duplicate {
                    answer["duplicate"] = true.into();
                }
                answer
            }
            Outcome::Deferred { until } => json!({"verdict": "defer", "until": until}),
            Outcome::Dropped { rule } => json!({"verdict": "drop", "rule": rule}),
        }
    }
}
