//! The last brakes: a chain of causes that is too long, and an automation that starts too often.

use model::record::Outcome;
use serde_json::json;

use crate::automation::Automation;

use super::{Gate, Memory, Occurrence, Passed, Result, setting};

/// A run whose event is deeper than this in its chain of causes is a loop.
pub const DEPTH_MAX: u32 = 32;
/// Starts in a minute above which it is said, unless the automation says otherwise.
const STORM: u32 = 20;
pub(super) const MINUTE_MS: i64 = 60_000;

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    if of.depth > DEPTH_MAX {
        passed.values.insert("depth".to_owned(), of.depth.into());
        passed.stop(Gate::Breaker, Outcome::Refused, "depth");
        return Ok(());
    }
    let storm = of.automation.definition.storm.as_ref();
    if storm.is_some_and(|storm| storm.pause) && starts(memory, of)?.len() >= per_minute(of.automation) {
        passed.pause = true;
        passed.stop(Gate::Breaker, Outcome::Refused, "storm_paused");
    }
    Ok(())
}

/// Starts in a minute that are well.
pub(super) fn per_minute(automation: &Automation) -> usize {
    automation.definition.storm.as_ref().map_or(STORM, |storm| storm.per_minute) as usize
}

fn starts(memory: &Memory<'_>, of: &Occurrence<'_>) -> Result<Vec<i64>> {
    let kept = memory.get(of, Gate::Breaker, "")?.unwrap_or_default();
    let mut starts: Vec<i64> = serde_json::from_value(kept).unwrap_or_default();
    let now = of.env.now.millis();
    starts.retain(|start| now < start + MINUTE_MS);
    Ok(starts)
}

/// Counted only where the automation asks for a breaker: a plain warning (`storm.rs`) needs no memory that survives.
pub(super) fn charge(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    if of.automation.definition.storm.is_none() {
        return Ok(());
    }
    let mut starts = starts(memory, of)?;
    starts.push(of.env.now.millis());
    passed.set.push(setting(of, Gate::Breaker, "", Some(json!(starts))));
    Ok(())
}
