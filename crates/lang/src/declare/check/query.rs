//! Checks queries, and says when one must look at every row of many.

use model::Code;
use model::definition::{self, AsOf, Conjunct, Expr, Kind, Sort};

use super::concept::INTRINSIC;
use super::expr::field_at;
use super::{Checker, ROWS_MANY, Rows};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Body, Item, Word};
use crate::declare::walk::path;
use crate::expr::ast::{Kind as NodeKind, Node, Op};

const NOTES: [&str; 4] = ["public", "cache", "requiresCapability", "requiresRank"];

impl Checker<'_> {
    pub(super) fn query(&mut self, item: &Item, query: &tree::Query) -> Option<definition::Query> {
        let description = self.notes(item, "query", &NOTES);
        let concept = self.concept_named(&query.concept)?;
        let args = self.names.args(Kind::Query, &item.name.text).cloned().unwrap_or_default();
        let mut filter = Vec::new();
        for node in &query.filter {
            let node = &super::expr::row_test(node);
            self.conjuncts(node, &concept, &args, &mut filter);
        }
        let sort = query.sort.iter().filter_map(|(field, down)| self.sort(field, *down, &concept)).collect();
        let as_of = query.as_of.as_ref().map(|as_of| match as_of {
            tree::AsOf::Latest => AsOf::Latest,
            tree::AsOf::Expr(node) => {
                let scope = super::scope::Scope {
                    args: Some(args.clone()),
                    ..super::scope::Scope::of(&["args", "actor", "now"])
                };
                AsOf::Expr(self.expr(node, &scope).0)
            }
        });
        let shape = query.shape.as_ref().and_then(|shape| self.shape_named(shape, &concept));
        Some(definition::Query {
            name: item.name.text.clone(),
            concept,
            description,
            args,
            filter,
            shape,
            sort,
            paginate: query.paginate,
            as_of,
            count: query.count,
            detached: query.detached,
        })
    }

    fn shape_named(&mut self, word: &Word, concept: &str) -> Option<String> {
        let name = self.real(&word.text).to_owned();
        let Some(found) = self.names.find(Kind::Shape, &name) else {
            let unknown =
                fault(Code::DefinitionUnknownName, word.span, format!("unknown shape {:?}", word.text));
            let fault = suggest(unknown, &name, self.names.of(Kind::Shape));
            self.error(fault);
            return None;
        };
        let sources = self.sources;
        let of = sources.iter().flat_map(|source| &source.file.items).find_map(|item| match &item.body {
            Body::Shape { concept, .. } if item.name.text == found => Some(concept.clone()),
            _ => None,
        });
        if let Some(of) = of
            && let Some(ids) = self.names.concept_ids.get(&of.text)
            && !ids.iter().any(|id| id == concept)
        {
            let what = format!("the shape {found:?} is of {:?}, not of {concept:?}", of.text);
            self.error(fault(Code::DefinitionType, word.span, what));
        }
        Some(found)
    }

    /// `a && b && when(args.x) { c }` as three parts.
    fn conjuncts(&mut self, node: &Node, concept: &str, args: &[definition::Field], out: &mut Vec<Conjunct>) {
        match &node.kind {
            NodeKind::All(items) => items.iter().for_each(|item| self.conjuncts(item, concept, args, out)),
            NodeKind::When { given, body } => {
                let when = Some(self.row_expr(given, concept, args));
                self.yes_or_no(body);
                out.push(Conjunct { when, test: self.row_expr(body, concept, args) });
            }
            _ => {
                self.yes_or_no(node);
                out.push(Conjunct { when: None, test: self.row_expr(node, concept, args) });
            }
        }
    }

    /// Fields by their path, with or without `payload.`; intrinsics by their names.
    fn sort(&mut self, field: &Word, descending: bool, concept: &str) -> Option<Sort> {
        let concept = self.names.concepts.get(concept)?.clone();
        let bare = field.text.strip_prefix("payload.").unwrap_or(&field.text);
        if INTRINSIC.contains(&bare) && bare == field.text && bare != "payload" {
            return Some(Sort { field: bare.to_owned(), descending });
        }
        let names: Vec<String> = bare.split('.').map(str::to_owned).collect();
        if let Err((name, fields)) = field_at(&concept, &names)
            && !concept.open
        {
            let word = Word { text: name, span: field.span };
            self.error(super::concept::unknown_field(&word, &concept.id, &fields));
            return None;
        }
        Some(Sort { field: format!("payload.{bare}"), descending })
    }

    /// Warns of queries that no index can serve, over concepts that are declared or known to be large.
    pub(super) fn unindexed(&mut self, rows: &Rows) {
        let sources = self.sources;
        for (at, source) in sources.iter().enumerate() {
            self.at = at;
            for item in &source.file.items {
                let Body::Query(query) = &item.body else { continue };
                let made = self.made.iter().find_map(|made| match made {
                    definition::Definition::Query(made) if made.name == item.name.text => Some(made),
                    _ => None,
                });
                let Some(made) = made else { continue };
                let Some(concept) = self.names.concepts.get(&made.concept) else { continue };
                let many = rows.get(&concept.id).is_some_and(|rows| *rows > ROWS_MANY);
                let sorted = made.paginate.is_some() && !made.sort.is_empty();
                if !(concept.large || many) || sorted || made.filter.iter().any(can_use_index) {
                    continue;
                }
                let what = format!("the query {:?} must look at every row of {:?}", made.name, concept.id);
                let hint = "test a field with ==, in, < or > against a value, joined by &&, so that an index serves it";
                self.warn(
                    fault(Code::DefinitionNoIndex, query.concept.span.to(item.name.span), what).hint(hint),
                );
            }
        }
    }
}

/// A test that always applies, of a field or the id against something that is not of the row.
fn can_use_index(part: &Conjunct) -> bool {
    let Expr(text) = &part.test;
    if part.when.is_some() {
        return false;
    }
    let Ok(node) = crate::expr::parse(text) else { return false };
    let NodeKind::Binary { op, left, right } = &node.kind else { return false };
    let ordered = matches!(op, Op::Equal | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual);
    if !ordered && *op != Op::In {
        return false;
    }
    let of_row = |node: &Node| {
        path(node).is_some_and(|names| match names.as_slice() {
            [root, _, ..] => *root == "payload",
            [one] => matches!(*one, "id" | "createdAt" | "updatedAt" | "createdBy"),
            [] => false,
        })
    };
    let outside = |node: &Node| !mentions_row(node);
    (of_row(left) && outside(right)) || (ordered && of_row(right) && outside(left))
}

fn mentions_row(node: &Node) -> bool {
    if let Some(names) = path(node) {
        return INTRINSIC.contains(&names[0]);
    }
    let mut found = false;
    crate::declare::walk::children(node, &mut |child| found |= mentions_row(child));
    found
}
