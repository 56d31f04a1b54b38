//! What users write to choose and shape events: expressions, filters, JSONPath, mappers; pure, between
//! model and engine.
//!
//! Everything is compiled once, when a group or a rule is defined, and then only tested, per event:
//!
//! ```text
//!  filter   text or JSON ─▶ Filter ── test(event) ─▶ bool, or a problem that the caller counts
//!  mapper   JSON         ─▶ Mapper ── apply(event) ─▶ a run's input
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cron;
pub mod declare;
pub mod expr;
pub mod filter;
pub mod jsonpath;
pub mod mapper;
pub mod number;
pub mod try_cron;
pub mod try_expr;
pub mod try_lines;
