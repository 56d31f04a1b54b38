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
        json!({
            "imported": 4, "duplicates": 0, "groups": ["actions__learner", "hippo__arbiter"], "dead_letters": 1,
            "skipped_lines": 1,
        })
    );
    let events = place.run(&["export"]).ok().lines();
    let topics: Vec<&str> = events.iter().map(|event| event["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["actions", "hippo", "actions", "actions"]);
    assert_eq!(
        (&events[0]["id"], &events[0]["space"], &events[0]["key"]),
        (&json!("actions-1"), &json!("home"), &json!("actions|1"))
    );
    assert_eq!(events[0]["ext"]["actor"], "ann");
    let letter = place.json(&["dead-letters", "list", "actions__learner"]);
    assert_eq!(
        (&letter["event"]["id"], &letter["reason"]),
        (&json!("actions-2"), &json!("exhausted")),
        "{letter}"
    );
    let group = place.json(&["groups", "get", "actions__learner"]);
    assert_eq!(
        (&group["lag"], &group["ordering"], &group["max_retries"]),
        (&json!(1), &json!("none"), &json!(5)),
        "{group}"
    );
    assert_eq!(place.json(&["groups", "pull", "actions__learner", "--ack"])["event"]["id"], "actions-3");
    assert_eq!(place.json(&["groups", "get", "hippo__arbiter"])["lag"], 0);

    let again = place.json(&["import", "--from-bus", "bus", "--data", ".everwhen"]);
    assert_eq!((&again["duplicates"], &again["imported"]), (&json!(4), &json!(0)), "{again}");
    assert_eq!(again["dead_letters"], 0, "{again}");
    assert_eq!(place.run(&["dead-letters", "list", "actions__learner", "--json"]).ok().lines().len(), 1);
    assert_eq!(place.json(&["groups", "get", "actions__learner"])["lag"], 0);
}

/// A dead letter as the bus's code wrote it.
fn letter(offset: u64, topic: &str, group: Option<&str>) -> String {
    let event: serde_json::Value = serde_json::from_str(&line(offset, topic, offset)).unwrap();
    let event = json!({ "meta": event["meta"], "payload": event["payload"] });
    let mut letter = json!({ "original_topic": topic, "error": "boom", "failed_at": "x", "event": event });
    if let Some(group) = group {
        letter["group"] = json!(group);
    }
    letter.to_string() + "\n"
}

#[test]
fn dead_letters_belong_to_who_is_named_or_had_gone_past_them_or_to_a_group_of_their_own() {
    let place = Place::new();
    let log = |topic: &str| (2..=5).map(|offset| line(offset, topic, offset)).collect::<String>();
    place.write("bus/wal/a.00000001.jsonl", &log("a"));
    place.write("bus/wal/b.00000001.jsonl", &log("b"));
    place.write("bus/offsets/a__ahead.json", r#"{"committed":4}"#);
    place.write("bus/offsets/a__behind.json", r#"{"committed":2}"#);
    // Retention had taken the first event; only its letter still has it. The last one names its group.
    place.write(
        "bus/dlq/a.dlq.jsonl",
        &(letter(1, "a", None) + &letter(3, "a", None) + &letter(4, "a", Some("named"))),
    );
    place.write("bus/dlq/b.dlq.jsonl", &letter(4, "b", None));
    let answer = place.json(&["import", "--from-bus", "bus"]);
    assert_eq!((&answer["imported"], &answer["dead_letters"]), (&json!(9), &json!(7)), "{answer}");
    let dead = |group: &str| -> Vec<String> {
        let letters = place.run(&["dead-letters", "list", group, "--json"]).ok().lines();
        assert!(letters.iter().all(|letter| letter["error"] == "boom" && letter["reason"] == "exhausted"));
        letters.iter().map(|letter| letter["event"]["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(dead("a__ahead"), ["a-1", "a-3"]);
    assert_eq!(dead("a__behind"), ["a-1"]);
    assert_eq!(dead("a__named"), ["a-1", "a-3", "a-4"]);
    assert_eq!(dead("b__dead_letters"), ["b-4"]);
    for (group, lag) in [("a__ahead", 1), ("a__behind", 3), ("a__named", 1), ("b__dead_letters", 0)] {
        assert_eq!(place.json(&["groups", "get", group])["lag"], lag, "{group}");
    }
}

#[test]
fn a_letter_whose_event_the_log_has_not_is_a_dead_letter_also_above_what_was_settled() {
    let place = Place::new();
    place.write("bus/wal/a.00000001.jsonl", &(line(1, "a", 1) + &line(2, "a", 2)));
    place.write("bus/offsets/a__g.json", r#"{"committed":1}"#);
    place.write("bus/offsets/a__h.json", r#"{"committed":1}"#);
    let numbered = |offset: u64, group: Option<&str>| {
        let mut letter: serde_json::Value = serde_json::from_str(&letter(offset, "a", group)).unwrap();
        letter["offset"] = json!(offset);
        letter.to_string() + "\n"
    };
    place.write("bus/dlq/a.dlq.jsonl", &(numbered(7, Some("g")) + &numbered(8, None)));
    place.json(&["import", "--from-bus", "bus"]);
    let dead = |group: &str| {
        let letters = place.run(&["dead-letters", "list", group, "--json"]).ok().lines();
        letters.iter().map(|letter| letter["event"]["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((dead("a__g"), dead("a__h")), (vec![json!("a-7"), json!("a-8")], vec![json!("a-8")]));
    for group in ["a__g", "a__h"] {
        assert_eq!(place.json(&["groups", "get", group])["lag"], 1, "only what is left of the log");
    }
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_taken() {
    let place = Place::new();
    place.write("bus/wal/a.00000001.jsonl", &(line(1, "a", 1) + &line(2, "a", 2) + "nonsense\n\n"));
    place.write("bus/offsets/a__g.json", "{");
    let run = place.run(&["import", "--from-bus", "bus", "--json"]).ok();
    assert!(run.err.contains("a.00000001.jsonl:3: ") && run.err.contains("a__g.json: "), "{}", run.err);
    let answer = &run.lines()[0];
    assert_eq!((&answer["imported"], &answer["skipped_lines"]), (&json!(2), &json!(1)), "{answer}");
    assert!(answer["notes"][0].as_str().unwrap().contains("a__g.json"), "{answer}");
    assert_eq!(place.json(&["groups", "get", "a__g"])["lag"], 2);
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
