//! gRPC on the same port, over HTTP/2: `proto/everwhen/v1`, health and reflection.
//!
//! ```text
//!   body = frames, each:  0  length, four bytes, big endian  message         trailers: grpc-status, grpc-message
//! ```
//! Tokens and tenants are those of HTTP; what each method needs stands in [`METHODS`].

mod messages;
mod proto;
mod reflection;
mod stream;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use engine::authority::Permission;
use engine::{Draft, Most, Seen, Tenant};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use model::{Code, Problem};
use tokio::sync::mpsc;

use crate::caller::Call;
use crate::{Doors, aside, body};
use messages::OfGroup;
use proto::Message;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const CODE: HeaderName = HeaderName::from_static("everwhen-code");
const SERVICE: &str = "/everwhen.v1.EverwhenService/";
/// Largest message of a client.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Largest name of a service.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Frames between a stream and its connection.
const FRAMES_AHEAD: usize = 16;
const WAIT_MAX: Duration = Duration::from_secs(60);
const PULL_MAX: u64 = 1_000;
/// Largest message of ours with more than one delivery: an ordinary client refuses more than 4 MiB.
const PULLED_BYTES_MAX: usize = 7 << 19;

/// The methods of the service, and what a token needs for each; `None`: what is said in it is asked for by itself.
pub const METHODS: [(&str, Option<Permission>); 7] = [
    ("Session", None),
    ("Publish", Some(Permission::EventWrite)),
    ("Pull", Some(Permission::GroupConsume)),
    ("Ack", Some(Permission::GroupConsume)),
    ("Nack", Some(Permission::GroupConsume)),
    ("Extend", Some(Permission::GroupConsume)),
    ("Reject", Some(Permission::GroupConsume)),
];

/// Whether a request speaks gRPC.
pub fn concerns<B>(request: &Request<B>) -> bool {
    let media = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    media.is_some_and(|media| {
        media.starts_with(b"application/grpc") && !media.starts_with(b"application/grpc-web")
    })
}

/// The answer, whatever happens; its HTTP status is always 200.
pub async fn answer(doors: Arc<Doors>, request: Request<Body>) -> Response {
    match answered(doors, request).await {
        Ok(response) => response,
        Err(problem) => refused(&problem),
    }
}

async fn answered(doors: Arc<Doors>, request: Request<Body>) -> Result<Response, Problem> {
    let path = request.uri().path().to_owned();
    if request.method() != Method::POST {
        return Err(unknown(&path));
    }
    match path.as_str() {
        "/grpc.health.v1.Health/Check" => {
            let asked = health_of(request.into_body(), &doors).await?;
            return match asked.0 {
                UNKNOWN => Err(Problem::new(Code::NotFound, format!("there is no service \"{}\"", asked.1))
                    .hint("reflection lists what there is")),
                status => unary(&health(status)),
            };
        }
        "/grpc.health.v1.Health/List" => {
            let mut all = Message::default();
            for name in reflection::SERVICES.iter().chain([&""]) {
                all.message(1, |entry| {
                    entry.text(1, name);
                    entry.message(2, |of| of.number(1, SERVING));
                });
            }
            return unary(&all);
        }
        "/grpc.health.v1.Health/Watch" => {
            let (status, _) = health_of(request.into_body(), &doors).await?;
            return Ok(watch_health(doors, status));
        }
        reflection::V1 | reflection::V1_ALPHA => return Ok(reflection::open(request.into_body())),
        _ => {}
    }
    let name = path.strip_prefix(SERVICE).unwrap_or_default();
    let (name, needed) = METHODS.iter().find(|(known, _)| *known == name).ok_or_else(|| unknown(&path))?;
    let call = Call::admitted(request, &doors, *needed).await?;
    if *name == "Session" {
        return Ok(stream::open(call));
    }
    let (doors, tenant, caller) = (call.doors.clone(), call.tenant.clone(), call.caller.clone());
    let (seen, over) = (call.seen(), call.over());
    let bytes = call.bytes(MESSAGE_BYTES_MAX + 5).await?;
    let bytes = only(&bytes)?;
    if *name == "Publish" {
        let event = messages::publication(bytes)?;
        let draft = Draft::parse(event.as_bytes(), &tenant.limits())?;
        return unary(&messages::published(&tenant.publish(&caller, draft).await?));
    }
    let asked = messages::of_group(bytes, if *name == "Nack" { 4 } else { 3 })?;
    tokio::select! {
        biased;
        problem = over => Err(problem),
        done = of_group(&doors, (&tenant, &seen), name, asked) => unary(&done?),
    }
}

