//! `/v1/ws`: seed 000's frames, group consumption, seed 004's messages, and how a session ends.

use std::time::Duration;

use serde_json::{Value, json};
use server::Patience;

use crate::harness::Server;
use crate::socket::{Frame, Socket};

fn subscribe(socket: &mut Socket, kind: u64, filter: &str) -> Value {
    let ok = socket.ask(json!({"subscribe": {"subscription_id": "s", "kind": kind, "filter": filter}}));
    assert!(ok["ok"].is_object(), "{ok}");
    ok["ok"].clone()
}

#[test]
fn a_subscription_hears_what_its_kind_and_filter_mean() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    let ok = subscribe(&mut socket, 550, "price.*");
    assert_eq!((&ok["subscription_id"], &ok["patterns"]), (&json!("s"), &json!(["price.*"])));
    server.publish("other.thing", "{}");
    let position = server.publish("price.changed", r#"{"new": 9.50}"#);
    let frame = socket.json();
    assert!(frame["message_id"].as_str().unwrap().starts_with("evt-"), "{frame}");
    let event = &frame["payload"]["event"];
    assert_eq!((&event["subscription_id"], &event["kind"]), (&json!("s"), &json!(0)));
    assert_eq!(event["payload"]["topic"], "price.changed");
    assert_eq!(event["payload"]["position"], position);
    assert_eq!(event["payload"]["payload"], json!({"new": 9.5}));
    assert_eq!(event["payload"]["eventKind"], "unspecified");
    let ended = socket.ask(json!({"unsubscribe": {"subscription_id": "s"}}));
    assert_eq!(ended["ok"]["subscription_id"], "s");
    server.publish("price.changed", "{}");
    let again = socket.ask(json!({"unsubscribe": {"subscription_id": "s"}}));
    assert_eq!(again["error"]["code"], "not_found", "and nothing was heard in between");
}

#[test]
fn rows_and_their_kinds_are_those_of_the_seed() {
    let server = Server::start();
    server.apply("shop/concepts.ew", "concept item {\n  price int\n}\n");
    let mut socket = Socket::open(&server, &[]);
    subscribe(&mut socket, 500, "node.created.*");
    server.put("/v1/entities/v1:shop:item/a", r#"{"price": 1}"#).ok(201);
    let event = socket.event();
    assert_eq!((&event["kind"], &event["payload"]["eventKind"]), (&json!(301), &json!("node_created")));
    assert_eq!(
        (&event["payload"]["nodeId"], &event["payload"]["concept"]),
        (&json!("a"), &json!("v1:shop:item"))
    );
    assert_eq!(event["payload"]["actor"], "user:local");
}

#[test]
fn kind_400_hears_both_names_and_600_and_700_hear_what_happens_to_runs() {
    let server = Server::start();
    server.apply(
        "a.yaml",
        "automation: work\ntriggers: [{event: job.*}]\nactions: [{publish: {topic: si.done}}]\n",
    );
    let mut ai = Socket::open(&server, &[]);
    subscribe(&mut ai, 400, "");
    let mut runs = Socket::open(&server, &[]);
    subscribe(&mut runs, 600, "");
    let mut all = Socket::open(&server, &[]);
    subscribe(&mut all, 700, "");
    server.publish("job.a", "{}");
    server.publish("ai.said", "{}");
    assert_eq!(ai.event()["payload"]["topic"], "si.done");
    let said = ai.event();
    assert_eq!((&said["payload"]["topic"], &said["kind"]), (&json!("ai.said"), &json!(500)));
    let started = runs.event();
    assert_eq!((&started["kind"], &started["payload"]["topic"]), (&json!(700), &json!("automation.started")));
    let mut heard = Vec::new();
    while heard.len() < 7 {
        heard.push(all.event()["payload"]["topic"].as_str().unwrap().to_owned());
    }
    for topic in ["job.a", "si.done", "ai.said", "automation.started", "automation.completed"] {
        assert!(heard.iter().any(|heard| heard == topic), "{topic} in {heard:?}");
    }
}

#[test]
fn sessions_are_told_of_to_who_listens() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    subscribe(&mut socket, 550, "session.*");
    let mut other = Socket::open(&server, &["everwhen-actor: user:ann"]);
    let opened = socket.event();
    assert_eq!(
        (&opened["kind"], &opened["payload"]["payload"]["subject"]),
        (&json!(600), &json!("user:ann"))
    );
    other.frame(0x88, &1000u16.to_be_bytes());
    assert_eq!(socket.event()["kind"], 601);
}

