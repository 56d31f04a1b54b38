//! A read may say what it must have seen.

use std::time::Duration;

use serde_json::json;
use server::Patience;

use crate::harness::Server;

fn reads(group: &str) -> Vec<String> {
    let reads = [
        "/v1/events",
        "/v1/events/1",
        "/v1/events/1/lineage",
        "/v1/groups",
        "/v1/groups/{}",
        "/v1/groups/{}/dead-letters",
        "/v1/concepts",
        "/v1/records",
        "/v1/verify",
        "/api/events/recent",
    ];
    reads.iter().map(|path| path.replace("{}", group)).collect()
}

#[test]
fn every_read_waits_for_a_position_and_says_how_far_the_ledger_is() {
    let patience = Patience { position: Duration::from_millis(5), ..Patience::default() };
    let server = Server::start_with(patience, None);
    server.publish("a.b", "1");
    server.put("/v1/groups/g", r#"{"pattern":"a.#"}"#).ok(201);
    let head = server.publish("a.b", "2");
    for path in reads("g") {
        assert_eq!(server.get(&format!("{path}?min_position={head}")).status, 200, "{path}");
        let behind = server.get(&format!("{path}?min_position={}", head + 1)).refused(503, "position.ahead");
        assert_eq!(behind["position"], head, "{path}");
        let wrong = server.get(&format!("{path}?min_position=-1")).refused(400, "request.invalid");
        assert_eq!(wrong["parameter"], "min_position", "{path}");
    }
    let stream = "/v1/events/stream?min_position";
    assert_eq!(
        server.get(&format!("{stream}={}", head + 1)).refused(503, "position.ahead")["position"],
        head
    );
    let pull =
        |min: serde_json::Value| server.post("/v1/groups/g/pull", json!({"min_position": min}).to_string());
    pull(json!(head)).ok(200);
    // A pull may write down what it gave, so the head has moved a little.
    let behind = pull(json!(head + 100)).refused(503, "position.ahead");
    assert!((head..head + 100).contains(&behind["position"].as_u64().unwrap()), "{behind}");
    assert_eq!(pull(json!("1")).refused(422, "group.invalid")["pointer"], "/min_position");
}

#[test]
fn a_read_that_is_early_is_answered_when_the_position_comes() {
    let patience = Patience { position: Duration::from_secs(30), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let head = server.publish("a.b", "1");
    let mut early = server.client();
    early.head("GET", &format!("/v1/events?min_position={}", head + 1), &[], Some(0));
    assert_eq!(server.publish("a.c", "2"), head + 1);
    let page = early.reply().ok(200);
    assert_eq!(page["events"][1]["topic"], "a.c", "{page}");
}
