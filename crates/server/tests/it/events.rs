//! Searching and reading events.

use serde_json::{Value, json};

use crate::harness::Server;

fn topics(page: &Value) -> Vec<&str> {
    page["events"].as_array().unwrap().iter().map(|e| e["topic"].as_str().unwrap()).collect()
}

#[test]
fn every_parameter_narrows_the_search() {
    let server = Server::start();
    let events = [
        json!({"topic":"a.one","payload":{"n":1},"subject":{"kind":"item","id":"x/1"},"space":"red"}),
        json!({"topic":"a.two","payload":{"n":2}}),
        json!({"topic":"b.three","payload":{"n":3},"time":"2020-01-01T00:00:00Z"}),
    ];
    let positions: Vec<u64> = events
        .iter()
        .map(|e| server.post("/v1/events", e.to_string()).ok(201)["position"].as_u64().unwrap())
        .collect();
    let second = positions[1];
    let table = [
        (String::new(), vec!["a.one", "a.two", "b.three"]),
        ("?order=desc".into(), vec!["b.three", "a.two", "a.one"]),
        ("?topic=a.*".into(), vec!["a.one", "a.two"]),
        ("?topic=a.%23&limit=1".into(), vec!["a.one"]),
        ("?space=red".into(), vec!["a.one"]),
        ("?subject=item/x%2F1".into(), vec!["a.one"]),
        (format!("?after={second}"), vec!["b.three"]),
        (format!("?before={second}"), vec!["a.one"]),
        ("?filter=event.payload.n%20%3E%201".into(), vec!["a.two", "b.three"]),
        ("?filter=%7B%22field%22%3A%22payload.n%22%2C%22eq%22%3A2%7D".into(), vec!["a.two"]),
        ("?after=0&topic=&cursor=".into(), vec!["a.one", "a.two", "b.three"]),
    ];
    for (query, want) in table {
        let page = server.get(&format!("/v1/events{query}")).ok(200);
        assert_eq!(topics(&page), want, "{query}");
    }
}

#[test]
fn pages_follow_each_other_without_gap_or_repeat() {
    let server = Server::start();
    let body = format!("[{}]", vec![r#"{"topic":"a.b"}"#; 25].join(","));
    let all = server.post("/v1/events", body).ok(201);
    let positions = |page: &Value| -> Vec<u64> {
        page["events"].as_array().unwrap().iter().map(|e| e["position"].as_u64().unwrap()).collect()
    };
    for order in ["asc", "desc"] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/events?limit=7&order={order}&cursor={cursor}")).ok(200);
            seen.extend(positions(&page));
            let Some(next) = page.get("next") else { break };
            cursor = next.as_str().unwrap().to_owned();
        }
        let mut want = positions(&all);
        if order == "desc" {
            want.reverse();
        }
        assert_eq!(seen, want, "{order}");
    }
}

#[test]
fn a_wrong_parameter_is_refused_by_name() {
    let server = Server::start();
    let table = [
        ("?colour=red", 400, "request.invalid", "colour"),
        ("?after=-1", 400, "request.invalid", "after"),
        ("?before=x", 400, "request.invalid", "before"),
        ("?limit=0", 400, "request.invalid", "limit"),
        ("?limit=1001", 400, "request.invalid", "limit"),
        ("?limit=-5", 400, "request.invalid", "limit"),
        ("?since=yesterday", 400, "request.invalid", "since"),
        ("?order=up", 400, "request.invalid", "order"),
        ("?subject=item", 400, "request.invalid", "subject"),
        ("?after=1&after=2", 400, "request.invalid", "after"),
        ("?topic=a..b", 422, "pattern.invalid", "topic"),
    ];
    for (query, status, code, name) in table {
        let problem = server.get(&format!("/v1/events{query}")).refused(status, code);
        assert_eq!(problem["parameter"], name, "{query}: {problem}");
    }
    assert_eq!(server.get("/v1/events?filter=%28").status, 422);
    assert_eq!(server.get("/v1/events?cursor=nonsense").status, 400);
}

#[test]
fn an_event_that_is_not_there_is_not_found() {
    let server = Server::start();
    let position = server.publish("a.b", "{}");
    server.get("/v1/events/99999").refused(404, "event.not_found");
    server.get("/v1/events/nobody").refused(404, "event.not_found");
    server.get("/v1/events/nobody/lineage").refused(404, "event.not_found");
    server.get("/v1/events/-1").refused(400, "request.invalid");
    server.get("/v1/events/%FF").refused(400, "request.invalid");
    server.get(&format!("/v1/events/{position}?x=1")).refused(400, "request.invalid");
}

#[test]
fn lineage_shows_what_led_here_and_what_came_of_it() {
    let server = Server::start();
    let first = server.publish("a.first", "{}");
    let second = server.post("/v1/events", json!({"topic":"a.second","cause":first}).to_string()).ok(201);
    let second = second["position"].as_u64().unwrap();
    server.post("/v1/events", json!({"topic":"a.third","cause":second}).to_string()).ok(201);
    let lineage = server.get(&format!("/v1/events/{second}/lineage")).ok(200);
    assert_eq!(lineage["event"]["topic"], "a.second");
    assert_eq!(lineage["causes"][0]["topic"], "a.first");
    assert_eq!(lineage["effects"][0]["event"]["topic"], "a.third");
}

#[test]
fn numbers_come_back_digit_for_digit_from_every_list() {
    let server = Server::start();
    let payload = r#"{"n":1.10,"big":12345678901234567890123}"#;
    let first = server.publish("a.first", payload);
    let effect = format!(r#"{{"topic":"a.second","cause":{first},"payload":{payload}}}"#);
    server.post("/v1/events", effect).ok(201);
    server.apply(
        "a.yaml",
        "automation: copies\ntriggers: [{event: a.third}]\nactions: [{publish: {topic: a.fourth}}]\n",
    );
    server.publish("a.third", payload);
    let run = server.get("/v1/runs").ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    for (path, count) in [
        ("/v1/events?topic=a.#&before=3".replace('#', "%23"), 2),
        (format!("/v1/explain/event/{first}"), 1),
        (format!("/v1/explain/run/{run}"), 1),
        (format!("/v1/events/{first}/lineage"), 2),
        (format!("/v1/events/{}/lineage", first + 1), 2),
        ("/api/events/recent".to_owned(), 3),
    ] {
        let text = server.get(&path).text();
        assert_eq!(text.matches(&format!(r#""payload":{payload}"#)).count(), count, "{path}: {text}");
    }
}

#[test]
fn the_last_instant_of_the_calendar_is_kept() {
    let server = Server::start();
    for time in ["9999-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z"] {
        let event = json!({"topic":"a.b","time":time}).to_string();
        let position = server.post("/v1/events", event).ok(201)["position"].to_string();
        assert_eq!(server.get(&format!("/v1/events/{position}")).ok(200)["time"], time);
    }
    let past = json!({"topic":"a.b","time":"9999-12-31T23:59:59-01:00"}).to_string();
    assert_eq!(server.post("/v1/events", past).refused(422, "event.invalid")["pointer"], "/time");
}
