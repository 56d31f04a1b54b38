//! From the ledger to those who wait: which groups an event reaches, what each has ready, live followers.
//!
//! The writer only *offers*: it drops a new event into the inbox of each group whose pattern it meets and goes on. A
//! group looks at its inbox when somebody pulls; an inbox that overflowed is read again from the ledger.

pub mod dispatcher;
pub mod follow;
pub(crate) mod followers;
pub mod matcher;
pub mod push;
pub mod token;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::event::{Content, Event};
use model::group::{Definition, LagAction};
use model::topic::trie::Trie;
use model::{Position, Problem};
use tokio::sync::Notify;

use dispatcher::Dispatcher;
pub use dispatcher::{Delivery, Most};
use matcher::Matcher;
pub use token::Token;

use crate::state::Group;

/// Offers kept for a group that nobody pulls from; beyond it the ledger is read again.
const INBOX_MAX: usize = 1_024;
/// Chunks of the ledger looked at in one go, so that a filter that rarely matches holds nobody for long.
const CHUNKS_MAX: usize = 8;

#[derive(Default)]
struct Inbox {
    offered: VecDeque<Arc<Event>>,
    /// Something up to here was offered and dropped.
    dropped_through: Position,
}

/// One group, shared by the writer, which offers, and the workers, who take.
pub struct GroupHandle {
    pub name: String,
    inbox: Mutex<Inbox>,
    dispatcher: Mutex<Dispatcher>,
    /// Somebody may find something to take.
    pub wake: Notify,
    /// Something was settled; publishes held back by `on_lag` look again.
    pub freed: Notify,
    /// How many pull at this moment who do not take everything.
    choosy: AtomicUsize,
}

/// One who takes only a part.
pub struct Choosy<'a>(&'a AtomicUsize);

impl Drop for Choosy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while a lock is held is caught where tasks are supervised; the data is still the best there is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GroupHandle {
    pub fn new(group: Group, epoch: u64) -> Result<GroupHandle, Problem> {
        let matcher = Matcher::new(&group.definition)?;
        let name = group.name.clone();
        let dispatcher = Mutex::new(Dispatcher::new(group, matcher, epoch));
        Ok(GroupHandle {
            name,
            inbox: Mutex::default(),
            dispatcher,
            wake: Notify::new(),
            freed: Notify::new(),
            choosy: AtomicUsize::new(0),
        })
    }

    pub fn dispatcher(&self) -> MutexGuard<'_, Dispatcher> {
        lock(&self.dispatcher)
    }

    /// Never waits for a worker: the inbox is held for a push only.
    fn offer(&self, event: &Arc<Event>) {
        let mut inbox = lock(&self.inbox);
        if inbox.offered.len() >= INBOX_MAX {
            inbox.offered.clear();
            inbox.dropped_through = event.position;
        } else {
            inbox.offered.push_back(event.clone());
        }
        drop(inbox);
        self.call_one();
    }

    /// Somebody may find something to take. One is called; all are, while some of them take only what they see, because the
    /// one who is called may be of those.
    pub fn call_one(&self) {
        match self.choosy.load(Ordering::Acquire) {
            0 => self.wake.notify_one(),
            _ => self.wake.notify_waiters(),
        }
    }

    /// Somebody pulls who takes only a part, for as long as this lives.
    pub fn choosy(&self) -> Choosy<'_> {
        self.choosy.fetch_add(1, Ordering::AcqRel);
        Choosy(&self.choosy)
    }

    /// There is something up to here that only the ledger tells.
    fn call(&self, position: Position) {
        lock(&self.inbox).dropped_through = position;
        self.wake.notify_one();
    }

    /// Takes the content out of erased events that are kept here.
    pub fn forget_content(&self, positions: &BTreeSet<Position>) {
        for event in &mut lock(&self.inbox).offered {
            if positions.contains(&event.position) {
                *event = without_content(event);
            }
        }
        self.dispatcher().forget_content(positions);
        self.wake.notify_waiters();
    }

    /// Takes a definition that changes limits only: what is out stays out, under its token. False: it chooses otherwise, and the
    /// group has to begin again.
    pub fn redefine(&self, definition: &Definition) -> bool {
        let mut dispatcher = self.dispatcher();
        if !dispatcher.group.definition.chooses_like(definition) {
            return false;
        }
        dispatcher.group.definition = definition.clone();
        drop(dispatcher);
        self.wake.notify_waiters();
        self.freed.notify_waiters();
        true
    }

    /// Begins again from the durable half; tokens handed out before are stale.
    pub fn restart(&self, group: Group, epoch: u64) -> Result<(), Problem> {
        let matcher = Matcher::new(&group.definition)?;
        let mut dispatcher = self.dispatcher();
        let before = std::mem::replace(&mut *dispatcher, Dispatcher::new(group, matcher, epoch));
        dispatcher.inherit(before);
        drop(dispatcher);
        self.wake.notify_waiters();
        Ok(())
    }

    /// Looks at what is new up to `visible`. `read(from, to)` fetches events from the ledger, a chunk at a time, and says
    /// how far it came; it is asked only when the inbox does not hold everything. True: there is more to look at, come again.
    pub fn intake(
        &self,
        dispatcher: &mut Dispatcher,
        visible: Position,
        mut read: impl FnMut(Position, Position) -> Result<(Vec<Arc<Event>>, Position), Problem>,
    ) -> Result<bool, Problem> {
        // `visible` was read before the inbox is emptied, and the writer offers before it raises `visible`: whatever is
        // at or below it and matches has been offered.
        let (offered, dropped) = {
            let mut inbox = lock(&self.inbox);
            (std::mem::take(&mut inbox.offered), inbox.dropped_through)
        };
        let newest = offered.back().map_or(0, |event| event.position);
        let first = offered.front().map_or(newest, |event| event.position);
        let complete = dropped <= dispatcher.scanned && dispatcher.is_live_from(first);
        if complete {
            offered.iter().for_each(|event| dispatcher.look_at(event));
            dispatcher.live_through(visible.max(newest));
            return Ok(false);
        }
        let target = visible.max(newest).max(dropped);
        dispatcher.behind(target);
        for _ in 0..CHUNKS_MAX {
            if dispatcher.scanned >= dispatcher.scan_to || !dispatcher.wants_more() {
                return Ok(false);
            }
            let (events, through) = read(dispatcher.scanned + 1, dispatcher.scan_to)?;
            events.iter().for_each(|event| dispatcher.look_at(event));
            dispatcher.looked_through(through);
        }
        Ok(dispatcher.scanned < dispatcher.scan_to)
    }
}

