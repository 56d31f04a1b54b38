//! The end of a server: what is in progress finishes, what waits is told.

use std::net::TcpStream;

use serde_json::json;

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
    let _ = std::io::Read::read_to_string(&mut waiting.reader, &mut rest);
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
