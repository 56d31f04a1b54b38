//! A run: one execution of an automation, as plain data that is written down whenever it stands still.
//!
//! Where it stands is a tree that mirrors its steps, so that going on never means running again (rules R8):
//!
//! ```text
//!  Block{next: 2, inside: Branches[ Block{next: 1}, Block{next: 0, inside: Wait(4)} ]}
//!        └ the third step is a `parallel`; its first branch is past one step, its second waits
//! ```

pub mod question;
mod taken;

use std::collections::BTreeMap;

use model::definition::Field;
use model::event::{Band, Event};
use model::record::{How, Reason, RunStarted, Status};
use model::topic::is_engine;
use model::{Position, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tenant::audit::{is_act, names_act};

/// A run that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    /// Of its `run.started`; what everything inside knows it by.
    pub position: Position,
    pub automation: String,
    /// The definition it began under and ends under.
    pub hash: String,
    pub trigger: String,
    pub occurrence: Reason,
    /// 0: its event stands in no record, see `synthetic`.
    pub event: Position,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<Value>,
    pub space: String,
    pub depth: u32,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<(Position, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    pub started_at: Timestamp,
    pub status: Status,
    #[serde(default)]
    pub walk: Walked,
}

/// The band of an event as it stands in what runs read; what is none has the least.
pub fn band_of(event: &Value) -> Band {
    event["band"].as_str().and_then(Band::parse).unwrap_or_default()
}

/// The highest band of the events that a batch brought.
pub fn band_of_input(kind: &str, input: &Value) -> Band {
    let batch = input["events"].as_array().filter(|_| kind == "batch");
    batch.into_iter().flatten().map(band_of).max().unwrap_or_default()
}

/// The act of administration that a run goes back to, in the words of `triggered_by`: its event or one of its batch, or what
/// began the run that called it or that it was told of.
pub fn act_behind(kind: &str, event: &Value, input: &Value) -> Option<String> {
    let topic = |event: &Value| {
        event["topic"].as_str().filter(|topic| is_act(topic)).map(|topic| format!("event:{topic}"))
    };
    let batch = input["events"].as_array().filter(|_| kind == "batch");
    // Others may say anything there; what the engine itself makes says it of this.
    let engine = event["topic"].as_str().is_some_and(is_engine);
    let told = || event["caused_by"].as_str().filter(|text| engine && names_act(text)).map(str::to_owned);
    topic(event).or_else(|| batch.into_iter().flatten().find_map(topic)).or_else(told)
}

/// The act that an event of the engine's own tells of.
pub fn act_told(event: &Event) -> Option<String> {
    let envelope = &event.envelope;
    envelope.caused_by.clone().filter(|text| is_engine(&envelope.topic) && names_act(text))
}

/// As [`act_behind`], of a start as it is written down.
pub fn act_behind_start(started: &RunStarted) -> Option<String> {
    let event = match &started.synthetic {
        Some(event) => event.clone(),
        None => serde_json::json!({ "topic": started.topic }),
    };
    act_behind(&started.occurrence.kind, &event, &started.input)
}

/// Where outputs say that a step did not do what it says: null when it was skipped, else its error. No step has such an id.
pub fn mark(id: &str) -> String {
    format!("{id}{MARK}")
}

pub fn is_mark(key: &str) -> bool {
    key.ends_with(MARK)
}

const MARK: char = '!';

/// How far it has come: the part that `run.moved` writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Walked {
    pub at: Block,
    /// Outputs of steps by their ids. Of one that was skipped, or failed and went on, [`mark`] says so beside it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub outputs: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub vars: Map<String, Value>,
    /// What the last wait left: `wait.completed` and the like.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub wait: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// Steps that came to an end so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// Waits so far; the next one's number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited: u32,
    /// When the whole run must be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How often it failed and began again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// The events that each `wait_for` took, by its path.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub taken: Map<String, Value>,
    /// Sealed spaces, besides its own, of which it holds something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_spaces: Vec<String>,
    /// The highest band of what it was told on its way: events that it waited for, answers of runs that it called.
    #[serde(default, skip_serializing_if = "Band::is_least")]
    pub band: Band,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn is_false(yes: &bool) -> bool {
    !*yes
}

/// A place in a list of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub next: usize,
    /// Failures of the step at `next` so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The wait that ends when the step at `next` takes too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What the step at `next` is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Box<Inside>>,
    /// When the step at `next` began, once it has come to a stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inside {
    /// Stands still until this wait has ended.
    Wait(u32),
    /// A failed try; the next one comes when this wait has ended.
    Retry(u32),
    /// `if`, `switch`, `atomic`: which list of steps, and where in it.
    Block {
        which: usize,
        at: Block,
    },
    Loop(Box<Loop>),
    /// `parallel`: a branch that has ended is `None`.
    Branches {
        open: Vec<Option<Block>>,
        outputs: Vec<Value>,
    },
}

