//! All patterns at once: finds whom a topic concerns at a cost that hardly depends on how many patterns
//! there are.
//!
//! ```text
//!  root ──order──▶ 1 ──created──▶ 2  {a}        order.created
//!                  └────#───────▶ 3  {b}  ↺     order.#          ↺ stays on every further word
//!                  └──v1:*──▶ 4       {c}       order.v1:*
//! ```
//! Patterns without wildcards are found by one look at the whole topic. For the others the topic walks the
//! set of nodes that its words so far can reach, as an automaton does; each node is in the set once, so a
//! pattern such as `#.a.#.b.#` costs its length per word and never more. What makes a hundred thousand
//! patterns slow is memory, not steps: literal edges lie in one flat table, a byte per node says whether
//! anything else is there, and a single value stands where it is found.

use std::collections::HashMap;

use super::{Pattern, Word, is_engine, is_house, words};

mod edges;
mod few;
mod globs;
mod lexicon;

use edges::Edges;
use few::Few;
use globs::Globs;
use lexicon::Lexicon;

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// Marks of a node: which of its parts are worth a look.
const HAS_WILD: u8 = 1;
const HAS_VALUES: u8 = 2;
const STAYS: u8 = 4;

/// Values filed under patterns. A value may stand under several patterns and is found once.
#[derive(Clone, Debug)]
pub struct Trie<T> {
    /// Patterns without wildcards, by their text.
    exact: HashMap<Box<str>, Few<T>>,
    lexicon: Lexicon,
    edges: Edges,
    marks: Vec<u8>,
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node<T> {
    one: u32,
    many: u32,
    globs: Option<Box<Globs>>,
    children: u32,
    values: Few<T>,
}

impl<T> Node<T> {
    fn new() -> Node<T> {
        Node { one: NONE, many: NONE, globs: None, children: 0, values: Few::None }
    }
}

impl<T: Copy + Ord> Default for Trie<T> {
    fn default() -> Self {
        Trie {
            exact: HashMap::new(),
            lexicon: Lexicon::default(),
            edges: Edges::default(),
            marks: vec![0],
            nodes: vec![Node::new()],
            free: Vec::new(),
        }
    }
}

impl<T: Copy + Ord> Trie<T> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Files `value` under `pattern`; false when it stood there already.
    pub fn insert(&mut self, pattern: &Pattern, value: T) -> bool {
        if pattern.is_literal() {
            return self.exact.entry(pattern.text.as_str().into()).or_insert(Few::None).insert(value);
        }
        let mut at = ROOT;
        for word in &pattern.words {
            at = self.child_or_new(at, word);
        }
        self.marks[at as usize] |= HAS_VALUES;
        self.nodes[at as usize].values.insert(value)
    }

    /// Takes `value` away from `pattern`; false when it did not stand there. Nodes that lead nowhere go too.
    pub fn remove(&mut self, pattern: &Pattern, value: T) -> bool {
        if pattern.is_literal() {
            return self.remove_exact(&pattern.text, value);
        }
        let mut path = vec![ROOT];
        for word in &pattern.words {
            match self.child(path[path.len() - 1], word) {
                Some(next) => path.push(next),
                None => return false,
            }
        }
        let last = path[path.len() - 1] as usize;
        if !self.nodes[last].values.remove(value) {
            return false;
        }
        if self.nodes[last].values.is_empty() {
            self.marks[last] &= !HAS_VALUES;
        }
        self.prune(&path, &pattern.words);
        true
    }

    fn remove_exact(&mut self, text: &str, value: T) -> bool {
        let Some(values) = self.exact.get_mut(text) else { return false };
        let removed = values.remove(value);
        if values.is_empty() {
            self.exact.remove(text);
        }
        removed
    }

    /// Adds to `out` the values of all patterns that match, each once and in order. The bare matcher, as
    /// [`Pattern::matches`].
    pub fn matches(&self, topic: &str, out: &mut Vec<T>) {
        self.walk(topic, true, out);
    }

    /// Adds to `out` the values that an event with this topic reaches, as [`Pattern::receives`].
    pub fn receivers(&self, topic: &str, out: &mut Vec<T>) {
        if is_house(topic) {
            out.extend(self.exact.get(topic).into_iter().flat_map(Few::as_slice));
            return;
        }
        self.walk(topic, !is_engine(topic), out);
    }

