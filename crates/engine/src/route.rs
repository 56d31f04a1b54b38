//! Whom an event concerns: waits it ends, triggers it pulls. In the commit of the event itself (rules R6).

pub mod at_once;
pub mod lost;
pub mod occurrence;
pub mod start;
mod wake;

use std::sync::Arc;

use model::definition::ModeKind;
use model::event::Event;
use model::record::{Outcome, Record, Routed, RunRecord, Verdict};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::absent;
use crate::automation::{Automation, Concerned, Trigger, matching};
use crate::draft::Draft;
use crate::faults::planted;
use crate::gate::{self, Gate, Memory, Passed};
use crate::state::{Result, State};

pub use wake::due as wake_due;
pub(crate) use wake::{answer as answer_wait, end as end_wait, marked as recheck_wait, takes as wait_takes};

/// Occurrences that one event may have.
const OCCURRENCES_MAX: usize = 10_000;

/// Whether anything here could be concerned by an event at all.
pub fn listens(state: &State) -> bool {
    !state.catalog.automations.is_empty() || !state.runs.wakes.is_empty()
}

/// Refuses a publish whose topic more triggers want than one commit can hold.
pub fn check<'a>(state: &State, topics: impl Iterator<Item = &'a str>) -> std::result::Result<(), Problem> {
    for topic in topics {
        let concerned = state.catalog.automations.concerned(topic);
        if concerned.len() > OCCURRENCES_MAX {
            let widest =
                concerned.iter().flat_map(|(automation, index)| &automation.triggers[index].patterns);
            let widest = widest.map(|pattern| pattern.as_str()).find(|text| text.contains(['*', '#']));
            let detail = format!(
                "{} triggers want \"{topic}\", more than {OCCURRENCES_MAX}; one that is too wide is \"{}\"",
                concerned.len(),
                widest.unwrap_or(topic)
            );
            return Err(Problem::new(Code::PatternInvalid, detail).hint("narrow the patterns of triggers"));
        }
    }
    Ok(())
}

/// Routes every event that the draft holds and that has not been routed.
pub fn all(draft: &mut Draft<'_>) -> Result<()> {
    if draft.routing || !listens(draft.state) {
        return Ok(());
    }
    let since = draft.next();
    draft.routing = true;
    let routed = each(draft);
    draft.routing = false;
    // What a stretch has led to comes before what it has only made room for, or called: that may lead to the same.
    draft.state.runs.put_before(draft.begins(), since);
    routed
}

/// What is told while events are routed, and what runs write that walk meanwhile, is routed after them.
fn each(draft: &mut Draft<'_>) -> Result<()> {
    loop {
        let since = draft.next();
        if let Some((event, spaces)) = draft.views.pop_front() {
            view(draft, &event, &spaces)?;
        } else if draft.routed < draft.len() {
            draft.routed += 1;
            written(draft, draft.routed - 1)?;
        } else {
            return Ok(());
        }
        if draft.next() > since && draft.has_unrouted() {
            at_once::walk_since(draft, since)?;
        }
    }
}

fn written(draft: &mut Draft<'_>, index: usize) -> Result<()> {
    let Record::Event(event) = &draft.entries()[index].record else { return Ok(()) };
    let concerned = draft.state.catalog.automations.concerned(&event.envelope.topic);
    if concerned.is_empty() && !wake::may_concern(draft.state, event) {
        return Ok(());
    }
    let event = match draft.state.event(event.position)? {
        Some(kept) => kept,
        None => event.clone(),
    };
    one(draft, &event, &concerned)
}

/// Routes an event that is folded already, as if it came now.
pub fn replayed(draft: &mut Draft<'_>, event: &Event) -> Result<()> {
    let concerned = draft.state.catalog.automations.concerned(&event.envelope.topic);
    if concerned.is_empty() && !wake::may_concern(draft.state, event) {
        return Ok(());
    }
    one(draft, event, &concerned)?;
    all(draft)
}

