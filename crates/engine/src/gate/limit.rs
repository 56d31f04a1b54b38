//! Gates that limit how often runs start: throttle, rate, cooldown, dedup. Asked in order, charged when the run starts.

use std::time::Duration;

use model::Timestamp;
use model::record::Outcome;
use serde_json::{Value, json};

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, millis, refuse, setting};

/// Starts kept are those within the time; more than the limit are never needed.
pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, gate: Gate, passed: &mut Passed) -> Result<()> {
    let Some((count, time, key)) = limit(memory, of, gate) else { return Ok(()) };
    let starts = starts(memory, of, gate, &key, time)?;
    if starts.len() < count {
        return Ok(());
    }
    let reason = match gate {
        Gate::Throttle => "throttled",
        Gate::Rate => "rate",
        _ => "cooldown",
    };
    // The next one may start when so many are left that there is room for one more.
    let leaves = starts.get(starts.len() - count).copied().unwrap_or_default();
    let until = leaves.saturating_add(time.as_millis() as i64);
    let until = Timestamp::from_nanos(i128::from(until) * 1_000_000);
    let seen = json!({"starts": starts.len(), "key": key, "limit": count, "until": until});
    passed.values.insert(gate.as_str().to_owned(), seen);
    passed.stop(gate, Outcome::Skipped, reason);
    Ok(())
}

/// How many starts in which time, counted by which key.
fn limit(memory: &Memory<'_>, of: &Occurrence<'_>, gate: Gate) -> Option<(usize, Duration, String)> {
    let trigger = &of.trigger?.definition;
    let single = |limit: &model::definition::Limit| (1, limit.time, key_of(memory, of, limit.key.as_ref()));
    match gate {
        Gate::Throttle => trigger.throttle.as_ref().map(single),
        Gate::Cooldown => trigger.cooldown.as_ref().map(single),
        Gate::Rate => trigger
            .rate
            .as_ref()
            .map(|rate| (rate.count as usize, rate.per, key_of(memory, of, rate.key.as_ref()))),
        _ => None,
    }
}

fn starts(
    memory: &Memory<'_>,
    of: &Occurrence<'_>,
    gate: Gate,
    key: &str,
    time: Duration,
) -> Result<Vec<i64>> {
    let kept = memory.get(of, gate, key)?.unwrap_or_default();
    let mut starts: Vec<i64> = serde_json::from_value(kept).unwrap_or_default();
    let now = of.env.now.millis();
    starts.retain(|start| now < start.saturating_add(time.as_millis() as i64));
    Ok(starts)
}

pub(super) fn dedup(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(dedup) = &of.automation.definition.dedup else { return Ok(()) };
    let key = match of.env.eval(memory.state, &dedup.key) {
        Ok(key) => key,
        Err(problem) => {
            refuse(passed, Gate::Dedup, "condition_error", &problem);
            return Ok(());
        }
    };
    let key = key.to_string();
    let last = memory.get(of, Gate::Dedup, &key)?.and_then(|kept| kept.as_i64());
    let within = dedup.within.map(|within| within.as_millis() as i64);
    let again = last.is_some_and(|last| within.is_none_or(|within| of.env.now.millis() < last + within));
    passed.values.insert("dedup".to_owned(), json!(key));
    if again {
        passed.stop(Gate::Dedup, Outcome::Skipped, "duplicate");
    }
    Ok(())
}

pub(super) fn charge(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    for gate in [Gate::Throttle, Gate::Rate, Gate::Cooldown] {
        if let Some((_, time, key)) = limit(memory, of, gate) {
            let mut starts = starts(memory, of, gate, &key, time)?;
            starts.push(of.env.now.millis());
            passed.set.push(setting(of, gate, &key, Some(json!(starts))));
        }
    }
    if let Some(dedup) = &of.automation.definition.dedup
        && let Ok(key) = of.env.eval(memory.state, &dedup.key)
    {
        let value: Value = millis(of.env.now);
        passed.set.push(setting(of, Gate::Dedup, &key.to_string(), Some(value)));
    }
    Ok(())
}
