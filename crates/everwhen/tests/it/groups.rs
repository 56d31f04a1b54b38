//! Groups and dead letters from the command line, near and through a server.

use serde_json::json;

use crate::support::Place;

#[test]
fn a_group_is_made_looked_at_moved_and_deleted() {
    let place = Place::new();
    let made =
        place.json(&["groups", "put", "g", "--pattern", "a.*", "--start", "beginning", "--max-retries", "1"]);
    assert_eq!(
        (&made["name"], &made["pattern"], &made["max_retries"]),
        (&json!("g"), &json!("a.*"), &json!(1))
    );
    assert!(place.run(&["groups", "put", "g", "--pattern", "a.#"]).ok().out.contains("changed"));
    place.run(&["publish", "a.b", "1"]).ok();
    assert_eq!(place.json(&["groups", "get", "g"])["lag"], 1);
    assert!(place.run(&["groups", "list"]).ok().out.contains("a.#"));
    assert_eq!(place.json(&["groups", "pause", "g"])["paused"], true);
    assert_eq!(place.json(&["groups", "resume", "g"])["paused"], false);
    place.run(&["groups", "seek", "g", "end"]).ok();
    assert_eq!(place.json(&["groups", "get", "g"])["lag"], 0);
    place.run(&["replay", "--from", "1", "--into", "g"]).ok();
    assert_eq!(place.json(&["groups", "get", "g"])["lag"], 1);
    let pulled = place.json(&["groups", "pull", "g", "--ack"]);
    assert_eq!((&pulled["attempt"], &pulled["event"]["payload"]), (&json!(1), &json!(1)));
    assert_eq!(place.json(&["groups", "get", "g"])["lag"], 0);
    place.run(&["groups", "rm", "g"]).ok();
    place.run(&["groups", "get", "g"]).exits(3);
}

