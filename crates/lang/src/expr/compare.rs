//! Equality, membership and order of values: CEL's, with the seeds' rule about fields that are not there.

use std::cmp::Ordering;

use model::Code;

use super::ast::Op;
use super::eval::{Eval, with_article};
use super::fault::{Fault, Span};
use super::instant;
use super::program::{Kind, Node};
use super::value::Val;

impl<'a> Eval<'a, '_> {
    /// Equality with the seeds' rule: a field that is missing or null equals the empty text.
    pub(super) fn equal(
        &mut self,
        (left, a): (&Node, &Val<'a>),
        (right, b): (&Node, &Val<'a>),
    ) -> Result<bool, Fault> {
        let empty = |value: &Val<'_>| matches!(value, Val::Text(text) if text.is_empty());
        let absent = |node: &Node, value: &Val<'_>| matches!(value, Val::Null) && is_field(node);
        if (absent(left, a) && empty(b)) || (absent(right, b) && empty(a)) {
            return Ok(true);
        }
        let (meant_a, meant_b) = (beside(right, a), beside(left, b));
        self.same(meant_a.as_ref().unwrap_or(a), meant_b.as_ref().unwrap_or(b), left.span.to(right.span))
    }

    pub(super) fn within(
        &mut self,
        (left, a): (&Node, &Val<'a>),
        (right, b): (&Node, &Val<'a>),
    ) -> Result<bool, Fault> {
        let span = left.span.to(right.span);
        if let (Val::Object(map), Val::Text(key)) = (b, a) {
            return Ok(map.contains_key(key.as_ref()));
        }
        let Some(len) = b.len() else {
            return Err(self.mismatch(b, right, "\"in\" needs a list or a map"));
        };
        let list = b.clone().walked();
        let absent = matches!(a, Val::Null) && is_field(left);
        for index in 0..len {
            let item = list.element(index).unwrap_or(Val::Null);
            let empty = absent && matches!(&item, Val::Text(text) if text.is_empty());
            let meant = beside(left, &item).unwrap_or(item);
            if empty || self.same(a, &meant, span)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deep equality as in CEL: values of different kinds are different, numbers are equal by value.
    pub(super) fn same(&mut self, a: &Val<'a>, b: &Val<'a>, span: Span) -> Result<bool, Fault> {
        self.pay(1, 0, span)?;
        Ok(match (a, b) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Number(a), Val::Number(b)) => a.compare(*b) == Some(Ordering::Equal),
            (Val::Text(a), Val::Text(b)) => {
                self.pay(0, if a.len() == b.len() { a.len() } else { 0 }, span)?;
                a == b
            }
            (Val::Bytes(a), Val::Bytes(b)) => a == b,
            (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
            (Val::Duration(a), Val::Duration(b)) => a == b,
            _ if a.is_list() && b.is_list() => return self.same_list(a, b, span),
            (Val::Type(a), Val::Type(b)) => a == b,
            _ if a.is_map() && b.is_map() => return self.same_map(a, b, span),
            _ => false,
        })
    }

    fn same_list(&mut self, a: &Val<'a>, b: &Val<'a>, span: Span) -> Result<bool, Fault> {
        if a.len() != b.len() {
            return Ok(false);
        }
        let mut index = 0;
        while let (Some(a), Some(b)) = (a.element(index), b.element(index)) {
            if !self.same(&a, &b, span)? {
                return Ok(false);
            }
            index += 1;
        }
        Ok(true)
    }

    fn same_map(&mut self, a: &Val<'a>, b: &Val<'a>, span: Span) -> Result<bool, Fault> {
        if a.len() != b.len() {
            return Ok(false);
        }
        let keys = a.clone().walked();
        for index in 0..keys.len().unwrap_or(0) {
            let key = keys.element(index).unwrap_or(Val::Null);
            let (Some(a), Some(b)) = (self.entry(a, &key, span)?, self.entry(b, &key, span)?) else {
                return Ok(false);
            };
            if !self.same(&a, &b, span)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry(&mut self, map: &Val<'a>, key: &Val<'a>, span: Span) -> Result<Option<Val<'a>>, Fault> {
        if let (Val::Object(_), Val::Text(name)) = (map, key) {
            return Ok(map.member(name));
        }
        let Val::Map(pairs, _) = map else { return Ok(None) };
        for (known, value) in pairs.iter() {
            if self.same(known, key, span)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    pub(super) fn order(
        &mut self,
        op: Op,
        (left, a): (&Node, &Val<'a>),
        (right, b): (&Node, &Val<'a>),
    ) -> Result<Option<Ordering>, Fault> {
        let (meant_a, meant_b) = (beside(right, a), beside(left, b));
        Ok(match (meant_a.as_ref().unwrap_or(a), meant_b.as_ref().unwrap_or(b)) {
            (Val::Number(a), Val::Number(b)) => a.compare(*b),
            (Val::Text(a), Val::Text(b)) => {
                self.pay(0, a.len().min(b.len()), left.span)?;
                Some(a.cmp(b))
            }
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
            (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
            (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
            // Instants in events are texts.
            (Val::Timestamp(a), Val::Text(text)) if let Some(b) = instant::read(text) => Some(a.cmp(&b)),
            (Val::Text(text), Val::Timestamp(b)) if let Some(a) = instant::read(text) => Some(a.cmp(b)),
            (Val::Null, _) | (_, Val::Null) if self.of_rows => None,
            (Val::Null, _) => return Err(self.mismatch(a, left, &format!("{:?} needs a value", op.sign()))),
            (_, Val::Null) => return Err(self.mismatch(b, right, &format!("{:?} needs a value", op.sign()))),
            _ => return Err(apart(op, a, b, left.span.to(right.span))),
        })
    }
}

/// Whether it reads a field, so that null means "not there".
fn is_field(node: &Node) -> bool {
    match &node.kind {
        Kind::Path { steps, .. } => !steps.is_empty(),
        Kind::Member(..) | Kind::Index(..) | Kind::UserId(_) => true,
        Kind::Instant(of) | Kind::Length(of) => is_field(of),
        _ => false,
    }
}

/// What a value means beside something that is declared to be an instant or a duration: a text or a number is one, too.
pub(super) fn beside<'a>(declared: &Node, value: &Val<'a>) -> Option<Val<'a>> {
    match (&declared.kind, value) {
        (Kind::Instant(_), Val::Text(text)) => instant::read(text).map(Val::Timestamp),
        (Kind::Length(_), Val::Text(text)) => instant::parse_duration(text).map(Val::Duration),
        (Kind::Length(_), Val::Number(seconds)) => Some(Val::Duration(instant::of_seconds(seconds.to_f64()))),
        _ => None,
    }
}

pub(super) fn apart(op: Op, a: &Val<'_>, b: &Val<'_>, span: Span) -> Fault {
    let what = format!("{:?} does not go between {} and {}", op.sign(), with_article(a), with_article(b));
    let fault = Fault::new(Code::ExprType, span, what);
    match (a, b) {
        (Val::Text(_), Val::Number(_)) | (Val::Number(_), Val::Text(_)) => {
            fault.hint("convert one side with int(…), double(…) or string(…)")
        }
        _ => fault,
    }
}
