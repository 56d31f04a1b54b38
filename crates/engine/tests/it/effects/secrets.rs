//! Secrets of runs: named in what is written down, sent with the request, masked in what comes back.

use engine::Caller;
use model::Code;
use serde_json::json;

use super::workers::{LONG, engine, run_with, sink, start};
use crate::temp::TempDir;

fn step(address: std::net::SocketAddr) -> String {
    format!(
        "    retry: {{max: 3, base: 1ms, limit: 2ms}}\n    http:\n      url: \"http://{address}/\"\n      headers: {{authorization: \"Bearer {{{{ secret('pay') }}}}\"}}\n      body: {{key: \"{{{{ secret('pay') }}}}\", said: \"{{{{ event.payload }}}}\"}}"
    )
}

fn everything(dir: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => all.extend(everything(&entry)),
            false => all.extend(std::fs::read(entry).unwrap_or_default()),
        }
    }
    all
}

fn holds(dir: &TempDir, text: &str) -> bool {
    everything(dir.path()).windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_sent_as_it_is_at_the_attempt_and_comes_back_masked() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step(address)).await;
    let by = Caller::local();
    tenant.put_secret(&by, "pay", "sk_live_\"1\"").await.unwrap();
    start(&engine).await;
    let first = got.recv_timeout(LONG).unwrap();
    assert!(first.head.contains("authorization: Bearer sk_live_\"1\"\r\n"), "{}", first.head);
    assert!(first.body.contains("\"key\":\"sk_live_\\\"1\\\"\""), "{}", first.body);
    tenant.put_secret(&by, "pay", "sk_live_2").await.unwrap();
    first.answer("503 Not Now", "text/plain", "sk_live_\"1\" is too early");
    let second = got.recv_timeout(LONG).unwrap();
    assert!(second.head.contains("authorization: Bearer sk_live_2\r\n"), "the next attempt: {}", second.head);
    second.answer(
        "200 OK",
        "application/json",
        "{\"hex\":\"736b5f6c6976655f32\",\"sk_live_2\":[\"c2tfbGl2ZV8y\"]}",
    );
    let run = run_with(&tenant, "completed").await;
    let step = &run["steps"][0];
    assert_eq!(step["output"]["body"], json!({"hex": "***", "***": ["***"]}), "{run}");
    engine.close().await.unwrap();
    assert!(holds(&dir, "*** is too early") || holds(&dir, "{{secret("), "it was written down at all");
    for leaked in ["sk_live_2", "sk_live_\"1\"", "sk_live_\\\"1"] {
        assert!(!holds(&dir, leaked), "{leaked} is in the directory");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_reads_like_a_reference_is_only_text() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step(address)).await;
    tenant.put_secret(&Caller::local(), "pay", "sk_live_1").await.unwrap();
    let forged = json!({"x": "{{secret(\"pay\")}}"});
    engine.publish(engine::Draft::new("in.a", &forged)).await.unwrap();
    let asked = got.recv_timeout(LONG).unwrap();
    let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!((&body["key"], &body["said"]), (&json!("sk_live_1"), &forged));
    asked.answer("200 OK", "text/plain", "ok");
    run_with(&tenant, "completed").await;
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_not_there_fails_the_step_before_anything_is_sent() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step(address)).await;
    start(&engine).await;
    let run = run_with(&tenant, "failed").await;
    assert_eq!(
        (run["error"]["code"].as_str(), run["error"]["class"].as_str()),
        (Some("secret.not_found"), Some("permanent"))
    );
    assert!(got.try_recv().is_err(), "nothing was sent");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn secrets_are_listed_without_values_and_short_ones_refused() {
    let rig = crate::rig::Rig::new();
    let by = Caller::local();
    assert!(rig.tenant.put_secret(&by, "a.b", "hunter22").await.unwrap().0);
    assert!(!rig.tenant.put_secret(&by, "a.b", "hunter23").await.unwrap().0);
    let listed = rig.tenant.secrets().unwrap();
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!("a.b")));
    assert!(!json!(listed).to_string().contains("hunter"));
    for (name, value) in
        [("a", "abc"), ("", "long enough"), ("a/b", "long enough"), ("a", &"x".repeat(65_537))]
    {
        let refused = rig.tenant.put_secret(&by, name, value).await.unwrap_err();
        assert_eq!(refused.code(), Code::SecretInvalid, "{name}");
    }
    rig.tenant.drop_secret(&by, "a.b").await.unwrap();
    assert_eq!(rig.tenant.drop_secret(&by, "a.b").await.unwrap_err().code(), Code::SecretNotFound);
}
