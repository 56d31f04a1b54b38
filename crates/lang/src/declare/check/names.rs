//! What is declared where: the table that references are looked up in, and imports that must find their names.

use std::collections::{BTreeMap, BTreeSet};

use model::Code;
use model::definition::{Concept, Definition, Field, Kind};

use super::Checker;
use crate::declare::annotate;
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{Body, Item, Use, Word};

/// Names that expressions already mean something by.
const RESERVED: [&str; 14] = [
    "args",
    "actor",
    "now",
    "partition",
    "config",
    "trace",
    "event",
    "steps",
    "state",
    "true",
    "false",
    "null",
    "in",
    "publishEvent",
];
/// Words of statements: nothing that statements name is called so. Concepts may be, they stand where types do.
const STATEMENTS: [&str; 4] = ["if", "else", "for", "return"];

/// What is called by its name, as functions are.
const CALLED: [Kind; 3] = [Kind::Query, Kind::Mutation, Kind::Logic];

#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By id.
    pub(crate) concepts: BTreeMap<String, Concept>,
    /// Ids by bare name.
    pub(crate) concept_ids: BTreeMap<String, Vec<String>>,
    /// Arguments by kind and name; shapes have none.
    pub(crate) declared: BTreeMap<(Kind, String), Vec<Field>>,
    /// Queries that answer off the loop.
    pub(crate) detached: BTreeSet<String>,
}

impl Names {
    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        self.declared.contains_key(&(kind, name.to_owned()))
    }

    pub(crate) fn args(&self, kind: Kind, name: &str) -> Option<&Vec<Field>> {
        self.declared.get(&(kind, name.to_owned()))
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.declared.keys().filter(move |(of, _)| *of == kind).map(|(_, name)| name.as_str())
    }

    /// Something that is in force already may be named; what the files declare themselves comes first.
    pub(super) fn know(&mut self, definition: &Definition) {
        let args = match definition {
            Definition::Concept(concept) => {
                let ids = self.concept_ids.entry(concept.name.clone()).or_default();
                if !self.concepts.contains_key(&concept.id) {
                    ids.push(concept.id.clone());
                    self.concepts.insert(concept.id.clone(), concept.clone());
                }
                return;
            }
            Definition::Query(query) => &query.args,
            Definition::Mutation(mutation) => &mutation.args,
            Definition::Logic(logic) => &logic.args,
            Definition::Automation(automation) => &automation.args,
            Definition::Shape(_) => &Vec::new(),
        };
        if matches!(definition, Definition::Query(query) if query.detached)
            && !self.has(Kind::Query, definition.key())
        {
            self.detached.insert(definition.key().to_owned());
        }
        let key = (definition.kind(), definition.key().to_owned());
        self.declared.entry(key).or_insert_with(|| args.clone());
    }

    /// The declared name that `name` means: itself, or with the kind before it (`foo`, `logicFoo`).
    pub(crate) fn find(&self, kind: Kind, name: &str) -> Option<String> {
        let mut chars = name.chars();
        let upper: String = chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect();
        let prefixed = format!("{kind}{upper}");
        [name.to_owned(), prefixed].into_iter().find(|name| self.has(kind, name))
    }
}

pub(super) fn kind_of(body: &Body) -> Kind {
    match body {
        Body::Concept(_) => Kind::Concept,
        Body::Query(_) => Kind::Query,
        Body::Mutation(_) => Kind::Mutation,
        Body::Shape { .. } => Kind::Shape,
        Body::Logic { .. } => Kind::Logic,
        Body::Automation(_) => Kind::Automation,
    }
}

