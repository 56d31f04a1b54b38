//! Many events in quick succession, one run: after the last of them, or with the first.

use model::Timestamp;
use model::definition::Edge;
use model::record::Outcome;
use serde_json::json;

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, millis, setting, trigger_id};

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(debounce) = of.trigger.and_then(|trigger| trigger.definition.debounce.as_ref()) else {
        return Ok(());
    };
    let key = key_of(memory, of, debounce.key.as_ref());
    let now = of.env.now;
    if debounce.edge == Edge::Leading {
        let quiet_until = memory.get(of, Gate::Debounce, &key)?.and_then(|kept| kept.as_i64());
        let until = now.plus(debounce.quiet);
        passed.set.push(setting(of, Gate::Debounce, &key, Some(millis(until))));
        if quiet_until.is_some_and(|until| now.millis() < until) {
            passed.stop(Gate::Debounce, Outcome::Merged, "debounce");
        }
        return Ok(());
    }
    let trigger = trigger_id(of, Gate::Debounce);
    let waiting: Vec<_> = memory
        .state
        .pending_of(of.automation.name(), &key)
        .filter(|(_, pending)| pending.gate == "debounce" && pending.trigger == trigger)
        .collect();
    let first = memory.get(of, Gate::Debounce, &key)?.and_then(|kept| kept.as_i64());
    let first = first.filter(|_| !waiting.is_empty()).map_or(now, Timestamp::from_millis);
    let quiet = now.plus(debounce.quiet);
    let until = debounce.max_wait.map_or(quiet, |most| first.plus(most).min(quiet));
    passed.take = waiting.iter().map(|(id, _)| (**id, Outcome::Merged, "debounce")).collect();
    passed.set.push(setting(of, Gate::Debounce, &key, Some(json!(first.millis()))));
    passed.wait(Gate::Debounce, "debounce", Some(until.max(now)), key);
    Ok(())
}
