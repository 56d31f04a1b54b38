//! Declarations: concepts, queries, mutations, shapes, logic and automations, from text to checked definitions.
//!
//! ```text
//!  .ew ────────parse─▶ tree ─check─▶ model::definition + findings
//!  .yaml .json ─yaml─▶  ▲
//!                      doc, options: triggers, gates, conditions, waits, read once for both
//! ```
//!
//! All files of a workspace are read before any is checked, and a fault never hides the next one.

mod annotate;
mod check;
mod doc;
mod finding;
mod format;
mod options;
mod parse;
pub(crate) mod print;
mod tree;
mod walk;
mod workspace;
mod yaml;

pub use finding::{Finding, Severity};
pub use format::format;
pub use workspace::{Checked, check_beside, check_with_rows, check_workspace, is_source, read_values};
