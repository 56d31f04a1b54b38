//! `examples/worker`: a worker in Python does the `task` step of an automation, whoever is killed in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, Server, examples};

/// A worker of its own: killed if the test leaves it running.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, place: &Place) -> Worker {
        Worker::of(server.url(), place)
    }

    fn of(url: &str, place: &Place) -> Worker {
        let mut command = Command::new("python3");
        command.arg(examples().join("worker/worker.py")).arg("--once").current_dir(place.path());
        command.env("EVERWHEN_SERVER", url).env_remove("EVERWHEN_TOKEN");
        Worker(command.stdin(Stdio::null()).spawn().expect("python3 is needed to try the example"))
    }

    fn done(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(place: &Place) -> Server {
    let pack = examples().join("worker/worker");
    place.serve_with(&[pack.to_str().unwrap()])
}

fn pay(place: &Place, order: u64, cents: Value) {
    place.json(&["publish", "worker.order.paid", &json!({"order": order, "cents": cents}).to_string()]);
}

fn invoices(place: &Place) -> Vec<Value> {
    let found = place.run(&["events", "list", "--topic", "worker.invoice.ready", "--json"]).ok().lines();
    found.into_iter().map(|mut event| event["payload"].take()).collect()
}

#[test]
fn a_worker_in_python_does_the_task_of_an_automation() {
    let place = Place::new();
    let server = serve(&place);
    pay(&place, 7, json!(990));
    Worker::start(&server, &place).done();
    assert_eq!(invoices(&place), [json!({"order": 7, "invoice": {"text": "order 7: 9.90"}})]);
    pay(&place, 8, json!("much"));
    Worker::start(&server, &place).done();
    let failed = place.run(&["runs", "list", "--status", "failed", "--json"]).ok().lines();
    assert_eq!(failed[0]["error"]["message"], "an order has a price in cents");
    assert_eq!(invoices(&place).len(), 1);
}

#[test]
fn a_task_that_was_out_when_the_server_was_killed_is_done_under_the_same_key_and_the_old_token_is_stale() {
    let place = Place::new();
    let server = serve(&place);
    pay(&place, 7, json!(990));
    let first = place.json(&["tasks", "poll", "--kind", "worker.render"]);
    assert_eq!(place.json(&["tasks", "list"])["state"], "held");
    server.signal("KILL");
    let server = serve(&place);
    let token = first["token"].as_str().unwrap();
    let stale = place.run(&["tasks", "complete", token, "{}", "--json"]).exits(4).error();
    assert_eq!(stale["code"], "task.stale");
    // What the first worker had done before it died, so that the second only tells it.
    let key = first["idempotency_key"].as_str().unwrap().replace([':', '[', ']'], "_");
    place.write(&format!("done/{key}"), r#"{"text":"made before"}"#);
    Worker::start(&server, &place).done();
    assert_eq!(invoices(&place), [json!({"order": 7, "invoice": {"text": "made before"}})]);
}

/// One request, and nothing or this for an answer.
fn heard(listener: &TcpListener, answer: Option<&Value>) -> String {
    let (mut socket, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    if let Some(answer) = answer.map(Value::to_string) {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
        socket.write_all(format!("{head}{answer}").as_bytes()).unwrap();
    }
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_server_that_goes_away_during_a_task_is_told_when_it_is_back() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let worker = Worker::of(&format!("http://{}", listener.local_addr().unwrap()), &place);
    let task = json!({"token": "t", "run": "run_x", "step": "actions[0]", "kind": "worker.render",
        "input": {"order": 7, "cents": 990}, "idempotency_key": "k", "attempt": 1});
    assert_eq!(heard(&listener, Some(&json!({ "tasks": [task] }))), "/v1/tasks/poll");
    assert_eq!(heard(&listener, None), "/v1/tasks/complete");
    assert_eq!(heard(&listener, Some(&json!({}))), "/v1/tasks/complete");
    worker.done();
}

#[test]
fn tasks_can_be_looked_at_without_a_server_but_not_held() {
    let place = Place::new();
    let file = examples().join("worker/worker/invoice.yaml");
    place.run(&["apply", file.to_str().unwrap()]).ok();
    pay(&place, 1, json!(1));
    let listed = place.json(&["tasks", "list"]);
    assert_eq!((&listed["state"], &listed["kind"]), (&json!("ready"), &json!("worker.render")));
    place.run(&["tasks", "poll"]).exits(2);
}
