//! Checks of the house that no tool makes; std only, so that `./x check` builds it in a second, before anything else.
//!
//! Stands beside the path of an event and reads the repository as text. Every list of exceptions here is meant to
//! shrink. To run it alone: `./x test tidy`.

#![allow(clippy::disallowed_methods)] // it reads the repository

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 600;
const FN_LINES_MAX: usize = 70;
const CRATES_MAX: usize = 300;
const ARCHITECTURE_LINES_MAX: usize = 300;

/// Files over `FILE_LINES_MAX` and functions (`path::name`) over `FN_LINES_MAX` that are known. Only to be shortened.
const LONG_FILES: &[&str] = &[];
const LONG_FUNCTIONS: &[&str] = &[];

/// The only files, and whole crates, that may ask the machine for time, chance, threads, files or environment.
const MAY_ASK_THE_MACHINE: &[&str] = &[
    "crates/engine/src/clock.rs",
    "crates/engine/src/effect/tls.rs",
    "crates/engine/src/effect/push.rs",
    "crates/engine/src/effect/workers.rs",
    "crates/engine/src/engine.rs",
    "crates/engine/src/entropy.rs",
    "crates/engine/src/faults.rs",
    "crates/engine/src/maintain/",
    "crates/engine/src/pool.rs",
    "crates/engine/src/tenant/open.rs",
    "crates/everwhen/",
    "crates/ledger/src/disk/os.rs",
    "crates/ledger/src/fault.rs",
    "crates/ledger/src/file/prefill.rs",
    "crates/server/",
    "crates/sim/",
];

/// The one place for `unsafe`: the ioctl that cuts the power of a test disk.
const MAY_BE_UNSAFE: &[&str] = &["crates/sim/src/power.rs"];

/// A crate, and those of ours it may name. Arrows point toward plain data.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("lang", &["model"]),
    ("ledger", &["model"]),
    ("engine", &["model", "lang", "ledger"]),
    ("server", &["model", "lang", "ledger", "engine"]),
    ("everwhen", &["model", "lang", "ledger", "engine", "server"]),
    ("sim", &["model", "lang", "ledger", "engine", "server", "everwhen"]),
];

/// Parts that must give the same answer for the same input, for ever: replay, simulation and backtest rest on it.
const PURE: &[&str] = &[
    "crates/model/src/",
    "crates/lang/src/",
    "crates/engine/src/apply",
    "crates/engine/src/decide",
    "crates/engine/src/route",
    "crates/engine/src/state",
];

#[test]
fn every_file_opens_with_what_it_is_for() {
    report(rust_files().into_iter().filter_map(|file| {
        let first = file.text.lines().next().unwrap_or("").to_owned();
        let said = first.strip_prefix("//! ").is_some_and(|rest| rest.len() >= 15);
        (!said).then(|| format!("{}: the first line must be `//!` and a sentence, is {first:?}", file.path))
    }));
}

#[test]
fn files_and_functions_stay_small() {
    let mut found = Vec::new();
    for file in rust_files() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX && !LONG_FILES.contains(&&*file.path) {
            found.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", file.path));
        }
        for (name, lines) in functions(&file.text) {
            let place = format!("{}::{name}", file.path);
            if lines > FN_LINES_MAX && !LONG_FUNCTIONS.contains(&&*place) {
                found.push(format!("{place}: {lines} lines besides what is flat, at most {FN_LINES_MAX}"));
            }
        }
    }
    report(found);
}

#[test]
fn the_lists_of_exceptions_only_name_what_is_there() {
    let functions = LONG_FUNCTIONS.iter().filter_map(|f| f.split("::").next());
    let paths = LONG_FILES.iter().chain(MAY_ASK_THE_MACHINE).copied().chain(functions);
    report(
        paths
            .filter(|path| !root().join(path).exists())
            .map(|path| format!("{path}: gone, drop it from the list")),
    );
}

#[test]
fn dependency_arrows_point_toward_plain_data() {
    let mut found = Vec::new();
    for (name, manifest) in manifests() {
        let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| *of == name) else {
            found.push(format!("crates/{name}: unknown to the arrows of tidy"));
            continue;
        };
        let named = ["dependencies", "build-dependencies"].iter().flat_map(|s| section(&manifest, s));
        let ours = named.filter(|dep| ARROWS.iter().any(|(of, _)| of == dep));
        found.extend(
            ours.filter(|dep| !allowed.contains(&&**dep)).map(|dep| format!("{name} may not name {dep}")),
        );
    }
    report(found);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let lacks = |manifest: &str| !manifest.contains("[lints]\nworkspace = true");
    report(
        manifests()
            .into_iter()
            .filter(|(_, m)| lacks(m))
            .map(|(name, _)| format!("crates/{name}: no [lints]")),
    );
}

