//! Runs and decisions as server-sent events: from here nothing is missed.

use serde_json::Value;

use crate::client::Pieces;
use crate::harness::Server;

const WORK: &str = "automation: work\ntriggers: [{event: job.*}]\nactions: [{ask: {question: go on}}, {publish: {topic: done.now}}]\n";
const IDLE: &str =
    "automation: idle\ntriggers: [{event: job.*}]\nconditions: [\"false\"]\nactions: [{delay: 0}]\n";

fn open(server: &Server, path: &str, headers: &[&str]) -> Pieces {
    let mut client = server.client();
    client.head("GET", path, headers, Some(0));
    Pieces::of(client, "\n\n")
}

fn frame(stream: &mut Pieces) -> (Option<u64>, String, Value) {
    let text = stream.next().unwrap();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let data = serde_json::from_str(field("data").unwrap()).unwrap();
    (field("id").map(|id| id.parse().unwrap()), field("event").unwrap().to_owned(), data)
}

#[test]
fn a_run_is_told_as_it_waits_and_as_it_ends() {
    let server = Server::start();
    server.apply("a.yaml", WORK);
    let mut stream = open(&server, "/v1/runs/stream", &[]);
    let (_, event, at) = frame(&mut stream);
    assert_eq!(event, "ready");
    server.publish("job.a", "{}");
    let (first, event, run) = frame(&mut stream);
    assert_eq!(
        (event.as_str(), &run["automation"], &run["status"]),
        ("run", &"work".into(), &"waiting".into())
    );
    assert!(first > at["position"].as_u64());
    let wait = server.get("/v1/waits").ok(200)["waits"][0]["id"].as_str().unwrap().to_owned();
    server.post(&format!("/v1/waits/{wait}/answer"), r#"{"value":"yes"}"#).ok(200);
    let (last, _, ended) = frame(&mut stream);
    assert_eq!((&ended["id"], &ended["status"]), (&run["id"], &"completed".into()));
    assert!(last > first);
    // Who comes back after the first sees the end, and who comes back after the end sees nothing but what is new.
    let mut again = open(&server, "/v1/runs/stream", &[&format!("last-event-id: {}", first.unwrap())]);
    frame(&mut again);
    assert_eq!(frame(&mut again).2["status"], "completed");
    let mut end = open(&server, &format!("/v1/runs/stream?status=waiting&after={}", last.unwrap()), &[]);
    frame(&mut end);
    server.publish("job.b", "{}");
    let (_, _, other) = frame(&mut end);
    assert_ne!(other["id"], run["id"]);
}

#[test]
fn decisions_come_with_all_that_fell_at_one_position_before_its_id() {
    let server = Server::start();
    server.apply("a.yaml", &format!("{WORK}---\n{IDLE}"));
    let mut stream = open(&server, "/v1/decisions/stream", &[]);
    frame(&mut stream);
    server.publish("job.a", "{}");
    let (first, second) = (frame(&mut stream), frame(&mut stream));
    assert_eq!((first.0, first.1.as_str()), (None, "decision"));
    assert!(second.0.is_some());
    let mut outcomes = [first.2["outcome"].as_str().unwrap(), second.2["outcome"].as_str().unwrap()];
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["ran", "skipped"]);
    let mut one = open(&server, "/v1/decisions/stream?automation=idle&after=0", &[]);
    frame(&mut one);
    assert_eq!(frame(&mut one).2["automation"], "idle");
}

#[test]
fn what_is_no_status_is_refused_before_the_stream_begins() {
    let server = Server::start();
    server.get("/v1/runs/stream?status=flying").refused(400, "request.invalid");
    server.get("/v1/decisions/stream?outcome=none").refused(400, "request.invalid");
    server.get("/v1/runs/stream?after=x").refused(400, "request.invalid");
}
