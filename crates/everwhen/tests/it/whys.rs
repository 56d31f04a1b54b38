//! What `plan`, `explain`, `events lineage` and `doctor` say to a person: the reason, and by its name.

use serde_json::{Value, json};

use crate::support::Place;

const SLOW: &str = "automation: slow\ntriggers: [{event: in}]\nactions: [{delay: 1h}]\n";

#[test]
fn a_plan_says_in_words_which_runs_stay_on_which_version() {
    let place = Place::new();
    place.write("a.yaml", SLOW);
    place.run(&["apply", "a.yaml"]).ok();
    place.run(&["publish", "in"]).ok();
    let version = place.json(&["automations", "get", "slow"])["version"].as_str().unwrap().to_owned();
    place.write("a.yaml", &SLOW.replace("1h", "2h"));
    let stays = format!("! runs of slow that stay on version {version}: 1\n");
    assert_eq!(place.run(&["plan", "a.yaml"]).ok().out, format!("~ automation slow\n{stays}"));
    assert_eq!(place.json(&["plan", "a.yaml"])["runs_by_old_version"], json!({"slow": {version: 1}}));
    place.run(&["apply", "a.yaml"]).ok();
    assert_eq!(place.run(&["plan", "a.yaml"]).ok().out, format!("no changes\n{stays}"));
    place.write("a.yaml", "automation: other\nactions: [{delay: 1h}]\n");
    let gone = place.run(&["plan", "a.yaml"]).ok().out;
    assert!(gone.contains("! runs of slow that end with it: 1") && !gone.contains("stay on"), "{gone}");
}

const CALLS: &str = "
- automation: outer
  triggers: [{event: in}]
  actions: [{automation: inner}]
- automation: inner
  actions: [{publish: {topic: out.inner}}]
";

#[test]
fn a_called_run_is_explained_by_its_caller_and_by_what_it_led_to() {
    let place = Place::new();
    place.write("a.yaml", CALLS);
    place.run(&["apply", "a.yaml"]).ok();
    let event = place.json(&["publish", "in"])["position"].to_string();
    let of = |name: &str, status: &str| -> Value {
        let runs = place.run(&["runs", "list", "--automation", name, "--status", status, "--json"]).ok();
        runs.lines()[0].clone()
    };
    let (outer, inner) = (of("outer", "completed"), of("inner", "completed"));
    let (outer, inner) = (outer["id"].as_str().unwrap(), inner["id"].as_str().unwrap());
    let why = place.json(&["explain", "run", inner]);
    assert_eq!(why["lineage"]["event"]["topic"], "in", "{why}");
    let below = &why["lineage"]["effects"][0];
    assert_eq!((&below["run"]["id"], &below["effects"][0]["run"]["id"]), (&json!(outer), &json!(inner)));
    assert_eq!(below["effects"][0]["effects"][0]["event"]["topic"], "out.inner", "{why}");
    let said = place.run(&["explain", "run", inner]).ok().out;
    assert!(said.contains(&format!("because of a call by {outer} (automation:outer) at 2")), "{said}");
    assert!(said.contains(&format!("goes back to in at {event}, ")), "{said}");
    let tree = place.run(&["events", "lineage", &event]).ok().out;
    assert!(
        tree.contains(&format!("\n  {outer}  completed  outer\n    {inner}  completed  inner\n")),
        "{tree}"
    );
    // Called by a run that somebody began: there is no event, and the tree begins with that run.
    let begun = place.json(&["runs", "start", "outer"])["id"].clone();
    let why = place.json(&["explain", "run", of("inner", "completed")["id"].as_str().unwrap()]);
    assert_eq!(why["lineage"]["effects"][0]["run"]["id"], begun, "{why}");
    assert_eq!(why["lineage"]["effects"][0]["effects"][0]["run"]["automation"], "inner", "{why}");
}

#[test]
fn a_server_that_is_not_ready_tells_the_doctor_why() {
    let place = Place::new();
    place.write("a.yaml", "automation: often\ntriggers: [{cron: \"* * * * *\"}]\nactions: [{stop: done}]\n");
    let server = place.serve_with(&["a.yaml", "--clock", "2026-03-28T12:00:00Z"]);
    place.run(&["clock", "--advance", "1h"]).ok();
    assert_eq!(server.signal("TERM"), 0);
    let server = place.serve_with(&["a.yaml", "--clock", "2026-03-28T11:00:00Z"]);
    let told = place.run(&["doctor", "--json"]).exits(1).json();
    let checks = told["checks"].as_array().unwrap();
    let tenant = checks.iter().find(|check| check["check"] == "tenant").unwrap();
    let message = tenant["message"].as_str().unwrap();
    assert!(message.starts_with("not ready: ") && message.contains("often"), "{told}");
    drop(server);
}
