//! `/v1/tenants`: the owner of the house manages them, the owner of one sees only that one.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::harness::Server;
use crate::rights::{LOCAL, asked, server, token};

fn names(reply: &Reply) -> Vec<String> {
    let said = reply.ok(200);
    let all = said["tenants"].as_array().unwrap();
    all.iter().map(|tenant| tenant["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_begins_a_tenant_is_told_where_it_stands() {
    let server = Server::start();
    let position = |reply: &Reply| reply.headers.get("everwhen-position").cloned();
    let first = server.post("/v1/events", r#"{"topic":"a.b"}"#);
    assert_eq!(position(&first), Some(first.ok(201)["position"].to_string()));
    let of = |name: &str| [format!("everwhen-tenant: {name}"), "content-type: application/json".to_owned()];
    let sent = |name: &str, method: &str, path: &str, body: &str| {
        let headers = of(name);
        server.send(method, path, &headers.each_ref().map(String::as_str), body)
    };
    let first = sent("one", "POST", "/v1/events", r#"{"topic":"a.b"}"#);
    assert_eq!(position(&first), Some(first.ok(201)["position"].to_string()));
    let group = sent("two", "PUT", "/v1/groups/g", r#"{"pattern":"a.b"}"#);
    assert!(group.status == 201 && position(&group).is_some(), "{:?}", group.headers);
}

#[test]
fn an_owner_of_one_tenant_sees_no_other_and_manages_none() {
    let server = server();
    let (house, _) = token(&server, "main", json!({"role": "owner"}));
    let made = asked(&server, &house, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let acme = made["owner_token"].as_str().unwrap().to_owned();
    asked(&server, &house, "POST", "/v1/tenants", r#"{"name":"other"}"#).ok(201);
    asked(&server, &house, "POST", "/v1/tenants", r#"{"name":"acme"}"#).refused(409, "tenant.exists");
    asked(&server, &house, "POST", "/v1/tenants", r#"{"name":"../x"}"#).refused(422, "tenant.invalid");
    assert_eq!(names(&asked(&server, &house, "GET", "/v1/tenants", "")), ["acme", "main", "other"]);

    assert_eq!(names(&asked(&server, &acme, "GET", "/v1/tenants", "")), ["acme"]);
    assert_eq!(asked(&server, &acme, "GET", "/v1/tenants/acme", "").ok(200)["name"], "acme");
    let plain = |reply: Reply, name: &str| -> Value {
        let mut said = reply.refused(404, "not_found");
        said["request_id"] = Value::Null;
        serde_json::from_str(&said.to_string().replace(name, "NAME")).unwrap()
    };
    let foreign = plain(asked(&server, &acme, "GET", "/v1/tenants/other", ""), "other");
    assert_eq!(foreign, plain(asked(&server, &acme, "GET", "/v1/tenants/nobody", ""), "nobody"));
    for (method, path) in [
        ("POST", "/v1/tenants"),
        ("DELETE", "/v1/tenants/other"),
        ("DELETE", "/v1/tenants/acme"),
        ("POST", "/v1/tenants/acme/suspend"),
        ("POST", "/v1/tenants/nobody/resume"),
        ("POST", "/v1/tenants/other/tokens"),
    ] {
        asked(&server, &acme, method, path, "").refused(403, "auth.denied");
    }
    let lost = asked(&server, &house, "POST", "/v1/tenants/acme/tokens", r#"{"role":"owner"}"#).ok(201);
    assert_eq!(names(&asked(&server, lost["token"].as_str().unwrap(), "GET", "/v1/tenants", "")), ["acme"]);
}

#[test]
fn a_suspended_tenant_answers_nobody_until_it_is_resumed_and_a_removed_one_never() {
    let server = server();
    let (house, _) = token(&server, "main", json!({"role": "owner"}));
    let made = asked(&server, &house, "POST", "/v1/tenants", r#"{"name":"acme"}"#).ok(201);
    let acme = made["owner_token"].as_str().unwrap().to_owned();
    asked(&server, &acme, "POST", "/v1/events", r#"{"topic":"a.b"}"#).ok(201);
    asked(&server, &house, "POST", "/v1/tenants/acme/suspend", "").ok(200);
    for (method, path) in
        [("GET", "/v1/events"), ("POST", "/v1/events"), ("GET", "/v1/tokens"), ("GET", "/v1/tenants")]
    {
        asked(&server, &acme, method, path, "").refused(403, "tenant.suspended");
    }
    let local = format!("authorization: Bearer {LOCAL}");
    let named = server.send("GET", "/v1/events", &[&local, "everwhen-tenant: acme"], "");
    named.refused(403, "tenant.suspended");
    server.send("POST", "/hooks/acme/h", &[], "{}").refused(404, "not_found");
    asked(&server, &house, "GET", "/v1/events", "").ok(200);

    let resumed = server.send("POST", "/v1/tenants/acme/resume", &[&local, "everwhen-tenant: acme"], "");
    assert_eq!(resumed.ok(200)["suspended"], false);
    assert_eq!(
        asked(&server, &acme, "GET", "/v1/events?topic=a.b", "").ok(200)["events"].as_array().unwrap().len(),
        1
    );

    assert_eq!(asked(&server, &house, "DELETE", "/v1/tenants/acme", "").status, 204);
    asked(&server, &acme, "GET", "/v1/events", "").refused(401, "auth.required");
    asked(&server, &house, "DELETE", "/v1/tenants/acme", "").refused(404, "not_found");
    asked(&server, &house, "DELETE", "/v1/tenants/main", "").refused(422, "tenant.invalid");
}

#[test]
fn runs_of_a_day_that_are_used_up_name_the_limit_and_when_there_are_some_again() {
    let server = crate::harness::Server::told("2026-01-01T23:00:00Z");
    server
        .post(
            "/v1/automations",
            r#"{"automation":"work","triggers":[{"event":"j"}],"actions":[{"vars":{"a":1}}]}"#,
        )
        .ok(201);
    server.put("/v1/tenants/main/quota", r#"{"runs_per_day":1}"#).ok(200);
    server.post("/v1/runs", r#"{"automation":"work"}"#).ok(202);
    let refused = server.post("/v1/runs", r#"{"automation":"work"}"#);
    let said = refused.refused(429, "quota.exceeded");
    assert_eq!((&said["quota"], &said["limit"]), (&json!("runs_per_day"), &json!(1)));
    let after: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((3_500..=3_600).contains(&after), "until midnight: {after}");
    let begun = server.get("/v1/runs").ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    let again = server.post(&format!("/v1/runs/{begun}/rerun"), "{}");
    assert_eq!(again.refused(429, "quota.exceeded")["quota"], "runs_per_day");
    assert!(again.headers.contains_key("retry-after"));
    assert_eq!(server.get("/v1/runs").ok(200)["runs"].as_array().unwrap().len(), 1);
    server.put("/v1/tenants/main/quota", r#"{"runs_per_day":2}"#).ok(200);
    server.post(&format!("/v1/runs/{begun}/rerun"), "{}").ok(200);
}

const NOTES: &str = "concept note {\n  text string\n}\n";
const ADD: &str = "use d.concepts.{ note }\n\nmutation note addNote {\n  args { id string!  text string }\n  \
                   insert {\n    accept { text }\n  }\n}\n";

#[test]
fn rows_are_held_to_the_bytes_of_a_tenant_through_every_door() {
    let server = crate::harness::Server::start();
    let files = json!({"files": {"d/concepts.ew": NOTES, "d/mutations.ew": ADD}});
    server.post("/v1/apply", files.to_string()).ok(200);
    let row = "/v1/entities/v1:d:note/a";
    server.put(row, r#"{"text":"one"}"#).ok(201);
    server.put("/v1/tenants/main/quota", r#"{"bytes":1}"#).ok(200);
    let send = |method: &str, path: &str, media: &str, body: &str| {
        server.send(method, path, &[&format!("content-type: {media}")], body)
    };
    let (plain, lines) = ("application/json", "application/x-ndjson");
    for (method, path, media, body) in [
        ("PUT", row, plain, r#"{"text":"two"}"#),
        ("PATCH", row, "application/merge-patch+json", r#"{"text":"two"}"#),
        ("DELETE", row, plain, ""),
        ("POST", "/v1/entities/v1:d:note", plain, r#"{"text":"two"}"#),
        ("POST", "/v1/mutations/addNote", plain, r#"{"args":{"id":"b","text":"two"}}"#),
        ("POST", "/v1/import", lines, "{\"topic\":\"a.b\"}\n"),
        ("POST", "/v1/events", plain, r#"{"topic":"a.b"}"#),
    ] {
        let reply = send(method, path, media, body);
        assert_eq!(reply.refused(429, "quota.exceeded")["quota"], "bytes", "{method} {path}");
        assert!(reply.headers.contains_key("retry-after"), "{method} {path}");
    }
    let sent = "{\"id\":\"c\",\"text\":\"x\"}\n{\"id\":\"d\",\"text\":\"x\"}\n";
    let import = "/v1/entities/v1:d:note/import";
    let refused = send("POST", import, lines, sent).text();
    assert_eq!(refused.matches("\"code\":\"quota.exceeded\"").count(), 2, "{refused}");
    assert_eq!(server.get(row).ok(200)["fields"]["text"], "one");
    server.put("/v1/tenants/main/quota", "{}").ok(200);
    assert!(!send("POST", import, lines, sent).text().contains("error"));
    assert_eq!(server.send("DELETE", row, &[], "").status, 204);
}
