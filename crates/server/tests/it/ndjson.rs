//! NDJSON: each line by itself, answered in order while the request is still being written.

use serde_json::Value;

use crate::client::Pieces;
use crate::harness::Server;

const NDJSON: [&str; 1] = ["content-type: application/x-ndjson"];

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_line_has_its_own_answer_in_order() {
    let server = Server::start();
    let keyed = r#"{"topic":"a.1","key":"k"}"#;
    let body = format!("{keyed}\n\n{{\"topic\":\"a..2\"}}\nnot json\n{keyed}\r\n{{\"topic\":\"a.3\"}}");
    let reply = server.send("POST", "/v1/events", &NDJSON, body);
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "application/x-ndjson"));
    let answers = lines(&reply.text());
    assert_eq!(answers.len(), 5, "{}", reply.text());
    assert!(answers[0]["position"].is_u64());
    assert_eq!(
        (&answers[1]["error"]["code"], &answers[1]["error"]["line"]),
        (&"event.topic_invalid".into(), &3.into())
    );
    assert_eq!(
        (&answers[2]["error"]["code"], &answers[2]["error"]["line"]),
        (&"json.invalid".into(), &4.into())
    );
    assert!(answers[2]["error"]["message"].is_string());
    assert_eq!((&answers[3]["duplicate"], &answers[3]["position"]), (&true.into(), &answers[0]["position"]));
    assert!(answers[4]["position"].as_u64() > answers[0]["position"].as_u64());
}

#[test]
fn a_line_is_answered_before_the_next_is_sent() {
    let server = Server::start();
    let mut client = server.client();
    client.head("POST", "/v1/events", &NDJSON, None);
    let mut answers = Pieces::of(client, "\n");
    for i in 0..3 {
        answers.client.chunk(format!("{{\"topic\":\"a.b\",\"id\":\"line-{i}\"}}\n").as_bytes());
        let answer: Value = serde_json::from_str(&answers.next().unwrap()).unwrap();
        assert_eq!(answer["id"], format!("line-{i}"));
        let read = server.get(&format!("/v1/events/{}", answer["position"])).ok(200);
        assert_eq!(read["id"], answer["id"], "after the answer everybody sees it");
    }
    answers.client.chunk(b"");
    assert_eq!(answers.next(), None);
}

#[test]
fn a_client_that_sends_everything_before_it_reads_does_not_stand_still() {
    let server = Server::start();
    let count = 20_000;
    let body: String = (0..count).map(|i| format!("{{\"topic\":\"a.b\",\"payload\":{i}}}\n")).collect();
    let reply = server.send("POST", "/v1/events", &NDJSON, body);
    let answers = lines(&reply.text());
    assert_eq!(answers.len(), count);
    let positions: Vec<u64> = answers.iter().map(|a| a["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "lines are recorded in their order");
    let last = server.get(&format!("/v1/events/{}", positions[count - 1])).ok(200);
    assert_eq!(last["payload"], count - 1);
}

#[test]
fn a_line_that_is_too_long_is_refused_alone() {
    let server = Server::start();
    let long = "x".repeat(2 << 20);
    let body = format!(
        "{{\"topic\":\"a.1\"}}\n{{\"topic\":\"a.2\",\"payload\":\"{long}\"}}\n{{\"topic\":\"a.3\"}}\n"
    );
    let answers = lines(&server.send("POST", "/v1/events", &NDJSON, body).text());
    assert_eq!(answers.len(), 3);
    assert!(answers[0]["position"].is_u64() && answers[2]["position"].is_u64());
    assert_eq!(
        (&answers[1]["error"]["code"], &answers[1]["error"]["line"]),
        (&"body.too_large".into(), &2.into())
    );
}

#[test]
fn what_was_answered_before_the_client_went_away_is_kept() {
    let server = Server::start();
    let mut client = server.client();
    client.head("POST", "/v1/events", &NDJSON, None);
    let mut answers = Pieces::of(client, "\n");
    answers.client.chunk(b"{\"topic\":\"a.b\",\"id\":\"kept\"}\n{\"topic\":\"a.b\",\"id\":\"ha");
    let answer: Value = serde_json::from_str(&answers.next().unwrap()).unwrap();
    assert_eq!(answer["id"], "kept");
    drop(answers);
    server.get("/v1/events/kept").ok(200);
    server.get("/v1/events/ha").refused(404, "event.not_found");
}

#[test]
fn a_body_that_breaks_off_inside_a_line_is_answered_with_an_error_for_it() {
    let server = Server::start();
    // Announced longer than it is; and chunks without an end.
    for length in [Some(1_000), None] {
        let mut client = server.client();
        client.head("POST", "/v1/events", &NDJSON, length);
        let body = b"{\"topic\":\"a.b\"}\n{\"topic\":\"a.c\"}";
        match length {
            Some(_) => client.write(body),
            None => client.chunk(body),
        }
        client.end();
        let mut answers = Pieces::of(client, "\n");
        let told: Vec<Value> =
            std::iter::from_fn(|| answers.next()).map(|line| serde_json::from_str(&line).unwrap()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0]["position"].is_u64(), "{told:?}");
        assert_eq!(
            (&told[1]["error"]["code"], &told[1]["error"]["line"]),
            (&"json.invalid".into(), &2.into())
        );
    }
    let stored = server.get("/v1/events?topic=a.c").ok(200);
    assert!(stored["events"].as_array().unwrap().is_empty(), "half a line is no event: {stored}");
}

#[test]
fn a_last_line_that_is_cut_short_is_answered_with_an_error() {
    let server = Server::start();
    let told =
        lines(&server.send("POST", "/v1/events", &NDJSON, "{\"topic\":\"a.b\"}\n{\"topic\":\"a").text());
    assert!(told[0]["position"].is_u64());
    assert_eq!((&told[1]["error"]["code"], &told[1]["error"]["line"]), (&"json.invalid".into(), &2.into()));
}
