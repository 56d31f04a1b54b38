//! Pending occurrences whose time has come, or whose turn it is: they go on at the gate after the one that held them.

use std::sync::Arc;

use model::Position;
use model::definition::TriggerKind;
use model::event::Event;
use model::record::{OccurrenceId, OccurrenceMoved, Outcome, RunRecord};
use serde_json::Value;

use crate::automation::{Automation, matching};
use crate::draft::Draft;
use crate::gate::{self, Gate, Memory, Passed};
use crate::route::{self, occurrence, start, verdict};
use crate::state::run::Pending;
use crate::state::{Result, State};

/// Goes on with one; it ends, or waits at a later gate.
pub fn go_on(draft: &mut Draft<'_>, id: OccurrenceId) -> Result<()> {
    let Some(pending) = draft.state.pending().get(&id).cloned() else { return Ok(()) };
    let Some(automation) = draft.state.version(&pending.automation, &pending.hash) else {
        return start::settle(draft, id, Outcome::Skipped, Some("disabled"), None);
    };
    let event = last_event(draft.state, &pending)?;
    if let Some((outcome, reason)) = over(draft, &automation, &pending, event.as_deref())? {
        return start::settle(draft, id, outcome, Some(reason), None);
    }
    let mut passed = asked(draft, &automation, &pending, event.as_deref())?;
    if pending.gate == "mode" {
        (passed.stage, passed.run) = (pending.key.clone(), pending.run.clone());
    }
    let closes = pending.gate == "batch" || pending.after == "batch";
    match passed.reason {
        _ if pending.batch => passed.batch.clone_from(&pending.events),
        Some("paused") => {}
        _ if closes => gather(draft.state, id, &pending, &mut passed),
        _ => {}
    }
    start::promise(&mut passed, draft.now, draft.entropy);
    if passed.outcome == Outcome::Ran && pending.start["late"] == true {
        passed.outcome = Outcome::CaughtUp;
    }
    settle(draft, id, (&automation, &pending), &passed)?;
    start::follow(draft, id, &passed)?;
    if passed.pause {
        start::pause(draft, &automation)?;
    }
    match event {
        _ if !passed.starts() => Ok(()),
        Some(event) => start::by_event(draft, &automation, &pending.trigger, &event, &passed).map(drop),
        None => start::by_hand(draft, &automation, (id, &pending), &passed).map(drop),
    }
}

/// How it ends without asking a gate, if it does.
fn over(
    draft: &Draft<'_>,
    automation: &Automation,
    pending: &Pending,
    event: Option<&Event>,
) -> Result<Option<(Outcome, &'static str)>> {
    let trigger = automation.trigger(&pending.trigger);
    let lost = pending.start.is_null() && (trigger.is_none() || event.is_none());
    let off = !draft.state.is_enabled(automation) && !draft.state.is_draining(automation.name());
    if lost || off {
        return Ok(Some((Outcome::Skipped, "disabled")));
    }
    let (Some(trigger), Some(event)) = (trigger, event) else { return Ok(None) };
    if event.has_expired(draft.now) {
        return Ok(Some((Outcome::Expired, "ttl")));
    }
    let dwelt = pending.gate == "dwell" || pending.after == "dwell";
    let left = dwelt && !still(draft.state, &trigger.definition.on, event, pending)?;
    Ok(left.then_some((Outcome::Skipped, "dwell_left")))
}

/// Asks the gates from where it stands on. A pause keeps it once more, and remembers where that is.
fn asked(
    draft: &Draft<'_>,
    automation: &Arc<Automation>,
    pending: &Pending,
    event: Option<&Event>,
) -> Result<Passed> {
    let value = Arc::new(event.map_or_else(|| pending.start["event"].clone(), Event::to_value));
    let of = match (event, automation.trigger(&pending.trigger)) {
        (Some(event), Some(trigger)) => occurrence::of_event(automation, trigger, event, &value, draft.now),
        (_, trigger) => occurrence::of_start(automation, trigger, pending, &value, draft.now),
    };
    // What a pause kept comes at once when it is lifted: once that is too much for one commit, the rest queues.
    let in_turn = of.in_turn || pending.reason == "paused" && start::is_long(draft);
    let of = gate::Occurrence { in_turn, ..of };
    let memory = Memory::of(draft.state);
    if pending.gate == "mode" {
        return gate::in_its_turn(&memory, &of);
    }
    let mut passed = route::judge(&memory, &of, from(pending))?;
    if passed.reason == Some("paused") {
        let held = if pending.after.is_empty() { &pending.gate } else { &pending.after };
        passed.values.insert("after".to_owned(), held.as_str().into());
        passed.key = Some(pending.key.clone());
    }
    if passed.outcome == Outcome::Pending && passed.gate == Gate::Batch && event.is_none() {
        passed.queue_or_skip(None);
    }
    Ok(passed)
}

