//! What gates and steps see of an occurrence: the event, the trigger and what they say.

use std::sync::Arc;

use model::Timestamp;
use model::definition::TriggerKind;
use model::event::Event;
use serde_json::{Map, Value, json};

use crate::automation::{Automation, Trigger, matching};
use crate::env::{About, Env};
use crate::gate::Occurrence;
use crate::state::run::Pending;

/// Where runs work that no event brings to a space.
pub const SYSTEM: &str = "_system";

pub fn of_event<'a>(
    automation: &'a Arc<Automation>,
    trigger: &'a Trigger,
    event: &'a Event,
    value: &Arc<Value>,
    now: Timestamp,
) -> Occurrence<'a> {
    let space = event.envelope.space.clone();
    Occurrence {
        automation,
        trigger: Some(trigger),
        context: context(trigger, event),
        event: Some(event),
        position: event.position,
        time: event.time(),
        depth: event.envelope.depth,
        env: env(automation, Some(trigger), value.clone(), Value::Null, now, space),
        in_turn: false,
    }
}

/// One that no event in the ledger brings and that was pending.
pub fn of_start<'a>(
    automation: &'a Arc<Automation>,
    trigger: Option<&'a Trigger>,
    pending: &Pending,
    event: &Arc<Value>,
    now: Timestamp,
) -> Occurrence<'a> {
    let start = &pending.start;
    let space = start["space"].as_str().unwrap_or(SYSTEM).to_owned();
    Occurrence {
        automation,
        trigger,
        context: start["context"].as_str().unwrap_or(&pending.key).to_owned(),
        event: None,
        position: 0,
        time: start_time(pending),
        depth: start["depth"].as_u64().unwrap_or(0) as u32,
        env: env(automation, trigger, event.clone(), start["input"].clone(), now, space),
        in_turn: start["in_turn"] == true,
    }
}

/// When a start that was pending had its reason.
pub fn start_time(pending: &Pending) -> Timestamp {
    let at = pending.start["at"].as_str().and_then(|at| Timestamp::parse(at).ok());
    at.unwrap_or(pending.since)
}

/// The event's subject, else the webhook's name, else the topic.
pub fn context(trigger: &Trigger, event: &Event) -> String {
    match (&event.envelope.subject, &trigger.definition.on) {
        (Some(subject), _) => format!("{}:{}", subject.kind, subject.id),
        (None, TriggerKind::Webhook(name)) => name.clone(),
        (None, _) => event.envelope.topic.clone(),
    }
}

/// `input` null: the event's payload stands for it.
pub fn env(
    automation: &Arc<Automation>,
    trigger: Option<&Trigger>,
    event: Arc<Value>,
    input: Value,
    now: Timestamp,
    space: String,
) -> Env {
    let trigger = trigger.map(|trigger| trigger.definition.id.clone());
    Env {
        program: automation.program.clone(),
        fixed: Map::new(),
        about: Some(About { event, input, automation: automation.clone(), trigger }),
        vars: json!({}),
        outputs: Map::new(),
        frames: Vec::new(),
        wait: Value::Null,
        now,
        space,
        reader: None,
    }
}

pub fn trigger_value(trigger: Option<&Trigger>, event: &Value) -> Value {
    let kind = trigger.map_or_else(|| started_by(event), |trigger| kind_of(&trigger.definition.on));
    let mut value = json!({
        "id": trigger.map(|trigger| trigger.definition.id.as_str()), "kind": kind, "event": event,
        "payload": event["payload"], "actor": event["actor"], "topic": event["topic"],
    });
    if event["topic"].as_str().is_some_and(|topic| topic.starts_with("graph.node.")) {
        let payload = &event["payload"];
        let subject = &event["subject"];
        value["entity"] = json!({"concept": subject["kind"], "id": subject["id"]});
        (value["prev"], value["next"]) = (payload["prev"].clone(), payload["next"].clone());
        if let Some(TriggerKind::State { field, .. } | TriggerKind::NumericState { field, .. }) =
            trigger.map(|trigger| &trigger.definition.on)
        {
            value["from"] = matching::at(&payload["prev"], field).clone();
            value["to"] = matching::at(&payload["next"], field).clone();
        }
    }
    value
}

/// What stands for the kind of a trigger where none was pulled: a subscription's event is in the ledger, and a call has the
/// actor of the automation that made it.
fn started_by(event: &Value) -> &'static str {
    let invoked = event["topic"].as_str().is_some_and(|topic| topic.starts_with("automation.invocation."));
    let called = event["actor"].as_str().is_some_and(|actor| actor.starts_with("system:automation:"));
    match (event["position"].is_u64(), invoked && called) {
        (true, _) => "event",
        (false, true) => "call",
        (false, false) => "manual",
    }
}

pub fn kind_of(on: &TriggerKind) -> &'static str {
    match on {
        TriggerKind::Event(_) => "event",
        TriggerKind::Entity { .. } => "entity",
        TriggerKind::State { .. } => "state",
        TriggerKind::NumericState { .. } => "numeric_state",
        TriggerKind::Cron { .. } | TriggerKind::Every(_) | TriggerKind::At(_) => "schedule",
        TriggerKind::Webhook(_) => "webhook",
        TriggerKind::Absent { .. } => "absent",
        TriggerKind::Manual => "manual",
    }
}
