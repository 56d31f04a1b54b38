//! What follows a verdict: others make way, pending ones are settled, the run starts; and what starts when one has ended.

use std::sync::Arc;

use model::event::Event;
use model::record::{
    AutomationSet, OccurrenceId, Outcome, Reason, Routed, RunEnded, RunRecord, RunStarted, SettledOccurrence,
    Status,
};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use super::occurrence::{SYSTEM, env};
use crate::automation::{Automation, Trigger};
use crate::draft::Draft;
use crate::gate::{self, Gate, Memory, Occurrence, Passed};
use crate::lifecycle;
use crate::run::Run;
use crate::state::Result;
use crate::state::run::Pending;

/// Settles what the verdict takes along, and pauses a storm.
pub fn follow(draft: &mut Draft<'_>, passed: &Passed) -> Result<()> {
    for (of, outcome, reason) in &passed.take {
        settle(draft, *of, *outcome, Some(reason), None)?;
    }
    Ok(())
}

pub fn pause(draft: &mut Draft<'_>, automation: &str) -> Result<()> {
    let set = AutomationSet {
        automation: automation.to_owned(),
        enabled: None,
        paused: Some(true),
        reason: Some("storm".to_owned()),
        failures: None,
    };
    draft.push_run(RunRecord::AutomationSet(set)).map(drop)
}

/// Whatever an automation that is switched off has armed and not queued.
pub fn settle_armed(draft: &mut Draft<'_>, name: &str) -> Result<()> {
    let is_armed = |pending: &Pending| pending.automation == name && pending.gate != "mode";
    let pending = draft.state.pending().iter();
    let armed: Vec<_> = pending.filter(|(_, pending)| is_armed(pending)).map(|(id, _)| *id).collect();
    armed.into_iter().try_for_each(|id| settle(draft, id, Outcome::Skipped, Some("disabled"), None))
}

pub fn settle(
    draft: &mut Draft<'_>,
    of: OccurrenceId,
    outcome: Outcome,
    reason: Option<&str>,
    passed: Option<&Passed>,
) -> Result<()> {
    let automation = draft.state.pending().get(&of).map(|pending| pending.automation.clone());
    let settled = SettledOccurrence {
        of,
        automation: automation.unwrap_or_default(),
        outcome,
        reason: reason.map(str::to_owned),
        gate: passed.filter(|passed| passed.outcome != Outcome::Ran).map(|p| p.gate.as_str().to_owned()),
        set: passed.map(|passed| passed.set.clone()).unwrap_or_default(),
        values: passed.map_or(Value::Null, |passed| super::values(&passed.values)),
    };
    draft.push_run(RunRecord::Settled(settled)).map(drop)
}

/// Starts the run of an event that passed.
pub fn by_event(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &str,
    event: &Event,
    passed: &Passed,
) -> Result<Position> {
    let is_batch = !passed.batch.is_empty();
    let input = if is_batch { batch_input(draft, &passed.batch)? } else { Value::Null };
    let kind = if is_batch { "batch" } else { "event" };
    let started = RunStarted {
        occurrence: Reason { kind: kind.to_owned(), position: event.position, at: event.time() },
        event: event.position,
        space: event.envelope.space.clone(),
        depth: event.envelope.depth,
        input,
        ..blank(draft, automation, trigger, &passed.stage)
    };
    start(draft, started, &passed.cancel)
}

/// Says what became of an event that is written nowhere, and starts its run.
pub fn by_view(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &Trigger,
    event: &Event,
    (value, mut passed): (&Value, Passed),
) -> Result<()> {
    let (space, depth) = (event.envelope.space.clone(), event.envelope.depth);
    if passed.outcome == Outcome::Pending {
        let start = json!({"kind": "event", "event": value, "input": null, "space": space, "depth": depth});
        passed.queue_or_skip(Some(start));
    }
    let id = &trigger.definition.id;
    let verdict = super::verdict(automation, id, &passed);
    let position = draft.push_run(RunRecord::Routed(Routed { event: 0, verdicts: vec![verdict] }))?;
    follow(draft, &passed)?;
    if passed.pause {
        pause(draft, automation.name())?;
    }
    if passed.outcome != Outcome::Ran {
        return Ok(());
    }
    let started = RunStarted {
        occurrence: Reason { kind: "event".to_owned(), position, at: event.time() },
        space,
        depth,
        synthetic: Some(value.clone()),
        ..blank(draft, automation, id, &passed.stage)
    };
    start(draft, started, &passed.cancel).map(drop)
}

fn batch_input(draft: &Draft<'_>, positions: &[Position]) -> Result<Value> {
    let mut events = Vec::new();
    for position in positions {
        events.extend(draft.state.event(*position)?.map(|event| event.to_value()));
    }
    Ok(json!({ "events": events }))
}