async fn of_group(
    doors: &Doors,
    (tenant, seen): (&Tenant, &Seen),
    name: &str,
    asked: OfGroup,
) -> Result<Message, Problem> {
    let OfGroup { group, sync, max, error, .. } = &asked;
    let (tokens, others) = seen.own_tokens(group, asked.tokens.clone())?;
    let seconds = asked.seconds.map(seconds).transpose()?;
    let mut settled = match name {
        "Pull" => {
            if *max > PULL_MAX {
                let detail = format!("\"max\" is a whole number from 1 to {PULL_MAX}, not {max}");
                return Err(Problem::new(Code::RequestInvalid, detail));
            }
            // Left out, it is one.
            let events = (*max).max(1) as usize;
            // A payload stands in a delivery twice.
            let most = Most { events, bytes: PULLED_BYTES_MAX / 2 };
            let wait = seconds.unwrap_or_default();
            if wait > WAIT_MAX {
                return Err(Problem::new(Code::RequestInvalid, "\"wait_seconds\" is at most 60"));
            }
            let pulled = tokio::select! {
                biased;
                pulled = seen.pull(group, most, wait) => pulled?,
                () = doors.closing() => Vec::new(),
            };
            let (message, fitting) = messages::deliveries(&pulled, PULLED_BYTES_MAX);
            seen.give_back(group, &pulled[fitting..])?;
            return Ok(message);
        }
        "Ack" => tenant.ack(group, &tokens, *sync).await?,
        "Nack" => tenant.nack(group, &tokens, seconds, error.clone()).await?,
        "Extend" => {
            let by =
                seconds.ok_or_else(|| Problem::new(Code::RequestInvalid, "\"by_seconds\" is missing"))?;
            tenant.extend(group, &tokens, by).await?
        }
        _ => tenant.reject(group, &tokens, error.clone()).await?,
    };
    settled.stale.extend(others);
    Ok(messages::settled(&settled))
}

fn seconds(number: f64) -> Result<Duration, Problem> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| Problem::new(Code::RequestInvalid, format!("{number} is no length of time")))
}

fn unknown(path: &str) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("there is no method \"{path}\""))
        .hint("reflection lists what there is")
}

/// What is announced by `grpc-accept-encoding` is nothing.
fn compressed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "a message is compressed, which is not understood here")
        .hint("send it as it is")
}

/// The one message of a call.
fn only(bytes: &[u8]) -> Result<&[u8], Problem> {
    let wrong = || Problem::new(Code::RequestInvalid, "one message is expected");
    let (head, message) = bytes.split_at_checked(5).ok_or_else(wrong)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 {
        return Err(compressed());
    }
    if message.len() == length { Ok(message) } else { Err(wrong()) }
}

/// Reads the messages of a stream one by one.
pub(super) struct Incoming {
    body: Body,
    buffer: BytesMut,
}

impl Incoming {
    fn of(body: Body) -> Incoming {
        Incoming { body, buffer: BytesMut::new() }
    }

    /// `None` at the end. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if head[0] != 0 {
                    return Err(compressed());
                }
                if length > MESSAGE_BYTES_MAX {
                    return Err(Problem::new(Code::BodyTooLarge, "a message is longer than 4 MiB"));
                }
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    return Ok(Some(self.buffer.split_to(length).freeze()));
                }
            }
            match body::data(&mut self.body).await? {
                Some(part) => self.buffer.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }
}

