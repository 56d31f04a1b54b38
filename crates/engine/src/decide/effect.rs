//! Decides about effects: who gets the next ones, what an answer is worth, what a stop left without one (rules R11).
//!
//! An attempt is a wait of its own, so run and wait are the token that only the current attempt has; the epoch is the
//! opening of the tenant, whose handle a worker of an earlier one does not have.

use model::record::{EffectRecord, How, RunRecord};
use model::{Code, Problem};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Refusal;
use crate::command::Answer;
use crate::draft::Draft;
use crate::route;
use crate::run::{Effect, WaitId};

/// Marks the oldest that fit into `room`, those of events and those of schedules, as handed.
pub fn hand_out(draft: &mut Draft<'_>, room: [usize; 2]) -> Result<Answer, Refusal> {
    let lanes = draft.state.runs.wakes.unhanded.iter().zip(room);
    let next: Vec<WaitId> = lanes.flat_map(|(lane, room)| lane.iter().take(room).copied()).collect();
    let mut effects = Vec::with_capacity(next.len());
    for (run, wait) in &next {
        let Some(live) = draft.state.run(*run)? else { continue };
        let read = match live.reads() {
            0 => None,
            position => draft.state.event(position)?,
        };
        let effect = live.wait(*wait).and_then(|wait| Effect::of(&live, wait));
        effects.extend(effect.map(|effect| effect.traced(read.as_deref())));
    }
    if !next.is_empty() {
        draft.push_run(RunRecord::Effect(EffectRecord::Handed { of: next }))?;
    }
    Ok(Answer::Effects(effects))
}

/// Marks as handed what is still open and was not before.
pub fn hand_tasks(draft: &mut Draft<'_>, mut of: Vec<WaitId>) -> Result<(), Refusal> {
    let mut wanted = Vec::with_capacity(of.len());
    for id in of.drain(..) {
        if draft.state.effect(id)?.is_some_and(|request| !request.handed) {
            wanted.push(id);
        }
    }
    if !wanted.is_empty() {
        draft.push_run(RunRecord::Effect(EffectRecord::Handed { of: wanted }))?;
    }
    Ok(())
}

/// Only an open effect is completed; whether this one was. An answer that comes after its end changes nothing.
pub fn done(draft: &mut Draft<'_>, id: WaitId, how: How, value: Value) -> Result<bool, Refusal> {
    if draft.state.effect(id)?.is_some() {
        route::end_wait(draft, id, how, None, value)?;
        return Ok(true);
    }
    late(draft, id, how, value)?;
    Ok(false)
}

/// Longest answer that is kept although nobody waits for it.
const LATE_BYTES_MAX: usize = 4 << 10;

/// Written down, and nothing else; of a long answer only what it was, and of one whose run is over and may have worked in a
/// sealed space as well: nobody knows any more whose key it would be sealed with.
pub fn late(draft: &mut Draft<'_>, (run, wait): WaitId, how: How, value: Value) -> Result<(), Refusal> {
    let text = value.to_string();
    let unsealed = draft.state.seals.is_used() && draft.state.run(run)?.is_none();
    let value = match text.len() {
        bytes if bytes > LATE_BYTES_MAX || unsealed => {
            json!({"bytes": bytes, "sha256": model::id::hex(&Sha256::digest(&text))})
        }
        _ => value,
    };
    draft.push_run(RunRecord::Effect(EffectRecord::Late { run, wait, how, value }))?;
    Ok(())
}

/// What is sent only once and was out when the process ended: nobody knows whether it happened.
pub fn unknown(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let open: Vec<WaitId> = draft.state.runs.wakes.effects.iter().copied().collect();
    for id in open {
        if draft.state.effect(id)?.is_some_and(|request| request.once && request.handed) {
            let message = "it was begun, and the process ended before an answer came";
            let value =
                json!({"code": Code::EffectUnknown.as_str(), "message": message, "class": "permanent"});
            route::end_wait(draft, id, How::Failed, None, value)?;
        }
    }
    Ok(())
}

/// Takes an effect out of quarantine.
pub fn redrive(draft: &mut Draft<'_>, (run, wait): WaitId) -> Result<(), Refusal> {
    if !draft.state.effect((run, wait))?.is_some_and(|request| request.is_quarantined()) {
        return Err(Problem::new(Code::NotFound, "no such effect is in quarantine")
            .hint("`everwhen waits list` shows what is")
            .into());
    }
    draft.push_run(RunRecord::Effect(EffectRecord::Redriven { run, wait }))?;
    Ok(())
}