/// `for` and `repeat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Recorded when the loop begins; what it reads may change meanwhile. Empty for `repeat`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Value>,
    /// How many rounds there are, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    pub next: usize,
    pub open: Vec<Round>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Value>,
    /// What the steps of the round before came to, for a `while` that asks.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub before: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub index: usize,
    pub at: Block,
    /// Outputs of the steps of this round.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub outputs: Map<String, Value>,
}

/// What a run stands still for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    pub number: u32,
    /// The step, such as `actions[0].then[1]`.
    pub path: String,
    /// The id of that step, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub kind: WaitKind,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// How long `due` is after `since`, which a step of the clock does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_ms: Option<u64>,
    /// Values that its condition or filter reads from the run.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub env: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Delay,
    /// The time before a failed step is tried again.
    Retry,
    /// Only lets others go on.
    Yield,
    /// The time that a step may take.
    Limit,
    Until {
        condition: model::definition::Condition,
        refs: Vec<String>,
        /// Woken by every change of any row.
        #[serde(default)]
        indeterminate: bool,
        /// Its value may change when only time passes: tried again at this instant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recheck: Option<Timestamp>,
    },
    For {
        trigger: model::definition::TriggerKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<model::definition::Filter>,
        /// Looks back to what came after this position, once.
        after: Position,
        /// It still does, beside the writer; until then no event ends it.
        #[serde(default, skip_serializing_if = "is_false")]
        looking: bool,
        /// The state must hold so long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dwell_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Box<Held>>,
    },
    Ask {
        question: Value,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        to: Value,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<Value>,
        /// What an answer has; one that does not is refused.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        form: Vec<Field>,
        #[serde(default)]
        approve: bool,
        /// The answer when the time is over, where it is written down and not computed then; only to be shown.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        default: Value,
    },
    /// Worked outside the loop.
    Effect(Box<Request>),
    /// A run that was called.
    Call {
        run: Position,
    },
}

/// The state that a wait is for has come about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The change that brought it about.
    pub event: Position,
    pub until: Timestamp,
    /// What the field is as long as it holds.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub armed: Value,
}

/// The kind of the effects that workers in other processes do.
pub const TASK: &str = "task";

/// What a step asks of the world outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub kind: String,
    pub with: Value,
    /// The same for every attempt of the same step of the same run.
    pub key: String,
    pub attempt: u32,
    /// Of a run that time began: such ones have their own workers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub scheduled: bool,
    /// Never sent twice.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    /// The secrets that its version names, each with the mark that stands for its value in `with`. Never the value.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub secrets: Marks,
    /// A worker has it, or had it when the process ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub handed: bool,
    /// How often the process ended without an answer while it was out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u32,
}

/// Names of secrets, and the text that stands for each until a request is made.
pub type Marks = BTreeMap<String, String>;

impl Request {
    /// Crashes after which nobody works on it until it is redriven.
    pub const CRASHES_MAX: u32 = 10;

    /// Which workers may do it; `None`: those of this process.
    pub fn task(&self) -> Option<&str> {
        (self.kind == TASK).then(|| self.with["task"].as_str().unwrap_or_default())
    }

    pub fn is_quarantined(&self) -> bool {
        self.crashes >= Request::CRASHES_MAX
    }
}

impl WaitKind {
    /// As contracts §11 names it.
    pub fn as_str(&self) -> &'static str {
        match self {
            WaitKind::Delay | WaitKind::Retry | WaitKind::Yield | WaitKind::Limit => "delay",
            WaitKind::Until { .. } => "until",
            WaitKind::For { .. } => "for",
            WaitKind::Ask { .. } => "ask",
            WaitKind::Effect(_) => "effect",
            WaitKind::Call { .. } => "call",
        }
    }
}

