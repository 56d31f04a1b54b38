//! `Idempotency-Key` on every POST: what was done once under a key is answered again, not done again (docs/http.md).
//!
//! ```text
//!  same key, same request    the first answer, with `Idempotency-Replayed: true`
//!  same key, another request 422 idempotency.mismatch
//!  same key, in progress     409 idempotency.busy
//! ```
//! Only what succeeded is kept: a refusal has changed nothing, and may be tried again. Answers are kept in memory for a day,
//! or until something is erased that they may quote;
//! of what changes something durable, that it was done stands in the ledger too, and with it the answer unless it holds
//! users' data or secrets. Publishing one event has its own way, the event's key: there the key and the event are one commit. An array and a
//! batch of CloudEvents are answered as everything else is, and their note is part of their commit.

mod noted;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequest;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::Tenant;
use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use model::{Code, Problem, Timestamp};
use serde_json::Value;

use crate::caller::Call;
use crate::connection::Held;
use crate::problem::{Refusal, bad_request};
use crate::{Doors, aside, audit, body, caller, publish, rights};
use noted::Found;
pub use noted::Noting;

pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEY_BYTES_MAX: usize = 255;
const BODY_BYTES_MAX: usize = 16 << 20;
/// Answers kept in memory.
const ANSWERS_BYTES_MAX: usize = 16 << 20;
const ANSWERS_MAX: usize = 10_000;
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
const PUBLISH: &str = "/v1/events";
const RECORD: &str = "/api/events/record";

/// Tenant, and whose key it is.
type Name = (String, String);
type Print = [u8; 32];

/// The keys that were used lately.
#[derive(Default)]
pub struct Keys(Mutex<Known>);

#[derive(Default)]
struct Known {
    all: HashMap<Name, Kept>,
    /// Oldest first.
    order: VecDeque<Name>,
    bytes: usize,
}

enum Kept {
    Busy,
    /// Without its answer when that might quote what was erased meanwhile.
    Done {
        print: Print,
        at: Timestamp,
        answer: Option<Arc<Given>>,
    },
}

/// An answer, to be given again.
struct Given {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

/// Whether a request is answered by way of its key.
pub fn concerns(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let asked = path.starts_with("/v1/") || path.starts_with("/api/") || path == "/mcp";
    method == Method::POST && asked && path != PUBLISH && path != RECORD && headers.contains_key(KEY)
}

/// Whether several events may be published under one key; each line of NDJSON is a publish of its own.
pub fn may_concern(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let lines = body::media_type(headers).is_ok_and(|media| media == "application/x-ndjson");
    let of_headers = headers.contains_key("ce-specversion");
    let keyed = method == Method::POST && path == PUBLISH && headers.contains_key(KEY);
    keyed && !of_headers && !lines
}

/// Publishes: one event with the header as its key, several of them once.
pub async fn publish_once(
    router: Router,
    doors: Arc<Doors>,
    request: Request<Body>,
) -> Result<Response, Infallible> {
    let (head, body) = request.into_parts();
    // Who may not ask does not make us read either.
    let read = match rights::grant(&head, &doors) {
        Ok(_) => body::read(body, BODY_BYTES_MAX, doors.patience.body).await,
        Err(problem) => Err(problem),
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(problem) => return Ok(Refusal(problem).into_response()),
    };
    let many = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let request = Request::from_parts(head, Body::from(bytes));
    if !many {
        return Ok(match Call::from_request(request, &doors).await {
            Ok(call) => publish::publish(call).await.into_response(),
            Err(refused) => refused,
        });
    }
    // What is published is noted, too, though its client hangs up.
    let (tell, told) = tokio::sync::oneshot::channel();
    let (id, held) = (audit::request_id(), request.extensions().get::<Held>().cloned());
    aside::spawn(async move {
        let done =
            audit::under_id(id, async { once(router, doors, request).await.unwrap_or_default() }).await;
        let _ = tell.send(done);
        drop(held);
    });
    let ended = || Refusal(Problem::new(Code::Internal, "its task ended without an answer")).into_response();
    Ok(told.await.unwrap_or_else(|_| ended()))
}

pub async fn once(router: Router, doors: Arc<Doors>, request: Request<Body>) -> Result<Response, Infallible> {
    match prepare(&doors, request).await {
        Ok(Prepared { name, print, tenant, mut request, path }) => {
            audit::wrote(&tenant);
            // Here it is no event's, and its note is part of their commit.
            if path == PUBLISH {
                request.headers_mut().remove(KEY);
                request.extensions_mut().insert(Noting::new(&name.1, print));
            }
            let _busy = match claim(&doors, &tenant, &name, print).await {
                Ok(Claimed::Ours(busy)) => busy,
                Ok(Claimed::Given(given)) => return Ok(replay(&given)),
                Err(problem) => return Ok(Refusal(problem).into_response()),
            };
            let response = TowerToHyperService::new(router).call(request).await?;
            if !response.status().is_success() {
                return Ok(response);
            }
            Ok(remember(&doors, &tenant, (name, print, &path), response).await)
        }
        Err(refused) => Ok(*refused),
    }
}

struct Prepared {
    name: Name,
    print: Print,
    tenant: Tenant,
    path: String,
    request: Request<Body>,
}

async fn prepare(doors: &Arc<Doors>, request: Request<Body>) -> Result<Prepared, Box<Response>> {
    let refused = |problem: Problem| Box::new(Refusal(problem).into_response());
    let (head, body) = request.into_parts();
    let grant = rights::grant(&head, doors).map_err(refused)?;
    let key = key(&head.headers).map_err(refused)?;
    let named = grant.as_ref().map(|grant| grant.tenant.clone());
    let named = match named {
        Some(name) => Some(name),
        None => caller::text(&head.headers, &caller::TENANT).map_err(refused)?.map(str::to_owned),
    };
    let tenant = caller::tenant(named.as_deref(), doors).await.map_err(refused)?;
    let bytes = body::read(body, BODY_BYTES_MAX, doors.patience.body).await.map_err(refused)?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let print = print(&path, &bytes);
    // Somebody else's key is another one, so that nobody is told what only others may ask for.
    let who = match &grant {
        Some(grant) => grant.id.clone(),
        None => caller::text(&head.headers, &caller::ACTOR).map_err(refused)?.unwrap_or_default().to_owned(),
    };
    let name = (tenant.name().to_owned(), format!("{who} {key}"));
    let request = Request::from_parts(head, Body::from(bytes));
    Ok(Prepared { name, print, tenant, request, path })
}

/// The key's text; absent when it is empty. Of two nobody could tell which is meant.
pub fn given(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    if headers.get_all(KEY).iter().nth(1).is_some() {
        return Err(bad_request(KEY.as_str(), "is given twice").hint("send one key with a request"));
    }
    caller::text(headers, &KEY)
}

fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let key = given(headers)?.unwrap_or_default();
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        let why = format!("is a text of 1 to {KEY_BYTES_MAX} bytes");
        return Err(
            bad_request(KEY.as_str(), why).hint("give a key, such as a UUID, or leave the header out")
        );
    }
    Ok(key.to_owned())
}

