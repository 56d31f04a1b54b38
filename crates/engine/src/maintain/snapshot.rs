//! Snapshots of `state.db`: what a trimmed ledger is folded on top of.

#![expect(clippy::disallowed_methods, reason = "snapshots are files")]

use std::path::{Path, PathBuf};

/// The snapshots of a tenant's directory, newest first.
pub fn newest_first(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("snapshots")).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "db"));
    found.sort();
    found.reverse();
    found
}
