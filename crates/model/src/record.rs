//! What may stand in a ledger: every kind of record, its version, its data (`d`) and its body, to text and back.
//!
//! **Invariant:** a (kind, version) means the same for ever. What changes gets a new version; an unknown one stops the
//! fold, because skipping it would rebuild another state than the one that was answered from.

mod change;
mod effect;
mod occurrence;
mod run;
mod subscription;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use change::{Applied, Change, Changed, ChangedData, Set};
pub use effect::EffectRecord;
pub use occurrence::{GateSet, OccurrenceId, OccurrenceMoved, Outcome, Routed, SettledOccurrence, Verdict};
pub use run::{
    AutomationSet, Backoff, How, Reason, RunEnded, RunMoved, RunRecord, RunStarted, SchedulePassed, Status,
    WaitEnded,
};
pub use subscription::SubscriptionRecord;

use crate::event::{BadBody, Content, Envelope, Event};
use crate::{Position, Timestamp};

/// The newest format this binary writes; a ledger that says a higher one is of a newer version.
pub const FORMAT: u32 = 3;

/// The format that brought `definitions.applied` and `entity.changed`.
pub const FORMAT_OF_ENTITIES: u32 = 2;

/// The format that brought occurrences, runs and waits.
pub const FORMAT_OF_RUNS: u32 = 3;

/// A range of positions, both ends in it.
pub type Span = (Position, Position);

/// An event that an attention rule put off. It has no position as an event yet, but it has taken its key.
#[derive(Clone, Debug)]
pub struct Deferred {
    pub until: Timestamp,
    pub envelope: Envelope,
    pub content: Content,
}

/// How far a group has come. Folded from many acks; `ranges` are settled positions, above the floor or redriven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    pub group: String,
    pub floor: Position,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Span>,
    pub delivered_to: Position,
    /// How many deliveries were acked in this move.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub acked: u64,
    /// The one delivery in flight, handed out with nothing beside it because it is a suspect; 0: none is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alone: Position,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A delivery failed and will be tried again at `until`.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    pub group: String,
    pub position: Position,
    pub failures: u32,
    pub until: Timestamp,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadReason {
    Exhausted,
    Rejected,
    Expired,
    Quarantined,
}

impl DeadReason {
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::Exhausted => "exhausted",
            DeadReason::Rejected => "rejected",
            DeadReason::Expired => "expired",
            DeadReason::Quarantined => "quarantined",
        }
    }
}

/// An event became a dead letter of a group; with its event, because the ledger may be trimmed under it.
#[derive(Clone, Debug)]
pub struct Dead {
    pub group: String,
    pub position: Position,
    pub reason: DeadReason,
    pub attempts: u32,
    /// Later events of this key wait until the dead letter is redriven (`park_key`).
    pub parked_key: Option<String>,
    pub error: Option<String>,
    pub event: Box<RawValue>,
}

/// One thing that happened, as the fold sees it.
#[derive(Clone, Debug)]
pub enum Record {
    Event(Arc<Event>),
    EventDeferred(Box<Deferred>),
    /// A deferred publish became the event in the record after this one.
    EventAdmitted {
        deferred: Position,
    },
    /// The bodies at these positions were erased; every copy in state is scrubbed.
    EventErased {
        positions: Vec<Position>,
    },
    GroupPut {
        group: String,
        floor: Position,
        definition: Value,
    },
    GroupDeleted {
        group: String,
    },
    GroupMoved(Moved),
    GroupFailed(Failed),
    GroupDead(Dead),
    GroupRedriven {
        group: String,
        positions: Vec<Position>,
    },
    GroupSeeked {
        group: String,
        floor: Position,
    },
    GroupPaused {
        group: String,
        paused: bool,
    },
    /// A `halt` group stands still on `position`; 0: it goes on.
    GroupHalted {
        group: String,
        position: Position,
    },
    /// An unclean start found deliveries up to `through` without an answer.
    GroupCrashed {
        group: String,
        through: Position,
    },
    /// What a workspace declares now.
    DefinitionsApplied(Box<Applied>),
    EntityChanged(Box<Changed>),
    Run(RunRecord),
    LedgerClosed,
    LedgerTruncated {
        position: Position,
        file: String,
        offset: u64,
        bytes: u64,
    },
    LedgerTrimmed {
        first: Position,
        before: String,
    },
    SnapshotTaken {
        position: Position,
        head: String,
        hash: String,
    },
    ClockStepped {
        by_ms: i64,
    },
    FormatRaised {
        format: u32,
    },
}

