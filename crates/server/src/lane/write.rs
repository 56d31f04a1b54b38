//! The bytes of an answer on the short way: the same that hyper would write, but for the order of headers.

use std::fmt::Write;

use axum::response::IntoResponse;
use engine::{Outcome, Tenant};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::StatusCode;
use model::digits::digits;
use model::{Problem, Timestamp};

use super::date::Date;
use crate::problem::Refusal;
use crate::{audit, publish};

/// Who answers, when, and whether it is the last answer on the connection.
pub struct Said<'a> {
    pub tenant: &'a Tenant,
    pub now: Timestamp,
    pub last: bool,
}

/// What is kept from one answer to the next. Each thread and each task writes with its own: none waits for another.
#[derive(Default)]
pub struct Pen {
    date: Date,
    body: String,
}

impl Pen {
    /// Appends what became of a publish.
    pub fn answer(&mut self, outcome: Result<Outcome, Problem>, said: &Said<'_>, out: &mut String) {
        match outcome {
            Ok(outcome) => self.recorded(&outcome, said, out),
            Err(problem) => self.refused(problem, said, out),
        }
    }

    /// Piece by piece, because this is written for every event.
    fn recorded(&mut self, outcome: &Outcome, said: &Said<'_>, out: &mut String) {
        self.body.clear();
        publish::write_outcome(&mut self.body, outcome);
        let status = publish::status(outcome);
        self.begin(status, said, out);
        let head = said.tenant.head_begun();
        if head > 0 {
            out.push_str("everwhen-position: ");
            out.push_str(digits(head, &mut [0; 20]));
            out.push_str("\r\n");
        }
        out.push_str("content-type: application/json\r\nx-request-id: ");
        let id = out.len();
        audit::push_fresh_id(out);
        noted(&out[id..], status);
        out.push_str("\r\ncontent-length: ");
        out.push_str(digits(self.body.len() as u64, &mut [0; 20]));
        out.push_str("\r\n\r\n");
        out.push_str(&self.body);
    }

    fn refused(&mut self, problem: Problem, said: &Said<'_>, out: &mut String) {
        let id = audit::fresh_id();
        let refusal = async { Refusal(problem).into_response() };
        // Nothing in it waits for anything: it is only written as doors write it.
        let response = audit::under_id(id.clone(), refusal).now_or_never().unwrap_or_default();
        let (head, body) = response.into_parts();
        let body = body.collect().now_or_never().and_then(Result::ok).map(|body| body.to_bytes());
        let body = body.unwrap_or_default();
        self.begin(head.status, said, out);
        for (name, value) in &head.headers {
            // Writing to a String cannot fail.
            let _ = write!(out, "{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        let _ = write!(out, "content-length: {}\r\n\r\n{}", body.len(), String::from_utf8_lossy(&body));
        noted(&id, head.status);
    }

    fn begin(&mut self, status: StatusCode, said: &Said<'_>, out: &mut String) {
        out.push_str("HTTP/1.1 ");
        out.push_str(status.as_str());
        out.push(' ');
        out.push_str(status.canonical_reason().unwrap_or_default());
        out.push_str("\r\ndate: ");
        self.date.write(said.now, out);
        out.push_str(if said.last { "\r\nconnection: close\r\n" } else { "\r\n" });
    }
}

fn noted(request_id: &str, status: StatusCode) {
    tracing::debug!(request_id, method = "POST", path = "/v1/events", status = status.as_u16(), "answered");
}
