//! What clients do wrong, and what operators look at.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::json;
use server::Patience;

use crate::client::Client;
use crate::harness::Server;

#[test]
fn an_unknown_path_and_a_foreign_method_are_problems_too() {
    let server = Server::start();
    for path in ["/v1", "/v1/event", "/v1/groups/g/explode", "/v1/events/1/2/3", "/favicon.ico"] {
        server.get(path).refused(404, "not_found");
    }
    let reply = server.send("DELETE", "/v1/events", &[], "");
    reply.refused(405, "request.method");
    let allow = &reply.headers["allow"];
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    server.get("/v1/groups/g/pull").refused(405, "request.method");
    server.send("PATCH", "/v1/groups/g", &[], "{}").refused(405, "request.method");
    server.send("POST", "/livez", &[], "{}").refused(405, "request.method");
}

#[test]
fn a_truncated_body_changes_nothing_and_the_server_goes_on() {
    let server = Server::start();
    let mut client = server.client();
    client.head("POST", "/v1/events", &["content-type: application/json"], Some(100));
    client.write(br#"{"topic":"a.b""#);
    client.end();
    let mut rest = String::new();
    let _ = client.reader.read_to_string(&mut rest);
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 4"), "{rest}");
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]));
}

#[test]
fn a_body_that_does_not_arrive_is_not_waited_for_for_ever() {
    let patience = Patience { body: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut client = server.client();
    client.head("POST", "/v1/events", &["content-type: application/json"], Some(100));
    client.write(b"{");
    client.reply().refused(408, "body.timeout");
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
    let patience = Patience { answer: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    server.put("/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    server.post("/v1/groups/g/pull", r#"{"wait":"30s"}"#).refused(503, "request.timeout");
}

/// Everything that a half-closed connection is told, until the server closes its half, too.
fn told(client: &mut Client) -> String {
    client.end();
    let mut told = String::new();
    client.reader.read_to_string(&mut told).unwrap();
    told
}

#[test]
fn who_has_closed_their_half_is_answered() {
    let server = Server::start();
    server.put("/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    for n in 1..=10 {
        let mut client = server.client();
        let body = br#"{"topic":"a.b"}"#;
        client.head("POST", "/v1/events", &["content-type: application/json"], Some(body.len()));
        client.write(body);
        let told = told(&mut client);
        assert!(told.starts_with("HTTP/1.1 201"), "{n}: {told}");
    }
    let mut client = server.client();
    client.head("GET", "/v1/events", &[], Some(0));
    let events = told(&mut client);
    assert!(
        events.starts_with("HTTP/1.1 200") && events.matches("\"topic\":\"a.b\"").count() == 10,
        "{events}"
    );
    // Nobody may be there any more: what is there is handed out, what would come later is not waited for.
    for deliveries in [10, 0] {
        let mut client = server.client();
        let body = br#"{"wait":"60s"}"#;
        let media = ["content-type: application/json"];
        client.head("POST", "/v1/groups/g/pull", &media, Some(body.len()));
        client.write(body);
        let told = told(&mut client);
        assert_eq!(told.matches("\"token\"").count(), deliveries, "{told}");
    }
    let mut client = server.client();
    client.head("GET", "/v1/events/stream?after=0", &[], Some(0));
    let told = told(&mut client);
    assert!(told.contains("event: ready") && told.matches("\nid: ").count() == 10, "{told}");
}

#[test]
fn a_head_that_stops_half_way_is_not_waited_for_as_long_as_an_idle_client() {
    let patience = Patience { begun: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    for begun in [&b"GET /livez HTT"[..], b"P"] {
        let mut client = server.client();
        client.write(begun);
        let mut rest = String::new();
        let _ = client.reader.read_to_string(&mut rest);
        assert!(!rest.contains("200"), "{rest}");
    }
    let mut client = server.client();
    assert_eq!(client.send("GET", "/livez", &[], "").status, 200);
    client.write(b"GET /livez HTT");
    let mut rest = String::new();
    let _ = client.reader.read_to_string(&mut rest);
    assert_eq!(rest, "");
}

#[test]
fn who_sends_far_too_much_gets_to_read_the_refusal() {
    let server = Server::start();
    for (path, status) in [("/v1/events", 413), ("/v1/nothing", 404)] {
        let mut client = server.client();
        let bytes = 100 << 20;
        client.head("POST", path, &["content-type: application/json"], Some(bytes));
        let part = vec![b' '; 1 << 20];
        for _ in 0..bytes / part.len() {
            client.reader.get_mut().write_all(&part).unwrap();
        }
        assert_eq!(client.reply().status, status);
    }
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    let patience = Patience { head: Duration::from_millis(50), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut client = server.client();
    client.write(b"GET /livez HTT");
    let mut rest = String::new();
    let _ = client.reader.read_to_string(&mut rest);
    assert!(!rest.contains("200"), "{rest}");
}

#[test]
fn what_is_no_http_is_refused_and_the_server_goes_on() {
    let server = Server::start();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        let mut client = server.client();
        client.write(bytes);
        client.end();
        let mut rest = Vec::new();
        let _ = client.reader.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&rest));
    }
    let mut client = server.client();
    let long = format!("x-long: {}", "x".repeat(100_000));
    client.head("GET", "/livez", &[&long], Some(0));
    let mut rest = Vec::new();
    let _ = client.reader.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&rest));
    server.get("/livez").ok(200);
}