impl<'s> Checker<'s> {
    /// Every declared name, before anything is looked up.
    pub(super) fn collect(&mut self) {
        let sources = self.sources;
        let mut called = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            self.at = at;
            for item in &source.file.items {
                self.well_named(item);
                match kind_of(&item.body) {
                    Kind::Concept => {
                        self.well_placed(item, &source.domain);
                        self.collect_concept(item, &source.domain);
                    }
                    kind => {
                        self.collect_called(kind, item, &source.domain, &mut called);
                        self.collect_named(kind, item);
                    }
                }
            }
        }
    }

    fn well_named(&mut self, item: &Item) {
        let name = &item.name.text;
        let kind = kind_of(&item.body);
        let named_by_steps = CALLED.contains(&kind) || kind == Kind::Automation;
        if RESERVED.contains(&name.as_str()) || named_by_steps && STATEMENTS.contains(&name.as_str()) {
            let what = format!("the name {name:?} is reserved");
            self.error(fault(Code::DefinitionReserved, item.name.span, what).hint("choose another name"));
        }
        if CALLED.contains(&kind) && crate::expr::is_function(name) {
            let what = format!("{name:?} is a function of expressions, so no {kind} is called so");
            self.error(fault(Code::DefinitionReserved, item.name.span, what).hint("choose another name"));
        }
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain || name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() || name.len() > 128 {
            let what = format!("{name:?} is no name");
            let hint = "letters, digits and _, not beginning with a digit";
            self.error(fault(Code::DefinitionInvalid, item.name.span, what).hint(hint));
        }
    }

    /// An id stands in topics, so its parts must be able to: a whole number, and names.
    fn well_placed(&mut self, item: &Item, domain: &str) {
        let mut namespace = Word { text: domain.to_owned(), span: item.name.span };
        for note in &item.notes {
            let Ok(value) = annotate::value(note).and_then(|doc| doc.text("a text")) else { continue };
            match note.name.text.as_str() {
                "namespace" => namespace = value,
                "version" if !is_version(&value.text) => {
                    let what = format!("{:?} is no version", value.text);
                    let hint = "write three numbers, such as \"1.0.0\"";
                    self.error(fault(Code::DefinitionInvalid, value.span, what).hint(hint));
                }
                _ => {}
            }
        }
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let word = |part: &str| !part.is_empty() && part.chars().all(letter);
        if !namespace.text.split(':').all(word) {
            let what = format!("{:?} is no namespace", namespace.text);
            let hint = "letters, digits, _ and -, in parts divided by \":\", such as \"cognition:client\"";
            self.error(fault(Code::DefinitionInvalid, namespace.span, what).hint(hint));
        }
        if crate::declare::check::concept::is_type(&item.name.text) {
            let what = format!("{:?} is a type, so no concept is called so", item.name.text);
            self.error(fault(Code::DefinitionReserved, item.name.span, what).hint("choose another name"));
        }
    }

    /// `v<major>:<namespace>:<name>`
    pub(super) fn concept_id(&mut self, item: &Item, domain: &str) -> String {
        let (mut major, mut namespace) = ("1".to_owned(), domain.to_owned());
        for note in &item.notes {
            let name = note.name.text.as_str();
            let Ok(value) = annotate::value(note).and_then(|doc| doc.text("a text")) else { continue };
            match name {
                "version" => major = value.text.split('.').next().unwrap_or("1").to_owned(),
                "namespace" => namespace = value.text,
                _ => {}
            }
        }
        format!("v{major}:{namespace}:{}", item.name.text)
    }

    fn collect_concept(&mut self, item: &Item, domain: &str) {
        let id = self.concept_id(item, domain);
        if self.names.concepts.contains_key(&id) {
            self.twice(&item.name, Kind::Concept, &id);
            return;
        }
        let concept = Concept { id: id.clone(), name: item.name.text.clone(), ..Concept::default() };
        self.names.concepts.insert(id.clone(), concept);
        self.names.concept_ids.entry(item.name.text.clone()).or_default().push(id);
    }

    /// What is called is called by its name alone: in one domain that must say which is meant.
    fn collect_called(
        &mut self,
        kind: Kind,
        item: &Item,
        domain: &'s str,
        called: &mut BTreeMap<(&'s str, String), Kind>,
    ) {
        if !CALLED.contains(&kind) {
            return;
        }
        let first = *called.entry((domain, item.name.text.clone())).or_insert(kind);
        if first != kind {
            let what = format!("{:?} is declared as {first} and as {kind}", item.name.text);
            let hint = "rename one of them: a call says only the name";
            self.error(fault(Code::DefinitionDuplicate, item.name.span, what).hint(hint));
        }
    }

    fn collect_named(&mut self, kind: Kind, item: &Item) {
        let key = (kind, item.name.text.clone());
        if self.names.declared.contains_key(&key) {
            self.twice(&item.name, kind, &item.name.text.clone());
            return;
        }
        self.names.declared.insert(key, Vec::new());
        if matches!(&item.body, Body::Query(query) if query.detached) {
            self.names.detached.insert(item.name.text.clone());
        }
    }

    fn twice(&mut self, name: &Word, kind: Kind, key: &str) {
        let what = format!("the {kind} {key:?} is declared twice");
        self.error(fault(Code::DefinitionDuplicate, name.span, what).hint("rename or remove one of them"));
    }

    /// A concept by its id, or by its bare name: of this domain, imported, or the only one.
    pub(super) fn concept_named(&mut self, word: &Word) -> Option<String> {
        let name = self.real(&word.text).to_owned();
        if self.names.concepts.contains_key(&name) {
            return Some(name);
        }
        let ids = self.names.concept_ids.get(&name).cloned().unwrap_or_default();
        let source = &self.sources[self.at];
        let imported = source.file.uses.iter().find_map(|import| {
            let named = import.names.iter().any(|(there, here)| here.text == word.text && there.text == name);
            named.then(|| import.module.text.split('.').next().unwrap_or_default().to_owned())
        });
        let domain = imported.as_deref().unwrap_or(&source.domain);
        let ours = |id: &&String| id.split(':').nth(1) == Some(domain);
        match ids.as_slice() {
            [one] => return Some(one.clone()),
            [] => {}
            many => match many.iter().find(ours) {
                Some(one) => return Some(one.clone()),
                None => {
                    let what = format!("{name:?} may be {}", many.join(" or "));
                    self.error(
                        fault(Code::DefinitionUnknownName, word.span, what).hint("write the whole id"),
                    );
                    return None;
                }
            },
        }
        let unknown =
            fault(Code::DefinitionUnknownName, word.span, format!("unknown concept {:?}", word.text));
        let known: Vec<&str> = if name.contains(':') {
            self.names.concepts.keys().map(String::as_str).collect()
        } else {
            self.names.concept_ids.keys().map(String::as_str).collect()
        };
        let fault = suggest(unknown, &name, known);
        self.error(fault);
        None
    }

    pub(super) fn imports(&mut self, source: &super::Source) {
        let sources = self.sources;
        let mut seen: Vec<&str> = Vec::new();
        for import in &source.file.uses {
            let Some(there) = sources.iter().find(|other| other.module == import.module.text) else {
                if self.names_nothing(import) {
                    continue;
                }
                let what = format!("there is no module {:?}", import.module.text);
                let unknown = fault(Code::DefinitionUnknownName, import.module.span, what);
                let modules = sources.iter().map(|source| source.module.as_str());
                self.error(suggest(unknown, &import.module.text, modules));
                continue;
            };
            for (name, here) in &import.names {
                if !there.file.items.iter().any(|item| item.name.text == name.text) {
                    let what = format!("{} declares no {:?}", there.module, name.text);
                    let unknown = fault(Code::DefinitionUnknownName, name.span, what);
                    let names = there.file.items.iter().map(|item| item.name.text.as_str());
                    self.error(suggest(unknown, &name.text, names));
                }
                if seen.contains(&here.text.as_str()) {
                    let what = format!("{:?} is imported twice", here.text);
                    self.error(fault(Code::DefinitionDuplicate, here.span, what));
                }
                seen.push(&here.text);
            }
        }
    }
}

impl Checker<'_> {
    /// `use a.concepts`, which was read as the name `concepts` of a module `a`: a finding when that is a module.
    fn names_nothing(&mut self, import: &Use) -> bool {
        let [(name, _)] = import.names.as_slice() else { return false };
        let whole = format!("{}.{}", import.module.text, name.text);
        let sources = self.sources;
        let Some(module) = sources.iter().find(|source| source.module == whole) else { return false };
        let example = module.file.items.first().map_or("…", |item| item.name.text.as_str());
        let what = format!("{whole:?} is a module, and nothing of it is named");
        let named = fault(Code::DefinitionUnknownName, import.module.span.to(name.span), what);
        self.error(named.hint(format!("write use {whole}.{{ {example} }}")));
        true
    }
}

/// One to three whole numbers, and what semantic versions may have behind them.
fn is_version(text: &str) -> bool {
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    numbers.split('.').count() <= 3 && numbers.split('.').all(number)
}
