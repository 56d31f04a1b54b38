//! The bytes of an answer on the short way: the same that hyper would write, but for the order of headers.

use std::fmt::Write;

use axum::response::IntoResponse;
use engine::{Outcome, Tenant};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::StatusCode;
use model::digits::digits;
use model::{Problem, Timestamp};

use crate::problem::Refusal;
use crate::{Doors, Phase, audit, publish};

/// Who answers, and when.
type Said<'a> = (&'a Tenant, &'a Doors, Timestamp);

/// Writes what became of a publish, instead of what stood there.
pub fn answer(outcome: Result<Outcome, Problem>, said: Said<'_>, out: &mut String) {
    out.clear();
    let id = audit::fresh_id();
    let status = match outcome {
        Ok(outcome) => recorded(&outcome, &id, said, out),
        Err(problem) => refused(problem, &id, said, out),
    };
    tracing::debug!(
        request_id = id,
        method = "POST",
        path = "/v1/events",
        status = status.as_u16(),
        "answered"
    );
}

/// Piece by piece, because this is written for every event.
fn recorded(outcome: &Outcome, id: &str, said: Said<'_>, out: &mut String) -> StatusCode {
    let mut body = String::with_capacity(112);
    publish::write_outcome(&mut body, outcome);
    let status = publish::status(outcome);
    begin(status, said, out);
    let head = said.0.head_begun();
    if head > 0 {
        out.push_str("everwhen-position: ");
        out.push_str(digits(head, &mut [0; 20]));
        out.push_str("\r\n");
    }
    out.push_str("content-type: application/json\r\nx-request-id: ");
    out.push_str(id);
    out.push_str("\r\ncontent-length: ");
    out.push_str(digits(body.len() as u64, &mut [0; 20]));
    out.push_str("\r\n\r\n");
    out.push_str(&body);
    status
}

fn refused(problem: Problem, id: &str, said: Said<'_>, out: &mut String) -> StatusCode {
    let refusal = async { Refusal(problem).into_response() };
    // Nothing in it waits for anything: it is only written as doors write it.
    let response = audit::under_id(id.to_owned(), refusal).now_or_never().unwrap_or_default();
    let (head, body) = response.into_parts();
    let body = body.collect().now_or_never().and_then(Result::ok).map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    begin(head.status, said, out);
    for (name, value) in &head.headers {
        // Writing to a String cannot fail.
        let _ = write!(out, "{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    let _ = write!(out, "content-length: {}\r\n\r\n{}", body.len(), String::from_utf8_lossy(&body));
    head.status
}

fn begin(status: StatusCode, (_, doors, now): Said<'_>, out: &mut String) {
    out.push_str("HTTP/1.1 ");
    out.push_str(status.as_str());
    out.push(' ');
    out.push_str(status.canonical_reason().unwrap_or_default());
    out.push_str("\r\ndate: ");
    doors.date.write(now, out);
    let last = *doors.phase.borrow() != Phase::Open;
    out.push_str(if last { "\r\nconnection: close\r\n" } else { "\r\n" });
}
