//! In which space a record's body belongs, and with whose key it is sealed.
//!
//! What a gate remembers (its keys, its windows) stays readable: the state could not be folded again without it, and it
//! outlives the events that it came from.

use model::record::{EffectRecord, Record, Routed, RunRecord, Verdict};
use model::{Position, record};

use super::Seals;
use crate::decide::Entry;
use crate::state::{Result, State};

/// Seals the body of a record that is about to be folded and written. `before`: what stands before it in its commit, from
/// `first` on.
pub(crate) fn seal_entry(
    state: &State,
    (first, before): (Position, &[Entry]),
    entry: &mut Entry,
) -> Result<()> {
    let Some(body) = &entry.encoded.body else { return Ok(()) };
    let seals: &Seals = &state.seals;
    let spaces = match entry.spaces.take() {
        Some(spaces) => spaces,
        None => spaces_of(state, (first, before), &entry.record)?,
    };
    if let Some(sealed) = seals.seal(&spaces, entry.encoded.kind, body) {
        entry.encoded.body = Some(sealed);
    }
    Ok(())
}

fn spaces_of(state: &State, before: (Position, &[Entry]), record: &Record) -> Result<Vec<String>> {
    Ok(match record {
        Record::Event(event) => vec![event.envelope.space.clone()],
        Record::EventDeferred(deferred) => vec![deferred.envelope.space.clone()],
        Record::EntityChanged(changed) => vec![changed.space.clone()],
        Record::Run(RunRecord::Started(started)) => {
            std::iter::once(&started.space).chain(&started.other_spaces).cloned().collect()
        }
        Record::Run(RunRecord::Routed(routed)) => of_routed(before, routed).into_iter().collect(),
        Record::Run(RunRecord::WaitEnded(ended)) => {
            let mut spaces = of_run(state, ended.run)?;
            spaces.extend(ended.other_spaces.iter().cloned());
            spaces
        }
        Record::Run(of) => run_of(of).map_or(Ok(Vec::new()), |run| of_run(state, run))?,
        _ => Vec::new(),
    })
}

fn of_run(state: &State, run: Position) -> Result<Vec<String>> {
    Ok(state.run(run)?.map(|run| run.spaces()).unwrap_or_default())
}

fn run_of(of: &RunRecord) -> Option<Position> {
    match of {
        RunRecord::Moved(record::RunMoved { run, .. })
        | RunRecord::Ended(record::RunEnded { run, .. })
        | RunRecord::Effect(EffectRecord::Late { run, .. }) => Some(*run),
        _ => None,
    }
}

/// That of the event, which stands before it in the same commit.
fn of_routed((first, before): (Position, &[Entry]), routed: &Routed) -> Option<String> {
    if routed.verdicts.iter().any(Verdict::remembers) {
        return None;
    }
    let event = before.get(usize::try_from(routed.event.checked_sub(first)?).ok()?)?;
    match &event.record {
        Record::Event(event) => Some(event.envelope.space.clone()),
        _ => None,
    }
}
