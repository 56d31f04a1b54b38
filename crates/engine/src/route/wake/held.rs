//! A `wait_for` whose state must hold for a while: armed by the change that brings it about, given up by the one that ends it,
//! over when its time has passed.

use std::sync::Arc;
use std::time::Duration;

use model::definition::TriggerKind;
use model::event::Event;
use model::record::{How, RunMoved, RunRecord};
use serde_json::Value;

use super::{due, end, takes};
use crate::automation::{Automation, matching};
use crate::draft::Draft;
use crate::run::{Held, Run, Wait, WaitId, WaitKind};
use crate::state::{Result, State};

/// How long the state must hold that a wait is for; `None`: it ends with the event.
pub(super) fn length(wait: &Wait) -> Option<Duration> {
    match &wait.kind {
        WaitKind::For { dwell_ms, .. } => dwell_ms.map(Duration::from_millis),
        _ => None,
    }
}

/// A change of a row that the wait is about. The first deadline stays when the same is said again.
pub(super) fn changed(
    draft: &mut Draft<'_>,
    (id, run): (WaitId, Run),
    automation: &Arc<Automation>,
    event: &Event,
    value: &Value,
) -> Result<()> {
    let Some(wait) = run.wait(id.1) else { return Ok(()) };
    let WaitKind::For { trigger, held, .. } = &wait.kind else { return Ok(()) };
    let before = held.as_deref().cloned();
    let next = &value["payload"]["next"];
    let stays = match &before {
        Some(held) if is_about(draft.state, held, event)? => {
            let measure = due::measure(draft.state, trigger, Some(held.event), &held.armed)?;
            due::holds(draft.state, trigger, &event.envelope.space, next, &measure)?
        }
        other => other.is_some(),
    };
    let mut after = before.clone().filter(|_| stays);
    if after.is_none() && takes(draft.state, automation, &run, wait, event, value)? {
        let until = draft.now.plus(length(wait).unwrap_or_default());
        after = Some(Held { event: event.position, until, armed: armed(trigger, next) });
    }
    if after == before { Ok(()) } else { put(draft, id, run, after) }
}

/// Its time has passed, unless the row has become another since, unseen.
pub(super) fn passed(draft: &mut Draft<'_>, id: WaitId, run: Run) -> Result<()> {
    let Some(wait) = run.wait(id.1) else { return Ok(()) };
    let WaitKind::For { trigger, held: Some(held), .. } = &wait.kind else { return Ok(()) };
    if held.until > draft.now {
        let until = held.until;
        draft.state.runs.arm_recheck(id, until);
        return Ok(());
    }
    let stays = match draft.state.event(held.event)? {
        Some(event) => due::still_holds(draft.state, trigger, &event, &held.armed)?,
        None => true,
    };
    match stays {
        true => end(draft, id, How::Met, Some(held.event), Value::Null),
        false => put(draft, id, run, None),
    }
}

fn put(draft: &mut Draft<'_>, id: WaitId, mut run: Run, now: Option<Held>) -> Result<()> {
    if let Some(Wait { kind: WaitKind::For { held, .. }, .. }) = run.wait_mut(id.1) {
        *held = now.map(Box::new);
    }
    let state = serde_json::to_value(&run.walk).unwrap_or_default();
    let moved = RunMoved { run: id.0, status: run.status, state, steps: Vec::new() };
    draft.push_run(RunRecord::Moved(moved)).map(drop)
}

/// Whether it is the row whose state is held.
fn is_about(state: &State, held: &Held, event: &Event) -> Result<bool> {
    let armed_by = state.event(held.event)?;
    let of = |event: &Event| (event.envelope.subject.clone(), event.envelope.space.clone());
    Ok(armed_by.is_some_and(|by| of(&by) == of(event)))
}

fn armed(on: &TriggerKind, next: &Value) -> Value {
    match on {
        TriggerKind::State { field, .. } => matching::at(next, field).clone(),
        _ => Value::Null,
    }
}
