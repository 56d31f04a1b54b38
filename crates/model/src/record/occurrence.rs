//! Records about occurrences: what gates said of each, and how it ended (rules R6, R7).
//!
//! ```text
//!  routed              d {"event":42,"of":[{"automation","trigger","version","outcome","reason"?,"gate"?,"until"?,"run"?,
//!                      "events"?}]}   body [{"key"?,"set"?,"values"?}] in the order of "of"
//!  occurrence.moved    d {"of":[position,index], and as one of "of"}   body {"key"?,"set"?,"values"?}
//!  occurrence.settled  d {"of":[position,index],"automation","outcome","reason"?,"gate"?}   body {"set"?,"values"?}
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::{body, has_no_text, is_empty, is_null, lent, owned};
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

impl Verdict {
    /// Whether a gate remembers something by it, or it is pending itself: the state cannot be folded without its body.
    pub fn remembers(&self) -> bool {
        self.key.is_some() || !self.set.is_empty()
    }
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
    /// The occurrence that took it along, when it merged.
    pub into: Option<OccurrenceId>,
    pub set: Vec<GateSet>,
    pub values: Value,
}

#[derive(Serialize, Deserialize)]
struct VerdictData<'a> {
    automation: Cow<'a, str>,
    trigger: Cow<'a, str>,
    version: Cow<'a, str>,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    events: Cow<'a, [Position]>,
}

#[derive(Serialize, Deserialize)]
struct OccurrenceMovedData<'a> {
    of: OccurrenceId,
    #[serde(flatten)]
    verdict: VerdictData<'a>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct VerdictBody<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    set: Cow<'a, [GateSet]>,
    #[serde(default, skip_serializing_if = "is_null")]
    values: Cow<'a, Value>,
}

impl VerdictBody<'_> {
    fn is_empty(&self) -> bool {
        self.key.is_none() && self.set.is_empty() && self.values.is_null()
    }
}

#[derive(Serialize, Deserialize)]
struct RoutedData<'a> {
    event: Position,
    of: Vec<VerdictData<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SettledData<'a> {
    of: OccurrenceId,
    #[serde(default, skip_serializing_if = "has_no_text")]
    automation: Cow<'a, str>,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    into: Option<OccurrenceId>,
}

impl Routed {
    pub(super) fn data(&self) -> String {
        to_text(&RoutedData { event: self.event, of: self.verdicts.iter().map(verdict_data).collect() })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let of: Vec<VerdictBody<'_>> = self.verdicts.iter().map(verdict_body).collect();
        (!of.iter().all(VerdictBody::is_empty)).then(|| to_text(&of).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<Routed, DecodeError> {
        let RoutedData { event, of } = serde_json::from_str(at.data)?;
        let mut bodies: Vec<VerdictBody<'_>> = body(at)?;
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
            automation: self.automation.as_str().into(),
            outcome: self.outcome,
            reason: lent(self.reason.as_ref()),
            gate: lent(self.gate.as_ref()),
            into: self.into,
        })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let body =
            VerdictBody { key: None, set: self.set.as_slice().into(), values: Cow::Borrowed(&self.values) };
        (!body.is_empty()).then(|| to_text(&body).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<SettledOccurrence, DecodeError> {
        let SettledData { of, automation, outcome, reason, gate, into } = serde_json::from_str(at.data)?;
        let VerdictBody { set, values, .. } = body(at)?;
        Ok(SettledOccurrence {
            of,
            automation: automation.into_owned(),
            outcome,
            reason: owned(reason),
            gate: owned(gate),
            into,
            set: set.into_owned(),
            values: values.into_owned(),
        })
    }
}

fn verdict_data(verdict: &Verdict) -> VerdictData<'_> {
    VerdictData {
        automation: verdict.automation.as_str().into(),
        trigger: verdict.trigger.as_str().into(),
        version: verdict.version.as_str().into(),
        outcome: verdict.outcome,
        reason: lent(verdict.reason.as_ref()),
        gate: lent(verdict.gate.as_ref()),
        until: verdict.until,
        run: lent(verdict.run.as_ref()),
        events: verdict.events.as_slice().into(),
    }
}

fn verdict_body(verdict: &Verdict) -> VerdictBody<'_> {
    let (set, values) = (verdict.set.as_slice().into(), Cow::Borrowed(&verdict.values));
    VerdictBody { key: lent(verdict.key.as_ref()), set, values }
}

fn verdict_of(data: VerdictData<'_>, body: VerdictBody<'_>) -> Verdict {
    Verdict {
        automation: data.automation.into_owned(),
        trigger: data.trigger.into_owned(),
        version: data.version.into_owned(),
        outcome: data.outcome,
        reason: owned(data.reason),
        gate: owned(data.gate),
        until: data.until,
        run: owned(data.run),
        events: data.events.into_owned(),
        key: owned(body.key),
        set: body.set.into_owned(),
        values: body.values.into_owned(),
    }
}
