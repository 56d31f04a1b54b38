//! Seed 002's own files become a ledger with groups that go on where they stood.

use serde_json::json;

use crate::support::Place;

fn line(offset: u64, topic: &str, second: u64) -> String {
    let meta = json!({
        "topic": topic, "type": "T", "space_id": "home", "event_id": format!("{topic}-{offset}"), "actor": "ann",
        "ts": format!("2026-01-01T00:00:{second:02}Z"), "idem_key": format!("{topic}|{offset}"),
    });
    json!({ "offset": offset, "meta": meta, "payload": { "n": offset } }).to_string() + "\n"
}

#[test]
fn wal_offsets_and_dead_letters_are_taken_over() {
    let place = Place::new();
    place.write("bus/wal/actions.00000001.jsonl", &(line(1, "actions", 1) + &line(2, "actions", 5)));
    place.write("bus/wal/actions.00000002.jsonl", &(line(3, "actions", 7) + "{\"offset\":4,\"me"));
    place.write("bus/wal/hippo.00000001.jsonl", &line(1, "hippo", 3));
    place.write("bus/offsets/actions__learner.json", r#"{"committed":2,"segment":1,"ts":"x"}"#);
    place.write("bus/offsets/hippo__Arbiter.json", r#"{"committed":1,"segment":1,"ts":"x"}"#);
    place.write("bus/dlq/actions.dlq.jsonl", &line(2, "actions", 5));

    let answer = place.json(&["import", "--from-bus", "bus"]);
    assert_eq!(
        answer,
        json!({"imported":5,"duplicates":0,"groups":["actions__learner","hippo__arbiter"],"dead_letters":1})
    );
    let events = place.run(&["export"]).ok().lines();
    let topics: Vec<&str> = events.iter().map(|event| event["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["actions", "hippo", "actions", "actions.dead_letter", "actions"]);
    assert_eq!(
        (&events[0]["id"], &events[0]["space"], &events[0]["key"]),
        (&json!("actions-1"), &json!("home"), &json!("actions|1"))
    );
    assert_eq!(events[0]["ext"]["actor"], "ann");
    assert_eq!(place.json(&["groups", "get", "actions__learner"])["lag"], 1);
    assert_eq!(place.json(&["groups", "pull", "actions__learner", "--ack"])["event"]["id"], "actions-3");
    assert_eq!(place.json(&["groups", "get", "hippo__arbiter"])["lag"], 0);

    let again = place.json(&["import", "--from-bus", "bus", "--data", ".everwhen"]);
    assert_eq!((&again["duplicates"], &again["imported"]), (&json!(5), &json!(0)), "{again}");
}

#[test]
fn a_bad_line_is_named_before_anything_is_stored() {
    let place = Place::new();
    place.write("bus/wal/a.00000001.jsonl", &(line(1, "a", 1) + "nonsense\n" + &line(2, "a", 2)));
    let error = place.run(&["import", "--from-bus", "bus", "--json"]).exits(4).error();
    assert!(error["message"].as_str().unwrap().contains("a.00000001.jsonl:2: "), "{error}");
    assert!(!place.path().join(".everwhen").exists());
    place.run(&["import", "--from-bus", "nowhere"]).exits(3);
}
