//! Tokens for single spaces and bands: what they do not see reads as what is not there, in the same words.

use std::time::Duration;

use engine::clock::Move;
use serde_json::{Value, json};

use crate::client::{Pieces, Reply};
use crate::harness::Server;
use crate::rights::{LOCAL, asked, server, token};
use crate::socket::Socket;

/// `a` up to amber, of a tenant that has events in `a` and `b`.
struct Stage {
    server: Server,
    owner: String,
    narrow: String,
}

impl Stage {
    fn new() -> Stage {
        let server = server();
        let (owner, _) = token(&server, "main", json!({"role": "owner"}));
        let (narrow, _) = token(
            &server,
            "main",
            json!({"role": "editor", "spaces": ["a"], "max_band": "amber", "name": "narrow"}),
        );
        Stage { server, owner, narrow }
    }

    fn ask(&self, who: &str, method: &str, path: &str, body: Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        asked(&self.server, who, method, path, &body)
    }

    fn publish(&self, space: &str, band: &str, id: &str) -> u64 {
        let said = json!({"topic": "t.x", "space": space, "band": band, "id": id, "payload": {"canary": id}});
        self.ask(&self.owner, "POST", "/v1/events", said).ok(201)["position"].as_u64().unwrap()
    }

    fn ids(&self, path: &str) -> Vec<String> {
        let found = self.ask(&self.narrow, "GET", path, Value::Null).ok(200);
        let rows = found["events"].as_array().unwrap();
        let id = |row: &Value| row["id"].as_str().or(row["event_id"].as_str()).unwrap().to_owned();
        rows.iter().map(id).collect()
    }
}

/// A refusal without what differs by the id that was asked for.
fn words(reply: &Reply, id: &str) -> String {
    let mut said = reply.json();
    let told = said["detail"].as_str().unwrap_or_default().replace(id, "ID");
    (said["request_id"], said["detail"]) = (Value::Null, told.into());
    format!("{} {said}", reply.status)
}

#[test]
fn events_are_said_and_seen_only_where_the_token_reaches() {
    let stage = Stage::new();
    let publish = |said: Value| stage.ask(&stage.narrow, "POST", "/v1/events", said);
    publish(json!({"topic": "t.x", "space": "a", "id": "mine"})).ok(201);
    publish(json!({"topic": "t.x", "space": "b"})).refused(403, "auth.denied");
    let meant = publish(json!({"topic": "t.y"})).ok(201)["position"].to_string();
    let meant = stage.ask(&stage.narrow, "GET", &format!("/v1/events/{meant}"), Value::Null).ok(200);
    assert_eq!(meant["space"], "a", "the only one that it may mean");
    publish(json!({"topic": "t.x", "space": "a", "band": "red"})).refused(403, "auth.denied");
    let list = publish(json!([{"topic": "t.x", "space": "a"}, {"topic": "t.x", "space": "b"}]));
    assert_eq!(list.refused(403, "auth.denied")["pointer"], "/1/space");

    let (seen, hidden) = (stage.publish("a", "amber", "seen-1"), stage.publish("b", "green", "hidden-1"));
    let high = stage.publish("a", "red", "hidden-2");
    for (id, missing) in [("hidden-1", "hidden-9"), ("hidden-2", "hidden-9")] {
        for rest in ["", "/lineage"] {
            let one =
                |id: &str| stage.ask(&stage.narrow, "GET", &format!("/v1/events/{id}{rest}"), Value::Null);
            assert_eq!(words(&one(id), id), words(&one(missing), missing));
        }
        let explained =
            |id: &str| stage.ask(&stage.narrow, "GET", &format!("/v1/explain/event/{id}"), Value::Null);
        assert_eq!(words(&explained(id), id), words(&explained(missing), missing));
    }
    for position in [hidden, high] {
        stage
            .ask(&stage.narrow, "GET", &format!("/v1/events/{position}"), Value::Null)
            .refused(404, "event.not_found");
    }
    stage.ask(&stage.narrow, "GET", &format!("/v1/events/{seen}"), Value::Null).ok(200);
    assert_eq!(stage.ids("/v1/events?topic=t.x"), ["mine", "seen-1"]);
    assert_eq!(stage.ids("/v1/events?topic=t.x&space=b"), Vec::<String>::new());
    assert_eq!(stage.ids("/api/events/recent?event_type=t.x"), ["seen-1", "mine"]);
    let caused = |cause: u64| publish(json!({"topic": "t.x", "space": "a", "cause": cause}));
    let (unseen, absent) = (caused(hidden), caused(999_999));
    assert_eq!(words(&unseen, &hidden.to_string()), words(&absent, "999999"));

    let key = |who: &str, space: &str, n: u64| {
        let said = json!({"topic": "t.x", "space": space, "key": "k", "source": "s", "payload": n});
        stage.ask(who, "POST", "/v1/events", said)
    };
    key(&stage.owner, "b", 1).ok(201);
    let taken = key(&stage.narrow, "a", 2).refused(409, "event.key_conflict");
    assert!(taken.get("position").is_none() && taken.get("first_hash").is_none(), "{taken}");
}

