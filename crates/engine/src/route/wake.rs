//! Waits that an event or a change ends: looked up by topic and row, tested in the same commit (rules R12).

pub mod due;
mod held;

use std::sync::Arc;

use model::Code;
use model::event::{Band, Event};
use model::record::{How, Outcome, RunRecord, WaitEnded};
use serde_json::{Map, Value, json};

use super::start;
use crate::automation::{Automation, compile_filter, matching};
use crate::condition;
use crate::draft::Draft;
use crate::env::Env;
use crate::run::{Run, Wait, WaitId, WaitKind};
use crate::state::{Result, State};

pub fn may_concern(state: &State, event: &Event) -> bool {
    let wakes = &state.runs.wakes;
    if wakes.is_empty() && state.pending().is_empty() {
        return false;
    }
    event.envelope.topic.starts_with("graph.node.") || !wakes.by_event(&event.envelope.topic).is_empty()
}

/// `wait_for`: the first event that fits ends it.
pub fn by_event(draft: &mut Draft<'_>, event: &Event, value: &Value) -> Result<()> {
    for id in draft.state.runs.wakes.by_event(&event.envelope.topic) {
        let Some(run) = draft.state.run(id.0)? else { continue };
        let Some(wait) = run.wait(id.1).filter(|wait| wait.ended.is_none()) else { continue };
        let Some(automation) = draft.state.version(&run.automation, &run.hash) else { continue };
        if held::length(wait).is_some() {
            held::changed(draft, (id, run), &automation, event, value)?;
            continue;
        }
        if takes(draft.state, &automation, &run, wait, event, value)? {
            end(draft, id, How::Met, Some(event.position), Value::Null)?;
        }
    }
    Ok(())
}

/// Whether this event is what the wait is for. A filter that errs does not match.
pub fn takes(
    state: &State,
    automation: &Arc<Automation>,
    run: &Run,
    wait: &Wait,
    event: &Event,
    value: &Value,
) -> Result<bool> {
    let WaitKind::For { trigger, filter, after, .. } = &wait.kind else { return Ok(false) };
    let is_past = event.position <= *after || run.walk.has_taken(&wait.path, event.position);
    if is_past || !matching::matches(state, trigger, event, value)? {
        return Ok(false);
    }
    let Some(filter) = filter else { return Ok(true) };
    Ok(match filter {
        model::definition::Filter::Expr(expr) => {
            let mut env = env_of(automation, run, wait, event.recorded_at);
            env.fixed.insert("event".to_owned(), value.clone());
            env.test(state, expr).unwrap_or(false)
        }
        form => compile_filter(form).is_ok_and(|filter| filter.test(value).unwrap_or(false)),
    })
}

/// `wait_until` and dwells: what looks at the row that changed is asked again.
pub fn by_change(draft: &mut Draft<'_>, event: &Event, value: &Value) -> Result<()> {
    let Some(subject) = event.envelope.subject.as_ref().filter(|_| is_change(event)) else { return Ok(()) };
    for id in draft.state.runs.wakes.by_change(&subject.kind, &subject.id) {
        try_again(draft, id, Some(event.position))?;
    }
    left(draft, event, value)
}

/// A condition that was marked, or that time may have changed: asked in its turn.
pub fn marked(draft: &mut Draft<'_>, id: WaitId) -> Result<()> {
    try_again(draft, id, None)
}

