//! Pages of the documentation are true: the automations of `docs/automations.md` are played in both ways of writing them, and
//! `docs/http.md` and `docs/openapi.json` list the doors that there are, `docs/config.md` the settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{BINARY, Place};

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Info string and text of every fenced block.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((info.to_owned(), inside.join("\n") + "\n"));
    }
    blocks
}

#[test]
fn every_automation_of_the_page_plays_its_scenario_in_ew_and_in_yaml() {
    let text = std::fs::read_to_string(page("automations.md")).unwrap();
    let place = Place::new();
    let mut played = 0;
    for (info, block) in blocks(&text) {
        match info.split_once(' ') {
            Some(("yaml", "scenario")) => {
                place.write(&format!("s{played}-ew.yaml"), &block);
                place.write(&format!("s{played}-yaml.yaml"), &block.replace(".ew]", ".yaml]"));
                played += 1;
            }
            Some((_, file)) => drop(place.write(file, &block)),
            None => panic!("a block without a file cannot be run:\n{block}"),
        }
    }
    let done = place.run(&["test", "--json", "--kill-at-waits"]);
    let lines: Vec<Value> = done.lines();
    let failed: Vec<&Value> = lines.iter().filter(|line| line["passed"] != true).collect();
    assert!(failed.is_empty() && done.code == 0, "{failed:#?}\n{}", done.err);
    assert_eq!(lines.len(), 2 * played);
    assert!(played >= 5);
}

#[test]
fn the_files_of_the_automations_page_check_cleanly_and_are_laid_out() {
    let text = std::fs::read_to_string(page("automations.md")).unwrap();
    for ending in [".ew", ".yaml"] {
        let place = Place::new();
        for (info, block) in blocks(&text) {
            let Some((_, file)) = info.split_once(' ') else { continue };
            if file == "concepts.ew" || file.ends_with(ending) {
                place.write(file, &block);
            }
        }
        let checked = place.run(&["check", "--json"]).ok();
        assert_eq!(checked.out, "");
        place.run(&["fmt", "--check", "."]).ok();
    }
}

/// The tables of the page, a line for each route.
fn tables() -> String {
    let mut text = String::new();
    let mut part = "";
    for route in server::ROUTES {
        if route.part != part {
            part = route.part;
            text.push_str(&format!("\n## {part}\n\n| method | path | what | needs |\n|---|---|---|---|\n"));
        }
        let method = route.method.to_uppercase();
        text.push_str(&format!("| `{method}` | `{}` | {} | `{}` |\n", route.path, route.what, route.needs));
    }
    text
}

#[test]
fn the_page_of_doors_lists_those_that_the_router_has() {
    let path = page("http.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once("\n## ").unwrap();
    let whole = format!("{}\n{}", before.trim_end(), tables());
    if std::env::var("EVERWHEN_GOLDEN").is_ok_and(|how| how == "write") {
        std::fs::write(&path, whole).unwrap();
    } else {
        assert!(text == whole, "docs/http.md differs from the routes; EVERWHEN_GOLDEN=write writes it");
    }
}

#[test]
fn the_copy_of_the_openapi_document_is_what_the_server_gives() {
    let path = page("openapi.json");
    let whole = format!("{:#}\n", server::openapi());
    if std::env::var("EVERWHEN_GOLDEN").is_ok_and(|how| how == "write") {
        std::fs::write(&path, whole).unwrap();
    } else {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == whole, "docs/openapi.json differs from the routes; EVERWHEN_GOLDEN=write writes it");
    }
}

#[test]
fn the_reference_of_the_settings_file_is_what_the_binary_prints() {
    let path = page("config.md");
    let whole = Place::new().run(&["serve", "--print-config", "--reference"]).ok().out;
    if std::env::var("EVERWHEN_GOLDEN").is_ok_and(|how| how == "write") {
        std::fs::write(&path, whole).unwrap();
    } else {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == whole, "docs/config.md differs from the keys; EVERWHEN_GOLDEN=write writes it");
    }
}

/// Runs the commands of a page in a shell that finds this binary; gives back what was said.
fn in_a_shell(place: &Place, commands: &str) -> String {
    let beside = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", beside.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", commands]).current_dir(place.path()).env("PATH", path);
    let done = shell.env_remove("EVERWHEN_DATA").env_remove("EVERWHEN_SERVER").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

#[test]
fn the_page_of_subscriptions_does_what_it_prints() {
    let place = Place::new();
    for (info, block) in blocks(&std::fs::read_to_string(page("subscriptions.md")).unwrap()) {
        match info.split_once(' ') {
            Some((_, file)) => drop(place.write(file, &block)),
            None => assert!(in_a_shell(&place, &block).contains("processed, 1 run started\n")),
        }
    }
    let made = place.run(&["tail", "shop.#", "--after", "0", "--no-follow", "--json"]).ok().lines();
    assert_eq!((made.len(), &made[0]["payload"]["why"]), (1, &Value::from("cost")), "{made:?}");
    place.run(&["publish", "price.changed", r#"{"sku":"bad","new":12}"#]).ok();
    place.run(&["drain", "workflow_runner"]);
    let said = place.run(&["tail", "workflow.#", "--after", "0", "--no-follow", "--json"]).ok().out;
    assert!(said.contains("did not end well: no such article"), "{said}");
}