/// Equal for requests that say the same: JSON is compared as values, everything else byte by byte.
fn print(path: &str, bytes: &[u8]) -> Print {
    let path = Value::from(path).to_string();
    let text = std::str::from_utf8(bytes).ok().filter(|_| body::value(bytes).is_ok());
    let other = || Value::from(model::id::hex(bytes)).to_string();
    model::json::canonical_hash([path.as_str(), &text.map_or_else(other, str::to_owned)])
}

enum Claimed {
    /// To be done now; nobody else does it while this is held.
    Ours(Busy),
    Given(Arc<Given>),
}

struct Busy {
    doors: Arc<Doors>,
    name: Name,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut known = self.doors.keys.known();
        if matches!(known.all.get(&self.name), Some(Kept::Busy)) {
            known.all.remove(&self.name);
        }
    }
}

async fn claim(doors: &Arc<Doors>, tenant: &Tenant, name: &Name, print: Print) -> Result<Claimed, Problem> {
    let busy = {
        let now = doors.engine.now();
        let mut known = doors.keys.known();
        match known.all.get(name) {
            Some(Kept::Busy) => {
                return Err(Problem::new(Code::IdempotencyBusy, "a request with this key is in progress")
                    .hint("wait for its answer, or ask again in a moment"));
            }
            Some(Kept::Done { print: first, at, answer }) if at.plus(KEPT_FOR) > now => {
                if *first != print {
                    return Err(mismatch());
                }
                return answer.clone().map(Claimed::Given).ok_or_else(done);
            }
            _ => drop(known.all.insert(name.clone(), Kept::Busy)),
        }
        Busy { doors: doors.clone(), name: name.clone() }
    };
    match noted::find(tenant, &name.1, print).await {
        Found::Nothing => Ok(Claimed::Ours(busy)),
        Found::Another => Err(mismatch()),
        Found::Done(Some(given)) => Ok(Claimed::Given(Arc::new(given))),
        Found::Done(None) => Err(done()),
    }
}

fn done() -> Problem {
    Problem::new(Code::IdempotencyDone, "a request with this key was done before")
        .hint("its answer is not kept any more; read what it made")
}

