//! CloudEvents in and out: what was read out is the same event when it is sent in again.

use serde_json::{Value, json};

use crate::harness::Server;

const ONE: &str = "accept: application/cloudevents+json";
const BATCH: &str = "accept: application/cloudevents-batch+json";

fn sent(server: &Server, kind: &str, body: &str) -> Value {
    server.send("POST", "/v1/events", &[&format!("content-type: application/{kind}")], body).ok(201)
}

fn read(server: &Server, id: &Value) -> Value {
    let reply = server.send("GET", &format!("/v1/events/{id}"), &[ONE], "");
    assert_eq!(reply.headers["content-type"], "application/cloudevents+json");
    reply.ok(200)
}

/// Without what each ledger knows by itself, and the key, which a CloudEvent without one is given.
fn own(mut event: Value) -> Value {
    for name in ["ewposition", "ewrecordedat", "ewactor", "key"] {
        event.as_object_mut().unwrap().remove(name);
    }
    event
}

#[test]
fn an_erased_event_says_so_as_a_cloudevent_too() {
    let server = Server::start();
    let position = server.publish("a.b", r#"{"name":"canary"}"#);
    server.post("/v1/erase", json!({"positions": [position]}).to_string()).ok(200);
    let path = format!("/v1/events/{position}");
    assert_eq!(server.get(&path).ok(200)["erased"], true);
    let cloud = server.send("GET", &path, &["accept: application/cloudevents+json"], "").ok(200);
    assert_eq!((&cloud["ewerased"], &cloud["type"], cloud.get("data")), (&json!(true), &json!("a.b"), None));
    let batch = ["accept: application/cloudevents-batch+json"];
    let batch = server.send("GET", "/v1/events?topic=a.b", &batch, "").ok(200);
    assert_eq!((&batch[0]["ewerased"], batch[0].get("data")), (&json!(true), None));
}

#[test]
fn an_event_reads_out_as_it_came_in_and_goes_round() {
    let server = Server::start();
    let said = json!({"specversion": "1.0", "type": "order.paid", "source": "/shop", "id": "a-1",
        "time": "2026-01-31T09:30:00Z", "subject": "order/7", "datacontenttype": "application/json",
        "dataschema": "https://example.org/order.json", "device": "phone1", "data": {"cents": 990}});
    let first = sent(&server, "cloudevents+json", &said.to_string());
    let out = read(&server, &first["position"]);
    for (name, value) in said.as_object().unwrap() {
        assert_eq!(&out[name], value, "{name}");
    }
    let other = Server::start();
    let again = sent(&other, "cloudevents+json", &out.to_string());
    assert_eq!(own(read(&other, &again["position"])), own(out));
}

#[test]
fn a_page_is_a_batch_that_can_be_sent_in_again() {
    let server = Server::start();
    for n in 0..3 {
        server.publish("order.paid", &format!(r#"{{"n":{n}}}"#));
    }
    let page = server.send("GET", "/v1/events?topic=order.*&limit=2", &[BATCH], "");
    assert_eq!(page.headers["content-type"], "application/cloudevents-batch+json");
    let next = page.headers["everwhen-next"].clone();
    assert_eq!(page.ok(200).as_array().unwrap().len(), 2);
    let path = format!("/v1/events?topic=order.*&limit=2&cursor={next}");
    let rest = server.send("GET", &path, &[BATCH], "");
    assert_eq!((rest.ok(200)[0]["data"]["n"].clone(), rest.headers.get("everwhen-next")), (json!(2), None));
    let other = Server::start();
    let sent = sent(&other, "cloudevents-batch+json", &page.text());
    assert_eq!(sent["events"].as_array().unwrap().len(), 2);
    let copied = other.send("GET", "/v1/events?topic=order.*", &[BATCH], "").ok(200);
    assert_eq!(own(copied[1].clone()), own(page.json()[1].clone()));
    assert!(server.get("/v1/events").json()["events"].is_array(), "who asks for nothing gets ours");
}

/// HTTP binding, §3: a gateway that passes an event on may leave its own headers there.
#[test]
fn the_content_type_decides_before_the_headers_do() {
    let server = Server::start();
    let own = ["ce-specversion: 1.0", "ce-id: outer", "ce-type: outer.type", "ce-source: /outer"];
    let event =
        r#"{"specversion":"1.0","id":"inner-1","type":"inner.type","source":"/inner","data":{"n":1}}"#;
    let send = |kind: &str, body: &str| {
        let kind = format!("content-type: {kind}");
        server.send("POST", "/v1/events", &[&own[..], &[kind.as_str()]].concat(), body)
    };
    send("application/cloudevents+json; charset=utf-8", event).ok(201);
    send("Application/CloudEvents-batch+json", &format!("[{}]", event.replace("inner-1", "inner-2"))).ok(201);
    for id in ["inner-1", "inner-2"] {
        let read = server.get(&format!("/v1/events/{id}")).ok(200);
        assert_eq!((&read["topic"], &read["payload"]["n"]), (&"inner.type".into(), &1.into()));
    }
    send("application/cloudevents+avro", event).refused(415, "body.type");
    send("application/json", r#"{"n":2}"#).ok(201);
    assert_eq!(server.get("/v1/events/outer").ok(200)["topic"], "outer.type");
}
