//! Around every door: a panic, a hang or a refusal by the router becomes a problem, and the server goes on.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequest;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request};
use hyper_util::service::TowerToHyperService;
use model::{Code, Problem};
use tokio::sync::oneshot;

use crate::caller::Call;
use crate::connection::Held;
use crate::problem::Refusal;
use crate::{Doors, aside, audit, framing, grpc, idempotency, maintain, mcp, origin, publish};

/// Answers one request, whatever happens inside.
///
/// ```text
///  reads, streams, publishing    the work ends with its connection: nobody is left to take what it would give
///  keyed, or administers         the work is a task of its own, with the note of its key and the act in the audit;
///                                the connection only waits for it, and so does the end of the server
/// ```
pub async fn answer(
    router: Router,
    doors: Arc<Doors>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let id = audit::id_of(request.headers());
    let told = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (id.clone(), request.method().clone(), request.uri().path().to_owned()));
    let response = match lasts(&request) {
        true => lasting(id, router, doors, request).await,
        false => audit::under_id(id, pin!(answered(router, doors, request))).await,
    };
    if let Some((request_id, method, path)) = told {
        tracing::debug!(request_id, %method, path, status = response.status().as_u16(), "answered");
    }
    Ok(response)
}

/// Whether the work goes on when the client is gone. What a publish does is one commit with its key in it.
fn lasts(request: &Request<Incoming>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    if matches!(*method, Method::GET | Method::HEAD) || path == "/v1/events" {
        return false;
    }
    // A tool may be an act, and which one it is stands in the body.
    path == "/mcp"
        || idempotency::concerns(method, path, request.headers())
        || audit::administers(method, path)
}

async fn lasting(id: String, router: Router, doors: Arc<Doors>, request: Request<Incoming>) -> Response {
    let patience = patience(&doors, &request);
    let held = request.extensions().get::<Held>().cloned();
    let (tell, told) = oneshot::channel();
    let named = id.clone();
    aside::spawn(async move {
        let response = audit::under_id(named, pin!(worked(router, doors, request))).await;
        // Whoever asked may be gone.
        let _ = tell.send(response);
        drop(held);
    });
    let answer = async {
        match tokio::time::timeout(patience, told).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => Refusal(bug(&"its task ended without an answer")).into_response(),
            Err(_) => Refusal(too_long(patience)).into_response(),
        }
    };
    audit::under_id(id, answer).await
}

fn patience(doors: &Doors, request: &Request<Incoming>) -> Duration {
    if maintain::takes_long(request.uri().path()) { Duration::MAX } else { doors.patience.answer }
}

async fn answered(router: Router, doors: Arc<Doors>, request: Request<Incoming>) -> Response {
    let patience = patience(&doors, &request);
    let work = pin!(worked(router, doors, request));
    match tokio::time::timeout(patience, work).await {
        Ok(response) => response,
        Err(_) => Refusal(too_long(patience)).into_response(),
    }
}

async fn worked(router: Router, doors: Arc<Doors>, request: Request<Incoming>) -> Response {
    let origin = || match request.uri().path() {
        _ if doors.is_bare() => origin::check(&request),
        "/mcp" if doors.local => origin::check_page(&request),
        _ => Ok(()),
    };
    if let Err(problem) = framing::check(&request).and_then(|()| origin()) {
        return Refusal(problem).into_response();
    }
    // Pinned here, because it is large, and each future around it that owned it would copy it once more.
    let call = pin!(route(router, doors, request.map(Body::new)));
    readable(match caught(call).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(panic) => Refusal(bug(&*panic)).into_response(),
    })
}

/// Publishing goes past the router, whose boxes cost 4 % of the CPU at 256 connections; all else goes
/// through it.
async fn route(router: Router, doors: Arc<Doors>, request: Request<Body>) -> Result<Response, Infallible> {
    if grpc::concerns(&request) {
        return Ok(grpc::answer(doors, request).await);
    }
    let mut request = request;
    if request.uri().path() == "/mcp" {
        request.extensions_mut().insert(mcp::Inside(router.clone()));
    }
    if idempotency::concerns(request.method(), request.uri().path(), request.headers()) {
        return idempotency::once(router, doors, request).await;
    }
    if idempotency::may_concern(request.method(), request.uri().path(), request.headers()) {
        return idempotency::publish_once(router, doors, request).await;
    }
    if request.method() != Method::POST || request.uri().path() != "/v1/events" {
        return TowerToHyperService::new(router).call(request).await;
    }
    Ok(match Call::from_request(request, &doors).await {
        Ok(call) => publish::publish(call).await.into_response(),
        Err(refused) => refused,
    })
}

/// Polls `call` and turns a panic in it into a value.
pub async fn caught<T>(mut call: Pin<&mut impl Future<Output = T>>) -> Result<T, Box<dyn Any + Send>> {
    std::future::poll_fn(|cx| {
        // After a panic the future is only dropped, so nothing can see what it left half done.
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

pub fn bug(panic: &(dyn Any + Send)) -> Problem {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(request_id = audit::request_id(), panic = said, "a request met a panic");
    Problem::new(
        Code::Internal,
        "the request met an impossible state; what it asked for may not have happened",
    )
    .hint("look for this request_id in the server's log, and report it")
}

pub fn too_long(patience: Duration) -> Problem {
    let detail = format!("no answer within {} s; what was asked for may still happen", patience.as_secs());
    Problem::new(Code::RequestTimeout, detail).hint("ask for less at once, or try again with the same key")
}

/// The router refuses some requests by itself, as plain text; those become problems too. A page says it in its own way.
fn readable(response: Response) -> Response {
    let status = response.status().as_u16();
    let ours = |kind: &HeaderValue| {
        [&b"application/"[..], b"text/html"].iter().any(|k| kind.as_bytes().starts_with(k))
    };
    if status < 400 || response.headers().get(CONTENT_TYPE).is_some_and(ours) {
        return response;
    }
    let code = if status < 500 { Code::RequestInvalid } else { Code::Internal };
    Refusal(Problem::new(code, "the request's path or headers cannot be read")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_door_is_our_bug_and_not_the_end() {
        let panic = caught::<()>(pin!(async { panic!("impossible") })).await.unwrap_err();
        let response = Refusal(bug(&*panic)).into_response();
        assert_eq!(response.status().as_u16(), 500);
        let fine: Response = caught(pin!(async { Response::default() })).await.unwrap();
        assert_eq!(fine.status().as_u16(), 200);
    }
}
