//! Reading a request's body whole, within a size and a time; and the JSON objects that the verbs of a group
//! take.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Body as _;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, ORIGIN};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value};

use crate::lane::Waited;

/// How much of a body that is too large is still read and thrown away, so that the client gets to read the
/// refusal instead of a reset connection.
const DRAIN_BYTES_MAX: usize = 16 << 20;
pub const DRAIN_FOR: Duration = Duration::from_secs(2);

/// Nesting of JSON in what is not an event.
const DEPTH_MAX: usize = 128;

/// The whole body; `body.too_large` above `bytes_max`, `body.timeout` when it does not arrive in time.
pub async fn read(body: Body, bytes_max: usize, patience: Duration) -> Result<Bytes, Problem> {
    read_on(body, bytes_max, patience, Waited(Duration::ZERO)).await
}

/// As [`read`], of a body that was waited for already.
pub async fn read_on(
    mut body: Body,
    bytes_max: usize,
    patience: Duration,
    Waited(waited): Waited,
) -> Result<Bytes, Problem> {
    match tokio::time::timeout(patience.saturating_sub(waited), collect(&mut body, bytes_max)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            // The refusal is the same whether or not the rest arrives.
            let _ = tokio::time::timeout(DRAIN_FOR, drain(&mut body)).await;
            Err(too_large(bytes_max))
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", patience.as_secs());
            Err(Problem::new(Code::BodyTimeout, detail).hint("send it faster, or in smaller parts"))
        }
    }
}

pub fn too_large(bytes_max: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the body has more than {bytes_max} bytes"))
        .hint("send less at once")
        .with("limit", bytes_max)
}

/// `None` when it is too large. A body that came in one piece, as small ones do, is not copied.
async fn collect(body: &mut Body, bytes_max: usize) -> Result<Option<Bytes>, Problem> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Ok(None);
    }
    let Some(first) = data(body).await? else { return Ok(Some(Bytes::new())) };
    if first.len() > bytes_max {
        return Ok(None);
    }
    let Some(second) = data(body).await? else { return Ok(Some(first)) };
    let expected = first.len() as u64 + second.len() as u64 + body.size_hint().lower();
    let mut whole = BytesMut::with_capacity(expected.min(bytes_max as u64) as usize);
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(part) = next {
        if whole.len() + part.len() > bytes_max {
            return Ok(None);
        }
        whole.extend_from_slice(&part);
        next = data(body).await?;
    }
    Ok(Some(whole.freeze()))
}

/// The next piece of a body; trailers are ignored.
pub async fn data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(Code::JsonInvalid, format!("the body ended early: {error}")).with("offset", 0)
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads on and throws away, so that the client gets to read a refusal.
pub async fn drain(body: &mut Body) {
    let mut drained = 0;
    while let Ok(Some(part)) = data(body).await {
        drained += part.len();
        if drained > DRAIN_BYTES_MAX {
            return;
        }
    }
}

/// The media type in lower case without its parameters; empty when there is none. A charset other than
/// UTF-8 is refused.
pub fn media_type(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(String::new()) };
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let (media, parameters) = text.split_once(';').unwrap_or((&text, ""));
    let charset = parameters.split(';').find_map(|part| part.trim().strip_prefix("charset="));
    match charset.map(|name| name.trim_matches('"')) {
        None | Some("utf-8" | "utf8" | "us-ascii") => Ok(media.trim().to_owned()),
        Some(other) => {
            Err(Problem::new(Code::BodyType, format!("the charset \"{other}\" is not understood here"))
                .hint("send UTF-8"))
        }
    }
}

/// A compressed body would be read as broken JSON, or worse, as data.
pub fn not_encoded(headers: &HeaderMap) -> Result<(), Problem> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let name = text.split(',').map(str::trim).find(|name| !matches!(*name, "" | "identity"));
        if let Some(name) = name.filter(|name| !name.eq_ignore_ascii_case("identity")) {
            let detail = format!("the content encoding \"{name}\" is not understood here");
            return Err(Problem::new(Code::BodyType, detail).hint("send the body as it is, not compressed"));
        }
    }
    Ok(())
}

