//! `POST /v1/events`: what a client says becomes drafts, and is answered once it is recorded and synced
//! (contracts §2).

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use engine::settings::Limits;
use engine::{Draft, Outcome};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use model::digits::digits;
use model::event::push_text;
use model::{Code, Problem};

use crate::caller::{Call, text};
use crate::idempotency::{KEY, Noting};
use crate::lane::Waited;
use crate::problem::{Answer, bad_request};
use crate::{body, idempotency};

mod cloud;
pub mod lines;
mod ndjson;

/// A JSON array is one commit, and one commit has a bound (rules R5).
const ARRAY_BYTES_MAX: usize = 1 << 20;
/// Room beside the payload for topic, subject, extensions and the rest.
const ENVELOPE_BYTES_MAX: usize = 64 * 1024;

/// The shapes of the table in contracts §2.
enum Shape {
    Json,
    Ndjson,
    CloudEvent,
    CloudEvents,
    /// A CloudEvent whose attributes are `ce-` headers and whose data is the body.
    CloudHeaders,
}

impl Shape {
    /// How a refusal names the part of the request that it is about.
    fn named(&self) -> fn(Problem) -> Problem {
        match self {
            Shape::Json | Shape::Ndjson => |problem| problem,
            Shape::CloudEvent | Shape::CloudEvents => cloud::structured,
            Shape::CloudHeaders => cloud::headers,
        }
    }
}

/// One event or a list of them, read but not yet judged.
enum Said {
    One(Box<Draft>),
    Many(Vec<Draft>),
}

pub async fn publish(call: Call) -> Answer {
    call.params(&[])?;
    let shape = shape(&call.head.headers)?;
    let key = key(&call.head.headers)?;
    if matches!(shape, Shape::Ndjson) {
        return if key.is_some() { Err(key_of_many().into()) } else { ndjson::publish(call) };
    }
    let limits = call.tenant.limits();
    let Call { doors, tenant, caller, head, body, .. } = call;
    let bytes_max = ARRAY_BYTES_MAX.max(event_bytes_max(&limits));
    let waited = head.extensions.get().copied().unwrap_or(Waited(Duration::ZERO));
    let bytes = body::read_on(body, bytes_max, doors.patience.body, waited).await.map_err(fewer)?;
    let named = shape.named();
    let said = said(shape, &bytes, &head.headers, &limits).map_err(named)?;
    let noting: Option<Noting> = head.extensions.get().cloned();
    // Body and headers are slices of the connection's buffer, which is used again only once nothing holds it.
    drop((bytes, head));
    match said {
        Said::One(mut draft) => {
            with_key(&mut draft, key)?;
            let outcome = tenant.publish(&caller, *draft).await.map_err(named)?;
            Ok(one(&outcome))
        }
        // One in headers cannot be several; the others under a key were answered elsewhere.
        Said::Many(_) if key.is_some() => Err(key_of_many().into()),
        Said::Many(drafts) => {
            let outcomes = match noting {
                None => tenant.publish_all(&caller, drafts).await,
                Some(noting) => {
                    tenant.publish_all_noted(&caller, drafts, &|events| noting.about(&events)).await
                }
            };
            Ok(many(&outcomes.map_err(named)?))
        }
    }
}

fn shape(headers: &HeaderMap) -> Result<Shape, Problem> {
    // The content type decides first (HTTP binding of CloudEvents, §3). Any other is, with `ce-` headers, that of the data, whatever it is.
    let structured = headers.get(CONTENT_TYPE).is_some_and(is_cloud);
    let media = match headers.contains_key("ce-specversion") && !structured {
        true => String::new(),
        false => body::media_type(headers)?,
    };
    match media.as_str() {
        "application/cloudevents+json" => Ok(Shape::CloudEvent),
        "application/cloudevents-batch+json" => Ok(Shape::CloudEvents),
        // Without `ce-specversion` it is refused by that name, and not taken for something else.
        _ if !structured && headers.keys().any(|name| name.as_str().starts_with("ce-")) => {
            Ok(Shape::CloudHeaders)
        }
        "" | "application/json" => Ok(Shape::Json),
        "application/x-ndjson" => Ok(Shape::Ndjson),
        other => Err(body::wrong_type(other)),
    }
}

/// Whether it is the type of a whole CloudEvent, in whichever format.
fn is_cloud(media: &HeaderValue) -> bool {
    const BEGINS: &[u8] = b"application/cloudevents";
    media.as_bytes().get(..BEGINS.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(BEGINS))
}

