//! Checks automations: triggers whose concepts exist, ids that differ, filters that can be true and say something.

use model::Code;
use model::definition::{self, Filter, Kind, TriggerKind};
use model::json::canonical_hash;

use super::Checker;
use super::against;
use super::expr::{field_at, owned};
use super::scope::Scope;
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Item, Trigger, Word};
use crate::declare::walk::path;
use crate::expr::Span;
use crate::expr::ast::{Kind as NodeKind, Node};

/// What the payload of a change has beside the fields of the row (contracts §10).
const CHANGE: [&str; 17] = [
    "id",
    "nodeId",
    "concept",
    "kind",
    "nodeType",
    "partition",
    "actor",
    "createdAt",
    "occurredAt",
    "prev",
    "next",
    "delta",
    "changed_fields",
    "changedFields",
    "provenance",
    "payload",
    "type",
];

impl Checker<'_> {
    pub(super) fn automation(
        &mut self,
        item: &Item,
        tree: &tree::Automation,
    ) -> Option<definition::Automation> {
        let mut made = tree.head.clone();
        made.name = item.name.text.clone();
        made.args = self.names.args(Kind::Automation, &item.name.text).cloned().unwrap_or_default();
        for trigger in &tree.triggers {
            let trigger_made = self.trigger(trigger, &Scope::of(&["event", "topic", "payload", "subject"]));
            if made.triggers.iter().any(|other: &definition::Trigger| other.id == trigger_made.id) {
                let what = format!("two triggers are called {:?}", trigger_made.id);
                let hint = "give them different ids, or remove one";
                self.error(fault(Code::DefinitionDuplicate, trigger.span, what).hint(hint));
            }
            made.triggers.push(trigger_made);
        }
        let mut scope = Scope::automation();
        if !made.args.is_empty() {
            let mut args = made.args.clone();
            args.push(definition::Field { name: "event".to_owned(), ..definition::Field::default() });
            scope.args = Some(args);
        }
        let keys = Scope::of(&["event", "topic", "payload", "subject", "trigger", "input"]);
        for node in &tree.keys {
            self.expr(node, &keys);
        }
        let mut refs = Vec::new();
        made.conditions = tree.conditions.iter().map(|one| self.condition(one, &scope, &mut refs)).collect();
        made.steps = self.block(&tree.steps, &mut scope);
        Some(made)
    }

    /// `scope` is what its filter may read; keys and lengths of its gates also know the trigger.
    pub(super) fn trigger(&mut self, trigger: &Trigger, scope: &Scope) -> definition::Trigger {
        for concept in &trigger.concepts {
            self.trigger_concept(concept);
        }
        for word in &trigger.ignored {
            let what = format!("{:?} is accepted and ignored: the trigger hears every space", word.text);
            let hint = "remove it; to hear one space alone add a filter: event.space == \"…\"";
            self.warn(fault(Code::DefinitionTrigger, word.span, what).hint(hint));
        }
        let mut made = trigger.made.clone();
        self.watched(trigger);
        self.told_in_batches(&made, trigger.span);
        if let Some(node) = &trigger.filter {
            let mut node = node.clone();
            if matches!(made.on, TriggerKind::Entity { .. }) {
                name_concept(&mut node);
            }
            self.yes_or_no(&node);
            made.filter = Some(Filter::Expr(self.expr(&node, scope).0));
            self.against_trigger(&node, &made.on);
            self.trigger_literals(&node, &made.on);
        }
        if let TriggerKind::At(at) = &made.on {
            let what = format!("{at} has passed: this trigger never fires");
            let past = fault(Code::DefinitionTrigger, trigger.span, what);
            self.once.push((self.at, *at, past.hint("choose an instant to come, or remove the trigger")));
        }
        let mut gates = scope.clone();
        gates.roots.extend(["trigger", "input"].map(str::to_owned));
        for node in &trigger.keys {
            self.expr(node, &gates);
        }
        if made.id.is_empty() {
            let text = serde_json::to_string(&made).expect("a trigger has string keys");
            let hash = canonical_hash([text.as_str()]);
            made.id = hash[..4].iter().fold("t_".to_owned(), |id, byte| format!("{id}{byte:02x}"));
        }
        made
    }

    /// A trigger's concept by its id. Where nothing is declared at all, it may be declared elsewhere; rows of the house are
    /// declared by nobody.
    pub(super) fn trigger_concept(&mut self, word: &Word) {
        let id = &word.text;
        let of_house = id.starts_with("v1:everwhen:");
        if id.contains('*') || of_house || self.names.concepts.contains_key(id) {
            return;
        }
        if self.names.concepts.is_empty() {
            return self.declared_elsewhere(id, word.span);
        }
        let unknown = fault(Code::DefinitionUnknownName, word.span, format!("unknown concept {id:?}"));
        let fault = suggest(unknown, id, self.names.concepts.keys().map(String::as_str));
        self.error(fault);
    }

    pub(super) fn declared_elsewhere(&mut self, concept: &str, span: Span) {
        let what = format!("unknown concept {concept:?}: no concept is declared in these files");
        let name = concept.rsplit(':').next().unwrap_or(concept);
        let hint =
            format!("declare it, concept {name} {{ … }}, or check this together with the file that does");
        self.warn(fault(Code::DefinitionUnknownName, span, what).hint(hint));
    }

    /// A filter that contradicts its trigger never lets anything through; one that repeats it says nothing.
    fn against_trigger(&mut self, node: &Node, on: &TriggerKind) {
        if let NodeKind::All(items) = &node.kind {
            return items.iter().for_each(|item| self.against_trigger(item, on));
        }
        self.trigger_fields(node, on);
        let Some(asked) = against::asked(node) else { return };
        let Some(fact) = asked.fact(on) else { return };
        if fact.holds == asked.wanted {
            let what = format!("the filter repeats its trigger: {}", fact.said);
            self.warn(fault(Code::DefinitionFilter, node.span, what).hint("remove this part of the filter"));
        } else {
            let what = format!("the filter contradicts its trigger: {}", fact.said);
            let hint = "no event that meets the trigger passes; change one of them";
            self.warn(fault(Code::DefinitionFilter, node.span, what).hint(hint));
        }
    }

    /// `payload.<field>` of a change: a field that the concept does not have is likely a slip.
    fn trigger_fields(&mut self, node: &Node, on: &TriggerKind) {
        let Some(concept) = changed(on) else { return };
        let Some(concept) = self.names.concepts.get(concept).filter(|concept| !concept.open).cloned() else {
            return;
        };
        let mut paths = Vec::new();
        collect_paths(node, &mut paths);
        for (names, span) in paths {
            let below = match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["event", "payload", "payload", ..] => names[3..].to_vec(),
                ["event", "payload", ..] => names[2..].to_vec(),
                ["payload", "payload", ..] => names[2..].to_vec(),
                ["payload", ..] => names[1..].to_vec(),
                _ => continue,
            };
            let Some(first) = below.first() else { continue };
            if CHANGE.contains(&first.as_str()) {
                continue;
            }
            if let Err((name, fields)) = field_at(&concept, &below) {
                self.warn(super::concept::unknown_field(&Word { text: name, span }, &concept.id, &fields));
            }
        }
    }
}