#[test]
fn a_session_comes_back_after_the_position_it_saw_last() {
    let server = Server::start();
    let first = server.publish("a.b", "1");
    for n in 2..=1_500 {
        server.publish("a.b", &n.to_string());
    }
    let mut socket = Socket::open(&server, &[]);
    let ask = json!({"subscribe": {"subscription_id": "s", "kind": 550, "filter": "a.b",
        "config": {"after": first, "filter": "event.payload != 3"}}});
    assert_eq!(socket.ask(ask)["ok"]["position"], first);
    let heard: Vec<u64> =
        (0..1_498).map(|_| socket.event()["payload"]["payload"].as_u64().unwrap()).collect();
    assert_eq!(heard, std::iter::once(2).chain(4..=1_500).collect::<Vec<u64>>());
}

#[test]
fn what_cannot_be_understood_is_answered_and_the_session_goes_on() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    for (request, code, pointer) in [
        (json!({"subscribe": {"kind": 550}}), "request.invalid", "/payload/subscribe/subscription_id"),
        (
            json!({"subscribe": {"subscription_id": "s", "kind": 5}}),
            "request.invalid",
            "/payload/subscribe/kind",
        ),
        (
            json!({"subscribe": {"subscription_id": "s", "kind": 500, "filter": "a..b"}}),
            "pattern.invalid",
            "/payload/subscribe/filter",
        ),
        (
            json!({"subscribe": {"subscription_id": "s", "kind": 500, "config": {"after": -1}}}),
            "request.invalid",
            "/payload/subscribe/config/after",
        ),
        (json!({"fly": {}}), "request.invalid", "/payload"),
        (
            json!({"credit": {"subscription_id": "s", "credits": 0}}),
            "request.invalid",
            "/payload/credit/credits",
        ),
        (json!({"subscribe": {}, "unsubscribe": {}}), "request.invalid", "/payload"),
        (json!(5), "request.invalid", "/payload"),
    ] {
        let error = socket.ask(request.clone())["error"].clone();
        assert_eq!((&error["code"], &error["pointer"]), (&json!(code), &json!(pointer)), "{request}");
    }
    for text in ["", "{", "[]", "5", r#"{"a":1,"a":2}"#, "\u{0}"] {
        socket.frame(0x81, text.as_bytes());
        assert!(socket.json()["payload"]["error"]["code"].is_string(), "{text}");
    }
    subscribe(&mut socket, 550, "a.b");
    let twice = socket.ask(json!({"subscribe": {"subscription_id": "s", "kind": 550}}));
    assert_eq!(twice["error"]["code"], "request.invalid");
}

