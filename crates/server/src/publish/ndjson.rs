//! NDJSON in and out: each line is an event by itself, answered in order as soon as it is synced.
//!
//! Lines enter the engine in order, many before the first is answered; so one sync serves many lines.
//! Bounded on every side: the line, the lines in progress, and the answers that the client has not read
//! yet.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use engine::settings::Limits;
use engine::{Caller, Draft, Outcome, Tenant};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use model::{Code, Problem};
use serde_json::json;

use super::lines::Lines;
use super::{event_bytes_max, write_outcome};
use crate::body::data;
use crate::caller::Call;
use crate::pipe::{Feed, pipe};
use crate::problem::Answer;
use crate::{Doors, aside};

/// Lines in progress at once, and their bytes.
const LINES_MAX: usize = 1_024;
const LINES_BYTES_MAX: usize = 4 << 20;
/// Answers kept for a client that sends everything before it reads anything: about 300,000 lines.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

type Publishing = Pin<Box<dyn Future<Output = Result<Outcome, Problem>> + Send>>;

pub fn publish(call: Call) -> Answer {
    let (feed, outlet) = pipe(ANSWERS_BYTES_MAX);
    let limits = call.tenant.limits();
    let lines = Lines::new(event_bytes_max(&limits));
    let over = call.over();
    let stream = Stream {
        doors: call.doors,
        tenant: call.tenant,
        caller: Arc::new(call.caller),
        limits,
        feed,
        window: Window::default(),
    };
    aside::spawn(stream.run(call.body, lines, over));
    let mut response = Response::new(Body::new(outlet));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// One request in progress.
struct Stream {
    doors: Arc<Doors>,
    tenant: Tenant,
    caller: Arc<Caller>,
    limits: Limits,
    feed: Feed,
    window: Window,
}

impl Stream {
    async fn run(mut self, mut body: Body, mut lines: Lines, over: impl Future<Output = Problem> + Send) {
        let doors = self.doors.clone();
        let mut over = std::pin::pin!(over);
        loop {
            while let Some((number, line)) = lines.next() {
                self.enter(number, line).await;
                while self.window.is_full() {
                    self.answer().await;
                }
            }
            if lines.ended() || !self.feed.room().await {
                break;
            }
            // What is synced is answered even while the client sends nothing more.
            tokio::select! {
                biased;
                // First: a client that never pauses must hear of it, too.
                problem = &mut over => {
                    self.enter(lines.number() + 1, Err(problem)).await;
                    break;
                }
                part = data(&mut body) => match part {
                    Ok(Some(part)) => lines.push(&part),
                    Ok(None) => lines.end(),
                    Err(problem) => {
                        self.cut(&lines, problem).await;
                        break;
                    }
                },
                answers = self.window.answered() => self.feed.push(answers.as_bytes()),
                () = doors.closing() => break,
            }
        }
        while !self.window.entries.is_empty() {
            self.answer().await;
        }
    }

    /// The body broke off. What was left of the last line is not an event, even if it reads like one.
    async fn cut(&mut self, lines: &Lines, problem: Problem) {
        let detail = format!("{}; this line and what follows were not read", problem.detail());
        let problem = Problem::new(Code::JsonInvalid, detail).hint("send this line and what follows again");
        self.enter(lines.number() + 1, Err(problem)).await;
    }

    /// Starts publishing a line: the first poll hands it to the engine, so lines are recorded in their order.
    async fn enter(&mut self, line: u64, text: Result<Bytes, Problem>) {
        let bytes = text.as_ref().map_or(0, Bytes::len);
        let progress = match text.and_then(|text| Draft::parse(&text, &self.limits)) {
            Ok(draft) => {
                let (tenant, caller) = (self.tenant.clone(), self.caller.clone());
                Progress::Running(Box::pin(async move { tenant.publish_queued(&caller, draft).await }))
            }
            Err(problem) => Progress::Done(Err(problem)),
        };
        let mut entry = Entry { line, bytes, progress };
        poll_fn(|cx| Poll::Ready(entry.progress.poll(cx).is_ready())).await;
        self.window.bytes += bytes;
        self.window.entries.push_back(entry);
    }

    async fn answer(&mut self) {
        let answers = self.window.answered().await;
        self.feed.push(answers.as_bytes());
    }
}

/// Lines that entered the engine and are not yet answered, in order.
#[derive(Default)]
struct Window {
    entries: VecDeque<Entry>,
    bytes: usize,
}

struct Entry {
    line: u64,
    bytes: usize,
    progress: Progress,
}

enum Progress {
    Running(Publishing),
    Done(Result<Outcome, Problem>),
}

impl Progress {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Progress::Running(publishing) = self {
            *self = Progress::Done(std::task::ready!(publishing.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}

impl Window {
    fn is_full(&self) -> bool {
        self.entries.len() >= LINES_MAX || self.bytes >= LINES_BYTES_MAX
    }

    /// Waits until the first line is done, and answers it with all that are done right after it.
    async fn answered(&mut self) -> String {
        let mut out = String::new();
        poll_fn(|cx| {
            while let Some(entry) = self.entries.front_mut() {
                if entry.progress.poll(cx).is_pending() {
                    break;
                }
                self.bytes -= entry.bytes;
                write_entry(&mut out, entry);
                self.entries.pop_front();
            }
            if out.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        out
    }
}

fn write_entry(out: &mut String, entry: &Entry) {
    match &entry.progress {
        Progress::Done(Ok(outcome)) => write_outcome(out, outcome),
        Progress::Done(Err(problem)) => out.push_str(&refusal(problem, entry.line)),
        Progress::Running(_) => return,
    }
    out.push('\n');
}

fn refusal(problem: &Problem, line: u64) -> String {
    let mut error = json!({"code": problem.code().as_str(), "message": problem.detail(), "line": line});
    error["hint"] = problem.advice().into();
    if let Some(pointer) = problem.pointer() {
        error["pointer"] = pointer.into();
    }
    for (name, value) in problem.extra() {
        error[name] = value.clone();
    }
    json!({ "error": error }).to_string()
}
