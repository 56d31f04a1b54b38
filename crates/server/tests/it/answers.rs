//! Answers that are bounded by their bytes: what does not fit comes with the next one, once and at once.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::harness::Server;

/// What an ordinary client of gRPC takes.
const GRPC_MAX: usize = 4 << 20;
/// What one answer of HTTP holds, and a little for what stands around the events.
const HTTP_MAX: usize = (8 << 20) + (64 << 10);
/// Of a large payload, in bytes.
const LARGE: usize = 900_000;

/// A JSON text of about this many bytes.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes))
}

/// A list of about this many bytes, which takes more than five times as many in a `google.protobuf.Value`.
fn numbers(bytes: usize) -> String {
    format!("[{}0]", "0,".repeat(bytes / 2))
}

/// Field numbers and values of a message; of what is a number, no value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| *byte < 0x80).unwrap() + 1;
        let (front, rest) = bytes.split_at(length);
        *bytes = rest;
        front.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = varint(&mut bytes);
        let (value, rest) = bytes.split_at(if key & 7 == 2 { number as usize } else { 0 });
        bytes = rest;
        fields.push((key >> 3, value));
    }
    fields
}

/// The whole of one field of a message.
fn field(message: &[u8], wanted: u64) -> &[u8] {
    fields(message).into_iter().find(|(number, _)| *number == wanted).unwrap().1
}

/// Positions of one `Pull` of up to a thousand, and the bytes of its message.
fn pulled(server: &Server) -> (Vec<u64>, usize) {
    let asked = [10, 1, b'g', 16, 0xe8, 0x07];
    let frame = [&[0][..], &(asked.len() as u32).to_be_bytes(), &asked].concat();
    let path = "/everwhen.v1.EverwhenService/Pull";
    let reply = server.send("POST", path, &["content-type: application/grpc"], frame);
    let message = &reply.body[5..];
    let position = |(_, delivery): (u64, &[u8])| {
        let attempt = delivery.windows(2).nth(field(delivery, 1).len() + 2);
        assert_eq!(attempt, Some(&[16, 1][..]), "a first attempt");
        let event: Value = serde_json::from_slice(field(field(delivery, 4), 9)).unwrap();
        event["position"].as_u64().unwrap()
    };
    (fields(message).into_iter().map(position).collect(), message.len())
}

#[test]
fn a_pull_over_grpc_fits_into_what_a_client_takes_and_the_rest_comes_with_the_next() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b","max_inflight":1000}"#).ok(201);
    let publish = |n| server.publish("a.b", &if n % 3 == 0 { numbers(300_000) } else { text(300_000) });
    let published: Vec<u64> = (0..24).map(publish).collect();
    let (mut all, mut pulls) = (Vec::new(), 0);
    while all.len() < published.len() {
        let (positions, bytes) = pulled(&server);
        assert!(bytes <= GRPC_MAX, "{bytes} bytes in one message");
        assert!(!positions.is_empty(), "leased and never sent: {all:?}");
        all.extend(positions);
        pulls += 1;
    }
    assert_eq!(all, published, "each once, in order");
    assert!(pulls < 16, "{pulls} pulls for 24 events");
    // One that is too large by itself goes out alone.
    let published = [numbers(LARGE), text(10)].map(|payload| server.publish("a.b", &payload));
    let (positions, bytes) = pulled(&server);
    assert!(positions == published[..1] && bytes > GRPC_MAX, "{positions:?}, {bytes} bytes");
    assert_eq!(pulled(&server).0, published[1..]);
    assert_eq!(server.get("/v1/groups/g").ok(200)["inflight"], 26);
}

#[test]
fn a_pull_over_http_holds_eight_mebibytes_and_the_rest_comes_with_the_next() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b","max_inflight":1000}"#).ok(201);
    let published: Vec<u64> = (0..12).map(|_| server.publish("a.b", &text(LARGE))).collect();
    let mut all = Vec::new();
    while all.len() < published.len() {
        let reply = server.post("/v1/groups/g/pull", r#"{"max":1000}"#);
        assert!(reply.body.len() <= HTTP_MAX, "{} bytes", reply.body.len());
        let deliveries = reply.ok(200)["deliveries"].take();
        let deliveries = deliveries.as_array().unwrap();
        assert!(!deliveries.is_empty() && deliveries.iter().all(|one| one["attempt"] == 1));
        all.extend(deliveries.iter().map(|one| one["event"]["position"].as_u64().unwrap()));
    }
    assert_eq!(all, published);
}

/// A server with twenty large events, every second of them even; their positions.
fn with_twenty() -> (Server, Vec<u64>) {
    let server = Server::start();
    let payload = |n: u64| format!(r#"{{"even":{},"text":{}}}"#, n.is_multiple_of(2), text(LARGE));
    let positions = (0..20).map(|n| server.publish("a.b", &payload(n))).collect();
    (server, positions)
}

/// What every event on every page says under this name; `get` answers a cursor with a page and what comes next.
fn followed(name: &str, get: impl Fn(&str) -> (Value, Option<String>)) -> Vec<u64> {
    let (mut all, mut next) = (Vec::new(), Some(String::new()));
    while let Some(cursor) = next {
        let (events, more) = get(&cursor);
        let events = events.as_array().unwrap();
        assert!(!events.is_empty(), "a page with nothing after {all:?}");
        all.extend(events.iter().map(|event| event[name].as_u64().unwrap()));
        next = more;
    }
    all
}

fn bounded(reply: &Reply) {
    assert!(reply.body.len() <= HTTP_MAX, "{} bytes on one page", reply.body.len());
}

#[test]
fn a_page_of_events_holds_eight_mebibytes_and_next_leads_to_every_event_once() {
    let (server, positions) = with_twenty();
    let even: Vec<u64> = positions.iter().copied().step_by(2).collect();
    let filter = "&filter=event.payload.even";
    for (more, mut want) in [("", positions.clone()), ("&topic=a.*", positions), (filter, even)] {
        for order in ["asc", "desc"] {
            let path = format!("/v1/events?limit=1000&order={order}{more}&cursor=");
            let all = followed("position", |cursor| {
                let reply = server.get(&format!("{path}{cursor}"));
                bounded(&reply);
                let mut page = reply.ok(200);
                (page["events"].take(), page["next"].as_str().map(str::to_owned))
            });
            assert_eq!(all, want, "{path}");
            want.reverse();
        }
    }
}

#[test]
fn a_batch_of_cloudevents_and_a_search_of_an_agent_are_such_pages_too() {
    let (server, positions) = with_twenty();
    let all = followed("ewposition", |cursor| {
        let path = format!("/v1/events?limit=1000&cursor={cursor}");
        let reply = server.send("GET", &path, &["accept: application/cloudevents-batch+json"], "");
        bounded(&reply);
        (reply.ok(200), reply.headers.get("everwhen-next").cloned())
    });
    assert_eq!(all, positions);
    let all = followed("position", |cursor| {
        let arguments = json!({"limit": 1_000, "cursor": cursor});
        let params = json!({"name": "search_events", "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let accept = "accept: application/json, text/event-stream";
        let headers = ["content-type: application/json", accept];
        let reply = server.send("POST", "/mcp", &headers, message.to_string());
        // It stands there twice: as a text, and as what the text says.
        assert!(reply.body.len() <= 2 * HTTP_MAX, "{} bytes", reply.body.len());
        let mut page = reply.ok(200)["result"]["structuredContent"].take();
        (page["events"].take(), page["next"].as_str().map(str::to_owned))
    });
    assert_eq!(all, positions);
}
