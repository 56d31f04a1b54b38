//! Spans as a collector gets them, a real listener that takes OTLP/HTTP, from a real server that was told where it is; and lines
//! of the log.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Place, Server};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const BEFORE: &str = "00f067aa0ba902b7";
const PATIENCE: Duration = Duration::from_secs(60);

/// Heads and bodies of requests.
type Came = Vec<(String, Vec<u8>)>;

/// What came in, each request answered with 200.
#[derive(Clone, Default)]
pub struct Sink(Arc<(Mutex<Came>, Condvar)>);

impl Sink {
    pub fn start() -> (Sink, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sink) = (listener.local_addr().unwrap(), Sink::default());
        let taking = sink.clone();
        std::thread::spawn(move || listener.incoming().for_each(|stream| taking.take(stream.unwrap())));
        (sink, address)
    }

    fn take(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
            head.push_str(&line);
            line.clear();
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if head.is_empty() || reader.read_exact(&mut body).is_err() {
            return;
        }
        self.0.0.lock().unwrap().push((head, body));
        self.0.1.notify_all();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        let _ = stream.write_all(answer);
    }

    /// What `look` finds in what came so far, as soon as it finds something.
    fn until<T>(&self, look: impl Fn(&[(String, Vec<u8>)]) -> Option<T>) -> T {
        let (came, bell) = &*self.0;
        let mut found = None;
        let mut came = came.lock().unwrap();
        while found.is_none() {
            found = look(&came);
            if found.is_none() {
                let (woken, over) = bell.wait_timeout(came, PATIENCE).unwrap();
                came = woken;
                let shown: Vec<_> = came.iter().map(|(_, body)| String::from_utf8_lossy(body)).collect();
                assert!(!over.timed_out(), "it did not come: {shown:#?}");
            }
        }
        found.unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().unwrap().iter().flat_map(|(_, body)| body.clone()).collect()
    }

    /// Every span once all of these names have come.
    fn spans(&self, names: &[&str]) -> Vec<Value> {
        self.until(|came| {
            let all = spans(came);
            let there = |name: &&str| {
                let wanted = names.iter().filter(|other| other == &name).count();
                all.iter().filter(|span| span["name"] == **name).count() >= wanted
            };
            names.iter().all(there).then_some(all)
        })
    }

    /// The `traceparent` of the nth request.
    fn traceparent(&self, nth: usize) -> Option<String> {
        let head = self.until(|came| came.get(nth).map(|(head, _)| head.clone()));
        head.lines().find_map(|line| line.strip_prefix("traceparent: ").map(str::to_owned))
    }
}

