//! Where requests come from: accepting connections, serving HTTP/1.1 on them, and ending them without loss.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

use crate::logins::Peer;
use crate::{Doors, Phase, aside, guard, router};

/// Longest head of a request: line and headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What waits in memory to be sent to a client that does not read, and what is read at once.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Ends the connection of the request that it came with, whatever is still to be sent on it: a client that does not
/// read keeps the connection busy, and nothing else notices.
#[derive(Clone)]
pub struct Cut(pub Arc<Notify>);

/// Accepts until `shutdown`, then lets requests in progress finish, for `patience.grace` at most.
pub async fn accept(
    listener: TcpListener,
    doors: Arc<Doors>,
    phase: watch::Sender<Phase>,
    shutdown: impl Future<Output = ()>,
) {
    let grace = doors.patience.grace;
    let router = router(doors.clone());
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
                        connection(socket, Peer(from.ip()), router, doors).await;
                        drop(open);
                    });
                }
                Err(error) => pause_after(&error).await,
            },
        }
    }
    drop((listener, open));
    phase.send_replace(Phase::Closing);
    if tokio::time::timeout(grace, all_closed.recv()).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut");
    }
    phase.send_replace(Phase::Cut);
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

async fn connection(socket: TcpStream, peer: Peer, router: axum::Router, doors: Arc<Doors>) {
    let _ = socket.set_nodelay(true);
    let mut phase = doors.phase.clone();
    let patience = doors.patience;
    let cut = Cut(Arc::new(Notify::new()));
    let service = {
        let doors = doors.clone();
        let cut = cut.clone();
        service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(cut.clone());
            request.extensions_mut().insert(peer);
            guard::answer(router.clone(), doors.clone(), request)
        })
    };
    // Not `pipeline_flush`: it holds answers back while unread input is there, and an NDJSON client may
    // wait for just those answers before it sends more.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = cut.0.notified() => return,
            changed = phase.changed() => {
                if changed.is_err() || *phase.borrow_and_update() == Phase::Cut {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
