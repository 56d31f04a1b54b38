//! Every key that `everwhen.toml` may hold, with what it takes: the one list that files, variables and the reference are held to.

use std::fmt;

use Kind::{Boolean, Duration, Filter, List, Number, Table, Tables, Text};

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Of strings; in a variable with commas between them.
    List,
    Boolean,
    /// A whole one, from and to.
    Number(u64, u64),
    Duration,
    /// An expression, or a table of conditions.
    Filter,
    /// `[key]`, and what may be in it.
    Table,
    /// `[[key]]`, many times.
    Tables,
}

/// The words of a refusal, and of the reference.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text => f.write_str("a string"),
            List => f.write_str("a list of strings"),
            Boolean => f.write_str("true or false"),
            Number(low, u64::MAX) => write!(f, "a whole number from {low} on"),
            Number(low, high) => write!(f, "a whole number from {low} to {high}"),
            Duration => f.write_str("a duration such as \"30s\", \"1h30m\" or \"2d\""),
            Filter => f.write_str("an expression, or a table of conditions"),
            Table => f.write_str("a table"),
            Tables => f.write_str("a list of tables"),
        }
    }
}

pub type Key = (&'static str, Kind);

const ANY: Kind = Number(0, u64::MAX);
const PAYLOAD: Kind = Number(1, engine::settings::PAYLOAD_MAX as u64);
const DEPTH: Kind = Number(1, engine::settings::DEPTH_MAX as u64);

/// Every table of the file with its keys; what is not here is refused.
pub const TABLES: [(&str, &[Key]); 12] = [
    (
        "",
        &[
            ("listen", Text),
            ("data", Text),
            ("idle", Duration),
            ("events", Table),
            ("retention", Table),
            ("history", Table),
            ("layers", Table),
            ("tenants", Table),
            ("quota", Table),
            ("schema", Tables),
            ("redact", Tables),
            ("attention", Tables),
            ("effects", Table),
            ("tls", Table),
            ("backup", Table),
        ],
    ),
    ("events", &[("default_space", Text), ("max_payload", PAYLOAD), ("max_depth", DEPTH)]),
    (
        "retention",
        &[("age", Duration), ("bytes", ANY), ("respect_groups", Boolean), ("respect_runs", Boolean)],
    ),
    ("history", &[("keep", Duration)]),
    (
        "layers",
        &[
            ("validation", Boolean),
            ("redaction", Boolean),
            ("attention", Boolean),
            ("tracing", Boolean),
            ("metrics", Boolean),
        ],
    ),
    (
        "quota",
        &[
            ("bytes", ANY),
            ("events_per_s", ANY),
            ("groups", ANY),
            ("automations", ANY),
            ("runs_per_day", ANY),
        ],
    ),
    ("schema", &[("topic", Text), ("file", Text), ("name", Text)]),
    ("redact", &[("topic", Text), ("drop", List), ("mask", List), ("hash", List), ("detectors", List)]),
    (
        "attention",
        &[
            ("topic", Text),
            ("filter", Filter),
            ("rate", Text),
            ("verdict", Text),
            ("until", Duration),
            ("by", Number(1, 9)),
        ],
    ),
    (
        "effects",
        &[
            ("allow", List),
            ("workers", Number(0, 1_000)),
            ("scheduled_workers", Number(0, 1_000)),
            ("timeout", Duration),
            ("ca_file", Text),
        ],
    ),
    ("tls", &[("cert", Text), ("key", Text)]),
    ("backup", &[("dir", Text)]),
];

/// The keys of a table, by its name; none of what is no table.
pub fn of(table: &str) -> &'static [Key] {
    TABLES.iter().find(|(name, _)| *name == table).map_or(&[][..], |(_, keys)| *keys)
}

/// What a key takes.
pub fn kind(table: &str, key: &str) -> Option<Kind> {
    of(table).iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
}

/// Whether a table stands there many times, as `[[table]]`; no variable says what is in one.
pub fn many(table: &str) -> bool {
    kind("", table) == Some(Tables)
}

/// Every key that a variable can say, with its table and what it takes.
pub fn of_variables() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let tables = TABLES.iter().filter(|(table, _)| !many(table));
    let keys = tables.flat_map(|(table, keys)| keys.iter().map(move |(key, kind)| (*table, *key, *kind)));
    keys.filter(|(.., kind)| !matches!(kind, Table | Tables))
}

/// The variable that says the same as a key of the file.
pub fn variable_of(table: &str, key: &str) -> String {
    match table {
        "" => format!("EVERWHEN_{key}"),
        table => format!("EVERWHEN_{table}_{key}"),
    }
    .to_uppercase()
}
