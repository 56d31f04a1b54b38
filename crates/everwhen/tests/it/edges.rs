//! What somebody at the command line meets first: words that are wrong, lists that are empty, texts that are read.

use serde_json::{Value, json};

use crate::support::Place;

const SHIP: &str = r#"
@trigger(event="order.placed")
@mode("parallel")
automation ship {
  answer := ask "ship {{ event.payload.id }}?" { options: ["yes", "no"] }
  told := wait_for "order.paid" where event.payload.id == trigger.event.payload.id
  publish "order.shipped" { id: trigger.event.payload.id }
}
"#;

fn text(place: &Place, args: &[&str]) -> String {
    place.run(args).ok().out
}

fn first(place: &Place, args: &[&str]) -> Value {
    place.run(&[args, &["--json"]].concat()).ok().lines()[0].clone()
}

#[test]
fn words_that_mean_nothing_are_usage_errors() {
    let place = Place::new();
    place.run(&["init"]).ok();
    for args in [
        &["waits", "list", "--kind", "bogus"][..],
        &["runs", "list", "--status", "bogus"],
        &["runs", "list", "--since", "noon"],
        &["runs", "bulk", "cancel", "--since", "noon"],
        &["explain", "automation", "x", "--since", "noon"],
    ] {
        place.run(args).exits(2);
    }
}

#[test]
fn a_plan_of_an_empty_directory_makes_nothing() {
    let place = Place::new();
    place.write("ship.ew", SHIP);
    let plan = place.json(&["plan", "ship.ew"]);
    assert_eq!((&plan["added"], &plan["position"]), (&json!(["automation ship"]), &json!(0)));
    place.run(&["plan", "ship.ew", "--exit-code"]).exits(1);
    assert!(!place.path().join(".everwhen").exists());
    place.run(&["apply", "ship.ew"]).ok();
    assert_eq!(text(&place, &["plan", "ship.ew"]), "no changes\n");
}

#[test]
fn an_apply_of_a_scenario_alone_removes_nothing() {
    let place = Place::new();
    place.write("ship.ew", SHIP);
    place.write("ship.yaml", "scenario: ships\nsteps: []\n");
    place.run(&["apply", "ship.ew"]).ok();
    let refused = place.run(&["apply", "ship.yaml"]).exits(4);
    assert!(refused.err.contains("there are no declarations in \"ship.yaml\""), "{}", refused.err);
    assert!(place.run(&["automations", "list"]).ok().out.contains("ship"));
}

#[test]
fn an_apply_says_what_it_removes_before_it_does() {
    let place = Place::new();
    place.write("ship.ew", SHIP);
    place.write("other.yaml", "automation: other\nactions: []\n");
    place.run(&["init"]).ok();
    assert_eq!(place.run(&["apply", "ship.ew"]).ok().err, "");
    let done = place.run(&["apply", "other.yaml", "--json"]).ok();
    assert_eq!(done.json()["removed"], json!(["automation ship"]));
    assert!(
        done.err.contains("warning: removes: automation ship; they are not among these files"),
        "{done:?}"
    );
    assert_eq!(place.run(&["apply", "other.yaml", "ship.ew"]).ok().err, "");
    assert_eq!(place.run(&["apply", "ship.ew", "--yes"]).ok().err, "", "it was said");
}

#[test]
fn lists_that_are_empty_say_so() {
    let place = Place::new();
    place.run(&["publish", "a.b"]).ok();
    for args in [&["runs", "list"][..], &["waits", "list"], &["automations", "list"]] {
        let done = place.run(args).ok();
        assert_eq!((done.out.as_str(), done.err.as_str()), ("", "none\n"), "{args:?}");
    }
}

