//! Inbound hooks: what others deliver, believed by its signature and recorded before it is answered (contracts §13).
//!
//! ```text
//!  POST /hooks/{tenant}/{name} ─▶ size ─▶ signature over the raw bytes ─▶ freshness ─▶ delivery id as key ─▶ durable ─▶ 202
//! ```
//! A hook that is not there and a tenant that is not there read alike.

mod form;
pub mod signature;
pub mod tried;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use engine::admit::check_space_of;
use engine::tenant::hooks::Hook;
use engine::{Caller, Draft, Outcome, Tenant};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::body::{self, object, only_json};
use crate::caller::{Call, trace};
use crate::listing::There;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{Doors, aside, audit, listing};
use signature::{Delivery, Reason, Scheme, Secret};

const BODY_MAX: usize = 64 << 10;
/// How far a delivery's own time may be from ours.
const TOLERANCE_SECONDS: i64 = 300;
const FIELDS: [&str; 4] = ["scheme", "secret", "topic", "space"];

/// A hook has no tag: it can only be asked to be there, or not to be.
fn conditions(tenant: &Tenant, name: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let there = listing::has_conditions(headers) && tenant.shown_hook(name).is_ok();
    listing::check(headers, if there { &There::Untagged } else { &There::Not })
}

/// `GET /v1/hooks`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    listing::page(&params, "hooks", "name", call.tenant.hooks()?)
}

/// `GET /v1/hooks/{name}`
pub async fn get(Path(name): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    Ok(json_answer(StatusCode::OK, call.tenant.shown_hook(&name)?.to_string()))
}

/// `PUT /v1/hooks/{name}`
pub async fn put(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    conditions(&tenant, &name, &call.head.headers)?;
    let said = object(&call.bytes(BODY_MAX).await?, &FIELDS)?;
    check(&tenant, &name, &said)?;
    let (new, hook) = tenant.put_hook(&caller, &name, said).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_answer(status, hook.to_string()))
}

/// `DELETE /v1/hooks/{name}`
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    conditions(&call.tenant, &name, &call.head.headers)?;
    call.tenant.drop_hook(&call.caller, &name).await?;
    Ok(listing::gone())
}

pub fn check(tenant: &Tenant, name: &str, said: &Map<String, Value>) -> Result<(), Problem> {
    let wrong = |at: &str, detail: String| Problem::new(Code::HookInvalid, detail).at(at);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let detail = format!("\"{name}\" is no name for a hook");
        return Err(wrong("", detail).hint("use up to 64 letters, digits, - and _"));
    }
    let text = |field: &str| match said.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(wrong(&format!("/{field}"), format!("\"{field}\" is a text, not {other}"))),
    };
    let scheme = text("scheme")?.ok_or_else(|| wrong("/scheme", "\"scheme\" is missing".to_owned()))?;
    let scheme = Scheme::parse(scheme)?;
    match text("secret")? {
        Some(secret) => drop(Secret::parse(scheme, secret)?),
        // The one that is there stays, and must be one under this scheme, too.
        None if tenant.shown_hook(name).is_ok() => drop(
            Secret::parse(scheme, &tenant.hook(name)?.secret)
                .map_err(|problem| problem.hint("give the secret of the new scheme with it"))?,
        ),
        None => return Err(wrong("/secret", "\"secret\" is missing".to_owned())),
    }
    if let Some(space) = text("space")? {
        check_space_of(Code::HookInvalid, space)?;
    }
    match text("topic")? {
        Some(topic) if model::topic::is_reserved(topic) => {
            Err(wrong("/topic", format!("topic \"{topic}\" is published by the engine only")))
        }
        Some(topic) => {
            model::topic::check_topic(topic).map_err(|problem| wrong("/topic", problem.detail().to_owned()))
        }
        None => Ok(()),
    }
}

/// `OPTIONS /hooks/{tenant}/{name}`: the handshake of CloudEvents (HTTP 1.1 Web Hooks, §4). Who may deliver is told by the signature, so any
/// origin may try, at any rate; and whether the hook is there is not told before.
pub async fn handshake(headers: HeaderMap) -> Response {
    let mut response = Response::default();
    let told = response.headers_mut();
    told.insert(ALLOW, HeaderValue::from_static("POST"));
    if let Some(origin) = headers.get("webhook-request-origin") {
        told.insert("webhook-allowed-origin", origin.clone());
        told.insert("webhook-allowed-rate", HeaderValue::from_static("*"));
    }
    response
}

