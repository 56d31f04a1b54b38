//! The reference of `everwhen.toml`, `serve --print-config --reference`: made of the keys that are read, what each takes, and what the
//! template tells of it. `docs/config.md` is a copy that a test holds equal.

use std::fmt::Write;

use super::keys::{self, Kind, TABLES, variable_of};
use super::template::{self, Entry};

const HEAD: &str = "\
# everwhen.toml

Made by `everwhen serve --print-config --reference`, not by hand. `everwhen init` writes a file that shows every key;
`everwhen serve --print-config` says what is in force and who said so.

Every key is optional. A flag wins over a variable, that over the file, that over the default. A variable writes a list with commas
between its words. Names of files are relative to the settings file, in a variable to where the command was started.
";

/// As Markdown, a part for each table.
pub fn page() -> String {
    let entries = template::entries();
    let mut page = HEAD.to_owned();
    for (table, keys) in TABLES {
        let told = |key: &str| entries.iter().find(|entry| (entry.table, entry.key) == (table, key));
        page.push_str(&heading(table));
        for (key, kind) in keys.iter().filter(|(_, kind)| !matches!(kind, Kind::Table | Kind::Tables)) {
            page.extend(told(key).map(|entry| row(entry, *kind)));
        }
    }
    page
}

fn heading(table: &str) -> String {
    let purpose = template::purpose(table);
    let mut text = match table {
        "" => "\n## At the top\n\n".to_owned(),
        table if keys::many(table) => {
            format!("\n## [[{table}]]\n\nMay stand there many times: {purpose}.\n\n")
        }
        table => format!("\n## [{table}]\n\n"),
    };
    if !purpose.is_empty() && !keys::many(table) {
        let _ = write!(text, "{}.\n\n", capital(purpose));
    }
    if matches!(table, "layers" | "quota") {
        let _ = write!(text, "`[tenants.NAME.{table}]` says the same for one tenant; no variable does.\n\n");
    }
    text.push_str(match keys::many(table) {
        true => "| key | takes | example | meaning |\n|---|---|---|---|\n",
        false => "| key | takes | default | variable | meaning |\n|---|---|---|---|---|\n",
    });
    text
}

fn row(entry: &Entry, kind: Kind) -> String {
    let Entry { table, key, value, default, meaning } = entry;
    // A cell ends at a bar, also inside code.
    let (value, meaning) = (value.replace('|', "\\|"), meaning.replace('|', "\\|"));
    match (entry.single(), default) {
        (false, _) => format!("| `{key}` | {kind} | `{value}` | {meaning} |\n"),
        (true, true) => {
            format!("| `{key}` | {kind} | `{value}` | `{}` | {meaning} |\n", variable_of(table, key))
        }
        (true, false) => {
            let variable = variable_of(table, key);
            format!("| `{key}` | {kind} | none; e.g. `{value}` | `{variable}` | {meaning} |\n")
        }
    }
}

fn capital(text: &str) -> String {
    match text.starts_with(char::is_alphabetic) {
        true => text[..1].to_uppercase() + &text[1..],
        false => text.to_owned(),
    }
}
