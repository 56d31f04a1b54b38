//! Values into JSON and into text. Lists that an expression made may hold one large value many times, so
//! writing them out has a limit of its own.

use std::fmt::Write;

use model::{Code, Problem};
use serde_json::{Map, Value};

use super::instant::{duration_text, text};
use super::value::Val;
use crate::number::Number;

/// Largest result, in bytes of JSON, roughly.
const BYTES_MAX: usize = 4 << 20;

impl Val<'_> {
    /// As JSON: what has no JSON form is written as text (contracts §5, `try expr`). `expr.limit` beyond
    /// 4 MiB.
    pub fn to_json(&self) -> Result<Value, Problem> {
        let too_large = || Problem::new(Code::ExprLimit, "the value is larger than 4 MiB");
        self.json(&mut BYTES_MAX.clone()).ok_or_else(too_large)
    }

    /// As JSON within `left` bytes; `None` when they do not suffice.
    pub(super) fn json(&self, left: &mut usize) -> Option<Value> {
        spend(left, 8 + self.text_len())?;
        Some(match self {
            Val::Null => Value::Null,
            Val::Bool(b) => (*b).into(),
            Val::Number(Number::Int(n)) => (*n).into(),
            Val::Number(Number::Uint(n)) => (*n).into(),
            Val::Number(Number::Double(n)) if n.is_finite() => (*n).into(),
            Val::Number(Number::Double(n)) => double_text(*n).into(),
            Val::Text(text) => text.as_ref().into(),
            Val::Bytes(bytes) => base64(bytes).into(),
            Val::Timestamp(nanos) => text(*nanos).into(),
            Val::Duration(nanos) => duration_text(*nanos).into(),
            Val::Type(name) => (*name).into(),
            Val::Array(items) => {
                items.iter().try_for_each(|item| spend(left, size(item)))?;
                Value::Array(items.to_vec())
            }
            Val::Object(map) => {
                map.iter().try_for_each(|(key, item)| spend(left, key.len() + size(item)))?;
                Value::Object((*map).clone())
            }
            Val::List(items, _) => {
                Value::Array(items.iter().map(|item| item.json(left)).collect::<Option<_>>()?)
            }
            Val::Map(pairs, _) => {
                let pair = |(key, value): &(Val<'_>, Val<'_>)| Some((key.shown(left)?, value.json(left)?));
                Value::Object(pairs.iter().map(pair).collect::<Option<Map<_, _>>>()?)
            }
        })
    }

    fn text_len(&self) -> usize {
        match self {
            Val::Text(text) => text.len(),
            Val::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// As a person reads it: a text is itself, null nothing, everything else its JSON.
    pub(super) fn shown(&self, left: &mut usize) -> Option<String> {
        match self {
            Val::Null => Some(String::new()),
            Val::Number(Number::Double(n)) => Some(double_text(*n)),
            other => Some(match other.json(left)? {
                Value::String(text) => text,
                value => value.to_string(),
            }),
        }
    }

    /// Text that does not depend on the order of keys.
    pub(super) fn canonical(&self, left: &mut usize) -> Option<String> {
        Some(self.json(left)?.to_string())
    }
}

/// Roughly how long a document is as JSON.
fn size(value: &Value) -> usize {
    8 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 8,
    }
}

fn spend(left: &mut usize, bytes: usize) -> Option<()> {
    *left = left.checked_sub(bytes)?;
    Some(())
}

/// Plain digits up to 21 places, beyond that an exponent.
pub(super) fn double_text(n: f64) -> String {
    match n {
        _ if n.is_nan() => "NaN".to_owned(),
        _ if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        _ if n != 0.0 && !(1e-7..1e21).contains(&n.abs()) => {
            let text = format!("{n:e}");
            match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => format!("{digits}e+{power}"),
                _ => text,
            }
        }
        _ => n.to_string(),
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
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

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let digits = text.trim_end_matches('=').bytes().map(value).collect::<Option<Vec<u8>>>()?;
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let word = chunk.iter().fold(0u32, |word, d| word << 6 | u32::from(*d)) << (6 * (4 - chunk.len()));
        out.extend(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
