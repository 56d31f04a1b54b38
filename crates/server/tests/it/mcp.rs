//! The Model Context Protocol: both eras of it, tools with the rights of the token, and changes that were confirmed.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::harness::Server;

const YAML: &str = "automation: greet\ntriggers:\n  - every: 1h\n  - event: in.*\nactions:\n  - publish: {topic: out.done}\n";

fn send(server: &Server, headers: &[&str], message: &Value) -> Reply {
    let headers =
        [&["content-type: application/json", "accept: application/json, text/event-stream"], headers];
    server.send("POST", "/mcp", &headers.concat(), message.to_string())
}

fn ask(server: &Server, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let said = send(server, &[], &message).ok(200);
    assert_eq!((&said["jsonrpc"], &said["id"]), (&json!("2.0"), &json!(1)));
    said
}

/// What a tool answered; the text says the same.
fn call(server: &Server, name: &str, arguments: Value) -> Value {
    let said = ask(server, "tools/call", json!({"name": name, "arguments": arguments}))["result"].take();
    assert_eq!(said["isError"], false, "{said}");
    let text: Value = serde_json::from_str(said["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, said["structuredContent"]);
    said["structuredContent"].clone()
}

fn fails(server: &Server, name: &str, arguments: Value) -> String {
    let said = ask(server, "tools/call", json!({"name": name, "arguments": arguments}))["result"].take();
    assert_eq!((&said["isError"], said.get("structuredContent")), (&json!(true), None), "{said}");
    said["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_handshake_settles_the_revision_and_tools_are_listed_with_their_hints() {
    let server = Server::start();
    for (asked, given) in
        [("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25")]
    {
        let hello = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let result = ask(&server, "initialize", hello)["result"].take();
        assert_eq!(
            (&result["protocolVersion"], &result["serverInfo"]["name"]),
            (&json!(given), &json!("everwhen"))
        );
        assert!(result["capabilities"]["tools"].is_object());
    }
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let reply = send(&server, &["mcp-protocol-version: 2025-11-25"], &initialized);
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    assert_eq!(ask(&server, "ping", json!({}))["result"], json!({}));
    let tools = ask(&server, "tools/list", json!({}))["result"]["tools"].take();
    let tools = tools.as_array().unwrap();
    let hint = |name: &str, hint: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert!(tool["inputSchema"]["type"] == "object" && tool["outputSchema"]["type"] == "object");
        tool["annotations"][hint].as_bool().unwrap()
    };
    for name in ["search_events", "get_run", "explain", "list_automations", "next_runs", "propose_change"] {
        assert!(hint(name, "readOnlyHint") && !hint(name, "destructiveHint"), "{name}");
    }
    assert!(!hint("publish_event", "readOnlyHint") && hint("apply_change", "destructiveHint"));
}

#[test]
fn tools_read_what_was_published_and_say_what_is_wrong() {
    let server = Server::start();
    server.apply("a.yaml", YAML);
    let published =
        call(&server, "publish_event", json!({"topic": "in.a", "payload": {"n": 1.5}, "key": "k"}));
    let again = call(&server, "publish_event", json!({"topic": "in.a", "payload": {"n": 1.5}, "key": "k"}));
    assert_eq!((&again["duplicate"], &again["position"]), (&json!(true), &published["position"]));
    let found = call(&server, "search_events", json!({"topic": "in.#", "limit": 5, "order": "desc"}));
    assert_eq!(found["events"][0]["payload"], json!({"n": 1.5}));
    let event = call(&server, "get_event", json!({"id": published["position"]}));
    assert_eq!(event["topic"], "in.a");
    assert_eq!(call(&server, "list_automations", json!({}))["automations"][0]["name"], "greet");
    assert_eq!(
        call(&server, "next_runs", json!({"name": "greet", "count": 2}))["next"].as_array().unwrap().len(),
        2
    );
    let run = call(&server, "list_runs", json!({"automation": "greet"}))["runs"][0]["id"].clone();
    assert_eq!(call(&server, "get_run", json!({"id": run}))["status"], "completed");
    let why = call(&server, "explain", json!({"what": "event", "id": published["position"].to_string()}));
    assert_eq!(why["automations"][0]["outcome"], "ran");
    assert!(fails(&server, "get_run", json!({"id": "run_0"})).contains("run.not_found"));
    assert!(fails(&server, "get_run", json!({})).contains("\"id\\\" is missing"));
    assert!(fails(&server, "search_events", json!({"colour": "red"})).contains("colour"));
    assert!(fails(&server, "publish_event", json!({"topic": "graph.x"})).contains("event.topic_reserved"));
}

#[test]
fn what_is_published_keeps_every_digit_and_no_key_comes_twice() {
    let server = Server::start();
    let publish = |payload: &str| {
        let arguments = format!(r#"{{"topic":"in.a","payload":{payload}}}"#);
        let params = format!(r#"{{"name":"publish_event","arguments":{arguments}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        server.post("/mcp", message)
    };
    let exact = r#"{"n":1.10,"big":12345678901234567890123}"#;
    let position = publish(exact).ok(200)["result"]["structuredContent"]["position"].clone();
    let event = server.get(&format!("/v1/events/{position}"));
    assert!(event.text().contains(exact), "{}", event.text());
    let params = json!({"name": "get_event", "arguments": {"id": position}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let read = send(&server, &[], &message);
    assert!(read.text().contains(exact), "{}", read.text());
    assert!(read.ok(200)["result"]["content"][0]["text"].as_str().unwrap().contains(exact));
    let twice = publish(r#"{"a":1,"a":2}"#);
    assert_eq!((twice.status, &twice.json()["error"]["code"]), (400, &json!(-32_700)));
    assert_eq!(twice.json()["error"]["data"]["code"], "json.duplicate_key");
    assert_eq!(server.get("/v1/events?topic=in.a").ok(200)["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_tool_is_called_once_under_a_key() {
    let server = Server::start();
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "publish_event", "arguments": {"topic": "a.b"}}});
    let first = send(&server, &["idempotency-key: k"], &message).ok(200);
    assert_eq!(first["result"]["isError"], false, "{first}");
    assert_eq!(send(&server, &["idempotency-key: k"], &message).ok(200), first);
    assert_eq!(server.get("/v1/events").ok(200)["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_change_is_applied_only_with_the_hash_of_the_plan_that_it_still_is() {
    let server = Server::start();
    let files = json!({"a.yaml": YAML});
    let plan = call(&server, "propose_change", json!({"files": files}));
    assert_eq!(plan["added"], json!(["automation greet"]));
    assert_eq!(call(&server, "list_automations", json!({}))["automations"], json!([]), "nothing was done");
    assert!(fails(&server, "apply_change", json!({"files": files})).contains("hash"));
    assert!(fails(&server, "apply_change", json!({"files": files, "hash": "0"})).contains("plan"));
    let other = json!({"a.yaml": YAML.replace("1h", "2h")});
    let hash = plan["hash"].clone();
    assert!(fails(&server, "apply_change", json!({"files": other, "hash": hash})).contains("plan"));
    let done = call(&server, "apply_change", json!({"files": files, "hash": hash}));
    assert_eq!(done["added"], json!(["automation greet"]));
    // An agent that lost the answer asks again: nothing is done, and it hears the same.
    let again = call(&server, "apply_change", json!({"files": files, "hash": hash}));
    assert_eq!((&again["added"], &again["duplicate"]), (&done["added"], &json!(true)), "{again}");
    let acts = server.get("/v1/audit").ok(200)["acts"].as_array().unwrap().len();
    call(&server, "apply_change", json!({"files": files, "hash": hash}));
    assert_eq!(server.get("/v1/audit").ok(200)["acts"].as_array().unwrap().len(), acts, "nothing is done");
    // In force or not: a hash of other files, or none that was given out, confirms nothing.
    let plan = call(&server, "propose_change", json!({"files": other}));
    assert_eq!(plan["changed"], json!(["automation greet"]));
    for foreign in [plan["hash"].clone(), json!("0"), json!("0".repeat(64))] {
        let said = fails(&server, "apply_change", json!({"files": files, "hash": foreign}));
        assert!(said.contains("propose the change again"), "{said}");
    }
    // What was confirmed once is stale when other files are in force meanwhile.
    call(&server, "apply_change", json!({"files": other, "hash": plan["hash"]}));
    assert!(fails(&server, "apply_change", json!({"files": files, "hash": hash})).contains("plan"), "stale");
    assert!(
        fails(&server, "propose_change", json!({"files": {"a.yaml": "automation: 7 7"}})).contains("a.yaml")
    );
}

#[test]
fn the_revision_without_a_handshake_says_everything_in_each_request() {
    let server = Server::start();
    let meta = |version: &str| {
        json!({"io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {}})
    };
    let ask = |method: &str, version: &str, headers: &[&str]| {
        let message =
            json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": {"_meta": meta(version)}});
        send(&server, headers, &message)
    };
    let both = ["mcp-protocol-version: 2026-07-28", "mcp-method: server/discover"];
    let found = ask("server/discover", "2026-07-28", &both).ok(200)["result"].take();
    assert_eq!(found["resultType"], "complete");
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    let listed = ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/list"];
    let tools = ask("tools/list", "2026-07-28", &listed).ok(200)["result"].take();
    assert!(tools["tools"].as_array().unwrap().len() >= 10 && tools["cacheScope"] == "private");
    let code = |reply: Reply| (reply.status, reply.json()["error"]["code"].as_i64().unwrap());
    assert_eq!(code(ask("tools/list", "2026-07-28", &listed[..1])), (400, -32_020), "no method in a header");
    assert_eq!(code(ask("tools/list", "2026-07-28", &both)), (400, -32_020), "another method");
    let old = ["mcp-protocol-version: 1900-01-01", "mcp-method: tools/list"];
    let refused = ask("tools/list", "1900-01-01", &old);
    assert_eq!(refused.json()["error"]["data"]["requested"], "1900-01-01");
    assert_eq!(code(refused), (400, -32_022));
    let unknown = ["mcp-protocol-version: 2026-07-28", "mcp-method: no/such"];
    assert_eq!(code(ask("no/such", "2026-07-28", &unknown)), (404, -32_601));
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(code(send(&server, &["mcp-protocol-version: not-a-version"], &legacy)), (400, -32_022));
}

#[test]
fn what_is_no_message_is_refused_and_a_foreign_page_too() {
    let server = Server::start();
    let code = |reply: Reply| (reply.status, reply.json()["error"]["code"].as_i64().unwrap());
    let json = ["content-type: application/json"];
    assert_eq!(code(server.send("POST", "/mcp", &json, "{")), (400, -32_700));
    assert_eq!(code(server.send("POST", "/mcp", &json, "[]")), (400, -32_600));
    assert_eq!(code(server.send("POST", "/mcp", &json, r#"{"id":1,"method":"ping"}"#)), (400, -32_600));
    assert_eq!(code(server.post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#)), (200, -32_601));
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nope"}});
    assert_eq!(code(send(&server, &[], &unknown)), (200, -32_602));
    assert_eq!(server.get("/mcp").status, 405);
    let page = send(
        &server,
        &["origin: http://evil.example"],
        &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    );
    page.refused(403, "auth.denied");
}

#[test]
fn an_agent_sees_and_may_what_its_token_may() {
    let server = Server::start_with(server::Patience::default(), Some("the-directory"));
    let made = server.send(
        "POST",
        "/v1/tokens",
        &["authorization: Bearer the-directory", "content-type: application/json"],
        r#"{"role":"viewer","name":"agent"}"#,
    );
    let bearer = format!("authorization: Bearer {}", made.ok(201)["token"].as_str().unwrap());
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    send(&server, &[], &list).refused(401, "auth.required");
    let tools = send(&server, &[&bearer], &list).ok(200)["result"]["tools"].take();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"search_events") && !names.contains(&"publish_event"), "{names:?}");
    let publish = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "publish_event", "arguments": {"topic": "a.b"}}});
    let refused = send(&server, &[&bearer], &publish).ok(200);
    assert_eq!(refused["error"]["code"], -32_602, "as good as absent: {refused}");
}
