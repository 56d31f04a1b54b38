//! `everwhen drain`: a command per event, in order, and a halt that the next pass gets past.

use serde_json::json;

use crate::support::Place;

fn strict(place: &Place) {
    place
        .run(&["groups", "put", "g", "--pattern", "t", "--ordering", "strict", "--on-exhausted", "halt"])
        .ok();
    for n in 0..4 {
        place.run(&["publish", "t", &format!("{{\"n\":{n}}}")]).ok();
    }
}

#[test]
fn each_event_goes_to_the_command_in_order() {
    let place = Place::new();
    strict(&place);
    let exec = "cat >> seen; echo \"$EVERWHEN_TOPIC $EVERWHEN_GROUP $EVERWHEN_ATTEMPT\" >> told";
    let answer = place.json(&["drain", "g", "--exec", exec, "--limit", "3"]);
    assert_eq!((&answer["processed"], answer.get("halted_on")), (&json!(3), None), "{answer}");
    assert_eq!(place.json(&["drain", "g", "--exec", exec])["processed"], 1);
    assert_eq!(place.json(&["drain", "g", "--exec", exec])["processed"], 0);
    let seen = std::fs::read_to_string(place.path().join("seen")).unwrap();
    let numbers: Vec<u64> = seen
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["payload"]["n"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(std::fs::read_to_string(place.path().join("told")).unwrap(), "t g 1\n".repeat(4));
}

#[test]
fn a_failure_halts_the_pass_and_the_next_pass_tries_that_event_again() {
    let place = Place::new();
    strict(&place);
    let exec = "grep -q '\"n\":2' && test ! -e mended && { echo no such order >&2; exit 3; }; exit 0";
    let done = place.run(&["drain", "g", "--exec", exec, "--json"]).exits(1);
    let answer = done.json();
    assert_eq!(answer["processed"], 2, "{done:?}");
    assert_eq!((&answer["halted_on"], &answer["error"]), (&answer["last"], &json!("no such order")));
    for _ in 0..7 {
        let again = place.run(&["drain", "g", "--exec", exec]).exits(1);
        assert_eq!(again.err.matches("no such order").count(), 1, "said once: {again:?}");
        assert!(again.err.contains(&format!("position {}", answer["halted_on"])), "{again:?}");
        assert!(again.err.contains("to pass it: everwhen groups seek g "), "{again:?}");
    }
    place.write("mended", "");
    assert_eq!(place.json(&["drain", "g", "--exec", exec])["processed"], 2);
    assert_eq!(place.json(&["groups", "get", "g"])["lag"], 0);
}

#[test]
fn a_drain_works_through_a_server_too() {
    let place = Place::new();
    let server = place.serve();
    strict(&place);
    place.run(&["drain", "g", "--exec", "test ! -e no", "--limit", "1"]).ok();
    place.write("no", "");
    place.run(&["drain", "g", "--exec", "test ! -e no"]).exits(1);
    std::fs::remove_file(place.path().join("no")).unwrap();
    assert_eq!(place.json(&["drain", "g", "--exec", "test ! -e no"])["processed"], 3);
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn every_pass_that_fails_halts_and_the_next_one_tries_again() {
    let place = Place::new();
    strict(&place);
    for _ in 0..7 {
        let done = place.run(&["drain", "g", "--exec", "exit 3"]).exits(1);
        assert!(done.err.contains("halted on position"), "{done:?}");
        assert!(done.err.contains("failed: exit status: 3"), "{done:?}");
        assert!(place.json(&["groups", "get", "g"])["halted_on"].is_u64());
    }
}

#[test]
fn a_pass_in_which_something_failed_ends_with_1_and_says_what_to_do() {
    let place = Place::new();
    place.run(&["groups", "put", "g", "--pattern", "t"]).ok();
    (0..2).for_each(|n| drop(place.run(&["publish", "t", &n.to_string()]).ok()));
    let done = place.run(&["drain", "g", "--exec", "grep -q '\"payload\":1'"]).exits(1);
    assert!(done.out.contains("1 processed, 1 failed"), "{done:?}");
    assert!(done.err.contains("--follow") && done.err.contains("dead-letters list g"), "{done:?}");
    place.run(&["groups", "seek", "g", "end"]).ok();
    place.run(&["drain", "g", "--exec", "false"]).ok();
}

#[test]
fn a_failure_halts_the_group_itself_and_is_recorded_once() {
    let place = Place::new();
    strict(&place);
    let server = place.serve();
    for _ in 0..2 {
        let done = place.run(&["drain", "g", "--exec", "echo noise; exit 1", "--json"]).exits(1);
        let answer = done.json();
        assert!(done.err.contains("noise"), "with --json stdout is for the answer: {done:?}");
        assert_eq!(place.json(&["groups", "get", "g"])["halted_on"], answer["halted_on"]);
    }
    drop(server);
    let records = place.run(&["export"]).ok().out;
    assert_eq!(records.matches("\"topic\":\"workflow.dispatch_failed\"").count(), 1, "{records}");
}

#[test]
fn a_pass_that_starts_runs_says_where_it_halted_why_and_what_to_do() {
    let place = Place::new();
    place.write("f.yaml", "automation: f\nactions:\n  - fail: no such article\n");
    place.write("w.yaml", "automation: w\nactions:\n  - delay: 1h\n");
    place.run(&["apply", "f.yaml", "w.yaml"]).ok();
    for (automation, why) in [("f", "did not end well: no such article"), ("w", "has not ended")] {
        let group = ["--pattern", "t", "--automation", automation, "--group", automation];
        place.run(&[&["subscriptions", "add", automation], &group[..]].concat()).ok();
        let at = place.json(&["publish", "t", "{}"])["position"].as_u64().unwrap();
        place.run(&["groups", "seek", automation, &at.to_string()]).ok();
        let done = place.run(&["drain", automation]).exits(1);
        let said = format!("group \"{automation}\" halted on position {at}: run_");
        let pass = format!("to pass it: everwhen groups seek {automation} {}\n", at + 1);
        for words in [said.as_str(), why, pass.as_str()] {
            assert!(done.err.contains(words), "no {words:?} in {done:?}");
        }
        let told = place.run(&["drain", automation, "--json"]).exits(1).json();
        assert_eq!(told["halted_on_position"], at, "{told}");
        assert!(told["halted_because"].as_str().unwrap().ends_with(why), "{told}");
    }
}
