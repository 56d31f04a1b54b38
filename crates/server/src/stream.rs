//! `GET /v1/events/stream`: events as they are recorded, as server-sent events, without a gap (contracts §2).
//!
//! A stream is a follower of the ledger with a small buffer. A reader that falls behind costs nothing but
//! its place in the ledger; one that takes nothing at all while its buffer is full is told so and closed,
//! and can come back with the last id it saw. It is closed also if it does not read that.

pub mod changes;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use engine::{Follow, Follower};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use model::event::Event;
use model::{Code, Position, Problem};

use crate::caller::{Call, text};
use crate::pipe::{Feed, Outlet, pipe};
use crate::problem::Answer;
use crate::query::{Params, position};
use crate::socket::Cut;
use crate::{Doors, aside};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells a proxy to pass each frame on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Frames kept for a reader that has not taken them yet.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Events taken from the ledger at once.
const EVENTS_MAX: usize = 128;
/// When a client should come back after the server stopped.
pub const RECONNECT_AFTER_MS: u32 = 1_000;

pub async fn stream(call: Call) -> Answer {
    let params = call.read_params(&["topic", "space", "filter", "after"]).await?;
    let follow = Follow {
        patterns: params.pattern("topic")?.into_iter().collect(),
        space: params.owned("space"),
        filter: params.filter("filter")?,
        after: after(&call, &params)?,
        sight: call.caller.sight.clone(),
    };
    let cut = call.head.extensions.get::<Cut>().cloned();
    let over = call.over();
    let tenant = call.tenant;
    let follower = aside::blocking(move || tenant.follow(follow)).await?;
    let (feed, outlet) = pipe(BUFFER_BYTES_MAX);
    aside::spawn(async move {
        run(follower, &feed, &call.doors, over).await;
        feed.end();
        if let Some(cut) = cut {
            leave(&feed, &cut, &call.doors).await;
        }
    });
    Ok(streamed(outlet))
}

/// Where to begin: after the last event that a client saw, which wins, or after a position.
fn after(call: &Call, params: &Params) -> Result<Option<Position>, Problem> {
    match text(&call.head.headers, &LAST_EVENT_ID)? {
        Some(last) => Ok(Some(position(LAST_EVENT_ID.as_str(), last)?)),
        None => params.position("after"),
    }
}

fn streamed(outlet: Outlet) -> Response {
    let mut response = Response::new(Body::new(outlet));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What the reader was told last is still to be read; a reader that does not must not hold the connection for ever.
async fn leave(feed: &Feed, cut: &Cut, doors: &Doors) {
    if tokio::time::timeout(doors.patience.farewell, feed.gone()).await.is_err() {
        cut.now();
    }
}

async fn run(mut follower: Follower, feed: &Feed, doors: &Doors, over: impl Future<Output = Problem>) {
    let mut over = std::pin::pin!(over);
    feed.push(ready(follower.position()).as_bytes());
    while has_room(feed, doors).await {
        let next = next(follower.next(EVENTS_MAX), feed, doors);
        let events = tokio::select! {
            biased;
            problem = &mut over => return feed.push(problem_frame(&problem).as_bytes()),
            events = next => events,
        };
        let Some(events) = events else { return };
        match events {
            Ok(events) => feed.push(frames(&events).as_bytes()),
            Err(problem) => return feed.push(problem_frame(&problem).as_bytes()),
        }
    }
}

/// Whether a reader takes what it is given; one that does not in time is told so.
async fn has_room(feed: &Feed, doors: &Doors) -> bool {
    let room = tokio::time::timeout(doors.patience.reader, feed.room()).await;
    if room.is_err() {
        feed.push(problem_frame(&slow(doors)).as_bytes());
    }
    room.unwrap_or(false)
}

/// Waits for what comes next, with a sign of life now and then; `None` when the stream is over.
async fn next<T>(coming: impl Future<Output = T>, feed: &Feed, doors: &Doors) -> Option<T> {
    // One wait through all pings: dropping it in between could lose what it had taken.
    let mut coming = std::pin::pin!(coming);
    loop {
        tokio::select! {
            biased;
            () = feed.gone() => return None,
            () = doors.closing() => {
                feed.push(farewell().as_bytes());
                return None;
            }
            waited = tokio::time::timeout(doors.patience.ping, &mut coming) => match waited {
                Ok(came) => return Some(came),
                Err(_) => feed.push(b": ping\n\n"),
            },
        }
    }
}

fn frames(events: &[Arc<Event>]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(512 * events.len());
    for event in events {
        // Writing to a String cannot fail. A live event has no position to come back to.
        if event.position > 0 {
            let _ = writeln!(out, "id: {}", event.position);
        }
        out.push_str("event: event\ndata: ");
        let start = out.len();
        event.write_json(&mut out);
        // A line break inside JSON is only white space, but it would end the frame's line.
        if out[start..].contains(['\n', '\r']) {
            let data = out.split_off(start).replace(['\n', '\r'], " ");
            out.push_str(&data);
        }
        out.push_str("\n\n");
    }
    out
}

fn ready(position: Position) -> String {
    format!("event: ready\ndata: {{\"position\":{position}}}\n\n")
}

fn slow(doors: &Doors) -> Problem {
    let detail = format!("the reader took nothing for {} s", doors.patience.reader.as_secs_f64());
    Problem::new(Code::StreamSlow, detail).hint("come back with the header last-event-id and read faster")
}

fn problem_frame(problem: &Problem) -> String {
    format!("event: problem\ndata: {}\n\n", serde_json::Value::Object(problem.to_json()))
}

fn farewell() -> String {
    let ms = RECONNECT_AFTER_MS;
    format!("retry: {ms}\nevent: server.shutdown\ndata: {{\"reconnect_after_ms\":{ms}}}\n\n")
}