fn said(shape: Shape, bytes: &[u8], headers: &HeaderMap, limits: &Limits) -> Result<Said, Problem> {
    let array = bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let bytes_max = if array { ARRAY_BYTES_MAX } else { event_bytes_max(limits) };
    if bytes.len() > bytes_max {
        return Err(fewer(body::too_large(bytes_max)));
    }
    Ok(match shape {
        Shape::Json if array => Said::Many(Draft::parse_array(bytes, limits)?),
        Shape::Json | Shape::Ndjson => Said::One(Box::new(Draft::parse(bytes, limits)?)),
        Shape::CloudEvent => Said::One(Box::new(Draft::from_cloudevent(bytes, limits)?)),
        Shape::CloudEvents => Said::Many(Draft::from_cloudevent_batch(bytes, limits)?),
        Shape::CloudHeaders => Said::One(Box::new(from_headers(bytes, headers, limits)?)),
    })
}

/// What to do about a body that is too large, where several events may be in one.
fn fewer(problem: Problem) -> Problem {
    match problem.code() {
        Code::BodyTooLarge => {
            problem.hint("send fewer events at once, or stream them as application/x-ndjson")
        }
        _ => problem,
    }
}

fn from_headers(bytes: &[u8], headers: &HeaderMap, limits: &Limits) -> Result<Draft, Problem> {
    let mut attributes = Vec::new();
    for name in headers.keys().filter(|name| name.as_str().starts_with("ce-")) {
        attributes.push((name.as_str(), text(headers, name)?.unwrap_or_default()));
    }
    let version = attributes.iter().find(|(name, _)| *name == "ce-specversion").map(|(_, version)| *version);
    if version != Some("1.0") {
        let what = version.map_or("is missing".to_owned(), |other| format!("is {other:?}, not \"1.0\""));
        let detail = format!("the header \"ce-specversion\" {what}");
        let hint = "a CloudEvent in headers says \"ce-specversion: 1.0\"; leave all ce- headers out to send an event of ours";
        return Err(Problem::new(Code::EventInvalid, detail).hint(hint).at("/specversion"));
    }
    let content_type = text(headers, &CONTENT_TYPE)?;
    Draft::from_cloudevent_headers(attributes, content_type, bytes, limits)
}

/// Longest text of one event.
pub fn event_bytes_max(limits: &Limits) -> usize {
    limits.max_payload + ENVELOPE_BYTES_MAX
}

/// An empty key would be no key, and a client that sends one believes that it has one.
pub fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let key = idempotency::given(headers)?.map(str::to_owned);
    if key.is_none() && headers.contains_key(&KEY) {
        let why = "is empty";
        return Err(bad_request(KEY.as_str(), why).hint("give a key, or leave the header out"));
    }
    Ok(key)
}

fn key_of_many() -> Problem {
    let why = "belongs to a single event, not to several";
    bad_request(KEY.as_str(), why).hint("give each event its own \"key\"")
}

/// The header is the event's key; both may be given when they say the same.
pub fn with_key(draft: &mut Draft, key: Option<String>) -> Result<(), Problem> {
    let Some(key) = key else { return Ok(()) };
    match &draft.key {
        Some(other) if *other != key => {
            let detail = format!("\"key\" is \"{other}\", but the header idempotency-key is \"{key}\"");
            Err(Problem::new(Code::EventInvalid, detail).at("/key").hint("give the key once"))
        }
        _ => {
            draft.key = Some(key);
            Ok(())
        }
    }
}

fn one(outcome: &Outcome) -> Response {
    let mut out = String::with_capacity(112);
    write_outcome(&mut out, outcome);
    json(status(outcome), out)
}

pub fn status(outcome: &Outcome) -> StatusCode {
    match outcome {
        Outcome::Recorded(receipt) if receipt.duplicate => StatusCode::OK,
        Outcome::Recorded(_) => StatusCode::CREATED,
        Outcome::Deferred { .. } | Outcome::Dropped { .. } => StatusCode::ACCEPTED,
    }
}

fn many(outcomes: &[Outcome]) -> Response {
    let mut out = String::with_capacity(16 + 112 * outcomes.len());
    out.push_str("{\"events\":[");
    for (i, outcome) in outcomes.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_outcome(&mut out, outcome);
    }
    out.push_str("]}");
    json(StatusCode::CREATED, out)
}

/// What [`Outcome::to_json`] says, written straight into the answer, because it is on the path of every
/// publish.
pub fn write_outcome(out: &mut String, outcome: &Outcome) {
    match outcome {
        Outcome::Recorded(receipt) => {
            out.push_str("{\"id\":");
            push_text(out, &receipt.id);
            out.push_str(",\"position\":");
            out.push_str(digits(receipt.position, &mut [0; 20]));
            out.push_str(",\"recorded_at\":\"");
            receipt.recorded_at.push_to(out);
            out.push_str(if receipt.duplicate { "\",\"duplicate\":true}" } else { "\"}" });
        }
        other => out.push_str(&other.to_json().to_string()),
    }
}

/// An answer of JSON text.
pub fn json(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
