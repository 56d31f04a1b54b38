//! `If-Match` and `If-None-Match` on every change: what changed in between, or has no versions, is refused. On a read, what the client has
//! is not sent again.

use std::collections::BTreeSet;

use serde_json::json;

use crate::client::Reply;
use crate::harness::Server;

const JSON: &str = "content-type: application/json";

fn changed(server: &Server, method: &str, path: &str, condition: &str, body: &str) -> Reply {
    server.send(method, path, &[condition, JSON], body)
}

fn prepared() -> Server {
    let server = Server::start();
    let one = json!({"automation": "au", "triggers": [{"manual": true}], "actions": [{"delay": "1s"}]});
    server.post("/v1/automations", one.to_string()).ok(201);
    server.put("/v1/subscriptions/s", r#"{"pattern":"a.*","automation":"au"}"#).ok(201);
    server.put("/v1/groups/g", r#"{"pattern":"a.*"}"#).ok(201);
    server.put("/v1/hooks/h", r#"{"scheme":"hmac","secret":"s3cret"}"#).ok(201);
    server.put("/v1/secrets/x", r#"{"value":"a-long-enough-value"}"#).ok(201);
    server.put("/v1/push/p", r#"{"url":"https://example.com/","pattern":"a.*"}"#).ok(201);
    server
}

#[test]
fn a_stale_tag_keeps_every_change_of_automations_and_subscriptions_from_happening() {
    let server = prepared();
    let subscription = r#"{"pattern":"b.*","automation":"au"}"#;
    let changes = [
        ("PATCH", "/v1/automations/au", r#"{"description":"x"}"#),
        ("POST", "/v1/automations/au/disable", ""),
        ("POST", "/v1/automations/au/enable", ""),
        ("POST", "/v1/automations/au/pause", ""),
        ("POST", "/v1/automations/au/resume", ""),
        ("POST", "/v1/automations/au/drain", ""),
        ("PUT", "/v1/subscriptions/s", subscription),
        ("PATCH", "/v1/subscriptions/s", r#"{"pattern":"b.*"}"#),
        ("POST", "/v1/subscriptions", r#"{"id":"s","pattern":"b.*","automation":"au"}"#),
        ("POST", "/v1/subscriptions/s/disable", ""),
        ("POST", "/v1/subscriptions/s/enable", ""),
        ("DELETE", "/v1/subscriptions/s", ""),
        ("DELETE", "/v1/automations/au", ""),
    ];
    let read = |path: &str| server.get(path).text();
    let before = (read("/v1/automations/au"), read("/v1/subscriptions/s"));
    for (method, path, body) in changes {
        changed(&server, method, path, "if-match: \"x\"", body).refused(412, "if_match.failed");
    }
    assert_eq!(before, (read("/v1/automations/au"), read("/v1/subscriptions/s")), "nothing happened");
    for (method, path, body) in changes {
        let thing = if path.contains("automations") { "/v1/automations/au" } else { "/v1/subscriptions/s" };
        let tag = server.get(thing).headers["etag"].clone();
        let done = changed(&server, method, path, &format!("if-match: {tag}"), body);
        assert!((200..300).contains(&done.status), "{method} {path}: {}", done.text());
        let now = server.get(thing).headers.get("etag").cloned();
        assert!(method == "DELETE" || done.headers.get("etag") == now.as_ref(), "{method} {path}");
    }
}

#[test]
fn what_has_no_versions_can_only_be_asked_to_be_there_or_not_to_be() {
    let server = prepared();
    let things = [
        ("/v1/groups/", "g", r#"{"pattern":"a.*"}"#),
        ("/v1/hooks/", "h", r#"{"scheme":"hmac","secret":"s3cret"}"#),
        ("/v1/secrets/", "x", r#"{"value":"a-long-enough-value"}"#),
        ("/v1/push/", "p", r#"{"url":"https://example.com/","pattern":"a.*"}"#),
    ];
    for (list, name, body) in things {
        let (there, new) = (format!("{list}{name}"), format!("{list}new"));
        let put = |path: &str, condition: &str| changed(&server, "PUT", path, condition, body);
        put(&there, "if-match: \"x\"").refused(412, "if_match.failed");
        put(&there, "if-none-match: *").refused(412, "if_match.failed");
        put(&there, "if-match: *").ok(200);
        put(&new, "if-match: *").refused(412, "if_match.failed");
        put(&new, "if-none-match: *").ok(201);
        changed(&server, "DELETE", &there, "if-match: \"x\"", "").refused(412, "if_match.failed");
        let gone = changed(&server, "DELETE", &there, "if-match: *", "");
        assert!((200..300).contains(&gone.status), "{there}: {}", gone.text());
    }
    changed(&server, "POST", "/v1/groups/new/pause", "if-match: \"x\"", "").refused(412, "if_match.failed");
    changed(&server, "POST", "/v1/push/new/pause", "if-match: \"x\"", "").refused(412, "if_match.failed");
    // So is everything else that is one thing and has no tag.
    for (method, path) in
        [("DELETE", "/v1/tokens/t"), ("PUT", "/v1/tenants/t/quota"), ("POST", "/v1/spaces/b/seal")]
    {
        changed(&server, method, path, "if-match: \"x\"", "{}").refused(412, "if_match.failed");
    }
    changed(&server, "POST", "/v1/spaces/b/seal", "if-match: *", "").ok(200);
    let quota = |tenant: &str, condition: &str| {
        changed(&server, "PUT", &format!("/v1/tenants/{tenant}/quota"), condition, r#"{"groups":9}"#)
    };
    quota("main", "if-none-match: *").refused(412, "if_match.failed");
    quota("none", "if-none-match: *").refused(404, "not_found");
    quota("main", "if-none-match: \"x\"").ok(200);
    quota("main", "if-match: *").ok(200);
    let body = r#"{"pattern":"a.*","automation":"au"}"#;
    changed(&server, "PUT", "/v1/subscriptions/s", "if-none-match: *", body).refused(412, "if_match.failed");
    changed(&server, "PUT", "/v1/subscriptions/t", "if-none-match: *", body).ok(201);
}

#[test]
fn a_body_that_names_another_subscription_than_the_path_is_refused() {
    let server = prepared();
    let before = server.get("/v1/subscriptions/s").ok(200);
    for id in [r#""t""#, "7", "[\"s\"]"] {
        let body = format!(r#"{{"id":{id},"pattern":"b.*","automation":"au"}}"#);
        for method in ["PUT", "PATCH"] {
            let refused = changed(&server, method, "/v1/subscriptions/s", "accept: */*", &body);
            assert_eq!(refused.refused(400, "request.invalid")["pointer"], "/id", "{method} {id}");
        }
    }
    assert_eq!(server.get("/v1/subscriptions/s").ok(200), before, "nothing happened");
    changed(&server, "PATCH", "/v1/subscriptions/s", "accept: */*", r#"{"id":"s","pattern":"b.*"}"#).ok(200);
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let server = prepared();
    server.apply("d/concepts.ew", "concept note {\n  n int\n}\n");
    server.put("/v1/entities/v1:d:note/a", r#"{"n":1}"#).ok(201);
    let things = [("/v1/entities/v1:d:note/a", "/v1/entities/{concept}/{id}")];
    // Their tags do not tell what their runs came to.
    for path in ["/v1/automations/au", "/v1/subscriptions/s"] {
        server.send("GET", path, &["if-none-match: *"], "").ok(200);
    }
    for (path, _) in things {
        let tag = server.get(path).headers["etag"].clone();
        let asked =
            |method: &str, said: &str| server.send(method, path, &[&format!("if-none-match: {said}")], "");
        for said in [tag.clone(), "*".to_owned(), format!("W/{tag}"), format!("\"x\", {tag}")] {
            for method in ["GET", "HEAD"] {
                let reply = asked(method, &said);
                assert_eq!((reply.status, reply.text().as_str()), (304, ""), "{method} {path}: {said}");
                assert_eq!(reply.headers.get("etag"), Some(&tag), "{method} {path}: {said}");
            }
        }
        assert_eq!(asked("GET", "\"x\"").text(), server.get(path).text(), "{path}");
    }
    // What moves while the row stays is told anew.
    let lately = "/v1/entities/v1:d:note/a?transitions=n&window=1h";
    server.send("GET", lately, &["if-none-match: *"], "").ok(200);
    let old = format!("if-none-match: {}", server.get(things[0].0).headers["etag"]);
    server.put(things[0].0, r#"{"n":2}"#).ok(200);
    assert_eq!(server.send("GET", things[0].0, &[&old], "").ok(200)["fields"]["n"], 2);
    server.send("GET", "/v1/automations/none", &["if-none-match: *"], "").refused(404, "not_found");

    let document = server.get("/openapi.json").ok(200);
    let paths = document["paths"].as_object().unwrap().iter();
    let named = paths.filter(|(_, path)| path["get"]["responses"].get("304").is_some());
    let named: BTreeSet<&str> = named.map(|(path, _)| path.as_str()).collect();
    assert_eq!(named, things.iter().map(|(_, route)| *route).collect());
}