#[test]
fn a_group_hands_out_as_many_as_there_are_credits() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    let mut socket = Socket::open(&server, &[]);
    let none = socket.ask(json!({"consume": {"subscription_id": "w", "group": "none"}}));
    assert_eq!(none["error"]["code"], "group.not_found");
    let ok = socket.ask(json!({"consume": {"subscription_id": "w", "group": "g", "credits": 2}}));
    assert_eq!(ok["ok"]["credits"], 2);
    let positions: Vec<u64> = (0..3).map(|_| server.publish("a.b", "{}")).collect();
    let first = socket.json()["payload"]["delivery"].clone();
    let second = socket.json()["payload"]["delivery"].clone();
    assert_eq!(
        (&first["event"]["position"], &second["event"]["position"]),
        (&positions[0].into(), &positions[1].into())
    );
    assert_eq!((&first["subscription_id"], &first["attempt"]), (&json!("w"), &json!(1)));
    let weaker =
        socket.ask(json!({"ack": {"subscription_id": "w", "tokens": [first["token"]], "sync": "yes"}}));
    assert_eq!(
        weaker["error"]["pointer"], "/payload/ack/sync",
        "a promise that was asked for is not left out"
    );
    // The third stays until there is a credit for it: the next thing said is the answer.
    let acked = socket
        .ask(json!({"ack": {"subscription_id": "w", "tokens": [first["token"], "none"], "sync": true}}));
    assert_eq!(acked["ok"], json!({"done": 1, "stale": ["none"]}));
    let longer =
        socket.ask(json!({"extend": {"subscription_id": "w", "tokens": [second["token"]], "by": "60s"}}));
    assert_eq!(longer["ok"]["done"], 1);
    socket.ask(json!({"credit": {"subscription_id": "w", "credits": 5}}));
    let third = socket.json()["payload"]["delivery"].clone();
    assert_eq!(third["event"]["position"], positions[2]);
    let failed = socket.ask(
        json!({"nack": {"subscription_id": "w", "tokens": [third["token"]], "delay": 0, "error": "no"}}),
    );
    assert_eq!(failed["ok"]["done"], 1);
    assert_eq!(socket.json()["payload"]["delivery"]["attempt"], 2);
    let floor = server.get("/v1/groups/g").ok(200)["floor"].as_u64().unwrap();
    assert!(floor >= positions[0] && floor < positions[2], "{floor}");
}

#[test]
fn a_credit_that_a_waiting_pull_holds_is_one_that_is_left() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    let mut socket = Socket::open(&server, &[]);
    socket.ask(json!({"consume": {"subscription_id": "w", "group": "g", "credits": 2}}));
    let mut credit = |credits: u64| {
        let said = socket.ask(json!({"credit": {"subscription_id": "w", "credits": credits}}));
        said["ok"]["credits"].as_u64().unwrap()
    };
    for left in 3..50 {
        assert_eq!(credit(1), left);
    }
    assert_eq!((credit(1_000), credit(1)), (1_000, 1_000), "and no more");
    server.publish("a.b", "{}");
    assert!(socket.json()["payload"]["delivery"].is_object());
    let said = socket.ask(json!({"credit": {"subscription_id": "w", "credits": 1_000}}));
    assert_eq!(said["ok"]["credits"], 1_000);
}

