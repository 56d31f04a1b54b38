//! The care of directories: verify, salvage, backup, restore, erase, doctor, db.

use serde_json::json;

use crate::support::Place;

fn filled() -> Place {
    let place = Place::new();
    let input: String = (0..50).map(|n| format!("{{\"topic\":\"t\",\"payload\":{{\"n\":{n}}}}}\n")).collect();
    place.run_with_input(&["publish", "--ndjson", "-"], &input).ok();
    place
}

#[test]
fn verify_tells_what_it_found() {
    let place = filled();
    let report = place.json(&["verify"]);
    let tenant = &report["tenants"][0];
    assert_eq!(
        (&report["ok"], &tenant["tenant"], &tenant["state"]),
        (&json!(true), &json!("main"), &json!("equal"))
    );
    for field in ["segments", "commits", "records", "first", "last", "erased"] {
        assert!(tenant[field].is_u64(), "{field}: {report}");
    }
    assert_eq!(tenant["problems"], json!([]));
    assert_eq!(tenant["head"].as_str().unwrap().len(), 64);
    assert_eq!(place.json(&["verify", "--quick"])["tenants"][0]["state"], "skipped");
    let server = place.serve();
    assert_eq!(place.json(&["verify", "--quick"])["ok"], true);
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn a_torn_tail_is_told_by_verify_and_doctor_and_is_no_damage() {
    let place = filled();
    let server = place.serve();
    place.run(&["publish", "t", "1"]).ok();
    assert_eq!(server.signal("KILL"), -9);
    let ledger = place.path().join(".everwhen/tenants/main/ledger");
    let newest = std::fs::read_dir(&ledger).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).max().unwrap();
    let mut text = std::fs::read_to_string(&newest).unwrap().trim_end().to_owned();
    text += "\n{\"p\":9999,\"t\":\"2026";
    std::fs::write(&newest, text).unwrap();
    let report = place.json(&["verify"]);
    assert_eq!(
        (&report["ok"], &report["tenants"][0]["problems"][0]["kind"]),
        (&json!(true), &json!("torn_tail"))
    );
    assert!(place.run(&["doctor"]).ok().out.contains("torn tail"));
    place.run(&["publish", "t", "2"]).ok();
    assert_eq!(place.json(&["verify"])["tenants"][0]["problems"], json!([]));
    assert_eq!(place.run(&["export"]).ok().lines().len(), 52);
}

#[test]
fn salvage_takes_the_sound_part_and_refuses_a_full_target() {
    let place = filled();
    place.run(&["salvage", "--to", "sound"]).ok();
    assert_eq!(place.run(&["export", "--data", "sound"]).ok().lines().len(), 50);
    assert_eq!(place.json(&["verify", "--data", "sound"])["ok"], true);
    assert_eq!(place.run(&["salvage", "--to", "sound", "--json"]).exits(4).error()["code"], "store.exists");
    let ledger = place.path().join(".everwhen/tenants/main/ledger/00000000000000000001.jsonl");
    place.run(&["publish", "t", "123456"]).ok();
    let text = std::fs::read_to_string(&ledger).unwrap();
    std::fs::write(&ledger, text.replacen("123456", "12345x", 1)).unwrap();
    let said = place.run(&["salvage", "--to", "part"]).ok().out;
    assert!(said.contains("it ends there, and nothing behind came along, because of: "), "{said}");
}

#[test]
fn fields_of_a_later_version_are_left_out_and_told_once() {
    let place = Place::new();
    let lines = concat!(
        "{\"topic\":\"a\",\"id\":\"e1\",\"hue\":1,\"position\":7,\"payload\":1.50}\n",
        "{\"topic\":\"a\",\"id\":\"e2\",\"hue\":2,\"depth_of_field\":{}}\n"
    );
    for (more, imported) in [(&[][..], 2), (&["--data", ".everwhen"], 0)] {
        let done = place.run_with_input(&[&["import", "--json"], more].concat(), lines).ok();
        assert_eq!((done.err.lines().count(), done.err.matches("hue").count()), (1, 1), "{done:?}");
        assert_eq!(done.json()["imported"], imported);
        assert_eq!(done.json()["unknown_fields"], json!(["depth_of_field", "hue"]));
    }
    let events = place.run(&["export"]).ok();
    assert!(events.out.contains("1.50") && !events.out.contains("hue"), "{events:?}");
    // Publishing still asks for what it knows.
    place.run_with_input(&["publish", "--ndjson", "-"], lines).exits(4);
}

