//! Connections that go on publishing are served by one thread, all of them: the same answers, and back to their tasks at any time.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::Value;
use server::Patience;

use crate::client::Client;
use crate::harness::Server;

const JSON: &str = "content-type: application/json";

fn request(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /v1/events HTTP/1.1\r\nhost: test\r\n{JSON}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

fn publish(client: &mut Client, body: &str) -> Value {
    client.write(&request(body));
    client.reply().ok(201)
}

/// One that has published twice: the second time on the thread of many.
fn guest(server: &Server) -> Client {
    let mut client = server.client();
    publish(&mut client, r#"{"topic":"a.b"}"#);
    publish(&mut client, r#"{"topic":"a.b"}"#);
    client
}

/// More than one thread takes, where there are two; each of them commits, if there are few cores.
#[test]
fn they_are_served_without_any_task() {
    const CLIENTS: usize = 80;
    let server = Server::start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| guest(&server)).collect();
    let held = server.hold_tasks();
    let mut positions: Vec<u64> = Vec::new();
    for round in 0..5 {
        for (n, client) in clients.iter_mut().enumerate() {
            let n = round * CLIENTS + n;
            client.write(&request(&format!(r#"{{"topic":"a.c","payload":{n}}}"#)));
        }
        let replies = clients.iter_mut().map(|client| client.reply().ok(201));
        positions.extend(replies.map(|reply| reply["position"].as_u64().unwrap()));
    }
    drop(held);
    positions.sort_unstable();
    positions.dedup();
    assert_eq!(positions.len(), 5 * CLIENTS, "each has a place of its own");
    let found = server.get("/v1/events?topic=a.c&limit=1000").ok(200);
    let mut said: Vec<i64> =
        found["events"].as_array().unwrap().iter().map(|event| event["payload"].as_i64().unwrap()).collect();
    said.sort_unstable();
    assert_eq!(said, (0..5 * CLIENTS as i64).collect::<Vec<_>>());
}

#[test]
fn what_has_to_be_looked_up_goes_to_the_task_and_comes_back() {
    let server = Server::start();
    let mut client = guest(&server);
    let first = publish(&mut client, r#"{"topic":"a.b"}"#)["position"].clone();
    publish(&mut client, &format!(r#"{{"topic":"a.b","cause":{first}}}"#));
    publish(&mut client, r#"{"topic":"a.b"}"#);
    client.write(&request(r#"{"topic":"a.b","cause":999999}"#));
    client.reply().refused(422, "event.invalid");
    // After the last of these it is with the thread again.
    publish(&mut client, r#"{"topic":"a.b"}"#);
    publish(&mut client, r#"{"topic":"a.b"}"#);
    let held = server.hold_tasks();
    publish(&mut client, r#"{"topic":"a.b"}"#);
    drop(held);
    client.send("GET", "/livez", &[], "").ok(200);
    publish(&mut client, r#"{"topic":"a.b"}"#);
}

#[test]
fn keys_are_answered_as_everywhere() {
    let server = Server::start();
    let mut client = guest(&server);
    let first = publish(&mut client, r#"{"topic":"a.b","key":"k"}"#);
    client.write(&request(r#"{"topic":"a.b","key":"k"}"#));
    let again = client.reply().ok(200);
    assert_eq!((&again["position"], &again["duplicate"]), (&first["position"], &Value::Bool(true)));
    client.write(&request(r#"{"topic":"a.other","key":"k"}"#));
    let taken = client.reply().refused(409, "event.key_conflict");
    assert_eq!(taken["position"], first["position"]);
}

#[test]
fn who_may_not_read_is_not_told_by_what_a_key_is_taken() {
    let server = Server::start_with(Patience::default(), Some("the-owner"));
    let owner = "authorization: Bearer the-owner";
    let made = server.client().send("POST", "/v1/tokens", &[JSON, owner], r#"{"role":"publisher"}"#).ok(201);
    server.client().send("POST", "/v1/events", &[JSON, owner], r#"{"topic":"a.b","key":"k"}"#).ok(201);
    let shown = format!("authorization: Bearer {}", made["token"].as_str().unwrap());
    let mut client = server.client();
    let mut send = |body: &str| client.send("POST", "/v1/events", &[JSON, &shown], body);
    send(r#"{"topic":"a.b"}"#).ok(201);
    for _ in 0..2 {
        let taken = send(r#"{"topic":"a.other","key":"k"}"#).refused(409, "event.key_conflict");
        assert_eq!(taken["position"], Value::Null, "{taken}");
    }
}

#[test]
fn who_is_over_its_quota_is_told_so_after_a_moment() {
    let server = Server::start();
    let mut client = guest(&server);
    server.put("/v1/tenants/main/quota", r#"{"bytes":1}"#).ok(200);
    for _ in 0..3 {
        let asked = Instant::now();
        client.write(&request(r#"{"topic":"a.b"}"#));
        client.reply().refused(429, "quota.exceeded");
        assert!(
            asked.elapsed() >= Duration::from_millis(20),
            "who asks again at once costs others the processor"
        );
    }
    server.put("/v1/tenants/main/quota", "{}").ok(200);
    publish(&mut client, r#"{"topic":"a.b"}"#);
}

#[test]
fn many_requests_at_once_are_answered_in_order() {
    let server = Server::start();
    let mut client = guest(&server);
    let many = 500;
    let all: Vec<u8> =
        (0..many).flat_map(|n| request(&format!(r#"{{"topic":"a.n","payload":{n}}}"#))).collect();
    client.write(&all);
    let positions: Vec<u64> =
        (0..many).map(|_| client.reply().ok(201)["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let found = server.get("/v1/events?topic=a.n&limit=1000").ok(200);
    let said = found["events"].as_array().unwrap().iter().map(|event| event["payload"].as_i64().unwrap());
    assert!(said.eq(0..many));
}

/// Refusals are known at once: however many come in a row, each is only the next.
#[test]
fn many_refusals_at_once_are_one_after_the_other() {
    let server = Server::start();
    let mut client = guest(&server);
    let (many, bad) = (3_000, r#"{"topic":"a..b"}"#);
    let all = request(bad).repeat(many);
    let elsewhere = server.post("/v1/events", bad).problem();
    let mut writing = client.reader.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writing.write_all(&all).unwrap());
        for _ in 0..many {
            assert_eq!(client.reply().problem(), elsewhere);
        }
    });
    publish(&mut client, r#"{"topic":"a.b"}"#);
}

#[test]
fn a_request_may_come_in_pieces_anywhere() {
    let server = Server::start();
    let whole = request(r#"{"topic":"a.b"}"#);
    let mut client = guest(&server);
    for cut in [1, 20, 26, 40, whole.len() - 15, whole.len() - 1] {
        client.write(&whole[..cut]);
        server.client().send("GET", "/livez", &[], "").ok(200);
        client.write(&whole[cut..]);
        client.reply().ok(201);
    }
}

/// Longer than what is read at once, and longer than what goes this way.
#[test]
fn long_requests_are_answered_too() {
    let server = Server::start();
    let mut client = guest(&server);
    for length in [15_000, 16_384, 20_000, 31_000, 33_000, 200_000] {
        let payload = "x".repeat(length);
        let said = publish(&mut client, &format!(r#"{{"topic":"a.long","payload":"{payload}"}}"#));
        let found = server.get(&format!("/v1/events/{}", said["id"].as_str().unwrap())).ok(200);
        assert_eq!(found["payload"].as_str().unwrap().len(), length);
    }
}

#[test]
fn who_has_said_all_is_answered() {
    let server = Server::start();
    let mut client = guest(&server);
    client.write(&request(r#"{"topic":"a.b"}"#));
    client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
    client.reply().ok(201);
    assert_eq!(client.reader.read(&mut [0]).unwrap(), 0, "and then it is over");
}

/// The limits of this test are longer than the client waits.
#[test]
fn who_ends_inside_a_request_is_noticed_at_once() {
    let long = Duration::from_secs(600);
    let patience = Patience { begun: long, body: long, ..Patience::default() };
    let server = Server::start_with(patience, None);
    let whole = request(r#"{"topic":"a.b"}"#);
    // The server finds the part and its end together, or one after the other.
    for _ in 0..20 {
        let mut head = guest(&server);
        head.write(&whole[..40]);
        head.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(head.reader.read(&mut [0]).unwrap(), 0, "half a head is closed");
        let mut body = guest(&server);
        body.write(&whole[..whole.len() - 2]);
        body.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(body.reply().status, 400);
    }
}

/// What follows a refusal is in the same packet, and on the way to hyper with it.
#[test]
fn what_follows_a_request_that_is_not_for_the_thread_is_answered() {
    let server = Server::start();
    let refused =
        "POST /v1/nothing HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let next = "GET /livez HTTP/1.1\r\nhost: test\r\n\r\n";
    for _ in 0..40 {
        let mut client = guest(&server);
        client.write(format!("{refused}{next}").as_bytes());
        assert_eq!(client.reply().status, 404);
        client.reply().ok(200);
    }
}

#[test]
fn who_stops_in_a_head_or_a_body_is_not_waited_for() {
    let short = Duration::from_millis(50);
    let patience = Patience { begun: short, body: short, ..Patience::default() };
    let server = Server::start_with(patience, None);
    let whole = request(r#"{"topic":"a.b"}"#);
    let mut head = guest(&server);
    head.write(&whole[..40]);
    assert_eq!(head.reader.read(&mut [0]).unwrap(), 0, "half a head is closed");
    let mut body = guest(&server);
    body.write(&whole[..whole.len() - 2]);
    body.reply().refused(408, "body.timeout");
}

#[test]
fn who_says_nothing_more_is_let_go() {
    let patience = Patience { head: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut client = server.client();
    client.send("POST", "/v1/events", &[JSON], r#"{"topic":"a.b"}"#).ok(201);
    assert_eq!(client.reader.read(&mut [0]).unwrap(), 0);
}

/// Nothing else happens on the thread that could send it along.
#[test]
fn who_waits_too_long_for_the_writer_is_told_in_time_and_may_ask_again() {
    let patience = Patience { answer: Duration::from_millis(100), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut client = guest(&server);
    let held = server.hold_writer();
    client.write(&request(r#"{"topic":"a.b"}"#));
    client.reply().refused(503, "request.timeout");
    drop(held);
    // What the writer says to the first meanwhile is not taken for an answer to this.
    let position = publish(&mut client, r#"{"topic":"a.c"}"#)["position"].clone();
    assert_eq!(server.get(&format!("/v1/events/{position}")).ok(200)["topic"], "a.c");
}

/// The disk stands still in a commit of the thread's own, and meanwhile the time is over in which others may begin a request.
#[test]
fn who_asked_in_time_is_answered_though_a_commit_took_long() {
    let patience = Patience { head: Duration::from_millis(200), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut first = guest(&server);
    let mut others: Vec<Client> = (0..8).map(|_| guest(&server)).collect();
    let held = server.hold_next_commit();
    first.write(&request(r#"{"topic":"a.b"}"#));
    held.begun();
    others.iter_mut().for_each(|other| other.write(&request(r#"{"topic":"a.b"}"#)));
    held.last(patience.head * 2);
    drop(held);
    first.reply().ok(201);
    others.iter_mut().for_each(|other| drop(other.reply().ok(201)));
}

/// hyper gets its connection with everything that came before the end, and answers one after the other.
#[test]
fn who_has_said_all_hears_each_answer_whole() {
    let server = Server::start();
    let ask = request(r#"{"topic":"a.b"}"#);
    let unknown =
        b"POST /v1/ev HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}";
    for _ in 0..20 {
        let mut client = guest(&server);
        client.write(&[&ask[..], unknown, b"junk\r\n\r\n"].concat());
        client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        client.reply().ok(201);
        client.reply().refused(404, "not_found");
        assert_eq!(client.reply().status, 400);
    }
}

/// Its answers fill what lies between the two, and then nothing more is read from it.
#[test]
fn who_does_not_read_is_let_go_and_holds_up_nobody() {
    let patience = Patience { answer: Duration::from_millis(500), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let (mut deaf, mut other) = (guest(&server), guest(&server));
    let many = request(r#"{"topic":"a..b"}"#).repeat(1_000);
    let writing = deaf.reader.get_mut();
    writing.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while writing.write_all(&many).is_ok() {}
    publish(&mut other, r#"{"topic":"a.b"}"#);
    // Once it is let go, writing fails for another reason than that nobody reads.
    let closed = (0..200).any(|_| {
        publish(&mut other, r#"{"topic":"a.b"}"#);
        matches!(writing.write_all(&many), Err(error) if error.kind() != std::io::ErrorKind::WouldBlock)
    });
    assert!(closed);
}

#[test]
fn who_waits_for_an_answer_gets_it_though_the_server_stops() {
    let mut server = Server::start();
    let mut clients: Vec<Client> = (0..8).map(|_| guest(&server)).collect();
    clients.iter_mut().for_each(|client| client.write(&request(r#"{"topic":"a.b"}"#)));
    server.stop();
    server.join();
    // Either it was taken, and then it is answered; or the connection ends with nothing said.
    let mut answered = 0;
    for client in &mut clients {
        let mut all = Vec::new();
        let _ = client.reader.read_to_end(&mut all);
        let said = String::from_utf8_lossy(&all).into_owned();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 201"), "{said}");
        answered += usize::from(!said.is_empty());
    }
    let recorded = server.engine.main().unwrap().head();
    // The engine's own first record, and two for each.
    assert!(recorded as usize >= 16 + answered, "{recorded} {answered}");
}