#[test]
fn automations_are_managed_in_the_words_of_seed_004() {
    let server = Server::start();
    let mut watcher = Socket::open(&server, &[]);
    watcher.say(&json!({"type": "subscribe_automations", "requestId": 7}));
    assert_eq!(watcher.json(), json!({"type": "ok", "request": "subscribe_automations", "requestId": 7}));
    let mut socket = Socket::open(&server, &[]);
    let mut ask = |message: Value| {
        socket.say(&message);
        socket.json()
    };
    let definition = json!({"name": "work", "triggers": [{"event": "job.*"}], "actions": [{"publish": {"topic": "done.now"}}]});
    let created = ask(json!({"type": "create_automation", "automation": definition}));
    assert_eq!(
        (&created["type"], &created["automation"]["id"]),
        (&json!("automation_created"), &json!("work"))
    );
    assert_eq!(watcher.json()["type"], "automation_created");
    let listed = ask(json!({"type": "list_automations"}));
    assert_eq!(
        (&listed["type"], &listed["automations"][0]["name"]),
        (&json!("automation_list"), &json!("work"))
    );
    assert_eq!(ask(json!({"type": "get_automation", "automationId": "work"}))["type"], "automation_detail");
    let run = ask(json!({"type": "run_automation", "automationId": "work"}));
    assert_eq!(run["type"], "automation_run_started", "{run}");
    let (started, completed) = (watcher.json(), watcher.json());
    assert_eq!((&started["type"], &started["runId"]), (&json!("automation_run_started"), &run["runId"]));
    assert_eq!(
        (&completed["type"], &completed["status"]),
        (&json!("automation_run_completed"), &json!("completed"))
    );
    let off = ask(json!({"type": "toggle_automation", "automationId": "work", "enabled": false}));
    assert_eq!((&off["type"], &off["automation"]["enabled"]), (&json!("automation_updated"), &json!(false)));
    assert_eq!(watcher.json()["type"], "automation_updated");
    assert_eq!(ask(json!({"type": "list_automations"}))["automations"], json!([]));
    assert_eq!(
        ask(json!({"type": "list_automations", "includeDisabled": true}))["automations"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let patched =
        ask(json!({"type": "update_automation", "automationId": "work", "patch": {"description": "x"}}));
    assert_eq!(patched["type"], "automation_updated", "{patched}");
    assert_eq!(watcher.json()["type"], "automation_updated");
    assert_eq!(
        ask(json!({"type": "delete_automation", "automationId": "work"})),
        json!({"type": "automation_deleted", "automationId": "work"})
    );
    assert_eq!(watcher.json()["type"], "automation_deleted");
    let gone = ask(json!({"type": "get_automation", "automationId": "work"}));
    assert_eq!((&gone["type"], gone["code"].is_string()), (&json!("error"), true));
    assert_eq!(ask(json!({"type": "fly"}))["code"], "request.invalid");
}

#[test]
fn who_did_it_has_the_answer_and_no_broadcast_of_it() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    let mut ask = |message: Value| {
        socket.say(&message);
        socket.json()
    };
    assert_eq!(ask(json!({"type": "subscribe_automations"}))["type"], "ok");
    let again = ask(json!({"type": "subscribe_automations"}));
    assert_eq!(again["detail"], "automations are subscribed to already");
    let definition = json!({"name": "work", "mode": "parallel", "triggers": [{"event": "job.*"}],
        "actions": [{"delay": "1h"}]});
    // What is heard next is always the answer to what is said next, never an echo of what was said before.
    assert_eq!(
        ask(json!({"type": "create_automation", "automation": definition}))["type"],
        "automation_created"
    );
    let patch = json!({"type": "update_automation", "automationId": "work", "patch": {"description": "x"}});
    assert_eq!(ask(patch)["automation"]["description"], "x");
    assert_eq!(
        ask(json!({"type": "run_automation", "automationId": "work"}))["type"],
        "automation_run_started"
    );
    let toggle =
        |enabled: bool| json!({"type": "toggle_automation", "automationId": "work", "enabled": enabled});
    assert_eq!(ask(toggle(false))["automation"]["enabled"], false);
    assert_eq!(ask(toggle(true))["automation"]["enabled"], true);
    assert_eq!(ask(json!({"type": "ping"}))["type"], "pong");
    // What others do is told.
    server.post("/v1/automations/work/disable", "{}").ok(200);
    assert_eq!(socket.json()["automation"]["enabled"], false);
    server.post("/v1/automations/work/enable", "{}").ok(200);
    assert_eq!(socket.json()["automation"]["enabled"], true);
    server.publish("job.a", "{}");
    assert_eq!(socket.json()["type"], "automation_run_started");
    socket.say(&json!({"type": "delete_automation", "automationId": "work"}));
    let mut heard = Vec::new();
    while heard.len() < 3 {
        heard.push(socket.json()["type"].as_str().unwrap().to_owned());
    }
    heard.sort();
    assert_eq!(heard, ["automation_deleted", "automation_run_completed", "automation_run_completed"]);
    socket.say(&json!({"type": "ping"}));
    assert_eq!(socket.json()["type"], "pong");
}

#[test]
fn what_comes_with_another_issue_is_not_available() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    for kind in [
        "subscribe_inbox",
        "list_inbox",
        "update_inbox_item",
        "configure_heartbeat",
        "wake_heartbeat",
        "parse_automation",
        "apply_draft",
    ] {
        socket.say(&json!({"type": kind}));
        let answer = socket.json();
        assert_eq!(
            (&answer["type"], &answer["code"], &answer["request"]),
            (&json!("error"), &json!("not_available"), &json!(kind))
        );
    }
}