#[test]
fn pure_parts_know_no_clock_thread_file_or_socket() {
    let banned = [
        "std::fs",
        "std::net",
        "std::thread",
        "std::env",
        "std::process",
        "tokio::",
        "SystemTime",
        "Instant::",
    ];
    report(
        rust_files()
            .into_iter()
            .filter(|f| PURE.iter().any(|p| f.path.starts_with(p)) && !f.is_test())
            .flat_map(|file| {
                let code = without_tests(&file.text);
                let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
                let bad =
                    lines.filter_map(|(n, line)| Some((n, banned.iter().find(|b| line.contains(**b))?)));
                bad.map(|(n, b)| format!("{}:{}: `{b}` in a pure part", file.path, n + 1)).collect::<Vec<_>>()
            }),
    );
}

#[test]
fn only_the_named_files_ask_the_machine() {
    report(rust_files().into_iter().filter_map(|file| {
        let lifts =
            file.text.contains("clippy::disallowed_methods") && file.path != "crates/everwhen/tests/tidy.rs";
        let named = file.is_test() || MAY_ASK_THE_MACHINE.iter().any(|m| file.path.starts_with(m));
        (lifts && !named)
            .then(|| format!("{}: lifts `disallowed_methods`, but tidy does not name it", file.path))
    }));
}

#[test]
fn unsafe_code_is_in_the_one_named_place() {
    let lifted = ["allow(unsafe_code", "expect(unsafe_code"];
    report(
        rust_files()
            .into_iter()
            .filter(|file| lifted.iter().any(|word| attribute(&file.text, word)))
            .filter_map(|file| {
                (!MAY_BE_UNSAFE.contains(&&*file.path)).then(|| format!("{}: lifts `unsafe_code`", file.path))
            }),
    );
}

#[test]
fn nothing_is_left_for_later() {
    let words =
        [["FIX", "ME"], ["TO", "DO"], ["db", "g!("], ["to", "do!("], ["#[ig", "nore"]].map(|w| w.concat());
    report(rust_files().into_iter().flat_map(|file| {
        let lines = file.text.lines().enumerate();
        let bad = lines.filter_map(|(n, line)| Some((n, words.iter().find(|w| line.contains(&***w))?)));
        bad.map(|(n, word)| format!("{}:{}: `{word}`", file.path, n + 1)).collect::<Vec<_>>()
    }));
}

#[test]
fn no_crate_or_module_is_a_junk_drawer() {
    let junk = ["common", "core", "helpers", "types", "util", "utils", "misc"];
    let crates = manifests().into_iter().map(|(name, _)| format!("crates/{name}"));
    let paths = crates.chain(rust_files().into_iter().map(|file| file.path));
    report(paths.filter_map(|path| {
        let stem = Path::new(&path).file_stem()?.to_str()?;
        (junk.contains(&stem) || stem == "mod").then(|| format!("{path}: name it after its noun"))
    }));
}

#[test]
fn a_crate_has_one_integration_test_binary() {
    report(rust_files().into_iter().filter_map(|file| {
        let (_, below) = file.path.split_once("/tests/")?;
        let alone = file.path.matches('/').count() == 3 && file.path != "crates/everwhen/tests/tidy.rs";
        (alone && !below.contains('/')).then(|| format!("{}: move it into tests/it/", file.path))
    }));
}

#[test]
fn every_error_code_has_a_page_and_every_page_a_code() {
    let source = read("crates/model/src/problem.rs");
    let rows: Vec<_> = source.lines().filter_map(code_row).collect();
    assert!(rows.len() > 40, "the table of codes in problem.rs was not understood: {} rows", rows.len());
    let mut found: Vec<_> = rows.iter().filter_map(page_problem).collect();
    let pages =
        names_in("docs/errors").into_iter().filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()));
    let orphans = pages.filter(|page| page != "README" && !rows.iter().any(|row| row.code == *page));
    found.extend(orphans.map(|page| format!("docs/errors/{page}.md: there is no such code")));
    report(found);
}

#[test]
fn the_default_build_stays_under_its_crate_budget() {
    let crates: BTreeSet<_> =
        cargo_tree(&["-p", "everwhen", "-e", "normal,build"], "{p}").into_iter().collect();
    println!("{} crates of {CRATES_MAX}", crates.len());
    assert!(crates.len() <= CRATES_MAX, "{} crates, the budget is {CRATES_MAX}", crates.len());
}

