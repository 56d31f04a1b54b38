//! What was done under an idempotency key is known after a restart.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{Place, Server};

fn post(server: &Server, path: &str, key: &str, body: &str) -> (u16, Value) {
    post_as(server, "application/json", path, key, body)
}

fn post_as(server: &Server, kind: &str, path: &str, key: &str, body: &str) -> (u16, Value) {
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&address).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {kind}\r\n\
         idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_key_holds_over_a_restart_and_what_holds_data_is_not_told_again() {
    let place = Place::new();
    place.write("shop/concepts.ew", "concept item {\n  price int\n}\n");
    let server = place.serve();
    place.run(&["apply", "."]).ok();
    let work = r#"{"automation":"work","triggers":[{"manual":true}],"actions":[{"delay":"1h"}]}"#;
    assert_eq!(post(&server, "/v1/automations", "a", work).0, 201);
    let (status, run) = post(&server, "/v1/runs", "r", r#"{"automation":"work"}"#);
    assert_eq!(status, 202);
    assert_eq!(post(&server, "/v1/entities/v1:shop:item", "e", r#"{"id":"x","fields":{"price":1}}"#).0, 201);
    server.signal("TERM");
    let server = place.serve();
    assert_eq!(post(&server, "/v1/runs", "r", r#"{"automation":"work"}"#), (202, run));
    let (status, done) =
        post(&server, "/v1/entities/v1:shop:item", "e", r#"{"id":"x","fields":{"price":1}}"#);
    assert_eq!((status, &done["code"]), (409, &"idempotency.done".into()));
    let (status, other) = post(&server, "/v1/runs", "r", r#"{"automation":"work","dry_run":true}"#);
    assert_eq!((status, &other["code"]), (422, &"idempotency.mismatch".into()));
}

#[test]
fn a_record_an_import_and_a_forget_under_a_key_are_done_once_over_a_restart() {
    let place = Place::new();
    let server = place.serve();
    let event =
        r#"{"event_type":"price.changed","entity_type":"price","entity_id":"p1","payload":{"new":9}}"#;
    let (status, first) = post(&server, "/api/events/record", "r", event);
    assert_eq!((status, &first["collapsed"]), (201, &false.into()), "{first}");
    let lines = place.run(&["export"]).ok().lines();
    let mut line = lines.into_iter().find(|line| line["topic"] == "price.changed").unwrap();
    line["topic"] = "price.raised".into();
    line.as_object_mut().unwrap().remove("key");
    let line = line.to_string();
    let import =
        |server: &Server| post_as(server, "application/x-ndjson", "/v1/import?again=true", "i", &line);
    let (status, imported) = import(&server);
    assert_eq!(status, 200, "{imported}");
    place.run(&["publish", "a.b", "{}", "--space", "x"]).ok();
    assert_eq!(post(&server, "/v1/spaces/x/forget", "f", "{}").0, 200);
    server.signal("KILL");
    let server = place.serve();
    let (status, done) = post(&server, "/v1/spaces/x/forget", "f", "{}");
    assert_eq!((status, &done["code"]), (409, &"idempotency.done".into()), "{done}");
    let (status, again) = post(&server, "/api/events/record", "r", event);
    assert_eq!((status, &again["collapsed"]), (200, &true.into()), "{again}");
    assert_eq!(again["event_id"], first["event_id"]);
    let (status, done) = import(&server);
    assert_eq!((status, &done["code"]), (409, &"idempotency.done".into()), "{done}");
    for topic in ["price.changed", "price.raised"] {
        let found = place.run(&["events", "list", "--topic", topic, "--json"]).ok().lines();
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