fn mismatch() -> Problem {
    Problem::new(Code::IdempotencyMismatch, "the key was used for another request")
        .hint("take a new key for a new request")
}

fn replay(given: &Given) -> Response {
    let mut response = Response::new(Body::from(given.body.clone()));
    *response.status_mut() = given.status;
    response.headers_mut().extend(given.headers.iter().cloned());
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Keeps the answer, here and, of what is durable, in the ledger before it is given; of several events it stands there already.
async fn remember(
    doors: &Arc<Doors>,
    tenant: &Tenant,
    (name, print, path): (Name, Print, &str),
    response: Response,
) -> Response {
    let (head, body) = response.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Refusal(Problem::new(Code::Internal, error.to_string())).into_response(),
    };
    let told = [CONTENT_TYPE, ETAG]
        .into_iter()
        .filter_map(|name| Some((name.clone(), head.headers.get(name)?.clone())));
    let given = Arc::new(Given { status: head.status, headers: told.collect(), body: body.clone() });
    if path != PUBLISH {
        noted::note(doors, tenant, (&name.1, print, path), &given).await;
    }
    doors.keys.keep(name, print, doors.engine.now(), given);
    Response::from_parts(head, Body::from(body))
}

impl Keys {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, name: Name, print: Print, at: Timestamp, answer: Arc<Given>) {
        let mut known = self.known();
        known.bytes += answer.body.len();
        known.order.push_back(name.clone());
        known.all.insert(name, Kept::Done { print, at, answer: Some(answer) });
        while known.order.len() > ANSWERS_MAX || (known.bytes > ANSWERS_BYTES_MAX && known.order.len() > 1) {
            let Some(oldest) = known.order.pop_front() else { break };
            if let Some(Kept::Done { answer: Some(answer), .. }) = known.all.remove(&oldest) {
                known.bytes = known.bytes.saturating_sub(answer.body.len());
            }
        }
    }

    /// Keeps what was answered to a change that was applied under its hash (`crate::mcp`). No client's key reads like this name:
    /// those have a blank in them.
    pub fn keep_applied(&self, tenant: &str, hash: &str, at: Timestamp, answer: &str) {
        let body = Bytes::copy_from_slice(answer.as_bytes());
        let given = Given { status: StatusCode::OK, headers: Vec::new(), body };
        self.keep((tenant.to_owned(), format!("applied:{hash}")), Print::default(), at, Arc::new(given));
    }

    /// The answer to a change that was applied lately, if it is still kept.
    pub fn applied(&self, tenant: &str, hash: &str) -> Option<Bytes> {
        match self.known().all.get(&(tenant.to_owned(), format!("applied:{hash}")))? {
            Kept::Done { answer: Some(given), .. } => Some(given.body.clone()),
            _ => None,
        }
    }

    /// Lets go of what a tenant answered: content of its was erased, and any of them may quote it.
    pub fn forget(&self, tenant: &str) {
        let mut known = self.known();
        let mut freed = 0;
        for (_, kept) in known.all.iter_mut().filter(|((of, _), _)| of == tenant) {
            if let Kept::Done { answer, .. } = kept {
                freed += answer.take().map_or(0, |answer| answer.body.len());
            }
        }
        known.bytes = known.bytes.saturating_sub(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_say_the_same_are_the_same() {
        assert_eq!(print("/a", br#"{"a":1,"b":2}"#), print("/a", br#"{"b": 2.0, "a": 1}"#));
        assert_ne!(print("/a", b"{}"), print("/b", b"{}"));
        assert_ne!(print("/a", b"{}"), print("/a", b"{"));
        assert_eq!(print("/a", b"x\ny"), print("/a", b"x\ny"));
    }

    #[test]
    fn the_oldest_answers_are_forgotten_first() {
        let keys = Keys::default();
        let given = |bytes: usize| {
            Arc::new(Given { status: StatusCode::OK, headers: Vec::new(), body: Bytes::from(vec![0; bytes]) })
        };
        for key in ["a", "b", "c"] {
            keys.keep(("main".into(), key.into()), [0; 32], Timestamp::EPOCH, given(ANSWERS_BYTES_MAX / 2));
        }
        let known = keys.known();
        let has = |key: &str| known.all.contains_key(&("main".to_owned(), key.to_owned()));
        assert!(!has("a") && has("b") && has("c"));
        assert_eq!(known.bytes, ANSWERS_BYTES_MAX / 2 * 2);
        drop(known);
        keys.forget("other");
        assert_eq!(keys.known().bytes, ANSWERS_BYTES_MAX / 2 * 2);
        keys.forget("main");
        assert_eq!(keys.known().bytes, 0);
    }
}
