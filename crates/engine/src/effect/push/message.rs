//! What a push sends: the event in its format, signed over id, time and body (Standard Webhooks 1.0). Pure.

use model::event::Event;
use model::{Timestamp, base64};
use ring::hmac;
use serde_json::json;

use crate::admit::cloudevents::{to_cloudevent, to_cloudevent_headers};
use crate::effect::http::Request;
use crate::tenant::pushes::{Format, Push};

/// The same for every attempt and every life of the process, and for nothing else: receivers tell repetitions by it.
pub(super) fn id(tenant: &str, push: &Push, event: &Event) -> String {
    let named = json!([tenant, push.name, event.envelope.id, event.position]).to_string();
    let hash = model::json::canonical_hash([named.as_str()]);
    format!("msg_{}", model::id::hex(&hash[..16]))
}

pub(super) fn request(push: &Push, id: &str, event: &Event, now: Timestamp) -> Request {
    let mut headers = push.headers.clone();
    let body = match push.format {
        Format::Json => {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            event.to_json().into_bytes()
        }
        Format::CloudEvents => {
            headers
                .push(("content-type".to_owned(), "application/cloudevents+json; charset=utf-8".to_owned()));
            to_cloudevent(event).into_bytes()
        }
        Format::CloudEventsBinary => {
            let (attributes, data) = to_cloudevent_headers(event);
            headers.extend(attributes);
            data
        }
    };
    let seconds = (now.millis() / 1_000).to_string();
    let signed = signature(&push.secret, id, &seconds, &body);
    for (name, value) in [("webhook-id", id), ("webhook-timestamp", &seconds), ("webhook-signature", &signed)]
    {
        headers.push((name.to_owned(), value.to_owned()));
    }
    Request {
        method: "POST".to_owned(),
        url: push.url.clone(),
        headers,
        body,
        timeout: push.timeout,
        idempotency_key: Some(id.to_owned()),
    }
}

/// `v1,<base64 of HMAC-SHA256 over id.timestamp.body>`
fn signature(secret: &[u8], id: &str, seconds: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(format!("{id}.{seconds}.").as_bytes());
    context.update(body);
    format!("v1,{}", base64::encode(context.sign().as_ref()))
}