fn one(draft: &mut Draft<'_>, event: &Event, concerned: &Concerned) -> Result<()> {
    let value = match draft.state.event_value(event.position)? {
        Some(value) => value,
        None => Arc::new(event.to_value()),
    };
    wake::by_event(draft, event, &value)?;
    wake::by_change(draft, event, &value)?;
    let mut verdicts: Vec<Verdict> = Vec::new();
    let mut judged: Vec<(usize, Passed, Arc<Automation>)> = Vec::new();
    let mut memory = Memory::of(draft.state);
    let mut heard: Vec<(Arc<Automation>, usize)> = Vec::new();
    let came = Came { event, value: &value, now: draft.now, sample: event.position };
    for (automation, index) in concerned.iter() {
        let trigger = &automation.triggers[index];
        if absent::after(trigger).is_some() {
            heard.extend(came.is_heard(trigger).then(|| (automation.clone(), index)));
            continue;
        }
        let Some(mut passed) = came.meets(&memory, automation, trigger)? else { continue };
        start::promise(&mut passed, draft.now, draft.entropy);
        verdicts.push(verdict(automation, &trigger.definition.id, &passed));
        memory.set.extend(passed.set.iter().map(|set| (automation.name().to_owned(), set.clone())));
        let stage = (automation.name().to_owned(), passed.stage.clone());
        match passed.outcome {
            Outcome::Ran => memory.starting.push(stage),
            Outcome::Pending if passed.gate == Gate::Mode => memory.queued.push(stage),
            _ => {}
        }
        judged.push((index, passed, automation.clone()));
    }
    for (automation, index) in heard {
        absent::begin(draft, &automation, &automation.triggers[index])?;
    }
    if judged.is_empty() {
        return Ok(());
    }
    let mut places = vec![(0, 0); judged.len()];
    for (routed, of) in parted(draft.state, event, verdicts) {
        let position = draft.push_run(RunRecord::Routed(routed))?;
        of.into_iter().enumerate().for_each(|(n, index)| places[index] = (position, n as u32));
    }
    let mut started: Vec<(Position, Arc<Automation>, String)> = Vec::new();
    for ((index, mut passed, automation), place) in judged.into_iter().zip(places) {
        start::follow(draft, place, &passed)?;
        if automation.definition.mode.kind == ModeKind::Restart {
            // What the same event began by another trigger makes way like any other.
            let same = |of: &Automation, stage: &str| of.name() == automation.name() && stage == passed.stage;
            let before = started.iter().filter(|(_, of, stage)| same(of, stage));
            passed.cancel.extend(before.map(|(run, ..)| *run).collect::<Vec<_>>());
        }
        if passed.pause {
            start::pause(draft, &automation)?;
        }
        // A claim that stands alone is what a crash between it and its run would leave.
        let is_claim_only = planted("claim_before_run") && event.position.is_multiple_of(5);
        if passed.outcome == Outcome::Ran && !is_claim_only {
            let trigger = &automation.triggers[index].definition.id;
            let run = start::by_event(draft, &automation, trigger, event, &passed)?;
            started.push((run, automation, passed.stage));
        }
    }
    Ok(())
}

/// What a gate remembers must stay readable; in a sealed space what the others saw stands apart from it. With each record,
/// which of the verdicts are in it.
fn parted(state: &State, event: &Event, verdicts: Vec<Verdict>) -> Vec<(Routed, Vec<usize>)> {
    let of = |some: Vec<(usize, Verdict)>| {
        let (places, verdicts) = some.into_iter().unzip();
        (Routed { event: event.position, verdicts }, places)
    };
    let verdicts = verdicts.into_iter().enumerate();
    if !state.seals.seals(&event.envelope.space) {
        return vec![of(verdicts.collect())];
    }
    let (open, closed): (Vec<_>, Vec<_>) = verdicts.partition(|(_, verdict)| verdict.remembers());
    [open, closed].into_iter().filter(|some| !some.is_empty()).map(of).collect()
}

