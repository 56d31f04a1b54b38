//! The settings file at work: mistakes end with 2 and name their place, good settings change what happens.

use crate::support::Place;

#[test]
fn an_unknown_key_names_file_line_and_the_nearest_key() {
    let place = Place::new();
    place.write("everwhen.toml", "listen = \"127.0.0.1:0\"\n\n[events]\ndefault_spce = \"x\"\n");
    let done = place.run(&["publish", "a", "{}"]).exits(2);
    assert_eq!(
        done.err,
        "error: everwhen.toml:4: unknown key \"default_spce\" in [events]\nhelp: did you mean \"default_space\"?\n"
    );
    let error = place.run(&["publish", "a", "{}", "--json"]).exits(2).error();
    assert_eq!(error["code"], "config.unknown_key");
    assert_eq!((&error["line"], &error["nearest"]), (&4.into(), &"default_space".into()));
}

#[test]
fn commands_that_need_no_directory_do_not_mind_a_bad_file() {
    let place = Place::new();
    place.write("everwhen.toml", "nonsense = 1\n");
    place.run(&["try", "topic", "a.*", "a.b"]).ok();
    place.run(&["completions", "zsh"]).ok();
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let place = Place::new();
    place.write("everwhen.toml", "data = \"from-file\"\n[events]\ndefault_space = \"file\"\n");
    place.run(&["publish", "a"]).ok();
    assert!(place.path().join("from-file/tenants/main").exists());

    let mut command = place.command(&["publish", "a"]);
    command.env("EVERWHEN_DATA", "from-env").env("EVERWHEN_EVENTS_DEFAULT_SPACE", "env");
    assert!(command.output().unwrap().status.success());
    let event = place.json(&["events", "list", "--data", "from-env"]);
    assert_eq!(event["space"], "env");

    let mut command = place.command(&["publish", "a", "--data", "from-flag"]);
    assert!(command.env("EVERWHEN_DATA", "from-env").output().unwrap().status.success());
    assert!(place.path().join("from-flag/tenants/main").exists());
}

#[test]
fn schemas_redaction_and_attention_are_in_force() {
    let place = Place::new();
    place.write("conf/schemas/order.json", r#"{"type":"object","required":["id"]}"#);
    let config = r##"
data = "data"
[[schema]]
topic = "order.*"
file = "schemas/order.json"
[[redact]]
topic = "user.#"
drop = ["$.payload.password"]
[[attention]]
topic = "noise.#"
verdict = "drop"
[[attention]]
topic = "later.#"
verdict = "defer"
until = "1h"
"##;
    place.write("conf/everwhen.toml", config);
    let with = |args: &[&str]| place.run(&[args, &["--config", "conf/everwhen.toml", "--json"]].concat());
    assert_eq!(with(&["publish", "order.new", "{}"]).exits(4).error()["code"], "event.schema");
    with(&["publish", "order.new", r#"{"id":1}"#]).ok();
    with(&["publish", "user.new", r#"{"name":"ann","password":"x"}"#]).ok();
    assert_eq!(with(&["publish", "noise.x", "1"]).ok().json()["verdict"], "drop");
    assert_eq!(with(&["publish", "later.x", "1"]).ok().json()["verdict"], "defer");
    let events = with(&["events", "list"]).ok().lines();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["payload"], serde_json::json!({"name":"ann"}));
    assert!(place.path().join("conf/data/tenants").exists());
}

#[test]
fn init_makes_a_directory_and_a_file_and_leaves_what_is_there() {
    let place = Place::new();
    let first = place.json(&["init", "shop"]);
    assert_eq!(first["created"].as_array().unwrap().len(), 2, "{first}");
    let text = std::fs::read_to_string(place.path().join("shop/everwhen.toml")).unwrap();
    assert!(text.contains("# default_space"));
    place.write("shop/everwhen.toml", "data = \"d\"\n");
    let second = place.json(&["init", "shop"]);
    assert_eq!(second["created"].as_array().unwrap().len(), 1, "{second}");
    assert_eq!(std::fs::read_to_string(place.path().join("shop/everwhen.toml")).unwrap(), "data = \"d\"\n");
    assert!(place.path().join("shop/d/tenants/main").exists());
    assert!(place.run(&["init", "shop"]).ok().out.contains("already"));
}
