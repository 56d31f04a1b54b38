//! Pushes over HTTP: made, shown without their secret, paused, resumed, removed with their group.

use serde_json::json;

use crate::harness::Server;

#[test]
fn a_push_is_a_row_with_a_group_and_tells_its_secret_once() {
    let server = Server::start();
    let said = json!({"url": "https://shop.example.org/in", "pattern": ["order.*", "stock.#"], "ordered": true,
        "filter": "event.payload.n > 1", "format": "cloudevents", "backoff": {"base": "100ms", "max": "1m"}});
    let made = server.put("/v1/push/shop", said.to_string()).ok(201);
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!((&made["state"], &made["group"]), (&json!("active"), &json!("push-shop")));
    let shown = server.get("/v1/push/shop").ok(200);
    assert_eq!(
        (shown.get("secret"), &shown["lag"], &shown["format"]),
        (None, &json!(0), &json!("cloudevents"))
    );
    assert_eq!(shown["backoff"], json!({"base": 0.1, "max": 60}), "durations are told in seconds");
    assert_eq!(server.get("/v1/groups/push-shop").ok(200)["ordering"], "strict");
    let again = server.put("/v1/push/shop", said.to_string()).ok(200);
    assert_eq!(again.get("secret"), None, "the one that was told stays");
    assert_eq!(server.post("/v1/push/shop/pause", "").ok(200)["state"], "paused");
    assert_eq!(server.get("/v1/groups/push-shop").ok(200)["paused"], true);
    assert_eq!(server.post("/v1/push/shop/resume", "").ok(200)["state"], "active");
    assert_eq!(server.get("/v1/push").ok(200)["pushes"].as_array().unwrap().len(), 1);
    server.post("/v1/push/shop/dance", "").refused(404, "not_found");
    server.send("DELETE", "/v1/push/shop", &[], "").gone();
    server.get("/v1/push/shop").refused(404, "not_found");
    server.get("/v1/groups/push-shop").refused(404, "group.not_found");
    let text = server.get("/v1/events?topic=graph.%23").text();
    assert!(!text.contains(made["secret"].as_str().unwrap()), "sealed");
}