/// Ends a wait whose condition holds now; one that reads time is tried again when that may change what it says. One that
/// cannot be evaluated does not hold yet; one that looks at too much fails its step, because nobody would ever know.
fn try_again(draft: &mut Draft<'_>, id: WaitId, event: Option<model::Position>) -> Result<()> {
    let Some(run) = draft.state.run(id.0)? else { return Ok(()) };
    let Some(wait) = run.wait(id.1).filter(|wait| wait.ended.is_none()) else { return Ok(()) };
    let WaitKind::Until { condition, recheck, .. } = &wait.kind else { return held::passed(draft, id, run) };
    let Some(automation) = draft.state.version(&run.automation, &run.hash) else { return Ok(()) };
    let env = env_of(&automation, &run, wait, draft.now);
    match condition::test(&env, draft.state, condition) {
        Ok(true) => return end(draft, id, How::Met, event, Value::Null),
        Err(problem) if problem.code() == Code::ExprLimit => {
            let why =
                json!({"code": problem.code().as_str(), "message": problem.detail(), "class": "permanent"});
            return end(draft, id, How::Failed, event, why);
        }
        Ok(false) | Err(_) => {}
    }
    if recheck.is_some() {
        let next = condition::next_try(&env, draft.state, condition);
        draft.state.runs.arm_recheck(id, next);
    }
    Ok(())
}

fn is_change(event: &Event) -> bool {
    event.envelope.topic.starts_with("graph.node.")
}

/// What the wait kept of its run, with rows and time as they are now.
fn env_of(automation: &Arc<Automation>, run: &Run, wait: &Wait, now: model::Timestamp) -> Env {
    Env {
        program: automation.program.clone(),
        vars: wait.env.get("vars").cloned().unwrap_or_default(),
        wait: wait.env.get("wait").cloned().unwrap_or_default(),
        fixed: wait.env.clone(),
        about: None,
        outputs: Map::new(),
        frames: Vec::new(),
        now,
        space: run.space.clone(),
        reader: None,
    }
}

pub fn end(
    draft: &mut Draft<'_>,
    id: WaitId,
    how: How,
    event: Option<model::Position>,
    value: Value,
) -> Result<()> {
    let other_spaces = match event.filter(|_| draft.state.seals.is_used()) {
        Some(event) => quoted(draft.state, id.0, event)?,
        None => Vec::new(),
    };
    let band = Band::default();
    let ended = WaitEnded { run: id.0, wait: id.1, how, event, other_spaces, band, by: None, value };
    draft.push_run(RunRecord::WaitEnded(ended)).map(drop)
}

/// Somebody answered a question.
pub fn answer(draft: &mut Draft<'_>, id: WaitId, by: &str, value: Value) -> Result<()> {
    let (how, by) = (How::Answered, Some(by.to_owned()));
    let (other_spaces, band) = (Vec::new(), Band::default());
    let ended = WaitEnded { run: id.0, wait: id.1, how, event: None, other_spaces, band, by, value };
    draft.push_run(RunRecord::WaitEnded(ended)).map(drop)
}

/// The space of an event that a run is told of, when it is a sealed one and not the run's own.
fn quoted(state: &State, run: model::Position, event: model::Position) -> Result<Vec<String>> {
    let space = state.event(event)?.map(|event| event.envelope.space.clone());
    let own = state.run(run)?.map(|run| run.space).unwrap_or_default();
    Ok(state.seals.others(space.into_iter().collect(), &own))
}

/// Dwells whose state is no longer what it was when they began.
fn left(draft: &mut Draft<'_>, event: &Event, value: &Value) -> Result<()> {
    let Some(subject) = &event.envelope.subject else { return Ok(()) };
    let key = format!("{}:{}", subject.kind, subject.id);
    let mut gone = Vec::new();
    for (id, pending) in draft.state.dwells_of(&key) {
        let Some(automation) = draft.state.version(&pending.automation, &pending.hash) else { continue };
        let Some(trigger) = automation.trigger(&pending.trigger) else { continue };
        let (on, next) = (&trigger.definition.on, &value["payload"]["next"]);
        let measure = due::measure(draft.state, on, pending.events.last().copied(), &pending.armed)?;
        if !due::holds(draft.state, on, &event.envelope.space, next, &measure)? {
            gone.push(*id);
        }
    }
    for id in gone {
        start::settle(draft, id, Outcome::Skipped, Some("dwell_left"), None)?;
    }
    Ok(())
}
