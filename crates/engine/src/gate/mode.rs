//! How runs of one automation share the stage: `single`, `restart`, `queued`, `parallel`, by key.

use model::Position;
use model::definition::{Mode, ModeKind};
use model::record::Outcome;
use serde_json::{Value, json};

use super::{Gate, Memory, Occurrence, Passed, Result, refuse};
use crate::state::State;

/// Running and queued, unless the automation says otherwise.
const MAX: u32 = 10;

/// Whether a run that is ready keeps the next one of its automation from its start for as long as it has not walked.
pub fn is_in_the_way(state: &State, run: Position) -> bool {
    let Some(brief) = state.runs.live.get(&run) else { return false };
    let Some(automation) = state.catalog.automations.get(&brief.automation) else { return false };
    let mode = &automation.definition.mode;
    if mode.kind != ModeKind::Parallel {
        return true;
    }
    let stage = state.runs.stage.get(&(brief.automation.clone(), brief.key.clone()));
    stage.is_some_and(|stage| stage.len() >= mode.max.unwrap_or(MAX) as usize)
}

/// How many may be there, running and queued; of `single` and `restart`, one.
fn max_of(mode: &Mode) -> usize {
    match mode.kind {
        ModeKind::Single | ModeKind::Restart => 1,
        ModeKind::Queued | ModeKind::Parallel => mode.max.unwrap_or(MAX) as usize,
    }
}

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let mode = &of.automation.definition.mode;
    let key = match &mode.key {
        None => String::new(),
        Some(key) => match of.env.eval(memory.state, key) {
            Ok(Value::String(text)) => text,
            Ok(value) => value.to_string(),
            Err(problem) => {
                refuse(passed, Gate::Mode, "condition_error", &problem);
                return Ok(());
            }
        },
    };
    let name = of.automation.name();
    let stage = memory.state.runs.stage.get(&(name.to_owned(), key.clone()));
    let beside = memory.starting.iter().filter(|(of, other)| of == name && *other == key).count();
    let live = stage.map_or(0, std::collections::BTreeSet::len) + beside;
    let max = max_of(mode);
    let has_room = mode.kind == ModeKind::Parallel && live < max;
    match mode.kind {
        _ if of.in_turn && live > 0 && !has_room => passed.wait(Gate::Mode, "queued", None, key.clone()),
        ModeKind::Single if live > 0 => passed.stop(Gate::Mode, Outcome::Skipped, "busy"),
        ModeKind::Restart => passed.cancel = stage.into_iter().flatten().copied().collect(),
        ModeKind::Parallel if live >= max => passed.stop(Gate::Mode, Outcome::Refused, "max_runs"),
        ModeKind::Queued if live > 0 => {
            let queued = memory.state.pending_of(name, &key).filter(|(_, pending)| pending.gate == "mode");
            let taken = memory.queued.iter().filter(|(of, other)| of == name && *other == key);
            if live + queued.count() + taken.count() >= max {
                passed.stop(Gate::Mode, Outcome::Refused, "max_runs");
            } else {
                passed.wait(Gate::Mode, "queued", None, key.clone());
            }
        }
        _ => {}
    }
    if matches!(passed.outcome, Outcome::Skipped | Outcome::Refused) {
        // Numbers only: whose runs they are may not be for who sees this decision.
        passed.values.insert("mode".to_owned(), json!({"running": live, "max": max}));
    }
    passed.stage = key;
    Ok(())
}
