//! Checks concepts, and the fields that arguments share with them.

use std::collections::BTreeMap;

use model::Code;
use model::definition::{self, Definition, Field, RowAuthz, Scope, Type};
use model::topic::check_topic;
use serde_json::Value;

pub(super) use model::definition::INTRINSIC;

use super::names::kind_of;
use super::{Checker, fits};
use crate::declare::annotate;
use crate::declare::doc::{Doc, get};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Body, Item, Member, Note, Word};
use crate::expr::ast::Node;
use crate::expr::fault::Fault;

/// Intrinsics that a concept may not declare again. `version` and `space` are common words and stay free.
const TAKEN: [&str; 9] =
    ["id", "concept", "type", "createdAt", "createdBy", "partition", "schema", "payload", "provenance"];
const ARGS_RESERVED: [&str; 6] = ["args", "actor", "now", "partition", "config", "trace"];
const TYPES: [&str; 13] = [
    "string",
    "int",
    "double",
    "float",
    "number",
    "bool",
    "timestamp",
    "datetime",
    "duration",
    "json",
    "any",
    "object",
    "enum",
];
const NOTES: [&str; 8] = ["namespace", "type", "scope", "displayCard", "rowAuthz", "large", "open", "cache"];
const FIELD_NOTES: [&str; 17] = [
    "required",
    "default",
    "description",
    "unique",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "min",
    "max",
    "immutable",
    "secret",
    "pii",
    "enum",
    "variant",
    "index",
];
const RELATIONS: [&str; 8] =
    ["parent", "contains", "owns", "alias", "equals", "references", "createdBy", "interactsWith"];

