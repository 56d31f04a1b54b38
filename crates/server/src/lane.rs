//! The short way of what most requests are: one event, published over a connection that is kept open.
//!
//! ```text
//!  a plain publish                     head ─▶ token ─▶ draft ─▶ engine ─▶ answer, and the next
//!  anything else, or anything wrong    the connection goes on with hyper, from the first byte of that request
//! ```
//! hyper, the router and what stands around every door cost more processor time than a publish itself. Nothing is refused here before
//! the engine was asked: what is odd has not been touched yet and is judged on the long way, as everything else is. So this file
//! knows only what a good publish looks like, and both ways give the same answers, which a test compares.

mod date;
mod head;

use std::fmt::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use engine::telemetry::passed_on;
use engine::{Caller, Draft, Outcome, Tenant};
use http_body_util::BodyExt;
use hyper::StatusCode;
use model::Problem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use self::date::Date;
use self::head::{Begun, Headed, Plain};
use crate::problem::Refusal;
use crate::{Doors, Phase, audit, caller, guard, origin, publish, rights};

/// Longest request that goes this way; a longer one costs so much that hyper does not matter.
const BYTES_MAX: usize = 32 * 1024;
/// What is read at once.
const READ_BYTES: usize = 4 * 1024;
/// For the last answer before the server stops.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How long a body was waited for here: its time on the long way is so much shorter.
#[derive(Clone, Copy)]
pub struct Waited(pub Duration);

/// What goes on with hyper: the socket, what was read of the next request, and how long its body was waited for.
pub type Rest<S> = (S, Vec<u8>, Waited);

/// Who publishes what, and where.
struct Asked {
    tenant: Tenant,
    caller: Caller,
    draft: Draft,
}

/// When what is there of a request was seen first, and when its head was whole: in the machine's time.
#[derive(Clone, Copy, Default)]
struct Seen {
    begun: Option<Duration>,
    headed: Option<Duration>,
}

/// Serves plain publishes until something else comes: then what was read of it, for the long way. `None`: the connection is over.
pub async fn serve<S>(mut socket: S, doors: &Arc<Doors>) -> Option<Rest<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut bytes, mut answer) = (Vec::new(), String::new());
    let mut seen = Seen::default();
    let mut closing = pin!(doors.closing());
    // The date of an answer is the engine's time, unless that is one of a test: then hyper says the machine's.
    let goes = !doors.engine.is_told_the_time();
    loop {
        let patience = match head::read(&bytes) {
            Begun::Plain(plain) if goes => {
                let Some(asked) = asked(&plain, doors).await else { break };
                let length = plain.length;
                bytes.drain(..length);
                seen = Seen::default();
                answered(asked, doors, &mut answer).await;
                said(&mut socket, answer.as_bytes(), doors).await?;
                continue;
            }
            // Who may not, or says too much, is told so at once, and not when the body is there.
            Begun::Headed(headed) if goes && headed.length <= BYTES_MAX && is_heard(&headed, doors) => {
                left(doors.patience.body, doors, &mut seen.headed)
            }
            Begun::Partly if goes && bytes.is_empty() => doors.patience.head,
            Begun::Partly if goes && bytes.len() < BYTES_MAX => {
                left(doors.patience.begun, doors, &mut seen.begun)
            }
            _ => break,
        };
        bytes.reserve(READ_BYTES);
        let read = tokio::select! {
            biased;
            read = tokio::time::timeout(patience, socket.read_buf(&mut bytes)) => read,
            () = &mut closing => break,
        };
        // It ended, or took too long; who has said nothing is told nothing.
        if !matches!(read, Ok(Ok(length)) if length > 0) {
            break;
        }
    }
    let waited = seen.headed.map_or(Duration::ZERO, |at| doors.engine.real().saturating_sub(at));
    (!bytes.is_empty() || !goes).then_some((socket, bytes, Waited(waited)))
}

/// How much is left of the time for a part of a request, all of it together: it may come byte by byte.
fn left(patience: Duration, doors: &Doors, since: &mut Option<Duration>) -> Duration {
    let now = doors.engine.real();
    patience.saturating_sub(now.saturating_sub(*since.get_or_insert(now)))
}

