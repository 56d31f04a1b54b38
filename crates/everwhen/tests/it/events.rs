//! Publishing, finding and following from the command line.

use serde_json::{Value, json};

use crate::support::Place;

#[test]
fn publish_prints_the_position_and_keeps_every_digit() {
    let place = Place::new();
    let receipt =
        place.json(&["publish", "price.changed", r#"{"new": 1.10, "big": 12345678901234567890123}"#]);
    let position = receipt["position"].as_u64().unwrap();
    assert!(receipt["id"].is_string() && receipt["recorded_at"].is_string(), "{receipt}");
    let next = place.run(&["publish", "price.changed", "1", "--subject", "item/7", "--ttl", "1m"]).ok();
    assert!(next.out.trim().parse::<u64>().unwrap() > position);

    let text = place.run(&["events", "get", &position.to_string()]).ok().out;
    assert!(text.contains(r#""payload":{"new": 1.10, "big": 12345678901234567890123}"#), "{text}");
    let event = place.json(&["events", "get", next.out.trim()]);
    assert_eq!((&event["subject"], &event["ttl"]), (&json!({"kind":"item","id":"7"}), &json!(60)));
    assert_eq!(place.json(&["events", "get", event["id"].as_str().unwrap()]), event);
}

#[test]
fn a_repeated_key_is_one_event_and_another_body_is_refused() {
    let place = Place::new();
    let first = place.json(&["publish", "a", "{\"n\":1}", "--key", "k"]);
    let again = place.json(&["publish", "a", "{\"n\":1.0}", "--key", "k"]);
    assert_eq!((&again["position"], &again["duplicate"]), (&first["position"], &json!(true)));
    let error = place.run(&["publish", "a", "2", "--key", "k", "--json"]).exits(4).error();
    assert_eq!((&error["code"], &error["position"]), (&json!("event.key_conflict"), &first["position"]));
}

#[test]
fn payloads_come_from_files_and_from_stdin() {
    let place = Place::new();
    place.write("p.json", "[1,2]");
    place.run(&["publish", "a", "@p.json"]).ok();
    place.run_with_input(&["publish", "a", "-"], "{\"from\":\"stdin\"}").ok();
    let events = place.run(&["events", "--json"]).ok().lines();
    assert_eq!((&events[0]["payload"], &events[1]["payload"]), (&json!([1, 2]), &json!({"from":"stdin"})));
}

#[test]
fn lines_are_answered_one_by_one_in_order_and_a_bad_one_stops_no_other() {
    let place = Place::new();
    let mut input: String = (0..2_000).map(|n| format!("{{\"topic\":\"t\",\"payload\":{n}}}\n")).collect();
    input.insert_str(0, "not json\n\n{\"topic\":\"a..b\"}\n");
    let done = place.run_with_input(&["publish", "--ndjson", "-", "--json"], &input).exits(4);
    let answers = done.lines();
    assert_eq!(answers.len(), 2_002);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert_eq!(serde_json::from_str::<Value>(&done.err).unwrap()["error"]["refused"], 2);
    assert_eq!(
        (&answers[0]["error"]["code"], &answers[0]["error"]["line"]),
        (&json!("json.invalid"), &json!(1))
    );
    assert_eq!(
        (&answers[1]["error"]["code"], &answers[1]["error"]["line"]),
        (&json!("event.topic_invalid"), &json!(3))
    );
    let positions: Vec<u64> =
        answers[2..].iter().map(|answer| answer["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted());
    let stored = place.run(&["tail", "--no-follow", "--json"]).ok().lines();
    let payloads: Vec<u64> = stored.iter().map(|event| event["payload"].as_u64().unwrap()).collect();
    assert_eq!(payloads, (0..2_000).collect::<Vec<u64>>());
}

#[test]
fn list_takes_every_part_of_the_query() {
    let place = Place::new();
    for (topic, subject) in [("a.x", "k/1"), ("a.y", "k/2"), ("b.x", "k/1")] {
        place.run(&["publish", topic, "{\"n\":1}", "--subject", subject]).ok();
    }
    let count = |args: &[&str]| place.run(&[&["events", "list", "--json"], args].concat()).ok().lines().len();
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--topic", "a.*"]), 2);
    assert_eq!(count(&["--subject", "k/1"]), 2);
    assert_eq!(count(&["--filter", "event.topic == 'b.x'"]), 1);
    assert_eq!(count(&["--filter", r#"{"field":"payload.n","gt":1}"#]), 0);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--since", "1h"]), 3);
    assert_eq!(count(&["--until", "1h"]), 0);
    assert_eq!(count(&["--space", "other"]), 0);
    let newest = place.run(&["events", "list", "--order", "desc", "--limit", "1", "--json"]).ok().json();
    assert_eq!(newest["topic"], "b.x");
    assert_eq!(count(&["--after", "999"]), 0);
    assert_eq!(count(&["--before", &newest["position"].to_string()]), 2);
}

#[test]
fn a_list_that_ends_early_says_how_to_go_on() {
    let place = Place::new();
    (0..3).for_each(|n| drop(place.run(&["publish", "a", &n.to_string()]).ok()));
    let done = place.run(&["events", "list", "--limit", "2"]).ok();
    let last = done.out.lines().last().unwrap().split(' ').next().unwrap().to_owned();
    assert!(done.err.contains(&format!("--after {last}")) && done.err.contains("--order desc"), "{done:?}");
    let done = place.run(&["events", "list", "--limit", "2", "--order", "desc"]).ok();
    assert!(done.err.contains("--before "), "{done:?}");
    assert_eq!(place.run(&["events", "list", "--limit", "3"]).ok().err, "");
    let done = place.run(&["tail", "--after", "99", "--no-follow"]).ok();
    assert!(done.err.contains("the last event is at"), "{done:?}");
    assert_eq!(place.run(&["tail", "--after", &last, "--no-follow"]).ok().err, "");
}

#[test]
fn lineage_shows_what_led_to_an_event() {
    let place = Place::new();
    let cause = place.run(&["publish", "a"]).ok().out;
    let effect = place.run(&["publish", "b", "--cause", cause.trim()]).ok().out;
    let lineage = place.json(&["events", "lineage", effect.trim()]);
    assert_eq!(lineage["event"]["depth"], 1, "{lineage}");
    assert_eq!(lineage["causes"][0]["topic"], "a");
    assert_eq!(place.json(&["events", "lineage", cause.trim()])["effects"][0]["event"]["topic"], "b");
}

#[test]
fn lineages_and_dead_letters_keep_every_digit() {
    let place = Place::new();
    let payload = r#"{"n":1.10,"big":12345678901234567890123}"#;
    let first = place.run(&["publish", "a", payload]).ok().out;
    let second = place.run(&["publish", "b", payload, "--cause", first.trim()]).ok().out;
    place.run(&["groups", "put", "g", "--pattern", "#", "--start", "beginning"]).ok();
    let server = place.serve();
    let token = place.json(&["groups", "pull", "g"])["token"].as_str().unwrap().to_owned();
    place.run(&["groups", "reject", "g", &token]).ok();
    let look = || {
        for (args, count) in
            [(&["events", "lineage", second.trim()][..], 2), (&["dead-letters", "list", "g"], 1)]
        {
            for args in [args.to_vec(), [args, &["--json"]].concat()] {
                let done = place.run(&args).ok();
                assert_eq!(done.out.matches(payload).count(), count, "{done:?}");
            }
        }
    };
    look();
    assert_eq!(server.signal("TERM"), 0);
    look();
}

#[test]
fn replay_prints_a_range_and_export_and_import_round_trip() {
    let place = Place::new();
    for n in 0..3 {
        place.run(&["publish", "a", &n.to_string(), "--key", &format!("k{n}")]).ok();
    }
    let events = place.run(&["export"]).ok();
    let second = events.lines()[1]["position"].to_string();
    assert_eq!(place.run(&["replay", "--from", &second]).ok().lines().len(), 2);
    assert_eq!(place.run(&["replay", "--since", "1h", "--topic", "b"]).ok().out, "");

    let imported = place.run_with_input(&["import", "--data", "other", "--json"], &events.out).ok().json();
    assert_eq!(imported, json!({"imported":3,"duplicates":0}));
    let again = place.run_with_input(&["import", "--data", "other", "--json"], &events.out).ok().json();
    assert_eq!(again, json!({"imported":0,"duplicates":3}));
    let copied = place.run(&["export", "--data", "other"]).ok().lines();
    for (old, new) in events.lines().iter().zip(&copied) {
        for field in ["id", "time", "key", "topic", "payload", "actor"] {
            assert_eq!(old[field], new[field], "{field}");
        }
    }
    let bad =
        place.run_with_input(&["import", "--data", "third", "--json"], "{\"topic\":\"a\"}\n{\"nope\":1}\n");
    assert_eq!(bad.exits(4).error()["line"], 2);
}

#[test]
fn an_import_keeps_causes_and_a_second_one_brings_nothing() {
    let place = Place::new();
    place.run(&["publish", "left.out"]).ok();
    let mut cause = place.run(&["publish", "a", "{}", "--cause", "1"]).ok().out;
    for topic in ["b", "c"] {
        cause = place.run(&["publish", topic, "1.10", "--cause", cause.trim()]).ok().out;
    }
    let lines: Vec<String> =
        place.run(&["export"]).ok().out.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let lines = lines.concat();
    let import = |args: &[&str]| {
        place.run_with_input(&[&["import", "--data", "other", "--json"], args].concat(), &lines).ok().json()
    };
    // So that positions are others than before.
    for _ in 0..3 {
        place.run(&["publish", "x", "--data", "other"]).ok();
    }
    assert_eq!(import(&[]), json!({"imported":3,"duplicates":0,"causes_outside":1}));
    let copied = place.run(&["export", "--data", "other"]).ok().lines();
    let (a, b, c) = (&copied[3], &copied[4], &copied[5]);
    assert_eq!((&a["ext"]["importedcause"], a.get("cause"), a.get("key")), (&json!(1), None, None), "{a}");
    assert_eq!((&b["cause"], &b["depth"]), (&a["position"], &json!(1)), "{b}");
    assert_eq!((&c["cause"], &c["depth"]), (&b["position"], &json!(2)), "{c}");

    assert_eq!(import(&[]), json!({"imported":0,"duplicates":3}));
    let more = format!("{{\"topic\":\"d\",\"cause\":{}}}\n", cause.trim());
    let answer =
        place.run_with_input(&["import", "--data", "other", "--json"], &format!("{lines}{more}")).ok().json();
    assert_eq!(answer, json!({"imported":1,"duplicates":3}), "a cause that was here already is found");
    let d = place.run(&["events", "list", "--topic", "d", "--data", "other", "--json"]).ok().json();
    assert_eq!(d["cause"], c["position"]);
    assert_eq!(import(&["--again"])["imported"], 3);
}

#[test]
fn a_search_needs_no_word_and_its_flags_may_not_stand_before_another() {
    let place = Place::new();
    for (payload, space) in [("1", "shop"), ("2", "mail"), ("3", "shop")] {
        place.run(&["publish", "a", payload, "--space", space]).ok();
    }
    let found = place.run(&["events", "--space", "shop", "--order", "desc", "--limit", "1", "--json"]).ok();
    let found = found.lines();
    assert_eq!((found.len(), &found[0]["space"], &found[0]["payload"]), (1, &json!("shop"), &json!(3)));
    assert_eq!(place.run(&["events", "--json", "list", "--space", "mail"]).ok().lines().len(), 1);
    let error = place.run(&["events", "--space", "shop", "get", "1", "--json"]).exits(2).error();
    assert!(error["hint"].as_str().unwrap().contains("events list"), "{error}");
    place.run(&["groups", "put", "of-shop", "--pattern", "a", "--space", "shop"]).ok();
    place.run(&["groups", "put", "of-all", "--pattern", "a"]).ok();
    let groups = place.run(&["groups", "list", "--space", "shop", "--json"]).ok().lines();
    assert_eq!((groups.len(), &groups[0]["name"]), (1, &json!("of-shop")));
    assert_eq!(place.run(&["groups", "list", "--json"]).ok().lines().len(), 2);
}

#[test]
fn explaining_an_event_keeps_every_digit_of_it() {
    let place = Place::new();
    let payload = r#"{"n":1.10,"big":12345678901234567890123}"#;
    place.run(&["publish", "a", payload]).ok();
    let text = place.run(&["explain", "event", "1", "--json"]).ok().out;
    assert!(text.contains(&format!(r#""payload":{payload}"#)), "{text}");
    place.run(&["explain", "event", "1"]).ok();
}
