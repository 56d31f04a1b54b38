//! `docs/language.md` is true: its files are one workspace that checks cleanly, its expressions hold, its templates become
//! what stands beside them.

use std::collections::BTreeMap;

use lang::declare::{check_workspace, format};
use lang::expr::{Expr, Scope, Template, Val};
use serde_json::Value;

/// Info string and text of every fenced block.
fn blocks() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((info.to_owned(), inside.join("\n") + "\n"));
    }
    blocks
}

fn block(info: &str) -> String {
    let found = blocks().into_iter().find(|block| block.0 == info);
    found.unwrap_or_else(|| panic!("no block \"{info}\"")).1
}

#[test]
fn the_workspace_of_the_language_page_checks_cleanly_in_its_layout() {
    let files: BTreeMap<String, String> = blocks()
        .into_iter()
        .filter_map(|(info, text)| Some((info.split_once(' ')?.1.to_owned(), text)))
        .filter(|(path, _)| path.contains('.'))
        .collect();
    assert!(files.len() >= 6, "{:?}", files.keys());
    let checked = check_workspace(&files);
    let findings: String =
        checked.findings.iter().map(|finding| finding.render(&files[&finding.file])).collect();
    assert_eq!(findings, "");
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".ew")) {
        assert_eq!(&format(text).unwrap(), text, "{path}");
    }
}

#[test]
fn the_expressions_and_templates_of_the_language_page_hold() {
    let event: Value = serde_json::from_str(&block("json event")).unwrap();
    let roots = [Val::of(&event)];
    for line in block("expr").lines() {
        let expr = Expr::compile(line, &Scope::EVENT).unwrap_or_else(|problem| panic!("{line}: {problem}"));
        assert!(expr.test(&roots).unwrap_or_else(|problem| panic!("{line}: {problem}")), "{line}");
    }
    for line in block("template").lines() {
        let (template, becomes) = line.rsplit_once(" => ").unwrap();
        let template: String = serde_json::from_str(template).unwrap();
        let template =
            Template::compile(&template, &Scope::EVENT).unwrap_or_else(|problem| panic!("{line}: {problem}"));
        let value = template.eval(&roots).and_then(|value| value.to_json());
        let value = value.unwrap_or_else(|problem| panic!("{line}: {problem}"));
        let becomes: Value = serde_json::from_str(becomes).unwrap();
        assert!(lang::number::same(&value, &becomes), "{line}: {value}");
    }
}