#[test]
fn who_holds_the_directory_is_let_in_and_a_wrong_token_is_told_how_to_ask() {
    let server = Server::start_with(Patience::default(), Some("secret"));
    server.get("/v1/events").refused(401, "auth.required");
    server.send("GET", "/v1/events", &["authorization: Bearer secret"], "").ok(200);
    let reply = server.send("GET", "/v1/events", &["authorization: Bearer wrong"], "");
    reply.refused(401, "auth.required");
    assert_eq!(reply.headers["www-authenticate"], "Bearer");
}

#[test]
fn health_is_open_and_says_why_not() {
    let server = Server::start();
    server.get("/livez").ok(200);
    assert_eq!(server.get("/readyz").ok(200), json!({"ready": true, "failing": []}));
    assert_eq!(server.send("HEAD", "/livez", &[], "").status, 200);
}

#[test]
fn metrics_count_what_happened() {
    let server = Server::start();
    server.publish("a.b", "{}");
    server.publish("a.b", "{}");
    server.put("/v1/groups/g", r#"{"pattern":"a.b","start":"beginning"}"#).ok(201);
    let reply = server.get("/metrics");
    assert_eq!(reply.status, 200);
    assert!(reply.headers["content-type"].starts_with("text/plain; version=0.0.4"));
    let text = reply.text();
    for line in [
        r#"events_publish_count{topic="a.b"} 2"#,
        r#"everwhen_attention_total{verdict="drop"} 0"#,
        r#"everwhen_runs{status="cancelled"} 0"#,
        r#"everwhen_group_lag{group="g"} 2"#,
        "events_storage_full 0",
        "# TYPE events_handle histogram",
        "# TYPE events_handle_ok_total counter",
        "# TYPE events_handle_err_total counter",
        "# TYPE events_dlq_total counter",
        "# TYPE everwhen_append_sync_seconds histogram",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn the_type_of_a_problem_leads_to_a_page() {
    let server = Server::start();
    let problem = server.get("/v1/events/nobody").json();
    let page = server.get(problem["type"].as_str().unwrap());
    assert_eq!(page.status, 200);
    assert!(page.text().contains("event.not_found"));
    server.get("/errors/nonsense").refused(404, "not_found");
}

#[test]
fn a_page_of_another_site_can_neither_read_nor_change_anything() {
    let server = Server::start();
    let ask = |head: &str, body: &str| {
        let mut client = server.client();
        let length = body.len();
        client.write(format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes());
        client.reply()
    };
    let event = r#"{"topic":"a.b"}"#;
    let page = "origin: http://evil.example\r\ncontent-type: application/json";
    ask(&format!("POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n{page}"), event).refused(403, "auth.denied");
    ask(&format!("POST /v1/groups/g/pause HTTP/1.1\r\nhost: 127.0.0.1\r\n{page}"), "")
        .refused(403, "auth.denied");
    ask("GET /v1/events HTTP/1.1\r\nhost: evil.example", "").refused(403, "auth.denied");
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]));
    let own = format!("origin: http://{}\r\ncontent-type: application/json", server.address);
    ask(&format!("POST /v1/events HTTP/1.1\r\nhost: {}\r\n{own}", server.address), event).ok(201);
}

