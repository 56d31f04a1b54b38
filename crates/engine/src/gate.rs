//! The gates between an occurrence and its run, in the one order there is (rules R7):
//!
//! ```text
//!  filter ─ window ─ batch ─ debounce ─ throttle ─ rate ─ cooldown ─ dwell ─ conditions ─ dedup ─ breaker ─ mode ─▶ run
//! ```
//! Pure: what a gate remembers comes from the state, what it will remember goes into the verdict. Gates that limit starts
//! are asked in order and charged only when the run starts.

mod backoff;
mod batch;
mod breaker;
mod debounce;
mod limit;
pub(crate) mod mode;
pub mod storm;
mod window;

use std::sync::Arc;

use model::definition::Condition;
use model::event::Event;
use model::record::{GateSet, OccurrenceId, Outcome};
use model::{Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::automation::{Automation, Trigger};
use crate::condition;
use crate::env::Env;
use crate::faults::planted;
use crate::state::{Fault, State};

pub use breaker::DEPTH_MAX;

/// Where an occurrence goes on: a pending one does not pass the same gates again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    Window,
    Batch,
    Debounce,
    Throttle,
    Rate,
    Cooldown,
    Dwell,
    Conditions,
    Dedup,
    Breaker,
    Mode,
    Start,
}

impl Gate {
    const ALL: [Gate; 12] = [
        Gate::Window,
        Gate::Batch,
        Gate::Debounce,
        Gate::Throttle,
        Gate::Rate,
        Gate::Cooldown,
        Gate::Dwell,
        Gate::Conditions,
        Gate::Dedup,
        Gate::Breaker,
        Gate::Mode,
        Gate::Start,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Gate::Window => "window",
            Gate::Batch => "batch",
            Gate::Debounce => "debounce",
            Gate::Throttle => "throttle",
            Gate::Rate => "rate",
            Gate::Cooldown => "cooldown",
            Gate::Dwell => "dwell",
            Gate::Conditions => "conditions",
            Gate::Dedup => "dedup",
            Gate::Breaker => "breaker",
            Gate::Mode => "mode",
            Gate::Start => "start",
        }
    }

    /// The gate after the one of this name.
    pub fn after(name: &str) -> Gate {
        let at = Gate::ALL.iter().position(|gate| gate.as_str() == name);
        at.and_then(|at| Gate::ALL.get(at + 1)).copied().unwrap_or(Gate::Window)
    }
}

/// What is asked to pass.
pub struct Occurrence<'a> {
    pub automation: &'a Arc<Automation>,
    /// `None` for manual starts and calls, which only conditions, breaker and mode may stop.
    pub trigger: Option<&'a Trigger>,
    /// What it is about, such as `v1:shop:item:7`; the key of gates that name none.
    pub context: String,
    pub event: Option<&'a Event>,
    /// Where its event stands; 0 for those that stand in no record.
    pub position: Position,
    /// When it happened.
    pub time: Timestamp,
    pub depth: u32,
    pub env: Env,
    /// It takes a place in the queue where the mode would turn it away: of instants that are caught up with, each runs.
    pub in_turn: bool,
}

/// What the gates came to.
#[derive(Clone, Debug)]
pub struct Passed {
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub gate: Gate,
    pub until: Option<Timestamp>,
    /// What a pending one shares its gate with.
    pub key: Option<String>,
    pub set: Vec<GateSet>,
    pub values: Map<String, Value>,
    /// The id that the run of one that queues will have.
    pub run: Option<String>,
    /// The mode's key, for a run that starts.
    pub stage: String,
    /// Runs that make way.
    pub cancel: Vec<Position>,
    /// Pending ones that this one takes with it, and how they end.
    pub take: Vec<(OccurrenceId, Outcome, &'static str)>,
    /// Events of a batch, oldest first.
    pub batch: Vec<Position>,
    /// The breaker opened: the automation is to be paused.
    pub pause: bool,
}

impl Passed {
    fn new() -> Passed {
        Passed {
            outcome: Outcome::Ran,
            reason: None,
            gate: Gate::Start,
            until: None,
            key: None,
            set: Vec::new(),
            values: Map::new(),
            run: None,
            stage: String::new(),
            cancel: Vec::new(),
            take: Vec::new(),
            batch: Vec::new(),
            pause: false,
        }
    }

    pub fn stopped_at(gate: Gate, outcome: Outcome, reason: &'static str) -> Passed {
        let mut passed = Passed::new();
        passed.stop(gate, outcome, reason);
        passed
    }

