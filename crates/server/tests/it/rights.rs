//! Tokens at the doors: none is 401, too little is 403 or absence, and no route lets one in that it should not.

use engine::authority::{Permission, Role};
use serde_json::{Value, json};

use crate::client::Reply;
use crate::harness::Server;
use crate::socket::Socket;

pub const LOCAL: &str = "the-token-of-serve-json";

pub fn server() -> Server {
    Server::start_with(Default::default(), Some(LOCAL))
}

pub fn asked(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Reply {
    let bearer = format!("authorization: Bearer {token}");
    let headers: &[&str] =
        if body.is_empty() { &[&bearer] } else { &[&bearer, "content-type: application/json"] };
    server.send(method, path, headers, body)
}

pub fn token(server: &Server, tenant: &str, said: Value) -> (String, String) {
    let bearer = format!("authorization: Bearer {LOCAL}");
    let tenant = format!("everwhen-tenant: {tenant}");
    let headers = [bearer.as_str(), tenant.as_str(), "content-type: application/json"];
    let made = server.send("POST", "/v1/tokens", &headers, said.to_string()).ok(201);
    (made["token"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
}

/// A path with something in place of its variables.
fn filled(path: &str) -> String {
    let words = path.split('/').map(|word| if word.starts_with('{') { "x1" } else { word });
    words.collect::<Vec<_>>().join("/")
}

/// A proxy on the machine passes on the name it is known by. What is open to this machine only, is not open to who came by that.
#[test]
fn with_tokens_a_server_may_be_known_by_any_name() {
    let server = server();
    let ask = |method: &str, path: &str, more: &str| {
        let mut client = server.client();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: events.example.org\r\n{more}");
        client.write(format!("{head}content-length: 0\r\n\r\n").as_bytes());
        client.reply()
    };
    let bearer = format!("authorization: Bearer {LOCAL}\r\n");
    ask("GET", "/livez", "").ok(200);
    ask("GET", "/v1/events", &bearer).ok(200);
    ask("GET", "/v1/events", "").refused(401, "auth.required");
    ask("GET", "/metrics", "").refused(401, "auth.required");
    assert_eq!(ask("GET", "/metrics", &bearer).status, 200);
    assert_eq!(server.get("/metrics").status, 200, "open to this machine");
    let page = format!("{bearer}origin: https://evil.example\r\n");
    ask("POST", "/mcp", &page).refused(403, "auth.denied");
}

#[test]
fn without_a_token_every_route_but_the_open_ones_is_401() {
    let server = server();
    for route in server::ROUTES {
        let (method, path) = (route.method.to_ascii_uppercase(), filled(route.path));
        let reply = server.send(&method, &path, &[], "");
        let open = matches!(route.needs, "open" | "metrics");
        assert_eq!(reply.status == 401, !open, "{method} {path}: {}", reply.status);
        for wrong in ["ew_owner_00000000000000000000000000000000_000000", "nonsense", ""] {
            let reply = asked(&server, wrong, &method, &path, "");
            // After many guesses from one address it is told to wait.
            let refused = matches!(reply.status, 401 | 429);
            assert_eq!(refused, !open, "{method} {path} with {wrong:?}: {}", reply.status);
        }
    }
}

#[test]
fn every_route_asks_each_role_for_what_it_needs() {
    let server = server();
    for role in Role::ALL {
        let (text, _) = token(&server, "main", json!({"role": role.as_str()}));
        for route in
            server::ROUTES.iter().filter(|route| !matches!(route.needs, "open" | "metrics" | "token"))
        {
            // It would end the token that asks, or stand still until there is an event. Pages are for people, see `page`.
            let page = route.path == "/" || route.path.starts_with("/ui/");
            if page || route.path.ends_with("/stream") || route.path == "/v1/backup" {
                continue;
            }
            let needed = Permission::parse(route.needs).unwrap();
            let (method, path) = (route.method.to_ascii_uppercase(), filled(route.path));
            let reply = asked(&server, &text, &method, &path, "");
            let denied = reply.status == 403 && reply.json()["code"] == "auth.denied";
            let administers =
                matches!(needed, Permission::Admin | Permission::AutomationAdmin | Permission::Node);
            let may = role.permissions().has(needed);
            match may {
                true => assert!(!denied, "{} may {method} {path}: {}", role.as_str(), reply.text()),
                false if method == "GET" && !administers => {
                    let said = reply.json();
                    let absent = reply.status == 404 && said["detail"] == "there is nothing here";
                    let empty = reply.status == 200
                        && said.as_object().unwrap().values().all(|list| *list == json!([]));
                    assert!(absent || empty, "{} reads {path}: {}", role.as_str(), reply.text());
                }
                false => assert!(denied, "{} was let into {method} {path}: {}", role.as_str(), reply.text()),
            }
        }
    }
}

#[test]
fn an_empty_list_has_the_shape_of_its_own() {
    let server = server();
    let (publisher, _) = token(&server, "main", json!({"role": "publisher"}));
    for (path, name) in [("/v1/events", "events"), ("/v1/events/deferred", "deferred")] {
        assert_eq!(asked(&server, &publisher, "GET", path, "").ok(200), json!({ name: [] }));
    }
}

#[test]
fn a_token_sees_its_tenant_only_whatever_it_names() {
    let server = server();
    let (ours, _) = token(&server, "one", json!({"role": "owner", "name": "ours"}));
    let (theirs, _) = token(&server, "two", json!({"role": "owner"}));
    let said = r#"{"topic":"a.b","payload":{"n":1},"id":"secret-event"}"#;
    let event = asked(&server, &ours, "POST", "/v1/events", said).ok(201);
    assert_eq!(asked(&server, &ours, "GET", "/v1/events/secret-event", "").ok(200)["actor"], "token:ours");
    let foreign = asked(&server, &theirs, "GET", "/v1/events/secret-event", "");
    let absent = asked(&server, &theirs, "GET", "/v1/events/another-event", "");
    let shape = |reply: &Reply| {
        let said = reply.json();
        (reply.status, said["code"].clone(), said["detail"].as_str().unwrap().replace("secret", "another"))
    };
    assert_eq!(shape(&foreign), shape(&absent));
    let bearer = format!("authorization: Bearer {theirs}");
    let naming = |method: &str, path: &str, tenant: &str, body: &str| {
        let named = format!("everwhen-tenant: {tenant}");
        let headers = [bearer.as_str(), named.as_str(), "content-type: application/json"];
        server.send(method, path, &headers, body)
    };
    for (method, path, body) in [("GET", "/v1/events?topic=a.b", ""), ("POST", "/v1/events", said)] {
        let there = naming(method, path, "one", body).refused(403, "auth.denied");
        let mut absent = naming(method, path, "none", body).refused(403, "auth.denied");
        absent["detail"] = absent["detail"].as_str().unwrap().replace("none", "one").into();
        absent["request_id"] = there["request_id"].clone();
        assert_eq!(there, absent, "a tenant that is there and one that is not are told apart");
        assert!((200..300).contains(&naming(method, path, "two", body).status), "its own may be named");
    }
    let events = asked(&server, &ours, "GET", "/v1/events?topic=a.b", "").ok(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "nothing came from elsewhere: {event}");
}

#[test]
fn a_token_gives_out_no_more_than_it_has_and_a_revoked_one_gives_out_nothing() {
    let server = server();
    let (admin, id) = token(&server, "main", json!({"role": "admin"}));
    asked(&server, &admin, "POST", "/v1/tokens", r#"{"role":"owner"}"#).refused(403, "auth.denied");
    let made = asked(&server, &admin, "POST", "/v1/tokens", r#"{"role":"viewer","expires_in":"1h"}"#).ok(201);
    let viewer = made["token"].as_str().unwrap();
    asked(&server, viewer, "GET", "/v1/groups", "").ok(200);
    let listed = asked(&server, &admin, "GET", "/v1/tokens", "").ok(200);
    assert!(
        !listed.to_string().contains("ew_") && listed["tokens"].as_array().unwrap().len() == 2,
        "{listed}"
    );
    asked(&server, &admin, "DELETE", &format!("/v1/tokens/{}", made["id"].as_str().unwrap()), "").gone();
    asked(&server, viewer, "GET", "/v1/groups", "").refused(401, "auth.required");
    asked(&server, &admin, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    asked(&server, &admin, "GET", "/v1/tokens", "").refused(401, "auth.required");
    let (owner, owner_id) = token(&server, "main", json!({"role": "owner"}));
    let (other, _) = token(&server, "main", json!({"role": "admin", "scopes": ["admin"]}));
    asked(&server, &other, "DELETE", &format!("/v1/tokens/{owner_id}"), "").refused(403, "auth.denied");
    let lower = format!("authorization: bearer {owner}");
    server.send("GET", "/v1/tokens", &[&lower], "").ok(200);
    let (elsewhere, _) = token(&server, "two", json!({"role": "owner"}));
    asked(&server, &elsewhere, "POST", "/v1/backup", r#"{"to":"/tmp/x"}"#).refused(403, "auth.denied");
    let forged = r#"{"topic":"a.b","source":"hook:g","key":"d1"}"#;
    asked(&server, &owner, "POST", "/v1/events", forged).refused(422, "event.invalid");
    for bad in [
        json!({}),
        json!({"role": "viewer", "scopes": []}),
        json!({"role": "king"}),
        json!({"role": "viewer", "scopes": ["event:write"]}),
        json!({"role": "viewer", "scopes": "event:read"}),
        json!({"role": "viewer", "expires_in": "soon"}),
        json!({"role": "viewer", "spaces": []}),
        json!({"role": "viewer", "spaces": [""]}),
        json!({"role": "viewer", "max_band": "purple"}),
        json!({"role": "admin", "spaces": ["a"], "scopes": ["admin"]}),
    ] {
        asked(&server, LOCAL, "POST", "/v1/tokens", &bad.to_string()).refused(422, "token.invalid");
    }
}

#[test]
fn an_editor_declares_automations_but_none_that_could_carry_out_what_it_may_not_see() {
    let server = server();
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    let (admin, _) = token(&server, "main", json!({"role": "admin"}));
    let (viewer, _) = token(&server, "main", json!({"role": "viewer"}));
    let plain = json!({"automation": "one", "description": "no secret", "triggers": [{"event": "a.b"}],
        "actions": [{"publish": {"topic": "c.d"}}]});
    let declare = |by: &str, what: &Value| asked(&server, by, "POST", "/v1/automations", &what.to_string());
    let patch = |by: &str, name: &str, what: Value| {
        asked(&server, by, "PATCH", &format!("/v1/automations/{name}"), &what.to_string())
    };
    declare(&viewer, &plain).refused(403, "auth.denied");
    declare(&editor, &plain).ok(201);
    patch(&editor, "one", json!({"description": "other"})).ok(200);

    let calls = json!([{"http": {"method": "GET", "url": "https://example.com/",
        "headers": {"authorization": "Bearer {{ secret(\"key\") }}"}}}]);
    let mut carries = plain.clone();
    (carries["automation"], carries["actions"]) = (json!("two"), calls.clone());
    let refused = declare(&editor, &carries).refused(403, "auth.denied");
    assert!(refused["detail"].as_str().unwrap().contains("names a secret"), "{refused}");
    patch(&editor, "one", json!({"actions": calls.clone()})).refused(403, "auth.denied");
    declare(&admin, &carries).ok(201);
    // What is kept of it counts, too: by another trigger it would send the secret with what the editor says.
    patch(&editor, "two", json!({"triggers": [{"event": "x.y"}]})).refused(403, "auth.denied");
    patch(&editor, "two", json!({"actions": [{"publish": {"topic": "c.d"}}]})).ok(200);

    for pattern in ["engine.audit.#", "graph.node.created.v1:everwhen:token"] {
        let mut hears = plain.clone();
        (hears["automation"], hears["triggers"]) = (json!("three"), json!([{"event": pattern}]));
        let refused = declare(&editor, &hears).refused(403, "auth.denied");
        assert!(refused["detail"].as_str().unwrap().contains("acts of administration"), "{refused}");
    }
    let house = json!([{"entity": "v1:everwhen:push", "on": "created"}]);
    let mut hears = plain.clone();
    (hears["automation"], hears["triggers"]) = (json!("three"), house);
    declare(&editor, &hears).refused(403, "auth.denied");
    for step in [
        json!({"task": {"kind": "x", "input": {"description": "{{ secret(\"key\") }}"}}}),
        json!({"task": {"kind": "x", "input": {"a": "{{ Secret(\"key\") }}"}}}),
    ] {
        let mut hides = plain.clone();
        (hides["automation"], hides["actions"]) = (json!("three"), json!([step]));
        declare(&editor, &hides).refused(403, "auth.denied");
    }
    // The same over the WebSocket.
    let mut socket = Socket::open(&server, &[&format!("authorization: Bearer {editor}")]);
    let mut say = |message: Value| {
        socket.say(&message);
        socket.json()
    };
    let mut other = plain.clone();
    other["automation"] = json!("four");
    let made = say(json!({"type": "create_automation", "automation": other}));
    assert_eq!(made["type"], "automation_created", "{made}");
    (other["automation"], other["actions"]) = (json!("five"), calls.clone());
    let refused = say(json!({"type": "create_automation", "automation": other}));
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("auth.denied")), "{refused}");
    let patch = json!({"type": "update_automation", "automationId": "four", "patch": {"actions": calls}});
    assert_eq!(say(patch)["code"], "auth.denied");
    let gone = say(json!({"type": "delete_automation", "automationId": "four"}));
    assert_eq!(gone["type"], "automation_deleted", "{gone}");
    assert_eq!(asked(&server, &editor, "DELETE", "/v1/automations/one", "").status, 204);
    asked(&server, &editor, "POST", "/v1/apply", r#"{"files":{}}"#).refused(403, "auth.denied");
    // Runs see all rows, and so would whoever declares them.
    let owned = "@rowAuthz(owner=\"by\")\nconcept note {\n  by string!\n}\n";
    asked(&server, &admin, "POST", "/v1/apply", &json!({"files": {"d/concepts.ew": owned}}).to_string())
        .ok(200);
    let refused = declare(&editor, &plain).refused(403, "auth.denied");
    assert!(refused["detail"].as_str().unwrap().contains("@rowAuthz"), "{refused}");
    declare(&admin, &plain).ok(201);
}

#[test]
fn what_an_editor_may_not_declare_is_not_tried_for_it_and_starts_nothing_of_its() {
    let server = server();
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    let (admin, _) = token(&server, "main", json!({"role": "admin"}));
    let ask =
        |by: &str, method: &str, path: &str, body: Value| asked(&server, by, method, path, &body.to_string());
    let tried = |by: &str, triggers: &str, actions: &str| {
        let text = format!("automation: bt\nmode: parallel\ntriggers: [{triggers}]\nactions: [{actions}]\n");
        ask(by, "POST", "/v1/backtest", json!({"from": 1, "files": {"b.yaml": text}}))
    };
    let post = |body: &str| {
        format!("{{http: {{method: POST, url: 'http://x.example/', body: '{{{{ {body} }}}}'}}}}")
    };
    tried(&editor, "{event: a.b}", &post("event")).ok(200);
    let told = tried(&admin, "{event: 'engine.audit.#'}", &post("event")).ok(200);
    assert!(told["effects"].to_string().contains("engine.audit.tokens"), "{told}");
    let refused = tried(&editor, "{event: 'engine.audit.#'}", &post("event")).refused(403, "auth.denied");
    assert!(refused["detail"].as_str().unwrap().contains("acts of administration"), "{refused}");
    let waits = "{wait_for: {event: 'engine.audit.#', timeout: 1h, on_timeout: continue}}";
    tried(&admin, "{event: a.b}", waits).ok(200);
    tried(&editor, "{event: a.b}", waits).refused(403, "auth.denied");
    tried(&editor, "{event: a.b}", &post("secret(\"key\")")).refused(403, "auth.denied");

    let plain = json!({"automation": "one", "triggers": [{"manual": true}], "actions": [{"vars": {"a": 1}}]});
    ask(&editor, "POST", "/v1/automations", plain).ok(201);
    let on = |pattern: &str| json!({"id": "s", "pattern": pattern, "automation": "one"});
    let refused = ask(&editor, "POST", "/v1/subscriptions", on("engine.audit.#")).refused(403, "auth.denied");
    assert_eq!(refused["pointer"], "/pattern", "{refused}");
    let seeds = json!({"subscription_id": "s", "event_type_glob": "engine.*", "workflow_type": "one"});
    ask(&editor, "POST", "/v1/subscriptions", seeds).refused(403, "auth.denied");
    ask(&editor, "POST", "/v1/subscriptions", on("a.#")).ok(201);
    ask(&editor, "PUT", "/v1/subscriptions/s", on("engine.audit.#")).refused(403, "auth.denied");
    let acts = json!({"pattern": "engine.audit.#"});
    ask(&editor, "PATCH", "/v1/subscriptions/s", acts.clone()).refused(403, "auth.denied");
    let refused = ask(&admin, "PATCH", "/v1/subscriptions/s", acts.clone()).refused(400, "request.invalid");
    assert_eq!(refused["pointer"], "/group", "{refused}");
    let apart = json!({"pattern": "engine.audit.#", "group": "acts"});
    ask(&admin, "PATCH", "/v1/subscriptions/s", apart).ok(200);
    // What is kept of it counts, too.
    ask(&editor, "PATCH", "/v1/subscriptions/s", json!({"enabled": true})).refused(403, "auth.denied");
    ask(&editor, "PATCH", "/v1/subscriptions/s", json!({"pattern": "a.b"})).ok(200);
}

#[test]
fn terms_that_cannot_be_are_refused_by_what_is_wrong_with_them() {
    let server = server();
    for (said, words) in [
        (json!({"role": "viewer", "spaces": []}), "\"spaces\" is an empty list"),
        (json!({"role": "viewer", "spaces": "a"}), "\"spaces\" is a list of texts"),
        (json!({"role": "viewer", "expires_in": "0s"}), "\"expires_in\" is longer than nothing, not \"0s\""),
        (json!({"role": "viewer", "expires_in": "soon"}), "\"expires_in\" is a length of time, not \"soon\""),
        (
            json!({"role": "viewer", "name": "a\nb"}),
            "\"name\" has no line breaks or other control characters",
        ),
    ] {
        let refused = asked(&server, LOCAL, "POST", "/v1/tokens", &said.to_string());
        assert_eq!(refused.json()["detail"], words, "{said}");
    }
}
