//! Plain publishes go a short way past hyper: the same answers, on connections that go on either way at any time.

use std::io::{BufRead, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use serde_json::{Value, json};
use server::Patience;

use crate::client::{Client, Reply};
use crate::harness::Server;

const JSON: &str = "content-type: application/json";
/// A header that the short way does not know, and that changes nothing else.
const LONG: &str = "x-request-id: one-of-mine";

fn request(headers: &[&str], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    format!("POST /v1/events HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into()
}

/// What does not depend on when it was asked.
fn lasting(reply: &Reply) -> (u16, Vec<String>, Value) {
    let mut names: Vec<String> = reply.headers.keys().cloned().collect();
    names.sort();
    (reply.status, names, without_moment(reply.json()))
}

fn without_moment(value: Value) -> Value {
    let dated = ["id", "position", "recorded_at", "request_id"];
    match value {
        Value::Array(items) => items.into_iter().map(without_moment).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| match dated.contains(&name.as_str()) {
                true => (name, json!("some")),
                false => (name, without_moment(value)),
            })
            .collect(),
        other => other,
    }
}

#[test]
fn both_ways_give_the_same_answers() {
    let server = Server::start();
    let deep = format!(r#"{{"topic":"a.b","payload":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let long = format!(r#"{{"topic":"{}"}}"#, "a".repeat(600));
    let bodies = [
        r#"{"topic":"a.b"}"#,
        r#"{"topic":"a.b","payload":{"n":1e3},"subject":{"kind":"k","id":"1"},"band":"red","ttl":60}"#,
        r#" [{"topic":"a.b"},{"topic":"a.c"}] "#,
        r#"{"topic":"a..b"}"#,
        r#"{"topic":"engine.started"}"#,
        r#"{"topic":"a.b","payload":{"x":1,"x":2}}"#,
        r#"{"topic":"a.b","colour":"red"}"#,
        r#"{"topic":"a.b","cause":999999}"#,
        r#"{"topic":"a.b"} x"#,
        "{",
        "",
        &deep,
        &long,
    ];
    for body in bodies {
        let short = server.client().send("POST", "/v1/events", &[JSON], body);
        let long = server.client().send("POST", "/v1/events", &[JSON, LONG], body);
        assert_eq!(lasting(&short), lasting(&long), "{body}");
    }
    // Keys: the first, its repeat, another event under it.
    for (short, long) in [("a", "b"), ("a", "b")] {
        let keyed = |key: &str| format!(r#"{{"topic":"k.k","key":"{key}"}}"#);
        let short = server.client().send("POST", "/v1/events", &[JSON], keyed(short));
        let long = server.client().send("POST", "/v1/events", &[JSON, LONG], keyed(long));
        assert_eq!(lasting(&short), lasting(&long));
    }
    let taken = r#"{"topic":"k.other","key":"a"}"#;
    let short = server.client().send("POST", "/v1/events", &[JSON], taken);
    let long = server.client().send("POST", "/v1/events", &[JSON, LONG], taken);
    assert_eq!(short.refused(409, "event.key_conflict")["first_hash"], long.json()["first_hash"]);
    assert_eq!(lasting(&short).1, lasting(&long).1);
}

/// hyper writes the date last.
#[test]
fn a_plain_publish_goes_the_short_way() {
    let server = Server::start();
    for (headers, short) in [(&[JSON][..], true), (&[JSON, "accept: */*"], true), (&[JSON, LONG], false)] {
        let mut client = server.client();
        client.write(&request(headers, r#"{"topic":"a.b"}"#));
        let mut lines = client.reader.lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 201 Created");
        assert_eq!(lines.next().unwrap().starts_with("date: "), short, "{headers:?}");
    }
}

#[test]
fn a_connection_changes_its_way_and_answers_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let plain = request(&[JSON], r#"{"topic":"a.b","payload":1}"#);
    let other = request(&[JSON, LONG], r#"{"topic":"a.b","payload":2}"#);
    let get = b"GET /v1/events?topic=a.b HTTP/1.1\r\nhost: test\r\n\r\n";
    client.write(&[&plain[..], &plain, &other, &plain, get].concat());
    let positions: Vec<u64> = (0..4).map(|_| client.reply().ok(201)["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let found = client.reply().ok(200);
    let payloads: Vec<&Value> =
        found["events"].as_array().unwrap().iter().map(|event| &event["payload"]).collect();
    assert_eq!(payloads, [1, 1, 2, 1]);
}

#[test]
fn a_request_may_come_in_pieces_anywhere() {
    let server = Server::start();
    let whole = request(&[JSON], r#"{"topic":"a.b"}"#);
    let mut client = server.client();
    // Each answer shows that the piece before it was taken as it was.
    for cut in [1, 20, 26, 40, whole.len() - 15, whole.len() - 1] {
        client.write(&whole[..cut]);
        server.client().send("GET", "/livez", &[], "").ok(200);
        client.write(&whole[cut..]);
        client.reply().ok(201);
    }
}

#[test]
fn who_has_said_all_is_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.write(&request(&[JSON], r#"{"topic":"a.b"}"#));
    client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
    client.reply().ok(201);
    assert_eq!(client.reader.read(&mut [0]).unwrap(), 0, "and then it is over");
}

#[test]
fn who_stops_in_a_head_or_a_body_is_not_waited_for() {
    let patience =
        Patience { begun: Duration::from_millis(50), body: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let whole = request(&[JSON], r#"{"topic":"a.b"}"#);
    let mut head = server.client();
    head.write(&whole[..40]);
    assert_eq!(head.reader.read(&mut [0]).unwrap(), 0, "half a head is closed");
    let mut body = server.client();
    body.write(&whole[..whole.len() - 2]);
    body.reply().refused(408, "body.timeout");
}

/// The limits of this test are longer than the client waits: whoever is told late fails it.
#[test]
fn who_may_not_is_told_before_the_body_comes() {
    let long = Duration::from_secs(600);
    let patience = Patience { begun: long, body: long, ..Patience::default() };
    let server = Server::start_with(patience, Some("the-owner"));
    let headed = |headers: &[&str], length: usize| {
        let mut client = server.client();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head =
            format!("POST /v1/events HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n");
        client.write(head.as_bytes());
        client.reply()
    };
    headed(&[JSON], 20).refused(401, "auth.required");
    headed(&[JSON, "authorization: Bearer ew_nobody"], 20).refused(401, "auth.required");
    headed(&[JSON, "authorization: Bearer the-owner"], 9_999_999).refused(413, "body.too_large");
}

#[test]
fn a_body_has_one_time_limit_on_both_ways_together() {
    let patience =
        Patience { begun: Duration::from_secs(20), body: Duration::from_secs(1), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let whole = request(&[JSON], r#"{"topic":"a.b"}"#);
    let mut client = server.client();
    let begun = std::time::Instant::now();
    client.write(&whole[..whole.len() - 2]);
    let late = client.reply().refused(408, "body.timeout");
    assert_eq!(late["detail"], "the body did not arrive within 1 s");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_token_that_is_revoked_has_no_effect_on_the_next_request() {
    let server = Server::start_with(Patience::default(), Some("the-owner"));
    let owner = "authorization: Bearer the-owner";
    let made = server.client().send("POST", "/v1/tokens", &[JSON, owner], r#"{"role":"publisher"}"#).ok(201);
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let shown = format!("authorization: Bearer {token}");
    let mut client = server.client();
    let publish =
        |client: &mut Client| client.send("POST", "/v1/events", &[JSON, &shown], r#"{"topic":"a.b"}"#);
    publish(&mut client).ok(201);
    publish(&mut client).ok(201);
    let gone = server.client().send("DELETE", &format!("/v1/tokens/{id}"), &[owner], "");
    gone.gone();
    publish(&mut client).refused(401, "auth.required");
    server.client().send("POST", "/v1/events", &[JSON], r#"{"topic":"a.b"}"#).refused(401, "auth.required");
    let viewer = server.client().send("POST", "/v1/tokens", &[JSON, owner], r#"{"role":"viewer"}"#).ok(201);
    let shown = format!("authorization: Bearer {}", viewer["token"].as_str().unwrap());
    let refused = server.client().send("POST", "/v1/events", &[JSON, &shown], r#"{"topic":"a.b"}"#);
    refused.refused(403, "auth.denied");
}

#[test]
fn a_connection_that_waits_for_the_next_publish_ends_with_the_server() {
    let mut server = Server::start();
    let mut client = server.client();
    client.send("POST", "/v1/events", &[JSON], r#"{"topic":"a.b"}"#).ok(201);
    server.stop();
    server.join();
    assert_eq!(client.reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn who_says_it_byte_by_byte_has_no_more_time_than_others() {
    let patience = Patience { begun: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut slow = server.client();
    slow.write(b"POST /v1/events HTTP/1.1\r\nhost: a\r\naccept: ");
    // Each round is an answer of the server: some milliseconds at most, and no wait of ours.
    let closed = (0..5_000).any(|_| {
        server.client().send("GET", "/livez", &[], "").ok(200);
        slow.reader.get_mut().write_all(b"x").is_err()
    });
    assert!(closed);
}

#[test]
fn who_does_not_read_does_not_hold_up_the_end() {
    let patience = Patience { grace: Duration::from_secs(60), ..Patience::default() };
    let mut server = Server::start_with(patience, None);
    let mut deaf = server.client();
    let many = request(&[JSON], r#"{"topic":"a.b"}"#).repeat(1_000);
    deaf.reader.get_ref().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Until nothing more is taken: the server waits for its answers to be read.
    while deaf.reader.get_mut().write_all(&many).is_ok() {}
    let begun = std::time::Instant::now();
    server.stop();
    server.join();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn before_anything_is_recorded_no_position_is_said() {
    let server = Server::start_with_settings(|settings| {
        settings.attention.push(engine::settings::AttentionRule {
            topic: model::topic::Pattern::parse("noise.#").unwrap(),
            filter: None,
            rate: None,
            verdict: engine::settings::Verdict::Drop,
        });
    });
    for headers in [&[JSON][..], &[JSON, LONG]] {
        let dropped = server.client().send("POST", "/v1/events", headers, r#"{"topic":"noise.a"}"#);
        assert_eq!((dropped.status, dropped.headers.get("everwhen-position")), (202, None));
    }
}
