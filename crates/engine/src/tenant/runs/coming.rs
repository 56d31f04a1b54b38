//! When time next starts an automation: what `automations next` and `explain` tell.

use model::Timestamp;

use crate::automation::Automation;
use crate::state::State;

/// The next instants of every schedule of an automation. One at or before where its schedule has fired never fires again, also
/// when the clock was set back behind it.
pub(in crate::tenant) fn instants(
    state: &State,
    automation: &Automation,
    now: Timestamp,
    count: usize,
) -> Vec<Timestamp> {
    let mut all = Vec::new();
    for trigger in &automation.triggers {
        let Some(calendar) = &trigger.calendar else { continue };
        let through = state.fired_through(automation.name(), &trigger.definition.id);
        let mut at = through.map_or(now, |through| through.max(now));
        for _ in 0..count {
            let Some(next) = calendar.next_after(at) else { break };
            all.push(next);
            at = next;
        }
    }
    all.sort_unstable();
    all.dedup();
    all.truncate(count);
    all
}