#[test]
fn licences_bans_and_sources_are_those_of_deny_toml() {
    let deny = read("deny.toml");
    let allowed = quoted(between(&deny, "\nallow = [", "\n]"));
    let banned: Vec<_> = between(&deny, "\ndeny = [", "\n]")
        .lines()
        .filter_map(|line| quoted(line).into_iter().next())
        .collect();
    assert!(allowed.len() > 3 && banned.len() > 3, "deny.toml was not understood");
    let mut found = Vec::new();
    for line in cargo_tree(&["--workspace", "-e", "normal,build,dev"], "{p}|{l}") {
        let (package, licence) = line.split_once('|').unwrap_or((&line, ""));
        if !licence_allowed(licence, &allowed) {
            found.push(format!("{package}: licence {licence:?} is not in deny.toml"));
        }
    }
    let lock = read("Cargo.lock");
    let names =
        lock.lines().filter_map(|line| line.strip_prefix("name = ")).map(|name| name.trim_matches('"'));
    found.extend(names.filter(|name| banned.iter().any(|b| b == name)).map(|name| format!("{name}: banned")));
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let foreign = sources.filter(|s| *s != "\"registry+https://github.com/rust-lang/crates.io-index\"");
    found.extend(foreign.map(|source| format!("Cargo.lock: source {source}")));
    report(found);
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = read("Cargo.toml");
    let page = read("docs/decisions/dependencies.md");
    let others = section(&manifest, "workspace.dependencies");
    let others: Vec<_> = others.iter().filter(|name| !ARROWS.iter().any(|(ours, _)| ours == name)).collect();
    let reasons: Vec<_> = page.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    let silent = others
        .iter()
        .filter(|name| !reasons.contains(&name.as_str()))
        .map(|name| format!("{name}: no reason given"));
    let stale = reasons
        .iter()
        .filter(|r| !others.iter().any(|o| *o == **r))
        .map(|r| format!("{r}: not a dependency"));
    report(silent.chain(stale));
}

#[test]
fn the_architecture_page_is_short_and_names_what_is_there() {
    let page = read("ARCHITECTURE.md");
    let lines = page.lines().count();
    assert!(
        lines <= ARCHITECTURE_LINES_MAX,
        "ARCHITECTURE.md: {lines} lines, at most {ARCHITECTURE_LINES_MAX}"
    );
    let files: Vec<_> = rust_files().into_iter().map(|file| file.path).collect();
    report(page.split('`').skip(1).step_by(2).filter(|word| is_path(word)).filter_map(|path| {
        let suffix = format!("/{path}");
        let there = root().join(path).exists() || files.iter().any(|f| f.ends_with(&suffix));
        (!there).then(|| format!("ARCHITECTURE.md names `{path}`, which is not there"))
    }));
}

// What the checks read.

struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }
}

/// A row of the table in `model::problem`.
struct CodeRow {
    code: String,
    status: String,
    exit: String,
    who: String,
    title: String,
}

fn root() -> PathBuf {
    let at = option_env!("EVERWHEN_ROOT").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    fs::canonicalize(at).expect("the repository is where it was built from")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn names_in(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(dir)).unwrap_or_else(|err| panic!("{dir}: {err}"));
    let mut names: Vec<_> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn rust_files() -> Vec<File> {
    let mut files = Vec::new();
    for top in ["crates", "examples"].into_iter().filter(|top| root().join(top).exists()) {
        walk(top, &mut files);
    }
    assert!(files.len() > 10, "found only {} files", files.len());
    files
}

fn walk(dir: &str, files: &mut Vec<File>) {
    for name in names_in(dir).into_iter().filter(|name| name != "target") {
        let path = format!("{dir}/{name}");
        if root().join(&path).is_dir() {
            walk(&path, files);
        } else if path.ends_with(".rs") {
            let text = read(&path);
            files.push(File { path, text });
        }
    }
}

fn manifests() -> Vec<(String, String)> {
    let crates = names_in("crates").into_iter();
    crates.map(|name| (name.clone(), read(&format!("crates/{name}/Cargo.toml")))).collect()
}

/// The keys of a manifest's section, `serde` for both `serde.workspace = true` and `serde = "1"`.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let head = format!("[{name}]");
    let body = manifest
        .lines()
        .skip_while(|line| line.trim() != head)
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let keys = body.filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    keys.filter_map(|line| Some(line.split(['.', ' ', '=']).next()?.to_owned())).collect()
}

