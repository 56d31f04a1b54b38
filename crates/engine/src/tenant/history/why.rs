//! Why an event was no occurrence, and what the condition read that stopped one: evaluated again from the event, the rows and
//! the definitions of its position. Nothing of it is written down, so that nothing of it outlives an erased event.

use lang::expr::{EntityRef, Refs};
use model::definition::{Condition, TriggerKind};
use model::event::Event;
use model::{Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::MATCHES;
use crate::admit::Caller;
use crate::automation::{Automation, matching};
use crate::condition;
use crate::read;
use crate::state::State;
use crate::tenant::Tenant;
use crate::tenant::entity::{Moment, broken};

impl Tenant {
    /// What the condition read that stopped each of these; as far as that can still be read.
    pub(super) fn with_reads(&self, decisions: &mut [Value]) -> Result<(), Problem> {
        for decision in decisions.iter_mut().filter(|decision| decision["values"]["condition"].is_u64()) {
            let position = decision["occurrence"]["position"].as_u64().unwrap_or(0);
            let Some(condition) = self.condition_of(decision, position)? else { continue };
            let event = decision["event"].as_u64().filter(|event| *event > 0);
            let event = event.map(|event| self.with_reader(|reader| read::event_at(reader, event)));
            let event = event.and_then(Result::ok).flatten().map(|event| event.to_value());
            let refs = condition::refs(&condition);
            if let Some(event) = &event {
                read_of_event(&refs, event, &mut decision["values"]);
            }
            read_of_clock(&condition, decision);
            let space = event.as_ref().and_then(|event| event["space"].as_str());
            self.read_of_rows(&refs, space, position, &mut decision["values"]);
        }
        Ok(())
    }

    fn condition_of(&self, decision: &Value, position: Position) -> Result<Option<Condition>, Problem> {
        let name = decision["automation"].as_str().unwrap_or_default();
        let index = decision["values"]["condition"].as_u64().unwrap_or(0) as usize;
        let version = self.with_writer(|writer| writer.state.version_at(name, position).map_err(broken))?;
        Ok(version.and_then(|version| version.definition.conditions.get(index).cloned()))
    }

    /// Rows as they were then, in the event's own space; not those that only their owners see.
    fn read_of_rows(&self, refs: &Refs, space: Option<&str>, position: Position, values: &mut Value) {
        let nobody = Caller { actor: String::new(), trace: None, outside: true, sight: Default::default() };
        for entity in &refs.entities {
            let EntityRef::One { kind, id } = entity else { continue };
            let row = self.entity_as_of(&nobody, (kind, space, id), Moment::Position(position));
            let read = match row {
                Ok(row) => Value::Object(row.fields),
                // As a condition reads it: not there, or not to be seen.
                Err(problem) if problem.code().status() == 404 => Value::Null,
                Err(_) => continue,
            };
            values[format!("state.{kind}.{id}")] = read;
        }
    }
}

/// Evaluates again why an event is no occurrence of an automation.
pub(in crate::tenant) fn why_not(
    state: &State,
    automation: &Automation,
    event: &Event,
    value: &Value,
) -> Result<Value, Problem> {
    let answer = |outcome: &str, gate: &str, trigger: Option<&str>, values: Value| {
        let mut answer = json!({
            "automation": automation.name(), "version": automation.version(), "outcome": outcome, "gate": gate,
            "values": values,
        });
        if let Some(trigger) = trigger {
            answer["trigger"] = trigger.into();
        }
        answer
    };
    let topic = &event.envelope.topic;
    let concerned = automation
        .triggers
        .iter()
        .filter(|trigger| trigger.patterns.iter().any(|pattern| pattern.receives(topic)));
    let mut nearest = answer("not_matched", "match", None, json!({ "topic": topic }));
    for trigger in concerned {
        let id = Some(trigger.definition.id.as_str());
        if !matching::matches(state, &trigger.definition.on, event, value).map_err(broken)? {
            nearest = answer("not_matched", "match", id, missed(&trigger.definition.on, event, value));
            continue;
        }
        if !state.is_enabled(automation) {
            return Ok(disabled(answer("skipped", "enabled", id, Value::Null)));
        }
        let passes = trigger.filter.as_ref().map_or(Ok(true), |filter| filter.test(value));
        match passes {
            Ok(true) => return Ok(answer(MATCHES, "match", id, Value::Null)),
            _ => nearest = answer("filtered", "filter", id, seen(trigger, value)),
        }
    }
    Ok(nearest)
}

/// A change that was not the one a trigger waits for: of which row, what it was, and what is wanted.
fn missed(on: &TriggerKind, event: &Event, value: &Value) -> Value {
    let Some((entities, field)) = matching::watched(on) else { return Value::Null };
    let row = event.envelope.subject.as_ref().map(|subject| format!("{}/{}", subject.kind, subject.id));
    if !matching::is_named(entities, event) {
        let rows = entities.iter().map(|entity| match &entity.id {
            Some(id) => format!("{}/{id}", entity.concept),
            None => entity.concept.clone(),
        });
        return json!({"row": row, "wanted": {"row": rows.collect::<Vec<_>>()}});
    }
    let of = |side: &str| matching::at(&value["payload"][side], field).clone();
    let mut wanted = json!({});
    match on {
        TriggerKind::State { from, to, not_from, not_to, .. } => {
            let each = [("from", from), ("to", to)];
            each.iter().for_each(|(name, list)| list.iter().for_each(|list| wanted[*name] = json!(list)));
            let each = [("not_from", not_from), ("not_to", not_to)];
            let said = each.iter().filter(|(_, list)| !list.is_empty());
            said.for_each(|(name, list)| wanted[*name] = json!(list));
        }
        TriggerKind::NumericState { above, below, .. } => {
            let each = [("above", above), ("below", below)];
            each.iter().for_each(|(name, bound)| bound.iter().for_each(|bound| wanted[*name] = json!(bound)));
        }
        _ => {}
    }
    json!({"row": row, "field": field, "prev": of("prev"), "next": of("next"), "wanted": wanted})
}

/// Whether every trigger that the event's topic concerns looks at other rows.
pub(super) fn is_of_another_row(automation: &Automation, event: &Event) -> bool {
    let topic = &event.envelope.topic;
    let mut concerned = automation
        .triggers
        .iter()
        .filter(|trigger| trigger.patterns.iter().any(|pattern| pattern.receives(topic)))
        .peekable();
    concerned.peek().is_some()
        && concerned.all(|trigger| {
            let watched = matching::watched(&trigger.definition.on);
            watched.is_some_and(|(entities, _)| !matching::is_named(entities, event))
        })
}

/// As [`why_not`], by the definition that was in force when the event came.
pub(super) fn why_not_then(
    state: &State,
    automation: &Automation,
    event: &Event,
    value: &Value,
) -> Result<Value, Problem> {
    let Some(then) = state.version_at(automation.name(), event.position).map_err(broken)? else {
        let mut answer = why_not(state, automation, event, value)?;
        (answer["outcome"], answer["gate"]) = ("not_matched".into(), "match".into());
        answer["values"] = json!({"declared": "after the event"});
        return Ok(answer);
    };
    let mut answer = why_not(state, &then, event, value)?;
    if answer["outcome"] == MATCHES {
        // It was in force and let the event pass, and there is no decision: it was switched off then.
        (answer["outcome"], answer["gate"]) = ("skipped".into(), "enabled".into());
        answer = disabled(answer);
    }
    Ok(answer)
}

fn disabled(mut answer: Value) -> Value {
    answer["reason"] = "disabled".into();
    answer["values"] = json!({"reason": "disabled"});
    answer
}

/// What a filter looked at.
fn seen(trigger: &crate::automation::Trigger, value: &Value) -> Value {
    let Some(model::definition::Filter::Expr(expr)) = &trigger.definition.filter else {
        return json!({"filter": trigger.definition.filter});
    };
    let mut values = json!({ "filter": expr.0 });
    read_of_event(&Refs::of(&expr.0), value, &mut values);
    values
}

/// What the condition read of the event that stopped it, by the definition that is declared now.
pub(in crate::tenant) fn read_by_condition(state: &State, decision: &mut Value, event: &Value) {
    let name = decision["automation"].as_str().unwrap_or_default();
    let (Some(index), Some(automation)) =
        (decision["values"]["condition"].as_u64(), state.catalog.automations.get(name))
    else {
        return;
    };
    if let Some(condition) = automation.definition.conditions.get(index as usize) {
        read_of_event(&condition::refs(condition), event, &mut decision["values"]);
        read_of_clock(condition, decision);
    }
}

/// What the clock said to the times of day that it asks for.
fn read_of_clock(condition: &Condition, decision: &mut Value) {
    let at = decision["at"].as_str().and_then(|at| Timestamp::parse(at).ok());
    let times = at.map(|at| condition::times(condition, at)).unwrap_or_default();
    if !times.is_empty() {
        decision["values"]["time"] = times.into();
    }
}

fn read_of_event(refs: &Refs, event: &Value, values: &mut Value) {
    for path in refs.event_fields.iter().filter(|path| !path.is_empty()) {
        values[format!("event.{path}")] = matching::at(event, path).clone();
    }
}