fn spans(came: &[(String, Vec<u8>)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (_, body) in came {
        let said: Value = serde_json::from_slice(body).unwrap();
        all.extend(said["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    all
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

/// The tags of a span, as texts.
fn tags(span: &Value) -> BTreeMap<&str, String> {
    let text = |value: &Value| {
        let value = value.as_object().unwrap().values().next().unwrap();
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    let all = span["attributes"].as_array().unwrap().iter();
    all.map(|tag| (tag["key"].as_str().unwrap(), text(&tag["value"]))).collect()
}

fn ask(server: &Server, method: &str, path: &str, headers: &str, body: &Value) -> String {
    let address = server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn publish(server: &Server, topic: &str, headers: &str) -> Value {
    let said = ask(server, "POST", "/v1/events", headers, &json!({"topic": topic, "payload": {"n": 1}}));
    serde_json::from_str(&said).unwrap()
}

/// With no header that would lead it past the short way.
fn publish_plainly(server: &Server, body: &str) {
    let address = server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn traceparent() -> String {
    format!("traceparent: 00-{TRACE}-{BEFORE}-01\r\n")
}

/// A place with this automation in `w`.
fn place(automation: &str) -> Place {
    let place = Place::new();
    place.write("everwhen.toml", "[effects]\nallow = [\"127.0.0.1\"]\n");
    place.write("w/flow.yaml", automation);
    place
}

fn serve(place: &Place, sink: SocketAddr, more: &[(&str, &str)]) -> Server {
    let endpoint = format!("http://{sink}");
    let env =
        [&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10")], more];
    place.serve_under(&env.concat(), &["--no-auth", "w"])
}

#[test]
fn one_trace_goes_from_a_publish_over_its_run_to_the_request_of_a_step() {
    let ((sink, at), (target, outside)) = (Sink::start(), Sink::start());
    let place = place(&format!(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - publish: {{topic: mid.done}}\n  - http: {{url: \"http://{outside}/x\", body: {{n: 1}}}}\n"
    ));
    let more = [("OTEL_SERVICE_NAME", "mine"), ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary%20key")];
    let server = serve(&place, at, &more);
    ask(&server, "PUT", "/v1/groups/g", "", &json!({"pattern": "in.go"}));
    let event = publish(&server, "in.go", &traceparent());
    let pulled = ask(&server, "POST", "/v1/groups/g/pull", "", &json!({"max": 1, "wait": "20s"}));
    let pulled: Value = serde_json::from_str(&pulled).unwrap();
    let delivery = &pulled["deliveries"][0];
    ask(&server, "POST", "/v1/groups/g/ack", "", &json!({"tokens": [delivery["token"]]}));
    let wanted =
        ["events.publish", "events.publish", "events.handle", "decide", "run", "step", "step", "effect"];
    let spans = sink.spans(&wanted);
    assert_eq!(spans.len(), wanted.len(), "{spans:#?}");
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:#?}");
    let publishes = named(&spans, "events.publish");
    let is_first = |span: &&&Value| tags(span)["topic"] == "in.go";
    let first = publishes.iter().find(is_first).unwrap();
    let second = publishes.iter().find(|span| tags(span)["topic"] == "mid.done").unwrap();
    let one = |name: &str| named(&spans, name)[0];
    let steps = named(&spans, "step");
    let http = steps.iter().find(|step| tags(step)["kind"] == "http").unwrap();
    let parents = [
        (*first, &json!(BEFORE)),
        (one("events.handle"), &first["spanId"]),
        (one("decide"), &first["spanId"]),
        (one("run"), &one("decide")["spanId"]),
        (second, &one("run")["spanId"]),
        (http, &one("run")["spanId"]),
        (one("effect"), &http["spanId"]),
    ];
    for (span, parent) in parents {
        assert_eq!(&span["parentSpanId"], parent, "{span}");
    }
    assert_eq!(delivery["event"]["trace"], format!("00-{TRACE}-{}-01", first["spanId"].as_str().unwrap()));
    let sent = format!("00-{TRACE}-{}-01", one("effect")["spanId"].as_str().unwrap());
    assert_eq!(target.traceparent(0), Some(sent));
    let said = tags(first);
    assert_eq!((said["space_id"].as_str(), said["size_bytes"].as_str()), ("default", "7"));
    assert_eq!(said["position"], event["position"].to_string());
    let said = tags(one("events.handle"));
    assert_eq!(
        (said["topic"].as_str(), said["group"].as_str(), said["retries"].as_str()),
        ("in.go", "g", "0")
    );
    assert_eq!(said["offset"], event["position"].to_string());
    assert!(said["lat_ms"].parse::<f64>().unwrap() >= 0.0);
    let effect = tags(one("effect"));
    assert_eq!(effect["http.response.status_code"], "200");
    assert!(!effect.values().any(|tag| tag.contains(&outside.to_string())), "{effect:?}");
    let (head, body) = sink.until(|came| came.first().cloned());
    assert!(head.starts_with("POST /v1/traces ") && head.contains("api-key: canary key"), "{head}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    let about = body["resourceSpans"][0]["resource"]["attributes"].to_string();
    assert!(about.contains(r#""service.name","value":{"stringValue":"mine"}"#), "{about}");
    assert_eq!(server.signal("TERM"), 0);
    let log = std::fs::read_to_string(place.path().join("serve.log")).unwrap();
    assert!(log.contains("spans are sent") && !log.contains("canary key"), "{log}");
}

#[test]
fn a_run_that_waits_through_a_restart_stays_in_its_trace() {
    let ((sink, at), (target, outside)) = (Sink::start(), Sink::start());
    let place = place(&format!(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - wait_for: {{event: in.more}}\n  - http: {{url: \"http://{outside}/x\"}}\n"
    ));
    let server = serve(&place, at, &[]);
    publish(&server, "in.go", &traceparent());
    let decided = sink.spans(&["decide"]);
    assert_eq!(server.signal("KILL"), -9);
    let server = serve(&place, at, &[]);
    publish(&server, "in.more", "");
    let spans = sink.spans(&["run", "step", "step", "effect"]);
    let (run, effect) = (named(&spans, "run")[0], named(&spans, "effect")[0]);
    assert_eq!((&run["traceId"], &effect["traceId"]), (&json!(TRACE), &json!(TRACE)));
    assert_eq!(run["parentSpanId"], named(&decided, "decide")[0]["spanId"]);
    assert!(target.traceparent(0).unwrap().starts_with(&format!("00-{TRACE}-")));
    let publishes = named(&spans, "events.publish");
    let second = publishes.iter().find(|span| tags(span)["topic"] == "in.more").unwrap();
    assert_ne!(second["traceId"], TRACE, "one without a trace begins its own");
    assert_eq!(second.get("parentSpanId"), None);
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn a_trace_that_is_not_sampled_is_told_nowhere_and_goes_on_as_such() {
    let ((sink, at), (target, outside)) = (Sink::start(), Sink::start());
    let place = place(&format!(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - http: {{url: \"http://{outside}/x\"}}\n"
    ));
    let server = serve(&place, at, &[("OTEL_TRACES_SAMPLER", "always_off")]);
    publish(&server, "in.go", &traceparent());
    let sent = target.traceparent(0).unwrap();
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00"), "{sent}");
    // Ending sends whatever there is to send.
    assert_eq!(server.signal("TERM"), 0);
    assert_eq!(String::from_utf8(sink.bytes()).unwrap(), "");
}

#[test]
fn a_collector_that_is_not_there_costs_spans_and_nothing_else() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (target, outside) = Sink::start();
    let place = place(&format!(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - http: {{url: \"http://{outside}/x\"}}\n"
    ));
    let server = serve(&place, gone, &[("OTEL_BSP_MAX_QUEUE_SIZE", "1")]);
    (0..20).for_each(|_| drop(publish(&server, "in.go", "")));
    target.until(|came| (came.len() == 20).then_some(()));
    let lost = || {
        let text = ask(&server, "GET", "/metrics", "", &Value::Null);
        let line = text.lines().find_map(|line| line.strip_prefix("everwhen_spans_dropped_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let begun = std::time::Instant::now();
    while lost() == 0 {
        assert!(begun.elapsed() < PATIENCE, "lost spans are not counted");
        std::thread::yield_now();
    }
    assert_eq!(server.signal("TERM"), 0);
    let log = std::fs::read_to_string(place.path().join("serve.log")).unwrap();
    assert_eq!(log.matches("spans are not taken").count(), 1, "said once: {log}");
}

#[test]
fn without_a_collector_a_trace_is_handed_on_as_it_came_and_none_is_made_up() {
    let (target, outside) = Sink::start();
    let place = place(&format!(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - http: {{url: \"http://{outside}/x\"}}\n"
    ));
    let server = place.serve_with(&["w"]);
    publish(&server, "in.go", &traceparent());
    assert_eq!(target.traceparent(0), Some(format!("00-{TRACE}-{BEFORE}-01")));
    let event = publish(&server, "in.go", "");
    assert_eq!(target.traceparent(1), None);
    let event = ask(&server, "GET", &format!("/v1/events/{}", event["position"]), "", &Value::Null);
    assert!(!event.contains("\"trace\""), "{event}");
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn pushes_and_tasks_hand_a_trace_on_and_a_task_that_is_done_is_a_span() {
    let ((sink, at), (target, outside)) = (Sink::start(), Sink::start());
    let place = place(
        "automation: flow\nmode: parallel\nmax: 100\ntriggers:\n  - event: in.go\nactions:\n  - task: {kind: print, input: {n: 1}}\n",
    );
    let server = serve(&place, at, &[]);
    let push = json!({"url": format!("http://{outside}/in"), "pattern": "in.go"});
    ask(&server, "PUT", "/v1/push/shop", "", &push);
    publish(&server, "in.go", &traceparent());
    let polled = ask(&server, "POST", "/v1/tasks/poll", "", &json!({"wait": "30s"}));
    let polled: Value = serde_json::from_str(&polled).unwrap();
    let task = &polled["tasks"][0];
    ask(&server, "POST", "/v1/tasks/complete", "", &json!({"token": task["token"], "output": {"canary": 1}}));
    let spans = sink.spans(&["events.handle", "run", "step", "effect"]);
    let context = |span: &Value| format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap());
    let (effect, handle) = (named(&spans, "effect")[0], named(&spans, "events.handle")[0]);
    assert_eq!(task["traceparent"], context(effect));
    assert_eq!(effect["parentSpanId"], named(&spans, "step")[0]["spanId"]);
    assert_eq!(tags(effect)["kind"], "task");
    assert_eq!(target.traceparent(0), Some(context(handle)));
    assert!(!String::from_utf8(sink.bytes()).unwrap().contains("canary"));
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn lines_about_requests_and_runs_say_which() {
    let place = place("automation: flow\ntriggers:\n  - event: in.go\nactions:\n  - fail: no\n");
    let server = place.serve_under(&[("EVERWHEN_LOG", "debug")], &["--no-auth", "w"]);
    publish(&server, "in.go", "x-request-id: mine-1\r\n");
    publish_plainly(&server, r#"{"topic":"in.plain"}"#);
    let runs = place.run(&["runs", "list", "--json"]).ok().lines();
    assert_eq!(server.signal("TERM"), 0);
    let log = std::fs::read_to_string(place.path().join("serve.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about = |message: &str, name: &str, value: &Value| {
        lines
            .iter()
            .map(|line| &line["fields"])
            .find(|line| line["message"] == message && line[name] == *value)
            .cloned()
    };
    let answered = about("answered", "request_id", &json!("mine-1")).expect(&log);
    assert_eq!(
        (&answered["method"], &answered["path"], &answered["status"]),
        (&json!("POST"), &json!("/v1/events"), &json!(201))
    );
    let published = lines.iter().map(|line| &line["fields"]).filter(|line| line["path"] == "/v1/events");
    let published: Vec<&Value> = published.filter(|line| line["message"] == "answered").collect();
    assert_eq!(published.len(), 2, "on both ways: {log}");
    for line in published {
        assert_eq!((&line["method"], &line["status"]), (&json!("POST"), &json!(201)), "{line}");
        assert!(line["request_id"].is_string(), "{line}");
    }
    let failed = about("a run failed", "run_id", &runs[0]["id"]).expect(&log);
    assert_eq!(
        (&failed["automation"], &failed["code"], &failed["tenant"]),
        (&json!("flow"), &json!("run.failed"), &json!("main"))
    );
}
