//! Inbound hooks: believed by signature, recorded once, topic and payload as the sender said them.

use ring::hmac;
use serde_json::{Value, json};

use crate::harness::Server;

const NOW: &str = "2026-01-01T00:00:00Z";
const SECONDS: i64 = 1_767_225_600;

fn hex(bytes: &[u8]) -> String {
    model::id::hex(bytes)
}

fn signed(secret: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes()).as_ref().to_vec()
}

fn hook(server: &Server, name: &str, said: Value) {
    server.put(&format!("/v1/hooks/{name}"), said.to_string()).ok(201);
}

fn events(server: &Server, topic: &str) -> Vec<Value> {
    server.get(&format!("/v1/events?topic={topic}")).ok(200)["events"].as_array().unwrap().clone()
}

/// CloudEvents, HTTP 1.1 Web Hooks, §4.
#[test]
fn a_sender_may_ask_before_it_delivers_and_is_not_told_which_hooks_there_are() {
    let server = Server::start();
    hook(&server, "there", json!({"scheme": "hmac", "secret": "s3cret"}));
    for name in ["there", "not-there"] {
        let path = format!("/hooks/main/{name}");
        let asked = server.send("OPTIONS", &path, &["webhook-request-origin: a.example"], "");
        assert_eq!((asked.status, asked.body.len()), (200, 0), "{name}");
        let told = |header: &str| asked.headers.get(header).map(String::as_str);
        assert_eq!(
            (told("allow"), told("webhook-allowed-origin")),
            (Some("POST"), Some("a.example")),
            "{name}"
        );
    }
    let plain = server.send("OPTIONS", "/hooks/main/there", &[], "");
    assert_eq!((plain.status, plain.headers.get("webhook-allowed-origin")), (200, None));
}

#[test]
fn a_delivery_that_is_too_large_is_not_told_to_come_in_parts() {
    let server = Server::start();
    hook(&server, "h", json!({"scheme": "hmac", "secret": "s3cret"}));
    let refused = server.post("/hooks/main/h", vec![b' '; (1 << 20) + 1]).refused(413, "body.too_large");
    assert!(refused["hint"].as_str().unwrap().contains("sender"), "{refused}");
    let refused = server.post("/v1/events", vec![b' '; (2 << 20) + 1]).refused(413, "body.too_large");
    assert!(refused["hint"].as_str().unwrap().contains("x-ndjson"), "{refused}");
}