#[test]
fn a_backup_under_a_server_restores_to_the_same_events() {
    let place = filled();
    let server = place.serve();
    place.run(&["groups", "put", "g", "--pattern", "#", "--start", "beginning"]).ok();
    place.run(&["backup", "--to", "copy"]).ok();
    place.run(&["publish", "t", "later"]).exits(4);
    place.run(&["publish", "t", "51"]).ok();
    place.run(&["backup", "--to", "copy"]).exits(4);
    assert_eq!(server.signal("TERM"), 0);
    place.run(&["restore", "--from", "copy", "--data", "again"]).ok();
    assert_eq!(place.run(&["export", "--data", "again"]).ok().lines().len(), 50);
    assert_eq!(place.json(&["groups", "get", "g", "--data", "again"])["lag"], 50);
    assert_eq!(place.json(&["verify", "--data", "again"])["ok"], true);
    place.run(&["restore", "--from", "copy", "--data", "again"]).exits(4);
    place.run(&["restore", "--from", "nowhere", "--data", "other"]).exits(3);
}

#[test]
fn an_erased_event_keeps_its_place_and_loses_its_content() {
    let place = filled();
    let position = place.json(&["events", "list", "--limit", "1"])["position"].to_string();
    assert_eq!(place.json(&["erase", &position]), json!({"erased":1}));
    let event = place.json(&["events", "get", &position]);
    assert_eq!((&event["erased"], event.get("payload")), (&json!(true), None));
    let report = place.json(&["verify"]);
    assert_eq!((&report["ok"], &report["tenants"][0]["erased"]), (&json!(true), &json!(1)));
    let server = place.serve();
    assert_eq!(place.json(&["erase", &position]), json!({"erased":0}));
    let other = place.json(&["events", "list", "--limit", "1", "--order", "desc"]);
    assert_eq!(place.json(&["erase", other["id"].as_str().unwrap()]), json!({"erased":1}));
    assert_eq!(place.json(&["events", "get", &other["position"].to_string()])["erased"], true);
    assert_eq!(place.run(&["erase", "nobody", "--json"]).exits(3).error()["code"], "event.not_found");
    place.run(&["erase", "0"]).exits(2);
    assert_eq!(place.run(&["erase", "999999", "--json"]).exits(3).error()["code"], "event.not_found");
    assert_eq!(server.signal("TERM"), 0);
    let input = place.run(&["export"]).ok().out;
    let imported = place.run_with_input(&["import", "--data", "other", "--json"], &input).ok().json();
    assert_eq!(imported, json!({"imported":48,"duplicates":0,"erased":2}));
}

#[test]
fn records_are_exported_gapless() {
    let place = filled();
    let records = place.run(&["export", "--records"]).ok().lines();
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record["position"].as_u64().unwrap() as usize, index + 1);
        assert!(record["k"].is_string() && record["v"].is_u64() && record["time"].is_string(), "{record}");
    }
    assert!(records.len() >= 50);
}

#[test]
fn doctor_looks_at_everything_and_says_when_something_must_be_mended() {
    let place = filled();
    let report = place.json(&["doctor"]);
    assert_eq!(report["ok"], true, "{report}");
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|c| c["check"].as_str().unwrap()).collect();
    for name in [
        "config",
        "directory",
        "lock",
        "space",
        "sync",
        "temporary",
        "ledger",
        "tenant",
        "clock",
        "timers",
        "groups",
    ] {
        assert!(names.contains(&name), "{name}: {report}");
    }
    let server = place.serve();
    assert!(place.run(&["doctor"]).ok().out.contains("held by process"));
    assert_eq!(server.signal("TERM"), 0);
    place.run(&["doctor", "--data", "nowhere"]).exits(1);
}

#[test]
fn db_gives_a_copy_and_queries_it() {
    let place = filled();
    let path = place.run(&["db"]).ok().out;
    assert!(std::fs::metadata(path.trim()).unwrap().len() > 0);
    std::fs::remove_file(path.trim()).unwrap();
    let server = place.serve();
    let rows = place.run(&["db", "--sql", "select 1 as one, 'x' as x", "--json"]).ok().json();
    assert_eq!(rows, json!({"one":1,"x":"x"}));
    place.run(&["db", "--sql", "create table t (x)"]).exits(2);
    assert_eq!(server.signal("TERM"), 0);
    place.run(&["db", "--data", "nowhere"]).exits(3);
}

