//! Checks queries, and says when one must look at every row of many.

use model::Code;
use model::definition::{self, AsOf, Concept, Conjunct, Expr, Kind, Sort, Type};

use super::concept::INTRINSIC;
use super::expr::field_at;
use super::{Checker, ROWS_MANY, Rows};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Body, Item, Word};
use crate::declare::walk::path;
use crate::expr::ast::{Kind as NodeKind, Literal, Node, Op};

const NOTES: [&str; 4] = ["public", "cache", "requiresCapability", "requiresRank"];

impl Checker<'_> {
    pub(super) fn query(&mut self, item: &Item, query: &tree::Query) -> Option<definition::Query> {
        let description = self.notes(item, "query", &NOTES);
        let concept = self.concept_named(&query.concept)?;
        let args = self.names.args(Kind::Query, &item.name.text).cloned().unwrap_or_default();
        let mut filter = Vec::new();
        for node in &query.filter {
            let node = &super::expr::row_test(node);
            self.masked(node, &concept);
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

    /// Warns of a test that reads a secret: it stands in the row as its mask. Whether there is one can be told.
    fn masked(&mut self, node: &Node, concept: &str) {
        if let NodeKind::Binary { op, left, right } = &node.kind
            && compares(*op)
            && let Some(declared) = self.names.concepts.get(concept)
        {
            let nothing = |node: &Node| match &node.kind {
                NodeKind::Literal(Literal::Text(text)) => text.is_empty(),
                NodeKind::Literal(literal) => *literal == Literal::Null,
                _ => false,
            };
            let sides = [(left, right), (right, left)];
            let found = sides.into_iter().find(|(side, other)| is_secret(side, declared) && !nothing(other));
            if let Some((side, _)) = found {
                let what = "a secret is compared, and a filter sees only its mask \"***\"";
                let hint = "compare another field, or test with == \"\" that there is none";
                self.warn(fault(Code::DefinitionSecret, side.span, what).hint(hint));
            }
        }
        let mut below = Vec::new();
        crate::declare::walk::children(node, &mut |child| below.push(child));
        below.into_iter().for_each(|child| self.masked(child, concept));
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
                // By its index, or by id, it stops where the page is full.
                let sorted = made.paginate.is_some() && (!made.sort.is_empty() || made.filter.is_empty());
                let serves = |part: &Conjunct| can_use_index(part, concept, &made.args);
                if !(concept.large || many) || sorted || made.filter.iter().any(serves) {
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

/// A test that always applies, of a field or the id against something that is known without the row. What the engine
/// understands of a filter (`entity/find/narrow.rs` there) is no more than this, and its tests hold the two together.
fn can_use_index(part: &Conjunct, concept: &Concept, args: &[definition::Field]) -> bool {
    let Expr(text) = &part.test;
    if part.when.is_some() || text.contains(['\\', '`']) {
        return false;
    }
    let Ok(node) = crate::expr::parse(text) else { return false };
    let NodeKind::Binary { op, left, right } = &node.kind else { return false };
    if !compares(*op) || matches!(op, Op::Unequal | Op::NotIn) {
        return false;
    }
    let serves = |column: &Node, known: &Node| {
        column_type(column, concept)
            .is_some_and(|of| is_known(known, false) && !is_read_anew(known, args, &of))
    };
    serves(left, right) || (*op != Op::In && serves(right, left))
}

fn compares(op: Op) -> bool {
    let ordered = matches!(op, Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual);
    ordered || matches!(op, Op::Equal | Op::Unequal | Op::In | Op::NotIn)
}

/// What an index can be over, and what that is declared to be.
fn column_type(node: &Node, concept: &Concept) -> Option<Option<Type>> {
    match path(node)?.as_slice() {
        ["payload" | "fields", names @ ..] if !names.is_empty() => {
            let is_word = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let path: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.iter().all(is_word).then(|| field_at(concept, &path).ok().flatten())
        }
        ["createdAt" | "updatedAt"] => Some(Some(Type::Timestamp)),
        ["id" | "createdBy"] => Some(None),
        _ => None,
    }
}

/// Literals, arguments, who asks and when, lists of them and one step of arithmetic.
fn is_known(node: &Node, inside: bool) -> bool {
    match &node.kind {
        NodeKind::Literal(literal) => !matches!(literal, Literal::Bytes(_)),
        NodeKind::List(items) => items.iter().all(|item| is_known(item, inside)),
        NodeKind::Negate(of) => is_known(of, true),
        // By a text it may be another way to write what is declared: that is left to the filter.
        NodeKind::Index { of, at } => {
            let is_text = matches!(at.kind, NodeKind::Literal(Literal::Text(_)));
            !is_text && is_known(of, true) && is_known(at, true)
        }
        NodeKind::Binary { op, left, right } => {
            let counts = matches!(op, Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder);
            counts && !inside && is_known(left, true) && is_known(right, true)
        }
        // A name that is not known at all is an error already.
        _ => path(node).is_some_and(|names| !INTRINSIC.contains(&names[0]) && names[0] != "fields"),
    }
}

/// Beside an argument that is declared to be an instant or a duration, a field that is not is read as one row by row.
fn is_read_anew(known: &Node, args: &[definition::Field], of: &Option<Type>) -> bool {
    let names = path(known).unwrap_or_default();
    let ["args", name] = names.as_slice() else { return false };
    let arg = args.iter().find(|arg| arg.name == *name).map(|arg| &arg.of);
    arg.is_some_and(|arg| matches!(arg, Type::Timestamp | Type::Duration) && of.as_ref() != Some(arg))
}

/// A path that ends at a secret or goes through one.
fn is_secret(node: &Node, concept: &Concept) -> bool {
    let Some(names) = path(node) else { return false };
    let names = match names.as_slice() {
        ["payload" | "fields", below @ ..] => below,
        [first, ..] if INTRINSIC.contains(first) => return false,
        bare => bare,
    };
    let mut fields = concept.fields.as_slice();
    for name in names {
        let Some(field) = fields.iter().find(|field| field.name == *name) else { return false };
        if field.secret {
            return true;
        }
        fields = match &field.of {
            Type::Object(inner) => inner,
            _ => &[],
        };
    }
    false
}