#[test]
fn each_scheme_is_believed_when_signed_in_time_and_recorded_once() {
    let server = Server::told(NOW);
    let (body, at) = (r#"{"id":"evt_1","event_id":"Ev1","n":1.50}"#, SECONDS.to_string());
    let coded = model::base64::encode(b"0123456789abcdef");
    let plain = |text: String| hex(&signed(b"s3cret", &text));
    let cases: [(&str, &str, Vec<String>); 5] = [
        (
            "github",
            "s3cret",
            vec![
                format!("x-hub-signature-256: sha256={}", plain(body.into())),
                "x-github-delivery: d1".into(),
            ],
        ),
        ("stripe", "s3cret", vec![format!("stripe-signature: t={at},v1={}", plain(format!("{at}.{body}")))]),
        (
            "slack",
            "s3cret",
            vec![
                format!("x-slack-request-timestamp: {at}"),
                format!("x-slack-signature: v0={}", plain(format!("v0:{at}:{body}"))),
            ],
        ),
        ("hmac", "s3cret", vec![format!("x-signature: {}", plain(body.into())), "x-delivery-id: d1".into()]),
        (
            "standard-webhooks",
            &format!("whsec_{coded}"),
            vec![
                "webhook-id: msg_1".into(),
                format!("webhook-timestamp: {at}"),
                format!(
                    "webhook-signature: v1,{}",
                    model::base64::encode(&signed(b"0123456789abcdef", &format!("msg_1.{at}.{body}")))
                ),
            ],
        ),
    ];
    for (scheme, secret, headers) in &cases {
        hook(&server, scheme, json!({"scheme": scheme, "secret": secret, "topic": format!("in.{scheme}")}));
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let path = format!("/hooks/main/{scheme}");
        let first = server.send("POST", &path, &headers, body).ok(202);
        let again = server.send("POST", &path, &headers, body).ok(200);
        assert_eq!((&again["position"], &again["duplicate"]), (&first["position"], &json!(true)), "{scheme}");
        server.send("POST", &path, &headers, r#"{"id":"evt_1","n":1.51}"#).refused(401, "hook.refused");
        let text = server.get(&format!("/v1/events?topic=in.{scheme}")).text();
        assert!(text.contains("\"n\":1.50"), "digit for digit: {text}");
        let found = events(&server, &format!("in.{scheme}"));
        assert_eq!(found.len(), 1, "{scheme}");
        assert_eq!(found[0]["actor"], format!("system:hook:{scheme}"));
    }
    let stripe = format!("stripe-signature: t={at},v1={}", plain(format!("{at}.{body}")));
    server.post("/v1/clock", r#"{"advance":"6m"}"#).ok(200);
    let stale = server.send("POST", "/hooks/main/stripe", &[&stripe], body);
    assert_eq!(stale.json()["reason"], "stale");
    stale.refused(401, "hook.refused");
}

#[test]
fn a_hook_is_shown_without_its_secret_and_one_that_is_not_there_reads_as_any_other() {
    let server = Server::start();
    hook(&server, "shop", json!({"scheme": "hmac", "secret": "s3cret"}));
    let shown = server.get("/v1/hooks/shop").ok(200);
    assert_eq!(
        (&shown["name"], &shown["scheme"], shown.get("secret")),
        (&json!("shop"), &json!("hmac"), None)
    );
    server.put("/v1/hooks/shop", r#"{"scheme":"hmac","topic":"shop.in"}"#).ok(200);
    let header = format!("x-signature: {}", hex(&signed(b"s3cret", "{}")));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    server.send("POST", "/hooks/main/shop", &[&header, &format!("traceparent: {trace}")], "{}").ok(202);
    let came = events(&server, "shop.in");
    assert_eq!(came.len(), 1, "the secret stayed");
    assert_eq!(came[0]["trace"], trace);
    let absent = server.send("POST", "/hooks/main/none", &[&header], "{}").json();
    let elsewhere = server.send("POST", "/hooks/nobody/none", &[&header], "{}").json();
    assert_eq!((&absent["detail"], &absent["status"]), (&elsewhere["detail"], &elsewhere["status"]));
    for bad in [
        json!({"scheme": "none", "secret": "x"}),
        json!({"scheme": "hmac"}),
        json!({"scheme": "hmac", "secret": ""}),
        json!({"scheme": "standard-webhooks", "secret": "whsec_"}),
        json!({"scheme": "hmac", "secret": "x", "topic": "engine.x"}),
        json!({"scheme": "hmac", "secret": "x", "topic": "a..b"}),
    ] {
        server.put("/v1/hooks/bad", bad.to_string()).refused(422, "hook.invalid");
    }
    server.send("DELETE", "/v1/hooks/shop", &[], "").gone();
    server.get("/v1/hooks/shop").refused(404, "not_found");
    let large = vec![b' '; 2 << 20];
    hook(&server, "shop", json!({"scheme": "hmac", "secret": "s3cret"}));
    server.send("POST", "/hooks/main/shop", &[&header], large).refused(413, "body.too_large");
}

#[test]
fn deliveries_of_github_come_under_their_topics_value_for_value() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/github_payloads.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("NOT RUN: {path} is not there, so the vectors were not tried");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have shared/vectors");
        return;
    };
    let whole: Parts = serde_json::from_str(&text).unwrap();
    let cases: Vec<Parts> = serde_json::from_str(whole["cases"].get()).unwrap();
    let server = Server::start();
    let read = |case: &Parts, name: &str| serde_json::from_str::<Value>(case[name].get()).unwrap();
    hook(&server, "github", json!({"scheme": "github", "secret": read(&cases[0], "secret")}));
    for (n, case) in cases.iter().enumerate() {
        let (payload, body) = (read(case, "payload"), compact(case["payload"].get()));
        assert_eq!(body.len() as u64, read(case, "body_bytes"), "{}", case["file"]);
        let (event, signature) = (read(case, "event"), read(case, "signature"));
        let (event, signature) = (event.as_str().unwrap(), signature.as_str().unwrap());
        let headers = [
            format!("x-github-event: {event}"),
            format!("x-github-delivery: {n}"),
            format!("x-hub-signature-256: {signature}"),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let answer = server.send("POST", "/hooks/main/github", &headers, &body).ok(202);
        let recorded = server.get(&format!("/v1/events/{}", answer["position"])).ok(200);
        let topic = match payload["action"].as_str() {
            Some(action) => format!("github.{event}.{action}"),
            None => format!("github.{event}"),
        };
        assert_eq!((&recorded["topic"], &recorded["payload"]), (&json!(topic), &payload));
    }
}

/// An object whose values keep their text.
type Parts = std::collections::HashMap<String, Box<serde_json::value::RawValue>>;

/// JSON text without the blanks between its tokens; its keys stay in order.
fn compact(text: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let kept = text.chars().filter(|c| {
        let ends = *c == '"' && !escaped;
        escaped = inside && *c == '\\' && !escaped;
        inside ^= ends;
        inside || !c.is_ascii_whitespace()
    });
    kept.collect()
}

fn slack(body: &str) -> [String; 2] {
    let signed = hex(&signed(b"s3cret", &format!("v0:{SECONDS}:{body}")));
    [format!("x-slack-request-timestamp: {SECONDS}"), format!("x-slack-signature: v0={signed}")]
}

#[test]
fn slacks_challenge_is_answered_and_its_forms_are_events() {
    let server = Server::told(NOW);
    hook(&server, "slack", json!({"scheme": "slack", "secret": "s3cret"}));
    let send = |body: &str, kind: &str| {
        let [at, signature] = slack(body);
        server.send("POST", "/hooks/main/slack", &[&at, &signature, kind], body)
    };
    let asked = r#"{"type":"url_verification","token":"t","challenge":"3eZbrw1aB"}"#;
    let answer = send(asked, "content-type: application/json").ok(200);
    assert_eq!(answer, json!({"challenge": "3eZbrw1aB"}));
    assert!(events(&server, "hook.slack").is_empty(), "no event");
    let unsigned = server.send("POST", "/hooks/main/slack", &["content-type: application/json"], asked);
    unsigned.refused(401, "hook.refused");
    let form = "content-type: application/x-www-form-urlencoded";
    let command = "command=%2Fdeploy&text=api+now&trigger_id=13.37";
    let first = send(command, form).ok(202);
    let again = send(command, form).ok(200);
    assert_eq!((&again["duplicate"], &again["id"]), (&json!(true), &first["id"]));
    send("payload=%7B%22type%22%3A%22block_actions%22%2C%22n%22%3A1.50%7D", form).ok(202);
    let found = events(&server, "hook.slack");
    assert_eq!(found[0]["payload"]["text"], "api now");
    assert_eq!(found[1]["payload"]["type"], "block_actions");
}

#[test]
fn a_repetition_in_other_words_tells_the_first_ones_id() {
    let server = Server::start();
    hook(&server, "shop", json!({"scheme": "hmac", "secret": "s3cret"}));
    let send = |body: &str| {
        let signature = format!("x-signature: {}", hex(&signed(b"s3cret", body)));
        server.send("POST", "/hooks/main/shop", &[&signature, "x-delivery-id: d7"], body)
    };
    let first = send(r#"{"n":1}"#).ok(202);
    let again = send(r#"{"n":2}"#).ok(200);
    assert_eq!((&again["id"], &again["position"]), (&first["id"], &first["position"]));
    assert_eq!(again["duplicate"], true);
}

#[test]
fn a_delivery_whose_sender_names_none_is_known_by_what_was_signed() {
    let server = Server::told(NOW);
    let plain = |text: String| hex(&signed(b"s3cret", &text));
    let headers = |scheme: &str, at: i64, body: &str| match scheme {
        "github" => vec![format!("x-hub-signature-256: sha256={}", plain(body.into()))],
        "hmac" => vec![format!("x-signature: {}", plain(body.into()))],
        "stripe" => vec![format!("stripe-signature: t={at},v1={}", plain(format!("{at}.{body}")))],
        _ => vec![
            format!("x-slack-request-timestamp: {at}"),
            format!("x-slack-signature: v0={}", plain(format!("v0:{at}:{body}"))),
        ],
    };
    for scheme in ["github", "hmac", "stripe", "slack"] {
        hook(&server, scheme, json!({"scheme": scheme, "secret": "s3cret", "topic": format!("in.{scheme}")}));
        let deliver = |at: i64, body: &str| {
            let headers = headers(scheme, at, body);
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            server.send("POST", &format!("/hooks/main/{scheme}"), &headers, body)
        };
        let first = deliver(SECONDS, r#"{"n":1}"#).ok(202);
        let again = deliver(SECONDS, r#"{"n":1}"#).ok(200);
        assert_eq!((&again["duplicate"], &again["position"]), (&json!(true), &first["position"]), "{scheme}");
        // Nor does a header make another of it that nobody signed.
        let mut forged = headers(scheme, SECONDS, r#"{"n":1}"#);
        forged.push("content-type: application/x-www-form-urlencoded".to_owned());
        let forged: Vec<&str> = forged.iter().map(String::as_str).collect();
        let path = format!("/hooks/main/{scheme}");
        assert_eq!(server.send("POST", &path, &forged, r#"{"n":1}"#).ok(200)["duplicate"], true, "{scheme}");
        deliver(SECONDS, r#"{"n":2}"#).ok(202);
        // A later time is another delivery, where a time is signed.
        let timed = matches!(scheme, "stripe" | "slack");
        deliver(SECONDS + 1, r#"{"n":1}"#).ok(if timed { 202 } else { 200 });
        assert_eq!(events(&server, &format!("in.{scheme}")).len(), if timed { 3 } else { 2 }, "{scheme}");
    }
}

#[test]
fn a_scheme_cannot_be_changed_into_one_for_which_the_secret_is_none() {
    let server = Server::start();
    hook(&server, "x", json!({"scheme": "github", "secret": "not base64!"}));
    let refused = server.put("/v1/hooks/x", r#"{"scheme":"standard-webhooks"}"#).refused(422, "hook.invalid");
    assert_eq!(refused["pointer"], "/secret", "{refused}");
    assert!(!refused.to_string().contains("not base64!"), "{refused}");
    assert_eq!(server.get("/v1/hooks/x").ok(200)["scheme"], "github");
    server.put("/v1/hooks/x", r#"{"scheme":"hmac"}"#).ok(200);
    let coded = json!({"scheme": "standard-webhooks", "secret": model::base64::encode(b"0123456789abcdef")});
    server.put("/v1/hooks/x", coded.to_string()).ok(200);
}

#[test]
fn a_delivery_that_is_signed_is_kept_whatever_its_sender_calls_it() {
    let server = Server::start();
    hook(&server, "g", json!({"scheme": "github", "secret": "s3cret"}));
    let send = |id: &str, body: &str| {
        let signature = format!("x-hub-signature-256: sha256={}", hex(&signed(b"s3cret", body)));
        let headers = ["x-github-event: deployment", &format!("x-github-delivery: {id}"), &signature];
        server.send("POST", "/hooks/main/g", &headers, body)
    };
    let long = "d".repeat(2_000);
    for id in ["", long.as_str()] {
        let body = json!({"action": "deploy:prod", "id": id.len()}).to_string();
        let first = send(id, &body);
        let answer = first.ok(202);
        assert!(
            first.headers["everwhen-position"].parse::<u64>().unwrap()
                >= answer["position"].as_u64().unwrap()
        );
        let again = send(id, &body);
        assert_eq!(again.ok(200)["position"], answer["position"], "{} bytes", id.len());
        assert!(again.headers.contains_key("everwhen-position"));
    }
    send(&format!("{long}x"), "{}").ok(202);
    assert_eq!(events(&server, "github.deployment.deploy:prod").len(), 2);
    let over = json!({"action": "é".repeat(600)}).to_string();
    let recorded = send("o1", &over).ok(202);
    let topic = server.get(&format!("/v1/events/{}", recorded["position"])).ok(200)["topic"].clone();
    assert_eq!(topic.as_str().unwrap().len(), 512, "{topic}");
}