#[test]
fn the_care_of_a_held_directory_goes_through_its_server() {
    let place = filled();
    let lines = place.run(&["export"]).ok().out;
    let server = place.serve();
    let far = ["--server", server.url(), "--json"];
    let with = |args: &[&str]| place.run(&[args, &far].concat());
    assert_eq!(with(&["verify"]).ok().json()["ok"], true);
    let import = |args: &[&str]| place.run_with_input(args, &lines).ok().json();
    assert_eq!(import(&["import", "--json"]), json!({"imported":0,"duplicates":50}));
    assert_eq!(import(&["import", "--again", "--json"]), json!({"imported":50,"duplicates":0}));
    assert_eq!(place.run_with_input(&["import", "--json"], "{}\n").exits(4).error()["line"], 1);
    let records = with(&["export", "--records"]).ok().lines();
    assert!(records.iter().enumerate().all(|(index, record)| record["position"] == index + 1), "{records:?}");
    let newest = records.last().unwrap()["position"].to_string();
    assert_eq!(with(&["erase", &newest]).ok().json(), json!({"erased":1}));
    assert_eq!(with(&["events", "get", &newest]).ok().json()["erased"], true);
    assert_eq!(with(&["doctor"]).ok().json()["ok"], true);
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn a_row_whose_first_change_was_erased_is_rebuilt_with_who_made_it() {
    let place = Place::new();
    place.write("d/c.ew", "concept row { v int }\n");
    place.run(&["apply", "d"]).ok();
    for value in ["{\"v\":1}", "{\"v\":2}", "{\"v\":3}"] {
        place.run(&["entity", "put", "row", "a", value]).ok();
    }
    let changes = place.run(&["events", "list", "--topic", "graph.node.created.#", "--json"]).ok().lines();
    place.run(&["erase", &changes[0]["position"].to_string()]).ok();
    assert_eq!(place.json(&["verify"])["tenants"][0]["state"], "equal");
}

#[test]
fn a_copy_of_the_state_is_written_over_nothing_that_is_there() {
    let place = filled();
    let segment = ".everwhen/tenants/main/ledger/00000000000000000001.jsonl";
    let before = std::fs::read(place.path().join(segment)).unwrap();
    for taken in [segment, ".everwhen"] {
        let error = place.run(&["db", "--to", taken, "--json"]).exits(4).error();
        assert_eq!(error["code"], "store.exists", "{error}");
        assert!(error["message"].as_str().unwrap().contains(taken), "{error}");
    }
    assert!(before == std::fs::read(place.path().join(segment)).unwrap());
    place.run(&["verify"]).ok();

    place.run(&["db", "--to", "copy.db"]).ok();
    let copy = std::fs::read(place.path().join("copy.db")).unwrap();
    assert!(copy.starts_with(b"SQLite format 3\0"));
    place.run(&["db", "--to", "copy.db"]).exits(4);
    assert!(copy == std::fs::read(place.path().join("copy.db")).unwrap());
}

#[test]
fn a_copy_that_has_no_place_is_not_called_damage() {
    let place = filled();
    place.write("file", "");
    for nowhere in ["no/such/folder/copy.db", "file/copy.db", "/proc/copy.db"] {
        let error = place.run(&["db", "--to", nowhere, "--json"]).exits(6).error();
        assert_eq!(error["code"], "storage.read_only", "{error}");
    }
}

#[test]
fn doctor_does_not_stand_in_its_own_way_after_it_lowered_schedules() {
    let place = filled();
    let report = place.json(&["doctor", "--lower-schedules"]);
    assert_eq!(report["ok"], true, "{report}");
    let lock = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "lock").unwrap();
    assert_eq!(lock["message"], "free", "{report}");
    let server = place.serve();
    assert_eq!(
        place.run(&["doctor", "--lower-schedules", "--json"]).exits(2).error()["code"],
        "request.invalid"
    );
    assert_eq!(server.signal("TERM"), 0);
}