#[test]
fn runs_waits_and_reasons_are_told_in_words() {
    let place = Place::new();
    place.write("ship.ew", SHIP);
    place.run(&["apply", "ship.ew"]).ok();
    place.run(&["publish", "order.placed", r#"{"id":7}"#]).ok();
    let wait = first(&place, &["waits", "list"]);
    let waits = text(&place, &["waits", "list"]);
    assert!(waits.contains("ship 7? (yes, no)"), "{waits}");
    place.run(&["waits", "answer", wait["id"].as_str().unwrap(), "yes"]).ok();
    let id = first(&place, &["runs", "list"])["id"].as_str().unwrap().to_owned();
    let shown = text(&place, &["runs", "show", &id]);
    assert!(shown.contains("completed  ask          answer\n"), "{shown}");
    assert!(shown.contains("waiting    wait_for     "), "{shown}");
    let paid = place.json(&["publish", "order.paid", r#"{"id":7}"#])["position"].to_string();
    let explained = text(&place, &["explain", "event", &paid]);
    assert!(explained.contains(&format!("ended the wait {id}.2: met")), "{explained}");
    assert!(explained.starts_with(&format!("order.paid at {paid}, 20")), "{explained}");
    let explained = text(&place, &["explain", "run", &id]);
    assert!(!explained.contains('{') || explained.contains("because of order.placed at "), "{explained}");
    assert!(explained.contains("decided: ship"), "{explained}");
    assert!(explained.contains("led to order.shipped at "), "{explained}");
    let got = text(&place, &["automations", "get", "ship"]);
    assert!(got.contains("1 runs, 0 in progress") && got.contains("managed by: workspace:default"), "{got}");
    assert!(got.contains("trigger t_") && got.contains("order.placed"), "{got}");
    assert!(text(&place, &["automations", "list"]).contains("1 runs, 0 in progress"));
}

#[test]
fn a_question_is_listed_with_all_that_an_answer_needs_and_the_command_that_gives_it() {
    let place = Place::new();
    let asks = r#"
automation: asks
triggers: [{manual: true}]
actions:
  - ask: {question: "how much?", to: [ann, bob], form: {amount: "number!"}, timeout: 1h, default: {amount: 1}}
  - ask: {question: "and when?", timeout: 1h, default: "{{ now }}"}
"#;
    place.write("asks.yaml", asks);
    place.run(&["apply", "asks.yaml"]).ok();
    place.run(&["runs", "start", "asks"]).ok();
    let wait = first(&place, &["waits", "list"]);
    assert_eq!((&wait["to"], &wait["default"]), (&json!(["ann", "bob"]), &json!({"amount": 1})), "{wait}");
    let (id, run) = (wait["id"].as_str().unwrap(), wait["run"].as_str().unwrap());
    let answer = format!("answer: everwhen waits answer {id} --as user:ann '{{\"amount\":0}}'\n");
    let until = format!("until {}  how much?\n", wait["due"].as_str().unwrap());
    for args in [&["waits", "list"][..], &["runs", "show", run]] {
        let shown = text(&place, args);
        let needed = [&until, "asked: [\"ann\",\"bob\"]\n", "form: amount double!\n"];
        for needed in needed.into_iter().chain(["if nobody answers: {\"amount\":1}\n", &answer]) {
            assert!(shown.contains(needed), "no {needed:?} in {shown}");
        }
    }
    let refused = place.run(&["waits", "answer", id, "--as", "user:ann", "5", "--json"]).exits(4);
    assert_eq!(refused.error()["code"], "answer.refused");
    place.run(&["waits", "answer", id, "--as", "user:ann", r#"{"amount":0}"#]).ok();
    let second = first(&place, &["waits", "list"]);
    assert_eq!(second["question"], "and when?");
    assert!(second.get("default").is_none(), "it is computed when the time is over: {second}");
}

const SHOP: &str = r#"
@namespace("shop")
concept item {
  code string
  count int
}

mutation item createItem {
  args { id string!  code string!  count int }
  insert {
    id: args.id
    code: args.code
    count: args.count
  }
}

logic label {
  args { code string! }
  return "no. " + args.code
}

query item byCode {
  args { code string! }
  filter payload.code == args.code
}
"#;

fn typed(place: &Place) {
    place.write("shop.ew", SHOP);
    place.run(&["apply", "shop.ew"]).ok();
    let made = place.json(&["mutate", "createItem", "id=7", "code=0042", "count=3"]);
    assert_eq!(made["fields"], json!({"code": "0042", "count": 3}), "{made}");
    assert_eq!(place.run(&["call", "label", "code=42"]).ok().out, "no. 42\n");
    assert!(place.run(&["query", "byCode", "code=0042"]).ok().out.contains("0042"));
    place.run(&["mutate", "createItem", "id=8", "code=x", "count=many"]).exits(4);
    let refused = place.run(&["call", "label", "--json"]).exits(4).error();
    assert_eq!(refused["code"], "definition.arguments");
    // The same again is the same row; something else under its id is refused.
    assert_eq!(place.json(&["mutate", "createItem", "id=7", "code=0042", "count=3"])["changed"], false);
    let refused =
        place.run(&["mutate", "createItem", "id=7", "code=0043", "count=3", "--json"]).exits(4).error();
    assert_eq!(refused["code"], "entity.exists");
}

#[test]
fn arguments_are_read_as_they_are_declared_in_a_directory() {
    typed(&Place::new());
}

#[test]
fn arguments_are_read_as_they_are_declared_through_a_server() {
    let place = Place::new();
    let server = place.serve();
    typed(&place);
    drop(server);
}

#[test]
fn publishes_that_wait_for_their_time_are_listed_near_and_far() {
    let place = Place::new();
    let rule = "[[attention]]\ntopic = \"sensor.#\"\nverdict = \"defer\"\nuntil = \"1h\"\n";
    place.write("everwhen.toml", rule);
    place.run(&["publish", "other.x"]).ok();
    assert_eq!(place.run(&["events", "deferred", "--json"]).ok().out, "");
    assert_eq!(place.json(&["publish", "sensor.a", r#"{"n":1}"#])["verdict"], "defer");
    let near = place.run(&["events", "deferred", "--json"]).ok().lines();
    assert_eq!((near.len(), &near[0]["event"]["topic"]), (1, &json!("sensor.a")), "{near:?}");
    let server = place.serve();
    assert_eq!(place.run(&["events", "deferred", "--json"]).ok().lines(), near);
    drop(server);
}
