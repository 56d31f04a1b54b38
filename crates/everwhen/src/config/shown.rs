//! Every setting as it is in force, with where it came from: `serve --print-config`.
//!
//! Their defaults are read out of the template, so there is no second list of them.

use std::fmt::Write;

use model::Problem;
use serde_json::{Map, Value, json};

use super::keys::{self, Kind, variable_of};
use super::said_by;
use super::template::{self, Entry};
use super::written::{Said, Source, Table};

/// One setting.
#[derive(Debug, PartialEq)]
pub struct Shown {
    /// Dotted: `events.max_payload`.
    pub key: String,
    /// As TOML; empty where nothing is set.
    pub value: String,
    /// The same for programs; null where nothing is set.
    pub typed: Value,
    /// `default`, `everwhen.toml:12`, `EVERWHEN_LISTEN`, `--listen`.
    pub from: String,
}

/// What is in force. `flags` stand over all of it, each under the name of its key.
pub fn shown(
    source: &Source,
    env: &dyn Fn(&str) -> Option<String>,
    flags: &[(&str, Option<&str>)],
) -> Result<Vec<Shown>, Problem> {
    let document = source.parse()?;
    let top = Table { source, name: "", at: 0, table: &document };
    let mut all = Vec::new();
    for entry in template::entries().into_iter().filter(Entry::single) {
        let (Entry { table, key, .. }, name) = (entry, entry.name());
        let written = match table {
            "" => top.get(key),
            table => top.table(table)?.and_then(|table| table.get(key)),
        };
        let flag = flags.iter().find_map(|(flag, value)| value.filter(|_| *flag == name));
        let variable = variable_of(table, key);
        let (typed, from) = match (flag, said_by(env, &variable, key), written) {
            (Some(value), ..) => (json!(value), format!("--{}", name.replace('.', "-"))),
            (None, Some(text), _) => {
                (as_typed(&Said::variable(&variable, key, text), keys::kind(table, key))?, variable)
            }
            (None, None, Some(said)) => (said.json()?, said.place.to_string()),
            (None, None, None) => (of_toml(&entry), "default".to_owned()),
        };
        all.push(Shown { key: name, value: toml(&typed), typed, from });
    }
    for key in ["tenants", "schema", "redact", "attention"] {
        if let Some(said) = top.get(key) {
            let (typed, from) = (said.json()?, said.place.to_string());
            all.push(Shown { key: key.to_owned(), value: toml(&typed), typed, from });
        }
    }
    // In a file, what belongs to no table stands before the first.
    all.sort_by_key(|one| one.key.contains('.'));
    Ok(all)
}

/// A default; null where there is none.
fn of_toml(entry: &Entry) -> Value {
    let read = toml::from_str::<Map<String, Value>>(&format!("it = {}", entry.value));
    read.ok().and_then(|mut table| table.remove("it")).filter(|_| entry.default).unwrap_or_default()
}

/// A variable is always a text; a file would say it as what the key takes.
fn as_typed(said: &Said<'_>, kind: Option<Kind>) -> Result<Value, Problem> {
    Ok(match kind {
        Some(Kind::List) => json!(said.texts()?),
        Some(Kind::Boolean) => json!(said.boolean()?),
        Some(Kind::Number(low, high)) => json!(said.number(low, high)?),
        _ => json!(said.text()?),
    })
}

/// JSON and TOML write text, numbers and booleans alike; what is not set is empty.
fn toml(value: &Value) -> String {
    let joined = |all: Vec<String>| all.join(", ");
    match value {
        Value::Null => String::new(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(toml).collect())),
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| format!("{} = {}", named(key), toml(value));
            format!("{{ {} }}", joined(members.iter().map(member).collect()))
        }
        other => other.to_string(),
    }
}

/// A key as it may stand in a file.
fn named(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if bare { key.to_owned() } else { Value::from(key).to_string() }
}

/// For people: a file that would say the same, and beside each key who said it.
pub fn as_file(shown: &[Shown]) -> String {
    let mut out = String::new();
    let mut open = "";
    for Shown { key, value, from, .. } in shown {
        let (table, key) = key.split_once('.').unwrap_or(("", key));
        if table != open {
            // Writing to a String cannot fail.
            let _ = write!(out, "\n[{table}]\n");
            open = table;
        }
        let _ = match value.is_empty() {
            true => writeln!(out, "# {key} is not set"),
            false => writeln!(out, "{:<44} # {from}", format!("{key} = {value}")),
        };
    }
    out
}
