//! Where requests come from: accepting connections, serving HTTP/1.1 or HTTP/2 on them, and ending them without loss.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::IntoResponse;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::{Code, Problem};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::body::DRAIN_FOR;
use crate::lane::{Source, Waited};
use crate::logins::Peer;
use crate::patience::Patience;
use crate::problem::Refusal;
use crate::socket::Socket;
use crate::{Doors, Phase, aside, guard, lane, router};

/// Longest head of a request: line and headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What waits in memory to be sent to a client that does not read, and what is read at once.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// What HTTP/2 by prior knowledge begins with.
const HTTP2: &[u8; 14] = b"PRI * HTTP/2.0";
/// Calls under way on one connection.
const STREAMS_MAX: u32 = 200;

/// Held by whatever outlives its request on an upgraded connection: the server waits for it when it stops.
#[derive(Clone)]
pub struct Held(#[expect(dead_code, reason = "only that it is held matters")] mpsc::Sender<Infallible>);

/// Accepts until `shutdown`, then lets requests in progress finish, for `patience.grace` at most.
pub async fn accept(
    listener: TcpListener,
    doors: Arc<Doors>,
    phase: watch::Sender<Phase>,
    shutdown: impl Future<Output = ()>,
) {
    let grace = doors.patience.grace;
    let router = router(doors.clone());
    let turn = |into: Phase| {
        phase.send_replace(into);
        doors.many.ring();
    };
    // Nothing is ever sent: the channel ends when the last connection has dropped its sender.
    let (open, mut all_closed) = mpsc::channel::<Infallible>(1);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, from)) => {
                    let (router, doors, open) = (router.clone(), doors.clone(), open.clone());
                    aside::spawn(async move {
                        begun(socket, Peer(from.ip()), router, doors, Held(open)).await;
                    });
                }
                Err(error) => pause_after(&error).await,
            },
        }
    }
    drop((listener, open));
    turn(Phase::Closing);
    if tokio::time::timeout(grace, all_closed.recv()).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut");
    }
    turn(Phase::Cut);
    let _ = tokio::time::timeout(Duration::from_secs(1), all_closed.recv()).await;
}

/// A connection that failed while waiting concerns nobody else; with no descriptor left, accepting again at
/// once would only spin.
async fn pause_after(error: &std::io::Error) {
    let of_one_client = matches!(
        error.kind(),
        std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::ConnectionRefused
            | std::io::ErrorKind::Interrupted
    );
    if !of_one_client {
        tracing::error!(%error, "no connection can be accepted");
        let _ = tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await;
    }
}