#[test]
fn a_stream_passes_over_what_is_not_seen() {
    let stage = Stage::new();
    let bearer = format!("authorization: Bearer {}", stage.narrow);
    let mut client = stage.server.client();
    client.head("GET", "/v1/events/stream?topic=t.x", &[&bearer], Some(0));
    let mut stream = Pieces::of(client, "\n\n");
    assert!(stream.next().unwrap().contains("event: ready"));
    stage.publish("b", "green", "hidden-1");
    stage.publish("a", "black", "hidden-2");
    stage.publish("a", "green", "seen-1");
    let frame = stream.next().unwrap();
    assert!(frame.contains("seen-1") && !frame.contains("hidden"), "{frame}");
}

#[test]
fn a_group_hands_out_what_is_seen_and_keeps_the_rest_for_others() {
    let stage = Stage::new();
    let ask = |who: &str, method: &str, path: &str, body: Value| stage.ask(who, method, path, body);
    ask(&stage.owner, "PUT", "/v1/groups/all", json!({"pattern": "t.#", "start": "beginning"})).ok(201);
    ask(&stage.owner, "PUT", "/v1/groups/other", json!({"pattern": "t.#", "space": "b"})).ok(201);
    stage.publish("b", "green", "hidden-1");
    stage.publish("a", "green", "seen-1");
    stage.publish("a", "red", "hidden-2");
    let pull = |who: &str| {
        let pulled = ask(who, "POST", "/v1/groups/all/pull", json!({"max": 10})).ok(200);
        let deliveries = pulled["deliveries"].as_array().unwrap().clone();
        let ids: Vec<String> =
            deliveries.iter().map(|d| d["event"]["id"].as_str().unwrap().to_owned()).collect();
        let tokens: Vec<Value> = deliveries.iter().map(|d| d["token"].clone()).collect();
        (ids, tokens)
    };
    let (ids, own) = pull(&stage.narrow);
    assert_eq!(ids, ["seen-1"]);
    assert_eq!(pull(&stage.narrow).0, Vec::<String>::new());
    let (ids, theirs) = pull(&stage.owner);
    assert_eq!(ids, ["hidden-1", "hidden-2"], "nobody's position passed them");
    let settled =
        ask(&stage.narrow, "POST", "/v1/groups/all/ack", json!({"tokens": [own[0], theirs[0]]})).ok(200);
    assert_eq!(settled, json!({"done": 1, "stale": [theirs[0]]}));
    ask(&stage.owner, "POST", "/v1/groups/all/reject", json!({"tokens": theirs})).ok(200);
    let dead = ask(&stage.narrow, "GET", "/v1/groups/all/dead-letters", Value::Null).ok(200);
    assert_eq!(dead["dead_letters"], json!([]));

    let told = ask(&stage.narrow, "GET", "/v1/explain/event/seen-1", Value::Null).ok(200);
    let groups: Vec<&Value> =
        told["groups"].as_array().unwrap().iter().map(|group| &group["group"]).collect();
    assert_eq!(groups, ["all"]);
    let listed = ask(&stage.narrow, "GET", "/v1/groups", Value::Null).ok(200);
    assert_eq!(listed["groups"].as_array().unwrap().len(), 1, "{listed}");
    for (method, rest) in
        [("GET", ""), ("DELETE", ""), ("POST", "/pull"), ("POST", "/pause"), ("GET", "/dead-letters")]
    {
        let of = |name: &str| ask(&stage.narrow, method, &format!("/v1/groups/{name}{rest}"), Value::Null);
        assert_eq!(words(&of("other"), "other"), words(&of("nobody"), "nobody"), "{method} {rest}");
    }
    for (method, rest, body) in [
        ("DELETE", "", Value::Null),
        ("POST", "/seek", json!({"to": "beginning"})),
        ("POST", "/pause", json!({})),
    ] {
        ask(&stage.narrow, method, &format!("/v1/groups/all{rest}"), body).refused(403, "auth.denied");
    }
    ask(&stage.narrow, "PUT", "/v1/groups/all", json!({"pattern": "x"})).refused(403, "auth.denied");
    ask(&stage.narrow, "PUT", "/v1/groups/mine", json!({"pattern": "t.#", "space": "b"}))
        .refused(403, "auth.denied");
    let made = ask(&stage.narrow, "PUT", "/v1/groups/mine", json!({"pattern": "t.#"})).ok(201);
    assert_eq!((&made["space"], &made["max_band"]), (&json!("a"), &json!("amber")));
    assert_eq!(ask(&stage.narrow, "DELETE", "/v1/groups/mine", Value::Null).status, 204);
}