/// Whether there is nothing to object to in the head.
fn is_heard(headed: &Headed<'_>, doors: &Doors) -> bool {
    let foreign = doors.local && origin::is_foreign(headed.host.as_bytes());
    !foreign && rights::may_publish(headed.authorization, doors).is_some()
}

/// Whoever pipelines without reading is let go, and soon once the server stops. `None`: there is nobody, or the server stops and has
/// said so.
async fn said(socket: &mut (impl AsyncWrite + Unpin), answer: &[u8], doors: &Doors) -> Option<()> {
    let mut written = pin!(async {
        socket.write_all(answer).await?;
        // Over TLS what is written may still stand in a buffer of ours.
        socket.flush().await
    });
    let written = tokio::select! {
        biased;
        written = tokio::time::timeout(doors.patience.answer, &mut written) => written,
        () = doors.closing() => tokio::time::timeout(LAST_WORD, &mut written).await,
    };
    let open = *doors.phase.borrow() == Phase::Open;
    (written.is_ok_and(|written| written.is_ok()) && open).then_some(())
}

/// `None` when there is anything to object to. Nothing has happened then: the long way asks all of it again, and says why.
async fn asked(plain: &Plain<'_>, doors: &Arc<Doors>) -> Option<Asked> {
    if doors.local && origin::is_foreign(plain.host.as_bytes()) {
        return None;
    }
    let grant = rights::may_publish(plain.authorization, doors)?;
    let named = grant.as_deref().map(|grant| grant.tenant.as_str());
    let tenant = caller::tenant(named, doors).await.ok()?;
    let draft = Draft::parse(plain.body, &tenant.limits()).ok()?;
    let mut caller = grant.as_deref().map_or_else(Caller::local, caller::of_token);
    caller.trace = passed_on(plain.traceparent);
    Some(Asked { tenant, caller, draft })
}

/// Publishes, and writes the answer, whatever it is.
async fn answered(asked: Asked, doors: &Doors, out: &mut String) {
    let Asked { tenant, caller, draft } = asked;
    let published = pin!(tenant.publish(&caller, draft));
    let outcome = match tokio::time::timeout(doors.patience.answer, guard::caught(published)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(guard::bug(&*panic)),
        Err(_) => Err(guard::too_long(doors.patience.answer)),
    };
    out.clear();
    let id = audit::fresh_id();
    let status = match outcome {
        Ok(outcome) => recorded(&outcome, &id, (&tenant, doors), out),
        Err(problem) => refused(problem, &id, doors, out).await,
    };
    tracing::debug!(
        request_id = id,
        method = "POST",
        path = "/v1/events",
        status = status.as_u16(),
        "answered"
    );
}

fn recorded(outcome: &Outcome, id: &str, (tenant, doors): (&Tenant, &Doors), out: &mut String) -> StatusCode {
    let mut body = String::with_capacity(112);
    publish::write_outcome(&mut body, outcome);
    let status = publish::status(outcome);
    begin(status, doors, out);
    // Writing to a String cannot fail.
    let _ = match tenant.head() {
        0 => Ok(()),
        head => write!(out, "everwhen-position: {head}\r\n"),
    };
    let length = body.len();
    let _ = write!(
        out,
        "content-type: application/json\r\nx-request-id: {id}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    status
}

async fn refused(problem: Problem, id: &str, doors: &Doors, out: &mut String) -> StatusCode {
    let refusal = async { Refusal(problem).into_response() };
    let (head, body) = audit::under_id(id.to_owned(), refusal).await.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    begin(head.status, doors, out);
    for (name, value) in &head.headers {
        let _ = write!(out, "{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    let _ = write!(out, "content-length: {}\r\n\r\n{}", body.len(), String::from_utf8_lossy(&body));
    head.status
}

fn begin(status: StatusCode, doors: &Doors, out: &mut String) {
    let reason = status.canonical_reason().unwrap_or_default();
    let _ = write!(out, "HTTP/1.1 {} {reason}\r\ndate: ", status.as_u16());
    doors.date.write(doors.engine.now(), out);
    let last = *doors.phase.borrow() != Phase::Open;
    out.push_str(if last { "\r\nconnection: close\r\n" } else { "\r\n" });
}
