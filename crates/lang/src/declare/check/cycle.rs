//! What must not go round: imports of modules, and logic that calls logic.

use std::collections::BTreeMap;

use model::Code;

use super::Checker;
use crate::declare::finding::fault;
use crate::expr::Span;

pub(super) struct CallEdge {
    pub(super) file: usize,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) span: Span,
}

impl Checker<'_> {
    pub(super) fn import_cycles(&mut self) {
        let mut edges = Vec::new();
        for (file, source) in self.sources.iter().enumerate() {
            for import in &source.file.uses {
                let (from, to) = (source.module.clone(), import.module.text.clone());
                edges.push(CallEdge { file, from, to, span: import.module.span });
            }
        }
        self.cycles(&edges, "modules import each other", "move what both need into a third module");
    }

    pub(super) fn call_cycles(&mut self) {
        let edges = std::mem::take(&mut self.calls);
        self.cycles(&edges, "logic calls itself", "logic is a function call that must end; use a loop");
    }

    /// One finding per cycle, at the edge that closes it.
    fn cycles(&mut self, edges: &[CallEdge], what: &str, hint: &str) {
        let mut state: BTreeMap<&str, bool> = BTreeMap::new();
        let mut roots: Vec<&str> = edges.iter().map(|edge| edge.from.as_str()).collect();
        roots.sort_unstable();
        roots.dedup();
        let mut by_from: BTreeMap<&str, Vec<&CallEdge>> = BTreeMap::new();
        for edge in edges {
            let others = by_from.entry(&edge.from).or_default();
            if !others.iter().any(|other| other.to == edge.to) {
                others.push(edge);
            }
        }
        for root in roots {
            if state.contains_key(root) {
                continue;
            }
            // The way down, with the next edge to try at each node. No recursion: chains may be long.
            let mut way: Vec<(&str, usize)> = vec![(root, 0)];
            state.insert(root, true);
            while let Some((node, next)) = way.last_mut() {
                let node: &str = node;
                let Some(edge) = by_from.get(node).and_then(|edges| edges.get(*next)) else {
                    state.insert(node, false);
                    way.pop();
                    continue;
                };
                *next += 1;
                match state.get(edge.to.as_str()) {
                    None => {
                        state.insert(&edge.to, true);
                        way.push((&edge.to, 0));
                    }
                    Some(true) => {
                        let start = way.iter().position(|(node, _)| *node == edge.to).unwrap_or(0);
                        let members: Vec<&str> = way[start..].iter().map(|(node, _)| *node).collect();
                        let path = format!("{} → {}", members.join(" → "), edge.to);
                        self.at = edge.file;
                        let found = fault(Code::DefinitionCycle, edge.span, format!("{what}: {path}"));
                        self.error(found.hint(hint));
                    }
                    Some(false) => {}
                }
            }
        }
    }
}