#[test]
fn asking_a_tenant_that_is_not_there_does_not_make_it() {
    let server = Server::start();
    let (json_body, other) = ("content-type: application/json", "everwhen-tenant: other");
    let both = [json_body, other];
    assert_eq!(server.send("GET", "/v1/groups", &[other], "").ok(200)["groups"], json!([]));
    assert_eq!(server.send("GET", "/v1/events", &[other], "").ok(200)["events"], json!([]));
    server.send("GET", "/v1/events/1", &[other], "").refused(404, "event.not_found");
    server.send("GET", "/v1/groups/g", &[other], "").refused(404, "group.not_found");
    server.send("POST", "/v1/groups/g/pull", &both, "{}").refused(404, "group.not_found");
    server.send("POST", "/v1/groups/g/pause", &[other], "").refused(404, "group.not_found");
    server.send("POST", "/v1/events", &both, r#"{"topic":"a b"}"#).refused(422, "event.topic_invalid");
    server.send("PUT", "/v1/groups/g", &both, r#"{"pattern":"a..b"}"#).refused(422, "pattern.invalid");
    assert!(!server.engine.has_tenant("other"));
    server.send("PUT", "/v1/groups/g", &both, r##"{"pattern":"#"}"##).ok(201);
    server.send("POST", "/v1/events", &both, r#"{"topic":"a.b"}"#).ok(201);
    let pulled = server.send("POST", "/v1/groups/g/pull", &both, "{}").ok(200);
    assert_eq!(pulled["deliveries"][0]["event"]["topic"], "a.b");
}

#[test]
fn pushes_and_deferred_publishes_come_in_pages() {
    let server = Server::start_with_settings(|settings| {
        settings.attention.push(engine::settings::AttentionRule {
            topic: model::topic::Pattern::parse("later.*").unwrap(),
            filter: None,
            rate: None,
            verdict: engine::settings::Verdict::Defer { until: Duration::from_secs(3_600) },
        });
    });
    for name in ["a", "b", "c"] {
        let push = json!({"url": "https://example.org/in", "pattern": "x.y"}).to_string();
        server.put(&format!("/v1/push/{name}"), push).ok(201);
        server.post("/v1/events", format!(r#"{{"topic":"later.{name}"}}"#)).ok(202);
    }
    let first = server.get("/v1/push?limit=2").ok(200);
    assert_eq!((first["pushes"].as_array().unwrap().len(), &first["next"]), (2, &json!("b")));
    let rest = server.get("/v1/push?limit=2&cursor=b").ok(200);
    assert_eq!((&rest["pushes"][0]["name"], rest.get("next")), (&json!("c"), None));
    let (mut topics, mut cursor) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = server.get(&format!("/v1/events/deferred?limit=1&cursor={cursor}")).ok(200);
        topics.push(page["deferred"][0]["event"]["topic"].as_str().unwrap().to_owned());
        cursor = page["next"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(
        (topics, cursor.as_str()),
        (["later.a", "later.b", "later.c"].map(str::to_owned).to_vec(), "")
    );
    server.get("/v1/events/deferred?cursor=b").refused(400, "request.invalid");
}

#[test]
fn an_answer_that_shows_a_run_is_not_kept_in_the_ledger_for_its_key() {
    let server = Server::start();
    let quick = json!({"automation": "quick", "triggers": [{"manual": true}],
        "actions": [{"vars": {"word": "{{ input.word }}"}}]});
    server.post("/v1/automations", quick.to_string()).ok(201);
    let start = json!({"automation": "quick", "input": {"word": "canary"}}).to_string();
    let headers = |key: &str, more: &str| {
        vec!["content-type: application/json".to_owned(), key.to_owned(), more.to_owned()]
    };
    for (key, more, status) in [("shown", "prefer: wait=20", 200), ("begun", "x-nothing: 1", 202)] {
        let headers = headers(&format!("idempotency-key: {key}"), more);
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let run = server.send("POST", "/v1/runs", &headers, &start).ok(status);
        assert_eq!(server.send("POST", "/v1/runs", &headers, &start).ok(status), run, "the same again");
    }
    let notes = server.get("/v1/events?topic=engine.request.answered").ok(200);
    let notes: Vec<_> = notes["events"].as_array().unwrap().iter().map(|note| &note["payload"]).collect();
    assert_eq!(notes.len(), 2, "{notes:#?}");
    assert_eq!((&notes[0]["status"], notes[0].get("answer")), (&json!(200), None));
    assert!(notes[1]["answer"].as_str().unwrap().contains("run_"), "{notes:#?}");
}

/// Every route that does something and takes no field, as the document lists them.
#[test]
fn a_route_that_takes_nothing_refuses_what_is_said_to_it() {
    let server = Server::start();
    let document = server.get("/openapi.json").ok(200);
    let mut looked_at = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let bare = |method: &&str| methods.get(*method).is_some_and(|line| line.get("requestBody").is_none());
        for method in ["post", "put", "patch", "delete"].into_iter().filter(bare) {
            let (filled, json) = (path.replace(['{', '}'], ""), ["content-type: application/json"]);
            let send = |body: &str| server.send(&method.to_uppercase(), &filled, &json, body);
            let (status, code) = match path.split('/').nth(2) {
                Some("groups") => (422, "group.invalid"),
                Some("push") => (422, "push.invalid"),
                _ => (400, "request.invalid"),
            };
            let problem = send(r#"{"dry_run":true}"#).refused(status, code);
            assert_eq!(problem["pointer"], "/dry_run", "{method} {path}");
            send("nonsense").refused(400, "json.invalid");
            looked_at += 1;
        }
    }
    assert!(looked_at > 10, "{looked_at}");
}

#[test]
fn a_space_is_forgotten_only_by_who_says_nothing_more() {
    let server = Server::start();
    for empty in ["", "{}", " \n"] {
        server.post("/v1/spaces/q/seal", empty).ok(200);
    }
    for said in [r#"{"dry_run":true}"#, "nonsense", "[]", "null"] {
        assert!(server.post("/v1/spaces/q/forget", said).status >= 400, "{said}");
    }
    let form = ["content-type: application/x-www-form-urlencoded"];
    server.send("POST", "/v1/spaces/q/forget", &form, "dry_run=1").refused(415, "body.type");
    let spaces = server.get("/v1/spaces").ok(200);
    assert!(spaces["spaces"][0].get("forgotten_at").is_none_or(|at| at.is_null()), "{spaces}");
    // As `curl -d ''` sends it.
    server.send("POST", "/v1/spaces/q/forget", &form, "").ok(200);
}

#[test]
fn what_no_event_has_as_its_space_is_refused_where_it_is_named() {
    let server = Server::start();
    let long = "s".repeat(1_025);
    for space in ["a b", "a\nb", "_x", "*", "", &long] {
        let hook = json!({"scheme": "hmac", "secret": "s3cret", "space": space}).to_string();
        let group = json!({"pattern": "a.#", "space": space}).to_string();
        let push = json!({"url": "https://example.org/", "pattern": "a.#", "space": space}).to_string();
        let token = json!({"role": "viewer", "spaces": ["a", space]}).to_string();
        for (reply, code, pointer) in [
            (server.put("/v1/hooks/h", hook), "hook.invalid", "/space"),
            (server.put("/v1/groups/g", group), "group.invalid", "/space"),
            (server.put("/v1/push/p", push), "push.invalid", "/space"),
            (server.post("/v1/tokens", token), "token.invalid", "/spaces/1"),
        ] {
            assert_eq!(reply.refused(422, code)["pointer"], pointer, "{space:?}");
        }
    }
    // What the engine says itself is in `_system`: it can be read there, and not delivered to.
    let hook = json!({"scheme": "hmac", "secret": "s3cret", "space": "_system"}).to_string();
    server.put("/v1/hooks/h", hook).refused(422, "hook.invalid");
    server.put("/v1/groups/g", r#"{"pattern":"engine.#","space":"_system"}"#).ok(201);
    server.post("/v1/tokens", r#"{"role":"viewer","spaces":["_system","größe"]}"#).ok(201);
}

#[test]
fn a_refusal_names_what_was_sent() {
    let server = Server::start();
    let detail = |path: &str, body: &str| server.post(path, body).json()["detail"].clone();
    assert_eq!(detail("/v1/tenants", r#"{"name":5}"#), "\"name\" is a text, not 5");
    assert_eq!(detail("/v1/tenants", "{}"), "\"name\" is missing");
    assert_eq!(detail("/v1/tokens", "{}"), "\"role\" is missing");
    assert_eq!(detail("/v1/tokens", r#"{"role":7}"#), "7 is no role");
    let cursor = server.get("/v1/audit?cursor=zz").refused(400, "request.invalid");
    assert!(!cursor["hint"].as_str().unwrap().contains("topic"), "{cursor}");
}

#[test]
fn every_delete_answers_alike() {
    let server = Server::start();
    let automation = r#"{"automation":"au","triggers":[{"manual":true}],"actions":[{"delay":0}]}"#;
    server.post("/v1/automations", automation).ok(201);
    let made = [
        ("/v1/groups/g", r#"{"pattern":"a.*"}"#),
        ("/v1/subscriptions/s", r#"{"pattern":"a.*","automation":"au"}"#),
        ("/v1/hooks/h", r#"{"scheme":"hmac","secret":"s3cret"}"#),
        ("/v1/secrets/x", r#"{"value":"a-long-enough-value"}"#),
        ("/v1/push/p", r#"{"url":"https://example.com/","pattern":"a.*"}"#),
    ];
    for (path, body) in made {
        server.put(path, body).ok(201);
    }
    server.apply("t/c.ew", "concept thing {\n  name string\n}\n");
    server.put("/v1/entities/thing/one", r#"{"name":"x"}"#).ok(201);
    server.post("/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let token = server.post("/v1/tokens", r#"{"role":"viewer"}"#).ok(201);
    let token = format!("/v1/tokens/{}", token["id"].as_str().unwrap());
    let others = ["/v1/automations/au", "/v1/entities/thing/one", "/v1/tenants/acme"];
    let all: Vec<&str> = made.iter().map(|(path, _)| *path).chain(others).collect();
    for path in &all {
        server.send("DELETE", path, &[], "").gone();
        let again = server.send("DELETE", path, &[], "");
        assert_eq!(again.problem().0, 404, "{path}: {}", again.text());
    }
    // A token that is revoked is still there, to be read; one that never was is not.
    server.send("DELETE", &token, &[], "").gone();
    server.send("DELETE", &token, &[], "").gone();
    assert_eq!(server.send("DELETE", "/v1/tokens/tok_none", &[], "").problem().0, 404);
    let deletes = server::ROUTES.iter().filter(|route| route.method == "delete").count();
    assert_eq!(deletes, all.len() + 1, "every route that deletes");
}

#[test]
fn a_field_that_a_door_of_groups_does_not_know_has_one_code() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.*"}"#).ok(201);
    server.put("/v1/groups/h", r#"{"pattern":"a.*","nope":1}"#).refused(422, "group.invalid");
    let verbs = ["pull", "ack", "nack", "extend", "reject", "seek", "pause", "resume", "dispatch"];
    let paths = verbs.iter().map(|verb| ("POST", format!("/v1/groups/g/{verb}")));
    let others =
        [("POST", "/v1/groups/g/dead-letters/redrive".to_owned()), ("DELETE", "/v1/groups/g".to_owned())];
    for (method, path) in paths.chain(others) {
        let refused = server.send(method, &path, &["content-type: application/json"], r#"{"nope":1}"#);
        assert_eq!(refused.refused(422, "group.invalid")["pointer"], "/nope", "{method} {path}");
    }
}
