//! Automations: what starts them, the gates in between, how runs of one share the stage (contracts §8).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Expr, Field, Length, Step, is_default, is_yes, seconds, yes};
use crate::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Automation {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: bool,
    /// Where scheduled and manual runs work; absent: `_system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// What a start must bring: checked against the payload, or the input of a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Field>,
    /// May be empty: such a one only runs by hand or called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
    /// All hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<Dedup>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Length>,
    /// In an order in which every reference is already bound.
    pub steps: Vec<Step>,
}

impl Automation {
    pub fn named(name: impl Into<String>) -> Automation {
        Automation {
            name: name.into(),
            description: None,
            enabled: true,
            space: None,
            args: Vec::new(),
            triggers: Vec::new(),
            conditions: Vec::new(),
            dedup: None,
            storm: None,
            mode: Mode::default(),
            timeout: None,
            steps: Vec::new(),
        }
    }
}

/// One reason to run, with its gates in the order in which they are asked (rules R7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// As written, else derived from the hash of the trigger; never its index.
    pub id: String,
    pub on: TriggerKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<Limit>,
    /// Dwell: the state must hold this long.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub dwell: Option<Length>,
    /// Of a one-shot that was missed; absent: it runs late. Other schedules say it in their kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
}

impl Trigger {
    pub fn on(kind: TriggerKind) -> Trigger {
        Trigger {
            id: String::new(),
            on: kind,
            filter: None,
            window: None,
            batch: None,
            debounce: None,
            throttle: None,
            rate: None,
            cooldown: None,
            dwell: None,
            catch_up: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerKind {
    /// Topic patterns; one event that meets several is one occurrence.
    Event(Vec<String>),
    Entity {
        /// An id, or a glob of ids such as `v1:cognition:*`.
        concept: String,
        changes: Vec<Change>,
    },
    State {
        entities: Vec<EntityRef>,
        field: String,
        /// Absent: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Vec<Value>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Vec<Value>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_from: Vec<Value>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_to: Vec<Value>,
    },
    NumericState {
        entities: Vec<EntityRef>,
        field: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        above: Option<Bound>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<Bound>,
    },
    Cron {
        cron: String,
        /// IANA; absent: UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tz: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        catch_up: CatchUp,
        #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
        jitter: Option<Duration>,
    },
    Every(Every),
    /// Once.
    At(Timestamp),
    Webhook(String),
    Absent {
        event: Vec<String>,
        #[serde(rename = "for", with = "seconds")]
        after: Duration,
    },
    Manual,
}

impl TriggerKind {
    /// Whether time pulls it again and again.
    pub fn recurs(&self) -> bool {
        matches!(self, TriggerKind::Cron { .. } | TriggerKind::Every(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created,
    Updated,
    Deleted,
}

impl Change {
    pub const ALL: [Change; 3] = [Change::Created, Change::Updated, Change::Deleted];

    pub fn as_str(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Updated => "updated",
            Change::Deleted => "deleted",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntityRef {
    pub concept: String,
    /// Absent: every row of the concept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A threshold: a number, or the present value of another row's field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bound {
    Number(f64),
    Field { entity: EntityRef, field: String },
}

/// Every so long, anchored to the wall clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Every {
    #[serde(with = "seconds")]
    pub every: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    pub catch_up: CatchUp,
    #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
}

/// What becomes of instants that were due while nothing ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    None,
    #[default]
    Latest,
    All {
        max: u32,
        #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
        within: Option<Duration>,
    },
}

/// A filter as groups take it too (contracts §5): an expression, or a JSON form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Filter {
    Expr(Expr),
    Form(Value),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub count: u32,
    #[serde(with = "seconds")]
    pub within: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    pub refire: Refire,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_by: Option<Expr>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refire {
    #[default]
    Every,
    Once,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(default, rename = "for", with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Debounce {
    #[serde(rename = "for", with = "seconds")]
    pub quiet: Duration,
    #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub edge: Edge,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Expr>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    #[default]
    Trailing,
    Leading,
}

/// `throttle` and `cooldown`: at most one start in this time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    #[serde(rename = "for", with = "seconds")]
    pub time: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Expr>,
}

/// `10/m`: at most `count` starts in `per`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub count: u32,
    #[serde(with = "seconds")]
    pub per: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Condition {
    Expr(Expr),
    Test(Test),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Time(TimeOfDay),
    State {
        entity: EntityRef,
        field: String,
        /// One of these.
        is: Vec<Value>,
        #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
        held: Option<Length>,
    },
    NumericState {
        /// An expression, or the field of a row as `state["concept"]["id"].field`.
        value: Expr,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        above: Option<Bound>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<Bound>,
    },
}

/// `after` is in it, `before` is not; `after` later than `before` means over midnight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeOfDay {
    /// `HH:mm` or `HH:mm:ss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// 0 is Sunday.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekday: Vec<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dedup {
    pub key: Expr,
    #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
}

/// When an automation starts more often than this: it is said, and with `pause` it stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    pub per_minute: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pause: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    #[serde(rename = "is")]
    pub kind: ModeKind,
    /// Absent: the whole automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Expr>,
    /// Running and queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeKind {
    #[default]
    Single,
    Restart,
    Queued,
    Parallel,
}
