//! What is administered in part, or by another door than HTTP, is written down like the rest.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Server;
use crate::rights::{LOCAL, asked, server, token};
use crate::socket::Socket;

fn acts(server: &Server) -> Vec<Value> {
    server.get("/v1/audit").ok(200)["acts"].as_array().unwrap().clone()
}

#[test]
fn an_import_that_breaks_off_is_written_down_with_what_it_brought() {
    let server = Server::start();
    let lines: String = (0..600).map(|n| format!("{{\"id\":\"x{n}\",\"topic\":\"in.a\"}}\n")).collect();
    let ndjson = ["content-type: application/x-ndjson", "x-request-id: half"];
    let refused = server.send("POST", "/v1/import", &ndjson, format!("{lines}{{\"topic\":\"a b\"}}\n"));
    assert_eq!(refused.status, 422, "{}", refused.text());
    let half = &acts(&server)[0];
    assert_eq!((&half["act"], &half["request_id"]), (&json!("import"), &json!("half")));
    assert_eq!((&half["status"], &half["done"]["imported"]), (&json!(422), &json!(500)));
    let nothing = server.send("POST", "/v1/import", &ndjson, "{\"topic\":\"a b\"}\n");
    assert_eq!(nothing.status, 422);
    assert_eq!(acts(&server).len(), 1, "what brought nothing is no act");
}

#[test]
fn an_import_whose_client_goes_away_is_written_down_too() {
    let server = Server::start();
    let mut client = server.client();
    client.head("POST", "/v1/import", &["content-type: application/x-ndjson"], None);
    for n in 0..600 {
        client.chunk(format!("{{\"id\":\"x{n}\",\"topic\":\"in.a\"}}\n").as_bytes());
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    let brought =
        || server.get("/v1/events?topic=in.a&limit=1000").ok(200)["events"].as_array().unwrap().len();
    while brought() < 500 {
        assert!(Instant::now() < deadline);
    }
    drop(client);
    while acts(&server).is_empty() {
        assert!(Instant::now() < deadline, "nothing was written down");
    }
    assert_eq!(
        (&acts(&server)[0]["act"], &acts(&server)[0]["done"]["imported"]),
        (&json!("import"), &json!(500))
    );
}

#[test]
fn what_is_done_to_many_runs_says_to_how_many() {
    let server = Server::start();
    let work = r#"{"automation":"work","triggers":[{"event":"job.*"}],"mode":"parallel","actions":[{"delay":"1h"}]}"#;
    server.post("/v1/automations", work).ok(201);
    server.publish("job.a", "{}");
    server.publish("job.b", "{}");
    server.post("/v1/runs/bulk", r#"{"do":"cancel","where":{}}"#).ok(200);
    let bulk = &acts(&server)[0];
    assert_eq!((&bulk["act"], &bulk["done"]), (&json!("runs.bulk"), &json!({"matched": 2, "done": 2})));
}

#[test]
fn automations_changed_over_a_websocket_are_written_down_like_those_of_http() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &["x-request-id: ws-1", "everwhen-actor: user:ann"]);
    let definition = json!({"name": "work", "triggers": [{"event": "job.*"}], "actions": [{"delay": "1h"}]});
    for message in [
        json!({"type": "create_automation", "automation": definition}),
        json!({"type": "create_automation", "automation": definition}),
        json!({"type": "toggle_automation", "automationId": "work", "enabled": false}),
        json!({"type": "update_automation", "automationId": "work", "patch": {"description": "x"}}),
        json!({"type": "get_automation", "automationId": "work"}),
        json!({"type": "delete_automation", "automationId": "work"}),
        json!({"type": "delete_automation", "automationId": "work"}),
    ] {
        socket.say(&message);
        socket.json();
    }
    let acts = acts(&server);
    let named: Vec<(&str, &str)> =
        acts.iter().map(|act| (act["act"].as_str().unwrap(), act["path"].as_str().unwrap())).collect();
    let expected = [
        ("automations.delete", "/v1/automations/work"),
        ("automations.patch", "/v1/automations/work"),
        ("automations.disable", "/v1/automations/work/disable"),
        ("automations.create", "/v1/automations"),
    ];
    assert_eq!(named, expected, "newest first, and only what was done");
    assert!(acts.iter().all(|act| act["request_id"] == "ws-1" && act["actor"] == "user:ann"), "{acts:?}");
}

#[test]
fn a_tool_that_was_refused_is_no_act_and_one_that_was_done_is() {
    let server = Server::start();
    let call = |name: &str, arguments: Value| {
        let said = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": arguments}});
        let headers = ["content-type: application/json", "x-request-id: mcp-1"];
        server.send("POST", "/mcp", &headers, said.to_string()).ok(200)["result"].clone()
    };
    let files = json!({"a.yaml": "automation: a\ntriggers: [{manual: true}]\nactions: [{delay: 1h}]\n"});
    let plan = call("propose_change", json!({ "files": files }));
    let hash = plan["structuredContent"]["hash"].clone();
    assert!(hash.is_string(), "{plan}");
    assert_eq!(call("apply_change", json!({"files": files, "hash": "0"}))["isError"], true);
    assert!(acts(&server).is_empty());
    call("apply_change", json!({"files": files, "hash": hash}));
    let found = acts(&server);
    assert_eq!(
        (found.len(), &found[0]["act"], &found[0]["request_id"]),
        (1, &json!("apply"), &json!("mcp-1"))
    );
}

