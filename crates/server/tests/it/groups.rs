//! Groups over HTTP, every row of the table in contracts §4.

use serde_json::{Value, json};

use crate::harness::Server;

fn tokens(pulled: &Value) -> Vec<String> {
    let deliveries = pulled["deliveries"].as_array().unwrap();
    deliveries.iter().map(|d| d["token"].as_str().unwrap().to_owned()).collect()
}

fn pull(server: &Server, max: usize) -> Value {
    server.post("/v1/groups/g/pull", json!({ "max": max }).to_string()).ok(200)
}

/// A server with three events and the group `g` over them.
fn with_three(definition: Value) -> (Server, Vec<u64>) {
    let server = Server::start();
    let positions = (1..=3).map(|i| server.publish("a.b", &format!("{{\"n\":{i}}}"))).collect();
    let mut whole = json!({"pattern":"a.#","start":"beginning"});
    whole.as_object_mut().unwrap().extend(definition.as_object().unwrap().clone());
    server.put("/v1/groups/g", whole.to_string()).ok(201);
    (server, positions)
}

#[test]
fn a_group_is_made_changed_shown_and_removed() {
    let server = Server::start();
    let made = server.put("/v1/groups/g", r#"{"pattern":"price.*","start":"beginning"}"#).ok(201);
    assert_eq!((&made["name"], &made["pattern"]), (&json!("g"), &json!("price.*")));
    let changed = server.put("/v1/groups/g", r#"{"pattern":["price.*","cost.*"],"max_inflight":7}"#).ok(200);
    assert_eq!((&changed["pattern"], &changed["max_inflight"]), (&json!(["price.*", "cost.*"]), &json!(7)));
    let shown = server.get("/v1/groups/g").ok(200);
    for name in ["floor", "lag", "inflight", "dead_letters", "events_processed_total"] {
        assert!(shown[name].is_u64(), "{name} in {shown}");
    }
    assert_eq!(shown["paused"], false);
    let all = server.get("/v1/groups").ok(200);
    assert_eq!(all["groups"].as_array().unwrap().len(), 1);
    assert_eq!(server.send("DELETE", "/v1/groups/g", &[], "").status, 204);
    server.send("DELETE", "/v1/groups/g", &[], "").refused(404, "group.not_found");
    server.get("/v1/groups/g").refused(404, "group.not_found");
}

#[test]
fn a_wrong_definition_or_name_is_refused_with_its_place() {
    let server = Server::start();
    let table = [
        (r#"{}"#, "group.invalid", "/pattern"),
        (r#"{"pattern":"a..b"}"#, "pattern.invalid", "/pattern"),
        (r##"{"pattern":"#","colour":1}"##, "group.invalid", "/colour"),
        (r##"{"pattern":"#","max_inflight":-1}"##, "group.invalid", "/max_inflight"),
        (r##"{"pattern":"#","start":{"position":-1}}"##, "group.invalid", "/start"),
        (r#"[]"#, "group.invalid", ""),
    ];
    for (body, code, pointer) in table {
        let problem = server.put("/v1/groups/g", body).refused(422, code);
        assert_eq!(problem["pointer"], pointer, "{body}");
    }
    assert_eq!(server.put("/v1/groups/g", r##"{"pattern":"#","filter":"("}"##).status, 422);
    server.put("/v1/groups/Nope", r##"{"pattern":"#"}"##).refused(422, "group.invalid");
    server.put("/v1/groups/g", r##"{"pattern":"#","pattern":"#"}"##).refused(422, "json.duplicate_key");
    server.send("PUT", "/v1/groups/g", &["content-type: text/plain"], "{}").refused(415, "body.type");
    assert_eq!(server.get("/v1/groups").ok(200)["groups"], json!([]), "a refusal changes nothing");
}

#[test]
fn pulled_events_are_acked_once_and_a_token_is_good_once() {
    let (server, positions) = with_three(json!({}));
    let pulled = pull(&server, 2);
    let deliveries = pulled["deliveries"].as_array().unwrap();
    let got: Vec<u64> = deliveries.iter().map(|d| d["event"]["position"].as_u64().unwrap()).collect();
    assert_eq!(got, positions[..2]);
    assert_eq!(deliveries[0]["attempt"], 1);
    assert!(deliveries[0]["deadline"].as_str().unwrap().ends_with('Z'));
    let body = json!({"tokens": tokens(&pulled), "sync": true}).to_string();
    assert_eq!(server.post("/v1/groups/g/ack", &body).ok(200), json!({"done": 2, "stale": []}));
    let again = server.post("/v1/groups/g/ack", &body).ok(200);
    assert_eq!((&again["done"], again["stale"].as_array().unwrap().len()), (&json!(0), 2));
    let group = server.get("/v1/groups/g").ok(200);
    assert_eq!((&group["lag"], &group["inflight"]), (&json!(1), &json!(0)), "{group}");
    assert!(group["floor"].as_u64().unwrap() >= positions[1]);
    let rest = pull(&server, 100);
    assert_eq!(rest["deliveries"][0]["event"]["position"], positions[2]);
    assert_eq!(pull(&server, 100)["deliveries"], json!([]));
}

#[test]
fn a_nacked_event_comes_again_and_a_rejected_one_is_a_dead_letter() {
    let (server, positions) = with_three(json!({"max_inflight": 1}));
    let first = pull(&server, 1);
    let body = json!({"tokens": tokens(&first), "delay": 0, "error": "try again"}).to_string();
    assert_eq!(server.post("/v1/groups/g/nack", body).ok(200)["done"], 1);
    let second = server.post("/v1/groups/g/pull", r#"{"max":1,"wait":"20s"}"#).ok(200);
    assert_eq!(second["deliveries"][0]["attempt"], 2, "{second}");
    assert_eq!(second["deliveries"][0]["event"]["position"], positions[0]);
    let body = json!({"tokens": tokens(&second), "by": "1m"}).to_string();
    assert_eq!(server.post("/v1/groups/g/extend", body).ok(200)["done"], 1);
    let body = json!({"tokens": tokens(&second), "error": "no good"}).to_string();
    assert_eq!(server.post("/v1/groups/g/reject", body).ok(200)["done"], 1);
    let dead = server.get("/v1/groups/g/dead-letters").ok(200);
    let letter = &dead["dead_letters"][0];
    assert_eq!((&letter["position"], &letter["reason"]), (&json!(positions[0]), &json!("rejected")));
    assert_eq!((&letter["error"], &letter["event"]["topic"]), (&json!("no good"), &json!("a.b")));
    let redriven =
        server.post("/v1/groups/g/dead-letters/redrive", json!({"positions":[positions[0]]}).to_string());
    assert_eq!(redriven.ok(200), json!({"redriven": 1}));
    assert_eq!(server.get("/v1/groups/g/dead-letters?limit=1").ok(200)["dead_letters"], json!([]));
}

#[test]
fn a_group_can_be_moved_paused_and_resumed() {
    let (server, positions) = with_three(json!({}));
    assert_eq!(server.post("/v1/groups/g/seek", r#"{"to":"end"}"#).ok(200)["name"], "g");
    assert_eq!(pull(&server, 10)["deliveries"], json!([]));
    server.post("/v1/groups/g/seek", json!({"to":{"position":positions[1]}}).to_string()).ok(200);
    assert_eq!(server.post("/v1/groups/g/pause", "").ok(200)["paused"], true);
    let paused = server.post("/v1/groups/g/pull", "{}");
    assert!(paused.status == 200 && paused.json()["deliveries"] == json!([]) || paused.status == 409);
    assert_eq!(server.post("/v1/groups/g/resume", "{}").ok(200)["paused"], false);
    let got: Vec<Value> = pull(&server, 10)["deliveries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["event"]["position"].clone())
        .collect();
    assert_eq!(got, [json!(positions[1]), json!(positions[2])]);
}

#[test]
fn a_long_poll_wakes_when_an_event_is_recorded() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    let mut client = server.client();
    let body = r#"{"max":10,"wait":"60s"}"#;
    client.head("POST", "/v1/groups/g/pull", &["content-type: application/json"], Some(body.len()));
    client.write(body.as_bytes());
    server.publish("a.other", "{}");
    let position = server.publish("a.b", "{}");
    let reply = client.reply().ok(200);
    assert_eq!(reply["deliveries"][0]["event"]["position"], position);
}

#[test]
fn a_client_that_left_while_it_waited_keeps_nothing_from_others() {
    let server = Server::start();
    // A server that has not yet heard of the close may still answer it; the deadline then brings the event back.
    let group = r#"{"pattern":"a.b","ack_deadline":"1s","backoff":{"base":0,"max":0}}"#;
    server.put("/v1/groups/g", group).ok(201);
    for _ in 0..20 {
        let mut gone = server.client();
        let body = r#"{"max":10,"wait":"60s"}"#;
        gone.head("POST", "/v1/groups/g/pull", &["content-type: application/json"], Some(body.len()));
        gone.write(body.as_bytes());
        drop(gone);
    }
    let position = server.publish("a.b", "{}");
    let pulled = server.post("/v1/groups/g/pull", r#"{"max":10,"wait":"20s"}"#).ok(200);
    assert_eq!(pulled["deliveries"][0]["event"]["position"], position);
}

#[test]
fn every_verb_refuses_a_wrong_body_with_its_place_and_an_unknown_group() {
    let (server, _) = with_three(json!({}));
    let table = [
        ("pull", r#"{"max":0}"#, "/max"),
        ("pull", r#"{"max":1001}"#, "/max"),
        ("pull", r#"{"wait":"61s"}"#, "/wait"),
        ("pull", r#"{"wait":"soon"}"#, "/wait"),
        ("pull", r#"{"many":1}"#, "/many"),
        ("pull", r#"[]"#, ""),
        ("ack", r#"{}"#, "/tokens"),
        ("ack", r#"{"tokens":[1]}"#, "/tokens/0"),
        ("ack", r#"{"tokens":[],"sync":1}"#, "/sync"),
        ("nack", r#"{"tokens":[],"delay":-1}"#, "/delay"),
        ("nack", r#"{"tokens":[],"error":7}"#, "/error"),
        ("extend", r#"{"tokens":[]}"#, "/by"),
        ("reject", r#"{"tokens":"t"}"#, "/tokens"),
        ("seek", r#"{}"#, "/to"),
        ("seek", r#"{"to":{"position":-3}}"#, "/to"),
        ("pause", r#"{"x":1}"#, "/x"),
        ("dead-letters/redrive", r#"{}"#, ""),
        ("dead-letters/redrive", r#"{"all":false}"#, "/all"),
        ("dead-letters/redrive", r#"{"positions":[-1]}"#, "/positions/0"),
        ("dead-letters/redrive", r#"{"all":true,"positions":[]}"#, ""),
    ];
    for (verb, body, pointer) in table {
        let problem = server.post(&format!("/v1/groups/g/{verb}"), body).refused(422, "group.invalid");
        assert_eq!(problem["pointer"], pointer, "{verb} {body}");
    }
    for (verb, body) in [
        ("pull", "{}"),
        ("ack", r#"{"tokens":["t"]}"#),
        ("nack", r#"{"tokens":["t"]}"#),
        ("extend", r#"{"tokens":["t"],"by":1}"#),
        ("reject", r#"{"tokens":["t"]}"#),
        ("seek", r#"{"to":"end"}"#),
        ("pause", ""),
        ("resume", ""),
        ("dead-letters/redrive", r#"{"all":true}"#),
    ] {
        server.post(&format!("/v1/groups/nobody/{verb}"), body).refused(404, "group.not_found");
    }
    server.get("/v1/groups/nobody/dead-letters").refused(404, "group.not_found");
    let stale = server.post("/v1/groups/g/ack", r#"{"tokens":["nonsense"]}"#).ok(200);
    assert_eq!(stale, json!({"done": 0, "stale": ["nonsense"]}));
}
