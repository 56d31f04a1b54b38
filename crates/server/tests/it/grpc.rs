//! gRPC as its bytes: refusals by number, tokens of one space, and sessions that end with their token.

use std::time::Duration;

use serde_json::json;
use server::Patience;

use crate::client::{Client, Reply};
use crate::harness::Server;
use crate::rights::{LOCAL, asked, token};
use crate::socket::{Frame, Socket};

const SERVICE: &str = "/everwhen.v1.EverwhenService/";
const KIND: &str = "content-type: application/grpc";

fn text(number: u8, text: &str) -> Vec<u8> {
    [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat()
}

fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn inside(number: u8, message: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, message.len() as u8], message].concat()
}

/// A field whose number is above 15 has two bytes before its value.
fn far(number: u32, rest: &[u8]) -> Vec<u8> {
    let kind = if rest.len() == 1 { 0 } else { 2 };
    let key = number << 3 | kind;
    [&[(key & 0x7f) as u8 | 0x80, (key >> 7) as u8], rest].concat()
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// How a refusal stands in the headers; what went well says so in trailers, which HTTP/1.1 leaves out.
fn call(server: &Server, path: &str, bearer: &str, message: &[u8]) -> Reply {
    let bearer = format!("authorization: Bearer {bearer}");
    server.send("POST", path, &[KIND, &bearer], framed(message))
}

fn status(reply: &Reply) -> &str {
    reply.headers.get("grpc-status").map_or("0", String::as_str)
}

#[test]
fn what_is_refused_has_the_number_that_grpc_gives_it() {
    let server = Server::start_with(Patience::default(), Some(LOCAL));
    let health = |name: &str| call(&server, "/grpc.health.v1.Health/Check", LOCAL, &text(1, name));
    for known in ["", "everwhen.v1.EverwhenService", "grpc.health.v1.Health"] {
        let reply = health(known);
        assert_eq!((status(&reply), reply.body.as_slice()), ("0", &framed(&[8, 1])[..]), "{known}");
    }
    assert_eq!(status(&health("nope")), "5", "NOT_FOUND");
    asked(&server, LOCAL, "PUT", "/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    let pull = |wait: f64| {
        call(&server, &format!("{SERVICE}Pull"), LOCAL, &[text(1, "g"), double(3, wait)].concat())
    };
    let reply = pull(61.0);
    assert_eq!((status(&reply), &*reply.headers["grpc-message"]), ("3", "\"wait_seconds\" is at most 60"));
    assert_eq!(status(&pull(0.0)), "0");
    let long = vec![b'x'; (4 << 20) + 1];
    let reply = call(&server, &format!("{SERVICE}Publish"), LOCAL, &long);
    assert_eq!(status(&reply), "8", "RESOURCE_EXHAUSTED: {:?}", reply.headers);
    assert_eq!(status(&call(&server, &format!("{SERVICE}Publish"), "nonsense", &text(1, "a"))), "16");
}

#[test]
fn a_token_of_one_space_says_and_takes_what_is_there() {
    let server = Server::start_with(Patience::default(), Some(LOCAL));
    let (narrow, _) = token(&server, "main", json!({"role": "editor", "spaces": ["a"]}));
    asked(&server, LOCAL, "PUT", "/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    asked(&server, LOCAL, "PUT", "/v1/groups/of-b", r##"{"pattern":"#","space":"b"}"##).ok(201);
    let publish = |bearer: &str, space: &str, id: &str| {
        let message = [text(1, "t.x"), text(4, space), text(5, id)].concat();
        call(&server, &format!("{SERVICE}Publish"), bearer, &message)
    };
    assert_eq!(status(&publish(&narrow, "a", "seen-1")), "0");
    assert_eq!(status(&publish(&narrow, "b", "hidden-1")), "7", "PERMISSION_DENIED");
    assert_eq!(status(&publish(LOCAL, "b", "hidden-2")), "0");
    let pull = |group: &str| call(&server, &format!("{SERVICE}Pull"), &narrow, &text(1, group));
    let told = pull("g").text();
    assert!(told.contains("seen-1") && !told.contains("hidden"), "{told}");
    let (theirs, absent) = (pull("of-b"), pull("of-z"));
    assert_eq!((status(&theirs), status(&absent)), ("5", "5"));
    let words = |reply: &Reply, name: &str| reply.headers["grpc-message"].replace(name, "X");
    assert_eq!(words(&theirs, "of-b"), words(&absent, "of-z"));
    // A session of the same token hears the same.
    let mut session = session(&server, &narrow);
    let subscribe = [text(1, "s"), vec![2 << 3, 0xa6, 0x04], text(3, "t.#")].concat();
    let request = [text(1, "m"), text(2, "")].concat();
    let request = [&request[..request.len() - 1], &[subscribe.len() as u8][..], &subscribe].concat();
    session.chunk(&framed(&request));
    session.read_chunk().unwrap();
    publish(LOCAL, "b", "hidden-3");
    publish(LOCAL, "a", "seen-2");
    let told = String::from_utf8_lossy(&session.read_chunk().unwrap()).into_owned();
    assert!(told.contains("seen-2") && !told.contains("hidden"), "{told}");
}

/// A session that has begun and is still spoken in.
fn session(server: &Server, bearer: &str) -> Client {
    let mut client = server.client();
    let bearer = format!("authorization: Bearer {bearer}");
    client.head("POST", &format!("{SERVICE}Session"), &[KIND, &bearer], None);
    let (status, headers) = client.reply_head();
    assert!(status == 200 && !headers.contains_key("grpc-status"), "{headers:?}");
    client
}

#[test]
fn an_idle_session_ends_at_once_with_its_token_or_tenant() {
    // A sign of life would come long after the test.
    let patience = Patience { ping: Duration::from_secs(3_600), ..Patience::default() };
    let server = Server::start_with(patience, Some(LOCAL));
    let open = |bearer: &str| {
        let socket = Socket::open(&server, &[&format!("authorization: Bearer {bearer}")]);
        (session(&server, bearer), socket)
    };
    let ends = |(mut session, mut socket): (Client, Socket), code: &str| {
        assert_eq!(session.read_chunk(), None, "{code}");
        assert_eq!(socket.json()["payload"]["error"]["code"], code);
        assert_eq!(socket.next(), Frame::Close(1008, code.to_owned()));
    };
    let (viewer, id) = token(&server, "main", json!({"role": "viewer"}));
    let both = open(&viewer);
    asked(&server, LOCAL, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    ends(both, "auth.required");
    let made = asked(&server, LOCAL, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let both = open(made["owner_token"].as_str().unwrap());
    asked(&server, LOCAL, "POST", "/v1/tenants/acme/suspend", "").ok(200);
    ends(both, "tenant.suspended");
}

#[test]
fn an_event_is_published_with_all_that_a_client_may_say_of_it() {
    let server = Server::start();
    let cause = server.publish("first", "{}") as u8;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let ext = inside(1, &[text(1, "device"), inside(2, &text(3, "phone1"))].concat());
    // 2026-01-01T00:00:00.5Z
    let time =
        [vec![1 << 3, 0x80, 0xf2, 0xd6, 0xca, 0x06], vec![2 << 3, 0x80, 0xca, 0xb5, 0xee, 0x01]].concat();
    let message = [
        text(1, "t.x"),
        text(5, "whole-1"),
        inside(9, &[text(1, "item"), text(2, "7")].concat()),
        inside(10, &time),
        text(11, "amber"),
        double(12, 90.0),
        number(13, 3),
        number(14, cause),
        text(15, trace),
        far(16, &inside(0, &ext)[1..]),
        far(18, &text(0, "sync:tier=1")[1..]),
        far(19, &[7]),
    ]
    .concat();
    let reply = call(&server, &format!("{SERVICE}Publish"), "", &message);
    assert_eq!(status(&reply), "0", "{:?}", reply.headers);
    let event = server.get("/v1/events/whole-1").ok(200);
    let said = json!({
        "subject": {"kind": "item", "id": "7"}, "time": "2026-01-01T00:00:00.5Z", "band": "amber", "ttl": 90,
        "priority": 3, "cause": cause, "trace": trace, "ext": {"device": "phone1"}, "caused_by": "sync:tier=1",
        "sequence": 7,
    });
    for (name, value) in said.as_object().unwrap() {
        assert_eq!(event[name], *value, "{name} of {event}");
    }
    server.put("/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    let many = [text(1, "g"), vec![2 << 3, 0x88, 0x27]].concat();
    let reply = call(&server, &format!("{SERVICE}Pull"), "", &many);
    assert_eq!(status(&reply), "3", "5000 is too many");
    assert_eq!(reply.headers["grpc-message"], "\"max\" is a whole number from 1 to 1000, not 5000");
}

/// Asks reflection for one thing and gives the bytes of the answer.
fn reflected(server: &Server, asked: &[u8]) -> String {
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    String::from_utf8_lossy(&server.send("POST", path, &[KIND], framed(asked)).body).into_owned()
}

#[test]
fn reflection_describes_every_service_that_it_lists() {
    let server = Server::start();
    for service in
        ["everwhen.v1.EverwhenService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
    {
        assert!(reflected(&server, &text(7, "*")).contains(service), "{service} is listed");
        let told = reflected(&server, &text(4, service));
        assert!(told.contains(".proto") && !told.contains("there is nothing"), "{service}: {told}");
    }
    for symbol in ["google.protobuf.Struct", "grpc.health.v1.HealthCheckResponse.ServingStatus"] {
        assert!(!reflected(&server, &text(4, symbol)).contains("there is nothing"), "{symbol}");
    }
    assert!(reflected(&server, &text(3, "grpc/health/v1/health.proto")).contains("ServingStatus"));
    assert!(reflected(&server, &text(4, "everwhen.v1.Nothing")).contains("there is nothing of that name"));
    let listed = call(&server, "/grpc.health.v1.Health/List", "", &[]).text();
    assert!(listed.contains("everwhen.v1.EverwhenService"), "{listed}");
}
