//! What nearly started an automation: events that its triggers stopped, and where there is none, topics that are nearly those
//! it waits for. Found among the newest events, for who asks why nothing happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::definition::TriggerKind;
use model::event::Event;
use model::suggest::distance;
use model::topic::is_reserved;
use model::{Position, Problem};
use serde_json::{Value, json};

use super::why::{is_of_another_row, why_not};
use crate::automation::Automation;
use crate::history::read::Wanted;
use crate::read;
use crate::tenant::Tenant;

/// Events that are looked at.
const NEAR_EVENTS: usize = 500;
const NEAR_MAX: usize = 5;
const TOPICS_MAX: usize = 3;

impl Tenant {
    /// The newest events that had the right topic and were stopped before they became an occurrence. Changes of rows that no
    /// trigger names fill up what is left; topics are told of an automation that nothing has met.
    pub(super) fn nearest(&self, automation: &Automation) -> Result<Vec<Value>, Problem> {
        let events = self.lately(automation)?;
        // One that became an occurrence missed nothing, whatever the switch says now.
        let wanted =
            Wanted { automation: Some(automation.name().to_owned()), limit: 1_000, ..Wanted::default() };
        let (decisions, _) = self.written_decisions(&wanted)?;
        let decided: BTreeSet<Position> = decisions.iter().filter_map(|one| one["event"].as_u64()).collect();
        let (mut near, mut of_others) = (Vec::new(), Vec::new());
        for event in events.iter().rev().filter(|event| !decided.contains(&event.position)) {
            let is_other = is_of_another_row(automation, event);
            let found = if is_other { &mut of_others } else { &mut near };
            if found.len() >= NEAR_MAX || !concerns(automation, &event.envelope.topic) {
                continue;
            }
            let value = event.to_value();
            let why = self.with_writer(|writer| why_not(&writer.state, automation, event, &value))?;
            if matches!(why["outcome"].as_str(), Some("not_matched" | "filtered" | "skipped")) {
                found.push(told(event, &why["gate"], &why["values"]));
            }
        }
        near.extend(of_others);
        near.truncate(NEAR_MAX);
        if near.is_empty() && decisions.is_empty() {
            near = topics(automation, &events);
        }
        Ok(near)
    }

    /// The newest events, and before them those that are known to have been stopped; oldest first.
    fn lately(&self, automation: &Automation) -> Result<Vec<Arc<Event>>, Problem> {
        let head = self.head();
        let from = head.saturating_sub(NEAR_EVENTS as u64 * 2).max(self.first());
        let (mut events, _) = self.events_from(from.max(1), head, NEAR_EVENTS)?;
        let oldest = events.first().map_or(head + 1, |event| event.position);
        let samples = automation.triggers.iter().flat_map(|trigger| trigger.stopped.samples());
        let older: BTreeSet<Position> = samples.filter(|at| *at < oldest && *at >= self.first()).collect();
        for position in older.into_iter().rev() {
            events.splice(0..0, self.with_reader(|reader| read::event_at(reader, position))?);
        }
        Ok(events)
    }
}

fn concerns(automation: &Automation, topic: &str) -> bool {
    let mut patterns = automation.triggers.iter().flat_map(|trigger| &trigger.patterns);
    patterns.any(|pattern| pattern.receives(topic))
}

fn told(event: &Event, gate: &Value, values: &Value) -> Value {
    json!({"position": event.position, "topic": event.envelope.topic, "gate": gate, "values": values})
}

/// Topics that were published and are nearly what a trigger waits for, the nearest first.
fn topics(automation: &Automation, events: &[Arc<Event>]) -> Vec<Value> {
    let mut newest: BTreeMap<&str, &Event> = BTreeMap::new();
    let published = events.iter().filter(|event| !is_reserved(&event.envelope.topic));
    newest.extend(published.map(|event| (event.envelope.topic.as_str(), &**event)));
    let patterns = automation.triggers.iter().flat_map(|trigger| match &trigger.definition.on {
        TriggerKind::Event(patterns) => patterns.as_slice(),
        _ => &[],
    });
    let mut near = BTreeMap::new();
    for pattern in patterns {
        for (topic, event) in &newest {
            let apart = apart(pattern, topic);
            if apart <= letters(pattern) / 2 {
                near.entry((apart, *topic)).or_insert((pattern, *event));
            }
        }
    }
    let told_one = |(pattern, event): (&String, &Event)| {
        told(event, &json!("match"), &json!({"topic": event.envelope.topic, "pattern": pattern}))
    };
    near.into_values().take(TOPICS_MAX).map(told_one).collect()
}

fn letters(pattern: &str) -> usize {
    pattern.chars().filter(|letter| !matches!(letter, '.' | '*' | '#')).count()
}

/// How many letters differ, word by word and whatever their case; wildcards stand for anything.
fn apart(pattern: &str, topic: &str) -> usize {
    let (pattern, topic) = (pattern.to_lowercase(), topic.to_lowercase());
    let topic: Vec<&str> = topic.split('.').collect();
    let mut row = vec![0];
    for word in &topic {
        row.push(row[row.len() - 1] + word.chars().count());
    }
    for wanted in pattern.split('.') {
        let mut next = vec![row[0] + letters(wanted)];
        for (at, word) in topic.iter().enumerate() {
            let replaced = if wanted.contains(['*', '#']) { 0 } else { distance(wanted, word) };
            let added = if wanted == "#" { 0 } else { word.chars().count() };
            next.push((row[at] + replaced).min(row[at + 1] + letters(wanted)).min(next[at] + added));
        }
        row = next;
    }
    row[topic.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_as_far_from_a_pattern_as_the_letters_that_differ() {
        for (pattern, topic, far) in [
            ("order.placed", "order.placed", 0),
            ("Order.Placed", "order.placed", 0),
            ("ordr.placed", "order.placed", 1),
            ("order.placed.now", "order.placed", 3),
            ("orders.*", "order.placed", 1),
            ("orders.#", "order.placed.now", 1),
            ("placed", "order.placed", 5),
        ] {
            assert_eq!(apart(pattern, topic), far, "{pattern} {topic}");
        }
    }
}
