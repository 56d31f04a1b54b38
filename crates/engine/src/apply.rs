//! Folds records into the state, one after the other. Evaluates nothing: what a record says, happened.
//!
//! **Invariant:** folding the same records gives the same state, live or after a restart, on this version or the next.

use ledger::Chain;
use model::event::fingerprint;
use model::group::Definition;
use model::record::{FORMAT_OF_RUNS, Record, RunRecord, Span};
use model::{Position, Timestamp};

use crate::state::entity::Carried;
use crate::state::rows::Keyed;
use crate::state::{Failure, Group, Result, State};

/// Where and when the record stands.
#[derive(Clone, Copy)]
pub struct Place {
    pub position: Position,
    pub time: Timestamp,
}

pub fn apply(state: &mut State, place: Place, record: &Record) -> Result<()> {
    match record {
        Record::Event(event) => {
            state.carried = Carried::of(event);
            if state.format >= FORMAT_OF_RUNS {
                state.pass(event.clone());
            }
            take_key(state, place, &event.envelope, &event.content, None)
        }
        Record::EventDeferred(deferred) => {
            state.put_deferred(place.position, deferred, place.time)?;
            take_key(state, place, &deferred.envelope, &deferred.content, Some(deferred.until))
        }
        Record::EventAdmitted { deferred } => state.drop_deferred(*deferred),
        Record::EventErased { positions } => erase(state, positions),
        Record::LedgerTrimmed { first, before } => {
            state.first = *first;
            state.before = Chain::parse(before).unwrap_or(Chain::ZERO);
            state.drop_versions_below(*first)?;
            state.drop_keys_below(*first)
        }
        Record::SnapshotTaken { position, head, hash } => state.put_snapshot(*position, head, hash),
        Record::ClockStepped { by_ms } => {
            state.note_step(place.position, *by_ms);
            state.shift_elapsed(*by_ms)?;
            state.shift_runs(*by_ms)
        }
        Record::FormatRaised { format } => {
            state.format = *format;
            Ok(())
        }
        Record::LedgerClosed => {
            state.nobody_is_out();
            state.no_effect_is_out()
        }
        Record::LedgerTruncated { .. } => Ok(()),
        Record::DefinitionsApplied(applied) => state.define(place, applied),
        Record::EntityChanged(changed) => state.change(place, changed),
        Record::Run(record) => apply_to_run(state, place, record),
        group => apply_to_group(state, place, group),
    }
}

fn apply_to_run(state: &mut State, place: Place, record: &RunRecord) -> Result<()> {
    match record {
        RunRecord::Routed(routed) => state.route(place, routed),
        RunRecord::OccurrenceMoved(moved) => state.move_occurrence(place, moved),
        RunRecord::Settled(settled) => return state.settle_occurrence(settled),
        RunRecord::Started(started) => return state.start_run(place, started),
        RunRecord::Moved(moved) => return state.move_run(place, moved),
        RunRecord::WaitEnded(ended) => return state.end_wait(place, ended),
        RunRecord::Ended(ended) => return state.end_run(ended),
        RunRecord::SchedulePassed(passed) => state.pass_schedule(passed),
        RunRecord::AutomationSet(set) => state.set_automation(set),
        RunRecord::Effect(record) => return state.fold_effect(record),
        RunRecord::Subscription(record) => state.fold_subscription(record),
    }
    Ok(())
}

fn take_key(
    state: &mut State,
    place: Place,
    envelope: &model::event::Envelope,
    content: &model::event::Content,
    deferred_until: Option<Timestamp>,
) -> Result<()> {
    let Some(key) = &envelope.key else { return Ok(()) };
    let keyed = Keyed {
        position: place.position,
        id: envelope.id.clone(),
        recorded_at: place.time,
        fingerprint: fingerprint(envelope, content).unwrap_or_default(),
        deferred_until,
    };
    state.put_key(envelope.source.as_deref(), key, &keyed)
}

fn erase(state: &mut State, positions: &[Position]) -> Result<()> {
    for position in positions {
        state.scrub(*position)?;
    }
    Ok(())
}