/// Functions with their lines, found by indentation, which rustfmt guarantees. What is flat does not count: one-line
/// arms of a match, and the rows of a table.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = fn_name(line) else { continue };
        let close = format!("{}}}", indent(line));
        let body = lines[start..].iter().take_while(|line| **line != close);
        found.push((name.to_owned(), count_steep(body) + 1));
    }
    found
}

fn count_steep<'a>(body: impl Iterator<Item = &'a &'a str>) -> usize {
    let mut table_end: Option<String> = None;
    let mut steep = 0;
    for line in body {
        if let Some(end) = &table_end {
            if line.starts_with(end.as_str()) {
                table_end = None;
            }
            continue;
        }
        if line.ends_with('[') {
            table_end = Some(format!("{}]", indent(line)));
        }
        steep += usize::from(!(line.contains(" => ") && line.ends_with(',')));
    }
    steep
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn fn_name(line: &str) -> Option<&str> {
    let words = line.trim_start();
    if words.starts_with("//") || line.ends_with('}') || line.ends_with(';') {
        return None;
    }
    let (before, after) = words.split_once("fn ")?;
    let qualifiers =
        before.split_whitespace().all(|w| w.starts_with("pub") || ["async", "const", "crate)"].contains(&w));
    (qualifiers && after.contains(['(', '<'])).then(|| after.split(['(', '<']).next().unwrap_or(after))
}

fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

fn attribute(text: &str, word: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('#') && line.contains(word))
}

/// Reads `JsonInvalid "json.invalid" 400 4 Author "not readable as JSON";`.
fn code_row(line: &str) -> Option<CodeRow> {
    let mut parts = line.strip_suffix(';')?.split('"');
    let (_name, code, numbers, title) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let mut numbers = numbers.split_whitespace().map(str::to_owned);
    let (status, exit, who) = (numbers.next()?, numbers.next()?, numbers.next()?);
    status.parse::<u16>().ok()?;
    Some(CodeRow { code: code.to_owned(), status, exit, who: who.to_lowercase(), title: title.to_owned() })
}

fn page_problem(row: &CodeRow) -> Option<String> {
    let path = format!("docs/errors/{}.md", row.code);
    let Ok(page) = fs::read_to_string(root().join(&path)) else { return Some(format!("{path}: no page")) };
    let CodeRow { code, status, exit, who, title } = row;
    let head = format!("# {code}\n\n{title}\n");
    let facts = format!("| {who} | {status} | {exit} |");
    let parts = [&head, &facts, "## What happened", "## What to do", "## Example"];
    let lacks = parts.into_iter().find(|part| !page.contains(*part))?;
    Some(format!("{path}: lacks {lacks:?}"))
}

/// `cargo tree` as lines, each once, without the marks for proc macros and repetition.
fn cargo_tree(args: &[&str], format: &str) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["tree", "--prefix", "none", "-f", format]).args(args);
    let output = command.output().expect("cargo built this test, so it can be started");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    text.lines()
        .map(|line| line.replace(" (proc-macro)", "").replace(" (*)", ""))
        .filter(|line| !line.is_empty())
        .collect()
}

/// Evaluates an SPDX expression: `OR` needs one side, `AND` both; the older `MIT/Apache-2.0` means `OR`.
fn licence_allowed(expression: &str, allowed: &[String]) -> bool {
    let text = expression.replace('/', " OR ");
    let all_of = |text: &str| text.split(" AND ").all(|term| allowed.iter().any(|a| a == term.trim()));
    match text.strip_prefix('(').and_then(|rest| rest.split_once(") AND ")) {
        Some((group, rest)) => licence_allowed(group, allowed) && licence_allowed(rest, allowed),
        None => text.split(" OR ").any(all_of),
    }
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let rest = text.split_once(open).map_or("", |(_, rest)| rest);
    rest.split_once(close).map_or(rest, |(inside, _)| inside)
}

fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A word in backticks that claims to be a path of this repository, not a pattern, URL, place on a user's disk or code.
fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let tops = ["crates/", "docs/", "examples/", "bench/", ".ci/"];
    plain && (tops.iter().any(|top| word.starts_with(top)) || word.ends_with(".rs"))
}

/// Fails with all findings at once, one a line.
fn report(found: impl IntoIterator<Item = String>) {
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.is_empty(), "{} findings:\n  {}", found.len(), found.join("\n  "));
}
