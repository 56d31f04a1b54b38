//! Numbers compared across their kinds, for expressions and filters alike: `1` and `1.0` are one number.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Uint(u64),
    Double(f64),
}

impl Number {
    pub fn of(number: &serde_json::Number) -> Number {
        if let Some(int) = number.as_i64() {
            return Number::Int(int);
        }
        match number.as_u64() {
            Some(uint) => Number::Uint(uint),
            None => Number::Double(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Uint(n) => n as f64,
            Number::Double(n) => n,
        }
    }

    /// Integers of either sign exactly; an integer beside a double as a double, which is CEL's rule. `None`
    /// when one of the two is not a number (NaN).
    pub fn compare(self, other: Number) -> Option<Ordering> {
        match (self.whole(), other.whole()) {
            (Ok(a), Ok(b)) => Some(a.cmp(&b)),
            (Ok(a), Err(b)) => (a as f64).partial_cmp(&b),
            (Err(a), Ok(b)) => a.partial_cmp(&(b as f64)),
            (Err(a), Err(b)) => a.partial_cmp(&b),
        }
    }

    fn whole(self) -> Result<i128, f64> {
        match self {
            Number::Int(n) => Ok(n.into()),
            Number::Uint(n) => Ok(n.into()),
            Number::Double(n) => Err(n),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(n) => n.fmt(f),
            Number::Uint(n) => n.fmt(f),
            Number::Double(n) => n.fmt(f),
        }
    }
}

/// Equality of JSON values with numbers compared as numbers: `1` equals `1.0`.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Number::of(a).compare(Number::of(b)) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