#[test]
fn a_token_is_asked_for_each_thing_that_is_said() {
    let server = Server::start_with(Patience::default(), Some("the-local-one"));
    assert_eq!(Socket::try_open(&server, &[]).1, 401);
    let local = "authorization: Bearer the-local-one";
    let make = |role: &str| {
        let body = json!({ "role": role }).to_string();
        let made =
            server.send("POST", "/v1/tokens", &[local, "content-type: application/json"], body).ok(201);
        (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
    };
    let (id, viewer) = make("viewer");
    // As browsers have to say it.
    let mut socket =
        Socket::open(&server, &[&format!("sec-websocket-protocol: everwhen.v1, bearer.{viewer}")]);
    subscribe(&mut socket, 550, "a.b");
    let denied = socket.ask(json!({"consume": {"subscription_id": "w", "group": "g"}}));
    assert_eq!(denied["error"]["code"], "auth.denied");
    socket.say(&json!({"type": "run_automation", "automationId": "x"}));
    assert_eq!(socket.json()["code"], "auth.denied");
    let (_, publisher) = make("publisher");
    let mut other = Socket::open(&server, &[&format!("authorization: Bearer {publisher}")]);
    assert_eq!(
        other.ask(json!({"subscribe": {"subscription_id": "s", "kind": 700}}))["error"]["code"],
        "auth.denied"
    );
    // Revoked: what happens next is heard no more.
    server.send("DELETE", &format!("/v1/tokens/{id}"), &[local], "").gone();
    server
        .send("POST", "/v1/events", &[local, "content-type: application/json"], r#"{"topic":"a.b"}"#)
        .ok(201);
    assert_eq!(socket.json()["payload"]["error"]["code"], "auth.required");
    assert_eq!(socket.next(), Frame::Close(1008, "auth.required".to_owned()));
}

#[test]
fn a_page_of_another_host_opens_no_socket() {
    let server = Server::start();
    assert_eq!(Socket::try_open(&server, &["origin: http://evil.example"]).1, 403);
    assert_eq!(server.get("/v1/ws").refused(400, "request.invalid")["code"], "request.invalid");
}

#[test]
fn a_server_that_stops_says_so_and_a_silent_one_shows_signs_of_life() {
    let patience = Patience { ping: Duration::from_millis(20), ..Patience::default() };
    let mut server = Server::start_with(patience, None);
    let mut socket = Socket::open(&server, &[]);
    assert_eq!(socket.next(), Frame::Ping);
    socket.frame(0x8a, b"");
    server.stop();
    let farewell = socket.json();
    assert_eq!(farewell["payload"]["server.shutdown"]["reconnect_after_ms"], 1_000);
    assert_eq!(
        (&farewell["type"], &farewell["reconnect_after_ms"]),
        (&json!("server.shutdown"), &json!(1_000))
    );
    assert_eq!(socket.next(), Frame::Close(1001, "server.shutdown".to_owned()));
    socket.frame(0x88, &1001u16.to_be_bytes());
    server.join();
}

#[test]
fn a_client_that_answers_no_sign_of_life_is_let_go() {
    let patience = Patience { ping: Duration::from_millis(5), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut socket = Socket::open(&server, &[]);
    while socket.next() == Frame::Ping {}
}

#[test]
fn a_reader_that_takes_nothing_is_told_why_and_closed() {
    let patience = Patience { reader: Duration::from_millis(2), ..Patience::default() };
    let server = Server::start_with(patience, None);
    let mut socket = Socket::open(&server, &[]);
    subscribe(&mut socket, 550, "a.b");
    // More than the kernel's socket buffers (up to 36 MB here) and ours together.
    let payload = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    for _ in 0..64 {
        server.publish("a.b", &payload);
    }
    let mut last = Value::Null;
    let end = loop {
        match socket.next() {
            Frame::Text(text) => last = serde_json::from_str(&text).unwrap(),
            Frame::Ping => {}
            other => break other,
        }
    };
    assert_eq!(last["payload"]["error"]["code"], "stream.slow");
    assert_eq!(end, Frame::Close(1013, "stream.slow".to_owned()));
}

#[test]
fn frames_that_are_none_end_their_connection_and_nothing_else() {
    let server = Server::start();
    let abuses: [&dyn Fn(&mut Socket); 8] = [
        // Reserved bits, reserved opcodes, a control frame in pieces or too long, a continuation of nothing.
        &|socket| socket.frame(0xf1, b"{}"),
        &|socket| socket.frame(0x83, b"{}"),
        &|socket| socket.frame(0x09, b"ping"),
        &|socket| socket.frame(0x89, &[0; 126]),
        &|socket| socket.frame(0x80, b"{}"),
        // Not masked, not UTF-8, longer than any message may be.
        &|socket| socket.client.write(&[0x81, 2, b'{', b'}']),
        &|socket| socket.frame(0x81, &[0xff, 0xfe]),
        &|socket| {
            socket.client.write(&[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4])
        },
    ];
    for (i, abuse) in abuses.iter().enumerate() {
        let mut socket = Socket::open(&server, &[]);
        abuse(&mut socket);
        let code = match i {
            0..=5 => 1002,
            6 => 1007,
            _ => 1009,
        };
        let end = socket.next();
        assert!(
            matches!(&end, Frame::Close(told, why) if *told == code && !why.is_empty()),
            "abuse {i}: {end:?}"
        );
        server.get("/livez").ok(200);
    }
    // Pieces of one message, a control frame between them.
    let mut socket = Socket::open(&server, &[]);
    socket.frame(0x01, br#"{"message_id":"m","#);
    socket.frame(0x89, b"");
    socket.frame(0x00, br#""payload":{"subscribe":{"subscription_id":"s","#);
    socket.frame(0x80, br#""kind":700}}}"#);
    let answer = loop {
        let mut head = [0; 2];
        std::io::Read::read_exact(&mut socket.client.reader, &mut head).unwrap();
        if head[0] != 0x8a {
            let mut rest = vec![0; usize::from(head[1])];
            if head[1] == 126 {
                let mut length = [0; 2];
                std::io::Read::read_exact(&mut socket.client.reader, &mut length).unwrap();
                rest.resize(usize::from(u16::from_be_bytes(length)), 0);
            }
            std::io::Read::read_exact(&mut socket.client.reader, &mut rest).unwrap();
            break serde_json::from_slice::<Value>(&rest).unwrap();
        }
    };
    assert_eq!(answer["payload"]["ok"]["subscription_id"], "s");
    // Pieces without end.
    let mut endless = Socket::open(&server, &[]);
    endless.frame(0x01, b"\"");
    for _ in 0..40 {
        endless.frame(0x00, &[b'x'; 60_000]);
    }
    assert!(matches!(endless.next(), Frame::Close(1009, _) | Frame::Gone));
    server.get("/livez").ok(200);
}

#[test]
fn a_message_that_is_too_large_ends_the_session_with_a_reason() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    socket.frame(0x81, &vec![b' '; (1 << 20) + 1]);
    assert_eq!(socket.next(), Frame::Close(1009, "a message has at most 1048576 bytes".to_owned()));
}

#[test]
fn a_number_that_names_a_message_comes_back_as_it_is() {
    let server = Server::start();
    let mut socket = Socket::open(&server, &[]);
    for (id, answer) in [(json!(7), json!(7)), (json!("7"), json!("7")), (json!(true), json!(""))] {
        socket.say(&json!({"message_id": id, "payload": {"unsubscribe": {"subscription_id": "s"}}}));
        assert_eq!(socket.json()["message_id"], answer);
    }
    for id in ["123456789012345678901234567890", "1.10", "-0"] {
        for (said, name) in [
            (
                format!(r#"{{"payload":{{"unsubscribe":{{"subscription_id":"s"}}}},"message_id":{id}}}"#),
                "message_id",
            ),
            (format!(r#"{{"type":"ping","requestId":{id}}}"#), "requestId"),
        ] {
            socket.frame(0x81, said.as_bytes());
            let Frame::Text(answer) = socket.next() else { panic!("no text") };
            assert!(answer.contains(&format!("\"{name}\":{id}")), "{answer}");
        }
    }
    let long = "1".repeat(129);
    let said = format!(r#"{{"message_id":{long},"payload":{{}}}}"#);
    socket.frame(0x81, said.as_bytes());
    assert_eq!(socket.json()["message_id"], "", "it would have to be kept as long as it is");
}