/// The first gate that it has not passed.
fn from(pending: &Pending) -> Gate {
    match (pending.gate.as_str(), pending.after.as_str()) {
        ("enabled", "") if pending.start["kind"] == "schedule" => Gate::Throttle,
        ("enabled", "") => Gate::Window,
        ("enabled", after) => Gate::after(after),
        (gate, _) => Gate::after(gate),
    }
}

/// It ends here, or is pending at another gate.
fn settle(
    draft: &mut Draft<'_>,
    id: OccurrenceId,
    (automation, pending): (&Automation, &Pending),
    passed: &Passed,
) -> Result<()> {
    if passed.outcome != Outcome::Pending {
        return start::settle(draft, id, passed.outcome, passed.reason, Some(passed));
    }
    let moved = OccurrenceMoved { of: id, verdict: verdict(automation, &pending.trigger, passed) };
    draft.push_run(RunRecord::OccurrenceMoved(Box::new(moved))).map(drop)
}

/// The others of its batch go with it.
fn gather(state: &State, id: OccurrenceId, pending: &Pending, passed: &mut Passed) {
    let all = state.pending_of(&pending.automation, &pending.key);
    let all = all.filter(|(other, waiting)| {
        (waiting.gate == "batch" || **other == id) && waiting.trigger == pending.trigger
    });
    for (other, waiting) in all {
        passed.batch.extend(&waiting.events);
        if *other != id {
            passed.take.push((*other, Outcome::Merged, "batch"));
        }
    }
    passed.batch.sort_unstable();
}

fn last_event(state: &State, pending: &Pending) -> Result<Option<Arc<Event>>> {
    match pending.events.last() {
        Some(position) => state.event(*position),
        None => Ok(None),
    }
}

fn still(state: &State, on: &TriggerKind, event: &Event, pending: &Pending) -> Result<bool> {
    if !matches!(on, TriggerKind::State { .. } | TriggerKind::NumericState { .. }) {
        return Ok(true);
    }
    still_holds(state, on, event, &pending.armed)
}

/// Whether the row of a change is, as it is now, in the state that the change brought about.
pub fn still_holds(state: &State, on: &TriggerKind, event: &Event, armed: &Value) -> Result<bool> {
    let Some(subject) = &event.envelope.subject else { return Ok(true) };
    let space = &event.envelope.space;
    let row = state.row_near(&subject.kind, space, &subject.id)?;
    let row = row.map_or(Value::Null, |row| Value::Object(row.fields));
    holds(state, on, space, &row, &measure(state, on, Some(event.position), armed)?)
}

/// What tells whether a dwell goes on: the value that the change `by` left, if the trigger says only where it comes from, else
/// the one that it brought about.
pub fn measure(state: &State, on: &TriggerKind, by: Option<Position>, armed: &Value) -> Result<Value> {
    let TriggerKind::State { field, from: Some(_), to: None, .. } = on else { return Ok(armed.clone()) };
    let Some(by) = by else { return Ok(Value::Null) };
    let event = state.event_value(by)?;
    Ok(event.map_or(Value::Null, |event| matching::at(&event["payload"]["prev"], field).clone()))
}

/// Whether a row is still in the state that armed a dwell, by its `measure`.
pub fn holds(state: &State, on: &TriggerKind, space: &str, row: &Value, measure: &Value) -> Result<bool> {
    Ok(match on {
        // It holds as long as it stays away from what it left.
        TriggerKind::State { field, from: Some(_), to: None, .. } => {
            !row.is_null() && !matching::same(matching::at(row, field), measure)
        }
        TriggerKind::State { field, .. } => matching::same(matching::at(row, field), measure),
        TriggerKind::NumericState { field, above, below, .. } => {
            matching::within(state, space, matching::at(row, field), above.as_ref(), below.as_ref())?
        }
        _ => true,
    })
}