#[test]
fn a_test_tells_that_an_address_inside_is_refused() {
    let server = Server::start();
    let said = json!({"url": format!("http://{}/livez", server.address), "pattern": "#"});
    server.put("/v1/push/self", said.to_string()).ok(201);
    let told = server.post("/v1/push/self/test", "").ok(200);
    assert_eq!(told["ok"], false);
    assert!(told["error"].as_str().unwrap().contains("loopback"), "{told}");
    let wrong = server.put("/v1/push/self", r##"{"url":"https://a/","pattern":"#","colour":1}"##);
    assert_eq!(wrong.refused(422, "push.invalid")["pointer"], "/colour");
}

#[test]
fn the_headers_of_a_push_are_sealed_and_its_group_is_its_administrators() {
    let server = Server::start_with(Default::default(), Some(crate::rights::LOCAL));
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        crate::rights::asked(&server, token, method, path, body)
    };
    let owner = crate::rights::LOCAL;
    let said =
        r##"{"url":"https://example.org/x","pattern":"pp.#","headers":{"authorization":"Bearer CANARY"}}"##;
    ask(owner, "PUT", "/v1/push/p1", said).ok(201);
    ask(owner, "POST", "/v1/push/p1/pause", "").ok(200);
    let shown = ask(owner, "GET", "/v1/push/p1", "").ok(200);
    assert_eq!(shown["headers"]["authorization"], "***");
    for path in ["/v1/events?topic=graph.%23&limit=1000", "/v1/push", "/v1/records"] {
        assert!(!ask(owner, "GET", path, "").text().contains("CANARY"), "{path}");
    }
    let (editor, _) = crate::rights::token(&server, "main", serde_json::json!({"role": "editor"}));
    ask(&editor, "DELETE", "/v1/groups/push-p1", "").refused(403, "auth.denied");
    ask(&editor, "POST", "/v1/groups/push-p1/seek", r#"{"to":"end"}"#).refused(403, "auth.denied");
    ask(&editor, "PUT", "/v1/groups/push-p1", r#"{"pattern":"nothing.here"}"#).refused(403, "auth.denied");
    let taken = r#"{"topic":"a.b","id":"idempotency:x"}"#;
    ask(&editor, "POST", "/v1/events", taken).refused(422, "event.invalid");
    assert!(ask(owner, "GET", "/v1/records?from=18446744073709551615", "").status < 500);
}

#[test]
fn a_push_that_is_paused_stays_paused_whatever_is_changed_about_it() {
    let server = Server::start();
    let said = |url: &str| json!({"url": url, "pattern": "order.*"}).to_string();
    server.put("/v1/push/shop", said("https://a.example.org/")).ok(201);
    server.post("/v1/push/shop/pause", "").ok(200);
    let changed = server.put("/v1/push/shop", said("https://b.example.org/")).ok(200);
    assert_eq!((&changed["state"], &changed["reason"]), (&json!("paused"), &json!("by hand")));
    assert_eq!(changed["url"], "https://b.example.org/");
    assert_eq!(server.get("/v1/groups/push-shop").ok(200)["paused"], true);
    assert_eq!(server.post("/v1/push/shop/resume", "").ok(200)["state"], "active");
    let changed = server.put("/v1/push/shop", said("https://c.example.org/")).ok(200);
    assert_eq!((&changed["state"], changed.get("reason")), (&json!("active"), None));
    assert_eq!(server.get("/v1/groups/push-shop").ok(200)["paused"], false);
}

#[test]
fn a_header_that_is_given_back_as_it_is_shown_keeps_its_value() {
    let server = Server::start();
    let said = |headers: &serde_json::Value| {
        json!({"url": "https://example.org/", "pattern": "order.*", "headers": headers}).to_string()
    };
    let kept = || {
        let mut headers = server.engine.main().unwrap().push("rt").unwrap().headers;
        headers.sort();
        headers
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let masked = server.put("/v1/push/rt", said(&json!({"authorization": "***"})));
    let problem = masked.refused(422, "push.invalid");
    assert!(problem["detail"].as_str().unwrap().contains("authorization"), "{problem}");
    server.put("/v1/push/rt", said(&json!({"authorization": "Bearer realkey"}))).ok(201);
    let mut shown = server.get("/v1/push/rt").ok(200)["headers"].clone();
    shown["x-more"] = "1".into();
    server.put("/v1/push/rt", said(&shown)).ok(200);
    assert_eq!(kept(), [pair("authorization", "Bearer realkey"), pair("x-more", "1")]);
    server.put("/v1/push/rt", said(&json!({"x-other": "***"}))).refused(422, "push.invalid");
    assert_eq!(kept().len(), 2, "what was refused changed nothing");
    let without = r#"{"url":"https://example.org/","pattern":"order.*"}"#;
    server.put("/v1/push/rt", without).ok(200);
    assert!(kept().is_empty());
}

#[test]
fn the_group_of_a_push_is_changed_with_its_push_only() {
    let server = Server::start();
    let push = r#"{"url":"https://example.org/","pattern":"order.*"}"#;
    server.put("/v1/push/shop", push).ok(201);
    let changed = server.put("/v1/groups/push-shop", r#"{"pattern":"nothing.here"}"#);
    let removed = server.send("DELETE", "/v1/groups/push-shop", &[], "");
    for reply in [changed, removed] {
        let problem = reply.refused(409, "definition.conflict");
        assert!(problem["hint"].as_str().unwrap().contains("everwhen push rm shop"), "{problem}");
    }
    assert_eq!(server.get("/v1/groups/push-shop").ok(200)["pattern"], "order.*");
    server.post("/v1/groups/push-shop/seek", r#"{"to":"beginning"}"#).ok(200);
    server.put("/v1/groups/push-other", r#"{"pattern":"a.b"}"#).ok(201);
    assert_eq!(server.send("DELETE", "/v1/groups/push-other", &[], "").status, 204);
}
