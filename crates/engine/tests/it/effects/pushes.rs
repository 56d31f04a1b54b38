//! Outbound pushes of a real engine against a receiver that a test writes.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use engine::{Caller, Draft, Engine, Options, Outcome, Tenant};
use serde_json::{Map, Value, json};

use super::workers::{Got, LONG, settings, sink};
use crate::temp::TempDir;

fn open(dir: &TempDir) -> (Engine, Tenant) {
    let options = Options { settings: settings(&["127.0.0.1"]), ..Options::default() };
    let engine = Engine::open_with(dir.path(), options).unwrap();
    let tenant = engine.main().unwrap();
    (engine, tenant)
}

fn header(got: &Got, name: &str) -> String {
    let line = got.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default().to_owned()
}

async fn put(tenant: &Tenant, more: Value) -> Value {
    let mut said = Map::from_iter([
        ("pattern".to_owned(), json!("order.*")),
        ("backoff".to_owned(), json!({"base": "1ms", "mult": 1, "max": "1ms"})),
    ]);
    if let Value::Object(more) = more {
        said.extend(more);
    }
    tenant.put_push(&Caller::local(), "shop", said).await.unwrap().1
}

async fn publish(tenant: &Tenant, n: u64) -> u64 {
    match tenant.publish(&Caller::local(), Draft::new("order.paid", &json!({ "n": n }))).await.unwrap() {
        Outcome::Recorded(receipt) => receipt.position,
        other => panic!("{other:?}"),
    }
}

fn next(got: &Receiver<Got>) -> Got {
    got.recv_timeout(LONG).expect("a delivery came")
}

/// Looks until it is so, or the machine has had its time.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        tokio::task::yield_now().await;
    }
}