fn without_content(event: &Event) -> Arc<Event> {
    Arc::new(Event { content: Content::Erased, ..event.clone() })
}

/// All groups of a tenant, and the index from topics to them.
#[derive(Default)]
pub struct Registry {
    by_name: BTreeMap<String, u32>,
    handles: Vec<Option<Arc<GroupHandle>>>,
    trie: Trie<u32>,
    definitions: BTreeMap<u32, Definition>,
    /// Groups that take what is told of runs.
    hear_runs: BTreeSet<u32>,
    /// Groups that a publish must not outrun: few or none, and every publish asks.
    watched: BTreeSet<u32>,
    hits: Vec<u32>,
}

impl Registry {
    pub fn get(&self, name: &str) -> Option<Arc<GroupHandle>> {
        self.handles[*self.by_name.get(name)? as usize].clone()
    }

    pub fn all(&self) -> Vec<Arc<GroupHandle>> {
        self.by_name.values().filter_map(|slot| self.handles[*slot as usize].clone()).collect()
    }

    /// Groups that a publish to this topic must not outrun, with their limits.
    pub fn watched(&self, topic: &str) -> Vec<(Arc<GroupHandle>, Definition)> {
        let watched = self.watched.iter().filter_map(|slot| Some((slot, self.definitions.get(slot)?)));
        let concerned = watched.filter(|(_, d)| d.patterns.iter().any(|pattern| pattern.receives(topic)));
        concerned.filter_map(|(slot, d)| Some((self.handles[*slot as usize].clone()?, d.clone()))).collect()
    }

    pub fn put(&mut self, handle: Arc<GroupHandle>, definition: &Definition) {
        let slot = self.slot_of(&handle.name);
        self.unfile(slot);
        for pattern in &definition.patterns {
            self.trie.insert(pattern, slot);
        }
        if definition.patterns.iter().any(crate::lifecycle::names_runs) {
            self.hear_runs.insert(slot);
        }
        if definition.lag_action != LagAction::Keep {
            self.watched.insert(slot);
        }
        self.definitions.insert(slot, definition.clone());
        self.handles[slot as usize] = Some(handle);
    }

    pub fn remove(&mut self, name: &str) {
        let Some(slot) = self.by_name.remove(name) else { return };
        self.unfile(slot);
        if let Some(handle) = self.handles[slot as usize].take() {
            handle.wake.notify_waiters();
        }
    }

    /// Offers a new event to every group whose pattern it meets.
    pub fn route(&mut self, event: &Arc<Event>) {
        if self.by_name.is_empty() {
            return;
        }
        self.hits.clear();
        self.trie.receivers(&event.envelope.topic, &mut self.hits);
        for slot in &self.hits {
            if let Some(handle) = &self.handles[*slot as usize] {
                handle.offer(event);
            }
        }
    }

    /// A record of a run: who takes what is told of runs comes to read it.
    pub fn call(&self, position: Position) {
        let handles = self.hear_runs.iter().filter_map(|slot| self.handles[*slot as usize].as_ref());
        handles.for_each(|handle| handle.call(position));
    }

    fn slot_of(&mut self, name: &str) -> u32 {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let free = self.handles.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.handles.push(None);
            self.handles.len() - 1
        }) as u32;
        self.by_name.insert(name.to_owned(), slot);
        slot
    }

    fn unfile(&mut self, slot: u32) {
        self.hear_runs.remove(&slot);
        self.watched.remove(&slot);
        if let Some(definition) = self.definitions.remove(&slot) {
            for pattern in &definition.patterns {
                self.trie.remove(pattern, slot);
            }
        }
    }
}
