//! Every setting as it is in force, with where it came from: `serve --print-config`.
//!
//! The keys and their defaults are read out of the template, so there is no second list of them.

use std::fmt::Write;

use model::Problem;
use serde_json::{Map, Value, json};

use super::written::{Source, Table};
use super::{TEMPLATE, variable_of};

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

/// The keys of the template in order, each with its table and the text of its default.
fn known() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let mut table = "";
    // What is commented out as a whole is an example of something that may be there many times.
    let mut example = false;
    TEMPLATE.lines().filter_map(move |line| {
        example = line.starts_with("# [") || example && !line.starts_with('[');
        if example {
            return None;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            table = name;
            return None;
        }
        let (key, rest) = line.strip_prefix("# ")?.split_once(" = ")?;
        let value = rest.split("  #").next().unwrap_or(rest).trim();
        let value = if rest.ends_with("none by default") { "" } else { value };
        key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some((table, key, value))
    })
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
    for (table, key, default) in known() {
        let name = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        let written = match table {
            "" => top.get(key),
            table => top.table(table)?.and_then(|table| table.get(key)),
        };
        let flag = flags.iter().find_map(|(flag, value)| value.filter(|_| *flag == name));
        let variable = variable_of(table, key);
        let default = of_toml(default);
        let (typed, from) = match (flag, env(&variable), written) {
            (Some(value), ..) => (json!(value), format!("--{}", name.replace('.', "-"))),
            (None, Some(text), _) if !text.is_empty() => (as_typed(text, &default), variable),
            (None, _, Some(said)) => (said.json()?, said.place.to_string()),
            _ => (default, "default".to_owned()),
        };
        all.push(Shown { key: name, value: toml(&typed), typed, from });
    }
    for key in ["tenants", "schema", "redact", "attention"] {
        if let Some(said) = top.get(key) {
            let (typed, from) = (said.json()?, said.place.to_string());
            all.push(Shown { key: key.to_owned(), value: toml(&typed), typed, from });
        }
    }
    Ok(all)
}

/// What stands after `=` in the template; null for nothing.
fn of_toml(text: &str) -> Value {
    let read = toml::from_str::<Map<String, Value>>(&format!("it = {text}"));
    read.ok().and_then(|mut table| table.remove("it")).unwrap_or_default()
}

/// A variable is always a text; what it says is a number or a boolean where the key takes such.
fn as_typed(text: String, default: &Value) -> Value {
    let read = serde_json::from_str::<Value>(&text).ok();
    let fits = |value: &Value| match default {
        Value::Null => value.is_u64(),
        default => value.is_number() && default.is_number() || value.is_boolean() && default.is_boolean(),
    };
    read.filter(fits).unwrap_or(Value::String(text))
}

/// JSON and TOML write text, numbers, booleans and lists alike; what is not set is empty.
fn toml(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let Value::Object(members) = value else { return value.to_string() };
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
    format!("{{ {} }}", members.join(", "))
}

/// For people: a file that would say the same, and beside each key who said it.
pub fn as_file(shown: &[Shown]) -> String {
    let mut out = String::new();
    let mut open = "";
    for Shown { key, value, from, .. } in shown {
        let (table, key) = key.split_once('.').unwrap_or(("", key));
        // What may stand there many times is told in one line each, where no table is open any more.
        if table.is_empty() && !open.is_empty() {
            let _ = writeln!(out, "\n# {key} = {value} # {from}");
            continue;
        }
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