fn apply_to_group(state: &mut State, place: Place, record: &Record) -> Result<()> {
    match record {
        Record::GroupPut { group, floor, definition } => {
            // It was checked before it was recorded, and a definition's meaning never changes.
            let definition = Definition::parse(definition).unwrap_or_else(|_| Definition::over(Vec::new()));
            match state.group_mut(group) {
                Some(existing) => existing.definition = definition,
                None => state.put_group(Group::new(group, definition, *floor, place.position)),
            }
            Ok(())
        }
        Record::GroupDeleted { group } => state.drop_group(group),
        Record::GroupMoved(moved) => {
            for span in &moved.ranges {
                settle(state, &moved.group, *span)?;
            }
            let Some(group) = state.group_mut(&moved.group) else { return Ok(()) };
            group.raise_floor(moved.floor);
            group.delivered_to = group.delivered_to.max(moved.delivered_to);
            group.alone = moved.alone;
            group.processed += moved.acked;
            if moved.acked > 0 {
                group.last_moved_at = Some(place.time);
            }
            Ok(())
        }
        Record::GroupFailed(failed) => {
            let Some(group) = state.group_mut(&failed.group) else { return Ok(()) };
            let delay_ms = failed.until.since(place.time).as_millis() as u64;
            // It was answered for.
            group.alone = Some(group.alone).filter(|alone| *alone != failed.position).unwrap_or(0);
            let (failures, until, error) = (failed.failures, failed.until, failed.error.clone());
            group.failures.insert(failed.position, Failure { failures, until, delay_ms, error });
            Ok(())
        }
        Record::GroupDead(dead) => {
            let new = state.put_dead(place.position, dead, place.time)?;
            settle(state, &dead.group, (dead.position, dead.position))?;
            let Some(group) = state.group_mut(&dead.group) else { return Ok(()) };
            group.dead_letters += u64::from(new);
            if let Some(key) = &dead.parked_key {
                group.parked.insert(dead.position, key.clone());
            }
            Ok(())
        }
        Record::GroupRedriven { group, positions } => redriven(state, group, positions),
        _ => steer(state, place, record),
    }
}

/// Records that say whether and from where a group goes on.
fn steer(state: &mut State, place: Place, record: &Record) -> Result<()> {
    match record {
        Record::GroupSeeked { group: name, floor } => {
            state.drop_redriven(name, (0, i64::MAX as u64))?;
            let Some(group) = state.group_mut(name) else { return Ok(()) };
            (group.floor, group.delivered_to, group.since) = (*floor, *floor, place.position);
            (group.halted_on, group.reported) = (0, 0);
            group.settled.clear();
            group.crashes.clear();
            group.failures.clear();
            group.redriven.clear();
            group.convicted.clear();
            group.alone = 0;
        }
        Record::GroupPaused { group: name, paused } => {
            let Some(group) = state.group_mut(name) else { return Ok(()) };
            group.paused = *paused;
        }
        Record::GroupHalted { group: name, position: 0 } => {
            let Some(group) = state.group_mut(name) else { return Ok(()) };
            group.failures.remove(&group.halted_on);
            group.halted_on = 0;
        }
        Record::GroupHalted { group: name, position } => {
            let Some(group) = state.group_mut(name) else { return Ok(()) };
            (group.halted_on, group.reported) = (*position, *position);
        }
        Record::GroupCrashed { group: name, through } => {
            let Some(group) = state.group_mut(name) else { return Ok(()) };
            group.crash(*through);
            // What was written ahead counts once: the next life writes ahead for itself, or hands nothing out.
            group.delivered_to = group.delivered_to.min(*through);
        }
        _ => {}
    }
    Ok(())
}

fn settle(state: &mut State, name: &str, span: Span) -> Result<()> {
    let Some(group) = state.group_mut(name) else { return Ok(()) };
    let had_redriven = !group.redriven.is_empty();
    group.settle(span);
    if had_redriven {
        state.drop_redriven(name, span)?;
    }
    Ok(())
}

fn redriven(state: &mut State, name: &str, positions: &[Position]) -> Result<()> {
    state.redrive(name, positions)?;
    let Some(group) = state.group_mut(name) else { return Ok(()) };
    for position in positions {
        group.redriven.insert(*position);
        group.pardon(*position);
        group.parked.remove(position);
        group.dead_letters = group.dead_letters.saturating_sub(1);
    }
    Ok(())
}