    /// Of one that leaves the queue of this stage.
    pub fn queued(stage: &str) -> Passed {
        Passed { stage: stage.to_owned(), ..Passed::new() }
    }

    /// An operator paused the automation: it waits until that is lifted.
    pub fn kept_back(key: String) -> Passed {
        let mut passed = Passed::new();
        passed.wait(Gate::Window, "paused", None, key);
        passed
    }

    /// A start that no record of an event brings waits with all that it needs. It cannot be part of a batch, which is of
    /// events that can be read again.
    pub fn queue_or_skip(&mut self, start: Option<Value>) {
        match start.filter(|_| self.gate != Gate::Batch) {
            Some(start) => _ = self.values.insert("start".to_owned(), start),
            None => (self.outcome, self.reason, self.key) = (Outcome::Skipped, Some("busy"), None),
        }
    }

    fn stop(&mut self, gate: Gate, outcome: Outcome, reason: &'static str) {
        (self.gate, self.outcome, self.reason) = (gate, outcome, Some(reason));
    }

    fn wait(&mut self, gate: Gate, reason: &'static str, until: Option<Timestamp>, key: String) {
        self.stop(gate, Outcome::Pending, reason);
        (self.until, self.key) = (until, Some(key));
    }

    /// Whether a run starts.
    pub fn starts(&self) -> bool {
        matches!(self.outcome, Outcome::Ran | Outcome::CaughtUp)
    }

    fn stopped(&self) -> bool {
        self.reason.is_some()
    }
}

/// Why gates could not be asked at all.
pub type Result<T> = std::result::Result<T, Fault>;

/// What gates may look at: the state, and what earlier occurrences of the same event have set but not yet folded.
pub struct Memory<'a> {
    pub state: &'a State,
    pub set: Vec<(String, GateSet)>,
    /// Runs that start with this event: automation and mode key.
    pub starting: Vec<(String, String)>,
    /// Places in a queue that others of this event have taken, by the same.
    pub queued: Vec<(String, String)>,
}