impl Wait {
    pub fn held(&self) -> Option<&Held> {
        match &self.kind {
            WaitKind::For { held, .. } => held.as_deref(),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub how: How,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Position>,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

impl Walked {
    /// It has been told something of this band.
    pub fn hears(&mut self, band: Band) {
        self.band = self.band.max(band);
    }

    /// It has come to hold something of these.
    pub fn holds(&mut self, spaces: &[String]) {
        let new =
            spaces.iter().filter(|space| !self.other_spaces.contains(space)).cloned().collect::<Vec<_>>();
        self.other_spaces.extend(new);
    }

    /// The same place for a run that goes on after a failure: whatever it stood still for begins again.
    pub fn resumed(mut self) -> Walked {
        self.waits.clear();
        self.deadline = None;
        self.at.begin_again();
        self
    }
}

impl Block {
    fn begin_again(&mut self) {
        (self.failures, self.limit, self.since) = (0, None, None);
        match self.inside.as_deref_mut() {
            None => {}
            Some(Inside::Wait(_) | Inside::Retry(_)) => self.inside = None,
            Some(Inside::Block { at, .. }) => at.begin_again(),
            Some(Inside::Loop(state)) => state.open.iter_mut().for_each(|round| round.at.begin_again()),
            Some(Inside::Branches { open, .. }) => open.iter_mut().flatten().for_each(Block::begin_again),
        }
    }
}

impl Run {
    /// The event that is kept for it; 0 when its start quotes what it reads.
    pub fn reads(&self) -> Position {
        if self.synthetic.is_none() { self.event } else { 0 }
    }

    pub fn new(position: Position, now: Timestamp, started: &RunStarted) -> Run {
        Run {
            id: started.id.clone(),
            position,
            automation: started.automation.clone(),
            hash: started.hash.clone(),
            trigger: started.trigger.clone(),
            occurrence: started.occurrence.clone(),
            event: started.event,
            synthetic: started.synthetic.clone(),
            space: started.space.clone(),
            depth: started.depth,
            attempt: started.attempt,
            caller: started.caller,
            rerun_of: started.rerun_of.clone(),
            input: started.input.clone(),
            key: started.key.clone(),
            started_at: now,
            status: Status::Running,
            walk: Walked { other_spaces: started.other_spaces.clone(), ..Walked::default() },
        }
    }

    /// Every space of which it holds something.
    pub fn spaces(&self) -> Vec<String> {
        std::iter::once(&self.space).chain(&self.walk.other_spaces).cloned().collect()
    }

    /// What stands for the run of logic that somebody outside calls.
    pub fn nobodys(name: &str, space: String, now: Timestamp) -> Run {
        Run {
            id: String::new(),
            position: 0,
            automation: name.to_owned(),
            hash: String::new(),
            trigger: String::new(),
            occurrence: Reason { kind: "call".to_owned(), position: 0, at: now },
            event: 0,
            synthetic: None,
            space,
            depth: 0,
            attempt: 1,
            caller: None,
            rerun_of: None,
            input: Value::Null,
            key: String::new(),
            started_at: now,
            status: Status::Running,
            walk: Walked::default(),
        }
    }

    pub fn wait(&self, number: u32) -> Option<&Wait> {
        self.walk.waits.iter().find(|wait| wait.number == number)
    }

    pub fn wait_mut(&mut self, number: u32) -> Option<&mut Wait> {
        self.walk.waits.iter_mut().find(|wait| wait.number == number)
    }

    /// Who acts when it writes and publishes.
    pub fn actor(&self) -> String {
        format!("system:automation:{}", self.automation)
    }
}

/// An effect that wants a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub run: Position,
    pub run_id: String,
    pub automation: String,
    pub wait: u32,
    /// The step that asked for it.
    pub path: String,
    pub kind: String,
    pub with: Value,
    /// Sent along with every attempt, so that the other side can tell a repetition.
    pub key: String,
    pub attempt: u32,
    pub scheduled: bool,
    pub once: bool,
    pub secrets: Marks,
    /// The W3C traceparent of the event that the run reads.
    pub trace: Option<String>,
}

impl Effect {
    pub fn of(run: &Run, wait: &Wait) -> Option<Effect> {
        let WaitKind::Effect(request) = &wait.kind else { return None };
        Some(Effect {
            run: run.position,
            run_id: run.id.clone(),
            automation: run.automation.clone(),
            wait: wait.number,
            path: wait.path.clone(),
            kind: request.kind.clone(),
            with: request.with.clone(),
            key: request.key.clone(),
            attempt: request.attempt,
            scheduled: request.scheduled,
            once: request.once,
            secrets: request.secrets.clone(),
            trace: run.synthetic.as_ref().and_then(|event| event["trace"].as_str()).map(str::to_owned),
        })
    }

    /// With the trace of the event that its run reads, which is kept beside it.
    pub fn traced(self, read: Option<&Event>) -> Effect {
        let trace = self.trace.or_else(|| read.and_then(|event| event.envelope.trace.clone()));
        Effect { trace, ..self }
    }

    pub fn id(&self) -> WaitId {
        (self.run, self.wait)
    }
}

/// A wait by its run and number, as people name it: `<run id>.<number>`.
pub type WaitId = (Position, u32);
