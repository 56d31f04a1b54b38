//! Values that steps compute: expressions as they are, JSON values whose strings hold `{{ expr | filter }}`.

use model::Code;
use model::definition::{Condition, Input, Length, Test};
use serde_json::Value;

use super::Checker;
use super::scope::Scope;
use crate::declare::doc::{Doc, Kind, parse_hole_within};
use crate::declare::finding::fault;
use crate::declare::tree::{self, Val, Word};
use crate::expr::hole_len;

/// Whether a text somewhere in it has something to fill in.
pub(super) fn has_template(doc: &Doc) -> bool {
    match &doc.kind {
        Kind::Text(text) => text.contains("{{"),
        Kind::List(items) => items.iter().any(has_template),
        Kind::Map(pairs) => pairs.iter().any(|(key, item)| key.text.contains("{{") || has_template(item)),
        _ => false,
    }
}

impl Checker<'_> {
    pub(super) fn input(&mut self, val: &Val, scope: &Scope, refs: &mut Vec<String>) -> Input {
        match val {
            Val::Expr(node) if has_template(&Doc::of(node.clone())) => {
                Input::Template(self.filled(&Doc::of(node.clone()), scope, refs))
            }
            Val::Expr(node) => {
                let (expr, found) = self.expr(node, scope);
                refs.extend(found);
                Input::Expr(expr)
            }
            Val::Template(doc) => {
                self.template(doc, scope, refs);
                Input::Template(doc.json())
            }
        }
    }

    /// A value of `.ew` with templates in it, as the JSON value that says the same: expressions in it become `{{ expr }}`,
    /// which keeps their type.
    fn filled(&mut self, doc: &Doc, scope: &Scope, refs: &mut Vec<String>) -> Value {
        match (&doc.kind, &doc.node) {
            (Kind::Text(text), _) => {
                self.template_text(text, doc, scope, refs);
                text.as_str().into()
            }
            (Kind::List(items), _) => items.iter().map(|item| self.filled(item, scope, refs)).collect(),
            (Kind::Map(pairs), _) => {
                pairs.iter().for_each(|(key, _)| self.plain_key(key));
                let filled = |(key, item): &(Word, Doc)| (key.text.clone(), self.filled(item, scope, refs));
                Value::Object(pairs.iter().map(filled).collect())
            }
            (Kind::Other | Kind::Duration(_), Some(node)) => {
                let (expr, found) = self.expr(node, scope);
                refs.extend(found);
                format!("{{{{ {} }}}}", expr.0).into()
            }
            _ => doc.json(),
        }
    }

    fn template(&mut self, doc: &Doc, scope: &Scope, refs: &mut Vec<String>) {
        match &doc.kind {
            Kind::Text(text) => self.template_text(text, doc, scope, refs),
            Kind::List(items) => items.iter().for_each(|item| self.template(item, scope, refs)),
            Kind::Map(pairs) => pairs.iter().for_each(|(key, item)| {
                self.plain_key(key);
                self.template(item, scope, refs);
            }),
            _ => {}
        }
    }

    /// Only values are filled in: a key with a template in it would be sent as it stands.
    fn plain_key(&mut self, key: &Word) {
        if !key.text.contains("{{") {
            return;
        }
        let what = format!("the key {:?} is not filled in: only values are templates", key.text);
        let hint = "compute the whole map in one template, such as \"{{ {event.payload.name: 1} }}\"";
        self.error(fault(Code::DefinitionInvalid, key.span, what).hint(hint));
    }

    fn template_text(&mut self, text: &str, doc: &Doc, scope: &Scope, refs: &mut Vec<String>) {
        let mut at = 0;
        while let Some(open) = text[at..].find("{{") {
            let start = at + open + 2;
            let Some(len) = hole_len(&text[start..]) else {
                let open = fault(Code::ExprSyntax, doc.span, "a \"{{\" is never closed");
                self.error(open.hint("close it with \"}}\""));
                return;
            };
            let inner = &text[start..start + len];
            let read = parse_hole_within(inner, doc.span, start);
            let (nodes, piped) = self.take(read).unwrap_or_default();
            if let (true, Some(value)) = (piped, nodes.first()) {
                self.secrets(value, scope, false);
            }
            for node in nodes {
                refs.extend(self.expr(&node, scope).1);
            }
            at = start + len + 2;
        }
    }

    pub(super) fn length(&mut self, length: &tree::Length, scope: &Scope, refs: &mut Vec<String>) -> Length {
        match length {
            tree::Length::Fixed(duration) => Length::Fixed(*duration),
            tree::Length::Computed(node) => {
                let (expr, found) = self.expr(node, scope);
                refs.extend(found);
                Length::Computed(expr)
            }
        }
    }

    pub(super) fn condition(
        &mut self,
        given: &tree::Condition,
        scope: &Scope,
        refs: &mut Vec<String>,
    ) -> Condition {
        let mut all = |checker: &mut Self, items: &[tree::Condition]| {
            items.iter().map(|item| checker.condition(item, scope, refs)).collect()
        };
        Condition::Test(match given {
            tree::Condition::Expr(node) => {
                self.yes_or_no(node);
                let (expr, found) = self.expr(node, scope);
                refs.extend(found);
                return Condition::Expr(expr);
            }
            tree::Condition::And(items) => Test::And(all(self, items)),
            tree::Condition::Or(items) => Test::Or(all(self, items)),
            tree::Condition::Not(item) => Test::Not(Box::new(self.condition(item, scope, refs))),
            tree::Condition::Time(time) => Test::Time(time.clone()),
            tree::Condition::State { entity, place, field, is, watched, held } => {
                self.entity_known(entity, *place);
                self.watched_field(entity, field, &watched.values, watched.field.unwrap_or(*place));
                let held = held.as_ref().map(|held| self.length(held, scope, refs));
                Test::State { entity: entity.clone(), field: field.clone(), is: is.clone(), held }
            }
            tree::Condition::Numeric { value, place, above, below } => {
                above.iter().chain(below).for_each(|bound| self.bound(bound, *place));
                let (expr, found) = self.expr(value, scope);
                refs.extend(found);
                Test::NumericState { value: expr, above: above.clone(), below: below.clone() }
            }
        })
    }
}
