//! What is told of the settings is what is read: the template, the reference and `--print-config` against the reader itself.

use std::collections::BTreeSet;

use super::super::keys::{self, Kind};
use super::super::template::{Entry, entries};
use super::super::{reference, shown};
use super::*;

/// As somebody reads it who stands beside the file.
fn read(text: &str) -> Result<Config, Problem> {
    settle(&beside(text), &|_| None)
}

fn beside(text: &str) -> Source {
    Source { path: PathBuf::from("everwhen.toml"), text: text.to_owned() }
}

fn words(config: &Config) -> String {
    format!("{} {:?} {:?} {:?}", config.listen, config.data, config.tls, config.settings)
}

/// Every key that is a value and no table.
fn leaves() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let all = TABLES.iter().flat_map(|(table, keys)| keys.iter().map(|(key, kind)| (*table, *key, *kind)));
    all.filter(|(.., kind)| !matches!(kind, Kind::Table | Kind::Tables))
}

#[test]
fn the_template_tells_of_every_key_that_is_read_and_of_no_other() {
    let known: BTreeSet<_> = leaves().map(|(table, key, _)| (table, key)).collect();
    let told: BTreeSet<_> = entries().iter().map(|entry| (entry.table, entry.key)).collect();
    assert_eq!(told, known);
    let tables: BTreeSet<_> =
        TABLES.iter().map(|(table, _)| *table).filter(|table| !table.is_empty()).collect();
    let named = keys::of("").iter().filter(|(_, kind)| matches!(kind, Kind::Table | Kind::Tables));
    let named: BTreeSet<_> = named.map(|(key, _)| *key).filter(|key| *key != "tenants").collect();
    assert_eq!(tables, named, "tenants has tables of others in it");
    let quota: Vec<_> = keys::of("quota").iter().map(|(key, _)| *key).collect();
    assert_eq!(quota, Quota::NAMES);
    for entry in entries() {
        assert!(!entry.meaning.is_empty(), "{}", entry.name());
        assert!(reference::page().contains(&format!("| `{}` |", entry.key)), "{}", entry.name());
    }
}

#[test]
fn what_the_template_calls_a_default_is_what_is_in_force_without_a_word() {
    let without = words(&read("").unwrap());
    for entry in entries().iter().filter(|entry| entry.single()) {
        let Entry { table, key, value, .. } = entry;
        let heading = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let said = words(&read(&format!("{heading}{key} = {value}\n")).unwrap());
        assert_eq!(said == without, entry.default, "{}", entry.name());
    }
}

/// A table is what no key takes, so each refuses it by saying what it does take.
#[test]
fn what_the_reference_says_a_key_takes_is_what_its_reader_asks_for() {
    let needed = |table: &str, key: &str| match (table, key) {
        ("schema", _) => "topic = \"a\"\nfile = \"b\"\n",
        ("attention", "until") => "topic = \"a\"\nverdict = \"defer\"\n",
        ("attention", "by") => "topic = \"a\"\nverdict = \"boost\"\n",
        ("redact" | "attention", _) => "topic = \"a\"\nverdict = \"drop\"\n",
        _ => "",
    };
    for (table, key, kind) in leaves().filter(|(.., kind)| *kind != Kind::Filter) {
        let heading = match table {
            "" => String::new(),
            table if keys::many(table) => format!("[[{table}]]\n"),
            table => format!("[{table}]\n"),
        };
        let beside = needed(table, key).lines().filter(|line| !line.starts_with(&format!("{key} =")));
        let beside = beside.filter(|line| table != "redact" || !line.starts_with("verdict"));
        let beside: String = beside.map(|line| format!("{line}\n")).collect();
        let problem = read(&format!("{heading}{beside}{key} = {{}}\n")).err().unwrap();
        assert!(problem.detail().contains(&format!("\"{key}\" must be {kind}, not")), "{table}: {problem}");
    }
}

#[test]
fn what_is_shown_of_a_variable_says_the_same_in_a_file() {
    for (table, key, kind) in keys::of_variables() {
        let said: &[&str] = match kind {
            Kind::Text if key == "default_space" => &["shop", ""],
            Kind::Text => &["a \"b\"", "17", "true"],
            Kind::List => &["127.0.0.1", "127.0.0.1, hooks.internal", " , "],
            Kind::Boolean => &["true", "false", "1", "0"],
            Kind::Number(_, u64::MAX) => &["7", "+7", "007", "18446744073709551615"],
            Kind::Number(..) => &["7", "+7", "007"],
            Kind::Duration => &["90d", "1h30m", "0"],
            other => panic!("no variable says {other}"),
        };
        for text in said {
            let variable = variable_of(table, key);
            let env = |name: &str| (name == variable).then(|| (*text).to_owned());
            let all = shown::shown(&beside(""), &env, &[]).unwrap();
            let file = shown::as_file(&all);
            let again = read(&file).unwrap_or_else(|problem| panic!("{variable}={text}: {problem}\n{file}"));
            let mut meant = settle(&beside(""), &env).unwrap();
            if key == "data" {
                // The session reads this variable itself: it also says where without a settings file.
                meant.data = PathBuf::from(text);
            }
            assert_eq!(words(&again), words(&meant), "{variable}={text}\n{file}");
            assert!(all.iter().any(|one| one.from == variable), "{variable}={text}");
        }
    }
}

#[test]
fn tenants_and_rules_are_shown_as_a_file_would_say_them() {
    let text = r##"
[retention]
bytes = 18446744073709551615
[tenants."a.b".layers]
metrics = false
[tenants.acme.quota]
groups = 3
[[redact]]
topic = "user.#"
drop = ["$.payload.a", "$.payload.b"]
[[redact]]
topic = "x"
detectors = ["card"]
[[attention]]
topic = "sensor.#"
filter = { field = "band", eq = "green" }
verdict = "boost"
by = 2
"##;
    let all = shown::shown(&beside(text), &|_| None, &[]).unwrap();
    let file = shown::as_file(&all);
    let again = read(&file).unwrap_or_else(|problem| panic!("{problem}\n{file}"));
    assert_eq!(words(&again), words(&read(text).unwrap()), "{file}");
}
