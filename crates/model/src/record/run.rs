//! Records about runs and waits, to text and back (rules R6 to R12); those about occurrences are in `occurrence.rs`.
//!
//! ```text
//!  run.started         d {"id","automation","hash","trigger","occurrence","space","depth","events"?,…}   body {"input"?,"key"?}
//!  run.moved           d {"run","status"}        body {"state":{…},"steps":[…]}
//!  wait.ended          d {"run","wait","how","event"?,"other_spaces"?,"band"?,"by"?}   body {"value"}, left out when null
//!  run.ended           d {"run","status","band"?,"code"?,"class"?}   body {"output"?,"message"?,"steps"?}
//!  schedule.passed     d {"automation","trigger","through"}
//!  automation.set      d {"automation","enabled"?,"paused"?,"reason"?,"failures"?,"backoff"?}
//! ```
//!
//! **Invariant:** whatever a gate, a run or a wait becomes is written here; folding evaluates nothing.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::occurrence::{OccurrenceMoved, Routed, SettledOccurrence};
use super::{At, DecodeError, EffectRecord, SubscriptionRecord, to_text};
use crate::event::Band;
use crate::{Position, Timestamp};

/// What a run is the answer to (contracts §11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// `event schedule manual call batch`.
    pub kind: String,
    /// The event, or the record that told of the occurrence.
    pub position: Position,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunStarted {
    pub id: String,
    pub automation: String,
    pub hash: String,
    pub trigger: String,
    pub occurrence: Reason,
    /// The event it reads as `event`; 0: none that is in the ledger.
    pub event: Position,
    /// All that its input quotes, when it is a batch.
    pub events: Vec<Position>,
    pub space: String,
    /// Sealed or once sealed spaces, besides its own, that its input quotes.
    pub other_spaces: Vec<String>,
    pub depth: u32,
    pub attempt: u32,
    /// The run that called it and waits, with the number of that wait.
    pub caller: Option<(Position, u32)>,
    pub rerun_of: Option<String>,
    /// The id of the run that called it, whether that waits or not.
    pub parent: Option<String>,
    /// What started it when no trigger did: `automation:<name>`, or of a subscription `event:<topic>:<id>`.
    pub invoked_by: Option<String>,
    /// The topic of the event that brought it, if one did.
    pub topic: Option<String>,
    pub input: Value,
    /// What it shares its mode with.
    pub key: String,
    /// An event that stands in no record: of a schedule, a call, a person.
    pub synthetic: Option<Value>,
}

impl RunStarted {
    /// A start by hand, of which nothing else is said.
    pub fn new(id: String, automation: &str, hash: &str, at: Timestamp) -> RunStarted {
        RunStarted {
            id,
            automation: automation.to_owned(),
            hash: hash.to_owned(),
            trigger: String::new(),
            occurrence: Reason { kind: "manual".to_owned(), position: 0, at },
            event: 0,
            events: Vec::new(),
            space: String::new(),
            other_spaces: Vec::new(),
            depth: 0,
            attempt: 1,
            caller: None,
            rerun_of: None,
            parent: None,
            invoked_by: None,
            topic: None,
            input: Value::Null,
            key: String::new(),
            synthetic: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Queued,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Running => "running",
            Status::Waiting => "waiting",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    pub fn has_ended(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }
}

/// A run walked on and stands still again, at a wait or only to let others go on.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMoved {
    pub run: Position,
    pub status: Status,
    /// All that it needs to go on.
    pub state: Value,
    pub steps: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunEnded {
    pub run: Position,
    pub status: Status,
    /// The highest of what it was told while it ran, which its output may quote.
    pub band: Band,
    pub code: Option<String>,
    pub class: Option<String>,
    pub message: Option<String>,
    pub output: Value,
    /// Those of its last stretch.
    pub steps: Vec<Value>,
    /// How many it did in all; 0 in records of before this was kept.
    pub step_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Met,
    Timeout,
    Answered,
    Done,
    Failed,
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WaitEnded {
    pub run: Position,
    pub wait: u32,
    pub how: How,
    pub event: Option<Position>,
    /// As in [`RunStarted`]: those that the value quotes.
    pub other_spaces: Vec<String>,
    /// Of what a called run was told, which the value may quote.
    pub band: Band,
    /// The actor who answered; only of questions.
    pub by: Option<String>,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchedulePassed {
    pub automation: String,
    pub trigger: String,
    pub through: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AutomationSet {
    pub automation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Permanent errors in a row so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
}

/// Runs of a schedule that failed in a row, and until when its instants are left out; none: the row is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub failures: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Everything that is written about automations and their runs.
#[derive(Clone, Debug)]
pub enum RunRecord {
    Routed(Routed),
    OccurrenceMoved(Box<OccurrenceMoved>),
    Settled(SettledOccurrence),
    Started(Box<RunStarted>),
    Moved(RunMoved),
    WaitEnded(WaitEnded),
    Ended(RunEnded),
    SchedulePassed(SchedulePassed),
    AutomationSet(AutomationSet),
    Effect(EffectRecord),
    Subscription(SubscriptionRecord),
}

// What a record is written from is borrowed: a run writes four of them, and each of its parts was a copy.

#[derive(Serialize, Deserialize)]
struct StartedData<'a> {
    id: Cow<'a, str>,
    automation: Cow<'a, str>,
    hash: Cow<'a, str>,
    trigger: Cow<'a, str>,
    occurrence: Cow<'a, Reason>,
    #[serde(default, skip_serializing_if = "is_zero")]
    event: Position,
    #[serde(default, skip_serializing_if = "is_empty")]
    events: Cow<'a, [Position]>,
    space: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    other_spaces: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "is_none_of")]
    depth: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<(Position, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rerun_of: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invoked_by: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic: Option<Cow<'a, str>>,
}

#[derive(Default, Serialize, Deserialize)]
struct StartedBody<'a> {
    #[serde(default, skip_serializing_if = "is_null")]
    input: Cow<'a, Value>,
    #[serde(default, skip_serializing_if = "has_no_text")]
    key: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Cow<'a, Value>>,
}

#[derive(Serialize, Deserialize)]
struct MovedData {
    run: Position,
    status: Status,
}

#[derive(Default, Serialize, Deserialize)]
struct MovedBody<'a> {
    state: Cow<'a, Value>,
    #[serde(default, skip_serializing_if = "is_empty")]
    steps: Cow<'a, [Value]>,
}

#[derive(Serialize, Deserialize)]
struct WaitData<'a> {
    run: Position,
    wait: u32,
    how: How,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Position>,
    #[serde(default, skip_serializing_if = "is_empty")]
    other_spaces: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "Band::is_least")]
    band: Band,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
}

