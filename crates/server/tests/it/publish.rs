//! `POST /v1/events`, every row of the table.

use serde_json::{Value, json};

use crate::harness::Server;

#[test]
fn one_event_is_answered_with_its_place_and_can_be_read_back() {
    let server = Server::start();
    let body = r#"{"topic":"price.changed","payload":{"new":9.50},"subject":{"kind":"item","id":"7"}}"#;
    let reply = server.post("/v1/events", body);
    let answer = reply.ok(201);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(answer.as_object().unwrap().len(), 3, "{answer}");
    let event = server.get(&format!("/v1/events/{}", answer["position"])).text();
    assert!(event.contains(r#""payload":{"new":9.50}"#), "numbers come back digit for digit: {event}");
    let by_id = server.get(&format!("/v1/events/{}", answer["id"].as_str().unwrap())).ok(200);
    assert_eq!(by_id["position"], answer["position"]);
    assert_eq!(by_id["recorded_at"], answer["recorded_at"]);
    assert_eq!((&by_id["actor"], &by_id["space"]), (&json!("user:local"), &json!("default")));
}

#[test]
fn a_repeated_key_gives_the_first_answer_and_another_body_a_conflict() {
    let server = Server::start();
    let key = ["content-type: application/json", "idempotency-key: k1"];
    let first = server.send("POST", "/v1/events", &key, r#"{"topic":"a.b","payload":{"x":1}}"#).ok(201);
    let again = server.send("POST", "/v1/events", &key, r#"{"payload":{"x":1.0},"topic":"a.b"}"#).ok(200);
    assert_eq!((&again["position"], &again["id"]), (&first["position"], &first["id"]));
    assert_eq!(again["duplicate"], true);
    let in_body = server.post("/v1/events", r#"{"topic":"a.b","payload":{"x":1},"key":"k1"}"#).ok(200);
    assert_eq!(in_body["duplicate"], true);
    let other = server.send("POST", "/v1/events", &key, r#"{"topic":"a.b","payload":{"x":2}}"#);
    let problem = other.refused(409, "event.key_conflict");
    assert_eq!(problem["position"], first["position"]);
    assert_ne!(problem["first_hash"], problem["this_hash"]);
    let two_keys = server.send("POST", "/v1/events", &key, r#"{"topic":"a.b","key":"k2"}"#);
    assert_eq!(two_keys.refused(422, "event.invalid")["pointer"], "/key");
}

#[test]
fn an_array_is_recorded_whole_or_not_at_all() {
    let server = Server::start();
    let answer = server.post("/v1/events", r#"[{"topic":"a.1"},{"topic":"a.2"},{"topic":"a.3"}]"#).ok(201);
    let positions: Vec<u64> =
        answer["events"].as_array().unwrap().iter().map(|e| e["position"].as_u64().unwrap()).collect();
    assert!(positions.len() == 3 && positions.is_sorted(), "{positions:?}");
    let bad = r#"[{"topic":"b.1"},{"topic":"b.2"},{"topic":"b.3"},{"topic":"b..4"}]"#;
    assert_eq!(server.post("/v1/events", bad).refused(422, "event.topic_invalid")["pointer"], "/3/topic");
    assert_eq!(server.get("/v1/events?topic=b.*").ok(200)["events"], json!([]));
    let many = format!("[{}]", vec![r#"{"topic":"a.b"}"#; 1_001].join(","));
    assert_eq!(server.post("/v1/events", many).status / 100, 4);
}

#[test]
fn the_envelope_is_read_strictly_and_the_wrong_field_is_named() {
    let server = Server::start();
    let table = [
        (r#"{}"#, "event.invalid", "/topic"),
        (r#"{"topic":7}"#, "event.invalid", "/topic"),
        (r#"{"topic":"a b"}"#, "event.topic_invalid", "/topic"),
        (r#"{"topic":"engine.x"}"#, "event.topic_reserved", "/topic"),
        (r#"{"topic":"a","colour":1}"#, "event.invalid", "/colour"),
        (r#"{"topic":"a","priority":10}"#, "event.invalid", "/priority"),
        (r#"{"topic":"a","band":"blue"}"#, "event.invalid", "/band"),
        (r#"{"topic":"a","payload":{"x":{"y":1,"y":2}}}"#, "json.duplicate_key", "/payload/x/y"),
    ];
    for (body, code, pointer) in table {
        let problem = server.post("/v1/events", body).refused(422, code);
        assert_eq!(problem["pointer"], pointer, "{body}: {problem}");
    }
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]), "a refusal changes nothing");
}

#[test]
fn what_is_no_json_is_called_so_also_when_a_key_stands_twice_before() {
    let server = Server::start();
    let bad = r#"{"topic":"a","payload":{"a":2,"a":}}"#;
    assert_eq!(server.post("/v1/events", bad).refused(400, "json.invalid")["offset"], 34);
    server.post("/v1/events", format!("[{bad}]")).refused(400, "json.invalid");
    server.post("/v1/events", r#"[{"topic":"a","topic":"a"},]"#).refused(400, "json.invalid");
    let lines = format!("{bad}\n{{\"topic\":\"a\",\"topic\":\"b\"}}\n");
    let told = server.send("POST", "/v1/events", &["content-type: application/x-ndjson"], lines);
    let codes: Vec<Value> = told
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["code"].clone())
        .collect();
    assert_eq!(codes, ["json.invalid", "json.duplicate_key"]);
}

#[test]
fn the_content_type_decides_and_an_unknown_one_is_refused() {
    let server = Server::start();
    let event = r#"{"topic":"a.b"}"#;
    for accepted in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
        let header = format!("content-type: {accepted}");
        server.send("POST", "/v1/events", &[&header], event).ok(201);
    }
    server.send("POST", "/v1/events", &[], event).ok(201);
    // From a web page, a body that does not say what it is could have been sent without asking.
    let page = ["origin: http://test:1"];
    server.send("POST", "/v1/events", &page, event).refused(415, "body.type");
    server.send("POST", "/v1/groups/g/pull", &page, r#"{"max":1}"#).refused(415, "body.type");
    server.send("POST", "/v1/groups/g/pull", &[], "").refused(404, "group.not_found");
    for refused in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        let header = format!("content-type: {refused}");
        server.send("POST", "/v1/events", &[&header], event).refused(415, "body.type");
    }
}

#[test]
fn headers_name_the_tenant_the_actor_and_the_trace() {
    let server = Server::start();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (json_body, trace_header) = ("content-type: application/json", format!("traceparent: {trace}"));
    let headers = [json_body, "everwhen-tenant: other", "everwhen-actor: agent:smith", &trace_header];
    let answer = server.send("POST", "/v1/events", &headers, r#"{"topic":"a.b"}"#).ok(201);
    let path = format!("/v1/events/{}", answer["id"].as_str().unwrap());
    server.get(&path).refused(404, "event.not_found");
    let event = server.send("GET", &path, &["everwhen-tenant: other"], "").ok(200);
    assert_eq!((&event["actor"], &event["trace"]), (&json!("agent:smith"), &json!(trace)));
    let own = r#"{"topic":"a.b","trace":"00-11111111111111111111111111111111-2222222222222222-01"}"#;
    let answer = server.send("POST", "/v1/events", &headers, own).ok(201);
    let path = format!("/v1/events/{}", answer["position"]);
    let event = server.send("GET", &path, &["everwhen-tenant: other"], "").ok(200);
    assert_ne!(event["trace"], trace);
    server
        .send("POST", "/v1/events", &[json_body, "everwhen-actor: me"], "{}")
        .refused(400, "request.invalid");
    assert_eq!(server.send("GET", "/v1/events", &["everwhen-tenant: ../x"], "").status / 100, 4);
}

#[test]
fn cloudevents_come_in_three_forms() {
    let server = Server::start();
    let attributes = json!({"specversion":"1.0","type":"order.created","source":"/shop","id":"o-1",
        "subject":"order/17","band":"amber","device":"phone1","data":{"total":9.90}});
    let structured = ["content-type: application/cloudevents+json"];
    let first = server.send("POST", "/v1/events", &structured, attributes.to_string()).ok(201);
    let again = server.send("POST", "/v1/events", &structured, attributes.to_string()).ok(200);
    assert_eq!((&again["duplicate"], &again["position"]), (&json!(true), &first["position"]));
    let mut second = attributes.clone();
    second["id"] = json!("o-2");
    let batch = ["content-type: application/cloudevents-batch+json"];
    let answer = server.send("POST", "/v1/events", &batch, json!([second]).to_string()).ok(201);
    let binary = [
        "content-type: application/json",
        "ce-specversion: 1.0",
        "ce-type: order.created",
        "ce-source: /shop",
        "ce-id: o-3",
        "ce-subject: order/17",
        "ce-band: amber",
        "ce-device: phone1",
    ];
    let third = server.send("POST", "/v1/events", &binary, r#"{"total":9.90}"#).ok(201);
    let shown = |position: &Value| {
        let mut event = server.get(&format!("/v1/events/{position}")).ok(200);
        for name in ["id", "position", "time", "recorded_at", "key", "content_type"] {
            event.as_object_mut().unwrap().remove(name);
        }
        event
    };
    let first = shown(&first["position"]);
    assert_eq!((&first["topic"], &first["band"]), (&json!("order.created"), &json!("amber")));
    assert_eq!(first["subject"], json!({"kind":"order","id":"17"}));
    assert_eq!(first["ext"]["device"], "phone1");
    assert_eq!(shown(&answer["events"][0]["position"]), first);
    assert_eq!(shown(&third["position"]), first);
    let missing = ["content-type: application/json", "ce-specversion: 1.0", "ce-id: o-4"];
    assert_eq!(server.send("POST", "/v1/events", &missing, "{}").status, 422);
}

#[test]
fn a_body_over_its_bound_is_refused_and_the_answer_can_be_read() {
    let server = Server::start();
    let text = |n: usize| "x".repeat(n);
    let payload = format!(r#"{{"topic":"a.b","payload":"{}"}}"#, text((1 << 20) - 2));
    server.post("/v1/events", payload).ok(201);
    let payload = format!(r#"{{"topic":"a.b","payload":"{}"}}"#, text(1 << 20));
    server.post("/v1/events", payload).refused(413, "body.too_large");
    server.post("/v1/events", text(8 << 20)).refused(413, "body.too_large");
    let array = format!(r#"[{{"topic":"a.b","payload":"{}"}},{{"topic":"a.b"}}]"#, text((1 << 20) - 30));
    server.post("/v1/events", array).refused(413, "body.too_large");
    let mut client = server.client();
    client.head("POST", "/v1/events", &["content-type: application/json"], None);
    for _ in 0..40 {
        client.chunk(text(64 * 1024).as_bytes());
    }
    client.chunk(b"");
    client.reply().refused(413, "body.too_large");
}

#[test]
fn requests_may_be_pipelined_and_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    for i in 0..50 {
        let body = format!(r#"{{"topic":"a.b","id":"e-{i}"}}"#);
        client.head("POST", "/v1/events", &["content-type: application/json"], Some(body.len()));
        client.write(body.as_bytes());
    }
    for i in 0..50 {
        assert_eq!(client.reply().ok(201)["id"], format!("e-{i}"));
    }
}

#[test]
fn a_compressed_body_is_refused_by_name() {
    let server = Server::start();
    let json = "content-type: application/json";
    for (encoding, named) in [("gzip", "gzip"), ("identity, br", "br"), ("Deflate", "Deflate")] {
        for (method, path) in [("POST", "/v1/events"), ("PUT", "/v1/groups/g"), ("POST", "/v1/groups/g/pull")]
        {
            let header = format!("content-encoding: {encoding}");
            let reply = server.send(method, path, &[json, &header], r#"{"topic":"a.b"}"#);
            let problem = reply.refused(415, "body.type");
            assert!(problem["detail"].as_str().unwrap().contains(&format!("{named:?}")), "{problem}");
        }
    }
    server.send("POST", "/v1/events", &[json, "content-encoding: Identity"], r#"{"topic":"a.b"}"#).ok(201);
}

#[test]
fn a_refused_cloudevent_points_at_what_was_sent() {
    let server = Server::start();
    let event = |kind: &str| json!({"specversion":"1.0","id":"e1","source":"s","type":kind});
    let structured = ["content-type: application/cloudevents+json"];
    let problem = server.send("POST", "/v1/events", &structured, event("a..b").to_string());
    assert_eq!(problem.refused(422, "event.topic_invalid")["pointer"], "/type");
    let batch = ["content-type: application/cloudevents-batch+json"];
    let body = json!([event("a.b"), event("graph.x")]).to_string();
    let problem = server.send("POST", "/v1/events", &batch, body);
    assert_eq!(problem.refused(422, "event.topic_reserved")["pointer"], "/1/type");
    let headers = ["ce-specversion: 1.0", "ce-id: e1", "ce-source: s", "ce-type: a..b"];
    let problem = server.send("POST", "/v1/events", &headers, "{}").refused(422, "event.topic_invalid");
    assert_eq!((&problem["pointer"], &problem["parameter"]), (&json!("/type"), &json!("ce-type")));
    for headers in [
        &["ce-id: e1", "ce-source: s", "ce-type: a.b", "content-type: application/json"][..],
        &["ce-id: e1", "ce-source: s", "ce-type: a.b", "content-type: text/plain"],
        &["ce-id: e1", "ce-source: s", "ce-type: a.b", "ce-specversion: 0.3"],
    ] {
        let problem = server.send("POST", "/v1/events", headers, "{}").refused(422, "event.invalid");
        assert_eq!(problem["parameter"], "ce-specversion", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("ce-specversion"), "{problem}");
    }
}

#[test]
fn cloudevents_may_have_ids_that_events_cannot() {
    let server = Server::start();
    let structured = ["content-type: application/cloudevents+json"];
    let event = json!({"specversion":"1.0","type":"a.b","source":"s","id":"1"}).to_string();
    let first = server.send("POST", "/v1/events", &structured, event.clone()).ok(201);
    let again = server.send("POST", "/v1/events", &structured, event).ok(200);
    assert_eq!((&again["duplicate"], &again["id"]), (&json!(true), &first["id"]));
    let stored = server.get(&format!("/v1/events/{}", first["id"].as_str().unwrap())).ok(200);
    assert_eq!((&stored["key"], &stored["ext"]["ceid"]), (&json!("s 1"), &json!("1")), "{stored}");
}

#[test]
fn an_empty_idempotency_key_is_no_key() {
    let server = Server::start();
    let headers = ["content-type: application/json", "idempotency-key: "];
    let problem = server.send("POST", "/v1/events", &headers, r#"{"topic":"a.b"}"#);
    assert_eq!(problem.refused(400, "request.invalid")["parameter"], "idempotency-key");
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]));
}
