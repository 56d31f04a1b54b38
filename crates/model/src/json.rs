//! The strict reading of JSON text: every byte a client sends passes here once, before anything is believed.
//!
//! Payloads are kept as the text they came in, so numbers come back digit for digit; nothing here builds a
//! tree. Stricter than the grammar in three points: no object may name a key twice, no string may hold half
//! a surrogate pair, no number may be too large for a double. What passes is text that every other reader
//! understands alike.

use std::borrow::Cow;

use crate::Problem;

mod canonical;
mod end;
mod length;
mod scan;
mod text;

#[cfg(test)]
mod tests;

pub use canonical::{canonical, canonical_hash};
pub use end::value_end;
pub use length::length;
pub use text::unquote;

/// A member of the outermost object: its key, unescaped, and its value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub key: Cow<'a, str>,
    pub value: &'a str,
}

/// The outermost value, one level open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outline<'a> {
    Object(Vec<Field<'a>>),
    Array(Vec<&'a str>),
    /// A string, number, `true`, `false` or `null`, as it was written.
    Scalar(&'a str),
}

/// Checks that `bytes` are one JSON value nested at most `depth_max` deep (`[]` is 1 deep).
///
/// Fails with `json.invalid` and the byte `offset`, or `json.duplicate_key` and the JSON `pointer` of the
/// key.
pub fn check(bytes: &[u8], depth_max: usize) -> Result<(), Problem> {
    scan::Scanner::new(bytes, depth_max)?.run(false).map(drop)
}

/// Checks everything, as [`check`], and opens the outermost value.
pub fn outline(bytes: &[u8], depth_max: usize) -> Result<Outline<'_>, Problem> {
    scan::Scanner::new(bytes, depth_max)?.run(true)
}

/// Checks everything and gives the members of an object, in order; `None` when the value is no object.
pub fn fields(bytes: &[u8], depth_max: usize) -> Result<Option<Vec<Field<'_>>>, Problem> {
    match outline(bytes, depth_max)? {
        Outline::Object(fields) => Ok(Some(fields)),
        _ => Ok(None),
    }
}

/// Checks everything and gives the elements of an array, in order; `None` when the value is no array.
pub fn elements(bytes: &[u8], depth_max: usize) -> Result<Option<Vec<&str>>, Problem> {
    match outline(bytes, depth_max)? {
        Outline::Array(elements) => Ok(Some(elements)),
        _ => Ok(None),
    }
}
