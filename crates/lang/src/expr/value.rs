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
    Timestamp(Timestamp),
    /// Nanoseconds; may be negative.
    Duration(i128),
    /// An array and an object of the document, untouched.
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
    /// A list and a map that the expression made.
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>),
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

    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(Rc::new(items))
    }

    /// The name of its type, as CEL and `try expr` call it.
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
            Val::Array(_) | Val::List(_) => "list",
            Val::Object(_) | Val::Map(_) => "map",
        }
    }

    /// The element at `index` of a list; `None` when it is no list or has no such element.
    pub(crate) fn element(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Val::Array(items) => items.get(index).map(Val::of),
            Val::List(items) => items.get(index).cloned(),
            _ => None,
        }
    }

    /// How many elements a list or entries a map has.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Val::Array(items) => Some(items.len()),
            Val::List(items) => Some(items.len()),
            Val::Object(map) => Some(map.len()),
            Val::Map(pairs) => Some(pairs.len()),
            _ => None,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Val::Array(_) | Val::List(_))
    }

    /// The member of a map under a text key.
    pub(crate) fn member(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Val::Object(map) => map.get(name).map(Val::of),
            Val::Map(pairs) => {
                let named = |key: &Val<'_>| matches!(key, Val::Text(text) if text == name);
                pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// What a macro or `in` walks over: a list itself, the keys of a map.
    pub(crate) fn walked(self) -> Val<'a> {
        match self {
            Val::Object(map) => Val::list(map.keys().map(|key| Val::Text(Cow::Borrowed(key))).collect()),
            Val::Map(pairs) => Val::list(pairs.iter().map(|(key, _)| key.clone()).collect()),
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

    /// As JSON: what has no JSON form is written as text (contracts §5, `try expr`).
    pub fn to_json(&self) -> Value {
        match self {
            Val::Null => Value::Null,
            Val::Bool(b) => (*b).into(),
            Val::Number(Number::Int(n)) => (*n).into(),
            Val::Number(Number::Uint(n)) => (*n).into(),
            Val::Number(Number::Double(n)) if n.is_finite() => (*n).into(),
            Val::Number(Number::Double(n)) if n.is_nan() => "NaN".into(),
            Val::Number(Number::Double(n)) => if *n > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            Val::Text(text) => text.as_ref().into(),
            Val::Bytes(bytes) => base64(bytes).into(),
            Val::Timestamp(instant) => instant.to_string().into(),
            Val::Duration(nanos) => duration_text(*nanos).into(),
            Val::Array(items) => Value::Array(items.to_vec()),
            Val::Object(map) => Value::Object((*map).clone()),
            Val::List(items) => items.iter().map(Val::to_json).collect(),
            Val::Map(pairs) => pairs.iter().map(|(key, value)| (key.key_text(), value.to_json())).collect(),
        }
    }

    fn key_text(&self) -> String {
        match self.to_json() {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }
}

/// A duration as CEL writes it: seconds, with a fraction when there is one.
pub(crate) fn duration_text(nanos: i128) -> String {
    let (sign, nanos) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    match rest {
        0 => format!("{sign}{seconds}s"),
        _ => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, b| word << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
