//! Numbers for words, so that an edge of the trie is a pair of numbers.

use std::collections::HashMap;

/// Every literal word of a pattern with wildcards, numbered, so that an edge is a pair of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Lexicon {
    ids: HashMap<Box<str>, u32>,
    holders: Vec<u32>,
    free: Vec<u32>,
}

impl Lexicon {
    pub(super) fn find(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    pub(super) fn hold(&mut self, word: &str) -> u32 {
        let id = self.find(word).unwrap_or_else(|| {
            let id = self.free.pop().unwrap_or(self.holders.len() as u32);
            if id as usize == self.holders.len() {
                self.holders.push(0);
            }
            self.ids.insert(word.into(), id);
            id
        });
        self.holders[id as usize] += 1;
        id
    }

    pub(super) fn release(&mut self, word: &str) -> u32 {
        let id = self.find(word).expect("a literal edge on the path has its word here");
        self.holders[id as usize] -= 1;
        if self.holders[id as usize] == 0 {
            self.ids.remove(word);
            self.free.push(id);
        }
        id
    }
}