fn told(tenant: &Tenant, topic: &str) -> Vec<Value> {
    let query = engine::Query { topic: model::topic::Pattern::parse(topic).ok(), ..engine::Query::default() };
    tenant.find(&query).unwrap().events.iter().map(|event| event.to_value()["payload"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_signed_and_comes_under_the_same_id_until_it_is_taken() {
    let (dir, (address, got)) = (TempDir::new(), sink());
    let (engine, tenant) = open(&dir);
    let push = put(&tenant, json!({"url": format!("http://{address}/in")})).await;
    assert!(push["secret"].as_str().unwrap().starts_with("whsec_"), "told once");
    assert_eq!(tenant.shown_push("shop").unwrap().get("secret"), None);
    let position = publish(&tenant, 7).await;
    let first = next(&got);
    let id = header(&first, "webhook-id");
    let body: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((&body["position"], &body["payload"]), (&json!(position), &json!({"n": 7})));
    let signed = format!("{id}.{}.{}", header(&first, "webhook-timestamp"), first.body);
    let secret = push["secret"].as_str().unwrap().trim_start_matches("whsec_");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &model::base64::decode(secret).unwrap());
    let expected = model::base64::encode(ring::hmac::sign(&key, signed.as_bytes()).as_ref());
    assert_eq!(header(&first, "webhook-signature"), format!("v1,{expected}"));
    first.answer("500 No", "text/plain", "no");
    let second = next(&got);
    let failing = tenant.shown_push("shop").unwrap();
    assert_eq!(failing["last_error"], "the receiver answered 500", "{failing}");
    assert_eq!(header(&second, "webhook-id"), id);
    second.answer("204 Done", "text/plain", "");
    until("it is settled", || tenant.shown_push("shop").unwrap()["floor"].as_u64() >= Some(position)).await;
    until("nothing fails", || tenant.shown_push("shop").unwrap().get("failing_since").is_none()).await;
    assert_eq!(tenant.shown_push("shop").unwrap().get("last_error"), None);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_push_waits_for_each_and_another_does_not() {
    for ordered in [true, false] {
        let (dir, (address, got)) = (TempDir::new(), sink());
        let (engine, tenant) = open(&dir);
        put(&tenant, json!({"url": format!("http://{address}/"), "ordered": ordered})).await;
        for n in 0..3 {
            publish(&tenant, n).await;
        }
        if ordered {
            for n in 0..3 {
                let one = next(&got);
                let body: Value = serde_json::from_str(&one.body).unwrap();
                assert_eq!(body["payload"]["n"], n, "in order");
                assert!(got.try_recv().is_err(), "one at a time");
                one.answer("200 OK", "text/plain", "");
            }
        } else {
            let all: Vec<Got> = (0..2).map(|_| next(&got)).collect();
            all.into_iter().for_each(|one| one.answer("200 OK", "text/plain", ""));
        }
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_is_left_alone_until_it_is_resumed() {
    let (dir, (address, got)) = (TempDir::new(), sink());
    let (engine, tenant) = open(&dir);
    put(&tenant, json!({"url": format!("http://{address}/")})).await;
    publish(&tenant, 1).await;
    let first = next(&got);
    let id = header(&first, "webhook-id");
    first.answer("410 Gone", "text/plain", "");
    until("it is disabled", || tenant.shown_push("shop").unwrap()["state"] == "disabled").await;
    until("it is told", || told(&tenant, "engine.push.disabled").len() == 1).await;
    assert_eq!(told(&tenant, "engine.push.disabled")[0]["push"], "shop");
    tenant.resume_push(&Caller::local(), "shop").await.unwrap();
    let again = next(&got);
    assert_eq!(header(&again, "webhook-id"), id, "nothing was lost");
    again.answer("200 OK", "text/plain", "");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_failures_in_a_row_pause_it_and_an_event_says_so() {
    let (dir, (address, got)) = (TempDir::new(), sink());
    let (engine, tenant) = open(&dir);
    put(&tenant, json!({"url": format!("http://{address}/")})).await;
    publish(&tenant, 1).await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let one = next(&got);
        ids.insert(header(&one, "webhook-id"));
        one.answer("503 Later", "text/plain", "");
    }
    assert_eq!(ids.len(), 1);
    until("it is told", || !told(&tenant, "engine.push.paused").is_empty()).await;
    let push = tenant.shown_push("shop").unwrap();
    assert_eq!((&push["state"], &push["reason"]), (&json!("paused"), &json!("50 failures in a row")));
    assert_eq!(told(&tenant, "engine.push.paused")[0]["failures"], 50);
    let changed = put(&tenant, json!({"url": format!("http://{address}/other")})).await;
    assert_eq!((&changed["state"], &changed["reason"]), (&push["state"], &push["reason"]), "only a resume");
    assert!(changed["failing_since"].is_string(), "{changed}");
    assert!(got.recv_timeout(Duration::from_millis(20)).is_err(), "nothing more is sent");
    tenant.resume_push(&Caller::local(), "shop").await.unwrap();
    assert!(next(&got).head.starts_with("POST /other "));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_out_when_the_engine_stopped_is_sent_again_by_the_next() {
    let (dir, (address, got)) = (TempDir::new(), sink());
    let (engine, tenant) = open(&dir);
    put(&tenant, json!({"url": format!("http://{address}/")})).await;
    publish(&tenant, 1).await;
    let unanswered = next(&got);
    drop(tenant);
    engine.close().await.unwrap();
    drop(engine);
    let (engine, _tenant) = open(&dir);
    let again = next(&got);
    assert_eq!(header(&again, "webhook-id"), header(&unanswered, "webhook-id"));
    again.answer("200 OK", "text/plain", "");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_tells_what_the_receiver_said_and_an_address_inside_is_refused() {
    let (dir, (address, got)) = (TempDir::new(), sink());
    let (engine, tenant) = open(&dir);
    put(&tenant, json!({"url": format!("http://{address}/"), "format": "cloudevents"})).await;
    let testing = engine.clone();
    let of = tenant.clone();
    let sent = tokio::spawn(async move { testing.test_push(&of, "shop").await });
    let one = next(&got);
    assert!(header(&one, "webhook-id").starts_with("msg_test_"));
    assert_eq!(serde_json::from_str::<Value>(&one.body).unwrap()["type"], "push.test");
    one.answer("202 Yes", "text/plain", "");
    let told = sent.await.unwrap().unwrap();
    assert_eq!((&told["ok"], &told["status"]), (&json!(true), &json!(202)));
    put(&tenant, json!({"url": "http://127.0.0.9:1/"})).await;
    let refused = engine.test_push(&tenant, "shop").await.unwrap();
    assert_eq!(refused["ok"], false);
    assert!(refused["error"].as_str().unwrap().contains("loopback"), "{refused}");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_push_is_refused_at_its_place() {
    let dir = TempDir::new();
    let (engine, tenant) = open(&dir);
    for (said, pointer) in [
        (json!({}), "/url"),
        (json!({"url": "ftp://a/"}), "/url"),
        (json!({"url": "https://a/", "pattern": "a..b"}), "/pattern"),
        (json!({"url": "https://a/", "pattern": "#", "format": "xml"}), "/format"),
        (json!({"url": "https://a/", "pattern": "#", "secret": "short"}), "/secret"),
        (json!({"url": "https://a/", "pattern": "#", "timeout": "5m"}), "/timeout"),
        (json!({"url": "https://a/", "pattern": "#", "headers": {"Host": "b"}}), "/headers"),
        (json!({"url": "https://a/", "pattern": "#", "headers": {"webhook-id": "b"}}), "/headers"),
    ] {
        let Value::Object(map) = said.clone() else { unreachable!() };
        let problem = tenant.put_push(&Caller::local(), "shop", map).await.unwrap_err();
        assert_eq!((problem.code().as_str(), problem.pointer()), ("push.invalid", Some(pointer)), "{said}");
    }
    for name in ["", "Shop", "-a", &"a".repeat(60)] {
        let said =
            Map::from_iter([("url".to_owned(), json!("https://a/")), ("pattern".to_owned(), json!("#"))]);
        assert!(tenant.put_push(&Caller::local(), name, said).await.is_err(), "{name}");
    }
    assert!(tenant.pushes().unwrap().is_empty() && tenant.groups().unwrap().is_empty());
    engine.close().await.unwrap();
}
