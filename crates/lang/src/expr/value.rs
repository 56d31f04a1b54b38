//! Values while an expression is evaluated: borrowed from the event where possible, owned where computed.

use std::borrow::Cow;
use std::rc::Rc;

use model::Timestamp;
use serde_json::{Map, Value};

use super::ast::Literal;
use crate::number::Number;

#[derive(Clone, Debug)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Nanoseconds since 1970, in the years 1 to 9999.
    Timestamp(i128),
    /// Nanoseconds; may be negative.
    Duration(i128),
    /// A type, by its name in CEL.
    Type(&'static str),
    /// An array and an object of the document, untouched.
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
    /// A list and a map that the expression made, and how deep they are nested.
    List(Rc<Vec<Val<'a>>>, u16),
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>, u16),
}

impl<'a> Val<'a> {
    pub fn of(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::Number(n) => Val::Number(Number::of(n)),
            Value::String(s) => Val::Text(Cow::Borrowed(s)),
            Value::Array(a) => Val::Array(a),
            Value::Object(o) => Val::Object(o),
        }
    }

    pub(crate) fn literal(literal: &'a Literal) -> Val<'a> {
        match literal {
            Literal::Null => Val::Null,
            Literal::Bool(b) => Val::Bool(*b),
            Literal::Int(n) => Val::Number(Number::Int(*n)),
            Literal::Uint(n) => Val::Number(Number::Uint(*n)),
            Literal::Double(n) => Val::Number(Number::Double(*n)),
            Literal::Text(text) => Val::Text(Cow::Borrowed(text)),
            Literal::Bytes(bytes) => Val::Bytes(Cow::Borrowed(bytes)),
            Literal::Duration(nanos) => Val::Duration(*nanos),
        }
    }

    pub fn int(n: i64) -> Val<'a> {
        Val::Number(Number::Int(n))
    }

    pub fn double(n: f64) -> Val<'a> {
        Val::Number(Number::Double(n))
    }

    /// A count of things, which always fits.
    pub(crate) fn count(n: usize) -> Val<'a> {
        Val::int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub fn text(text: impl Into<Cow<'a, str>>) -> Val<'a> {
        Val::Text(text.into())
    }

    pub fn instant(at: Timestamp) -> Val<'a> {
        Val::Timestamp(at.nanos())
    }

    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        let depth = items.iter().map(Val::depth).max().unwrap_or(0);
        Val::List(Rc::new(items), depth.saturating_add(1))
    }

    pub fn map(pairs: Vec<(Val<'a>, Val<'a>)>) -> Val<'a> {
        let depth = pairs.iter().map(|(_, value)| value.depth()).max().unwrap_or(0);
        Val::Map(Rc::new(pairs), depth.saturating_add(1))
    }

    /// How deep what the expression made is nested; a document counts as one level, its own depth is bounded.
    pub(crate) fn depth(&self) -> u16 {
        match self {
            Val::List(_, depth) | Val::Map(_, depth) => *depth,
            Val::Array(_) | Val::Object(_) => 1,
            _ => 0,
        }
    }

    /// The name of its type, as `try expr` calls it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null",
            Val::Bool(_) => "bool",
            Val::Number(Number::Int(_)) => "int",
            Val::Number(Number::Uint(_)) => "uint",
            Val::Number(Number::Double(_)) => "double",
            Val::Text(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Timestamp(_) => "timestamp",
            Val::Duration(_) => "duration",
            Val::Type(_) => "type",
            Val::Array(_) | Val::List(..) => "list",
            Val::Object(_) | Val::Map(..) => "map",
        }
    }

    /// Its type as CEL's `type(…)` names it.
    pub(crate) fn cel_type(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::Duration(_) => "google.protobuf.Duration",
            other => other.type_name(),
        }
    }

    /// The element at `index` of a list; `None` when it is no list or has no such element.
    pub(crate) fn element(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Val::Array(items) => items.get(index).map(Val::of),
            Val::List(items, _) => items.get(index).cloned(),
            _ => None,
        }
    }

    /// How many elements a list or entries a map has.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Val::Array(items) => Some(items.len()),
            Val::List(items, _) => Some(items.len()),
            Val::Object(map) => Some(map.len()),
            Val::Map(pairs, _) => Some(pairs.len()),
            _ => None,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Val::Array(_) | Val::List(..))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Val::Object(_) | Val::Map(..))
    }

    /// The member of a map under a text key.
    pub(crate) fn member(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Val::Object(map) => map.get(name).map(Val::of),
            Val::Map(pairs, _) => {
                let named = |key: &Val<'_>| matches!(key, Val::Text(text) if text == name);
                pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// The entry at `index` of a map, in its order.
    pub(crate) fn pair(&self, index: usize) -> Option<(Val<'a>, Val<'a>)> {
        match self {
            Val::Object(map) => map.iter().nth(index).map(|(key, value)| (Val::text(key), Val::of(value))),
            Val::Map(pairs, _) => pairs.get(index).cloned(),
            _ => None,
        }
    }

    /// What a macro or `in` walks over: a list itself, the keys of a map.
    pub(crate) fn walked(self) -> Val<'a> {
        match self {
            Val::Object(map) => Val::list(map.keys().map(|key| Val::text(key.as_str())).collect()),
            Val::Map(pairs, _) => Val::list(pairs.iter().map(|(key, _)| key.clone()).collect()),
            list => list,
        }
    }

    /// Bytes that a copy of it copies.
    pub(crate) fn owned_len(&self) -> usize {
        match self {
            Val::Text(Cow::Owned(text)) => text.len(),
            Val::Bytes(Cow::Owned(bytes)) => bytes.len(),
            _ => 0,
        }
    }
}
