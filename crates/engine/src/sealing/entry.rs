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
    let space = match entry.space.take() {
        Some(space) => Some(space),
        None => space_of(state, (first, before), &entry.record)?,
    };
    let sealed = space.and_then(|space| seals.seal(&space, entry.encoded.kind, body));
    if sealed.is_some() {
        entry.encoded.body = sealed;
    }
    Ok(())
}

fn space_of(state: &State, before: (Position, &[Entry]), record: &Record) -> Result<Option<String>> {
    Ok(match record {
        Record::Event(event) => Some(event.envelope.space.clone()),
        Record::EventDeferred(deferred) => Some(deferred.envelope.space.clone()),
        Record::EntityChanged(changed) => Some(changed.space.clone()),
        Record::Run(RunRecord::Started(started)) => Some(started.space.clone()),
        Record::Run(RunRecord::Routed(routed)) => of_routed(before, routed),
        Record::Run(of) => match run_of(of) {
            Some(run) => state.run(run)?.map(|run| run.space),
            None => None,
        },
        _ => None,
    })
}

fn run_of(of: &RunRecord) -> Option<Position> {
    match of {
        RunRecord::Moved(record::RunMoved { run, .. })
        | RunRecord::WaitEnded(record::WaitEnded { run, .. })
        | RunRecord::Ended(record::RunEnded { run, .. })
        | RunRecord::Effect(EffectRecord::Late { run, .. }) => Some(*run),
        _ => None,
    }
}

/// That of the event, which stands before it in the same commit.
fn of_routed((first, before): (Position, &[Entry]), routed: &Routed) -> Option<String> {
    let remembered = |verdict: &Verdict| verdict.key.is_some() || !verdict.set.is_empty();
    if routed.verdicts.iter().any(remembered) {
        return None;
    }
    let event = before.get(usize::try_from(routed.event.checked_sub(first)?).ok()?)?;
    match &event.record {
        Record::Event(event) => Some(event.envelope.space.clone()),
        _ => None,
    }
}