/// Everything that tells of events, as one token is told.
fn told_of(server: &Server, token: &str, position: u64) -> String {
    let paths = [
        "/v1/events?topic=engine.%23".to_owned(),
        "/v1/events?topic=engine.audit.%23&order=desc".to_owned(),
        format!("/v1/events/{position}"),
        format!("/v1/events/{position}/lineage"),
        format!("/v1/explain/event/{position}"),
        "/?topic=engine.%23".to_owned(),
        format!("/ui/events/{position}"),
    ];
    let mut told: String = paths.iter().map(|path| asked(server, token, "GET", path, "").text()).collect();
    let search = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "search_events", "arguments": {"topic": "engine.#"}}});
    told += &asked(server, token, "POST", "/mcp", &search.to_string()).text();
    told += &asked(server, token, "POST", "/v1/groups/acts/pull", r#"{"max":10}"#).text();
    let bearer = format!("authorization: Bearer {token}");
    let mut socket = Socket::open(server, &[&bearer]);
    let config = json!({"after": 0});
    let heard =
        json!({"subscribe": {"subscription_id": "s", "kind": 550, "filter": "engine.#", "config": config}});
    socket.ask(heard);
    socket.say(&json!({"message_id": "m", "payload": {"subscribe": {"subscription_id": "t", "kind": 550,
        "filter": "mark.#", "config": config}}}));
    // The mark was published after the act: whoever has heard it has heard what stands before.
    loop {
        let said = socket.json().to_string();
        told += &said;
        if said.contains("mark.set") && said.contains("subscription_id\":\"t") {
            return told;
        }
    }
}

#[test]
fn acts_of_administration_are_absent_for_who_does_not_administer() {
    let server = server();
    let (admin, _) = token(&server, "main", json!({"role": "admin"}));
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    asked(&server, &admin, "PUT", "/v1/groups/acts", r##"{"pattern":"engine.#","start":"beginning"}"##)
        .ok(201);
    asked(&server, &admin, "PUT", "/v1/secrets/canary-name", r#"{"value":"hunter22"}"#).ok(201);
    asked(&server, &admin, "POST", "/v1/events", r#"{"topic":"mark.set"}"#).ok(201);
    let act = asked(&server, &admin, "GET", "/v1/events?topic=engine.audit.secrets.put", "").ok(200);
    let position = act["events"][0]["position"].as_u64().unwrap();
    let seen = told_of(&server, &editor, position);
    assert!(!seen.contains("engine.audit") && !seen.contains("canary-name"), "{seen}");
    asked(&server, &editor, "GET", &format!("/v1/events/{position}"), "").refused(404, "event.not_found");
    asked(&server, &editor, "PUT", "/v1/groups/mine", r##"{"pattern":"engine.audit.#"}"##)
        .refused(403, "auth.denied");
    let seen = told_of(&server, &admin, position);
    assert!(seen.matches("canary-name").count() >= 6, "{seen}");
    assert!(
        asked(&server, LOCAL, "GET", "/v1/events?topic=engine.audit.%23", "").text().contains("canary-name")
    );
}

#[test]
fn which_requests_were_answered_is_told_to_those_who_administer() {
    let server = server();
    let (admin, _) = token(&server, "main", json!({"role": "admin"}));
    let (viewer, _) = token(&server, "main", json!({"role": "viewer"}));
    let bearer = format!("authorization: Bearer {admin}");
    let headers = [bearer.as_str(), "content-type: application/json", "idempotency-key: k1"];
    server.send("POST", "/v1/tokens", &headers, r#"{"role":"viewer","name":"x"}"#).ok(201);
    asked(&server, &admin, "POST", "/v1/events", r#"{"topic":"mark.set"}"#).ok(201);
    let note = asked(&server, &admin, "GET", "/v1/events?topic=engine.request.%23", "").ok(200);
    let note = &note["events"][0];
    assert_eq!(note["payload"]["path"], "/v1/tokens", "{note}");
    let seen = told_of(&server, &viewer, note["position"].as_u64().unwrap());
    assert!(!seen.contains("engine.request") && !seen.contains("/v1/tokens"), "{seen}");
    let all = asked(&server, &viewer, "GET", "/v1/events", "").text();
    assert!(all.contains("mark.set") && !all.contains("engine.request"), "{all}");
    let id = note["id"].as_str().unwrap();
    asked(&server, &viewer, "GET", &format!("/v1/events/{id}"), "").refused(404, "event.not_found");
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    for pattern in ["engine.request.#", "engine.push.disabled"] {
        let group = json!({ "pattern": pattern }).to_string();
        asked(&server, &editor, "PUT", "/v1/groups/mine", &group).refused(403, "auth.denied");
    }
}
