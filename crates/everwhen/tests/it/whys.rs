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
    let next = place.json(&["automations", "next", "often"]);
    let explained = place.json(&["explain", "automation", "often"])["next"][0].clone();
    assert_eq!(explained, "2026-03-28T13:01:00Z", "those up to 13:00 have fired: {next}");
    assert!(next.to_string().contains("13:01:00Z") && !next.to_string().contains("T11:"), "{next}");
    drop(server);
}

const WATCHES: &str = "
- automation: down
  triggers: [{state: {entity: v1:t:sys/api, field: status, to: down}}]
  actions: []
- automation: typo
  triggers: [{event: [ordr.placed, order.placed.now]}, {event: Order.Placed}]
  actions: []
";

#[test]
fn near_misses_name_the_row_what_was_wanted_and_topics_that_are_nearly_it() {
    let place = Place::new();
    place.write("t.ew", "@namespace(\"t\")\n@version(\"1.0.0\")\nconcept sys {\n  status string\n}\n");
    place.write("a.yaml", WATCHES);
    place.run(&["apply", "t.ew", "a.yaml"]).ok();
    place.run(&["publish", "order.placed"]).ok();
    place.run(&["publish", "elsewhere.entirely.other"]).ok();
    let typo = place.json(&["explain", "automation", "typo"]);
    let topics: Vec<&Value> = typo["nearest"].as_array().unwrap().iter().map(|near| &near["topic"]).collect();
    assert!(!topics.is_empty() && topics.iter().all(|topic| **topic == "order.placed"), "{typo}");
    let said = place.run(&["explain", "automation", "typo"]).ok().out;
    assert!(said.contains("the trigger waits for \"Order.Placed\""), "{said}");
    place.run(&["entity", "put", "sys", "api", r#"{"status":"up"}"#]).ok();
    place.run(&["entity", "put", "sys", "db", r#"{"status":"down"}"#]).ok();
    let down = place.json(&["explain", "automation", "down"]);
    let first = &down["nearest"][0]["values"];
    let wanted = json!({"row": "v1:t:sys/api", "field": "status", "prev": null, "next": "up", "wanted": {"to": ["down"]}});
    assert_eq!(*first, wanted, "its own row comes before newer ones of others: {down}");
    assert_eq!(down["nearest"][1]["values"]["row"], "v1:t:sys/db", "{down}");
    let said = place.run(&["explain", "automation", "down"]).ok().out;
    assert!(
        said.contains("status of v1:t:sys/api went from null to \"up\", wanted is {\"to\":[\"down\"]}"),
        "{said}"
    );
    assert!(said.contains("it is v1:t:sys/db, wanted is v1:t:sys/api"), "{said}");
}

const GATED: &str = "
- automation: busy
  triggers: [{event: in}]
  actions: [{delay: 1h}]
- automation: throttled
  triggers: [{event: in, throttle: 1h}]
  actions: []
- automation: full
  mode: parallel
  max: 1
  triggers: [{event: in}]
  actions: [{delay: 1h}]
- automation: never
  triggers: [{event: in}]
  conditions:
    - and: [{time: {before: '06:00'}}, 'event.payload.k == 1']
  actions: []
- automation: settles
  triggers: [{event: in, debounce: 1h}]
  actions: []
";

#[test]
fn a_decision_says_what_its_gate_saw_until_when_and_of_which_event() {
    let place = Place::new();
    place.write("a.yaml", GATED);
    let server = place.serve_with(&["a.yaml", "--clock", "2026-03-28T12:00:00Z"]);
    place.run(&["publish", "in", r#"{"k":1}"#]).ok();
    place.run(&["clock", "--advance", "10m"]).ok();
    let event = place.json(&["publish", "in", r#"{"k":1}"#])["position"].to_string();
    let why = place.json(&["explain", "event", &event]);
    let seen = |name: &str| -> Value {
        let all = why["automations"].as_array().unwrap();
        all.iter().find(|one| one["automation"] == name).unwrap_or_else(|| panic!("{why}"))["values"].clone()
    };
    for name in ["busy", "full"] {
        let mode = &seen(name)["mode"];
        assert_eq!((&mode["running"], &mode["max"]), (&json!(1), &json!(1)), "{name}: {why}");
    }
    let throttle = &seen("throttled")["throttle"];
    assert_eq!(
        (&throttle["limit"], &throttle["until"]),
        (&json!(1), &json!("2026-03-28T13:00:00Z")),
        "{why}"
    );
    let times = seen("never")["time"].clone();
    assert_eq!((&times[0]["is"], &times[0]["holds"]), (&json!("12:10:00"), &json!(false)), "{why}");
    let said = place.run(&["explain", "automation", "settles"]).ok().out;
    let pending = format!(
        "pending (debounce) at debounce until 2026-03-28T13:10:00Z  2026-03-28T12:10:00Z  event {event}"
    );
    assert!(said.contains(&pending), "{said}");
    drop(server);
}

#[test]
fn one_is_said_as_one_and_a_dry_run_of_many_says_how_many_are_meant() {
    let place = Place::new();
    place.write("s.yaml", "scenario: s\nsteps:\n  - advance: 1h\n");
    assert!(place.run(&["test", "s.yaml"]).ok().err.contains("1 scenario: 1 passed, 0 failed"));
    place.write("a.yaml", "automation: a\ntriggers: [{event: x}]\nactions: [{call: nope}]\n");
    let refused = place.run(&["apply", "a.yaml"]).exits(4).err;
    assert!(refused.contains("1 error in the declarations"), "{refused}");
    place.write("a.yaml", SLOW);
    place.run(&["apply", "a.yaml"]).ok();
    place.run(&["publish", "in"]).ok();
    let said = place.run(&["runs", "bulk", "cancel", "--dry-run"]).ok().out;
    assert_eq!(said, "1 would be meant, nothing was done\n");
}
