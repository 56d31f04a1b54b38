//! Decides whether an occurrence that was refused runs after all. Only its mode is asked: a person wants it.

use std::sync::Arc;

use model::record::{OccurrenceMoved, Outcome, RunRecord, SettledOccurrence};
use serde_json::{Value, json};

use super::Refusal;
use crate::automation::Automation;
use crate::command::{Answer, Refused};
use crate::draft::Draft;
use crate::gate::{self, Gate, Memory, Passed};
use crate::route::{self, occurrence, start};
use crate::state::run::Pending;

pub fn decide(draft: &mut Draft<'_>, asked: Refused) -> Result<Answer, Refusal> {
    let automation = draft.state.catalog.automations.named(&asked.automation)?.clone();
    let pending = pending(draft, &automation, &asked);
    let event = Arc::new(pending.start["event"].clone());
    let trigger = automation.trigger(&asked.trigger);
    let of = occurrence::of_start(&automation, trigger, &pending, &event, draft.now);
    let mut passed = gate::pass(&Memory::of(draft.state), &of, Gate::Mode)?;
    // It came long ago: what limits starts now is not charged for it.
    passed.set.clear();
    if passed.outcome == Outcome::Pending {
        return queue(draft, &automation, &asked, passed, &pending);
    }
    if !passed.starts() {
        return Ok(told(None, &passed));
    }
    draft.push_run(RunRecord::Settled(SettledOccurrence {
        of: asked.of,
        automation: asked.automation,
        outcome: Outcome::Ran,
        reason: None,
        gate: None,
        into: None,
        set: Vec::new(),
        values: Value::Null,
    }))?;
    let run = start::by_hand(draft, &automation, (asked.of, &pending), &passed)?;
    let id = draft.state.run(run)?.map(|run| run.id);
    Ok(told(id, &passed))
}

/// It takes a place in the queue.
fn queue(
    draft: &mut Draft<'_>,
    automation: &Automation,
    asked: &Refused,
    mut passed: Passed,
    pending: &Pending,
) -> Result<Answer, Refusal> {
    passed.queue_or_skip(Some(pending.start.clone()));
    start::promise(&mut passed, draft.now, draft.entropy);
    let verdict = route::verdict(automation, &asked.trigger, &passed);
    let moved = OccurrenceMoved { of: asked.of, verdict };
    let space = pending.start["space"].as_str().unwrap_or_default().to_owned();
    draft.push_within(RunRecord::OccurrenceMoved(Box::new(moved)), vec![space])?;
    Ok(told(passed.run.clone(), &passed))
}

fn told(run: Option<String>, passed: &Passed) -> Answer {
    Answer::Started { run, outcome: passed.outcome, reason: passed.reason.map(str::to_owned) }
}

/// As if a gate had kept it since it came.
fn pending(draft: &Draft<'_>, automation: &Automation, asked: &Refused) -> Pending {
    let event = &asked.event;
    let (kind, context) = match (asked.position, event["topic"].as_str()) {
        (0, _) => ("schedule", automation.name()),
        (_, topic) => ("event", topic.unwrap_or_default()),
    };
    let start = json!({
        "kind": kind, "event": event, "input": null, "space": event["space"], "depth": event["depth"],
        "at": asked.at, "context": context, "position": asked.position, "in_turn": true,
    });
    Pending {
        automation: asked.automation.clone(),
        hash: automation.hash.clone(),
        trigger: asked.trigger.clone(),
        gate: Gate::Breaker.as_str().to_owned(),
        reason: String::new(),
        until: None,
        elapsed: false,
        key: context.to_owned(),
        events: Vec::new(),
        batch: false,
        since: draft.now,
        entered: draft.next(),
        run: None,
        after: String::new(),
        armed: Value::Null,
        start,
    }
}
