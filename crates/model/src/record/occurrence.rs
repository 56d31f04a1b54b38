//! Records about occurrences: what gates said of each, and how it ended (rules R6, R7).
//!
//! ```text
//!  routed              d {"event":42,"of":[{"automation","trigger","version","outcome","reason"?,"gate"?,"until"?,"run"?,
//!                      "events"?}]}   body [{"key"?,"set"?,"values"?}] in the order of "of"
//!  occurrence.moved    d {"of":[position,index], and as one of "of"}   body {"key"?,"set"?,"values"?}
//!  occurrence.settled  d {"of":[position,index],"automation","outcome","reason"?,"gate"?}   body {"set"?,"values"?}
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::body;
use super::{At, DecodeError, to_text};
use crate::{Position, Timestamp};

/// What became of an occurrence (contracts §12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pending,
    Ran,
    CaughtUp,
    Merged,
    Superseded,
    Skipped,
    Missed,
    Refused,
    Expired,
}

impl Outcome {
    /// All but [`Outcome::Pending`], which is no end.
    pub const ENDS: [Outcome; 8] = [
        Outcome::Ran,
        Outcome::CaughtUp,
        Outcome::Merged,
        Outcome::Superseded,
        Outcome::Skipped,
        Outcome::Missed,
        Outcome::Refused,
        Outcome::Expired,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Pending => "pending",
            Outcome::Ran => "ran",
            Outcome::CaughtUp => "caught_up",
            Outcome::Merged => "merged",
            Outcome::Superseded => "superseded",
            Outcome::Skipped => "skipped",
            Outcome::Missed => "missed",
            Outcome::Refused => "refused",
            Outcome::Expired => "expired",
        }
    }
}

/// The new value of one key of one gate; `None` takes it away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateSet {
    pub gate: String,
    pub trigger: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// One occurrence and its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub automation: String,
    pub trigger: String,
    pub version: String,
    pub outcome: Outcome,
    pub reason: Option<String>,
    pub gate: Option<String>,
    pub until: Option<Timestamp>,
    /// The id that the run of one that queues will have.
    pub run: Option<String>,
    /// Events of its batch, when it waits with them.
    pub events: Vec<Position>,
    /// What a pending one shares its gate with.
    pub key: Option<String>,
    pub set: Vec<GateSet>,
    /// What the gates saw; for people who ask why.
    pub values: Value,
}

/// An occurrence by the record that first told of it and its place there.
pub type OccurrenceId = (Position, u32);

#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// The event, or 0 when a due instant, a call or a person is the reason.
    pub event: Position,
    pub verdicts: Vec<Verdict>,
}

/// A pending one went on to a later gate, and is pending there.
#[derive(Clone, Debug, PartialEq)]
pub struct OccurrenceMoved {
    pub of: OccurrenceId,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SettledOccurrence {
    pub of: OccurrenceId,
    /// Whose it is; empty in records of before it was written.
    pub automation: String,
    pub outcome: Outcome,
    pub reason: Option<String>,
    pub gate: Option<String>,
    pub set: Vec<GateSet>,
    pub values: Value,
}

#[derive(Serialize, Deserialize)]
struct VerdictData {
    automation: String,
    trigger: String,
    version: String,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Position>,
}

#[derive(Serialize, Deserialize)]
struct OccurrenceMovedData {
    of: OccurrenceId,
    #[serde(flatten)]
    verdict: VerdictData,
}

#[derive(Default, Serialize, Deserialize)]
struct VerdictBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<GateSet>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    values: Value,
}

impl VerdictBody {
    fn is_empty(&self) -> bool {
        self.key.is_none() && self.set.is_empty() && self.values.is_null()
    }
}

#[derive(Serialize, Deserialize)]
struct RoutedData {
    event: Position,
    of: Vec<VerdictData>,
}

#[derive(Serialize, Deserialize)]
struct SettledData {
    of: OccurrenceId,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    automation: String,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<String>,
}

impl Routed {
    pub(super) fn data(&self) -> String {
        to_text(&RoutedData { event: self.event, of: self.verdicts.iter().map(verdict_data).collect() })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let of: Vec<VerdictBody> = self.verdicts.iter().map(verdict_body).collect();
        (!of.iter().all(VerdictBody::is_empty)).then(|| to_text(&of).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<Routed, DecodeError> {
        let RoutedData { event, of } = serde_json::from_str(at.data)?;
        let mut bodies: Vec<VerdictBody> = body(at)?;
        bodies.resize_with(of.len(), VerdictBody::default);
        let verdicts = of.into_iter().zip(bodies).map(|(data, body)| verdict_of(data, body));
        Ok(Routed { event, verdicts: verdicts.collect() })
    }
}

impl OccurrenceMoved {
    pub(super) fn data(&self) -> String {
        to_text(&OccurrenceMovedData { of: self.of, verdict: verdict_data(&self.verdict) })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let body = verdict_body(&self.verdict);
        (!body.is_empty()).then(|| to_text(&body).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<OccurrenceMoved, DecodeError> {
        let OccurrenceMovedData { of, verdict } = serde_json::from_str(at.data)?;
        Ok(OccurrenceMoved { of, verdict: verdict_of(verdict, body(at)?) })
    }
}

impl SettledOccurrence {
    pub(super) fn data(&self) -> String {
        to_text(&SettledData {
            of: self.of,
            automation: self.automation.clone(),
            outcome: self.outcome,
            reason: self.reason.clone(),
            gate: self.gate.clone(),
        })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let body = VerdictBody { key: None, set: self.set.clone(), values: self.values.clone() };
        (!body.is_empty()).then(|| to_text(&body).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<SettledOccurrence, DecodeError> {
        let SettledData { of, automation, outcome, reason, gate } = serde_json::from_str(at.data)?;
        let VerdictBody { set, values, .. } = body(at)?;
        Ok(SettledOccurrence { of, automation, outcome, reason, gate, set, values })
    }
}

fn verdict_data(verdict: &Verdict) -> VerdictData {
    VerdictData {
        automation: verdict.automation.clone(),
        trigger: verdict.trigger.clone(),
        version: verdict.version.clone(),
        outcome: verdict.outcome,
        reason: verdict.reason.clone(),
        gate: verdict.gate.clone(),
        until: verdict.until,
        run: verdict.run.clone(),
        events: verdict.events.clone(),
    }
}

fn verdict_body(verdict: &Verdict) -> VerdictBody {
    VerdictBody { key: verdict.key.clone(), set: verdict.set.clone(), values: verdict.values.clone() }
}

fn verdict_of(data: VerdictData, body: VerdictBody) -> Verdict {
    Verdict {
        automation: data.automation,
        trigger: data.trigger,
        version: data.version,
        outcome: data.outcome,
        reason: data.reason,
        gate: data.gate,
        until: data.until,
        run: data.run,
        events: data.events,
        key: body.key,
        set: body.set,
        values: body.values,
    }
}