    /// Whether no value is filed.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && !self.has_wild()
    }

    fn has_wild(&self) -> bool {
        let root = &self.nodes[ROOT as usize];
        root.children > 0 || !root.values.is_empty()
    }

    fn walk(&self, topic: &str, wild_first: bool, out: &mut Vec<T>) {
        let (from, mut lists) = (out.len(), 0);
        if let Some(values) = self.exact.get(topic)
            && !words(topic).any(str::is_empty)
        {
            out.extend_from_slice(values.as_slice());
            lists += 1;
        }
        lists += self.walk_wild(topic, wild_first, out);
        if lists > 1 {
            sort_from(out, from);
        }
    }

    /// The patterns with wildcards; gives how many nodes had values.
    fn walk_wild(&self, topic: &str, wild_first: bool, out: &mut Vec<T>) -> usize {
        if !self.has_wild() {
            return 0;
        }
        let (mut here, mut next) = (Vec::with_capacity(8), Vec::with_capacity(8));
        if wild_first {
            self.enter(ROOT, &mut here);
        } else {
            here.push(ROOT);
        }
        let mut first = true;
        for word in words(topic) {
            if word.is_empty() || here.is_empty() {
                return 0;
            }
            let id = self.lexicon.find(word);
            for &node in &here {
                self.step(node, word, id, wild_first || !first, &mut next);
            }
            // Only a node after `#` can be reached twice: from itself and from its parent.
            next.sort_unstable();
            next.dedup();
            std::mem::swap(&mut here, &mut next);
            next.clear();
            first = false;
        }
        self.collect(&here, out)
    }

    fn step(&self, node: u32, word: &str, id: Option<u32>, wild: bool, next: &mut Vec<u32>) {
        if let Some(child) = id.and_then(|id| self.edges.get(node, id)) {
            self.enter(child, next);
        }
        let mark = self.marks[node as usize];
        if mark & STAYS != 0 {
            self.enter(node, next);
        }
        if mark & HAS_WILD != 0 && wild {
            let node = &self.nodes[node as usize];
            if node.one != NONE {
                self.enter(node.one, next);
            }
            if let Some(globs) = &node.globs {
                globs.each(word, |child| self.enter(child, next));
            }
        }
    }

    /// Adds a node and, since `#` may take no word at all, the one after its `#`.
    fn enter(&self, node: u32, set: &mut Vec<u32>) {
        set.push(node);
        if self.marks[node as usize] & HAS_WILD != 0 {
            let many = self.nodes[node as usize].many;
            if many != NONE {
                set.push(many);
                // In normal form nothing but a literal or a glob follows `#`, so this ends here.
            }
        }
    }

    fn collect(&self, nodes: &[u32], out: &mut Vec<T>) -> usize {
        let mut lists = 0;
        for &node in nodes {
            if self.marks[node as usize] & HAS_VALUES != 0 {
                out.extend_from_slice(self.nodes[node as usize].values.as_slice());
                lists += 1;
            }
        }
        lists
    }

    fn child(&self, node: u32, word: &Word) -> Option<u32> {
        let at = &self.nodes[node as usize];
        let known = |id: u32| (id != NONE).then_some(id);
        match word {
            Word::Literal(text) => self.edges.get(node, self.lexicon.find(text)?),
            Word::Glob(glob) => at.globs.as_ref()?.get(glob),
            Word::One => known(at.one),
            Word::Many => known(at.many),
        }
    }

    fn child_or_new(&mut self, node: u32, word: &Word) -> u32 {
        if let Some(child) = self.child(node, word) {
            return child;
        }
        let child = self.new_node();
        let at = &mut self.nodes[node as usize];
        at.children += 1;
        match word {
            Word::Literal(text) => {
                self.edges.insert(node, self.lexicon.hold(text), child);
                return child;
            }
            Word::Glob(glob) => at.globs.get_or_insert_default().insert(glob, child),
            Word::One => at.one = child,
            Word::Many => {
                at.many = child;
                self.marks[child as usize] |= STAYS;
            }
        }
        self.marks[node as usize] |= HAS_WILD;
        child
    }

    fn new_node(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        let id = u32::try_from(self.nodes.len()).expect("fewer than 2^32 pattern words fit in memory");
        self.nodes.push(Node::new());
        self.marks.push(0);
        id
    }

    /// Gives back the nodes at the end of `path` that neither hold a value nor lead on.
    fn prune(&mut self, path: &[u32], words: &[Word]) {
        for (depth, word) in words.iter().enumerate().rev() {
            let (node, child) = (path[depth], path[depth + 1]);
            let empty = &self.nodes[child as usize];
            if empty.children > 0 || !empty.values.is_empty() {
                return;
            }
            self.nodes[child as usize] = Node::new();
            self.marks[child as usize] = 0;
            self.free.push(child);
            self.cut(node, word);
        }
    }

    fn cut(&mut self, node: u32, word: &Word) {
        let at = &mut self.nodes[node as usize];
        at.children -= 1;
        match word {
            Word::Literal(text) => {
                let id = self.lexicon.release(text);
                self.edges.remove(node, id);
            }
            Word::Glob(glob) => {
                let globs = at.globs.as_mut().expect("a glob edge on the path is in the node");
                globs.remove(glob);
                if globs.is_empty() {
                    at.globs = None;
                }
            }
            Word::One => at.one = NONE,
            Word::Many => at.many = NONE,
        }
        if at.one == NONE && at.many == NONE && at.globs.is_none() {
            self.marks[node as usize] &= !HAS_WILD;
        }
    }
}

/// Sorts what was added after `from` and keeps each value once.
fn sort_from<T: Copy + Ord>(out: &mut Vec<T>, from: usize) {
    out[from..].sort_unstable();
    let mut kept = from;
    for at in from..out.len() {
        if at == from || out[at] != out[kept - 1] {
            out[kept] = out[at];
            kept += 1;
        }
    }
    out.truncate(kept);
}
