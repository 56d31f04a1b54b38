//! The common case of filters: a field of the document compared with a literal, or listed in one, decided in
//! place without making values of the two. Whatever is not that is left to the general way.

use std::cmp::Ordering;

use serde_json::Value;

use super::ast::{Literal, Op};
use super::eval::Eval;
use super::program::{Kind, Node, Step};
use super::value::Val;
use crate::number::Number;

impl<'a> Eval<'a, '_> {
    /// The verdict, when both sides are there and of one kind.
    pub(super) fn quick(&self, op: Op, left: &'a Node, right: &'a Node) -> Option<bool> {
        let value = self.found(left)?;
        let order = match (&right.kind, op) {
            (Kind::Literal(literal), _) => compare(value, literal)?,
            (Kind::Path { .. }, _) => compare_both(value, self.found(right)?)?,
            (Kind::List(items), Op::In) => return listed(value, items),
            (Kind::List(items), Op::NotIn) => return listed(value, items).map(|is| !is),
            _ => return None,
        };
        Some(match op {
            Op::Equal => order.is_eq(),
            Op::Unequal => order.is_ne(),
            Op::Less => order.is_lt(),
            Op::LessEqual => order.is_le(),
            Op::Greater => order.is_gt(),
            Op::GreaterEqual => order.is_ge(),
            _ => return None,
        })
    }

    /// What a path of keys leads to inside the document.
    fn found(&self, node: &'a Node) -> Option<&'a Value> {
        let Kind::Path { base, steps } = &node.kind else { return None };
        let [Step::Key(first), rest @ ..] = &**steps else { return None };
        let Val::Object(map) = self.base(*base)? else { return None };
        let mut at = map.get(&**first)?;
        for step in rest {
            let Step::Key(key) = step else { return None };
            at = at.as_object()?.get(&**key)?;
        }
        Some(at)
    }
}

/// `None` for what needs the general rules: other kinds, null, NaN, and texts so long that they cost steps.
fn compare(value: &Value, literal: &Literal) -> Option<Ordering> {
    match (value, literal) {
        (Value::String(a), Literal::Text(b)) if b.len() < 64 => Some(a.as_str().cmp(b)),
        (Value::Number(a), Literal::Int(b)) => Number::of(a).compare(Number::Int(*b)),
        (Value::Number(a), Literal::Double(b)) => Number::of(a).compare(Number::Double(*b)),
        (Value::Bool(a), Literal::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Whether one of a few literals is the value; a longer list costs steps.
fn listed(value: &Value, items: &[Node]) -> Option<bool> {
    if items.len() > 16 {
        return None;
    }
    let mut found = false;
    for item in items {
        let Kind::Literal(literal) = &item.kind else { return None };
        found |= compare(value, literal)?.is_eq();
    }
    Some(found)
}

fn compare_both(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Number::of(a).compare(Number::of(b)),
        (Value::String(a), Value::String(b)) if b.len() < 64 => Some(a.cmp(b)),
        _ => None,
    }
}
