//! What was without a bound: tokens that outlive who gave them out, deliveries put off for ever, answers to nobody, bands that sink.

use engine::settings::Settings;
use serde_json::{Value, json};

use crate::harness::{Server, TempDir};
use crate::rights::{LOCAL, asked, server, token};

#[test]
fn a_token_gives_out_none_that_outlives_it_or_may_more() {
    let server = server();
    let (admin, _) = token(&server, "main", json!({"role": "admin", "expires_in": "1d"}));
    let ask = |said: Value| asked(&server, &admin, "POST", "/v1/tokens", &said.to_string());
    for said in [json!({"role": "viewer"}), json!({"role": "viewer", "expires_in": "2d"})] {
        assert_eq!(ask(said).refused(403, "auth.denied")["pointer"], "/expires_in");
    }
    assert_eq!(
        ask(json!({"role": "owner", "expires_in": "1h"})).refused(403, "auth.denied")["pointer"],
        "/role"
    );
    ask(json!({"role": "viewer", "expires_in": "1h"})).ok(201);
    let (owner, _) = token(&server, "main", json!({"role": "owner", "expires_in": "1d"}));
    asked(&server, &owner, "POST", "/v1/tenants", r#"{"name":"acme"}"#).refused(403, "auth.denied");
    let said = r#"{"role":"viewer"}"#;
    asked(&server, &owner, "POST", "/v1/tenants/main/tokens", said).refused(403, "auth.denied");
    let (lasting, _) = token(&server, "main", json!({"role": "owner"}));
    asked(&server, &lasting, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
}

#[test]
fn a_delivery_is_kept_or_put_off_for_twelve_hours_at_most() {
    let server = Server::start();
    server.put("/v1/groups/g", r#"{"pattern":"a.b"}"#).ok(201);
    server.publish("a.b", "{}");
    let pulled = server.post("/v1/groups/g/pull", "{}").ok(200);
    let say = |verb: &str, name: &str, length: &str| {
        let said = json!({"tokens": [pulled["deliveries"][0]["token"]], name: length});
        server.post(&format!("/v1/groups/g/{verb}"), said.to_string())
    };
    assert_eq!(say("extend", "by", "13h").refused(422, "group.invalid")["pointer"], "/by");
    assert_eq!(say("nack", "delay", "1000000d").refused(422, "group.invalid")["pointer"], "/delay");
    assert_eq!(say("extend", "by", "12h").ok(200)["done"], 1);
    assert_eq!(say("nack", "delay", "12h").ok(200)["done"], 1);
}

#[test]
fn who_may_not_read_is_not_told_what_took_a_key() {
    let server = server();
    let (editor, _) = token(&server, "main", json!({"role": "editor"}));
    let publisher = |name: &str| token(&server, "main", json!({"role": "publisher", "name": name})).0;
    let (first, other) = (publisher("first"), publisher("other"));
    let said = |n: u64| json!({"topic": "a.b", "key": "k", "payload": {"n": n}}).to_string();
    asked(&server, &first, "POST", "/v1/events", &said(1)).ok(201);
    for (who, told) in [(&editor, true), (&first, true), (&other, false)] {
        let conflict = asked(&server, who, "POST", "/v1/events", &said(2)).refused(409, "event.key_conflict");
        assert!(conflict["this_hash"].is_string(), "{conflict}");
        assert_eq!(
            (conflict["first_hash"].is_string(), conflict["position"].is_u64()),
            (told, told),
            "{conflict}"
        );
    }
    asked(&server, &other, "POST", "/v1/events", &said(1)).ok(200);
}

#[test]
fn a_key_in_the_header_belongs_to_one_event_or_is_refused() {
    let server = Server::start();
    let key = "idempotency-key: k";
    let ndjson = ["content-type: application/x-ndjson", key];
    let cloud = |id: &str, more: &str| {
        format!(r#"{{"specversion":"1.0","type":"a.b","source":"s","id":"{id}"{more}}}"#)
    };
    let refused = server.send("POST", "/v1/events", &ndjson, "{\"topic\":\"a.b\"}\n");
    assert_eq!(refused.refused(400, "request.invalid")["parameter"], "idempotency-key");
    assert_eq!(server.get("/v1/events").ok(200)["events"], json!([]));
    let one = ["content-type: application/cloudevents+json", key];
    let first = server.send("POST", "/v1/events", &one, cloud("c1", "")).ok(201);
    let again = server.send("POST", "/v1/events", &one, cloud("c2", "")).ok(200);
    assert_eq!((&again["duplicate"], &again["position"]), (&json!(true), &first["position"]));
    let two = server.send("POST", "/v1/events", &one, cloud("c3", r#","key":"other""#));
    assert_eq!(two.refused(422, "event.invalid")["pointer"], "/key");
}

#[test]
fn what_a_worker_says_too_late_is_written_once_and_only_of_what_it_was_given() {
    let server = Server::start();
    server.apply(
        "a.yaml",
        "automation: t\ntriggers: [{event: in.*}]\nactions: [{task: {kind: print, input: {}}}]\n",
    );
    server.publish("in.a", "{}");
    let task = server.post("/v1/tasks/poll", "{}").ok(200)["tasks"][0].clone();
    let token = task["token"].as_str().unwrap().to_owned();
    let late = || {
        let records = server.get("/v1/records").text();
        records.lines().filter(|line| line.contains("effect.late")).map(str::to_owned).collect::<Vec<_>>()
    };
    let complete = |token: &str, output: Value| {
        server.post("/v1/tasks/complete", json!({"token": token, "output": output}).to_string())
    };
    complete(&token, json!({"pages": 3})).ok(200);
    let parts: Vec<&str> = token.split('.').collect();
    for forged in [format!("{}.{}.9.1", parts[0], parts[1]), format!("{}.999.1.77", parts[0])] {
        complete(&forged, json!(1)).refused(409, "task.stale");
    }
    assert!(late().is_empty(), "nobody was given such tokens: {:?}", late());
    let long = "x".repeat(100_000);
    complete(&token, json!(long)).refused(409, "task.stale");
    complete(&token, json!(long)).refused(409, "task.stale");
    let late = late();
    assert_eq!(late.len(), 1, "{late:?}");
    assert!(late[0].len() < 1_000, "{} bytes of what nobody waits for", late[0].len());
}

#[test]
fn what_a_run_publishes_is_at_least_of_the_band_of_its_event() {
    let server = server();
    let (owner, _) = token(&server, "main", json!({"role": "owner"}));
    let (green, _) = token(&server, "main", json!({"role": "viewer", "max_band": "green"}));
    let text = "automation: tell\ntriggers: [{event: in.*}]\nmode: parallel\nactions:\n  - publish: {topic: out.plain, payload: {said: \"{{ event.payload.said }}\"}}\n  - publish: {topic: out.low, band: green}\n  - publish: {topic: out.high, band: black}\n";
    let files = json!({"files": {"a.yaml": text}});
    asked(&server, &owner, "POST", "/v1/apply", &files.to_string()).ok(200);
    let said = json!({"topic": "in.a", "band": "red", "payload": {"said": "CANARY"}});
    asked(&server, &owner, "POST", "/v1/events", &said.to_string()).ok(201);
    let events = asked(&server, &owner, "GET", "/v1/events?topic=out.*", "").ok(200);
    let bands: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["band"].as_str().unwrap()).collect();
    assert_eq!(bands, ["red", "red", "black"]);
    assert!(!asked(&server, &green, "GET", "/v1/events?topic=%23", "").text().contains("CANARY"));
}

#[test]
fn a_backup_asked_for_from_afar_goes_among_the_backups_only() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    let server = Server::set(Settings { backups: Some(dir.0.clone()), ..Settings::default() }, Some(LOCAL));
    let (owner, _) = token(&server, "main", json!({"role": "owner"}));
    let ask =
        |who: &str, to: &str| asked(&server, who, "POST", "/v1/backup", &json!({ "to": to }).to_string());
    let far = elsewhere.0.to_str().unwrap();
    for to in [far, "../x", "a/b", "", ".", "..", ".hidden", "a b", &dir.0.join("../y").to_string_lossy()] {
        assert_eq!(ask(&owner, to).refused(400, "request.invalid")["pointer"], "/to", "{to}");
    }
    assert!(!elsewhere.0.exists());
    ask(&owner, "monday").ok(200);
    ask(&owner, &dir.0.join("tuesday").to_string_lossy()).ok(200);
    assert!(dir.0.join("monday/backup.json").exists() && dir.0.join("tuesday/backup.json").exists());
    ask(&owner, "monday").refused(409, "store.exists");
    ask(LOCAL, far).ok(200);
    assert!(elsewhere.0.join("backup.json").exists(), "who holds the directory may");
}

#[test]
fn a_count_has_a_bound_and_removing_says_which_runs_end() {
    let server = Server::start();
    let counted = |count: &str| {
        let text = format!(
            "automation: loops\ntriggers: [{{manual: true}}]\nactions: [{{repeat: {{count: {count}, do: [{{vars: {{a: 1}}}}]}}}}]\n"
        );
        server.post("/v1/apply", json!({"files": {"a.yaml": text}}).to_string())
    };
    counted("1000000000000000").refused(422, "definition.invalid");
    counted("\"1000000 * 1000000\"").ok(200);
    let headers = ["content-type: application/json", "prefer: wait=10"];
    let run = server.send("POST", "/v1/runs", &headers, r#"{"automation":"loops"}"#).ok(200);
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("repeat.limit")), "{run}");
    let waits = "automation: waits\ntriggers: [{event: in.*}]\nmode: parallel\nactions: [{delay: 1h}]\n";
    server.apply("b.yaml", waits);
    server.publish("in.a", "{}");
    server.publish("in.b", "{}");
    let nothing = json!({"files": {}}).to_string();
    let plan = server.post("/v1/plan", &nothing).ok(200);
    assert_eq!(
        (&plan["removed"], &plan["runs_cancelled"]),
        (&json!(["automation waits"]), &json!({"waits": 2}))
    );
    assert_eq!(server.post("/v1/apply", &nothing).ok(200)["runs_cancelled"], json!({"waits": 2}));
    assert_eq!(server.post("/v1/plan", &nothing).ok(200).get("runs_cancelled"), None);
}
