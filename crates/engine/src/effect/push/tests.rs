//! What a push sends, and when it gives up.

use std::time::Duration;

use model::Timestamp;
use model::event::{Content, Envelope, Event};
use serde_json::json;

use super::{FAILING_MAX, Streak, message};
use crate::tenant::pushes::{Format, Push};

fn push(format: Format) -> Push {
    Push {
        name: "shop".to_owned(),
        group: "push-shop".to_owned(),
        url: "https://example.org/in".to_owned(),
        headers: vec![("x-own".to_owned(), "1".to_owned())],
        format,
        timeout: Duration::from_secs(15),
        ordered: false,
        definition: json!({"pattern": "#"}),
        secret: model::base64::decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
    }
}

fn event(position: u64) -> Event {
    let envelope = Envelope {
        id: "01J".to_owned(),
        topic: "order.paid".to_owned(),
        space: "default".to_owned(),
        actor: "user:ann".to_owned(),
        source: Some("Größe/1".to_owned()),
        ..Envelope::default()
    };
    let recorded_at = Timestamp::from_millis(1_614_265_330_000);
    Event { position, recorded_at, envelope, content: Content::new("{\"n\":1.50}", None) }
}

fn header<'a>(request: &'a crate::effect::http::Request, name: &str) -> &'a str {
    let found = request.headers.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value)
}

#[test]
fn a_message_is_signed_over_id_time_and_body_and_its_id_is_the_events() {
    let (push, now) = (push(Format::Json), Timestamp::from_millis(1_614_265_330_999));
    let id = message::id("main", &push, &event(7));
    assert_eq!(id, message::id("main", &push, &event(7)));
    assert!(id != message::id("main", &push, &event(8)) && id != message::id("other", &push, &event(7)));
    let request = message::request(&push, &id, &event(7), now);
    assert_eq!((header(&request, "webhook-id"), header(&request, "webhook-timestamp")), (&*id, "1614265330"));
    assert_eq!((header(&request, "x-own"), header(&request, "content-type")), ("1", "application/json"));
    let body = String::from_utf8(request.body.clone()).unwrap();
    assert!(body.contains("\"position\":7") && body.contains("\"n\":1.50"), "{body}");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &push.secret);
    let signed = ring::hmac::sign(&key, format!("{id}.1614265330.{body}").as_bytes());
    let expected = format!("v1,{}", model::base64::encode(signed.as_ref()));
    assert_eq!(header(&request, "webhook-signature"), expected);
}

#[test]
fn cloudevents_go_out_structured_or_as_headers_and_read_back_alike() {
    let now = Timestamp::from_millis(0);
    let structured = message::request(&push(Format::CloudEvents), "msg_1", &event(7), now);
    assert!(header(&structured, "content-type").starts_with("application/cloudevents+json"));
    let binary = message::request(&push(Format::CloudEventsBinary), "msg_1", &event(7), now);
    assert_eq!(
        (header(&binary, "ce-type"), header(&binary, "ce-source")),
        ("order.paid", "Gr%C3%B6%C3%9Fe/1")
    );
    assert_eq!(binary.body, b"{\"n\":1.50}");
    let limits = crate::settings::Settings::default().limits();
    let one = crate::Draft::from_cloudevent(&structured.body, &limits).unwrap();
    let headers = binary.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let other =
        crate::Draft::from_cloudevent_headers(headers, Some("application/json"), &binary.body, &limits)
            .unwrap();
    assert_eq!((&one.topic, &one.source, &one.space), (&other.topic, &other.source, &other.space));
    assert_eq!(one.source.as_deref(), Some("Größe/1"));
}

#[test]
fn fifty_failures_or_a_day_of_them_are_enough() {
    let begun = Timestamp::from_millis(1_000);
    let streak = |failures| Streak { failures, since: Some(begun), ..Streak::default() };
    assert_eq!(streak(49).over(begun), None);
    assert_eq!(streak(50).over(begun).as_deref(), Some("50 failures in a row"));
    let later = begun.plus(FAILING_MAX);
    assert!(streak(1).over(later).is_some_and(|why| why.contains("24 hours")));
    assert_eq!(streak(0).over(later), None, "nothing was tried since");
}

#[tokio::test]
async fn a_push_that_is_not_there_any_more_gets_no_group_not_even_for_a_moment() {
    let dir = std::env::temp_dir().join(format!("everwhen-push-{}", std::process::id()));
    let engine = crate::Engine::open(&dir).unwrap();
    let tenant = engine.main().unwrap();
    let head = tenant.head();
    assert!(!super::make_group(&tenant, &push(Format::Json)).await);
    assert_eq!(tenant.head(), head, "nothing was written");
    engine.close().await.unwrap();
    let _ = std::fs::remove_dir_all(&dir);
}