/// Why a record could not be read.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeError {
    /// Written by a newer version: kind and version.
    Unknown(String, u32),
    /// Not what this version wrote.
    Malformed(String),
}

impl From<BadBody> for DecodeError {
    fn from(_: BadBody) -> DecodeError {
        DecodeError::Malformed("its body is not that of an event".to_owned())
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> DecodeError {
        DecodeError::Malformed(error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct DeferredData {
    until: Timestamp,
    #[serde(flatten)]
    envelope: Envelope,
}

#[derive(Serialize, Deserialize)]
struct FailedData {
    group: String,
    position: Position,
    failures: u32,
    until: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct DeadData {
    group: String,
    position: Position,
    reason: DeadReason,
    attempts: u32,
}

#[derive(Serialize, Deserialize)]
struct DeadBody {
    event: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked_key: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ErrorBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct GroupData {
    group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<Position>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<Position>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    positions: Vec<Position>,
}

impl GroupData {
    fn of(group: &str) -> GroupData {
        GroupData {
            group: group.to_owned(),
            floor: None,
            position: None,
            paused: None,
            positions: Vec::new(),
        }
    }
}

impl Record {
    pub fn kind(&self) -> &'static str {
        match self {
            Record::Event(_) => "event",
            Record::EventDeferred(_) => "event.deferred",
            Record::EventAdmitted { .. } => "event.admitted",
            Record::EventErased { .. } => "event.erased",
            Record::GroupPut { .. } => "group.put",
            Record::GroupDeleted { .. } => "group.deleted",
            Record::GroupMoved(_) => "group.moved",
            Record::GroupFailed(_) => "group.failed",
            Record::GroupDead(_) => "group.dead",
            Record::GroupRedriven { .. } => "group.redriven",
            Record::GroupSeeked { .. } => "group.seeked",
            Record::GroupPaused { .. } => "group.paused",
            Record::GroupHalted { .. } => "group.halted",
            Record::GroupCrashed { .. } => "group.crashed",
            Record::DefinitionsApplied(_) => "definitions.applied",
            Record::EntityChanged(_) => "entity.changed",
            Record::Run(record) => record.kind(),
            Record::LedgerClosed => "ledger.closed",
            Record::LedgerTruncated { .. } => "ledger.truncated",
            Record::LedgerTrimmed { .. } => "ledger.trimmed",
            Record::SnapshotTaken { .. } => "snapshot.taken",
            Record::ClockStepped { .. } => "clock.stepped",
            Record::FormatRaised { .. } => "format.raised",
        }
    }

    /// Every kind is at its first version.
    pub fn version(&self) -> u32 {
        1
    }

    /// The engine's own part, `d`, as JSON text.
    pub fn data(&self) -> Vec<u8> {
        let text = match self {
            Record::Event(event) => to_text(&event.envelope),
            Record::EventDeferred(deferred) => {
                to_text(&DeferredData { until: deferred.until, envelope: deferred.envelope.clone() })
            }
            Record::EventAdmitted { deferred } => to_text(&serde_json::json!({"deferred": deferred})),
            Record::EventErased { positions } => to_text(&serde_json::json!({"positions": positions})),
            Record::GroupPut { group, floor, .. } => {
                to_text(&GroupData { floor: Some(*floor), ..GroupData::of(group) })
            }
            Record::GroupDeleted { group } => to_text(&GroupData::of(group)),
            Record::GroupMoved(moved) => to_text(moved),
            Record::GroupFailed(f) => to_text(&FailedData {
                group: f.group.clone(),
                position: f.position,
                failures: f.failures,
                until: f.until,
            }),
            Record::GroupDead(dead) => to_text(&DeadData {
                group: dead.group.clone(),
                position: dead.position,
                reason: dead.reason,
                attempts: dead.attempts,
            }),
            Record::GroupRedriven { group, positions } => {
                to_text(&GroupData { positions: positions.clone(), ..GroupData::of(group) })
            }
            Record::GroupSeeked { group, floor } => {
                to_text(&GroupData { floor: Some(*floor), ..GroupData::of(group) })
            }
            Record::GroupPaused { group, paused } => {
                to_text(&GroupData { paused: Some(*paused), ..GroupData::of(group) })
            }
            Record::GroupHalted { group, position } | Record::GroupCrashed { group, through: position } => {
                to_text(&GroupData { position: Some(*position), ..GroupData::of(group) })
            }
            Record::DefinitionsApplied(applied) => applied.data(),
            Record::EntityChanged(changed) => changed.data(),
            Record::Run(record) => record.data(),
            Record::LedgerClosed => "{}".to_owned(),
            Record::LedgerTruncated { position, file, offset, bytes } => to_text(
                &serde_json::json!({"position": position, "file": file, "offset": offset, "bytes": bytes}),
            ),
            Record::LedgerTrimmed { first, before } => {
                to_text(&serde_json::json!({"first": first, "before": before}))
            }
            Record::SnapshotTaken { position, head, hash } => {
                to_text(&serde_json::json!({"position": position, "head": head, "hash": hash}))
            }
            Record::ClockStepped { by_ms } => to_text(&serde_json::json!({"by_ms": by_ms})),
            Record::FormatRaised { format } => to_text(&serde_json::json!({"format": format})),
        };
        text.into_bytes()
    }

    /// The user's part, as JSON text; it stands outside the chain under a salted digest, so that it can be erased.
    pub fn body(&self) -> Option<Arc<str>> {
        match self {
            Record::Event(event) => event.content.body().cloned(),
            Record::EventDeferred(deferred) => deferred.content.body().cloned(),
            Record::GroupPut { definition, .. } => Some(definition.to_string().into()),
            Record::GroupFailed(Failed { error: Some(error), .. }) => {
                Some(to_text(&ErrorBody { error: Some(error.clone()) }).into())
            }
            Record::GroupDead(dead) => {
                let body = DeadBody {
                    event: dead.event.clone(),
                    error: dead.error.clone(),
                    parked_key: dead.parked_key.clone(),
                };
                Some(to_text(&body).into())
            }
            Record::DefinitionsApplied(applied) => applied.body(),
            Record::EntityChanged(changed) => changed.body(),
            Record::Run(record) => record.body(),
            _ => None,
        }
    }

    /// Reads a record back. `body` is `None` when there is none or when it was erased.
    pub fn decode(at: At<'_>) -> Result<Record, DecodeError> {
        if at.version != 1 {
            return Err(DecodeError::Unknown(at.kind.to_owned(), at.version));
        }
        match at.kind {
            "event" => Ok(Record::Event(Arc::new(decode_event(&at)?))),
            "event.deferred" => {
                let DeferredData { until, envelope } = serde_json::from_str(at.data)?;
                let content = Content::from_body(at.body)?;
                Ok(Record::EventDeferred(Box::new(Deferred { until, envelope, content })))
            }
            "event.admitted" => Ok(Record::EventAdmitted { deferred: number(at.data, "deferred")? }),
            "event.erased" => {
                #[derive(Deserialize)]
                struct Erased {
                    positions: Vec<Position>,
                }
                let Erased { positions } = serde_json::from_str(at.data)?;
                Ok(Record::EventErased { positions })
            }
            "definitions.applied" => Ok(Record::DefinitionsApplied(Box::new(Applied::decode(&at)?))),
            "entity.changed" => Ok(Record::EntityChanged(Box::new(Changed::decode(&at)?))),
            kind if kind.starts_with("group.") => decode_group(kind, &at),
            kind => match RunRecord::decode(&at)? {
                Some(record) => Ok(Record::Run(record)),
                None => decode_housekeeping(kind, &at),
            },
        }
    }
}

/// A record's parts as they stand in a line.
pub struct At<'a> {
    pub position: Position,
    pub recorded_at: Timestamp,
    pub kind: &'a str,
    pub version: u32,
    pub data: &'a str,
    pub body: Option<&'a str>,
}

/// The event of an `event` record; the path of every read.
pub fn decode_event(at: &At<'_>) -> Result<Event, DecodeError> {
    Ok(Event {
        position: at.position,
        recorded_at: at.recorded_at,
        envelope: Envelope::read(at.data)?,
        content: Content::from_body(at.body)?,
    })
}

fn decode_group(kind: &str, at: &At<'_>) -> Result<Record, DecodeError> {
    if kind == "group.moved" {
        return Ok(Record::GroupMoved(serde_json::from_str(at.data)?));
    }
    if kind == "group.failed" {
        let FailedData { group, position, failures, until } = serde_json::from_str(at.data)?;
        let error = match at.body {
            Some(body) => serde_json::from_str::<ErrorBody>(body)?.error,
            None => None,
        };
        return Ok(Record::GroupFailed(Failed { group, position, failures, until, error }));
    }
    if kind == "group.dead" {
        return decode_dead(at);
    }
    let data: GroupData = serde_json::from_str(at.data)?;
    let (group, missing) = (data.group, || DecodeError::Malformed(format!("{kind} lacks a field")));
    Ok(match kind {
        "group.put" => Record::GroupPut {
            group,
            floor: data.floor.ok_or_else(missing)?,
            definition: serde_json::from_str(at.body.unwrap_or("null"))?,
        },
        "group.deleted" => Record::GroupDeleted { group },
        "group.redriven" => Record::GroupRedriven { group, positions: data.positions },
        "group.seeked" => Record::GroupSeeked { group, floor: data.floor.ok_or_else(missing)? },
        "group.paused" => Record::GroupPaused { group, paused: data.paused.ok_or_else(missing)? },
        "group.halted" => Record::GroupHalted { group, position: data.position.ok_or_else(missing)? },
        "group.crashed" => Record::GroupCrashed { group, through: data.position.ok_or_else(missing)? },
        _ => return Err(DecodeError::Unknown(kind.to_owned(), at.version)),
    })
}

fn decode_dead(at: &At<'_>) -> Result<Record, DecodeError> {
    let DeadData { group, position, reason, attempts } = serde_json::from_str(at.data)?;
    let erased = r#"{"event":{"erased":true}}"#;
    let DeadBody { event, error, parked_key } = serde_json::from_str(at.body.unwrap_or(erased))?;
    Ok(Record::GroupDead(Dead { group, position, reason, attempts, parked_key, error, event }))
}

fn decode_housekeeping(kind: &str, at: &At<'_>) -> Result<Record, DecodeError> {
    let data: Value = serde_json::from_str(at.data)?;
    let number = |name: &str| {
        data[name].as_u64().ok_or_else(|| DecodeError::Malformed(format!("{kind} lacks \"{name}\"")))
    };
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    Ok(match kind {
        "ledger.closed" => Record::LedgerClosed,
        "ledger.truncated" => Record::LedgerTruncated {
            position: number("position")?,
            file: text("file"),
            offset: number("offset")?,
            bytes: number("bytes")?,
        },
        "ledger.trimmed" => Record::LedgerTrimmed { first: number("first")?, before: text("before") },
        "snapshot.taken" => {
            Record::SnapshotTaken { position: number("position")?, head: text("head"), hash: text("hash") }
        }
        "clock.stepped" => Record::ClockStepped { by_ms: data["by_ms"].as_i64().unwrap_or_default() },
        // R3 calls it `n`; somebody else may have written it so.
        "format.raised" => Record::FormatRaised { format: number("format").or_else(|_| number("n"))? as u32 },
        _ => return Err(DecodeError::Unknown(kind.to_owned(), at.version)),
    })
}

fn number(data: &str, name: &str) -> Result<u64, DecodeError> {
    let data: Value = serde_json::from_str(data)?;
    data[name].as_u64().ok_or_else(|| DecodeError::Malformed(format!("\"{name}\" is missing")))
}

fn to_text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records are plain data and always serialise")
}