/// From a web page a body has to say what it is: one that does not is what pages may send anywhere. Programs, which send no
/// `Origin`, may leave it out.
pub fn is_named(headers: &HeaderMap, body: &Body) -> Result<(), Problem> {
    let named = headers.get(CONTENT_TYPE).is_some_and(|media| !media.is_empty());
    let from_a_page = headers.contains_key(ORIGIN);
    if named
        || !from_a_page
        || body.is_end_stream()
        || headers.keys().any(|name| name.as_str().starts_with("ce-"))
    {
        return Ok(());
    }
    Err(Problem::new(Code::BodyType, "the body does not say what it is")
        .hint("send it with \"content-type: application/json\""))
}

pub fn wrong_type(media: &str) -> Problem {
    Problem::new(Code::BodyType, format!("the content type \"{media}\" is not understood here"))
        .hint("send it with \"content-type: application/json\"")
}

/// Refuses a body that says it is something else than JSON.
pub fn only_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers)?.as_str() {
        "" | "application/json" => Ok(()),
        other => Err(wrong_type(other)),
    }
}

/// The members of a JSON object, of which only `known` may be there; an empty body is an empty object.
pub fn object(bytes: &[u8], known: &[&str]) -> Result<Map<String, Value>, Problem> {
    object_or(Code::RequestInvalid, bytes, known)
}

/// The code of what is wrong with a body there: doors of groups and pushes have their own, whatever the body is.
pub fn code_at(path: &str) -> Code {
    match path.split('/').nth(2) {
        Some("groups") => Code::GroupInvalid,
        Some("push") => Code::PushInvalid,
        _ => Code::RequestInvalid,
    }
}

/// As [`object`], for a door whose refusals have a code of their own.
pub fn object_or(code: Code, bytes: &[u8], known: &[&str]) -> Result<Map<String, Value>, Problem> {
    let wrong = |pointer: &str, detail: String| Problem::new(code, detail).at(pointer);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    let Value::Object(object) = value(bytes)? else {
        return Err(wrong("", "the body is a JSON object".to_owned()));
    };
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(object),
        Some(key) => {
            let hint = match known {
                [] => "the body is empty here".to_owned(),
                _ => format!("known fields: {}", known.join(", ")),
            };
            let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            Err(wrong(&pointer, format!("unknown field \"{key}\"")).hint(hint))
        }
    }
}

/// Any JSON, read as strictly as an event.
pub fn value(bytes: &[u8]) -> Result<Value, Problem> {
    model::json::check(bytes, DEPTH_MAX)?;
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(Code::JsonInvalid, error.to_string()).with("offset", error.column()))
}

/// A field of the body that is not what it must be.
pub fn wrong(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::RequestInvalid, detail).at(pointer)
}

/// A text in the field `name` of a body, if it is there. What is something else is never taken for absent: the request would mean more
/// than was said.
pub fn text(said: &Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match said.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(&format!("/{name}"), format!("\"{name}\" is a text, not {other}"))),
    }
}

/// Whether the field `name` of a body is `true`; it may be left out.
pub fn flag(said: &Map<String, Value>, name: &str) -> Result<bool, Problem> {
    match said.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(&format!("/{name}"), format!("\"{name}\" is true or false, not {other}"))),
    }
}

/// An instant in the field `name` of a body, if it is there.
pub fn instant(said: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(given) = said.get(name).filter(|given| !given.is_null()) else { return Ok(None) };
    let read = given.as_str().and_then(|text| Timestamp::parse(text).ok());
    let refuse = || {
        wrong(&format!("/{name}"), format!("\"{name}\" is an RFC 3339 instant, not {given}"))
            .hint("write it like 2026-01-31T09:30:00Z")
    };
    read.map(Some).ok_or_else(refuse)
}