/// `POST /hooks/{tenant}/{name}`
pub async fn deliver(
    Path((tenant, name)): Path<(String, String)>,
    State(doors): State<Arc<Doors>>,
    request: Request,
) -> Answer {
    let (head, body) = request.into_parts();
    let (tenant, hook) = found(&doors, tenant, name).await?;
    audit::wrote(&tenant);
    let bytes_max = tenant.limits().max_payload;
    let bytes = body::read(body, bytes_max, doors.patience.body).await.map_err(of_a_sender)?;
    let scheme = Scheme::parse(&hook.scheme)?;
    believe(&tenant, &hook, scheme, &head.headers, &bytes)?;
    let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bytes = if form::is_form(kind, &bytes) { form::to_json(&bytes)?.into_bytes().into() } else { bytes };
    if let Some(challenge) = challenge(scheme, &bytes) {
        return Ok(json_answer(StatusCode::OK, json!({ "challenge": challenge }).to_string()));
    }
    let draft = draft(&tenant, &hook, scheme, &head.headers, &bytes)?;
    let caller = Caller {
        actor: format!("system:hook:{}", hook.name),
        trace: trace(&head.headers),
        outside: true,
        sight: Default::default(),
    };
    match tenant.publish(&caller, draft).await {
        Ok(Outcome::Recorded(receipt)) => {
            let mut answer = json!({"id": receipt.id, "position": receipt.position});
            if receipt.duplicate {
                answer["duplicate"] = true.into();
            }
            let status = if receipt.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
            Ok(json_answer(status, answer.to_string()))
        }
        Ok(other) => Ok(json_answer(StatusCode::ACCEPTED, other.to_json().to_string())),
        // The sender's id of the delivery is what makes it the same, however it is worded this time.
        Err(problem) if problem.code() == Code::EventKeyConflict => {
            let position = problem.extra().get("position").cloned().unwrap_or_default();
            let mut answer = json!({"position": position, "duplicate": true});
            let wanted = position.to_string();
            if let Ok(event) = aside::blocking(move || tenant.event(&wanted)).await {
                answer["id"] = event.envelope.id.as_str().into();
            }
            Ok(json_answer(StatusCode::OK, answer.to_string()))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// A delivery is one event: nobody can send it in parts.
fn of_a_sender(problem: Problem) -> Problem {
    match problem.code() {
        Code::BodyTooLarge => {
            problem.hint("have its sender leave something out, or raise `max_payload` if that was lowered")
        }
        _ => problem,
    }
}

/// What Slack asks of a new address before it delivers there; answered, and no event.
fn challenge(scheme: Scheme, bytes: &[u8]) -> Option<String> {
    let said = (scheme == Scheme::Slack).then(|| serde_json::from_slice::<Value>(bytes).ok())??;
    let asks = said["type"] == "url_verification";
    asks.then(|| said["challenge"].as_str().map(str::to_owned))?
}

async fn found(doors: &Arc<Doors>, tenant: String, name: String) -> Result<(Tenant, Hook), Problem> {
    let absent =
        || Problem::new(Code::NotFound, "there is no such hook").hint("ask its owner for its address");
    let engine = doors.engine.clone();
    let look = aside::blocking(move || {
        if !engine.has_tenant(&tenant) {
            return Err(absent());
        }
        let tenant = engine.tenant(&tenant)?;
        let hook = tenant.hook(&name).map_err(|_| absent())?;
        Ok((tenant, hook))
    });
    look.await.map_err(|problem| match problem.code() {
        // Who only knows an address learns nothing about who lives there.
        Code::RequestInvalid | Code::TenantSuspended => absent(),
        _ => problem,
    })
}

fn believe(
    tenant: &Tenant,
    hook: &Hook,
    scheme: Scheme,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<(), Problem> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let now = tenant.now().millis() / 1_000;
    let delivery = Delivery { header: &header, body: bytes, now, tolerance: Some(TOLERANCE_SECONDS) };
    // With a secret that is none nobody can have signed; that it is none is no stranger's business.
    let judged = match Secret::parse(scheme, &hook.secret) {
        Ok(secret) => signature::verify(scheme, &secret, &delivery),
        Err(_) => Err(Reason::Signature),
    };
    judged.map_err(|reason| {
        Problem::new(Code::HookRefused, format!("the delivery is not believed: {}", reason.as_str()))
            .hint("compare scheme and secret with the sender's settings, and the clocks")
            .with("reason", reason.as_str())
    })
}

fn draft(
    tenant: &Tenant,
    hook: &Hook,
    scheme: Scheme,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Draft, Problem> {
    model::json::check(bytes, tenant.limits().max_depth)?;
    let text =
        std::str::from_utf8(bytes).map_err(|_| Problem::new(Code::JsonInvalid, "the body is not UTF-8"))?;
    let payload: &RawValue =
        serde_json::from_str(text).map_err(|error| Problem::new(Code::JsonInvalid, error.to_string()))?;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let named = |name: &str| serde_json::from_str::<Value>(text).ok()?[name].as_str().map(str::to_owned);
    let id = match scheme {
        Scheme::StandardWebhooks => header("webhook-id").or(header("svix-id")).map(str::to_owned),
        Scheme::Github => header("x-github-delivery").map(str::to_owned),
        Scheme::Stripe => named("id"),
        Scheme::Slack => named("event_id").or_else(|| named("trigger_id")),
        Scheme::Hmac => header("x-delivery-id").or(header("idempotency-key")).map(str::to_owned),
    };
    let event = header("x-github-event").filter(|event| !event.is_empty());
    let topic = match (&hook.topic, scheme, event) {
        (Some(topic), ..) => topic.clone(),
        (None, Scheme::Github, Some(event)) => github_topic(event, named("action").as_deref()),
        _ => format!("hook.{}", hook.name),
    };
    let id = id.filter(|id| !id.is_empty()).map(|id| if id.len() > KEY_BYTES_MAX { hashed(&id) } else { id });
    Ok(Draft {
        key: Some(id.unwrap_or_else(|| signed_key(scheme, &header, text))),
        source: Some(format!("hook:{}", hook.name)),
        space: hook.space.clone(),
        ..Draft::new(topic, &payload)
    })
}

/// The longest key that an event can have.
const KEY_BYTES_MAX: usize = 1_024;

/// Stands for an id that is too long for a key.
fn hashed(id: &str) -> String {
    let hash = model::json::canonical_hash([Value::from(id).to_string().as_str()]);
    format!("long:{}", model::id::hex(&hash))
}

/// What tells deliveries apart whose sender names none: what was signed, the time and the body. Two that were signed at the same time
/// and say the same are one, as they have the same signature.
fn signed_key<'h>(scheme: Scheme, header: &impl Fn(&str) -> Option<&'h str>, body: &str) -> String {
    let at = match scheme {
        Scheme::Stripe => header("stripe-signature")
            .and_then(|value| value.split(',').find_map(|pair| pair.trim().strip_prefix("t="))),
        Scheme::Slack => header("x-slack-request-timestamp"),
        Scheme::StandardWebhooks | Scheme::Github | Scheme::Hmac => None,
    };
    let signed = [Value::from(at), Value::from(body)].map(|part| part.to_string());
    let hash = model::json::canonical_hash(signed.iter().map(String::as_str));
    format!("signed:{}", &model::id::hex(&hash)[..32])
}

/// The longest topic that there is.
const TOPIC_BYTES_MAX: usize = 512;

/// `github.<event>[.<action>]`; what a topic's word cannot hold becomes `_`, and what does not fit is cut.
fn github_topic(event: &str, action: Option<&str>) -> String {
    let word = |text: &str| -> String {
        let cannot = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '#');
        text.chars().map(|c| if cannot(c) { '_' } else { c }).collect()
    };
    let mut topic = match action.filter(|action| !action.is_empty()) {
        Some(action) => format!("github.{}.{}", word(event), word(action)),
        None => format!("github.{}", word(event)),
    };
    topic.truncate(topic.floor_char_boundary(TOPIC_BYTES_MAX));
    // Cut right behind a word, its dot would begin an empty one.
    topic.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_github_keeps_all_that_a_topic_can_hold() {
        let cases = [
            ("push", None, "github.push"),
            ("push", Some(""), "github.push"),
            ("deployment", Some("deploy:prod"), "github.deployment.deploy:prod"),
            ("issues", Some("é"), "github.issues.é"),
            ("issues", Some("a.b c\u{7}*#\u{a0}d"), "github.issues.a_b_c____d"),
        ];
        for (event, action, topic) in cases {
            assert_eq!(github_topic(event, action), topic);
        }
        for length in 480..520 {
            for (event, action) in [("e".repeat(length), "a"), ("e".to_owned(), &*"é".repeat(length))] {
                let topic = github_topic(&event, Some(action));
                assert!(topic.len() <= TOPIC_BYTES_MAX);
                model::topic::check_topic(&topic).unwrap();
            }
        }
    }
}
