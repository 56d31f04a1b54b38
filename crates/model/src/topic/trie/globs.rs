//! The in-word globs that leave one node of the trie.

use std::collections::HashMap;

use crate::topic::glob::{Glob, holds_in_order};

/// The in-word globs of one node, found by their literal ends: one look per pair of end lengths in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Globs {
    buckets: HashMap<Box<str>, Vec<(Glob, u32)>>,
    /// Pairs of prefix and suffix length in use, and by how many globs.
    lengths: Vec<(usize, usize, usize)>,
}

impl Globs {
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    pub(super) fn each(&self, word: &str, mut found: impl FnMut(u32)) {
        let mut key = String::new();
        for &(prefix, suffix, _) in &self.lengths {
            let Some(inner) = word.len().checked_sub(prefix + suffix) else { continue };
            let (Some(head), Some(tail)) = (word.get(..prefix), word.get(prefix + inner..)) else { continue };
            write_key(&mut key, head, tail);
            for (glob, child) in self.buckets.get(key.as_str()).into_iter().flatten() {
                if holds_in_order(&glob.middle, &word[prefix..prefix + inner]) {
                    found(*child);
                }
            }
        }
    }

    pub(super) fn get(&self, glob: &Glob) -> Option<u32> {
        let bucket = self.buckets.get(key_of(glob).as_str())?;
        bucket.iter().find(|(known, _)| known == glob).map(|(_, child)| *child)
    }

    pub(super) fn insert(&mut self, glob: &Glob, child: u32) {
        self.buckets.entry(key_of(glob).into()).or_default().push((glob.clone(), child));
        let (prefix, suffix) = (glob.prefix.len(), glob.suffix.len());
        match self.lengths.iter_mut().find(|l| (l.0, l.1) == (prefix, suffix)) {
            Some(length) => length.2 += 1,
            None => self.lengths.push((prefix, suffix, 1)),
        }
    }

    pub(super) fn remove(&mut self, glob: &Glob) {
        let key = key_of(glob);
        if let Some(bucket) = self.buckets.get_mut(key.as_str()) {
            bucket.retain(|(known, _)| known != glob);
            if bucket.is_empty() {
                self.buckets.remove(key.as_str());
            }
        }
        let (prefix, suffix) = (glob.prefix.len(), glob.suffix.len());
        self.lengths.iter_mut().filter(|l| (l.0, l.1) == (prefix, suffix)).for_each(|l| l.2 -= 1);
        self.lengths.retain(|l| l.2 > 0);
    }
}

/// Both literal ends as one key; no end holds a `*`.
fn key_of(glob: &Glob) -> String {
    let mut key = String::new();
    write_key(&mut key, &glob.prefix, &glob.suffix);
    key
}

fn write_key(key: &mut String, prefix: &str, suffix: &str) {
    key.clear();
    key.push_str(prefix);
    key.push('*');
    key.push_str(suffix);
}