/// HTTP/2 by prior knowledge begins with words that no request of HTTP/1.1 begins with. They are looked at and left where
/// they are; who says nothing in time is not waited for.
async fn speaks_http2(socket: &TcpStream, patience: Patience) -> Option<bool> {
    let mut begun = [0; HTTP2.len()];
    tokio::time::timeout(patience.head, socket.peek(&mut begun)).await.ok()?.ok()?;
    let looked = tokio::time::timeout(patience.begun, async {
        let mut pause = Duration::from_millis(5);
        loop {
            let length = socket.peek(&mut begun).await.ok()?;
            if length == 0 || length == HTTP2.len() || begun[..length] != HTTP2[..length] {
                return Some(begun == *HTTP2);
            }
            // Too little to tell, and more makes no new noise: looked at again in a moment, and then less and less often, because
            // who has gone meanwhile makes none either.
            let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    });
    looked.await.ok().flatten()
}

/// With TLS the handshake comes first, and has as long as the head of a request; it also says which HTTP is spoken.
async fn begun(socket: TcpStream, peer: Peer, router: axum::Router, doors: Arc<Doors>, held: Held) {
    let _ = socket.set_nodelay(true);
    let Some(tls) = &doors.tls else { return plain(socket, peer, router, doors, held).await };
    let patience = doors.patience.head;
    let greeted = async {
        match tokio::time::timeout(patience, speaks_plainly(&socket)).await {
            Ok(true) => Err(socket),
            _ => Ok(tokio::time::timeout(patience, tls.accept(socket)).await),
        }
    };
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        () = doors.closing() => return,
    };
    let shaken = match greeted {
        Ok(shaken) => shaken,
        Err(socket) => return turned_away(socket).await,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let spoken = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Spoken::Http2,
                _ => Spoken::Http1,
            };
            connection(stream, spoken, peer, router, doors.clone(), held).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Requests begin with a capital letter, which no record of TLS begins with.
async fn speaks_plainly(socket: &TcpStream) -> bool {
    let mut first = [0];
    socket.peek(&mut first).await.is_ok_and(|length| length == 1 && first[0].is_ascii_uppercase())
}

/// Who asks without TLS where it is spoken is told so in words that they can read.
async fn turned_away(mut socket: TcpStream) {
    let problem = Problem::new(Code::RequestInvalid, "this port speaks TLS, and the request came without it")
        .hint("ask with \"https://\"");
    let body = Refusal(problem).into_response().into_body();
    let body = axum::body::to_bytes(body, BUFFER_BYTES_MAX).await.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    let told = async {
        socket.write_all(&[head.as_bytes(), &body].concat()).await?;
        socket.shutdown().await?;
        // What is closed while something is unread is reset, and the words with it.
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(DRAIN_FOR, told).await;
}

async fn plain(socket: TcpStream, peer: Peer, router: axum::Router, doors: Arc<Doors>, held: Held) {
    let spoken = tokio::select! {
        spoken = speaks_http2(&socket, doors.patience) => spoken,
        () = doors.closing() => None,
    };
    match spoken {
        Some(true) => connection(socket, Spoken::Http2, peer, router, doors, held).await,
        Some(false) => connection(socket, Spoken::Http1, peer, router, doors, held).await,
        None => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Http1,
    Http2,
}

/// Over HTTP/2 a stream that does not read is cut by itself, and the connection lives while it answers pings.
async fn connection(
    socket: impl Source + Send + 'static,
    spoken: Spoken,
    peer: Peer,
    router: axum::Router,
    doors: Arc<Doors>,
    held: Held,
) {
    match spoken {
        Spoken::Http1 => {
            if let Some((socket, begun, waited)) = lane::serve(socket, &doors).await {
                let socket = Socket::new(socket, begun);
                http1_on((socket, waited), peer, router, doors, held).await;
            }
        }
        Spoken::Http2 => {
            let service = {
                let doors = doors.clone();
                service_fn(move |request| {
                    guard::answer(router.clone(), doors.clone(), from(request, peer, &held))
                })
            };
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEAD_BYTES_MAX as u32)
                .max_send_buf_size(BUFFER_BYTES_MAX)
                .keep_alive_interval(doors.patience.ping)
                .keep_alive_timeout(doors.patience.head)
                .serve_connection(TokioIo::new(socket), service);
            let gone = std::future::pending();
            driven(pin!(connection), |connection| connection.graceful_shutdown(), &doors, gone).await;
        }
    }
}

fn from(mut request: Request<Incoming>, peer: Peer, held: &Held) -> Request<Incoming> {
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(held.clone());
    request
}

async fn http1_on<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    (socket, waited): (Socket<S>, Waited),
    peer: Peer,
    router: axum::Router,
    doors: Arc<Doors>,
    held: Held,
) {
    let service = {
        let (doors, socket) = (doors.clone(), socket.clone());
        let waited = Mutex::new(Some(waited));
        service_fn(move |request: Request<Incoming>| {
            let mut request = from(request, peer, &held);
            // Of the first request only: with it the short way ended.
            if let Some(waited) = waited.lock().unwrap_or_else(PoisonError::into_inner).take() {
                request.extensions_mut().insert(waited);
            }
            request.extensions_mut().insert(socket.cut.clone());
            let (router, doors, socket) = (router.clone(), doors.clone(), socket.clone());
            socket.asked();
            async move {
                let answer = guard::answer(router, doors, request).await;
                let whole = answer.as_ref().is_ok_and(|answer| answer.body().size_hint().exact().is_some());
                socket.answered(!whole);
                answer
            }
        })
    };
    // Not `pipeline_flush`: it holds answers back while unread input is there, and an NDJSON client may
    // wait for just those answers before it sends more.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(doors.patience.head)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(socket.clone()), service)
        .with_upgrades();
    let ended = {
        let gone = async {
            tokio::select! {
                () = socket.cut.asked() => {}
                () = socket.gone(doors.patience.begun) => {}
                // A server that stops waits for requests, and half a head is none yet.
                () = async { doors.closing().await; socket.half_a_head().await } => {}
            }
        };
        driven(pin!(connection), |connection| connection.graceful_shutdown(), &doors, gone).await
    };
    if ended && *doors.phase.borrow() == Phase::Open {
        socket.linger().await;
    }
}

/// Until it ends, nobody is there, or the server stops and its grace with it; whether it ended by itself.
async fn driven<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    finish: fn(Pin<&mut C>),
    doors: &Doors,
    gone: impl Future<Output = ()>,
) -> bool {
    let (mut phase, mut gone) = (doors.phase.clone(), pin!(gone));
    loop {
        tokio::select! {
            // The connection first: what it does is then seen by who watches it.
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return true;
            }
            () = &mut gone => return false,
            changed = phase.changed() => {
                if changed.is_err() || *phase.borrow_and_update() == Phase::Cut {
                    return false;
                }
                finish(connection.as_mut());
            }
        }
    }
}
