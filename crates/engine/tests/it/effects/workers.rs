//! Workers of a real engine against a server that a test writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use engine::settings::Effects;
use engine::{Draft, Engine, Options, Settings, Tenant};
use lang::declare::check_workspace;
use serde_json::{Value, json};

use crate::temp::TempDir;

/// Patience with the machine, not with the code.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// One request: its head and body, and the connection to answer on.
pub(super) struct Got {
    pub(super) head: String,
    pub(super) body: String,
    stream: TcpStream,
}

impl Got {
    fn key(&self) -> String {
        let line = self.head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
        line.expect("every request has a key").to_owned()
    }

    pub(super) fn answer(mut self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        self.stream.write_all(text.as_bytes()).unwrap();
    }
}

/// Hands every request to the test, which answers it.
pub(super) fn sink() -> (SocketAddr, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, got) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let send = send.clone();
            std::thread::spawn(move || send.send(read(stream)));
        }
    });
    (address, got)
}

fn read(stream: TcpStream) -> Got {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap() > 2 {
        head.push_str(&line);
        line.clear();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    Got { head, body: String::from_utf8(body).unwrap(), stream }
}

pub(super) fn settings(allow: &[&str]) -> Settings {
    let allow = allow.iter().map(|name| (*name).to_owned()).collect();
    Settings { effects: Effects { allow, ..Effects::default() }, ..Settings::default() }
}

pub(super) async fn engine(dir: &TempDir, allow: &[&str], step: &str) -> (Engine, Tenant) {
    let engine =
        Engine::open_with(dir.path(), Options { settings: settings(allow), ..Options::default() }).unwrap();
    let yaml = format!(
        "automation: calls\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - id: asked\n{step}\n  - publish: {{topic: out.done, payload: {{got: \"{{{{ steps.asked.output }}}}\"}}}}\n"
    );
    let files: BTreeMap<String, String> = [("a.yaml".to_owned(), yaml)].into();
    let checked = check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    let tenant = engine.main().unwrap();
    tenant.apply("test", checked.definitions).await.unwrap();
    (engine, tenant)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_query_is_answered_without_a_request() {
    let dir = TempDir::new();
    let engine = Engine::open(dir.path()).unwrap();
    let files =
        [("a/things.ew".to_owned(), super::detached::DECLARED.replace("DETACHED", "detached"))].into();
    let tenant = engine.main().unwrap();
    tenant.apply("test", check_workspace(&files).definitions).await.unwrap();
    engine.publish(Draft::new("go", &json!({"least": 1}))).await.unwrap();
    let run = run_with(&tenant, "completed").await;
    assert_eq!(run["steps"][0]["output"], 0, "{run}");
    engine.close().await.unwrap();
}

pub(super) async fn start(engine: &Engine) {
    engine.publish(Draft::new("in.a", &json!({"n": 7}))).await.unwrap();
}

/// The one run, once it has this status.
pub(super) async fn run_with(tenant: &Tenant, status: &str) -> Value {
    let found = async {
        loop {
            let head = tenant.head();
            let (runs, _) = tenant.runs(&Default::default()).unwrap();
            let run = tenant.run(runs[0]["id"].as_str().unwrap()).unwrap();
            if run["status"] == status {
                return run;
            }
            tenant.reached(head + 1).await.unwrap();
        }
    };
    tokio::time::timeout(LONG, found).await.unwrap_or_else(|_| panic!("it never was {status}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_made_and_its_answer_is_the_output_of_the_step() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let step = format!(
        "    http: {{url: \"http://{address}/x?y=1\", headers: {{X-Name: me}}, body: {{n: \"{{{{ event.payload.n }}}}\"}}}}"
    );
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step).await;
    start(&engine).await;
    let asked = got.recv_timeout(LONG).unwrap();
    assert!(asked.head.starts_with("POST /x?y=1 HTTP/1.1\r\n"), "{}", asked.head);
    assert!(
        asked.head.contains("x-name: me\r\n") && asked.head.contains("content-type: application/json\r\n")
    );
    assert_eq!(asked.body, "{\"n\":7}");
    assert!(asked.key().starts_with("run_"));
    asked.answer("201 Created", "application/json", "{\"id\":5}");
    let run = run_with(&tenant, "completed").await;
    let output = &run["steps"][0]["output"];
    assert_eq!((&output["status"], &output["body"]), (&json!(201), &json!({"id": 5})));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_is_asked_again_with_the_same_key_and_a_refusal_is_final() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let step =
        format!("    retry: {{max: 5, base: 1ms, limit: 2ms}}\n    http: {{url: \"http://{address}/\"}}");
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step).await;
    start(&engine).await;
    let first = got.recv_timeout(LONG).unwrap();
    let key = first.key();
    first.answer("500 Oops", "text/plain", "out of order");
    let second = got.recv_timeout(LONG).unwrap();
    assert_eq!(second.key(), key);
    second.answer("404 Not Found", "text/plain", "no such\nthing");
    let run = run_with(&tenant, "failed").await;
    assert_eq!(run["error"]["code"], "http.status");
    assert_eq!(run["error"]["message"], "the server answered 404: no such thing");
    assert_eq!(run["error"]["class"], "permanent");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_closed_ports_and_private_addresses_fail_with_their_codes() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent_at, closed_at) = (silent.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    let cases: [(&[&str], SocketAddr, &str, &str); 3] = [
        (&["127.0.0.1"], silent_at, "http.failed", "transient"),
        (&["127.0.0.1"], closed_at, "http.failed", "transient"),
        (&[], silent_at, "http.refused", "permanent"),
    ];
    for (allow, address, code, class) in cases {
        let dir = TempDir::new();
        let step = format!("    timeout: 100ms\n    http: {{url: \"http://{address}/\"}}");
        let (engine, tenant) = engine(&dir, allow, &step).await;
        start(&engine).await;
        let run = run_with(&tenant, "failed").await;
        assert_eq!(
            (run["error"]["code"].as_str(), run["error"]["class"].as_str()),
            (Some(code), Some(class))
        );
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_takes_its_request_back() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let step = format!("    http: {{url: \"http://{address}/\"}}");
    let (engine, tenant) = engine(&dir, &["127.0.0.0/8"], &step).await;
    start(&engine).await;
    let mut asked = got.recv_timeout(LONG).unwrap();
    let run = tenant.live_runs(None).unwrap()[0]["id"].as_str().unwrap().to_owned();
    tenant.cancel_run(&run).unwrap();
    let cancelled = tenant.head();
    let mut rest = Vec::new();
    asked.stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(asked.stream.read_to_end(&mut rest).unwrap_or(0), 0, "the worker hung up");
    tokio::time::timeout(LONG, tenant.reached(cancelled + 1))
        .await
        .expect("the late answer is noted")
        .unwrap();
    assert_eq!(run_with(&tenant, "cancelled").await["id"], run.as_str());
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_out_at_a_stop_is_made_again_by_the_next_process() {
    let (address, got) = sink();
    let dir = TempDir::new();
    let step = format!("    timeout: 1h\n    http: {{url: \"http://{address}/\"}}");
    let (first, tenant) = engine(&dir, &["127.0.0.0/8"], &step).await;
    start(&first).await;
    let lost = got.recv_timeout(LONG).unwrap();
    // Nothing is closed, nothing is answered.
    drop((first, tenant));
    let options = || Options { settings: settings(&["127.0.0.0/8"]), ..Options::default() };
    let second = loop {
        // The engine's own threads let go of the directory in a moment.
        match Engine::open_with(dir.path(), options()) {
            Ok(engine) => break engine,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let again = got.recv_timeout(LONG).unwrap();
    assert_eq!(again.key(), lost.key());
    again.answer("200 OK", "text/plain", "ok");
    let run = run_with(&second.main().unwrap(), "completed").await;
    assert_eq!(run["steps"][0]["output"]["body"], "ok");
    second.close().await.unwrap();
}
