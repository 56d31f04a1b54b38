//! Every route, every id of another, every kind of token: what is not theirs reads as what is not there, and nothing of it is told.
//!
//! Made from the route table, so that a new route is part of it.

use std::time::Duration;

use engine::clock::Move;
use serde_json::{Value, json};

use crate::client::{Client, Pieces, Reply};
use crate::harness::Server;
use crate::rights::{LOCAL, asked, token};
use crate::socket::Socket;

const CANARY: &str = "canary-of-another";
/// Rows have a space and no band.
const ROW: &str = "canary-in-a-row";

/// What is there, in a tenant and a space that nobody below may see.
struct Theirs {
    event: String,
    run: String,
    wait: String,
    token: String,
}

fn theirs(server: &Server, owner: &str) -> Theirs {
    let ask = |method: &str, path: &str, body: Value| asked(server, owner, method, path, &body.to_string());
    let files = json!({"files": {
        "shop/all.ew": "concept item { name string! }\nquery item items { args { s string } }\nmutation item rename {\n  args { id string! }\n  update { name: \"x\" }\n}\nlogic howMany {\n  body {\n    return 1\n  }\n}\n",
        "task.yaml": "automation: give_them\ntriggers: [{event: t.x}]\nactions: [{task: {kind: k, input: \"{{ event.payload.x }}\"}}]\n",
        "ask.yaml": "automation: ask_them\ntriggers: [{event: t.x}]\nactions: [{ask: {question: \"{{ event.payload.x }}\"}}]\n",
    }});
    ask("POST", "/v1/apply", files).ok(200);
    let said =
        json!({"topic": "t.x", "space": "b", "band": "black", "id": "their-event", "payload": {"x": CANARY}});
    ask("POST", "/v1/events", said).ok(201);
    ask("PUT", "/v1/groups/their-group", json!({"pattern": "t.#", "space": "b", "start": "beginning"}))
        .ok(201);
    ask("PUT", "/v1/entities/v1:shop:item/their-row?space=b", json!({"name": ROW})).ok(201);
    let hook = json!({"scheme": "hmac", "secret": "0123456789abcdef0123456789abcdef", "topic": "h.x"});
    ask("PUT", "/v1/hooks/their-hook", hook).ok(201);
    ask("PUT", "/v1/secrets/their-secret", json!({"value": "what is theirs"})).ok(201);
    let push = json!({"url": "http://127.0.0.1:1/", "pattern": "t.x", "space": "b"});
    ask("PUT", "/v1/push/their-push", push).ok(201);
    let run = asked(server, owner, "GET", "/v1/runs?automation=ask_them", "").ok(200)["runs"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let wait =
        asked(server, owner, "GET", "/v1/waits", "").ok(200)["waits"][0]["id"].as_str().unwrap().to_owned();
    let token = ask("POST", "/v1/tokens", json!({"role": "viewer"})).ok(201);
    Theirs { event: "their-event".to_owned(), run, wait, token: token["id"].as_str().unwrap().to_owned() }
}

/// Paths of a route over what is theirs and over what is not there; none for a route without ids.
fn paths(path: &str, theirs: &Theirs) -> Option<(String, String)> {
    let fill =
        |ids: &[(&str, &str)]| ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(name, id));
    let (run, none) = (theirs.run.as_str(), "run_00000000000000000000000000");
    let both =
        |name: &str, theirs: &str, absent: &str| Some((fill(&[(name, theirs)]), fill(&[(name, absent)])));
    if !path.contains('{') {
        return None;
    }
    match path {
        _ if path.starts_with("/v1/events/") => both("{id}", &theirs.event, "no-event"),
        _ if path.starts_with("/v1/groups/") => both("{name}", "their-group", "no-group"),
        "/v1/entities/{concept}" | "/v1/entities/{concept}/import" => {
            both("{concept}", "v1:shop:item", "v1:no:item")
        }
        _ if path.starts_with("/v1/entities/") => {
            let of = |id: &str| fill(&[("{concept}", "v1:shop:item"), ("{id}", id)]) + "?space=b";
            Some((of("their-row"), of("no-row")))
        }
        "/v1/runs/{id}/{what}" => Some((
            fill(&[("{id}", run), ("{what}", "cancel")]),
            fill(&[("{id}", none), ("{what}", "cancel")]),
        )),
        _ if path.starts_with("/v1/runs/") => both("{id}", run, none),
        _ if path.starts_with("/v1/waits/") => both("{id}", &theirs.wait, "run_00000000000000000000000000.1"),
        "/v1/explain/{what}/{id}" => {
            let of = |id: &str| fill(&[("{what}", "event"), ("{id}", id)]);
            Some((of(&theirs.event), of("no-event")))
        }
        "/v1/automations/{name}/{what}" => {
            let of = |name: &str| fill(&[("{name}", name), ("{what}", "disable")]);
            Some((of("ask_them"), of("no_such")))
        }
        _ if path.starts_with("/v1/automations/") => both("{name}", "ask_them", "no_such"),
        "/v1/concepts/{id}" => both("{id}", "v1:shop:item", "v1:no:item"),
        _ if path.starts_with("/v1/queries/") => both("{name}", "items", "no_such"),
        _ if path.starts_with("/v1/mutations/") => both("{name}", "rename", "no_such"),
        _ if path.starts_with("/v1/logic/") => both("{name}", "howMany", "no_such"),
        "/v1/subscriptions/{id}/{what}" => {
            let of = |id: &str| fill(&[("{id}", id), ("{what}", "enable")]);
            Some((of("their-subscription"), of("no-such")))
        }
        _ if path.starts_with("/v1/subscriptions/") => both("{id}", "their-subscription", "no-such"),
        _ if path.starts_with("/v1/tokens/") => both("{id}", &theirs.token, "tok_00000000000000000000000000"),
        "/v1/tenants/{name}/{what}" => {
            let of = |name: &str| fill(&[("{name}", name), ("{what}", "suspend")]);
            Some((of("theirs"), of("nobody")))
        }
        _ if path.starts_with("/v1/tenants/") => both("{name}", "theirs", "nobody"),
        _ if path.starts_with("/v1/secrets/") => both("{name}", "their-secret", "no-secret"),
        "/v1/spaces/{name}/{what}" => {
            let of = |name: &str| fill(&[("{name}", name), ("{what}", "open")]);
            Some((of("theirs"), of("nobody")))
        }
        _ if path.starts_with("/v1/hooks/") => both("{name}", "their-hook", "no-hook"),
        "/v1/push/{name}/{what}" => {
            let of = |name: &str| fill(&[("{name}", name), ("{what}", "pause")]);
            Some((of("their-push"), of("no-push")))
        }
        _ if path.starts_with("/v1/push/") => both("{name}", "their-push", "no-push"),
        _ if path.starts_with("/v1/secrets/") => both("{name}", "their-secret", "no-secret"),
        "/ui/events/{id}" => both("{id}", &theirs.event, "no-event"),
        "/ui/runs/{id}" => both("{id}", run, none),
        "/ui/automations/{name}" => both("{name}", "ask_them", "no_such"),
        "/ui/groups/{name}" => both("{name}", "their-group", "no-group"),
        "/hooks/{tenant}/{name}" | "/errors/{code}" | "/ui/{file}" => None,
        // A route that nobody named here has nothing that is theirs, and must say so alike.
        _ => {
            let word =
                |word: &str, id: &str| if word.starts_with('{') { id.to_owned() } else { word.to_owned() };
            let of = |id: &str| path.split('/').map(|part| word(part, id)).collect::<Vec<_>>().join("/");
            Some((of("theirs"), of("nobody")))
        }
    }
}

