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
    asked(&server, LOCAL, "DELETE", &format!("/v1/tokens/{id}"), "").ok(200);
    ends(both, "auth.required");
    let made = asked(&server, LOCAL, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let both = open(made["owner_token"].as_str().unwrap());
    asked(&server, LOCAL, "POST", "/v1/tenants/acme/suspend", "").ok(200);
    ends(both, "tenant.suspended");
}
