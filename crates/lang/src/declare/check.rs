//! Trees into checked definitions: every name is found, every literal fits, or there is a finding that says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::definition::{self, Definition};
use model::{Code, Timestamp};

use super::annotate;
use super::finding::{Severity, fault, suggest};
use super::tree::{self, Body, Item, Note, Word};
use crate::expr::fault::Fault;

mod against;
mod ask;
mod beside;
mod concept;
mod cycle;
mod expr;
mod fits;
mod mutation;
mod names;
mod query;
mod scope;
mod secret;
mod state;
mod step;
mod steps;
mod template;
mod trigger;
mod truth;
mod wait;

pub(crate) use names::Names;

/// One file, read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    /// `cognition` of `cognition/concepts.ew`: the namespace of its concepts unless they say another.
    pub(crate) domain: String,
    /// `cognition.concepts`
    pub(crate) module: String,
    pub(crate) file: tree::File,
}

pub(crate) struct Checker<'s> {
    pub(crate) names: Names,
    sources: &'s [Source],
    /// The file that is being checked.
    at: usize,
    /// Names that this file gives to names of others.
    aliases: BTreeMap<String, String>,
    pub(crate) found: Vec<(usize, Severity, Fault)>,
    /// What there is to say about instants once they have passed.
    once: Vec<(usize, Timestamp, Fault)>,
    made: Vec<Definition>,
    /// The logic that is being checked.
    caller: Option<String>,
    /// Which logic calls which, with the place.
    calls: Vec<cycle::CallEdge>,
}

/// Rows that concepts are known to have; more than this many is many.
pub(crate) type Rows = BTreeMap<String, u64>;
const ROWS_MANY: u64 = 10_000;

pub(crate) struct Outcome {
    pub(crate) made: Vec<Definition>,
    pub(crate) found: Vec<(usize, Severity, Fault)>,
    pub(crate) once: Vec<(usize, Timestamp, Fault)>,
}

pub(crate) fn check(sources: &[Source], rows: &Rows, known: &[Arc<Definition>]) -> Outcome {
    let mut checker = Checker {
        names: Names::default(),
        sources,
        at: 0,
        aliases: BTreeMap::new(),
        found: Vec::new(),
        once: Vec::new(),
        made: Vec::new(),
        caller: None,
        calls: Vec::new(),
    };
    checker.collect();
    known.iter().for_each(|definition| checker.names.know(definition));
    checker.each_file(Checker::imports);
    checker.import_cycles();
    checker.each_item(|checker, item| checker.concept(item));
    checker.each_item(Checker::signature);
    checker.each_item(Checker::item);
    checker.call_cycles();
    checker.unindexed(rows);
    let mut made = checker.made;
    made.sort_by(|a, b| (a.kind(), a.key()).cmp(&(b.kind(), b.key())));
    Outcome { made, found: checker.found, once: checker.once }
}

impl<'s> Checker<'s> {
    fn error(&mut self, fault: Fault) {
        self.found.push((self.at, Severity::Error, fault));
    }

    fn warn(&mut self, fault: Fault) {
        self.found.push((self.at, Severity::Warning, fault));
    }

    /// The value, or nothing and a finding.
    fn take<T>(&mut self, read: Result<T, Fault>) -> Option<T> {
        read.map_err(|fault| self.error(fault)).ok()
    }

    fn each_file(&mut self, mut visit: impl FnMut(&mut Self, &'s Source)) {
        let sources = self.sources;
        for (at, source) in sources.iter().enumerate() {
            self.at = at;
            self.aliases = source
                .file
                .uses
                .iter()
                .flat_map(|import| &import.names)
                .filter(|(there, here)| there.text != here.text)
                .map(|(there, here)| (here.text.clone(), there.text.clone()))
                .collect();
            visit(self, source);
        }
    }

    fn each_item(&mut self, mut visit: impl FnMut(&mut Self, &'s Item)) {
        self.each_file(|checker, source| source.file.items.iter().for_each(|item| visit(checker, item)));
    }

    /// The name that `name` means in the file being checked.
    fn real<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    fn item(&mut self, item: &'s Item) {
        let made = match &item.body {
            // Done before, because everything else looks at them.
            Body::Concept(_) => return,
            Body::Query(query) => self.query(item, query).map(Definition::Query),
            Body::Mutation(mutation) => self.mutation(item, mutation).map(Definition::Mutation),
            Body::Shape { concept, fields } => self.shape(item, concept, fields).map(Definition::Shape),
            Body::Logic { steps, .. } => self.logic(item, steps).map(Definition::Logic),
            Body::Automation(automation) => self.automation(item, automation).map(Definition::Automation),
        };
        self.made.extend(made);
    }

    /// The description of a declaration; annotations it does not know are findings.
    fn notes(&mut self, item: &Item, what: &str, known: &[&str]) -> Option<String> {
        let always = ["description", "enabled", "mcp", "version", "tag"];
        let mut description = None;
        self.notes_twice(&item.notes);
        for note in &item.notes {
            let name = note.name.text.as_str();
            if name == "description" {
                description = self.note_text(note);
            } else if !always.contains(&name) && !known.contains(&name) {
                let message = format!("unknown annotation @{name} of a {what}");
                let unknown = fault(Code::DefinitionUnknownKey, note.name.span, message);
                self.error(suggest(unknown, name, always.iter().chain(known).copied()));
            }
        }
        description
    }

    /// Two annotations of one name: the second would win in silence.
    fn notes_twice(&mut self, notes: &[Note]) {
        annotate::twice(notes, |name| !matches!(name, "tag" | "requiresCapability"))
            .into_iter()
            .for_each(|twice| self.error(twice));
    }

    fn note_text(&mut self, note: &Note) -> Option<String> {
        let text = annotate::value(note).and_then(|doc| doc.text("a text"));
        self.take(text).map(|word| word.text)
    }

    fn shape(
        &mut self,
        item: &Item,
        concept: &Word,
        fields: &[(Word, crate::expr::ast::Node)],
    ) -> Option<definition::Shape> {
        self.notes(item, "shape", &[]);
        let concept = self.concept_named(concept)?;
        let mut out = Vec::new();
        for (name, node) in fields {
            if out.iter().any(|field: &definition::ShapeField| field.name == name.text) {
                let what = format!("the shape has the field {:?} twice", name.text);
                self.error(fault(Code::DefinitionDuplicate, name.span, what));
            }
            let value = self.row_expr(node, &concept, &[]);
            out.push(definition::ShapeField { name: name.text.clone(), value });
        }
        Some(definition::Shape { name: item.name.text.clone(), concept, fields: out })
    }
}