/// What an answer says, but for the id that was asked for and what differs with every request.
fn words(reply: &Reply, ids: [&str; 2]) -> String {
    let said = match serde_json::from_slice::<Value>(&reply.body) {
        Ok(mut said) => {
            said.as_object_mut().map(|said| said.remove("request_id"));
            said.to_string()
        }
        // A page for people.
        Err(_) => reply.text(),
    };
    // A wait is named after its run.
    let ids = ids.iter().flat_map(|id| [*id, id.split('.').next().unwrap_or_default()]);
    let text = ids.filter(|id| !id.is_empty()).fold(said, |text, id| text.replace(id, "ID"));
    format!("{} {text}", reply.status)
}

/// The part of a path that tells one thing from another.
fn word_of(path: &str, other: &str) -> String {
    let (path, other) = (path.split('?').next().unwrap(), other.split('?').next().unwrap());
    let pairs = path.split('/').zip(other.split('/'));
    pairs.filter(|(a, b)| a != b).map(|(a, _)| a.to_owned()).next().unwrap_or_default()
}

fn body_of(method: &str, path: &str) -> &'static str {
    match (method, path) {
        ("GET" | "DELETE", _) => "",
        (_, "/v1/groups/{name}") => r##"{"pattern":"#"}"##,
        (_, "/v1/groups/{name}/seek") => r#"{"to":"end"}"#,
        (_, "/v1/waits/{id}/answer") => r#"{"value":1}"#,
        (_, "/v1/tenants/{name}/tokens") => r#"{"role":"viewer"}"#,
        ("PUT", "/v1/entities/{concept}/{id}") => r#"{"name":"x"}"#,
        _ if path.ends_with("ack") || path.ends_with("reject") => r#"{"tokens":[]}"#,
        _ => "{}",
    }
}

