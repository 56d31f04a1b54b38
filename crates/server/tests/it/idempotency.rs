//! `Idempotency-Key` on every POST: once is once.

use serde_json::json;

use crate::harness::Server;

const JSON: &str = "content-type: application/json";
const WORK: &str = r#"{"automation":"work","triggers":[{"event":"job.*"}],"actions":[{"delay":"1h"}]}"#;

fn post(server: &Server, path: &str, key: &str, body: &str) -> crate::client::Reply {
    server.send("POST", path, &[JSON, &format!("idempotency-key: {key}")], body)
}

#[test]
fn the_same_request_under_the_same_key_is_answered_again_and_not_done_again() {
    let server = Server::start();
    let first = post(&server, "/v1/automations", "a", WORK);
    assert_eq!(first.status, 201, "{}", first.text());
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = post(&server, "/v1/automations", "a", WORK);
    assert_eq!((again.status, again.json()), (201, first.json()));
    assert_eq!(
        (again.headers["idempotency-replayed"].as_str(), &again.headers["etag"]),
        ("true", &first.headers["etag"])
    );
    server.post("/v1/automations", WORK).refused(409, "definition.conflict");
    let run = post(&server, "/v1/runs", "r", r#"{"automation":"work"}"#).ok(202);
    assert_eq!(post(&server, "/v1/runs", "r", r#"{ "automation" : "work" }"#).ok(202), run);
    assert_eq!(server.get("/v1/runs").ok(200)["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn another_request_under_the_same_key_is_refused() {
    let server = Server::start();
    post(&server, "/v1/plan", "k", r#"{"files":{}}"#).ok(200);
    post(&server, "/v1/plan", "k", r#"{"files":{},"workspace":"w"}"#).refused(422, "idempotency.mismatch");
    post(&server, "/v1/apply", "k", r#"{"files":{}}"#).refused(422, "idempotency.mismatch");
    // Another tenant's and another actor's keys are their own.
    let headers = [JSON, "idempotency-key: k", "everwhen-tenant: other"];
    server.send("POST", "/v1/plan", &headers, r#"{"files":{},"workspace":"w"}"#).ok(200);
    let headers = [JSON, "idempotency-key: k", "everwhen-actor: user:ann"];
    server.send("POST", "/v1/plan", &headers, r#"{"files":{},"workspace":"w"}"#).ok(200);
}

#[test]
fn a_refusal_changed_nothing_and_is_not_kept() {
    let server = Server::start();
    post(&server, "/v1/runs", "k", r#"{"automation":"work"}"#).problem();
    server.post("/v1/automations", WORK).ok(201);
    post(&server, "/v1/runs", "k", r#"{"automation":"work"}"#).ok(202);
    for key in ["", &"x".repeat(256)] {
        post(&server, "/v1/plan", key, r#"{"files":{}}"#).refused(400, "request.invalid");
    }
}

#[test]
fn a_request_in_progress_is_not_begun_again() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    let body = r#"{"wait":"30s"}"#;
    let (told, answers) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (told, server) = (told.clone(), &server);
            scope.spawn(move || told.send(post(server, "/v1/groups/g/pull", "p", body)));
        }
        // Whoever comes first waits for an event, the other is told.
        answers.recv().unwrap().refused(409, "idempotency.busy");
        let position = server.publish("a.b", "{}");
        let deliveries = answers.recv().unwrap().ok(200);
        assert_eq!(deliveries["deliveries"][0]["event"]["position"], position);
        assert_eq!(post(&server, "/v1/groups/g/pull", "p", body).ok(200), deliveries);
    });
}

#[test]
fn small_lists_have_pages_too() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        server.put(&format!("/v1/groups/{name}"), r#"{"pattern":"x.y"}"#).ok(201);
    }
    let names = |page: &serde_json::Value| -> Vec<String> {
        page["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = server.get("/v1/groups?limit=2").ok(200);
    assert_eq!((names(&first), &first["next"]), (vec!["a".to_owned(), "b".to_owned()], &json!("b")));
    let rest = server.get("/v1/groups?limit=2&cursor=b").ok(200);
    assert_eq!((names(&rest), rest.get("next")), (vec!["c".to_owned()], None));
    assert_eq!(names(&server.get("/v1/groups").ok(200)).len(), 3);
    for list in ["automations", "waits", "tokens", "hooks", "subscriptions", "concepts", "tasks", "secrets"] {
        let page = server.get(&format!("/v1/{list}?limit=1")).ok(200);
        assert!(page[list].as_array().unwrap().len() <= 1, "{page}");
        server.get(&format!("/v1/{list}?limit=0")).refused(400, "request.invalid");
    }
}

#[test]
fn what_changed_in_between_is_not_patched() {
    let server = Server::start();
    let made = server.post("/v1/automations", WORK);
    let tag = made.headers["etag"].clone();
    let patch = |tag: &str, what: &str| {
        let body = json!({ "description": what }).to_string();
        server.send("PATCH", "/v1/automations/work", &[JSON, &format!("if-match: {tag}")], body)
    };
    let changed = patch(&tag, "one");
    assert_eq!(changed.status, 200, "{}", changed.text());
    patch(&tag, "two").refused(412, "if_match.failed");
    assert_eq!(server.get("/v1/automations/work").headers["etag"], changed.headers["etag"]);
    assert_eq!(patch("*", "three").status, 200);
    let subscription = server.put("/v1/subscriptions/s", r#"{"pattern":"a.b","automation":"work"}"#);
    assert_eq!(subscription.status, 201, "{}", subscription.text());
    let headers = [JSON, "if-match: \"other\""];
    server
        .send("PATCH", "/v1/subscriptions/s", &headers, r#"{"pattern":"a.c"}"#)
        .refused(412, "if_match.failed");
}

#[test]
fn several_events_under_one_key_are_published_once() {
    let server = Server::start();
    let batch = "content-type: application/cloudevents-batch+json";
    let cloud = r#"[{"specversion":"1.0","type":"c","source":"s","id":"e1"},{"specversion":"1.0","type":"c","source":"s","id":"e2"}]"#;
    for (kind, key, body) in [
        (JSON, "k1", r#"[{"topic":"a"},{"topic":"b"}]"#),
        (JSON, "k2", "\n [{\"topic\":\"a\"}]"),
        (batch, "k3", cloud),
    ] {
        let key = format!("idempotency-key: {key}");
        let first = server.send("POST", "/v1/events", &[kind, &key], body);
        let again = server.send("POST", "/v1/events", &[kind, &key], body);
        assert_eq!(first.ok(201), again.ok(201), "{body}");
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert!(!first.headers.contains_key("idempotency-replayed"));
        let other = server.send("POST", "/v1/events", &[kind, &key], r#"[{"topic":"z"}]"#);
        other.refused(422, "idempotency.mismatch");
    }
    let count = |topic: &str| {
        server.get(&format!("/v1/events?topic={topic}")).ok(200)["events"].as_array().unwrap().len()
    };
    assert_eq!((count("a"), count("b"), count("c")), (2, 1, 2));
    // A refusal is not kept, one event has the key itself, and lines have none.
    let (key, lines) = ("idempotency-key: k4", "content-type: application/x-ndjson");
    server
        .send("POST", "/v1/events", &[JSON, key], r#"[{"topic":"a b"}]"#)
        .refused(422, "event.topic_invalid");
    server.send("POST", "/v1/events", &[JSON, key], r#"[{"topic":"a"}]"#).ok(201);
    let one = server.send("POST", "/v1/events", &[JSON, key], r#"{"topic":"a"}"#).ok(201);
    assert_eq!(server.get(&format!("/v1/events/{}", one["position"])).ok(200)["key"], "k4");
    let refused = server.send("POST", "/v1/events", &[lines, key], r#"{"topic":"a"}"#);
    refused.refused(400, "request.invalid");
}

#[test]
fn every_answer_to_a_write_says_how_far_the_ledger_is() {
    let server = Server::start();
    let mut before = 0;
    for (method, path, body) in [
        ("POST", "/v1/events", r#"{"topic":"a"}"#),
        ("POST", "/v1/events", r#"[{"topic":"a"},{"topic":"a"}]"#),
        ("PUT", "/v1/groups/g", r#"{"pattern":"a","start":"beginning"}"#),
        ("POST", "/v1/groups/g/pause", "{}"),
        ("POST", "/v1/groups/g/seek", r#"{"to":"end"}"#),
        ("DELETE", "/v1/groups/g", ""),
    ] {
        let reply = server.send(method, path, &[JSON, "idempotency-key: once"], body);
        let reply = if reply.status < 300 { reply } else { server.send(method, path, &[JSON], body) };
        assert!(reply.status < 300, "{method} {path}: {}", reply.text());
        let position: u64 = reply.headers["everwhen-position"].parse().unwrap();
        assert!(position > before, "{method} {path}: {position}");
        server.get(&format!("/v1/groups?min_position={position}")).ok(200);
        before = position;
    }
    assert!(!server.get("/v1/groups").headers.contains_key("everwhen-position"));
    assert!(!server.post("/v1/events", "{}").headers.contains_key("everwhen-position"));
}

#[test]
fn the_key_of_several_events_is_part_of_their_commit_and_holds_over_a_restart() {
    let server = Server::start();
    let body = r#"[{"topic":"a"},{"topic":"b","key":"once"}]"#;
    let first = post(&server, "/v1/events", "k", body).ok(201);
    let ledger = server.dir.0.join("tenants/main/ledger/00000000000000000001.jsonl");
    let lines = std::fs::read_to_string(ledger).unwrap();
    let line = lines.lines().find(|line| line.contains(r#""topic":"a""#)).unwrap();
    assert!(line.contains(r#""topic":"b""#) && line.contains("engine.request.answered"), "{line}");
    let server = server.again();
    let again = post(&server, "/v1/events", "k", body);
    assert_eq!((again.ok(201), again.headers["idempotency-replayed"].as_str()), (first, "true"));
    post(&server, "/v1/events", "k", r#"[{"topic":"a"}]"#).refused(422, "idempotency.mismatch");
    assert_eq!(server.get("/v1/events?topic=a").ok(200)["events"].as_array().unwrap().len(), 1);
}

#[test]
fn many_events_and_repeated_keys_are_answered_again_after_a_restart_too() {
    let server = Server::start();
    post(&server, "/v1/events", "before", r#"[{"topic":"b","key":"once"}]"#).ok(201);
    let many: Vec<_> = (0..1_000).map(|n| json!({"topic": "c", "payload": n})).collect();
    let keyed: Vec<_> =
        (0..1_000).map(|n| json!({"topic": "d", "key": format!("a longer key {n}")})).collect();
    let repeats = json!([
        {"topic": "b", "key": "once"}, {"topic": "e"}, {"topic": "e", "key": "new"},
        {"topic": "b", "key": "once"}, {"topic": "e", "key": "new"}, {"topic": "e"},
    ]);
    let asked = [json!(many), json!(keyed), repeats].map(|body| body.to_string());
    let first: Vec<_> = asked
        .iter()
        .enumerate()
        .map(|(n, body)| post(&server, "/v1/events", &n.to_string(), body).ok(201))
        .collect();
    let twice: Vec<_> =
        first[2]["events"].as_array().unwrap().iter().map(|event| event["duplicate"] == true).collect();
    assert_eq!(twice, [true, false, false, true, true, false]);
    let server = server.again();
    for (n, body) in asked.iter().enumerate() {
        let again = post(&server, "/v1/events", &n.to_string(), body);
        assert_eq!(
            (again.ok(201), again.headers["idempotency-replayed"].as_str()),
            (first[n].clone(), "true")
        );
    }
    assert_eq!(server.get("/v1/events?topic=e").ok(200)["events"].as_array().unwrap().len(), 3);
}

#[test]
fn what_cannot_be_meant_is_refused_and_a_content_type_is_one_in_any_case() {
    let server = Server::start();
    let refused = server.send("POST", "/v1/events?x=1", &[JSON], r#"{"topic":"a"}"#);
    assert_eq!(refused.refused(400, "request.invalid")["parameter"], "x");
    let two = [JSON, "idempotency-key: k", "idempotency-key: l"];
    for (path, body) in [
        ("/v1/events", r#"{"topic":"a"}"#),
        ("/v1/events", r#"[{"topic":"a"}]"#),
        ("/api/events/record", r#"{"event_type":"a"}"#),
        ("/v1/groups/g/pause", "{}"),
    ] {
        let refused = server.send("POST", path, &two, body).refused(400, "request.invalid");
        assert!(refused["detail"].as_str().unwrap().contains("twice"), "{path}: {refused}");
    }
    // Lines, whatever they begin with, have no key of their own.
    let lines = ["content-type: APPLICATION/X-NDJSON", "idempotency-key: k"];
    let refused = server.send("POST", "/v1/events", &lines, "[1]").refused(400, "request.invalid");
    assert!(refused["detail"].as_str().unwrap().contains("single event"), "{refused}");
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]));
}
