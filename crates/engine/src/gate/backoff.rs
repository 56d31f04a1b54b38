//! A schedule whose runs failed in a row is left alone for a while, longer with each failure. Said as a cooldown.

use model::record::Outcome;
use serde_json::json;

use super::{Gate, Memory, Occurrence, Passed};

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) {
    if !of.trigger.is_some_and(|trigger| trigger.definition.on.recurs()) {
        return;
    }
    let Some(backoff) = memory.state.backoff_of(of.automation) else { return };
    if backoff.until.is_some_and(|until| of.time < until) {
        passed.values.insert("failures".to_owned(), backoff.failures.into());
        passed.values.insert("until".to_owned(), json!(backoff.until));
        passed.stop(Gate::Cooldown, Outcome::Skipped, "cooldown");
    }
}
