//! Pending occurrences whose time has come, or whose turn it is: they go on at the gate after the one that held them.

use std::sync::Arc;

use model::definition::TriggerKind;
use model::record::{OccurrenceId, Outcome, RunRecord};
use serde_json::Value;

use crate::automation::matching;
use crate::draft::Draft;
use crate::gate::{self, Gate, Memory, Passed};
use crate::route::{occurrence, start, verdict};
use crate::state::run::Pending;
use crate::state::{Result, State};

/// Goes on with one; it ends, or waits at a later gate.
pub fn go_on(draft: &mut Draft<'_>, id: OccurrenceId) -> Result<()> {
    let Some(pending) = draft.state.pending().get(&id).cloned() else { return Ok(()) };
    let Some(automation) = draft.state.version(&pending.automation, &pending.hash) else {
        return start::settle(draft, id, Outcome::Skipped, Some("disabled"), None);
    };
    if !pending.start.is_null() {
        return start::by_hand(draft, &automation, id, &pending);
    }
    let (Some(trigger), Some(event)) =
        (automation.trigger(&pending.trigger), last_event(draft.state, &pending)?)
    else {
        return start::settle(draft, id, Outcome::Skipped, Some("disabled"), None);
    };
    let off = !draft.state.is_enabled(&automation) && !draft.state.is_draining(automation.name());
    if off && pending.gate != "mode" {
        return start::settle(draft, id, Outcome::Skipped, Some("disabled"), None);
    }
    if event.has_expired(draft.now) {
        return start::settle(draft, id, Outcome::Expired, Some("ttl"), None);
    }
    let value = Arc::new(event.to_value());
    if pending.gate == "dwell" && !still(draft.state, &trigger.definition.on, &event, &pending)? {
        return start::settle(draft, id, Outcome::Skipped, Some("dwell_left"), None);
    }
    let mut of = occurrence::of_event(&automation, trigger, &event, &value, draft.now);
    of.of = Some(id);
    let memory = Memory { state: draft.state, set: Vec::new(), starting: Vec::new() };
    let from = match pending.gate.as_str() {
        "enabled" => Gate::Window,
        "mode" => Gate::Start,
        gate => Gate::after(gate),
    };
    let mut passed = gate::pass(&memory, &of, from)?;
    if pending.gate == "mode" {
        passed.stage.clone_from(&pending.key);
    }
    if pending.gate == "batch" {
        gather(draft.state, id, &pending, &mut passed);
    }
    settle(draft, id, &pending, &passed)?;
    start::follow(draft, &passed)?;
    if passed.outcome == Outcome::Ran {
        start::by_event(draft, &automation, &pending.trigger, &event, &passed)?;
    }
    Ok(())
}

/// It ends here, or waits again under a new name.
fn settle(draft: &mut Draft<'_>, id: OccurrenceId, pending: &Pending, passed: &Passed) -> Result<()> {
    if passed.outcome != Outcome::Pending {
        return start::settle(draft, id, passed.outcome, passed.reason, Some(passed));
    }
    let Some(automation) = draft.state.version(&pending.automation, &pending.hash) else { return Ok(()) };
    let routed = model::record::Routed {
        event: pending.events.last().copied().unwrap_or(0),
        verdicts: vec![verdict(&automation, &pending.trigger, passed)],
    };
    draft.push_run(RunRecord::Routed(routed))?;
    start::settle(draft, id, Outcome::Superseded, Some("replaced"), None)
}

/// The others of its batch go with it.
fn gather(state: &State, id: OccurrenceId, pending: &Pending, passed: &mut Passed) {
    let all = state.pending_of(&pending.automation, &pending.key);
    let all = all.filter(|(_, other)| other.gate == "batch" && other.trigger == pending.trigger);
    for (other, waiting) in all {
        passed.batch.extend(&waiting.events);
        if *other != id {
            passed.take.push((*other, Outcome::Merged, "batch"));
        }
    }
}

fn last_event(state: &State, pending: &Pending) -> Result<Option<Arc<model::event::Event>>> {
    match pending.events.last() {
        Some(position) => state.event(*position),
        None => Ok(None),
    }
}

fn still(state: &State, on: &TriggerKind, event: &model::event::Event, pending: &Pending) -> Result<bool> {
    let Some(subject) = &event.envelope.subject else { return Ok(true) };
    if !matches!(on, TriggerKind::State { .. } | TriggerKind::NumericState { .. }) {
        return Ok(true);
    }
    let space = &event.envelope.space;
    let row = state.row_near(&subject.kind, space, &subject.id)?;
    let row = row.map_or(Value::Null, |row| Value::Object(row.fields));
    holds(state, on, space, &row, &pending.armed)
}

/// Whether a row is still in the state that armed a dwell.
pub fn holds(state: &State, on: &TriggerKind, space: &str, row: &Value, armed: &Value) -> Result<bool> {
    Ok(match on {
        // Only where it came from is said: it holds as long as it stays away from there.
        TriggerKind::State { field, from: Some(from), to: None, .. } => {
            let value = matching::at(row, field);
            !row.is_null() && !from.iter().any(|left| matching::same(left, value))
        }
        TriggerKind::State { field, .. } => matching::same(matching::at(row, field), armed),
        TriggerKind::NumericState { field, above, below, .. } => {
            matching::within(state, space, matching::at(row, field), above.as_ref(), below.as_ref())?
        }
        _ => true,
    })
}
