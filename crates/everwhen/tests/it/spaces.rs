//! Sealed spaces from the command line: near and far, and killed wherever forgetting may be.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::Place;

const CANARY: &str = "c4n4ry-of-the-clinic";

/// Files below a folder that hold the canary.
fn holding(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(holding(&path)),
            false => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}

fn publish(place: &Place, topic: &str, n: usize) -> u64 {
    let payload = json!({"n": n, "name": CANARY}).to_string();
    let said = place.json(&["publish", topic, &payload, "--space", "clinic"]);
    said["position"].as_u64().unwrap()
}

fn assert_sound(place: &Place) {
    let report = place.json(&["verify"]);
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
}

#[test]
fn a_space_is_sealed_listed_and_forgotten_through_a_server() {
    let place = Place::new();
    let server = place.serve();
    let sealed = place.json(&["space", "seal", "clinic"]);
    assert_eq!((&sealed["name"], &sealed["sealed"]), (&json!("clinic"), &json!(true)));
    let position = publish(&place, "a", 1).to_string();
    let listed: Vec<Value> = place.run(&["space", "list", "--json"]).ok().lines();
    assert_eq!((listed.len(), &listed[0]["key"]), (1, &sealed["key"]));
    assert_eq!(place.json(&["events", "get", &position])["payload"]["name"], CANARY);
    let forgotten = place.json(&["space", "forget", "clinic"]);
    assert_eq!((&forgotten["events"], &forgotten["sealed"]), (&json!(1), &json!(true)));
    assert_ne!(forgotten["key"], sealed["key"], "it has another key now");
    let event = place.json(&["events", "get", &position]);
    assert_eq!((&event["erased"], event.get("payload")), (&json!(true), None));
    let again = place.json(&["space", "forget", "clinic"]);
    assert_eq!((&again["events"], &again["already"]), (&json!(0), &json!(true)), "{again}");
    let said = place.run(&["space", "forget", "clinic", "--yes"]).ok().out;
    assert_eq!(said, "clinic was forgotten already: nothing was published there since\n");
    publish(&place, "a", 2);
    assert_eq!(
        place.run(&["space", "forget", "clinic"]).ok().out,
        "clinic is forgotten: 1 event\n",
        "what came since"
    );
    assert_eq!(
        place.run(&["space", "seal", "_system", "--json"]).exits(2).error()["code"],
        "request.invalid"
    );
    assert_eq!(server.signal("TERM"), 0);
    assert_eq!(holding(place.path()), Vec::<String>::new());
    assert_sound(&place);
}

/// What can be seen of how far forgetting has come.
fn reached(place: &Place, step: usize) -> bool {
    let data = place.path().join(".everwhen");
    let read = |path: &str| std::fs::read_to_string(data.join("tenants/main").join(path)).unwrap_or_default();
    let destroyed = || {
        let keys = std::fs::read_dir(data.join("keys/main.spaces")).into_iter().flatten();
        let gone = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("forgotten"));
        keys.filter_map(Result::ok).any(|entry| gone(&entry.path()))
    };
    match step {
        0 => read("forgetting").contains("clinic"),
        1 => read("forgetting").contains("through"),
        2 => destroyed(),
        _ => !read("erasing").is_empty(),
    }
}

#[test]
fn forgetting_that_is_killed_is_finished_by_whoever_opens_the_directory_next() {
    for step in 0..4 {
        let place = Place::new();
        place.run(&["space", "seal", "clinic"]).ok();
        place.run(&["groups", "put", "g", "--pattern", "a", "--start", "beginning"]).ok();
        let first = publish(&place, "a", 0).to_string();
        for n in 1..8 {
            publish(&place, "a", n);
        }
        let mut child = place.command(&["space", "forget", "clinic", "--yes"]).spawn().unwrap();
        while !reached(&place, step) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = child.kill();
        child.wait().unwrap();
        let event = place.json(&["events", "get", &first]);
        assert_eq!((&event["erased"], event.get("payload")), (&json!(true), None), "killed at step {step}");
        assert_eq!(holding(place.path()), Vec::<String>::new(), "killed at step {step}");
        assert_sound(&place);
    }
}