impl Checker<'_> {
    /// Literals beside fields of the row that changed.
    fn trigger_literals(&mut self, node: &Node, on: &TriggerKind) {
        if let Some(concept) = changed(on).and_then(|id| self.names.concepts.get(id)).cloned() {
            self.literals(node, &concept, &|names| of_change(names));
        }
    }
}

/// The one concept whose changes start it, also when their topic is written out.
fn changed(on: &TriggerKind) -> Option<&str> {
    let patterns = match on {
        TriggerKind::Entity { concept, .. } => return Some(concept),
        TriggerKind::Event(patterns) => patterns,
        _ => return None,
    };
    let mut concepts = patterns.iter().map(|topic| concept_of(topic));
    let first = concepts.next()??;
    concepts.all(|other| other == Some(first)).then_some(first)
}

/// `v1:shop:item` of `graph.node.updated.v1:shop:item`
fn concept_of(topic: &str) -> Option<&str> {
    let (change, concept) = topic.strip_prefix("graph.node.")?.split_once('.')?;
    definition::Change::ALL.iter().any(|known| known.as_str() == change).then_some(concept)
}

/// The path below the row for `payload.<field>`, `payload.next.<field>` and the like.
fn of_change(names: &[&str]) -> Option<Vec<String>> {
    let below = match names {
        ["event", "payload", below @ ..] | ["payload", below @ ..] => below,
        _ => return None,
    };
    match below {
        ["payload" | "prev" | "next" | "delta", below @ ..] => Some(owned(below)),
        [first, ..] if CHANGE.contains(first) => None,
        below => Some(owned(below)),
    }
}

/// The bare word `concept` in a filter on changes of rows is the one of the change.
fn name_concept(node: &mut Node) {
    if let NodeKind::Name(name) = &mut node.kind {
        if name == "concept" {
            let payload = Node { kind: NodeKind::Name("payload".to_owned()), span: node.span, height: 1 };
            node.kind = NodeKind::Member { of: Box::new(payload), name: std::mem::take(name) };
            node.height = 2;
        }
        return;
    }
    crate::declare::walk::children_mut(node, &mut name_concept);
}

fn collect_paths(node: &Node, out: &mut Vec<(Vec<String>, Span)>) {
    if let Some(names) = path(node) {
        out.push((names.into_iter().map(str::to_owned).collect(), node.span));
        return;
    }
    crate::declare::walk::children(node, &mut |child| collect_paths(child, out));
}