#[test]
fn a_definition_may_be_a_whole_document() {
    let place = Place::new();
    place.write("g.json", r#"{"pattern":["a","b"],"backoff":{"base":"1s"}}"#);
    let made = place.json(&["groups", "put", "g", "--file", "g.json"]);
    assert_eq!((&made["pattern"], &made["backoff"]["base"]), (&json!(["a", "b"]), &json!(1)));
    let error =
        place.run_with_input(&["groups", "put", "g", "--file", "-", "--json"], r#"{"pattern":"a","x":1}"#);
    assert_eq!(error.exits(4).error()["pointer"], "/x");
}

#[test]
fn dead_letters_are_listed_and_given_back_through_a_server() {
    let place = Place::new();
    let server = place.serve();
    place.run(&["groups", "put", "g", "--pattern", "#"]).ok();
    place.run(&["publish", "a", "1"]).ok();
    place.run(&["publish", "b", "2"]).ok();
    let pulled = place.run(&["groups", "pull", "g", "--max", "2", "--json"]).ok().lines();
    let token = |index: usize| pulled[index]["token"].as_str().unwrap().to_owned();
    let rejected = place.json(&["groups", "reject", "g", &token(0), "--error", "no"]);
    assert_eq!(rejected, json!({"done":1,"stale":[]}));
    assert_eq!(place.json(&["groups", "extend", "g", &token(1), "--by", "1m"])["done"], 1);
    assert_eq!(place.json(&["groups", "ack", "g", &token(1), "--sync"])["done"], 1);
    let again = place.run(&["groups", "ack", "g", &token(1), "--json"]).exits(1).json();
    assert_eq!((&again["done"], again["stale"].as_array().unwrap().len()), (&json!(0), 1));

    let letter = place.json(&["dead-letters", "list", "g"]);
    assert_eq!(
        (&letter["reason"], &letter["error"], &letter["event"]["payload"]),
        (&json!("rejected"), &json!("no"), &json!(1))
    );
    assert!(place.run(&["dead-letters", "list", "g"]).ok().out.contains("rejected"));
    let position = letter["position"].to_string();
    assert_eq!(
        place.json(&["dead-letters", "redrive", "g", "--filter", "event.topic == 'b'"]),
        json!({"redriven":0})
    );
    assert_eq!(place.json(&["dead-letters", "redrive", "g", "--position", &position]), json!({"redriven":1}));
    assert_eq!(place.run(&["dead-letters", "list", "g"]).ok().out, "");
    assert_eq!(place.json(&["groups", "pull", "g"])["event"]["topic"], "a");
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn a_token_without_a_server_is_said_to_end_with_its_command() {
    let place = Place::new();
    place.run(&["groups", "put", "g", "--pattern", "#"]).ok();
    place.run(&["publish", "a", "1"]).ok();
    let pulled = place.run(&["groups", "pull", "g"]).ok();
    assert!(pulled.err.contains("--ack") && pulled.err.contains("everwhen serve"), "{pulled:?}");
    let token = pulled.out.split(' ').next().unwrap();
    let acked = place.run(&["groups", "ack", "g", token]).exits(1);
    assert!(acked.out.contains("0 done, 1 stale") && acked.err.contains("everwhen serve"), "{acked:?}");
    let error = place.run(&["groups", "ack", "g", "nonsense", "--json"]).exits(2).error();
    assert!(error["message"].as_str().unwrap().contains("\"nonsense\" is not a token"), "{error}");
    assert_eq!(place.run(&["groups", "pull", "g", "--ack"]).ok().err, "");
}

#[test]
fn what_a_filter_could_not_judge_is_told_also_without_a_server() {
    let place = Place::new();
    place.run(&["groups", "put", "g", "--pattern", "#", "--filter", "payload.n > 1"]).ok();
    assert_eq!(place.json(&["groups", "get", "g"])["filter_errors"], 0);
    place.run(&["publish", "a", "{\"n\":\"two\"}"]).ok();
    let receipt = place.json(&["publish", "a", "{\"n\":\"three\"}"]);
    place.run(&["publish", "a", "{\"n\":3}"]).ok();
    let view = place.json(&["groups", "get", "g"]);
    assert_eq!((&view["filter_errors"], &view["lag"]), (&json!(2), &json!(1)), "{view}");
    assert_eq!(view["last_filter_error"]["position"], receipt["position"], "{view}");
    let doctor = place.run(&["doctor"]).ok();
    assert!(doctor.out.contains("could not judge 2 events"), "{doctor:?}");
}

#[test]
fn patterns_of_other_systems_and_places_beyond_the_end_are_remarked_on() {
    let place = Place::new();
    for (pattern, remark) in
        [("a.**", "is any number of words"), ("a.>", "is a word like any other"), ("a.#", "")]
    {
        let done = place.run(&["groups", "put", "g", "--pattern", pattern]).ok();
        assert!(done.err.contains(remark) && (remark.is_empty() != done.err.contains('#')), "{done:?}");
    }
    place.run(&["publish", "a", "1"]).ok();
    let done = place.run(&["groups", "seek", "g", "100"]).ok();
    let floor = place.json(&["groups", "get", "g"])["floor"].to_string();
    assert!(done.err.contains("g goes on after ") && !done.err.contains("99"), "{done:?} {floor}");
}

#[test]
fn backoff_and_lag_have_flags() {
    let place = Place::new();
    let args = ["groups", "put", "g", "--pattern", "a", "--backoff", r#"{"base":"1s"}"#];
    let made = place.json(&[&args[..], &["--on-lag", r#"{"do":"refuse","events":9}"#]].concat());
    assert_eq!((&made["backoff"]["base"], &made["on_lag"]["events"]), (&json!(1), &json!(9)));
    place.run(&["groups", "put", "g", "--pattern", "a", "--backoff", "soon"]).exits(2);
}

#[test]
fn why_a_group_has_no_event_is_said() {
    let place = Place::new();
    place.run(&["groups", "put", "erring", "--pattern", "x.*", "--filter", "payload.m > 3"]).ok();
    place.run(&["groups", "put", "narrow", "--pattern", "x.*", "--filter", "payload.n > 3"]).ok();
    place.run(&["groups", "put", "other", "--pattern", "zzz.*"]).ok();
    place.run(&["groups", "put", "resting", "--pattern", "x.*"]).ok();
    place.run(&["groups", "pause", "resting"]).ok();
    let at = place.json(&["publish", "x.y", r#"{"n":1}"#])["position"].to_string();
    let told = place.json(&["explain", "event", &at]);
    let groups = told["groups"].as_array().unwrap();
    let of = |name: &str| groups.iter().find(|group| group["group"] == name).unwrap();
    for (name, state, reason) in [
        ("erring", "filtered", "filter_error"),
        ("narrow", "filtered", "filter"),
        ("other", "filtered", "pattern"),
        ("resting", "ready", "paused"),
    ] {
        assert_eq!((&of(name)["state"], &of(name)["reason"]), (&json!(state), &json!(reason)), "{told}");
    }
    assert!(of("erring")["error"].is_string() && of("resting")["matched"] == true, "{told}");
    let words = place.run(&["explain", "event", &at]).ok().out;
    assert!(words.contains("its filter failed: ") && words.contains("the group is paused"), "{words}");
}
