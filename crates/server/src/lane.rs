//! The short way of what most requests are: one event, published over a connection that is kept open.
//!
//! ```text
//!  a plain publish                     head ─▶ token ─▶ draft ─▶ engine ─▶ answer, and the next
//!  anything else, or anything wrong    the connection goes on with hyper, from the first byte of that request
//! ```
//! hyper, the router and what stands around every door cost more processor time than a publish itself. Nothing is refused here before
//! the engine was asked: what is odd has not been touched yet and is judged on the long way, as everything else is. So this file
//! knows only what a good publish looks like, and both ways give the same answers, which a test compares.
//!
//! A connection without TLS that has published once waits for its next request on the thread of `many.rs`, which serves all of them.

mod date;
mod head;
mod many;
mod write;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::telemetry::passed_on;
use engine::{Caller, Draft, Tenant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use self::head::{Begun, Headed, Plain};
pub use self::many::Many;
use self::write::{Pen, Said};
use crate::{Doors, Phase, caller, guard, origin, rights};

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

/// What was read of the next request.
#[derive(Default)]
pub struct Read {
    bytes: Vec<u8>,
    seen: Seen,
}

/// When what is there of a request was seen first, and when its head was whole: in the machine's time.
#[derive(Clone, Copy, Default)]
struct Seen {
    begun: Option<Duration>,
    headed: Option<Duration>,
}

/// What a connection is read from.
pub trait Source: AsyncRead + AsyncWrite + Unpin + Sized {
    /// Waits for the next request of a connection that has published; the first part of it is there then, or whatever was not
    /// answered meanwhile. False: no more will come of it.
    fn next(self, doors: &Doors) -> impl Future<Output = Option<(Self, Read, bool)>> + Send;
}

impl Source for TcpStream {
    async fn next(self, doors: &Doors) -> Option<(Self, Read, bool)> {
        doors.many.serve(self, doors).await
    }
}

/// What is encrypted is read where it is decrypted, by its own task.
impl Source for TlsStream<TcpStream> {
    async fn next(self, _: &Doors) -> Option<(Self, Read, bool)> {
        Some((self, Read::default(), true))
    }
}

/// Serves plain publishes until something else comes: then what was read of it, for the long way. `None`: the connection is over.
pub async fn serve<S: Source>(socket: S, doors: &Arc<Doors>) -> Option<Rest<S>> {
    // The date of an answer is the engine's time, unless that is one of a test: then hyper says the machine's.
    if doors.engine.is_told_the_time() {
        return Some((socket, Vec::new(), Waited(Duration::ZERO)));
    }
    let (mut socket, mut read) = (socket, Read::default());
    let (mut pen, mut answer) = (Pen::default(), String::new());
    let mut closing = pin!(doors.closing());
    loop {
        let patience = match head::read(&read.bytes) {
            Begun::Plain(plain) => {
                let Some(asked) = asked(&plain, doors).await else { break };
                let length = plain.length;
                read.bytes.drain(..length);
                read.seen = Seen::default();
                let posts = asked.tenant.posts(&asked.caller, &asked.draft);
                answer.clear();
                answered(asked, doors, (&mut pen, &mut answer)).await;
                said(&mut socket, answer.as_bytes(), doors).await?;
                // The next is probably such a one, too.
                if posts && read.bytes.is_empty() {
                    let more;
                    (socket, read, more) = socket.next(doors).await?;
                    if !more {
                        break;
                    }
                }
                continue;
            }
            begun => match patience(&begun, &mut read.seen, read.bytes.len(), doors) {
                Some(patience) => patience,
                None => break,
            },
        };
        read.bytes.reserve(READ_BYTES);
        let more = tokio::select! {
            biased;
            more = tokio::time::timeout(patience, socket.read_buf(&mut read.bytes)) => more,
            () = &mut closing => break,
        };
        // It ended, or took too long; who has said nothing is told nothing.
        if !matches!(more, Ok(Ok(length)) if length > 0) {
            break;
        }
    }
    // Who is inside a head when the server stops, or when its time is over, has asked for nothing yet.
    let stops = *doors.phase.borrow() != Phase::Open;
    let late = |since| doors.engine.real().saturating_sub(since) >= doors.patience.begun;
    let over = stops || read.seen.begun.is_some_and(late);
    if over && matches!(head::read(&read.bytes), Begun::Partly) {
        return None;
    }
    let waited = read.seen.headed.map_or(Duration::ZERO, |at| doors.engine.real().saturating_sub(at));
    (!read.bytes.is_empty()).then_some((socket, read.bytes, Waited(waited)))
}

/// How long the rest of a request may take that is plain so far. `None`: it goes the long way.
fn patience(begun: &Begun<'_>, seen: &mut Seen, length: usize, doors: &Doors) -> Option<Duration> {
    match begun {
        // Who may not, or says too much, is told so at once, and not when the body is there.
        Begun::Headed(headed) if headed.length <= BYTES_MAX && is_heard(headed, doors) => {
            Some(left(doors.patience.body, doors, &mut seen.headed))
        }
        Begun::Partly if length == 0 => Some(doors.patience.head),
        Begun::Partly if length < BYTES_MAX => Some(left(doors.patience.begun, doors, &mut seen.begun)),
        _ => None,
    }
}

/// How much is left of the time for a part of a request, all of it together: it may come byte by byte.
fn left(patience: Duration, doors: &Doors, since: &mut Option<Duration>) -> Duration {
    let now = doors.engine.real();
    patience.saturating_sub(now.saturating_sub(*since.get_or_insert(now)))
}

/// Whether there is nothing to object to in the head.
fn is_heard(headed: &Headed<'_>, doors: &Doors) -> bool {
    let foreign = doors.is_bare() && origin::is_foreign(headed.host.as_bytes());
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
    if is_foreign(plain, doors) {
        return None;
    }
    let grant = rights::may_publish(plain.authorization, doors)?;
    let named = grant.as_deref().map(|grant| grant.tenant.as_str());
    let tenant = caller::tenant(named, doors).await.ok()?;
    let mut caller = grant.as_deref().map_or_else(Caller::local, caller::of_token);
    caller.trace = passed_on(plain.traceparent);
    let draft = Draft::parse(plain.body, &tenant.limits()).ok()?;
    Some(Asked { tenant, caller, draft })
}

/// Whether somebody else's page may have sent it.
fn is_foreign(plain: &Plain<'_>, doors: &Doors) -> bool {
    doors.is_bare() && origin::is_foreign(plain.host.as_bytes())
}

/// Publishes, and writes the answer, whatever it is.
async fn answered(asked: Asked, doors: &Doors, (pen, out): (&mut Pen, &mut String)) {
    let Asked { tenant, caller, draft } = asked;
    let published = pin!(tenant.publish(&caller, draft));
    let outcome = match tokio::time::timeout(doors.patience.answer, guard::caught(published)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(guard::bug(&*panic)),
        Err(_) => Err(guard::too_long(doors.patience.answer)),
    };
    let last = *doors.phase.borrow() != Phase::Open;
    pen.answer(outcome, &Said { tenant: &tenant, now: doors.engine.now(), last }, out);
}
