//! Several events, one run: the first opens a batch, which closes when it is full or its time is over.

use model::record::Outcome;

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, trigger_id};

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(batch) = of.trigger.and_then(|trigger| trigger.definition.batch.as_ref()) else { return Ok(()) };
    let key = key_of(memory, of, batch.key.as_ref());
    let trigger = trigger_id(of, Gate::Batch);
    let waiting: Vec<_> = memory
        .state
        .pending_of(of.automation.name(), &key)
        .filter(|(_, pending)| pending.gate == "batch" && pending.trigger == trigger)
        .collect();
    let full = batch.count.is_some_and(|count| waiting.len() + 1 >= count as usize);
    if full {
        passed.batch = waiting.iter().flat_map(|(_, pending)| pending.events.clone()).collect();
        passed.batch.push(of.position);
        passed.take = waiting.iter().map(|(id, _)| (**id, Outcome::Merged, "batch")).collect();
        return Ok(());
    }
    // The time of the first is that of all: it may end before the others do, by its `ttl` or a pause.
    let open = waiting.iter().filter_map(|(_, pending)| pending.until).min();
    let until = open.or(batch.within.map(|within| of.env.now.plus(within)));
    passed.wait(Gate::Batch, "batch", until, key);
    Ok(())
}
