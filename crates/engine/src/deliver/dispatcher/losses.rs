//! What a group loses while it has it in memory: events that were trimmed, and the content of those that were erased.

use std::collections::BTreeSet;

use model::Position;

use super::{Dispatcher, Stand, size};
use crate::deliver::without_content;

impl Dispatcher {
    /// Everything below `first` was trimmed: what was open there is lost, and the group goes on at `first`.
    pub fn lose_below(&mut self, first: Position) {
        let mut open: Vec<Position> = self.slots.range(..first).map(|(position, _)| *position).collect();
        open.retain(|position| !self.group.redriven.contains(position));
        open.into_iter().for_each(|position| self.remove(position));
        self.group.raise_floor(first - 1);
        self.delivered_to = self.delivered_to.max(first - 1);
        self.looked_through(first - 1);
        self.count_anew();
    }

    /// Erased events are delivered without their content, and a dead letter that was erased parks nothing any more.
    pub fn forget_content(&mut self, positions: &BTreeSet<Position>) {
        for position in positions {
            if let Some(slot) = self.slots.get_mut(position) {
                self.bytes -= size(&slot.event);
                slot.event = without_content(&slot.event);
                self.bytes += size(&slot.event);
            }
            if let Some(failure) = self.group.failures.get_mut(position) {
                failure.error = None;
            }
            let Some(key) = self.group.parked.remove(position) else { continue };
            for waiting in self.keys.get(&key).cloned().unwrap_or_default() {
                if self.slots.get(&waiting).is_some_and(|slot| slot.stand == Stand::Blocked) {
                    self.free(waiting);
                }
            }
        }
    }
}