#[test]
fn rows_and_runs_are_seen_by_their_space_and_their_event() {
    let stage = Stage::new();
    let files = json!({"files": {
        "shop/all.ew": "concept item { name string! }\nquery item items { count }\n",
        "echo.yaml": "automation: echo\ntriggers: [{event: t.x}]\nactions: [{vars: {said: \"{{ event.payload.canary }}\"}}]\n",
    }});
    stage.ask(&stage.owner, "POST", "/v1/apply", files).ok(200);
    let row = |who: &str, method: &str, space: &str, body: Value| {
        stage.ask(who, method, &format!("/v1/entities/v1:shop:item/i-{space}?space={space}"), body)
    };
    for space in ["a", "b"] {
        row(&stage.owner, "PUT", space, json!({"name": space})).ok(201);
    }
    row(&stage.narrow, "PUT", "a", json!({"name": "x"})).ok(200);
    row(&stage.narrow, "PUT", "b", json!({"name": "x"})).refused(403, "auth.denied");
    row(&stage.narrow, "DELETE", "b", Value::Null).refused(403, "auth.denied");
    for rest in ["", "/history"] {
        let of = |id: &str| {
            stage.ask(
                &stage.narrow,
                "GET",
                &format!("/v1/entities/v1:shop:item/{id}{rest}?space=b"),
                Value::Null,
            )
        };
        assert_eq!(words(&of("i-b"), "i-b"), words(&of("i-z"), "i-z"), "{rest}");
        let of = |id: &str| {
            stage.ask(&stage.narrow, "GET", &format!("/v1/entities/v1:shop:item/{id}{rest}"), Value::Null)
        };
        assert_eq!(words(&of("i-b"), "i-b"), words(&of("i-z"), "i-z"), "{rest}");
    }
    let rows = stage.ask(&stage.narrow, "GET", "/v1/entities/v1:shop:item", Value::Null).ok(200);
    assert_eq!(rows["entities"].as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(stage.ask(&stage.narrow, "POST", "/v1/queries/items", json!({})).ok(200)["count"], 1);

    stage.publish("a", "green", "seen-1");
    stage.publish("b", "green", "hidden-1");
    let runs = |who: &str| {
        stage.ask(who, "GET", "/v1/runs", Value::Null).ok(200)["runs"].as_array().unwrap().clone()
    };
    let (all, some) = (runs(&stage.owner), runs(&stage.narrow));
    assert_eq!((all.len(), some.len()), (2, 1));
    let hidden = all.iter().find(|run| run["id"] != some[0]["id"]).unwrap()["id"].as_str().unwrap();
    let missing = "run_00000000000000000000000000";
    for path in ["/v1/runs", "/v1/explain/run"] {
        let of = |id: &str| stage.ask(&stage.narrow, "GET", &format!("{path}/{id}"), Value::Null);
        assert_eq!(words(&of(hidden), hidden), words(&of(missing), missing));
        of(some[0]["id"].as_str().unwrap()).ok(200);
    }
    let explained = stage.ask(&stage.narrow, "GET", "/v1/explain/automation/echo", Value::Null).ok(200);
    assert_eq!(explained["counts"], json!({"ran": {"-": 1}}), "only what is seen is counted");
    let echo = stage.ask(&stage.narrow, "GET", "/v1/automations/echo", Value::Null).ok(200);
    let listed = stage.ask(&stage.narrow, "GET", "/v1/automations", Value::Null).ok(200);
    for automation in [&echo, &listed["automations"][0]] {
        assert_eq!((automation.get("runs"), automation.get("runs_total")), (None, None), "{automation}");
    }
    let whole = stage.ask(&stage.owner, "GET", "/v1/automations/echo", Value::Null).ok(200);
    assert_eq!(whole["runs_total"], 2);
    for path in ["/v1/decisions", "/v1/explain/automation/echo", "/v1/runs", "/v1/waits"] {
        let told = stage.ask(&stage.narrow, "GET", path, Value::Null).ok(200).to_string();
        assert!(!told.contains("hidden-1") && !told.contains(hidden), "{path}: {told}");
    }
    for (method, path) in
        [("POST", "/v1/runs"), ("POST", "/v1/simulate"), ("POST", "/v1/apply"), ("GET", "/v1/tokens")]
    {
        stage.ask(&stage.narrow, method, path, json!({})).refused(403, "auth.denied");
    }
    // A door that nobody vetted is closed, whatever it needs.
    stage.ask(&stage.narrow, "POST", "/v1/plan", json!({})).refused(403, "auth.denied");
}

#[test]
fn a_subscription_names_its_last_run_to_who_sees_it() {
    let stage = Stage::new();
    let work = json!({"files": {"w.yaml": "automation: work\ntriggers: [{event: never.x}]\nactions: [{vars: {a: 1}}]\n"}});
    stage.ask(&stage.owner, "POST", "/v1/apply", work).ok(200);
    let subscription = json!({"pattern": "t.x", "automation": "work"});
    stage.ask(&stage.owner, "PUT", "/v1/subscriptions/s", subscription).ok(201);
    let last = |who: &str| {
        let one = stage.ask(who, "GET", "/v1/subscriptions/s", Value::Null).ok(200);
        let all = stage.ask(who, "GET", "/v1/subscriptions", Value::Null).ok(200);
        assert_eq!(all["subscriptions"][0], one);
        one.get("last").cloned()
    };
    for (space, seen) in [("a", true), ("b", false)] {
        stage.publish(space, "green", &format!("of-{space}"));
        stage.ask(&stage.owner, "POST", "/api/events/drain", json!({})).ok(200);
        assert!(last(&stage.owner).is_some());
        assert_eq!(last(&stage.narrow).is_some(), seen, "{space}");
    }
}

#[test]
fn reads_of_what_is_administered_are_refused_to_who_sees_a_part_and_it_is_shown_no_tasks() {
    let stage = Stage::new();
    // Everybody knows that it is there.
    let administered = server::ROUTES.iter().filter(|route| {
        route.method == "get" && matches!(route.needs, "admin" | "node") && !route.path.contains('{')
    });
    for route in administered {
        stage.ask(&stage.narrow, "GET", route.path, Value::Null).refused(403, "auth.denied");
    }
    assert_eq!(stage.ask(&stage.narrow, "GET", "/v1/tasks", Value::Null).ok(200), json!({"tasks": []}));
}

#[test]
fn sessions_and_streams_of_runs_tell_of_what_is_seen() {
    let stage = Stage::new();
    let echo = "automation: echo\ntriggers: [{event: t.x}]\nactions: [{vars: {said: \"{{ event.payload.canary }}\"}}]\n";
    stage.ask(&stage.owner, "POST", "/v1/apply", json!({"files": {"echo.yaml": echo}})).ok(200);
    stage.ask(&stage.owner, "PUT", "/v1/groups/g", json!({"pattern": "t.#"})).ok(201);
    stage.ask(&stage.owner, "PUT", "/v1/groups/of-b", json!({"pattern": "t.#", "space": "b"})).ok(201);
    let bearer = format!("authorization: Bearer {}", stage.narrow);
    let mut socket = Socket::open(&stage.server, &[&bearer]);
    let subscribe =
        |id: &str, kind: u16| json!({"subscribe": {"subscription_id": id, "kind": kind, "filter": "#"}});
    for kind in [100, 600] {
        assert!(socket.ask(subscribe(&kind.to_string(), kind))["ok"].is_object(), "{kind}");
    }
    let mut follow = ["/v1/runs/stream", "/v1/decisions/stream"].map(|path| {
        let mut client = stage.server.client();
        client.head("GET", path, &[&bearer], Some(0));
        let mut stream = Pieces::of(client, "\n\n");
        assert!(stream.next().unwrap().contains("event: ready"));
        stream
    });
    let refused = socket.ask(json!({"consume": {"subscription_id": "b", "group": "of-b"}}));
    let absent = socket.ask(json!({"consume": {"subscription_id": "b", "group": "of-z"}}));
    assert_eq!(refused.to_string().replace("of-b", "X"), absent.to_string().replace("of-z", "X"));
    let hidden = stage.publish("b", "green", "hidden-1");
    stage.publish("a", "red", "hidden-2");
    let seen = stage.publish("a", "green", "seen-1");
    assert!(
        socket.ask(json!({"consume": {"subscription_id": "g", "group": "g", "credits": 3}}))["ok"]
            .is_object()
    );
    let delivered = socket.json()["payload"]["delivery"].clone();
    assert_eq!(delivered["event"]["id"], "seen-1");
    for stream in &mut follow {
        let told = stream.next().unwrap();
        let said: Value = serde_json::from_str(told.rsplit_once("data: ").unwrap().1).unwrap();
        let event = said["event"].as_u64().or(said["occurrence"]["position"].as_u64());
        assert!(event == Some(seen) && event != Some(hidden), "{told}");
    }
    socket.say(&json!({"type": "run_automation", "automationId": "echo"}));
    assert_eq!(socket.json()["code"], "auth.denied");
    // An idle session of a token that is no more is told at once.
    let id = stage.ask(&stage.owner, "GET", "/v1/tokens", Value::Null).ok(200)["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "narrow")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    stage.ask(&stage.owner, "DELETE", &format!("/v1/tokens/{id}"), Value::Null).gone();
    assert_eq!(socket.json()["payload"]["error"]["code"], "auth.required");
}

#[test]
fn rows_of_the_house_are_told_to_who_names_them_and_administers() {
    let stage = Stage::new();
    let (viewer, _) = token(&stage.server, "main", json!({"role": "viewer"}));
    stage
        .ask(
            &stage.owner,
            "PUT",
            "/v1/groups/all",
            json!({"pattern": ["#", "graph.#"], "start": "beginning"}),
        )
        .ok(201);
    stage.publish("a", "green", "one");
    let named = "/v1/events?topic=graph.node.created.v1:everwhen:token";
    for (path, of_owner, of_viewer) in
        [("/v1/events", 1, 1), ("/v1/events?topic=graph.%23", 0, 0), (named, 3, 0)]
    {
        for (who, count) in [(&stage.owner, of_owner), (&viewer, of_viewer)] {
            let found = stage.ask(who, "GET", path, Value::Null).ok(200);
            assert_eq!(found["events"].as_array().unwrap().len(), count, "{path}: {found}");
        }
    }
    let pulled = stage.ask(&stage.owner, "POST", "/v1/groups/all/pull", json!({})).ok(200);
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1, "{pulled}");
    let group = json!({"pattern": "graph.node.created.v1:everwhen:token"});
    let (editor, _) = token(&stage.server, "main", json!({"role": "editor"}));
    stage.ask(&editor, "PUT", "/v1/groups/tokens", group).refused(403, "auth.denied");
}

#[test]
fn what_is_held_open_ends_when_its_token_does() {
    let server = Server::told_asking("2026-01-01T00:00:00Z", LOCAL);
    let open = |text: &str| {
        let bearer = format!("authorization: Bearer {text}");
        let mut client = server.client();
        client.head("GET", "/v1/events/stream", &[&bearer], Some(0));
        let mut stream = Pieces::of(client, "\n\n");
        assert!(stream.next().unwrap().contains("event: ready"));
        stream
    };
    let (text, id) = token(&server, "main", json!({"role": "viewer"}));
    let mut stream = open(&text);
    asked(&server, LOCAL, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    assert!(stream.next().unwrap().contains("auth.required"), "revoked");
    assert!(stream.next().is_none(), "and closed");

    let (short, _) = token(&server, "main", json!({"role": "viewer", "expires_in": "1h"}));
    let mut stream = open(&short);
    server.engine.move_clock(Move::By(Duration::from_secs(3601))).unwrap();
    asked(&server, &short, "GET", "/v1/groups", "").refused(401, "auth.required");
    server.engine.authority().look_again();
    assert!(stream.next().unwrap().contains("auth.required"), "over");

    let made = asked(&server, LOCAL, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let mut stream = open(made["owner_token"].as_str().unwrap());
    asked(&server, LOCAL, "POST", "/v1/tenants/acme/suspend", "").ok(200);
    assert!(stream.next().unwrap().contains("tenant.suspended"));

    let (editor, id) = token(&server, "main", json!({"role": "editor"}));
    asked(&server, &editor, "PUT", "/v1/groups/g", r##"{"pattern":"#"}"##).ok(201);
    let address = server.address;
    let waiting = std::thread::spawn(move || {
        let headers =
            [format!("authorization: Bearer {editor}"), "content-type: application/json".to_owned()];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        crate::client::Client::connect(address).send(
            "POST",
            "/v1/groups/g/pull",
            &headers,
            r#"{"wait":"25s"}"#,
        )
    });
    asked(&server, LOCAL, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    let reply = waiting.join().unwrap();
    reply.refused(401, "auth.required");
}

#[test]
fn a_run_that_took_an_event_of_others_tells_nothing_of_it() {
    let stage = Stage::new();
    let text = "@trigger(event=\"pair.x\")\nautomation wf { wait_for \"pair.y\" timeout 1d\n publish \"pair.done\" { m: 1 } }";
    let files = json!({"files": {"d/c.ew": text}});
    stage.ask(&stage.owner, "POST", "/v1/apply", files).ok(200);
    let publish = |event: Value| stage.ask(&stage.owner, "POST", "/v1/events", event).ok(201);
    publish(json!({"topic": "pair.x", "space": "a"}));
    let hidden = publish(json!({"topic": "pair.y", "space": "b", "band": "red", "payload": {"c": "CANARY"}}));
    let path = format!("/v1/events/{}", hidden["position"]);
    stage.ask(&stage.narrow, "GET", &path, Value::Null).refused(404, "event.not_found");
    let runs = stage.ask(&stage.owner, "GET", "/v1/runs", Value::Null).ok(200);
    let run = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    for path in [format!("/v1/runs/{run}"), format!("/v1/explain/run/{run}"), format!("/ui/runs/{run}")] {
        let whole = stage.ask(&stage.owner, "GET", &path, Value::Null);
        let part = stage.ask(&stage.narrow, "GET", &path, Value::Null);
        assert!(whole.text().contains("CANARY"), "{path}: {}", whole.text());
        assert!(part.status == 200 && !part.text().contains("CANARY"), "{path}: {}", part.text());
    }
}

#[test]
fn a_key_does_not_tell_who_guesses_what_an_event_says() {
    let stage = Stage::new();
    let said =
        |pin: u64, key: &str| json!({"topic": "t.x", "space": "a", "key": key, "payload": {"pin": pin}});
    let mut hidden = said(4711, "k");
    hidden["band"] = "red".into();
    stage.ask(&stage.owner, "POST", "/v1/events", hidden).ok(201);
    for guess in [1, 4711] {
        let one = stage
            .ask(&stage.narrow, "POST", "/v1/events", said(guess, "k"))
            .refused(409, "event.key_conflict");
        assert_eq!((&one["pointer"], one.get("position")), (&json!("/key"), None), "{one}");
        let many = json!([said(1, "new"), said(guess, "k")]);
        let many = stage.ask(&stage.narrow, "POST", "/v1/events", many).refused(409, "event.key_conflict");
        assert_eq!((&many["pointer"], &many["detail"]), (&json!("/1/key"), &one["detail"]), "{many}");
    }
    stage.ask(&stage.narrow, "POST", "/v1/events", said(1, "own")).ok(201);
    stage.ask(&stage.narrow, "POST", "/v1/events", said(1, "own")).ok(200);
    stage.ask(&stage.owner, "POST", "/v1/events", said(4711, "k")).ok(200);
}

#[test]
fn a_run_that_was_told_what_its_reader_may_not_see_shows_its_outlines() {
    let stage = Stage::new();
    let text = "- automation: asks\n  triggers: [{event: in.ask}]\n  actions:\n    - wait_for: {event: in.told, timeout: 1d}\n    \
                - vars: {got: \"{{ wait.event.payload.c }}\"}\n    - wait_for: {event: in.clean, timeout: 1d}\n    \
                - publish: {topic: out.got, payload: {c: \"{{ vars.got }}\"}}\n    \
                - ask: {question: \"about {{ vars.got }}\", timeout: 1d}\n\
                - automation: calls\n  triggers: [{event: in.call}]\n  actions:\n    - {id: r, automation: called}\n    \
                - publish: {topic: out.called, payload: {c: \"{{ steps.r.output }}\"}}\n\
                - automation: called\n  triggers: [{manual: true}]\n  actions:\n    \
                - wait_for: {event: in.told, timeout: 1d}\n    - return: \"{{ wait.event.payload.c }}\"\n";
    stage.ask(&stage.owner, "POST", "/v1/apply", json!({"files": {"d/c.yaml": text}})).ok(200);
    let publish = |event: Value| stage.ask(&stage.owner, "POST", "/v1/events", event).ok(201);
    for topic in ["in.ask", "in.call"] {
        publish(json!({"topic": topic, "space": "a"}));
    }
    publish(json!({"topic": "in.told", "space": "a", "band": "red", "payload": {"c": "CANARY"}}));
    publish(json!({"topic": "in.clean", "space": "a"}));
    let runs = stage.ask(&stage.narrow, "GET", "/v1/runs", Value::Null).ok(200);
    let runs = runs["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned());
    let runs: Vec<String> = runs.collect();
    assert_eq!(runs.len(), 2);
    let of_runs = runs.iter().flat_map(|run| [format!("/v1/runs/{run}"), format!("/v1/explain/run/{run}")]);
    let lists = ["/v1/events?topic=out.%23", "/v1/waits", "/ui/waits", "/v1/runs"].map(str::to_owned);
    for path in of_runs.chain(lists) {
        let part = stage.ask(&stage.narrow, "GET", &path, Value::Null);
        assert!(part.status == 200 && !part.text().contains("CANARY"), "{path}: {}", part.text());
    }
    for path in ["/v1/events?topic=out.got", "/v1/events?topic=out.called", "/v1/waits"] {
        assert!(stage.ask(&stage.owner, "GET", path, Value::Null).text().contains("CANARY"), "{path}");
    }
    let waits = stage.ask(&stage.narrow, "GET", "/v1/waits", Value::Null).ok(200);
    assert_eq!(waits["waits"][0]["kind"], "ask", "{waits}");
}

#[test]
fn what_is_told_of_a_run_has_the_band_of_what_it_read() {
    let stage = Stage::new();
    let text = "@trigger(event=\"pair.x\")\nautomation first { wait_for \"pair.y\" timeout 1d }\n\
                @trigger(event=\"automation.completed\")\nautomation second { publish \"told.done\" { m: 1 } }";
    let files = json!({"files": {"d/c.ew": text}});
    stage.ask(&stage.owner, "POST", "/v1/apply", files).ok(200);
    for (who, group) in [(&stage.owner, "all"), (&stage.narrow, "part")] {
        stage
            .ask(who, "PUT", &format!("/v1/groups/{group}"), json!({"pattern": "automation.completed"}))
            .ok(201);
    }
    let publish = |event: Value| stage.ask(&stage.owner, "POST", "/v1/events", event).ok(201);
    // One that begins with what is red, and one that waits for it.
    publish(json!({"topic": "pair.x", "space": "a", "band": "red"}));
    publish(json!({"topic": "pair.y", "space": "a"}));
    publish(json!({"topic": "pair.x", "space": "a"}));
    publish(json!({"topic": "pair.y", "space": "a", "band": "red"}));
    let pull = |who: &str, group: &str| {
        let pulled = stage.ask(who, "POST", &format!("/v1/groups/{group}/pull"), json!({"max": 10})).ok(200);
        let band = |delivery: &Value| delivery["event"]["band"].as_str().unwrap().to_owned();
        pulled["deliveries"].as_array().unwrap().iter().map(band).collect::<Vec<String>>()
    };
    let all = pull(&stage.owner, "all");
    assert!(all.len() >= 2 && all.iter().all(|band| band == "red"), "{all:?}");
    assert_eq!(pull(&stage.narrow, "part"), [""; 0]);
    let told = stage.ask(&stage.owner, "GET", "/v1/events?topic=told.done", Value::Null).ok(200);
    let told = told["events"].as_array().unwrap();
    assert!(told.len() == 2 && told.iter().all(|event| event["band"] == "red"), "{told:?}");
}

#[test]
fn the_group_of_a_push_is_shown_to_administrators_only() {
    let stage = Stage::new();
    let (viewer, _) = token(&stage.server, "main", json!({"role": "viewer"}));
    let push = json!({"url": "https://example.org/x", "pattern": "salary.#"});
    stage.ask(&stage.owner, "PUT", "/v1/push/crm", push).ok(201);
    let position = stage.publish("a", "green", "one").to_string();
    for path in ["/v1/groups".to_owned(), "/ui/groups".to_owned(), format!("/v1/explain/event/{position}")] {
        assert!(stage.ask(&stage.owner, "GET", &path, Value::Null).text().contains("push-crm"), "{path}");
        for who in [&viewer, &stage.narrow] {
            assert!(!stage.ask(who, "GET", &path, Value::Null).text().contains("push-crm"), "{path}");
        }
    }
    stage.ask(&viewer, "GET", "/v1/groups/push-crm", Value::Null).refused(404, "group.not_found");
}

#[test]
fn who_has_one_space_means_it_and_who_has_several_names_one() {
    let server = server();
    let (one, _) = token(&server, "main", json!({"role": "editor", "spaces": ["a"]}));
    let (two, _) = token(&server, "main", json!({"role": "editor", "spaces": ["a", "b"]}));
    let (with_default, _) = token(&server, "main", json!({"role": "editor", "spaces": ["default", "b"]}));
    let files = json!({"files": {"t/c.ew": "concept thing {\n  name string\n}\n"}}).to_string();
    asked(&server, LOCAL, "POST", "/v1/apply", &files).ok(200);
    let space_of = |position: &Value| {
        asked(&server, LOCAL, "GET", &format!("/v1/events/{position}"), "").ok(200)["space"].clone()
    };
    let event = r#"{"topic":"t.x"}"#;
    for (who, space) in [(&one, "a"), (&with_default, "default")] {
        let said = asked(&server, who, "POST", "/v1/events", event).ok(201);
        assert_eq!(space_of(&said["position"]), space);
        let list = asked(&server, who, "POST", "/v1/events", &format!("[{event},{event}]")).ok(201);
        assert_eq!(space_of(&list["events"][1]["position"]), space);
        let bearer = format!("authorization: Bearer {who}");
        let lines = [bearer.as_str(), "content-type: application/x-ndjson"];
        let line = server.send("POST", "/v1/events", &lines, format!("{event}\n"));
        assert_eq!(space_of(&line.ok(200)["position"]), space);
        let cloud = [bearer.as_str(), "content-type: application/cloudevents+json"];
        let said = json!({"specversion": "1.0", "type": "t.x", "source": "s", "id": space}).to_string();
        assert_eq!(space_of(&server.send("POST", "/v1/events", &cloud, said).ok(201)["position"]), space);
        let row = asked(&server, who, "PUT", &format!("/v1/entities/thing/in-{space}"), r#"{"name":"x"}"#);
        assert_eq!(row.ok(201)["space"], space);
        let tool = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "publish_event", "arguments": {"topic": "t.tool"}}});
        asked(&server, who, "POST", "/mcp", &tool.to_string()).ok(200);
        let told =
            asked(&server, LOCAL, "GET", &format!("/v1/events?topic=t.tool&space={space}"), "").ok(200);
        assert_eq!(told["events"].as_array().unwrap().len(), 1, "{told}");
    }
    for (method, path, body) in
        [("POST", "/v1/events", event), ("PUT", "/v1/entities/thing/x", r#"{"name":"x"}"#)]
    {
        let refused = asked(&server, &two, method, path, body).refused(403, "auth.denied");
        assert_eq!(
            (&refused["pointer"], &refused["detail"]),
            (&json!("/space"), &json!("this token does not allow space \"default\""))
        );
    }
}