#[derive(Default, Serialize, Deserialize)]
pub(super) struct WaitBody<'a> {
    pub(super) value: Cow<'a, Value>,
}

#[derive(Serialize, Deserialize)]
struct EndedData<'a> {
    run: Position,
    status: Status,
    #[serde(default, skip_serializing_if = "Band::is_least")]
    band: Band,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    step_count: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct EndedBody<'a> {
    #[serde(default, skip_serializing_if = "is_null")]
    output: Cow<'a, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    steps: Cow<'a, [Value]>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_none_of(n: &u32) -> bool {
    *n == 0
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

pub(super) fn is_null(value: &Value) -> bool {
    value.is_null()
}

pub(super) fn is_empty<T>(list: &[T]) -> bool {
    list.is_empty()
}

pub(super) fn has_no_text(text: &str) -> bool {
    text.is_empty()
}

/// The same text, borrowed.
pub(super) fn lent(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| Cow::Borrowed(text.as_str()))
}

pub(super) fn owned(text: Option<Cow<'_, str>>) -> Option<String> {
    text.map(Cow::into_owned)
}

impl RunRecord {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            RunRecord::Routed(_) => "routed",
            RunRecord::OccurrenceMoved(_) => "occurrence.moved",
            RunRecord::Settled(_) => "occurrence.settled",
            RunRecord::Started(_) => "run.started",
            RunRecord::Moved(_) => "run.moved",
            RunRecord::WaitEnded(_) => "wait.ended",
            RunRecord::Ended(_) => "run.ended",
            RunRecord::SchedulePassed(_) => "schedule.passed",
            RunRecord::AutomationSet(_) => "automation.set",
            RunRecord::Effect(record) => record.kind(),
            RunRecord::Subscription(record) => record.kind(),
        }
    }

    pub(super) fn data(&self) -> String {
        match self {
            RunRecord::Routed(routed) => routed.data(),
            RunRecord::OccurrenceMoved(moved) => moved.data(),
            RunRecord::Settled(settled) => settled.data(),
            RunRecord::Started(started) => to_text(&StartedData {
                id: started.id.as_str().into(),
                automation: started.automation.as_str().into(),
                hash: started.hash.as_str().into(),
                trigger: started.trigger.as_str().into(),
                occurrence: Cow::Borrowed(&started.occurrence),
                event: started.event,
                events: started.events.as_slice().into(),
                space: started.space.as_str().into(),
                other_spaces: started.other_spaces.as_slice().into(),
                depth: started.depth,
                attempt: started.attempt,
                caller: started.caller,
                rerun_of: lent(started.rerun_of.as_ref()),
                parent: lent(started.parent.as_ref()),
                invoked_by: lent(started.invoked_by.as_ref()),
                topic: lent(started.topic.as_ref()),
            }),
            RunRecord::Moved(moved) => to_text(&MovedData { run: moved.run, status: moved.status }),
            RunRecord::WaitEnded(ended) => {
                let WaitEnded { run, wait, how, event, band, .. } = *ended;
                let other_spaces = ended.other_spaces.as_slice().into();
                to_text(&WaitData { run, wait, how, event, other_spaces, band, by: lent(ended.by.as_ref()) })
            }
            RunRecord::Ended(ended) => to_text(&EndedData {
                run: ended.run,
                status: ended.status,
                band: ended.band,
                code: lent(ended.code.as_ref()),
                class: lent(ended.class.as_ref()),
                step_count: ended.step_count,
            }),
            RunRecord::SchedulePassed(passed) => to_text(passed),
            RunRecord::AutomationSet(set) => to_text(set),
            RunRecord::Effect(record) => record.data(),
            RunRecord::Subscription(record) => record.data(),
        }
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        match self {
            RunRecord::Routed(routed) => routed.body(),
            RunRecord::OccurrenceMoved(moved) => moved.body(),
            RunRecord::Settled(settled) => settled.body(),
            RunRecord::Started(started) => {
                let body = StartedBody {
                    input: Cow::Borrowed(&started.input),
                    key: started.key.as_str().into(),
                    event: started.synthetic.as_ref().map(Cow::Borrowed),
                };
                let empty = body.input.is_null() && body.key.is_empty() && body.event.is_none();
                (!empty).then(|| to_text(&body).into())
            }
            RunRecord::Moved(moved) => {
                let (state, steps) = (Cow::Borrowed(&moved.state), moved.steps.as_slice().into());
                Some(to_text(&MovedBody { state, steps }).into())
            }
            RunRecord::WaitEnded(ended) => {
                let body = WaitBody { value: Cow::Borrowed(&ended.value) };
                (!ended.value.is_null()).then(|| to_text(&body).into())
            }
            RunRecord::Ended(ended) => {
                let body = EndedBody {
                    output: Cow::Borrowed(&ended.output),
                    message: lent(ended.message.as_ref()),
                    steps: ended.steps.as_slice().into(),
                };
                let empty = body.output.is_null() && body.message.is_none() && body.steps.is_empty();
                (!empty).then(|| to_text(&body).into())
            }
            RunRecord::Effect(record) => record.body(),
            RunRecord::Subscription(record) => record.body(),
            RunRecord::SchedulePassed(_) | RunRecord::AutomationSet(_) => None,
        }
    }

    /// `None`: the kind is none of these.
    pub(super) fn decode(at: &At<'_>) -> Result<Option<RunRecord>, DecodeError> {
        Ok(Some(match at.kind {
            "routed" => RunRecord::Routed(Routed::decode(at)?),
            "occurrence.moved" => RunRecord::OccurrenceMoved(Box::new(OccurrenceMoved::decode(at)?)),
            "occurrence.settled" => RunRecord::Settled(SettledOccurrence::decode(at)?),
            "run.started" => RunRecord::Started(Box::new(started(at)?)),
            "run.moved" => {
                let MovedData { run, status } = serde_json::from_str(at.data)?;
                let MovedBody { state, steps } = body(at)?;
                let (state, steps) = (state.into_owned(), steps.into_owned());
                RunRecord::Moved(RunMoved { run, status, state, steps })
            }
            "wait.ended" => {
                let WaitData { run, wait, how, event, other_spaces, band, by } =
                    serde_json::from_str(at.data)?;
                let WaitBody { value } = body(at)?;
                let (other_spaces, by, value) = (other_spaces.into_owned(), owned(by), value.into_owned());
                RunRecord::WaitEnded(WaitEnded { run, wait, how, event, other_spaces, band, by, value })
            }
            "run.ended" => {
                let EndedData { run, status, band, code, class, step_count } = serde_json::from_str(at.data)?;
                let EndedBody { output, message, steps } = body(at)?;
                RunRecord::Ended(RunEnded {
                    run,
                    status,
                    band,
                    code: owned(code),
                    class: owned(class),
                    message: owned(message),
                    output: output.into_owned(),
                    steps: steps.into_owned(),
                    step_count,
                })
            }
            "schedule.passed" => RunRecord::SchedulePassed(serde_json::from_str(at.data)?),
            "automation.set" => RunRecord::AutomationSet(serde_json::from_str(at.data)?),
            _ => match EffectRecord::decode(at)? {
                Some(record) => RunRecord::Effect(record),
                None => return Ok(SubscriptionRecord::decode(at)?.map(RunRecord::Subscription)),
            },
        }))
    }
}

/// The body, or its default when it was left out or erased.
pub(super) fn body<'a, T: Default + Deserialize<'a>>(at: &At<'a>) -> Result<T, DecodeError> {
    Ok(at.body.map(serde_json::from_str).transpose()?.unwrap_or_default())
}

fn started(at: &At<'_>) -> Result<RunStarted, DecodeError> {
    let data: StartedData<'_> = serde_json::from_str(at.data)?;
    let body: StartedBody<'_> = body(at)?;
    Ok(RunStarted {
        id: data.id.into_owned(),
        automation: data.automation.into_owned(),
        hash: data.hash.into_owned(),
        trigger: data.trigger.into_owned(),
        occurrence: data.occurrence.into_owned(),
        event: data.event,
        events: data.events.into_owned(),
        space: data.space.into_owned(),
        other_spaces: data.other_spaces.into_owned(),
        depth: data.depth,
        attempt: data.attempt,
        caller: data.caller,
        rerun_of: owned(data.rerun_of),
        parent: owned(data.parent),
        invoked_by: owned(data.invoked_by),
        topic: owned(data.topic),
        input: body.input.into_owned(),
        key: body.key.into_owned(),
        synthetic: body.event.map(Cow::into_owned),
    })
}
