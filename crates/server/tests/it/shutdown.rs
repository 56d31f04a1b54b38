//! The end of a server: what is in progress finishes, what waits is told.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use server::Patience;

use crate::client::Pieces;
use crate::harness::Server;

#[test]
fn streams_are_told_long_polls_end_and_the_port_is_free() {
    let mut server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    let mut client = server.client();
    client.head("GET", "/v1/events/stream", &[], Some(0));
    let mut stream = Pieces::of(client, "\n\n");
    stream.next().unwrap();
    let mut waiting = server.client();
    let body = r#"{"wait":"60s"}"#;
    // The first answer shows that this connection is being served.
    waiting.send("GET", "/livez", &[], "").ok(200);
    waiting.head("POST", "/v1/groups/g/pull", &["content-type: application/json"], Some(body.len()));
    waiting.write(body.as_bytes());
    let mut idle = server.client();
    idle.send("GET", "/livez", &[], "").ok(200);
    server.stop();
    let farewell = stream.next().unwrap();
    assert!(farewell.contains("event: server.shutdown\ndata: {\"reconnect_after_ms\":1000}"), "{farewell}");
    assert_eq!(stream.next(), None);
    server.join();
    assert!(TcpStream::connect(server.address).is_err());
    drop(idle);
    // Whether its request was seen before the end or not, it was given no event.
    let mut rest = String::new();
    let _ = waiting.reader.read_to_string(&mut rest);
    assert!(rest.is_empty() || rest.ends_with(&json!({"deliveries": []}).to_string()), "{rest}");
}

#[test]
fn an_ndjson_request_in_progress_is_answered_to_its_last_line() {
    let mut server = Server::start();
    let mut client = server.client();
    client.head("POST", "/v1/events", &["content-type: application/x-ndjson"], None);
    let mut answers = Pieces::of(client, "\n");
    answers.client.chunk(b"{\"topic\":\"a.1\"}\n");
    assert!(answers.next().unwrap().contains("position"));
    server.stop();
    assert_eq!(answers.next(), None, "the answer ends although the request does not");
    server.join();
}

#[test]
fn who_is_inside_a_head_is_not_waited_for() {
    let grace = Duration::from_secs(60);
    let patience = || Patience { grace, ..Patience::default() };
    let publish = "POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-ty";
    for begun in ["G", "GET /livez HTTP/1.1\r\nho", "POST /v1/ev", publish, "PUT /v1/groups/g HTTP/1.1\r\n"] {
        for served in [false, true] {
            let mut server = Server::start_with(patience(), None);
            let mut client = server.client();
            if served {
                client.send("GET", "/livez", &[], "").ok(200);
            }
            client.write(begun.as_bytes());
            // It was there before the server stops: this answer comes after it was read or can be.
            server.get("/livez").ok(200);
            let stopped = Instant::now();
            server.stop();
            server.join();
            assert!(stopped.elapsed() < grace / 2, "{begun:?}, served before: {served}");
            let mut rest = String::new();
            let _ = client.reader.read_to_string(&mut rest);
            assert_eq!(rest, "", "it asked for nothing yet");
        }
    }
}
