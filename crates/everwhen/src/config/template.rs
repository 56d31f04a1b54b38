//! The file that `everwhen init` writes, read as what it tells: each key with its default or an example, and what it means.
//!
//! ```text
//!   [table]                  # what it is for          keys below it show their defaults
//!   # key = value            # what it means
//!   # key = value            # …; none by default      the value is an example
//!   # [table] or [[table]]   # what it is for          keys below it are examples
//! ```

use super::{TEMPLATE, keys};

/// One key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// As in [`keys::TABLES`].
    pub table: &'static str,
    pub key: &'static str,
    /// As TOML: the default, or an example.
    pub value: &'static str,
    /// The value is in force when nobody says another.
    pub default: bool,
    pub meaning: &'static str,
}

const NONE: &str = "none by default";

/// The keys in order. Of what is shown several times, the tables of tenants and rules that differ, each key once.
pub fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut table, mut example) = ("", false);
    for line in TEMPLATE.lines() {
        if let Some((name, is_example)) = heading(line) {
            (table, example) = (name.rsplit('.').next().unwrap_or(name), is_example);
        } else if let Some((key, value, meaning)) = pair(line) {
            let known = entries.iter().any(|entry| (entry.table, entry.key) == (table, key));
            let default = !example && !meaning.ends_with(NONE);
            let meaning = meaning.trim_end_matches(NONE).trim_end_matches("; ");
            if !known {
                entries.push(Entry { table, key, value, default, meaning });
            }
        }
    }
    entries
}

/// What a table is for.
pub fn purpose(table: &str) -> &'static str {
    let lines = TEMPLATE.lines().filter(|line| heading(line).is_some_and(|(name, _)| name == table));
    lines.filter_map(|line| line.rsplit_once("]  ")?.1.trim().strip_prefix("# ")).next().unwrap_or_default()
}

/// A line that opens a table: its dotted name, and whether it is commented out.
fn heading(line: &'static str) -> Option<(&'static str, bool)> {
    let live = line.strip_prefix("# ").unwrap_or(line);
    let name = live.strip_prefix('[')?.trim_start_matches('[').split(']').next()?;
    Some((name, live.len() < line.len()))
}

fn pair(line: &'static str) -> Option<(&'static str, &'static str, &'static str)> {
    let (key, rest) = line.strip_prefix("# ")?.split_once(" = ")?;
    let (value, meaning) = rest.split_once("  # ").unwrap_or((rest, ""));
    let word = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    word.then_some((key, value.trim(), meaning.trim()))
}

impl Entry {
    /// Dotted: `events.max_payload`.
    pub fn name(&self) -> String {
        if self.table.is_empty() { self.key.to_owned() } else { format!("{}.{}", self.table, self.key) }
    }

    /// A variable can say it, and it stands there once.
    pub fn single(&self) -> bool {
        !keys::many(self.table)
    }
}
