//! The nouns of Everwhen as plain data: events, topics, records, times and problems; no IO, no clock, no async.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod base64;
pub mod definition;
pub mod digits;
pub mod event;
pub mod group;
pub mod id;
pub mod json;
pub mod problem;
pub mod record;
pub mod suggest;
pub mod time;
pub mod topic;
pub mod wildcard;

pub use problem::{Code, Problem};
pub use time::Timestamp;

/// Where a record stands in its tenant's ledger: 1, 2, 3 …, gapless over all records, assigned by the single writer.
/// 0 means "before the first". Order is position, never a clock or an id.
pub type Position = u64;
