//! Silence: an `absent` trigger fires once when no event of its topics has come for a while, and again after the next one.
//!
//! A silence begins with an event, a deployment or an enabling, and that instant is recorded as a schedule's `through`. That
//! it has been told is kept at the gate `absent`: the beginning of the silence that was.

use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use model::definition::TriggerKind;
use model::record::{GateSet, RunRecord, SchedulePassed};
use serde_json::{Value, json};

use crate::automation::{Automation, Trigger};
use crate::draft::Draft;
use crate::route::{occurrence, start};
use crate::schedule::{self, Instant};
use crate::state::run::shifted;
use crate::state::{Result, State};

const GATE: &str = "absent";

/// How long a silence is, for those who listen for one.
pub fn after(trigger: &Trigger) -> Option<Duration> {
    match trigger.definition.on {
        TriggerKind::Absent { after, .. } => Some(after),
        _ => None,
    }
}

/// When the silence that began then is long enough; never, when it has been told.
pub fn due(
    state: &State,
    automation: &Automation,
    trigger: &Trigger,
    since: Timestamp,
) -> Result<Option<Timestamp>> {
    let Some(after) = after(trigger) else { return Ok(None) };
    let told = state.gate(automation.name(), &trigger.definition.id, GATE, "")?;
    Ok((told != Some(json!(since))).then(|| since.plus(after)))
}

/// An event came, or somebody asks to listen from now on: a silence begins.
pub fn begin(draft: &mut Draft<'_>, automation: &Automation, trigger: &Trigger) -> Result<()> {
    let passed = SchedulePassed {
        automation: automation.name().to_owned(),
        trigger: trigger.definition.id.clone(),
        through: draft.now,
    };
    let before = draft.state.fired_through(automation.name(), &trigger.definition.id);
    if before == Some(draft.now) {
        return Ok(());
    }
    draft.push_run(RunRecord::SchedulePassed(passed))?;
    schedule::rearm(draft, automation, trigger, draft.now)
}

/// Every silence of an automation that was enabled begins anew.
pub fn begin_all(draft: &mut Draft<'_>, name: &str) -> Result<()> {
    let Some(automation) = draft.state.catalog.automations.get(name).cloned() else { return Ok(()) };
    let mut silences = automation.triggers.iter().filter(|trigger| after(trigger).is_some());
    silences.try_for_each(|trigger| begin(draft, &automation, trigger))
}

/// It has been silent for long enough: one occurrence, which asks the gates as a due instant does.
pub fn fire(draft: &mut Draft<'_>, automation: &Arc<Automation>, trigger: &Trigger) -> Result<()> {
    let Some(since) = draft.state.fired_through(automation.name(), &trigger.definition.id) else {
        return Ok(());
    };
    let Some(at) = due(draft.state, automation, trigger, since)?.filter(|at| *at <= draft.now) else {
        return schedule::rearm(draft, automation, trigger, since);
    };
    let told = GateSet {
        gate: GATE.to_owned(),
        trigger: trigger.definition.id.clone(),
        key: String::new(),
        value: Some(json!(since)),
    };
    let event = event(automation, trigger, since, at);
    let instant = Instant { at, late: false, in_turn: false, event, set: vec![told] };
    schedule::meet(draft, automation, trigger, instant)?;
    schedule::rearm(draft, automation, trigger, since)
}

/// A step of the clock moves where silences began, for they count time. One that was told stays as it was told.
pub fn shift(state: &mut State, by_ms: i64) -> Result<()> {
    let listening: Vec<_> = state.catalog.automations.all().cloned().collect();
    for automation in listening {
        for trigger in automation.triggers.iter().filter(|trigger| after(trigger).is_some()) {
            let Some(since) = state.fired_through(automation.name(), &trigger.definition.id) else {
                continue;
            };
            let Some(was_due) = due(state, &automation, trigger, since)? else { continue };
            let (timer, through) = (schedule::timer(&automation, trigger), shifted(since, by_ms));
            state.runs.arm_schedule(timer, Some(shifted(was_due, by_ms)));
            state.pass_schedule(&SchedulePassed {
                automation: automation.name().to_owned(),
                trigger: trigger.definition.id.clone(),
                through,
            });
        }
    }
    Ok(())
}

fn event(automation: &Automation, trigger: &Trigger, since: Timestamp, at: Timestamp) -> Value {
    let patterns: Vec<&str> = trigger.patterns.iter().map(|pattern| pattern.as_str()).collect();
    let payload = json!({
        "since": since, "absent": patterns, "automation": automation.name(), "trigger": trigger.definition.id,
        "triggeredBy": "schedule",
    });
    let space = automation.definition.space.clone().unwrap_or_else(|| occurrence::SYSTEM.to_owned());
    let actor = format!("system:automation:{}", automation.name());
    start::synthetic(&format!("automation.absent.{}", automation.name()), &space, &actor, payload, at)
}
