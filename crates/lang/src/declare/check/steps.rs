//! Blocks of steps: names that differ, references that are found, an order in which each is bound before it is read.

use std::collections::BTreeSet;

use model::Code;
use model::definition::{self, Kind};

use super::Checker;
use super::scope::Scope;
use crate::declare::finding::fault;
use crate::declare::tree::{Action, Item, Step, Word};

impl Checker<'_> {
    pub(super) fn logic(&mut self, item: &Item, steps: &[Step]) -> Option<definition::Logic> {
        let description = self.notes(item, "logic", &["public"]);
        let args = self.names.args(Kind::Logic, &item.name.text).cloned().unwrap_or_default();
        let mut scope = Scope::logic(args.clone());
        self.caller = Some(item.name.text.clone());
        let steps = self.block(steps, &mut scope);
        self.caller = None;
        Some(definition::Logic { name: item.name.text.clone(), description, args, steps })
    }

    pub(super) fn block(&mut self, steps: &[Step], scope: &mut Scope) -> Vec<definition::Step> {
        self.block_with_refs(steps, scope, &mut Vec::new())
    }

    /// Checks the steps of a block; `outer` gets the names that they refer to.
    pub(super) fn block_with_refs(
        &mut self,
        steps: &[Step],
        scope: &mut Scope,
        outer: &mut Vec<String>,
    ) -> Vec<definition::Step> {
        let depth = scope.names.len();
        let binds: Vec<BTreeSet<String>> = steps.iter().map(bound).collect();
        self.step_names(steps, &binds, scope);
        scope.names.extend(binds.iter().flatten().cloned());
        let mut made = Vec::new();
        let mut reads = Vec::new();
        for step in steps {
            let mut refs = Vec::new();
            made.push(self.step(step, scope, &mut refs));
            outer.extend(refs.iter().cloned());
            reads.push(refs);
        }
        scope.names.truncate(depth);
        let order = self.order(steps, &binds, &reads);
        let mut made: Vec<Option<Vec<definition::Step>>> = made.into_iter().map(Some).collect();
        order.into_iter().filter_map(|at| made[at].take()).flatten().collect()
    }

    fn step_names(&mut self, steps: &[Step], binds: &[BTreeSet<String>], scope: &Scope) {
        for (at, step) in steps.iter().enumerate() {
            let Some(id) = &step.id else { continue };
            if scope.roots.contains(&id.text)
                || matches!(id.text.as_str(), "true" | "false" | "null" | "in" | "secrets")
            {
                let what = format!("the name {:?} is reserved", id.text);
                self.error(fault(Code::DefinitionReserved, id.span, what).hint("choose another name"));
            }
            if binds[..at].iter().any(|earlier| earlier.contains(&id.text)) {
                let what = format!("the step {:?} is there twice", id.text);
                self.error(fault(Code::DefinitionDuplicate, id.span, what).hint("choose another name"));
            }
        }
    }

    /// The written order, except where a reference forces another. Members of a cycle are named.
    fn order(&mut self, steps: &[Step], binds: &[BTreeSet<String>], reads: &[Vec<String>]) -> Vec<usize> {
        let needs: Vec<Vec<usize>> = reads
            .iter()
            .enumerate()
            .map(|(at, refs)| {
                let own = steps[at].id.as_ref().map(|id| id.text.as_str());
                let needed = |other: &usize| {
                    let other = *other;
                    // What a block binds inside itself is its own affair; its own name is not bound yet.
                    let by =
                        |name: &String| binds[other].contains(name) && (other != at || own == Some(name));
                    refs.iter().any(by)
                };
                (0..steps.len()).filter(needed).collect()
            })
            .collect();
        let mut placed = vec![false; steps.len()];
        let mut order = Vec::with_capacity(steps.len());
        while order.len() < steps.len() {
            let ready = |at: &usize| !placed[*at] && needs[*at].iter().all(|need| placed[*need]);
            match (0..steps.len()).find(ready) {
                Some(at) => {
                    placed[at] = true;
                    order.push(at);
                }
                None => {
                    self.step_cycle(steps, &needs, &placed);
                    order.extend((0..steps.len()).filter(|at| !placed[*at]));
                }
            }
        }
        order
    }

    fn step_cycle(&mut self, steps: &[Step], needs: &[Vec<usize>], placed: &[bool]) {
        let Some(start) = placed.iter().position(|placed| !placed) else { return };
        // Each open step needs another open one, so going on must come round.
        let mut way = vec![start];
        let from = loop {
            let last = way[way.len() - 1];
            let Some(next) = needs[last].iter().copied().find(|need| !placed[*need]) else { return };
            if let Some(from) = way.iter().position(|seen| *seen == next) {
                break from;
            }
            way.push(next);
        };
        let name = |at: &usize| match &steps[*at].id {
            Some(Word { text, .. }) => text.clone(),
            None => "(unnamed)".to_owned(),
        };
        let mut members: Vec<String> = way[from..].iter().map(name).collect();
        members.push(members[0].clone());
        let what = format!("steps wait for each other: {}", members.join(" → "));
        let step = &steps[way[from]];
        let span = step.id.as_ref().map_or(step.span, |id| id.span);
        self.error(fault(Code::DefinitionCycle, span, what).hint("one of them must not read the others"));
    }
}

/// The names that a step binds for the steps around it. What a loop binds is its own, once a round.
fn bound(step: &Step) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = step.id.iter().map(|id| id.text.clone()).collect();
    let mut below = |steps: &[Step]| steps.iter().for_each(|step| names.extend(bound(step)));
    match &step.action {
        Action::If { then, otherwise, .. } => {
            below(then);
            below(otherwise);
        }
        Action::Switch { cases, default, .. } => {
            cases.iter().for_each(|(_, steps)| below(steps));
            below(default);
        }
        Action::Parallel { branches, .. } => branches.iter().for_each(|(_, steps)| below(steps)),
        Action::Atomic(steps) => below(steps),
        _ => {}
    }
    names
}
