//! Checks mutations: one write, fields that exist, literals that fit, an id where a row must be found.

use std::collections::BTreeMap;

use model::Code;
use model::definition::{self, Concept, Expr, Kind, Write};

use super::concept::unknown_field;
use super::scope::Scope;
use super::{Checker, fits};
use crate::declare::doc::Doc;
use crate::declare::finding::fault;
use crate::declare::tree::{self, Item, Word};
use crate::expr::ast::Node;

const NOTES: [&str; 6] =
    ["public", "serverOnly", "createOnly", "requiresCapability", "requiresRank", "scrubPii"];

impl Checker<'_> {
    pub(super) fn mutation(
        &mut self,
        item: &Item,
        mutation: &tree::Mutation,
    ) -> Option<definition::Mutation> {
        let description = self.notes(item, "mutation", &NOTES);
        let concept = self.concept_named(&mutation.concept)?;
        let concept = self.names.concepts.get(&concept)?.clone();
        let write = self.one_write(item, mutation)?;
        let args = self.names.args(Kind::Mutation, &item.name.text).cloned().unwrap_or_default();
        let scope =
            Scope { args: Some(args.clone()), ..Scope::of(&["args", "actor", "now", "partition", "config"]) };
        for field in &mutation.accept {
            self.field_of(field, &concept);
        }
        let (mut stamp, mut id) = (BTreeMap::new(), None);
        for (field, node) in &mutation.stamp {
            let expr = self.expr(node, &scope).0;
            if field.text == "id" {
                id = Some(expr);
            } else if stamp.insert(field.text.clone(), expr).is_some() {
                let what = format!("{:?} is set twice", field.text);
                self.error(fault(Code::DefinitionDuplicate, field.span, what));
            } else {
                self.stamped(field, node, &concept);
            }
        }
        // What could not be read may be what would be missed.
        if id.is_none() && write != Write::Insert && !mutation.broken {
            id = self.id_from_args(item, write, &args);
        }
        if write == Write::Delete {
            self.deletes_only(mutation);
        }
        let accept: Vec<String> = mutation.accept.iter().map(|field| field.text.clone()).collect();
        if write == Write::Insert && !mutation.broken {
            self.all_required(item, &concept, &accept, &stamp);
        }
        let name = item.name.text.clone();
        Some(definition::Mutation { name, concept: concept.id, write, description, args, id, accept, stamp })
    }

    /// A row that goes away keeps nothing that would be set.
    fn deletes_only(&mut self, mutation: &tree::Mutation) {
        let set = mutation.stamp.iter().map(|(field, _)| field).filter(|field| field.text != "id");
        for field in set.chain(&mutation.accept) {
            let what = format!("a delete sets nothing, and {:?} is a field", field.text);
            let hint = "remove it, or write update { … } to set it";
            self.error(fault(Code::DefinitionInvalid, field.span, what).hint(hint));
        }
    }

    fn one_write(&mut self, item: &Item, mutation: &tree::Mutation) -> Option<Write> {
        match mutation.writes.as_slice() {
            [(write, _)] => Some(*write),
            [] => {
                let what = format!("the mutation {:?} writes nothing", item.name.text);
                let hint = "add insert, update, upsert or delete { … }";
                self.error(fault(Code::DefinitionInvalid, item.name.span, what).hint(hint));
                None
            }
            [_, (_, second), ..] => {
                let what = "a mutation writes once; this is its second write";
                let hint = "write another mutation, and call both from logic";
                self.error(fault(Code::DefinitionInvalid, *second, what).hint(hint));
                None
            }
        }
    }

    fn field_of<'c>(&mut self, field: &Word, concept: &'c Concept) -> Option<&'c definition::Field> {
        let found = concept.fields.iter().find(|known| known.name == field.text);
        if found.is_none() && !concept.open {
            self.error(unknown_field(field, &concept.id, &concept.fields));
        }
        found
    }

    fn stamped(&mut self, field: &Word, node: &Node, concept: &Concept) {
        let Some(known) = self.field_of(field, concept) else { return };
        let Ok(value) = Doc::of(node.clone()).literal() else { return };
        if let Some(message) = fits::misfit(known, &value) {
            self.error(fault(Code::DefinitionType, node.span, format!("{:?}: {message}", field.text)));
        }
    }

    fn id_from_args(&mut self, item: &Item, write: Write, args: &[definition::Field]) -> Option<Expr> {
        if args.iter().any(|arg| arg.name == "id") {
            return Some(Expr("args.id".to_owned()));
        }
        let verb = match write {
            Write::Update => "update",
            Write::Upsert => "upsert",
            _ => "delete",
        };
        let what = format!("the mutation {:?} does not say which row to {verb}", item.name.text);
        self.error(
            fault(Code::DefinitionInvalid, item.name.span, what)
                .hint("set id: …, or take an argument \"id\""),
        );
        None
    }

    fn all_required(
        &mut self,
        item: &Item,
        concept: &Concept,
        accept: &[String],
        stamp: &BTreeMap<String, Expr>,
    ) {
        for field in concept.fields.iter().filter(|field| field.required && field.default.is_none()) {
            if !accept.contains(&field.name) && !stamp.contains_key(&field.name) {
                let what =
                    format!("{:?} requires {:?}, which this insert does not set", concept.id, field.name);
                self.error(fault(Code::DefinitionInvalid, item.name.span, what));
            }
        }
    }
}
