//! Steps: what a run does one after the other, in logic and in automations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Expr, Field, Filter, Input, Length, TriggerKind, is_default, is_yes, seconds, yes};

/// One addressable part of a run. Its output is bound to `id`, as a bare name and as `steps.<id>.output`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// False: the step is skipped and its output is null.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Length>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_error: OnError,
    #[serde(rename = "do")]
    pub action: Action,
}

impl Step {
    pub fn of(action: Action) -> Step {
        Step { id: None, when: None, retry: None, timeout: None, on_error: OnError::Stop, action }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    #[default]
    Stop,
    Continue,
}

/// After failure i wait U(0, min(base·mult^i, limit)), at most `max` times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    pub max: u32,
    #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub base: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mult: Option<f64>,
    #[serde(default, with = "seconds::maybe", skip_serializing_if = "Option::is_none")]
    pub limit: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The step's output is this value.
    Value(Input),
    /// Sets `vars.<name>`.
    Vars(BTreeMap<String, Input>),
    Logic(Call),
    Query(Call),
    Mutate(Call),
    Publish(Publish),
    If {
        test: Condition,
        then: Vec<Step>,
        #[serde(default, rename = "else", skip_serializing_if = "Vec::is_empty")]
        otherwise: Vec<Step>,
    },
    Switch(Switch),
    For(For),
    Parallel {
        branches: Vec<Branch>,
        /// Goes on with the first branch that ends, instead of with the last.
        #[serde(default, skip_serializing_if = "is_default")]
        any: bool,
    },
    Repeat(Repeat),
    /// Several steps that succeed or fail as one.
    Atomic(Vec<Step>),
    Delay(Length),
    WaitUntil(WaitUntil),
    WaitFor(WaitFor),
    Ask(Ask),
    Http(Http),
    /// `exec`, `agent`, `task`, `deliver`: worked outside the loop by a runner of that name.
    Outside(Outside),
    Automation {
        #[serde(flatten)]
        call: Call,
        /// False: started and left alone.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        wait: bool,
    },
    /// Ends the run well.
    Stop {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Input>,
    },
    /// Ends the run as failed.
    Fail {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Input>,
    },
    /// Ends logic, or a run, with a value.
    Return {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Input>,
    },
}

impl Action {
    /// The lists of steps inside it.
    pub fn blocks(&self) -> Vec<&[Step]> {
        match self {
            Action::If { then, otherwise, .. } => vec![then, otherwise],
            Action::Switch(switch) => {
                let cases = switch.cases.iter().map(|case| case.steps.as_slice());
                cases.chain([switch.default.as_slice()]).collect()
            }
            Action::For(each) => vec![&each.steps],
            Action::Parallel { branches, .. } => {
                branches.iter().map(|branch| branch.steps.as_slice()).collect()
            }
            Action::Repeat(repeat) => vec![&repeat.steps],
            Action::Atomic(steps) => vec![steps],
            _ => Vec::new(),
        }
    }
}

/// Something declared, by its declared name, with its arguments as one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Input>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Publish {
    pub topic: Input,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Input>,
    /// Further fields of the envelope: `space key subject time type band priority ttl source ext …`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envelope: BTreeMap<String, Input>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    pub on: Expr,
    /// The first that names the value.
    pub cases: Vec<Case>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    pub values: Vec<Value>,
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct For {
    /// The name of the element; `item` if none was written.
    pub item: String,
    /// The name of the index; `index` if none was written.
    pub index: String,
    #[serde(rename = "in")]
    pub source: Input,
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<Expr>,
    /// How many elements at a time; absent: one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    pub name: String,
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

/// Exactly one of `count`, `while` (asked before) and `until` (asked after); `for_each` becomes a [`For`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Expr>,
    #[serde(default, rename = "while", skip_serializing_if = "Option::is_none")]
    pub before: Option<Condition>,
    #[serde(default, rename = "until", skip_serializing_if = "Option::is_none")]
    pub after: Option<Condition>,
    /// Absent: 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

impl Repeat {
    /// The most that may be counted to: what goes on longer has likely lost its end, and would fill the ledger.
    pub const COUNT_MAX: u64 = 1_000_000;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    Continue,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitUntil {
    pub condition: Condition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Length>,
    pub on_timeout: OnTimeout,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitFor {
    pub trigger: TriggerKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// How long a state must hold.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub dwell: Option<Length>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Length>,
    pub on_timeout: OnTimeout,
}

/// A person is asked; the run waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    pub question: Input,
    /// `approve`: yes or no, and `hitl.*` is published.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approve: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub form: Vec<Field>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Value>,
    /// Who may answer: an actor, a role, or a list of them; absent: whoever may write automations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Input>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Length>,
    /// The answer when the time is over; absent: the step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Input>,
}

/// What an answer to `approve` means; `None` when it is neither yes nor no.
pub fn approval(answer: &Value) -> Option<bool> {
    match answer {
        Value::Bool(yes) => Some(*yes),
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "yes" | "true" | "approve" | "approved" => Some(true),
            "no" | "false" | "reject" | "rejected" => Some(false),
            _ => None,
        },
        Value::Object(form) => approval(form.get("approved")?),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Http {
    pub method: String,
    pub url: Input,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Input>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Input>,
    /// Never sent twice: a request whose end is not known asks a person instead of being tried again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub once: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    pub runner: String,
    pub with: Input,
}
