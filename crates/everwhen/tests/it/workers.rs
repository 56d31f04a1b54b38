//! `examples/worker`: a worker in Python does the `task` step of an automation, whoever is killed in between.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, Server, examples};

/// A worker of its own: killed if the test leaves it running.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, place: &Place) -> Worker {
        let mut command = Command::new("python3");
        command.arg(examples().join("worker/worker.py")).arg("--once").current_dir(place.path());
        command.env("EVERWHEN_SERVER", server.url()).env_remove("EVERWHEN_TOKEN");
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
