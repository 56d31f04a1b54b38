//! Decides what groups ask: definitions, moves of the cursor, failures and their fate, dead letters and their way back.

use std::time::Duration;

use model::group::{Definition, OnExhausted};
use model::record::{Dead, DeadReason, Failed, Moved, Record};
use model::{Position, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::publish::engine_event;
use super::{Decided, Entry, Ground, Refusal, done, not_found, nothing, one};
use crate::command::{Answer, Failing, Fate, Why};
use crate::deliver::matcher::{Match, Matcher};
use crate::entropy::derived;
use crate::faults::planted;
use crate::state::rows::DeadLetter;
use crate::state::{Group, State};
use crate::tenant::event_from_json;

/// What a dead letter keeps of an event whose content was erased.
pub(crate) const ERASED: &str = r#"{"erased":true}"#;
/// Dead letters that one record takes out of the list.
const REVIVED_MAX: usize = 1_000;

pub(super) fn known<'a>(state: &'a State, name: &str) -> Result<&'a Group, Refusal> {
    state.groups.get(name).ok_or_else(|| not_found(name).into())
}

pub(super) fn put(
    state: &State,
    name: String,
    mut definition: Definition,
    floor: Position,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let existing = state.groups.get(&name);
    let created = existing.is_none();
    // Where it began is read when it is made, and stays what it was.
    if let Some(group) = existing {
        definition.start.clone_from(&group.definition.start);
    }
    if existing.is_some_and(|group| group.definition == definition) {
        return Ok(Decided { answer: Answer::Group { created }, ..nothing(ground) });
    }
    let floor = existing.map_or(floor, |group| group.floor);
    let definition = Value::Object(definition.to_json());
    let decided = one(Record::GroupPut { group: name, floor, definition }, ground);
    Ok(Decided { answer: Answer::Group { created }, ..decided })
}

pub(super) fn pause(
    state: &State,
    name: String,
    paused: bool,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    if known(state, &name)?.paused == paused {
        return Ok(nothing(ground));
    }
    Ok(one(Record::GroupPaused { group: name, paused }, ground))
}

pub(super) fn unhalt(state: &State, name: String, ground: &mut Ground<'_>) -> Result<Decided, Refusal> {
    if known(state, &name)?.halted_on == 0 {
        return Ok(nothing(ground));
    }
    Ok(one(Record::GroupHalted { group: name, position: 0 }, ground))
}

/// Dead letters above the new floor will be delivered again: in the same commit they are dead letters no more. Those that the
/// group, as it is now, would not take stay: nothing else would tell of them.
pub(super) fn seek(
    state: &State,
    name: String,
    floor: Position,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let matcher = Matcher::new(&known(state, &name)?.definition).ok();
    let taken = |dead: &&DeadLetter| match (&matcher, event_from_json(&dead.event)) {
        (Some(matcher), Some(event)) => matches!(matcher.test(&event), Match::Yes { .. }),
        _ => true,
    };
    let mut entries = Vec::new();
    let mut after = floor;
    loop {
        let page = state.dead_letters(&name, after, REVIVED_MAX)?;
        let Some(last) = page.last() else { break };
        after = last.position;
        let positions: Vec<Position> = page.iter().filter(taken).map(|dead| dead.position).collect();
        if positions.is_empty() {
            continue;
        }
        entries.push(Entry::new(Record::GroupRedriven { group: name.clone(), positions }, ground.entropy));
    }
    entries.push(Entry::new(Record::GroupSeeked { group: name, floor }, ground.entropy));
    Ok(Decided { entries, answer: done(ground), sync: true })
}

pub(super) fn moved(
    state: &State,
    moved: Moved,
    since: Position,
    sync: bool,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let group = known(state, &moved.group)?;
    // Handed out before a seek or a new group of the same name: its acks say nothing about this cursor.
    if group.since != since {
        return Ok(nothing(ground));
    }
    // Who was alone at a crash is convicted by it, so it is never written later than what came after.
    let sync = (sync && !planted("ack_unsynced")) || moved.alone != group.alone;
    Ok(Decided { sync, ..one(Record::GroupMoved(moved), ground) })
}

pub(super) fn fail(
    state: &State,
    name: &str,
    since: Position,
    failing: Vec<Failing>,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let group = known(state, name)?;
    let mut entries = Vec::new();
    let mut fates = Vec::with_capacity(failing.len());
    for failing in failing {
        if group.since != since || group.is_settled(failing.event.position) {
            fates.push(Fate::Gone);
        } else {
            fates.push(fate(group, failing, &mut entries, ground));
        }
    }
    Ok(Decided { entries, answer: Answer::Fates(fates), sync: true })
}