/// As [`one`], for an event that is written nowhere: triggers that name it are pulled, and what starts carries it along.
/// `spaces`: all of which it may quote something.
fn view(draft: &mut Draft<'_>, event: &Event, spaces: &[String]) -> Result<()> {
    let value = Arc::new(event.to_value());
    let concerned = draft.state.catalog.automations.concerned(&event.envelope.topic);
    let came = Came { event, value: &value, now: draft.now, sample: 0 };
    for (automation, index) in concerned.iter() {
        let trigger = &automation.triggers[index];
        if absent::after(trigger).is_some() {
            if came.is_heard(trigger) {
                absent::begin(draft, automation, trigger)?;
            }
            continue;
        }
        if let Some(passed) = came.meets(&Memory::of(draft.state), automation, trigger)? {
            let view = start::View { event, value: &value, spaces };
            start::by_view(draft, automation, trigger, &view, passed)?;
        }
    }
    Ok(())
}

/// An event that may concern triggers.
struct Came<'a> {
    event: &'a Event,
    value: &'a Arc<Value>,
    now: Timestamp,
    /// Where it can be read again by who asks for near misses; 0: nowhere.
    sample: Position,
}

impl Came<'_> {
    /// Whether it ends the silence of an `absent` trigger.
    fn is_heard(&self, trigger: &Trigger) -> bool {
        trigger.filter.as_ref().is_none_or(|filter| filter.test(self.value) == Ok(true))
    }

    /// What the gates say of it; `None`: it is no occurrence of this trigger.
    fn meets(
        &self,
        memory: &Memory<'_>,
        automation: &Arc<Automation>,
        trigger: &Trigger,
    ) -> Result<Option<Passed>> {
        let Came { event, value, now, sample } = *self;
        if !matching::matches(memory.state, &trigger.definition.on, event, value)? {
            return Ok(None);
        }
        if !memory.state.is_enabled(automation) {
            trigger.stopped.note(&trigger.stopped.disabled, sample);
            return Ok(None);
        }
        Ok(Some(match trigger.filter.as_ref().map_or(Ok(true), |filter| filter.test(value)) {
            Ok(false) => {
                trigger.stopped.note(&trigger.stopped.filtered, sample);
                return Ok(None);
            }
            Err(problem) => filter_error(&problem),
            Ok(true) if event.has_expired(now) => Passed::stopped_at(Gate::Start, Outcome::Expired, "ttl"),
            Ok(true) => {
                let of = occurrence::of_event(automation, trigger, event, value, now);
                judge(memory, &of, Gate::Window)?
            }
        }))
    }
}

/// The pause of an operator keeps what comes, that of the breaker refuses it.
pub fn judge(memory: &Memory<'_>, of: &gate::Occurrence<'_>, from: Gate) -> Result<Passed> {
    let name = of.automation.name();
    if !memory.state.is_paused(name) {
        return gate::pass(memory, of, from);
    }
    let storm = memory.state.setting(name).is_some_and(|set| set.reason.as_deref() == Some("storm"));
    Ok(if storm {
        Passed::stopped_at(Gate::Breaker, Outcome::Refused, "storm_paused")
    } else {
        Passed::kept_back(of.context.clone())
    })
}

fn filter_error(problem: &Problem) -> Passed {
    let mut passed = Passed::stopped_at(Gate::Window, Outcome::Refused, "filter_error");
    passed.values.insert("error".to_owned(), error_of(problem));
    passed
}

pub fn error_of(problem: &Problem) -> Value {
    json!({"code": problem.code().as_str(), "message": problem.detail()})
}

pub fn verdict(automation: &Automation, trigger: &str, passed: &Passed) -> Verdict {
    let gate = match passed.reason {
        Some("filter_error") => "filter",
        Some("paused" | "disabled") => "enabled",
        _ => passed.gate.as_str(),
    };
    Verdict {
        automation: automation.name().to_owned(),
        trigger: trigger.to_owned(),
        version: automation.version().to_owned(),
        outcome: passed.outcome,
        reason: passed.reason.map(str::to_owned),
        gate: (passed.outcome != Outcome::Ran).then(|| gate.to_owned()),
        until: passed.until,
        run: passed.run.clone(),
        events: if passed.outcome == Outcome::Pending { passed.batch.clone() } else { Vec::new() },
        key: passed.key.clone(),
        set: passed.set.clone(),
        values: values(&passed.values),
    }
}

fn values(values: &Map<String, Value>) -> Value {
    if values.is_empty() { Value::Null } else { Value::Object(values.clone()) }
}
