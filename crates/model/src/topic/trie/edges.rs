//! The literal edges of the trie, (node, word) → child, in one flat table: a look touches one line of memory.

/// Open addressing with linear probing. A slot whose child is [`FREE`] ends a run; removal closes the gap
/// it leaves, so runs never hold dead slots. At most five eighths full.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    node: u32,
    word: u32,
    child: u32,
}

const FREE: u32 = u32::MAX;
const EMPTY: Slot = Slot { node: 0, word: 0, child: FREE };

impl Edges {
    pub(super) fn get(&self, node: u32, word: u32) -> Option<u32> {
        let slot = self.slots.get(self.find(node, word)?)?;
        (slot.child != FREE).then_some(slot.child)
    }

    /// Adds an edge that is not there yet.
    pub(super) fn insert(&mut self, node: u32, word: u32, child: u32) {
        if (self.used + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        if let Some(at) = self.find(node, word) {
            self.slots[at] = Slot { node, word, child };
            self.used += 1;
        }
    }

    pub(super) fn remove(&mut self, node: u32, word: u32) {
        let Some(mut gap) = self.find(node, word).filter(|at| self.slots[*at].child != FREE) else { return };
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.child == FREE {
                break;
            }
            // A slot may move back to the gap unless its own place lies after the gap.
            let home = hash(slot.node, slot.word) & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
        self.used -= 1;
    }

    /// Where the edge is, or the free slot where it would go; `None` only for a table without slots.
    fn find(&self, node: u32, word: u32) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash(node, word) & mask;
        loop {
            let slot = &self.slots[at];
            if slot.child == FREE || (slot.node == node && slot.word == word) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; (self.slots.len() * 2).max(16)];
        let old = std::mem::replace(&mut self.slots, larger);
        self.used = 0;
        for slot in old.into_iter().filter(|slot| slot.child != FREE) {
            self.insert(slot.node, slot.word, slot.child);
        }
    }
}

/// The numbers are ours, not a client's, so nothing is gained by a keyed hash.
fn hash(node: u32, word: u32) -> usize {
    let pair = u64::from(node) << 32 | u64::from(word);
    let mixed = (pair ^ pair >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32) as usize
}
