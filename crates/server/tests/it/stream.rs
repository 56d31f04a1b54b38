//! Server-sent events: from here nothing is missed.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;
use server::Patience;

use crate::client::Pieces;
use crate::harness::Server;

fn open(server: &Server, query: &str, headers: &[&str]) -> Pieces {
    let mut client = server.client();
    client.head("GET", &format!("/v1/events/stream{query}"), headers, Some(0));
    Pieces::of(client, "\n\n")
}

/// A frame's fields: id, event, data.
fn frame(text: &str) -> (Option<u64>, String, Value) {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let id = field("id").map(|id| id.parse().unwrap());
    let data = serde_json::from_str(field("data").unwrap()).unwrap();
    (id, field("event").unwrap().to_owned(), data)
}

fn ready(stream: &mut Pieces) -> u64 {
    let (id, event, data) = frame(&stream.next().unwrap());
    assert_eq!((id, event.as_str()), (None, "ready"));
    data["position"].as_u64().unwrap()
}

#[test]
fn after_ready_every_event_comes_with_its_position() {
    let server = Server::start();
    let before = server.publish("a.before", "{}");
    let mut stream = open(&server, "", &[]);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert!(ready(&mut stream) >= before);
    let position = server.publish("a.after", r#"{"n": 1.50}"#);
    let text = stream.next().unwrap();
    let (id, event, data) = frame(&text);
    assert_eq!((id, event.as_str()), (Some(position), "event"));
    assert_eq!((&data["topic"], &data["position"]), (&"a.after".into(), &position.into()));
    assert!(text.contains("1.50"), "{text}");
}

#[test]
fn a_reader_ahead_of_the_ledger_goes_on_at_its_end_and_is_told_where_that_is() {
    let server = Server::start();
    let head = server.publish("a.b", "{}");
    for (query, header) in [("?after=999999", None), ("", Some("last-event-id: 18446744073709551615"))] {
        let mut stream = open(&server, query, header.as_slice());
        let at = ready(&mut stream);
        assert!((head..999_999).contains(&at), "{at}");
        let position = server.publish("a.b", "{}");
        assert_eq!(frame(&stream.next().unwrap()).0, Some(position));
    }
}

#[test]
fn a_stream_of_a_tenant_that_is_not_there_yet_begins_with_its_first_event() {
    let server = Server::start();
    let other = "everwhen-tenant: other";
    let mut stream = open(&server, "", &[other]);
    assert_eq!(ready(&mut stream), 0);
    assert!(!server.engine.has_tenant("other"), "a reader makes nothing");
    let headers = ["content-type: application/json", other];
    let position =
        server.send("POST", "/v1/events", &headers, r#"{"topic":"a.b"}"#).ok(201)["position"].as_u64();
    assert_eq!(frame(&stream.next().unwrap()).0, position);
}

#[test]
fn a_reader_that_comes_back_with_its_last_id_misses_nothing() {
    let server = Server::start();
    let (mut seen, mut last) = (Vec::new(), None::<u64>);
    let mut published = Vec::new();
    let first = server.publish("a.first", "{}");
    for round in 0..5 {
        for i in 0..10 {
            published.push(server.publish("a.b", &format!("{}", round * 10 + i)));
        }
        // `Last-Event-ID` wins over `after`, which would skip everything.
        let header = format!("last-event-id: {}", last.unwrap_or(first));
        let mut stream = open(&server, "?topic=a.b&after=999999", &[&header]);
        assert_eq!(ready(&mut stream), last.unwrap_or(first));
        // Half of what is there, then the connection breaks.
        for _ in 0..7 {
            let (id, _, data) = frame(&stream.next().unwrap());
            seen.push(data["payload"].as_u64().unwrap());
            last = id;
        }
    }
    let mut stream = open(&server, &format!("?topic=a.b&after={}", last.unwrap()), &[]);
    ready(&mut stream);
    while seen.len() < 50 {
        seen.push(frame(&stream.next().unwrap()).2["payload"].as_u64().unwrap());
    }
    assert_eq!(seen, (0..50).collect::<Vec<u64>>());
    assert_eq!(published.len(), 50);
}

#[test]
fn topic_space_and_filter_choose_what_is_streamed() {
    let server = Server::start();
    let mut stream = open(&server, "?topic=a.*&space=red&filter=event.payload.n%20%3E%201", &[]);
    ready(&mut stream);
    for body in [
        r#"{"topic":"b.x","space":"red","payload":{"n":2}}"#,
        r#"{"topic":"a.x","space":"blue","payload":{"n":2}}"#,
        r#"{"topic":"a.x","space":"red","payload":{"n":1}}"#,
        r#"{"topic":"a.x","space":"red","payload":{"n":2},"id":"wanted"}"#,
    ] {
        server.post("/v1/events", body).ok(201);
    }
    assert_eq!(frame(&stream.next().unwrap()).2["id"], "wanted");
}

#[test]
fn a_silent_stream_shows_signs_of_life() {
    let patience = Patience { ping: Duration::from_millis(20), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut stream = open(&server, "", &[]);
    ready(&mut stream);
    assert_eq!(stream.next().unwrap(), ": ping");
    assert_eq!(stream.next().unwrap(), ": ping");
    let position = server.publish("a.b", "{}");
    let event = std::iter::from_fn(|| stream.next()).find(|piece| piece != ": ping").unwrap();
    assert_eq!(frame(&event).0, Some(position));
}

#[test]
fn a_reader_that_takes_nothing_is_told_and_closed() {
    let patience = Patience { reader: Duration::from_millis(2), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut stream = open(&server, "", &[]);
    ready(&mut stream);
    // 64 MB are more than the kernel's socket buffers (up to 36 MB here) and ours together.
    let payload = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    for _ in 0..64 {
        server.publish("a.b", &payload);
    }
    let mut last = String::new();
    let mut next = None;
    while let Some(piece) = stream.next() {
        assert_ne!(piece, ": ping", "the stream went on as if all had been read");
        if piece.starts_with("id: ") {
            let id = frame(&piece).0;
            assert!(next.is_none_or(|next| id >= Some(next)), "in order");
            next = id;
        }
        last = piece;
    }
    let (_, event, data) = frame(&last);
    assert_eq!((event.as_str(), &data["code"]), ("problem", &"stream.slow".into()));
}

#[test]
fn a_stream_that_cannot_be_is_refused_before_it_begins() {
    let server = Server::start();
    for (query, status, code) in [
        ("?after=-1", 400, "request.invalid"),
        ("?since=x", 400, "request.invalid"),
        ("?topic=a..b", 422, "pattern.invalid"),
    ] {
        server.get(&format!("/v1/events/stream{query}")).refused(status, code);
    }
    let reply = server.send("GET", "/v1/events/stream", &["last-event-id: abc"], "");
    assert_eq!(reply.refused(400, "request.invalid")["parameter"], "last-event-id");
}

#[test]
fn a_slow_reader_that_does_not_even_read_that_is_cut_off() {
    let patience = Patience {
        reader: Duration::from_millis(2),
        farewell: Duration::from_millis(50),
        ..Patience::default()
    };
    let server = Server::start_with(patience, None);
    let mut stream = open(&server, "", &[]);
    ready(&mut stream);
    let payload = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    // More than the kernel's socket buffers and ours together; nothing of it is read.
    for _ in 0..64 {
        server.publish("a.b", &payload);
    }
    // Writing fails once the other side has let go of the connection.
    let begun = Instant::now();
    while stream.client.reader.get_mut().write_all(b" ").is_ok() {
        server.get("/livez").ok(200);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the connection is held for a reader that is gone"
        );
    }
}

#[test]
fn followers_hear_what_happens_to_runs_and_the_ledger_does_not_hold_it() {
    let server = Server::start();
    server.apply(
        "a.yaml",
        "automation: work\ntriggers: [{event: job.*}]\nactions: [{publish: {topic: done.now}}]\n",
    );
    let mut stream = open(&server, "?topic=automation.%23", &[]);
    ready(&mut stream);
    server.publish("job.a", "{}");
    let heard: Vec<Value> = (0..4).map(|_| frame(&stream.next().unwrap()).2).collect();
    let topics: Vec<&str> = heard.iter().filter_map(|event| event["topic"].as_str()).collect();
    let step = ["automation.step.started", "automation.step.completed"];
    assert_eq!(topics, ["automation.started", step[0], step[1], "automation.completed"]);
    assert_eq!(heard[0]["payload"]["triggeredBy"], "event:job.a");
    assert!(heard.iter().all(|event| event["payload"]["automationName"] == "work"), "{heard:?}");
    let listed = server.get("/v1/events?topic=automation.%23").ok(200);
    assert_eq!(listed["events"], serde_json::json!([]));
}
