//! The life of a request that changes something: it is done to its end, noted and written down, whoever is still there.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use engine::settings::{Effects, Settings};
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::harness::Server;

/// Tried again until it is so; a test that waits in vain fails.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn acts(server: &Server, named: &str) -> Vec<Value> {
    let acts = server.get("/v1/audit").ok(200)["acts"].as_array().unwrap().clone();
    acts.into_iter().filter(|act| act["act"] == named).collect()
}

/// A client whose connection is reset when it is dropped: it never reads an answer that it was given.
fn fickle(server: &Server) -> Client {
    let mut client = server.client();
    client.head("GET", "/livez", &[], Some(0));
    client
}

/// Gone, and the server has had time to notice.
fn gone(server: &Server, client: Client) {
    drop(client);
    for _ in 0..50 {
        server.get("/livez").ok(200);
    }
}

/// A server with a push whose address answers when it is told to.
struct Slow {
    server: Server,
    sink: TcpListener,
}

impl Slow {
    fn new() -> Slow {
        let effects = Effects { allow: vec!["127.0.0.1".to_owned()], ..Effects::default() };
        let server = Server::set(Settings { effects, ..Settings::default() }, None);
        let sink = TcpListener::bind("127.0.0.1:0").unwrap();
        sink.set_nonblocking(true).unwrap();
        let said =
            json!({"url": format!("http://{}/", sink.local_addr().unwrap()), "pattern": "nothing.here"});
        server.put("/v1/push/p", said.to_string()).ok(201);
        Slow { server, sink }
    }

    /// The request of the push, once it is there.
    fn asked(&self) -> TcpStream {
        until("nothing was posted", || self.sink.accept().ok()).0
    }
}

fn answer(held: &mut TcpStream) {
    held.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").unwrap();
}

fn once_more(server: &Server, path: &str, body: &str) -> Reply {
    let headers = ["content-type: application/json", "idempotency-key: k"];
    until("the first stays busy", || {
        Some(server.send("POST", path, &headers, body)).filter(|reply| reply.status != 409)
    })
}

#[test]
fn what_a_client_asked_for_who_is_gone_is_noted_under_its_key_and_in_the_audit() {
    let slow = Slow::new();
    let mut client = fickle(&slow.server);
    let headers = ["content-type: application/json", "idempotency-key: k", "x-request-id: gone-1"];
    client.head("POST", "/v1/push/p/test", &headers, Some(0));
    let mut held = slow.asked();
    gone(&slow.server, client);
    answer(&mut held);
    let again = once_more(&slow.server, "/v1/push/p/test", "");
    assert_eq!(again.ok(200)["ok"], true);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let acts = until("it is not in the audit", || {
        Some(acts(&slow.server, "push.test")).filter(|acts| !acts.is_empty())
    });
    assert_eq!((acts.len(), &acts[0]["request_id"]), (1, &json!("gone-1")));
}

#[test]
fn a_server_that_stops_waits_for_what_is_being_done() {
    let mut slow = Slow::new();
    let mut client = fickle(&slow.server);
    client.head("POST", "/v1/push/p/test", &["content-type: application/json"], Some(0));
    let mut held = slow.asked();
    gone(&slow.server, client);
    slow.server.stop();
    until("it still takes connections", || TcpStream::connect(slow.server.address).err());
    answer(&mut held);
    slow.server.join();
    let (acts, _) = slow.server.engine.visit("main").unwrap().acts(None, 10, None).unwrap();
    assert_eq!(acts[0]["act"], "push.test", "{acts:?}");
}