fn fate(group: &Group, failing: Failing, entries: &mut Vec<Entry>, ground: &mut Ground<'_>) -> Fate {
    let (position, space) = (failing.event.position, failing.event.envelope.space.clone());
    let before = group.failures.get(&position).map_or(0, |failure| failure.failures);
    let failures =
        before + u32::from(failing.why == Why::Failed || failing.why == Why::Dead(DeadReason::Rejected));
    let halts = failing.halt && group.definition.on_exhausted == OnExhausted::Halt;
    match (failing.why, group.definition.on_exhausted) {
        (Why::Dead(_), _) if planted("lose_dead_letter") => {
            let (floor, delivered_to) = (group.floor, group.delivered_to);
            let ranges = vec![(position, position)];
            let moved = Moved { group: group.name.clone(), floor, ranges, delivered_to, acked: 0, alone: 0 };
            entries.push(Entry::new(Record::GroupMoved(moved), ground.entropy));
            Fate::Dead
        }
        (Why::Dead(reason), _) => {
            let crashed = if reason == DeadReason::Quarantined { group.crashes_of(position) } else { 0 };
            let failures = failures + crashed;
            entries.push(Entry::new(dead(group, failing, reason, failures), ground.entropy).within(&space));
            Fate::Dead
        }
        (Why::Failed, _) if failures <= group.definition.max_retries && !halts => {
            let (record, at) = failed(group, failing, failures, ground.now);
            entries.push(Entry::new(record, ground.entropy).within(&space));
            Fate::Retry { at, failures }
        }
        (Why::Failed, OnExhausted::Halt) => {
            halt(group, failing, failures, entries, ground);
            Fate::Halted
        }
        (Why::Failed, _) => {
            let record = dead(group, failing, DeadReason::Exhausted, failures);
            entries.push(Entry::new(record, ground.entropy).within(&space));
            Fate::Dead
        }
    }
}

fn failed(group: &Group, failing: Failing, failures: u32, now: Timestamp) -> (Record, Timestamp) {
    let position = failing.event.position;
    let draw = derived(&group.name, [position, failures.into()]);
    let delay = failing.delay.unwrap_or_else(|| group.definition.backoff.delay(failures, draw));
    // Whole milliseconds: what is written is what is waited.
    let until = now.plus(Duration::from_millis(delay.as_millis() as u64));
    let failed = Failed { group: group.name.clone(), position, failures, until, error: failing.error };
    (Record::GroupFailed(failed), until)
}

fn dead(group: &Group, failing: Failing, reason: DeadReason, attempts: u32) -> Record {
    let parks = group.definition.on_exhausted == OnExhausted::ParkKey && reason == DeadReason::Exhausted;
    Record::GroupDead(Dead {
        group: group.name.clone(),
        position: failing.event.position,
        reason,
        attempts,
        parked_key: failing.key.filter(|_| parks),
        error: failing.error,
        event: RawValue::from_string(failing.event.to_json()).unwrap_or_default(),
    })
}

/// Seed 003's drain: stand still on the failed event, and say so once per stuck event, not once per pass.
fn halt(group: &Group, failing: Failing, failures: u32, entries: &mut Vec<Entry>, ground: &mut Ground<'_>) {
    let event = failing.event.clone();
    let error = failing.error.clone();
    let failing = Failing { delay: Some(Duration::ZERO), ..failing };
    let (record, _) = failed(group, failing, failures, ground.now);
    entries.push(Entry::new(record, ground.entropy).within(&event.envelope.space));
    let halted = Record::GroupHalted { group: group.name.clone(), position: event.position };
    entries.push(Entry::new(halted, ground.entropy));
    if group.reported != event.position {
        let payload = json!({
            "group": group.name, "event_id": event.envelope.id, "event_type": event.envelope.topic,
            "position": event.position, "failures": failures, "error": error,
        });
        let place = (ground.next + entries.len() as u64, ground.now);
        entries.push(engine_event("workflow.dispatch_failed", &payload, place, ground.entropy));
    }
}

pub(super) fn redrive(
    state: &State,
    name: String,
    positions: &[Position],
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    known(state, &name)?;
    let mut found = Vec::new();
    for position in positions {
        let at = state.dead_letters(&name, position.saturating_sub(1), 1)?;
        // One that was erased and trimmed has nothing left to be delivered; it stays where it can be seen.
        let readable = |event: &str| *position >= state.first || event != ERASED;
        if at.first().is_some_and(|dead| dead.position == *position && readable(&dead.event)) {
            found.push(*position);
        }
    }
    if found.is_empty() {
        return Ok(Decided { answer: Answer::Redriven(found), ..nothing(ground) });
    }
    let decided = one(Record::GroupRedriven { group: name, positions: found.clone() }, ground);
    Ok(Decided { answer: Answer::Redriven(found), ..decided })
}
