//! What acts of administration begin is for those who see acts: runs, what they call, and whatever is told of them.

use serde_json::{Value, json};

use crate::client::Pieces;
use crate::harness::Server;
use crate::rights::{LOCAL, asked, server, token};
use crate::socket::Socket;

const FILES: &str = r#"
- automation: watch
  triggers: [{event: "graph.node.created.v1:everwhen:secret"}]
  mode: parallel
  actions:
    - {automation: helper, wait: false, args: {path: "{{ event.subject.id }}"}}
    - {id: made, task: {kind: look, input: {path: "{{ event.subject.id }}"}}}
- automation: helper
  triggers: [{manual: true}]
  mode: parallel
  actions:
    - ask: {question: "what of {{ input.path }}"}
- automation: batched
  triggers: [{event: "graph.node.created.v1:everwhen:secret", batch: {count: 1, for: 1m}}]
  mode: parallel
  actions: [{fail: "no {{ input.events[0].subject.id }}"}]
- automation: wary
  triggers: [{event: "graph.node.created.v1:everwhen:secret"}]
  conditions: ['event.subject.id == "elsewhere"']
  actions: [{delay: 0}]
- automation: plain
  triggers: [{event: "mark.*"}]
  mode: parallel
  actions: [{wait_for: {event: "graph.node.created.v1:everwhen:secret"}}, {vars: {heard: "{{ wait.event.subject.id }}"}}, {delay: 1h}]
- automation: after
  triggers: [{event: "automation.failed"}]
  mode: parallel
  actions: [{ask: {question: "what of {{ event.payload }}"}}]
- automation: subscribed
  triggers: [{manual: true}]
  mode: parallel
  actions: [{vars: {heard: "{{ input.path }}"}}]
"#;

/// Everything that tells of runs, as one token is told.
fn told_of(server: &Server, token: &str, runs: &[Value]) -> String {
    let mut paths: Vec<String> = [
        "/v1/runs",
        "/v1/decisions",
        "/v1/waits",
        "/v1/tasks",
        "/v1/subscriptions",
        "/v1/explain/automation/watch",
        "/v1/explain/automation/wary",
        "/ui/runs",
        "/ui/waits",
        "/ui/automations/watch",
    ]
    .map(str::to_owned)
    .into();
    for run in runs {
        let id = run["id"].as_str().unwrap();
        paths.extend(["/v1/runs/", "/v1/explain/run/", "/ui/runs/"].map(|path| format!("{path}{id}")));
    }
    let mut told: String = paths.iter().map(|path| asked(server, token, "GET", path, "").text()).collect();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "list_runs", "arguments": {}}});
    told += &asked(server, token, "POST", "/mcp", &list.to_string()).text();
    told += &asked(server, token, "POST", "/v1/groups/ends/pull", r#"{"max":100}"#).text();
    told
}