#[test]
fn no_token_of_another_kind_or_tenant_learns_anything_from_any_route() {
    let server = Server::told_asking("2026-01-01T00:00:00Z", LOCAL);
    let made = asked(&server, LOCAL, "POST", "/v1/tenants", r#"{"name":"theirs"}"#).ok(201);
    let owner = made["owner_token"].as_str().unwrap().to_owned();
    let theirs = theirs(&server, &owner);
    let (expired, _) = token(&server, "theirs", json!({"role": "owner", "expires_in": "1m"}));
    let (revoked, id) = token(&server, "theirs", json!({"role": "owner"}));
    asked(&server, &owner, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    server.engine.move_clock(Move::By(Duration::from_secs(61))).unwrap();
    let mut holders = vec![("none", None), ("expired", Some(expired)), ("revoked", Some(revoked))];
    for role in ["owner", "editor", "publisher"] {
        holders.push(("of another tenant", Some(token(&server, "ours", json!({"role": role})).0)));
    }
    holders.push((
        "wrong scope",
        Some(token(&server, "theirs", json!({"role": "viewer", "scopes": ["group:read"]})).0),
    ));
    holders
        .push(("wrong space", Some(token(&server, "theirs", json!({"role": "editor", "spaces": ["a"]})).0)));
    holders.push(("low band", Some(token(&server, "theirs", low_band()).0)));
    asked(&server, &owner, "POST", "/v1/logic/howMany", "{}").ok(200);
    let nobody = asked(&server, &owner, "POST", "/v1/mutations/rename", r#"{"args":{"id":"no-row"}}"#);
    assert!(nobody.text().contains("no-row"), "it is there, but not the row: {}", nobody.text());
    let mut asked_for = 0;
    for route in server::ROUTES {
        let method = route.method.to_ascii_uppercase();
        // Whoever may change what is declared there may have removed it.
        let subscription = json!({"pattern": "t.#", "automation": "ask_them"}).to_string();
        asked(&server, &owner, "PUT", "/v1/subscriptions/their-subscription", &subscription);
        asked(&server, &owner, "GET", "/v1/subscriptions/their-subscription", "").ok(200);
        for (kind, bearer) in &holders {
            asked_for += 1;
            probe(&server, &theirs, route.path, &method, (kind, bearer.as_deref()));
        }
    }
    assert!(asked_for > 500, "{asked_for}");
    // Nothing of it was changed either.
    asked(&server, &owner, "GET", "/v1/groups/their-group", "").ok(200);
    let row = asked(&server, &owner, "GET", "/v1/entities/v1:shop:item/their-row?space=b", "").ok(200);
    assert_eq!(row["fields"]["name"], ROW);
    let run = asked(&server, &owner, "GET", &format!("/v1/runs/{}", theirs.run), "").ok(200);
    assert_eq!(run["status"], "waiting");
    asked(&server, &owner, "GET", "/v1/automations/ask_them", "").ok(200);
}

/// Rows have no band, so that it may not write them here.
fn low_band() -> Value {
    let scopes =
        ["event:read", "event:write", "group:read", "group:write", "group:consume", "entity:read", "read"];
    json!({"role": "editor", "max_band": "green", "scopes": scopes})
}

fn probe(server: &Server, theirs: &Theirs, path: &str, method: &str, (kind, bearer): (&str, Option<&str>)) {
    // What is held open is looked at below.
    if path.ends_with("/stream") || matches!(path, "/v1/ws" | "/mcp") {
        return;
    }
    let bearer = bearer.map(|bearer| format!("authorization: Bearer {bearer}"));
    let headers: Vec<&str> =
        bearer.iter().map(String::as_str).chain(["content-type: application/json"]).collect();
    let body = body_of(method, path);
    let ask = |path: &str| {
        let reply = server.send(method, path, &headers, body);
        let told = reply.text();
        let leaks = told.contains(CANARY) || (kind != "low band" && told.contains(ROW));
        assert!(!leaks, "{kind}: {method} {path} tells {told}");
        assert!(reply.status < 500, "{kind}: {method} {path}: {told}");
        reply
    };
    let Some((one, other)) = paths(path, theirs) else {
        ask(path);
        return;
    };
    // Who may make something there makes it: in their own tenant a name is free, in the same one it is taken.
    if method == "PUT" {
        let made = kind == "of another tenant" || ask(&one).status >= 400 || kind == "low band";
        assert!(made, "{kind}: {method} {one} was let in");
        return;
    }
    let (found, absent) = (ask(&one), ask(&other));
    // A page shows what the doors of the same name tell.
    if is_shared(kind, &path.replace("/ui/", "/v1/"), method) {
        return;
    }
    let ids = [word_of(&one, &other), word_of(&other, &one)];
    let ids = [ids[0].as_str(), ids[1].as_str()];
    assert_eq!(words(&found, ids), words(&absent, ids), "{kind}: {method} {one} and {other} differ");
}

/// What a token of the same tenant may know of: what is declared there, the groups that its scope names, and to bands, which are
/// no borders of rows and groups, both.
fn is_shared(kind: &str, path: &str, method: &str) -> bool {
    let declared =
        ["/v1/concepts", "/v1/automations", "/v1/queries", "/v1/mutations", "/v1/logic", "/v1/subscriptions"];
    let declared = declared.iter().any(|part| path.starts_with(part))
        || matches!(path, "/v1/entities/{concept}" | "/v1/entities/{concept}/import");
    match kind {
        "wrong scope" => path.starts_with("/v1/groups") && method == "GET",
        "wrong space" => declared,
        "low band" => declared || path.starts_with("/v1/entities") || path.starts_with("/v1/groups"),
        _ => false,
    }
}

/// A tenant of somebody else's, with its owner's token, and tokens of it and of another.
struct HeldOpen {
    server: Server,
    owner: String,
    other: String,
}

impl HeldOpen {
    fn new() -> HeldOpen {
        let server = Server::told_asking("2026-01-01T00:00:00Z", LOCAL);
        let made = asked(&server, LOCAL, "POST", "/v1/tenants", r#"{"name":"theirs"}"#).ok(201);
        let owner = made["owner_token"].as_str().unwrap().to_owned();
        theirs(&server, &owner);
        let echo = json!({
            "automation": "echo", "mode": "parallel", "triggers": [{"event": "t.x"}],
            "actions": [{"vars": {"said": "{{ event.payload.x }}"}}],
        });
        asked(&server, &owner, "POST", "/v1/automations", &echo.to_string()).ok(201);
        let (other, _) = token(&server, "ours", json!({"role": "owner"}));
        HeldOpen { server, owner, other }
    }

    fn of(&self, said: Value) -> String {
        token(&self.server, "theirs", said).0
    }

    fn open(&self, path: &str, bearer: &str) -> Client {
        let mut client = self.server.client();
        client.head("GET", path, &[&format!("authorization: Bearer {bearer}")], Some(0));
        client
    }

    fn say(&self, who: &str, (space, band): (&str, &str), x: &str) -> String {
        let said = json!({"topic": "t.x", "space": space, "band": band, "payload": {"x": x}});
        asked(&self.server, who, "POST", "/v1/events", &said.to_string()).ok(201)["position"].to_string()
    }
}

/// From the beginning, so that what is there already could be told.
fn streams() -> Vec<String> {
    let held = |route: &&server::Route| route.method == "get" && route.path.ends_with("/stream");
    let paths: Vec<String> =
        server::ROUTES.iter().filter(held).map(|route| format!("{}?after=0", route.path)).collect();
    assert!(paths.len() >= 3, "{paths:?}");
    paths
}

#[test]
fn what_is_held_open_lets_nobody_in_who_may_not_hear_it() {
    let held = HeldOpen::new();
    let (revoked, id) = token(&held.server, "theirs", json!({"role": "owner"}));
    asked(&held.server, &held.owner, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    let scope = held.of(json!({"role": "viewer", "scopes": ["group:read"]}));
    for path in &streams() {
        for bearer in ["", &revoked] {
            assert_eq!(held.open(path, bearer).reply_head().0, 401, "{path}");
        }
        let (status, _) = held.open(path, &scope).reply_head();
        assert!(matches!(status, 403 | 404), "{path}: {status}");
    }
    for bearer in ["", &revoked] {
        let header = format!("authorization: Bearer {bearer}");
        assert_eq!(Socket::try_open(&held.server, &[&header]).1, 401);
    }
}

#[test]
fn what_is_held_open_tells_each_of_its_own_and_nothing_of_others() {
    let held = HeldOpen::new();
    let part = held.of(json!({"role": "editor", "spaces": ["a"]}));
    let low = held.of(low_band());
    let holders = [("part", &part), ("low band", &low), ("of another tenant", &held.other)];
    let paths = streams();
    let (mut heard, mut sockets) = (Vec::new(), Vec::new());
    for (kind, bearer) in holders {
        for path in &paths {
            let mut stream = Pieces::of(held.open(path, bearer), "\n\n");
            assert!(stream.next().unwrap().contains("event: ready"), "{path}");
            heard.push((kind, path, stream));
        }
        let mut socket = Socket::open(&held.server, &[&format!("authorization: Bearer {bearer}")]);
        let said = json!({"subscribe": {"subscription_id": "s", "kind": 550, "filter": "#", "config": {"after": 0}}});
        assert!(socket.ask(said)["ok"].is_object(), "{kind}");
        sockets.push((kind, socket));
    }
    // The last thing that each of them hears is its own; what came before it is not told.
    held.say(&held.owner, ("b", "black"), CANARY);
    // Runs and decisions name the event by its position.
    let seen = held.say(&held.owner, ("a", "green"), "the-last");
    let seen = ["position", "event"].map(|name| format!("\"{name}\":{seen}"));
    held.say(&held.other, ("a", "green"), "the-last");
    let is_last = |kind: &str, told: &str| {
        assert!(!told.contains(CANARY), "{kind}: {told}");
        told.contains("the-last") || seen.iter().any(|seen| told.contains(seen))
    };
    for (kind, path, stream) in &mut heard {
        // Nothing runs in the tenant that they made.
        let runs = *kind != "of another tenant" || path.starts_with("/v1/events");
        while runs && !is_last(kind, &stream.next().unwrap()) {}
    }
    for (kind, socket) in &mut sockets {
        while !is_last(kind, &socket.json().to_string()) {}
    }
}