impl Checker<'_> {
    pub(super) fn concept(&mut self, item: &Item) {
        let Body::Concept(members) = &item.body else { return };
        let domain = self.sources[self.at].domain.clone();
        let id = self.concept_id(item, &domain);
        // The first of two that share an id stands.
        if self.made.iter().any(|made| made.key() == id) {
            return;
        }
        let mut concept = definition::Concept {
            id: id.clone(),
            name: item.name.text.clone(),
            node_type: "object".to_owned(),
            description: self.notes(item, "concept", &NOTES),
            ..definition::Concept::default()
        };
        let fields: Vec<&tree::Field> = members
            .iter()
            .filter_map(|member| match member {
                Member::Field(field) => Some(field),
                _ => None,
            })
            .collect();
        concept.fields = self.fields(fields.iter().copied(), "concept");
        for field in fields.iter().filter(|field| TAKEN.contains(&field.name.text.as_str())) {
            let what = format!("every row has {:?} of itself; no field may be called so", field.name.text);
            self.error(fault(Code::DefinitionReserved, field.name.span, what));
        }
        for note in &item.notes {
            let set = self.concept_note(note, &mut concept);
            self.take(set);
        }
        for member in members {
            self.member(member, &mut concept);
        }
        self.names.concepts.insert(id, concept.clone());
        self.made.push(Definition::Concept(concept));
    }

    fn concept_note(&mut self, note: &Note, concept: &mut definition::Concept) -> Result<(), Fault> {
        match note.name.text.as_str() {
            "scope" => {
                let scope = annotate::value(note)?;
                concept.scope = match scope.text("\"global\" or \"space\"")?.text.as_str() {
                    "global" => Scope::Global,
                    "space" => Scope::Space,
                    _ => return Err(scope.wrong("\"global\" or \"space\"")),
                };
            }
            "type" => {
                let of = annotate::value(note)?;
                let word = of.text("a type")?.text;
                if !["object", "collection", "reference"].contains(&word.as_str()) {
                    return Err(of.wrong("\"object\", \"collection\" or \"reference\""));
                }
                concept.node_type = word;
            }
            "large" => concept.large = true,
            "open" => concept.open = true,
            "rowAuthz" => {
                let pairs = annotate::pairs(note);
                let wrong =
                    || fault(Code::DefinitionInvalid, note.span, "@rowAuthz takes owner = \"<field>\"");
                let owner = get(&pairs, "owner").ok_or_else(wrong)?.text("a field")?;
                if !concept.fields.iter().any(|field| field.name == owner.text) {
                    return Err(unknown_field(&owner, &concept.id, &concept.fields));
                }
                self.owner_is_text(&owner, concept);
                concept.row_authz = Some(RowAuthz { owner: owner.text });
            }
            _ => {}
        }
        Ok(())
    }

    /// An owner is compared with who asks, which is a text.
    fn owner_is_text(&mut self, owner: &Word, concept: &definition::Concept) {
        let text = [Type::String, Type::Any, Type::Json];
        let field = concept.fields.iter().find(|field| field.name == owner.text);
        let other = |of: &&Type| !text.contains(of) && !matches!(of, Type::Reference(_) | Type::Enum(_));
        if let Some(of) = field.map(|field| &field.of).filter(other) {
            let what = format!("the owner {:?} is {}: no user is ever that", owner.text, fits::type_name(of));
            let hint = "name a string field, which holds the id of a user";
            self.error(fault(Code::DefinitionType, owner.span, what).hint(hint));
        }
    }

    fn member(&mut self, member: &Member, concept: &mut definition::Concept) {
        match member {
            Member::Field(_) => {}
            Member::Relationship(note) => {
                let made = self.relationship(note, concept);
                concept.relationships.extend(made);
            }
            Member::Derive { topic, when } => {
                let reserved = model::topic::is_reserved(&topic.text);
                if let Err(problem) = check_topic(&topic.text) {
                    self.error(fault(Code::EventTopicInvalid, topic.span, problem.detail()));
                } else if reserved {
                    let what = format!("topic {:?} is published by the engine only", topic.text);
                    self.error(fault(Code::EventTopicReserved, topic.span, what));
                }
                let when = when.as_ref().map(|node| {
                    self.yes_or_no(node);
                    self.row_sides(node, concept);
                    self.plain_expr(node, &["prev", "next", "delta"])
                });
                concept.derives.push(definition::Derive { topic: topic.text.clone(), when });
            }
        }
    }

    fn relationship(
        &mut self,
        note: &Note,
        concept: &definition::Concept,
    ) -> Option<definition::Relationship> {
        let pairs = annotate::pairs(note);
        let need = |key: &str| {
            let lacks = || fault(Code::DefinitionInvalid, note.span, format!("@relationship lacks {key:?}"));
            get(&pairs, key).ok_or_else(lacks)?.text("a name")
        };
        let (kind, field, target) = (need("type"), need("field"), need("target"));
        let direction = get(&pairs, "direction").map(direction).transpose();
        if let Ok(kind) = &kind
            && !RELATIONS.contains(&kind.text.as_str())
        {
            let what = format!("there is no relationship {:?}", kind.text);
            self.error(suggest(fault(Code::DefinitionInvalid, kind.span, what), &kind.text, RELATIONS));
        }
        if let Ok(field) = &field
            && !concept.open
            && !concept.fields.iter().any(|known| known.name == field.text)
        {
            self.error(unknown_field(field, &concept.id, &concept.fields));
        }
        // Each part is looked at, and what is wrong with it said, before one that lacks ends it.
        let direction = self.take(direction).flatten().unwrap_or_else(|| "outgoing".to_owned());
        let target = self.take(target).and_then(|target| self.concept_named(&target)).unwrap_or_default();
        let (kind, field) = (self.take(kind), self.take(field));
        Some(definition::Relationship { kind: kind?.text, field: field?.text, target, direction })
    }

    /// Arguments of everything that has some, so that calls can be checked wherever they stand.
    pub(super) fn signature(&mut self, item: &Item) {
        let args = match &item.body {
            Body::Query(query) => &query.args,
            Body::Mutation(mutation) => &mutation.args,
            Body::Logic { args, .. } => args,
            Body::Automation(automation) => &automation.args,
            Body::Concept(_) | Body::Shape { .. } => return,
        };
        // Filters of seed 000 call nothing, so its queries take the time as an argument: `args.now` is no other `now`.
        let free = |arg: &&tree::Field| matches!(item.body, Body::Query(_)) && arg.name.text == "now";
        let taken = args.iter().filter(|arg| ARGS_RESERVED.contains(&arg.name.text.as_str()));
        for arg in taken.filter(|arg| !free(arg)) {
            let what = format!("the name {:?} is reserved", arg.name.text);
            self.error(fault(Code::DefinitionReserved, arg.name.span, what).hint("choose another name"));
        }
        let mut fields = self.fields(args.iter(), "argument list");
        if let Body::Mutation(mutation) = &item.body {
            self.accepted_args(mutation, &mut fields);
        }
        self.names.declared.insert((kind_of(&item.body), item.name.text.clone()), fields);
    }

    /// What is accepted is an argument also when it is not written down as one.
    fn accepted_args(&mut self, mutation: &tree::Mutation, fields: &mut Vec<Field>) {
        let id = match self.names.concept_ids.get(self.real(&mutation.concept.text)) {
            Some(ids) => ids[0].clone(),
            None => mutation.concept.text.clone(),
        };
        let Some(concept) = self.names.concepts.get(&id) else { return };
        for name in &mutation.accept {
            if fields.iter().any(|field| field.name == name.text) {
                continue;
            }
            if let Some(field) = concept.fields.iter().find(|field| field.name == name.text) {
                let required = field.required && field.default.is_none();
                let writes = mutation.writes.iter().any(|(write, _)| *write == definition::Write::Insert);
                fields.push(Field { required: required && writes, ..field.clone() });
            }
        }
    }

    pub(super) fn fields<'f>(
        &mut self,
        fields: impl Iterator<Item = &'f tree::Field>,
        what: &str,
    ) -> Vec<Field> {
        let mut out: Vec<Field> = Vec::new();
        for field in fields {
            if out.iter().any(|other| other.name == field.name.text) {
                let message = format!("the {what} has {:?} twice", field.name.text);
                self.error(fault(Code::DefinitionDuplicate, field.name.span, message));
                continue;
            }
            out.push(self.field(field));
        }
        out
    }

    fn field(&mut self, field: &tree::Field) -> Field {
        let mut made = Field {
            name: field.name.text.clone(),
            of: self.of_type(&field.of),
            required: field.required,
            ..Field::default()
        };
        self.notes_twice(&field.notes);
        for note in &field.notes {
            let set = self.field_note(note, field, &mut made);
            self.take(set);
        }
        self.secret_field(field, &made);
        let crossed = matches!((made.min, made.max), (Some(min), Some(max)) if min > max)
            || matches!((made.min_length, made.max_length), (Some(min), Some(max)) if min > max);
        if crossed {
            let what = format!("nothing fits {:?}: its least is above its most", made.name);
            self.error(fault(Code::DefinitionInvalid, field.name.span, what));
        }
        if let Some(default) = &made.default
            && let Some(message) = fits::misfit(&made, default)
        {
            let span =
                field.notes.iter().find(|n| n.name.text == "default").map_or(field.of_span, |n| n.span);
            self.error(fault(Code::DefinitionType, span, format!("the default does not fit: {message}")));
        }
        made
    }

    /// Secrets are not compared with each other, and a default stands in the clear in its definition.
    fn secret_field(&mut self, field: &tree::Field, made: &Field) {
        let hints = [
            ("unique", "remove one of them: whether two secrets are equal is not told"),
            ("default", "remove it: a default stands in the clear; give the secret with each row"),
        ];
        for note in field.notes.iter().filter(|_| made.secret) {
            if let Some((name, hint)) = hints.iter().find(|(name, _)| *name == note.name.text) {
                let what = format!("@{name} does not go with @secret");
                self.error(fault(Code::DefinitionSecret, note.span, what).hint(*hint));
            }
        }
    }

    fn field_note(&mut self, note: &Note, field: &tree::Field, made: &mut Field) -> Result<(), Fault> {
        let name = note.name.text.as_str();
        match name {
            "required" => made.required = true,
            "unique" => made.unique = true,
            "immutable" => made.immutable = true,
            "secret" => made.secret = true,
            "pii" | "index" => {}
            "description" => made.description = Some(annotate::value(note)?.text("a text")?.text),
            "default" => made.default = Some(fits::read_default(&made.of, annotate::value(note)?.literal()?)),
            "pattern" => {
                let doc = annotate::value(note)?;
                let pattern = doc.text("a regular expression")?;
                if let Err(message) = crate::expr::build_regex(&pattern.text) {
                    return Err(fault(Code::DefinitionInvalid, doc.span, message));
                }
                self.only_for(note, made, &[Type::String]);
                made.pattern = Some(pattern.text);
            }
            "minLength" | "maxLength" => {
                let count = u64::from(annotate::value(note)?.count("a number of characters")?);
                self.only_for(note, made, &[Type::String]);
                let bound = if name == "minLength" { &mut made.min_length } else { &mut made.max_length };
                *bound = Some(count);
            }
            "minimum" | "min" | "maximum" | "max" => {
                let number = annotate::value(note)?.float("a number")?;
                self.only_for(note, made, &[Type::Int, Type::Double]);
                let bound = if name.starts_with("min") { &mut made.min } else { &mut made.max };
                *bound = Some(number);
            }
            "enum" => {
                if note.args.is_empty() {
                    let what = "an enum without values, which nothing fits";
                    let hint = "write what it may be: @enum(\"open\", \"done\")";
                    return Err(fault(Code::DefinitionInvalid, note.span, what).hint(hint));
                }
                made.of = self.enumeration(note.args.iter().map(|(_, node)| node));
            }
            "variant" => made.of = self.variant(note, field)?,
            _ => {
                let what = format!("unknown annotation @{name} of a field");
                return Err(suggest(
                    fault(Code::DefinitionUnknownKey, note.name.span, what),
                    name,
                    FIELD_NOTES,
                ));
            }
        }
        Ok(())
    }

    fn only_for(&mut self, note: &Note, made: &Field, types: &[Type]) {
        if !types.contains(&made.of) {
            let what = format!("@{} does not go with {}", note.name.text, fits::type_name(&made.of));
            self.error(fault(Code::DefinitionType, note.span, what));
        }
    }

    fn variant(&mut self, note: &Note, field: &tree::Field) -> Result<Type, Fault> {
        let pairs = annotate::pairs(note);
        let wrong =
            || fault(Code::DefinitionInvalid, note.span, "@variant takes discriminator = \"<field>\"");
        let by = get(&pairs, "discriminator").ok_or_else(wrong)?.text("a field")?.text;
        let tree::Type::Object(cases) = &field.of else { return Err(wrong()) };
        let mut out = BTreeMap::new();
        for case in cases {
            let tree::Type::Object(fields) = &case.of else {
                let what = format!("the case {:?} is no object", case.name.text);
                return Err(fault(Code::DefinitionType, case.of_span, what));
            };
            out.insert(case.name.text.clone(), self.fields(fields.iter(), "case"));
        }
        Ok(Type::Variant { by, cases: out })
    }

    fn of_type(&mut self, of: &tree::Type) -> Type {
        match of {
            tree::Type::List(inner) => Type::List(Box::new(self.of_type(inner))),
            tree::Type::Map(inner) => Type::Map(Box::new(self.of_type(inner))),
            tree::Type::Object(fields) => Type::Object(self.fields(fields.iter(), "object")),
            tree::Type::Enum(values) => self.enumeration(values.iter()),
            tree::Type::Named(word) => self.named_type(word),
        }
    }

    fn enumeration<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>) -> Type {
        let mut values: Vec<Value> = Vec::new();
        for node in nodes {
            let Some(value) = self.take(Doc::of(node.clone()).literal()) else { continue };
            if values.contains(&value) {
                let what = format!("the enum has {value} twice");
                let twice = fault(Code::DefinitionDuplicate, node.span, what);
                self.error(twice.hint("remove one, or write the value that was meant"));
            } else {
                values.push(value);
            }
        }
        Type::Enum(values)
    }

    fn named_type(&mut self, word: &Word) -> Type {
        match word.text.as_str() {
            "string" | "text" => Type::String,
            "int" | "integer" => Type::Int,
            "double" | "float" | "number" => Type::Double,
            "bool" | "boolean" => Type::Bool,
            "timestamp" | "datetime" => Type::Timestamp,
            "duration" => Type::Duration,
            "json" => Type::Json,
            "any" => Type::Any,
            "object" => Type::Object(Vec::new()),
            "list" | "array" => Type::List(Box::new(Type::Any)),
            "map" => Type::Map(Box::new(Type::Any)),
            name => {
                let real = self.real(name).to_owned();
                if self.names.concepts.contains_key(&real) || self.names.concept_ids.contains_key(&real) {
                    return Type::Reference(self.concept_named(word).unwrap_or_default());
                }
                let unknown = fault(Code::DefinitionUnknownName, word.span, format!("unknown type {name:?}"));
                let concepts = self.names.concept_ids.keys().map(String::as_str);
                let fault = suggest(unknown, name, TYPES.into_iter().chain(concepts));
                self.error(fault);
                Type::Any
            }
        }
    }
}

fn direction(doc: &Doc) -> Result<String, Fault> {
    let word = doc.text("a direction")?.text;
    match word.as_str() {
        "outgoing" | "incoming" | "bidirectional" => Ok(word),
        _ => Err(doc.wrong("\"outgoing\", \"incoming\" or \"bidirectional\"")),
    }
}

/// Names of types, also those that are said in two ways.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name) || ["text", "integer", "boolean", "list", "array", "map"].contains(&name)
}

/// A field that a concept does not have.
pub(super) fn unknown_field(word: &Word, of: &str, fields: &[Field]) -> Fault {
    let what = format!("{of:?} has no field {:?}", word.text);
    let known = fields.iter().map(|field| field.name.as_str());
    suggest(fault(Code::DefinitionUnknownName, word.span, what), &word.text, known)
}
