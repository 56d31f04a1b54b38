//! NDJSON in, one answer per line out: rows by the thousand, each by itself, in order, many to a sync.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::extract::Path;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use engine::entity::Written;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use model::{Code, Problem};
use serde_json::json;

use super::{BODY_BYTES_MAX, import_line};
use crate::aside;
use crate::body::data;
use crate::caller::Call;
use crate::pipe::{Feed, pipe};
use crate::problem::Answer;

/// Lines in progress at once.
const LINES_MAX: usize = 512;
/// Answers kept for a client that sends everything before it reads anything.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

type Writing = Pin<Box<dyn Future<Output = Result<Written, Problem>> + Send>>;

/// `POST /v1/entities/{concept}/import`
pub async fn import(Path(concept): Path<String>, call: Call) -> Answer {
    let space = call.params(&["space"])?.owned("space");
    call.tenant.catalog().concept(&concept)?;
    let (feed, outlet) = pipe(ANSWERS_BYTES_MAX);
    aside::spawn(run(call, Arc::new((concept, space)), feed));
    let mut response = Response::new(Body::new(outlet));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

async fn run(call: Call, into: Arc<(String, Option<String>)>, feed: Feed) {
    let Call { tenant, caller, mut body, doors, .. } = call;
    let caller = Arc::new(caller);
    let begin = |line: Bytes| -> Writing {
        let (tenant, caller, into) = (tenant.clone(), caller.clone(), into.clone());
        Box::pin(async move { import_line(&tenant, &caller, (&into.0, into.1.as_deref()), &line).await })
    };
    let (mut buffer, mut number, mut ended) = (BytesMut::new(), 0, false);
    while !ended && feed.room().await {
        tokio::select! {
            part = data(&mut body) => match part {
                Ok(Some(part)) => buffer.extend_from_slice(&part),
                Ok(None) => {
                    buffer.extend_from_slice(b"\n");
                    ended = true;
                }
                Err(_) => return,
            },
            () = doors.closing() => return,
        }
        let mut lines = Vec::new();
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end + 1).freeze();
            number += 1;
            if !line.iter().all(u8::is_ascii_whitespace) {
                lines.push((number, line));
            }
        }
        for some in lines.chunks(LINES_MAX) {
            answer(some, &begin, &feed).await;
        }
        if buffer.len() > BODY_BYTES_MAX {
            let problem = Problem::new(Code::BodyTooLarge, format!("line {} is too long", number + 1));
            feed.push(refusal(&problem, number + 1).as_bytes());
            return;
        }
    }
}

/// One line on its way.
struct Entry {
    number: u64,
    writing: Writing,
    done: Option<Result<Written, Problem>>,
}

/// Hands all lines to the engine before the first is waited for, so that one sync serves many.
async fn answer(lines: &[(u64, Bytes)], begin: &impl Fn(Bytes) -> Writing, feed: &Feed) {
    let entry =
        |(number, line): &(u64, Bytes)| Entry { number: *number, writing: begin(line.clone()), done: None };
    let mut entries: Vec<Entry> = lines.iter().map(entry).collect();
    poll_fn(|cx| {
        for entry in &mut entries {
            if let Poll::Ready(result) = entry.writing.as_mut().poll(cx) {
                entry.done = Some(result);
            }
        }
        Poll::Ready(())
    })
    .await;
    for Entry { number, writing, done } in entries {
        let result = match done {
            Some(result) => result,
            None => writing.await,
        };
        let line = match result {
            Ok(written) => format!("{}\n", written.to_json()),
            Err(problem) => refusal(&problem, number),
        };
        feed.push(line.as_bytes());
    }
}

fn refusal(problem: &Problem, line: u64) -> String {
    let mut error = json!({"code": problem.code().as_str(), "message": problem.detail(), "line": line});
    if let Some(pointer) = problem.pointer() {
        error["pointer"] = pointer.into();
    }
    format!("{}\n", json!({ "error": error }))
}
