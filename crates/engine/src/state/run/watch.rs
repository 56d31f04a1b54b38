//! Waits by the rows that they look at (rules R12). A change tests those that name its row in its own commit, as long as they
//! are few. The rest of a crowd, and those that look at all rows of a kind or at anything, are only marked by a change and
//! tested in turn, from the ready queue: a value that holds for a moment may pass them by, one that stays may not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::run::WaitId;

/// Waits on one row that are tested in the commit that changed it.
pub const AT_ONCE_MAX: usize = 1_000;

/// The key of those that may look at anything.
const ANYTHING: &str = "*";
/// The key of those that read time: when each is to be tried follows from the rows, and is not known after a start.
const TIMED: &str = "@";

#[derive(Default)]
pub struct Watch {
    /// By `concept/id`.
    at_once: HashMap<Box<str>, Vec<WaitId>>,
    /// By `concept/id` the rest of a crowd, by `concept/*` those on a kind, by `*` those on anything.
    in_turn: HashMap<Box<str>, BTreeSet<WaitId>>,
    /// Keys of `in_turn` whose waits are to be tested.
    marked: BTreeMap<Box<str>, Pass>,
}

/// How far the tests of one key have come.
#[derive(Default)]
struct Pass {
    last: Option<WaitId>,
    /// Something changed since it began.
    again: bool,
}

impl Watch {
    pub fn insert(&mut self, id: WaitId, refs: &[String], indeterminate: bool) {
        for row in refs {
            let named = !row.ends_with("/*");
            let few = self.at_once.get(row.as_str()).map_or(0, Vec::len) < AT_ONCE_MAX;
            if named && few {
                self.at_once.entry(row.as_str().into()).or_default().push(id);
            } else {
                self.in_turn.entry(row.as_str().into()).or_default().insert(id);
            }
        }
        if indeterminate {
            self.in_turn.entry(ANYTHING.into()).or_default().insert(id);
        }
    }

    pub fn insert_timed(&mut self, id: WaitId) {
        self.in_turn.entry(TIMED.into()).or_default().insert(id);
    }

    pub fn remove(&mut self, id: WaitId, refs: &[String]) {
        for key in refs.iter().map(String::as_str).chain([ANYTHING, TIMED]) {
            if let Some(waits) = self.at_once.get_mut(key) {
                waits.retain(|other| *other != id);
                if waits.is_empty() {
                    self.at_once.remove(key);
                }
            }
            if let Some(waits) = self.in_turn.get_mut(key) {
                waits.remove(&id);
                if waits.is_empty() {
                    self.in_turn.remove(key);
                    self.marked.remove(key);
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty() && self.in_turn.is_empty()
    }

    /// A row changed: those to be tested now, in the order of their runs; the others are marked.
    pub fn changed(&mut self, concept: &str, id: &str) -> Vec<WaitId> {
        let row = format!("{concept}/{id}");
        self.mark(&row);
        self.mark(&format!("{concept}/*"));
        self.mark(ANYTHING);
        let mut now = self.at_once.get(row.as_str()).cloned().unwrap_or_default();
        now.sort_unstable();
        now
    }

    fn mark(&mut self, key: &str) {
        if self.in_turn.contains_key(key) {
            let pass = self.marked.entry(key.into()).or_default();
            pass.again = pass.last.is_some();
        }
    }

    /// What changed while nobody looked is not known: after a start all are tested.
    pub fn mark_all(&mut self) {
        self.marked = self.in_turn.keys().map(|key| (key.clone(), Pass::default())).collect();
    }

    pub fn has_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// The next one to be tested.
    pub fn next_marked(&mut self) -> Option<WaitId> {
        loop {
            let mut first = self.marked.first_entry()?;
            let after = first.get().last.map_or((0, 0), |(run, wait)| (run, wait + 1));
            let next = self.in_turn.get(first.key()).and_then(|waits| waits.range(after..).next());
            match next {
                Some(id) => {
                    first.get_mut().last = Some(*id);
                    return Some(*id);
                }
                None if first.get().again => *first.get_mut() = Pass::default(),
                None => _ = first.remove(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_marked(watch: &mut Watch) -> Vec<WaitId> {
        std::iter::from_fn(|| watch.next_marked()).collect()
    }

    #[test]
    fn a_row_that_few_look_at_has_them_tested_at_once() {
        let mut watch = Watch::default();
        watch.insert((2, 1), &["a/1".to_owned(), "a/2".to_owned()], false);
        watch.insert((1, 1), &["a/1".to_owned()], false);
        assert_eq!(watch.changed("a", "1"), [(1, 1), (2, 1)]);
        assert_eq!(watch.changed("a", "3"), []);
        assert!(!watch.has_marked());
        watch.remove((2, 1), &["a/1".to_owned(), "a/2".to_owned()]);
        assert_eq!(watch.changed("a", "1"), [(1, 1)]);
        watch.remove((1, 1), &["a/1".to_owned()]);
        assert!(watch.is_empty());
    }

    #[test]
    fn the_rest_of_a_crowd_those_on_a_kind_and_those_on_anything_are_tested_in_turn() {
        let mut watch = Watch::default();
        for run in 0..AT_ONCE_MAX as u64 + 2 {
            watch.insert((run, 1), &["a/1".to_owned()], false);
        }
        watch.insert((5_000, 1), &["a/*".to_owned()], false);
        watch.insert((6_000, 1), &[], true);
        assert_eq!(watch.changed("a", "1").len(), AT_ONCE_MAX);
        assert_eq!(all_marked(&mut watch), [(6_000, 1), (5_000, 1), (1_000, 1), (1_001, 1)]);
        assert!(!watch.has_marked());
        assert!(watch.changed("b", "1").is_empty());
        assert_eq!(all_marked(&mut watch), [(6_000, 1)]);
    }

    #[test]
    fn a_change_during_a_pass_has_all_tested_again() {
        let mut watch = Watch::default();
        (1..=3).for_each(|run| watch.insert((run, 1), &["a/*".to_owned()], false));
        watch.changed("a", "x");
        assert_eq!(watch.next_marked(), Some((1, 1)));
        watch.changed("a", "y");
        assert_eq!(all_marked(&mut watch), [(2, 1), (3, 1), (1, 1), (2, 1), (3, 1)]);
        watch.mark_all();
        watch.remove((2, 1), &["a/*".to_owned()]);
        assert_eq!(all_marked(&mut watch), [(1, 1), (3, 1)]);
    }
}
