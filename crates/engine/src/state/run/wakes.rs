//! Who is woken by what: waits by the rows, kinds of rows and topics that they look at.

use std::collections::{BTreeMap, BTreeSet};

use model::topic::trie::Trie;

use super::watch::Watch;
use crate::automation::patterns;
use crate::run::{Request, Wait, WaitId, WaitKind};

#[derive(Default)]
pub struct Wakes {
    pub(super) rows: Watch,
    by_topic: Trie<WaitId>,
    /// How many there are of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Those that look back first.
    pub looks: BTreeSet<WaitId>,
    /// Asked and not answered.
    pub asks: BTreeSet<WaitId>,
    /// Worked outside.
    pub effects: BTreeSet<WaitId>,
    /// Those of them that no worker has yet, oldest run first: of events and calls, and of schedules.
    pub unhanded: [BTreeSet<WaitId>; 2],
    /// Those that workers in other processes do, by the kind of task, whether one has it or not.
    pub tasks: BTreeMap<String, BTreeSet<WaitId>>,
    /// How often a task was asked for; whoever waits for one looks when it has changed.
    pub tasks_asked: u64,
}

impl Wakes {
    pub(super) fn insert(&mut self, id: WaitId, wait: &Wait) {
        *self.kinds.entry(wait.kind.as_str()).or_insert(0) += 1;
        match &wait.kind {
            WaitKind::Until { refs, indeterminate, recheck, .. } => {
                self.rows.insert(id, refs, *indeterminate);
                if recheck.is_some() {
                    self.rows.insert_timed(id);
                }
            }
            WaitKind::For { looking: true, .. } => _ = self.looks.insert(id),
            WaitKind::For { trigger, .. } => {
                for pattern in patterns(trigger).unwrap_or_default() {
                    self.by_topic.insert(&pattern, id);
                }
            }
            WaitKind::Ask { .. } => _ = self.asks.insert(id),
            WaitKind::Effect(request) => {
                self.effects.insert(id);
                if let Some(task) = request.task() {
                    self.insert_task(id, task, request);
                } else if !request.handed && !request.is_quarantined() {
                    self.unhanded[usize::from(request.scheduled)].insert(id);
                }
            }
            WaitKind::Delay | WaitKind::Retry | WaitKind::Yield | WaitKind::Limit | WaitKind::Call { .. } => {
            }
        }
    }

    pub(super) fn remove(&mut self, id: WaitId, wait: &Wait) {
        if let Some(count) = self.kinds.get_mut(wait.kind.as_str()) {
            *count = count.saturating_sub(1);
        }
        match &wait.kind {
            WaitKind::Until { refs, .. } => self.rows.remove(id, refs),
            WaitKind::For { looking: true, .. } => _ = self.looks.remove(&id),
            WaitKind::For { trigger, .. } => {
                for pattern in patterns(trigger).unwrap_or_default() {
                    self.by_topic.remove(&pattern, id);
                }
            }
            WaitKind::Ask { .. } => _ = self.asks.remove(&id),
            WaitKind::Effect(request) => {
                self.effects.remove(&id);
                if let Some(task) = request.task() {
                    self.remove_task(id, task);
                }
                self.unhanded[usize::from(request.scheduled)].remove(&id);
            }
            WaitKind::Delay | WaitKind::Retry | WaitKind::Yield | WaitKind::Limit | WaitKind::Call { .. } => {
            }
        }
    }

    fn insert_task(&mut self, id: WaitId, task: &str, request: &Request) {
        if request.is_quarantined() {
            return;
        }
        self.tasks_asked += u64::from(!request.handed);
        self.tasks.entry(task.to_owned()).or_default().insert(id);
    }

    fn remove_task(&mut self, id: WaitId, task: &str) {
        let Some(open) = self.tasks.get_mut(task) else { return };
        open.remove(&id);
        if open.is_empty() {
            self.tasks.remove(task);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.by_topic.is_empty()
    }

    /// Whether an effect is open that no worker has.
    pub fn wants_worker(&self) -> bool {
        self.unhanded.iter().any(|lane| !lane.is_empty())
    }

    /// Conditions that are tested in the commit of this change; others that look at the row are marked.
    pub fn by_change(&mut self, concept: &str, id: &str) -> Vec<WaitId> {
        self.rows.changed(concept, id)
    }

    /// Nobody knows what was tested of what was folded: all that is tested in turn is.
    pub(crate) fn mark_all(&mut self) {
        self.rows.mark_all();
    }

    /// Whether conditions wait for their turn to be tested.
    pub fn has_marked(&self) -> bool {
        self.rows.has_marked()
    }

    pub fn next_marked(&mut self) -> Option<WaitId> {
        self.rows.next_marked()
    }

    /// Waits for an event with this topic.
    pub fn by_event(&self, topic: &str) -> Vec<WaitId> {
        let mut found = Vec::new();
        self.by_topic.receivers(topic, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }
}