fn framed(message: &Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.0.len());
    frame.extend_from_slice(&[0]);
    frame.extend_from_slice(&(message.0.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message.0);
    frame.freeze()
}

fn trailers(problem: Option<&Problem>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let status = problem.map_or(0, |problem| messages::status(problem.code()));
    trailers.insert(STATUS, HeaderValue::from(status));
    if let Some(problem) = problem {
        if let Ok(text) = HeaderValue::from_str(&escaped(problem.detail())) {
            trailers.insert(MESSAGE, text);
        }
        trailers.insert(CODE, HeaderValue::from_static(problem.code().as_str()));
    }
    trailers
}

/// As gRPC writes a text into a header: visible ASCII but `%`, the rest by its bytes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn unary(message: &Message) -> Result<Response, Problem> {
    let (frames, body) = mpsc::channel(2);
    // There is room for both.
    let _ = frames.try_send(Frame::data(framed(message)));
    let _ = frames.try_send(Frame::trailers(trailers(None)));
    Ok(streamed(body))
}

/// Nothing but how it ended, which then stands in the headers.
fn refused(problem: &Problem) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.extend(trailers(Some(problem)));
    response
}

fn streamed(frames: mpsc::Receiver<Frame<Bytes>>) -> Response {
    let mut response = Response::new(Body::new(Frames(frames)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Frames and then trailers, as the body of a response.
struct Frames(mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// In the words of `grpc.health.v1`.
const SERVING: u64 = 1;
const UNKNOWN: u64 = 3;

fn health(status: u64) -> Message {
    let mut message = Message::default();
    message.number(1, status);
    message
}

/// How the service is that was asked for, and its name; without one the server itself is meant.
async fn health_of(body: Body, doors: &Doors) -> Result<(u64, String), Problem> {
    let bytes = body::read(body, NAME_BYTES_MAX, doors.patience.body).await?;
    let named = proto::fields(only(&bytes)?)?.into_iter().find(|(number, _)| *number == 1);
    let name = named.map(|(_, field)| field.text().map(str::to_owned)).transpose()?.unwrap_or_default();
    let known = name.is_empty() || reflection::SERVICES.contains(&name.as_str());
    Ok((if known { SERVING } else { UNKNOWN }, name))
}

/// Says it once, and ends when the server stops or the client has gone.
fn watch_health(doors: Arc<Doors>, status: u64) -> Response {
    let (frames, body) = mpsc::channel(FRAMES_AHEAD);
    let _ = frames.try_send(Frame::data(framed(&health(status))));
    aside::spawn(async move {
        tokio::select! {
            () = doors.closing() => {
                let mut stopping = Message::default();
                stopping.number(1, 2);
                let _ = frames.send(Frame::data(framed(&stopping))).await;
                let _ = frames.send(Frame::trailers(trailers(None))).await;
            }
            () = frames.closed() => {}
        }
    });
    streamed(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_a_header_is_visible_ascii() {
        assert_eq!(escaped("100 % \"ä\"\n"), "100 %25 \"%C3%A4\"%0A");
    }

    #[test]
    fn a_message_that_is_compressed_or_cut_short_is_not_read() {
        assert_eq!(only(b"\0\0\0\0\x01x"), Ok(&b"x"[..]));
        assert_eq!(messages::status(only(b"\x01\0\0\0\x01x").unwrap_err().code()), 12);
        assert_eq!(messages::status(only(b"\0\0\0\0\x02x").unwrap_err().code()), 3);
        assert_eq!(messages::status(Code::BodyTooLarge), 8);
        assert_eq!(messages::status(Code::BodyTimeout), 4);
    }

    #[test]
    fn the_methods_are_those_of_the_proto_file() {
        let proto = include_str!("../../../proto/everwhen/v1/everwhen.proto");
        let named = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        assert_eq!(named.collect::<Vec<_>>(), METHODS.map(|(name, _)| name));
    }
}