impl<'a> Memory<'a> {
    pub fn of(state: &'a State) -> Memory<'a> {
        Memory { state, set: Vec::new(), starting: Vec::new(), queued: Vec::new() }
    }

    fn get(&self, of: &Occurrence<'_>, gate: Gate, key: &str) -> Result<Option<Value>> {
        let (name, trigger) = (of.automation.name(), trigger_id(of, gate));
        let here = self.set.iter().rev().find(|(automation, set)| {
            automation == name && set.gate == gate.as_str() && set.trigger == trigger && set.key == key
        });
        match here {
            Some((_, set)) => Ok(set.value.clone()),
            None => self.state.gate(name, trigger, gate.as_str(), key),
        }
    }
}

/// Dedup and breaker belong to the automation, the others to their trigger.
fn trigger_id<'a>(of: &'a Occurrence<'_>, gate: Gate) -> &'a str {
    match gate {
        Gate::Dedup | Gate::Breaker => "",
        _ => of.trigger.map_or("", |trigger| trigger.definition.id.as_str()),
    }
}

fn setting(of: &Occurrence<'_>, gate: Gate, key: &str, value: Option<Value>) -> GateSet {
    GateSet {
        gate: gate.as_str().to_owned(),
        trigger: trigger_id(of, gate).to_owned(),
        key: key.to_owned(),
        value,
    }
}

/// Asks every gate from `from` on.
pub fn pass(memory: &Memory<'_>, of: &Occurrence<'_>, from: Gate) -> Result<Passed> {
    let mut passed = Passed::new();
    for gate in Gate::ALL.into_iter().filter(|gate| *gate >= from) {
        match gate {
            Gate::Window => window::ask(memory, of, &mut passed)?,
            Gate::Batch => batch::ask(memory, of, &mut passed)?,
            Gate::Debounce => debounce::ask(memory, of, &mut passed)?,
            Gate::Throttle | Gate::Rate => limit::ask(memory, of, gate, &mut passed)?,
            Gate::Cooldown => {
                limit::ask(memory, of, gate, &mut passed)?;
                if !passed.stopped() {
                    backoff::ask(memory, of, &mut passed);
                }
            }
            Gate::Dwell => dwell(memory, of, &mut passed),
            Gate::Conditions => conditions(memory, of, &mut passed),
            Gate::Dedup => limit::dedup(memory, of, &mut passed)?,
            Gate::Breaker => breaker::ask(memory, of, &mut passed)?,
            Gate::Mode => mode::ask(memory, of, &mut passed)?,
            Gate::Start if !memory.state.daily.has_room(of.env.now, memory.starting.len()) => {
                passed.stop(Gate::Start, Outcome::Refused, "budget");
            }
            Gate::Start => charge(memory, of, from, &mut passed)?,
        }
        if passed.stopped() {
            if gate == Gate::Conditions && planted("charge_before_start") {
                limit::charge(memory, of, &mut passed)?;
            }
            // A place in the queue is a start that is promised.
            if gate == Gate::Mode && passed.outcome == Outcome::Pending {
                window::charge(memory, of, &mut passed)?;
            }
            break;
        }
    }
    Ok(passed)
}

/// Asks one whose turn in its queue has come: what it repeats may have run since it took its place.
pub fn in_its_turn(memory: &Memory<'_>, of: &Occurrence<'_>) -> Result<Passed> {
    let mut passed = Passed::new();
    limit::dedup(memory, of, &mut passed)?;
    if passed.stopped() { Ok(passed) } else { pass(memory, of, Gate::Start) }
}

/// A run starts: gates that limit starts take note.
fn charge(memory: &Memory<'_>, of: &Occurrence<'_>, from: Gate, passed: &mut Passed) -> Result<()> {
    // One that comes out of the queue was charged for when it took its place.
    if from < Gate::Start {
        window::charge(memory, of, passed)?;
    }
    limit::charge(memory, of, passed)?;
    breaker::charge(memory, of, passed)
}

/// The value of a gate's key, else what the occurrence is about. A key that cannot be computed falls back, too.
fn key_of(memory: &Memory<'_>, of: &Occurrence<'_>, key: Option<&model::definition::Expr>) -> String {
    let value = key.and_then(|key| of.env.eval(memory.state, key).ok());
    match value {
        Some(Value::String(text)) if !text.is_empty() => text,
        Some(Value::Null | Value::String(_)) | None => of.context.clone(),
        Some(value) => value.to_string(),
    }
}

/// The state must hold for a while; the first deadline stays when it is said again.
fn dwell(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) {
    let Some(length) = of.trigger.and_then(|trigger| trigger.definition.dwell.as_ref()) else { return };
    let trigger = trigger_id(of, Gate::Dwell);
    let armed = memory
        .state
        .pending_of(of.automation.name(), &of.context)
        .find(|(_, pending)| pending.gate == "dwell" && pending.trigger == trigger);
    if let Some((_, armed)) = armed {
        passed.values.insert("dwell".to_owned(), json!({"since": armed.since, "until": armed.until}));
        return passed.stop(Gate::Dwell, Outcome::Skipped, "duplicate");
    }
    match of.env.length(memory.state, length) {
        Ok(length) => {
            passed.values.insert("for".to_owned(), model::time::duration_json(length));
            let trigger = of.env.named("trigger");
            if !trigger["to"].is_null() {
                passed.values.insert("armed".to_owned(), trigger["to"].clone());
            }
            passed.wait(Gate::Dwell, "dwell", Some(of.env.now.plus(length)), of.context.clone());
        }
        Err(problem) => refuse(passed, Gate::Dwell, "condition_error", &problem),
    }
}

fn conditions(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) {
    // Conditions may read what it was given, so that is looked at first. Those of a batch are given a list.
    if of.trigger.is_none_or(|trigger| trigger.definition.batch.is_none())
        && let Err(problem) = of.automation.args(&of.env.named("input"))
    {
        return refuse(passed, Gate::Start, "invalid_input", &problem);
    }
    for (index, wanted) in of.automation.definition.conditions.iter().enumerate() {
        match condition::test(&of.env, memory.state, wanted) {
            Ok(true) => {}
            Ok(false) => {
                note(passed, index, wanted);
                return passed.stop(Gate::Conditions, Outcome::Skipped, "conditions");
            }
            Err(problem) => {
                note(passed, index, wanted);
                return refuse(passed, Gate::Conditions, "condition_error", &problem);
            }
        }
    }
}

/// Which condition it was. What it read is told to who asks, and not written down again.
fn note(passed: &mut Passed, index: usize, condition: &Condition) {
    passed.values.insert("condition".to_owned(), index.into());
    passed.values.insert("expr".to_owned(), json!(condition));
}

fn refuse(passed: &mut Passed, gate: Gate, reason: &'static str, problem: &Problem) {
    let error = json!({"code": problem.code().as_str(), "message": problem.detail()});
    passed.values.insert("error".to_owned(), error);
    passed.stop(gate, Outcome::Refused, reason);
}

/// Instants as gates keep them.
fn millis(at: Timestamp) -> Value {
    at.millis().into()
}
