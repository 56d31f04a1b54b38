//! What became true goes on: events are offered to their groups, records that steer groups reach their dispatchers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Position;
use model::record::{Failed, Record, RunRecord};

use super::{Tenant, open};
use crate::apply::Place;
use crate::command::Fate;
use crate::deliver::{GroupHandle, Registry};
use crate::lifecycle::reread;
use crate::state::State;
use crate::writer::{Committed, Writer};

impl Tenant {
    /// What became true goes to those who wait for it. Offers and notes come before `visible` is raised (see `deliver` and `deliver/followers`).
    pub(super) fn hand_on(&self, writer: &Writer, committed: Vec<Committed>) {
        if committed.is_empty() {
            return;
        }
        let (mut events, mut first_run) = (Vec::with_capacity(committed.len()), None);
        let mut registry = self.0.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        for item in committed {
            match item {
                Committed::Event(event) => {
                    self.count_storm(&event);
                    self.trace_published(&event);
                    // First where it can be read, then offered: an inbox that overflows on it is read again from there.
                    self.tail_mut().push(event.clone());
                    registry.route(&event);
                    events.push(event);
                }
                Committed::Told(event) => self.tell(event),
                Committed::Other(place, record) => {
                    if matches!(record, Record::Run(_)) {
                        first_run.get_or_insert(place.position);
                    }
                    self.steer(writer, &mut registry, (place, record));
                }
            }
        }
        drop(registry);
        self.0.recent.tidy(writer.state.committed);
        let head = writer.head();
        if self.history_is_long() {
            self.fold_history(head);
        }
        let mut calls = self.followers().calls(head);
        events.iter().for_each(|event| calls.meet(event));
        first_run.into_iter().for_each(|position| calls.meet_run(position));
        self.0.visible.store(head, Ordering::Release);
        self.0.seen.send_replace(head);
        calls.go_out();
    }

    /// Records that change what is in memory beside the state.
    fn steer(&self, writer: &Writer, registry: &mut Registry, (place, record): (Place, Record)) {
        match record {
            Record::Run(record) => {
                if matches!(record, RunRecord::Started(_) | RunRecord::Ended(_)) {
                    registry.call(place.position);
                }
                self.count_run(&record);
                self.trace_run(place, &record);
                self.remember(place, record);
            }
            Record::GroupPut { group, .. } => self.register(writer, registry, &group, place.position),
            Record::GroupDeleted { group } => registry.remove(&group),
            Record::LedgerTrimmed { first, .. } => {
                self.begins_at(first);
                registry.all().iter().for_each(|handle| handle.dispatcher().lose_below(first));
            }
            Record::EntityChanged(changed) => self.0.recent.note(place.position - 1, &changed),
            Record::EventErased { .. } => self.tail_mut().forget(),
            Record::DefinitionsApplied(_) => self.set_catalog(writer.state.catalog.clone()),
            Record::ClockStepped { by_ms } => {
                registry.all().iter().for_each(|handle| handle.dispatcher().shift(place.position, by_ms));
            }
            Record::GroupFailed(Failed { group, position, failures, until: at, .. }) => {
                if let Some(handle) = registry.get(&group) {
                    handle.dispatcher().meet(position, Fate::Retry { at, failures });
                }
            }
            Record::GroupDead(dead) => {
                self.metrics().dead(topic_of(&dead.event));
                let Some(handle) = registry.get(&dead.group) else { return };
                let mut dispatcher = handle.dispatcher();
                if let Some(key) = dead.parked_key {
                    dispatcher.park(dead.position, key);
                }
                dispatcher.meet(dead.position, Fate::Dead);
            }
            Record::GroupSeeked { group, .. }
            | Record::GroupPaused { group, .. }
            | Record::GroupHalted { group, .. }
            | Record::GroupCrashed { group, .. } => self.follow_group(&writer.state, registry, &group, place),
            Record::GroupRedriven { group, positions } => {
                self.bring_back(&writer.state, registry, &group, &positions);
            }
            _ => {}
        }
    }

    pub(super) fn register(&self, writer: &Writer, registry: &mut Registry, name: &str, head: Position) {
        let state = &writer.state;
        let Some(group) = state.groups.get(name) else { return };
        let definition = group.definition.clone();
        if let Some(handle) = registry.get(name).filter(|handle| handle.redefine(&definition)) {
            registry.put(handle, &definition);
            return;
        }
        let handle = match registry.get(name) {
            Some(handle) => handle.restart(group.clone(), self.0.epoch ^ head).map(|()| handle),
            None => GroupHandle::new(group.clone(), self.0.epoch ^ head).map(Arc::new),
        };
        match handle {
            Ok(handle) => {
                handle.dispatcher().behind(head);
                handle.dispatcher().offset = writer.offset;
                handle.dispatcher().steps.clone_from(&state.steps);
                for position in &group.redriven {
                    self.bring_back_one(state, &handle, *position);
                }
                registry.put(handle, &definition);
            }
            // Checked before it was recorded, so only a newer language could get here.
            Err(problem) => tracing::error!(group = name, %problem, "a group's definition does not compile"),
        }
    }

    fn follow_group(&self, state: &State, registry: &Registry, name: &str, place: Place) {
        let (Some(group), Some(handle)) = (state.groups.get(name), registry.get(name)) else { return };
        let mut dispatcher = handle.dispatcher();
        if dispatcher.group.since != group.since {
            drop(dispatcher);
            if let Err(problem) = handle.restart(group.clone(), self.0.epoch ^ place.position) {
                tracing::error!(group = name, %problem, "a group's definition does not compile");
            }
            handle.dispatcher().behind(place.position);
        } else {
            if group.halted_on == 0 && dispatcher.group.halted_on != 0 {
                dispatcher.unhalt();
            }
            (dispatcher.group.paused, dispatcher.group.halted_on) = (group.paused, group.halted_on);
            dispatcher.group.crashes.clone_from(&group.crashes);
            dispatcher.group.convicted.clone_from(&group.convicted);
        }
        handle.wake.notify_waiters();
    }

    fn bring_back(&self, state: &State, registry: &Registry, group: &str, positions: &[Position]) {
        let Some(handle) = registry.get(group) else { return };
        // A seek follows in the same commit: the group begins again, and comes to them by itself.
        if state.groups.get(group).is_some_and(|after| after.since != handle.dispatcher().group.since) {
            return;
        }
        positions.iter().for_each(|position| self.bring_back_one(state, &handle, *position));
        handle.wake.notify_waiters();
    }

    fn bring_back_one(&self, state: &State, handle: &GroupHandle, position: Position) {
        let text = state.redriven_event(&handle.name, position).ok().flatten();
        let kept = text.and_then(|text| open::event_from_json(&text)).map(Arc::new);
        // An erased dead letter has lost its event, but the event's own record still says what it was.
        let recorded = || self.with_reader(|reader| reread::event_at(reader, position)).ok().flatten();
        match kept.or_else(recorded) {
            Some(event) => handle.dispatcher().bring_back(event),
            None => tracing::warn!(group = %handle.name, position, "a redriven event cannot be read"),
        }
    }
}

fn topic_of(event: &serde_json::value::RawValue) -> &str {
    #[derive(serde::Deserialize)]
    struct Topic<'a> {
        #[serde(borrow, default)]
        topic: &'a str,
    }
    serde_json::from_str::<Topic<'_>>(event.get()).map_or("", |event| event.topic)
}