fn stage() -> (Server, [String; 3]) {
    let server = server();
    let tokens = ["admin", "editor", "viewer"].map(|role| token(&server, "main", json!({"role": role})).0);
    let admin = &tokens[0];
    let apply = json!({"files": {"a.yaml": FILES}}).to_string();
    asked(&server, admin, "POST", "/v1/apply", &apply).ok(200);
    let group = r#"{"pattern":["automation.started","automation.failed"],"start":"beginning"}"#;
    asked(&server, admin, "PUT", "/v1/groups/ends", group).ok(201);
    let acts = r##"{"pattern":"engine.audit.secrets.#","ordering":"strict","on_exhausted":"halt","max_retries":0,"start":"beginning"}"##;
    asked(&server, admin, "PUT", "/v1/groups/acts", acts).ok(201);
    let put = r##"{"pattern":"engine.audit.secrets.#","automation":"subscribed","group":"acts"}"##;
    asked(&server, admin, "PUT", "/v1/subscriptions/acts", put).ok(201);
    asked(&server, admin, "POST", "/v1/events", r#"{"topic":"mark.set"}"#).ok(201);
    (server, tokens)
}

#[test]
fn runs_that_acts_began_are_for_who_sees_acts() {
    let (server, [admin, editor, viewer]) = stage();
    let open = |token: &str, path: &str| {
        let mut client = server.client();
        client.head("GET", path, &[&format!("authorization: Bearer {token}")], Some(0));
        let mut stream = Pieces::of(client, "\n\n");
        assert!(stream.next().unwrap().contains("ready"));
        stream
    };
    let mut streams = ["/v1/runs/stream", "/v1/decisions/stream", "/v1/events/stream?topic=automation.%23"]
        .map(|path| open(&viewer, path));
    let mut socket = Socket::open(&server, &[&format!("authorization: Bearer {viewer}")]);
    socket.say(&json!({"type": "subscribe_automations"}));
    assert_eq!(socket.json()["type"], "ok");

    asked(&server, &admin, "PUT", "/v1/secrets/canary-name", r#"{"value":"hunter22"}"#).ok(201);
    asked(&server, &admin, "POST", "/v1/groups/acts/dispatch", "{}").ok(200);
    let runs = asked(&server, &admin, "GET", "/v1/runs", "").ok(200)["runs"].as_array().unwrap().clone();
    let names: Vec<&str> = runs.iter().map(|run| run["automation"].as_str().unwrap()).collect();
    for name in ["watch", "helper", "batched", "after", "subscribed", "plain"] {
        let why = || asked(&server, &admin, "GET", &format!("/v1/explain/automation/{name}"), "").text();
        assert!(names.contains(&name), "{name} ran: {names:?}, {}", why());
    }
    let seen = told_of(&server, &admin, &runs);
    assert!(seen.matches("canary-name").count() >= 8 && seen.contains("automation.failed"), "{seen}");
    for token in [&editor, &viewer] {
        let seen = told_of(&server, token, &runs);
        assert!(!seen.contains("canary-name") && !seen.contains("event:engine.audit"), "{seen}");
        let shown = asked(&server, token, "GET", "/v1/runs", "").ok(200);
        let shown: Vec<&Value> =
            shown["runs"].as_array().unwrap().iter().map(|run| &run["automation"]).collect();
        assert_eq!(shown, ["plain"], "what an event began that is seen");
        for run in runs.iter().filter(|run| run["automation"] != "plain") {
            let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
            asked(&server, token, "GET", &path, "").refused(404, "run.not_found");
        }
        let decided = asked(&server, token, "GET", "/v1/decisions", "").ok(200);
        assert!(
            decided["decisions"].as_array().unwrap().iter().all(|one| one["automation"] == "plain"),
            "{decided}"
        );
        let automation = asked(&server, token, "GET", "/v1/automations/watch", "").ok(200);
        assert!(automation.get("runs_total").is_none(), "{automation}");
    }
    // What is seen comes after what is not, and nothing of that before it.
    asked(&server, &admin, "POST", "/v1/events", r#"{"topic":"mark.again"}"#).ok(201);
    for stream in &mut streams {
        let frame = stream.next().unwrap();
        assert!(frame.contains("plain"), "{frame}");
    }
    let told = socket.json();
    assert_eq!(told["automationId"], "plain", "{told}");
}

#[test]
fn who_does_not_see_a_run_neither_works_on_it_nor_answers_for_it() {
    let (server, [admin, editor, _]) = stage();
    asked(&server, &admin, "PUT", "/v1/secrets/canary-name", r#"{"value":"hunter22"}"#).ok(201);
    let none = asked(&server, &editor, "POST", "/v1/tasks/poll", r#"{"max":10}"#).ok(200);
    assert_eq!(none, json!({"tasks": []}));
    let runs = asked(&server, &admin, "GET", "/v1/runs", "").ok(200);
    let of = |name: &str| {
        let mut runs = runs["runs"].as_array().unwrap().iter();
        runs.find(|run| run["automation"] == name).unwrap()["id"].as_str().unwrap().to_owned()
    };
    for what in ["cancel", "retry", "resume", "rerun"] {
        asked(&server, &editor, "POST", &format!("/v1/runs/{}/{what}", of("watch")), "")
            .refused(404, "run.not_found");
    }
    let in_bulk = |who: &str| {
        let said = r#"{"do":"cancel","where":{},"dry_run":true}"#;
        asked(&server, who, "POST", "/v1/runs/bulk", said).ok(200)["matched"].as_u64().unwrap()
    };
    assert_eq!(in_bulk(&editor), 1, "that of `plain`");
    assert!(in_bulk(&admin) > 1);
    let wait = format!("/v1/waits/{}.1/answer", of("helper"));
    asked(&server, &editor, "POST", &wait, r#"{"value":"yes"}"#).refused(404, "run.not_found");
    asked(&server, &admin, "POST", &wait, r#"{"value":"yes"}"#).ok(200);
    let some = asked(&server, &admin, "POST", "/v1/tasks/poll", r#"{"max":10}"#).ok(200);
    assert_eq!(some["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_handed_acts_is_changed_by_who_sees_them() {
    let server = server();
    let (admin, _) = token(&server, "main", json!({"role": "admin"}));
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    let made = |who: &str, name: &str, action: Value| {
        let said = json!({"automation": name, "triggers": [{"manual": true}], "actions": [action]});
        asked(&server, who, "POST", "/v1/automations", &said.to_string())
    };
    let harmless = json!({"publish": {"topic": "out.x"}});
    for name in ["started", "called", "free"] {
        made(&editor, name, harmless.clone()).ok(201);
    }
    let put = r##"{"pattern":"engine.audit.#","automation":"started"}"##;
    asked(&server, &admin, "PUT", "/v1/subscriptions/acts", put).ok(201);
    asked(&server, &admin, "PATCH", "/v1/automations/started", r#"{"actions":[{"automation":"called"}]}"#)
        .ok(200);
    let patch = r#"{"actions":[{"publish":{"topic":"out.x","payload":"{{ input }}"}}]}"#;
    for name in ["called", "started"] {
        let refused = asked(&server, &editor, "PATCH", &format!("/v1/automations/{name}"), patch)
            .refused(403, "auth.denied");
        assert!(
            refused["detail"].as_str().unwrap().contains("is handed acts of administration"),
            "{refused}"
        );
        let bearer = format!("authorization: Bearer {editor}");
        let mut socket = Socket::open(&server, &[&bearer]);
        socket
            .say(&json!({"type": "update_automation", "automationId": name, "patch": {"description": "x"}}));
        assert_eq!(socket.json()["code"], "auth.denied");
        asked(&server, &editor, "DELETE", &format!("/v1/automations/{name}"), "");
        made(&editor, name, harmless.clone()).refused(403, "auth.denied");
    }
    asked(&server, &editor, "PATCH", "/v1/automations/free", patch).ok(200);
    made(LOCAL, "started", harmless).ok(201);
}

#[test]
fn what_is_said_of_automations_does_not_repeat_what_acts_said() {
    let server = server();
    let [admin, viewer] = ["admin", "viewer"].map(|role| token(&server, "main", json!({"role": role})).0);
    let files = r#"
- automation: doomed
  triggers: [{event: "graph.node.created.v1:everwhen:secret"}]
  actions: [{fail: "no {{ event.subject.id }}"}]
- automation: spy
  triggers: [{event: automation.started}]
  mode: parallel
  actions: [{publish: {topic: spied.on, payload: "{{ event.payload }}"}}]
- automation: after
  triggers: [{event: automation.disabled}]
  actions: [{delay: 0}]
"#;
    // With a concept: rows of the house are known where others are.
    let concept = "concept thing {\n  name string\n}\n";
    let apply = json!({"files": {"a.yaml": files, "t/c.ew": concept}}).to_string();
    asked(&server, &admin, "POST", "/v1/apply", &apply).ok(200);
    for n in 0..3 {
        asked(&server, &admin, "PUT", &format!("/v1/secrets/canary-{n}"), r#"{"value":"hunter22"}"#).ok(201);
    }
    let events = |who: &str, topic: &str| {
        asked(&server, who, "GET", &format!("/v1/events?topic={topic}"), "").ok(200)["events"].clone()
    };
    let said = events(&admin, "automation.disabled");
    assert_eq!((said[0]["payload"]["automation"].as_str(), said[1].as_object()), (Some("doomed"), None));
    assert!(said[0]["payload"].get("message").is_none(), "{said}");
    assert_eq!(events(&viewer, "automation.disabled"), json!([]));
    let runs = asked(&server, &viewer, "GET", "/v1/runs", "").ok(200);
    assert_eq!(runs["runs"], json!([]), "nor what that began");
    let spied = events(&viewer, "spied.on").to_string();
    assert!(spied.contains("doomed") && !spied.contains("everwhen:secret"), "{spied}");
}