/// Those who make way are cancelled, then it begins.
pub fn start(draft: &mut Draft<'_>, started: RunStarted, cancel: &[Position]) -> Result<Position> {
    for run in cancel {
        end_cancelled(draft, *run, "restart")?;
    }
    let position = draft.push_run(RunRecord::Started(Box::new(started)))?;
    lifecycle::started(draft, position)?;
    Ok(position)
}

/// Ends a run that is to go no further. What it waits for is forgotten; nothing it did is undone.
pub fn end_cancelled(draft: &mut Draft<'_>, run: Position, why: &str) -> Result<()> {
    let Some(live) = draft.state.run(run)? else { return Ok(()) };
    let ended = RunEnded {
        run,
        status: Status::Cancelled,
        code: Some(why.to_owned()),
        class: None,
        message: None,
        output: Value::Null,
        steps: Vec::new(),
    };
    draft.push_run(RunRecord::Ended(ended.clone()))?;
    lifecycle::ended(draft, &live, &ended)?;
    crate::walk::after_end(draft, &live, Status::Cancelled, &Value::Null, Some(why))
}

/// A run of this automation that is the answer to nothing yet.
pub fn blank(draft: &mut Draft<'_>, automation: &Arc<Automation>, trigger: &str, stage: &str) -> RunStarted {
    RunStarted {
        id: format!("run_{}", model::id::ulid(draft.now, draft.entropy.bytes())),
        automation: automation.name().to_owned(),
        hash: automation.hash.clone(),
        trigger: trigger.to_owned(),
        occurrence: Reason { kind: "manual".to_owned(), position: 0, at: draft.now },
        event: 0,
        space: automation.definition.space.clone().unwrap_or_else(|| SYSTEM.to_owned()),
        depth: 0,
        attempt: 1,
        caller: None,
        rerun_of: None,
        input: Value::Null,
        key: stage.to_owned(),
        synthetic: None,
    }
}

/// The next one that queued behind a run that has ended.
pub fn next_queued(draft: &mut Draft<'_>, ended: &Run) -> Result<()> {
    let stage = (ended.automation.clone(), ended.key.clone());
    // One that has expired meanwhile makes way for the one behind it.
    while draft.state.runs.stage.get(&stage).is_none_or(|live| live.is_empty()) {
        let mut queue = draft.state.pending_of(&ended.automation, &ended.key);
        let Some(next) = queue.find(|(_, pending)| pending.gate == "mode").map(|(id, _)| *id) else { break };
        drop(queue);
        super::wake_due::go_on(draft, next)?;
        if draft.state.pending().contains_key(&next) {
            break;
        }
    }
    Ok(())
}

/// Starts what waited in the queue and was brought by no event: a person, a call, a schedule.
pub fn by_hand(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    of: OccurrenceId,
    pending: &Pending,
) -> Result<()> {
    let start = &pending.start;
    let space = start["space"].as_str().unwrap_or(SYSTEM).to_owned();
    let trigger = automation.trigger(&pending.trigger);
    let depth = start["depth"].as_u64().unwrap_or(0) as u32;
    let occurrence = Occurrence {
        automation,
        trigger,
        context: pending.key.clone(),
        event: None,
        position: 0,
        time: pending.since,
        depth,
        env: env(
            automation,
            trigger,
            Arc::new(start["event"].clone()),
            start["input"].clone(),
            draft.now,
            space.clone(),
        ),
        of: Some(of),
    };
    let memory = Memory { state: draft.state, set: Vec::new(), starting: Vec::new() };
    let passed = gate::pass(&memory, &occurrence, Gate::Start)?;
    settle(draft, of, passed.outcome, passed.reason, Some(&passed))?;
    let kind = start["kind"].as_str().unwrap_or("manual").to_owned();
    let mut started = RunStarted {
        occurrence: Reason { kind, position: of.0, at: pending.since },
        space,
        depth,
        input: start["input"].clone(),
        synthetic: Some(start["event"].clone()),
        ..blank(draft, automation, &pending.trigger, &pending.key)
    };
    if let Some(promised) = start["id"].as_str() {
        promised.clone_into(&mut started.id);
    }
    self::start(draft, started, &[]).map(drop)
}

/// The event of something that no record brought: a schedule, a call, a person.
pub fn synthetic(topic: &str, space: &str, actor: &str, payload: Value, now: Timestamp) -> Value {
    json!({
        "id": "", "topic": topic, "type": topic, "space": space, "time": now, "recorded_at": now, "actor": actor,
        "depth": 0, "priority": 0, "band": "green", "payload": payload,
    })
}
