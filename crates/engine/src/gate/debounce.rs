//! Many events in quick succession, one run: after the last of them, or with the first.

use std::time::Duration;

use model::Timestamp;
use model::definition::Edge;
use model::record::Outcome;
use serde_json::{Value, json};

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, setting, trigger_id};

/// The quiet after a run: kept as the end of it in milliseconds, with `max_wait` as `{"first","until"}`.
struct Leading {
    first: Option<i64>,
    until: i64,
}

impl Leading {
    fn read(kept: Value) -> Leading {
        let until = kept.as_i64().or(kept["until"].as_i64()).unwrap_or(0);
        Leading { first: kept["first"].as_i64(), until }
    }
}

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(debounce) = of.trigger.and_then(|trigger| trigger.definition.debounce.as_ref()) else {
        return Ok(());
    };
    let key = key_of(memory, of, debounce.key.as_ref());
    let now = of.env.now;
    if debounce.edge == Edge::Leading {
        let kept = memory.get(of, Gate::Debounce, &key)?.map(Leading::read);
        let quiet = kept.filter(|kept| now.millis() < kept.until);
        let first = quiet.as_ref().map_or(Some(now.millis()), |quiet| quiet.first);
        let until = now.plus(debounce.quiet).millis();
        let latest = |most: Duration| Some(Timestamp::from_millis(first?).plus(most).millis());
        // Told of events that never pause, it would else run once and never again.
        let until = debounce.max_wait.and_then(latest).map_or(until, |latest| latest.min(until));
        let value = match debounce.max_wait {
            Some(_) => json!({"first": first, "until": until}),
            None => until.into(),
        };
        passed.set.push(setting(of, Gate::Debounce, &key, Some(value)));
        if quiet.is_some() {
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
