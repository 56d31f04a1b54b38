//! Publishing and finding events, near or far. Events stay text, so that payloads keep every digit.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use engine::{Draft, Query};
use hyper::Method;
use lang::filter::Filter;
use model::event::Subject;
use model::topic::Pattern;
use model::{Code, Position, Problem, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Local, Reach};
use crate::client::lines::Lines;
use crate::client::{Sent, escape, query, read_json};
use crate::output::{Stop, error_json};

/// What is looked for; absent means any.
#[derive(Clone, Default)]
pub struct Finding {
    pub topic: Option<String>,
    pub space: Option<String>,
    pub subject: Option<String>,
    pub after: Option<Position>,
    pub before: Option<Position>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub filter: Option<String>,
    pub descending: bool,
    pub limit: usize,
    pub cursor: Option<String>,
}

/// A page of events as text, and where the next begins.
#[derive(Default)]
pub struct Found {
    pub events: Vec<String>,
    pub next: Option<String>,
}

impl Reach {
    /// Publishes one event, written as contracts §2 says; the answer is the receipt or the verdict.
    pub async fn publish(&self, event: Vec<u8>) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => publish_here(local, &event).await,
            Reach::Remote(client) => {
                let sent = Sent::Whole("application/json", event);
                let response = client.send(Method::POST, "/v1/events", sent).await?;
                read_json(response).await
            }
        }
    }

    /// Publishes lines as they come, many at once, and hands each line's answer to `told` in order.
    pub async fn publish_lines(
        &self,
        lines: mpsc::Receiver<Bytes>,
        told: &mut dyn FnMut(Value) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        match self {
            Reach::Local(local) => publish_lines_here(local, lines, told).await,
            Reach::Remote(client) => {
                let response = client.send(Method::POST, "/v1/events", Sent::Lines(lines)).await?;
                let mut answers = Lines::new(response);
                while let Some(line) = answers.next().await? {
                    told(serde_json::from_str(&line).map_err(|error| odd(&error))?)?;
                }
                Ok(())
            }
        }
    }

    pub async fn find(&self, finding: &Finding) -> Result<Found, Problem> {
        match self {
            Reach::Local(local) => {
                let page = local.tenant.find(&local_query(finding)?)?;
                Ok(Found {
                    events: page.events.iter().map(|event| event.to_json()).collect(),
                    next: page.next,
                })
            }
            Reach::Remote(client) => {
                #[derive(Deserialize)]
                struct Page {
                    events: Vec<Box<RawValue>>,
                    next: Option<String>,
                }
                let page: Page = client.get(&format!("/v1/events{}", remote_query(finding))).await?;
                Ok(Found { events: page.events.into_iter().map(text).collect(), next: page.next })
            }
        }
    }

    /// One event by position or id.
    pub async fn event(&self, id: &str) -> Result<String, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.event(id)?.to_json()),
            // What stands there is no event, and one of the two never ends.
            Reach::Remote(_) if matches!(id, "stream" | "deferred") => {
                Err(Problem::new(Code::EventNotFound, format!("there is no event \"{id}\""))
                    .hint("give a position or an id; `everwhen events list` shows both"))
            }
            Reach::Remote(client) => {
                client.get::<Box<RawValue>>(&format!("/v1/events/{}", escape(id))).await.map(text)
            }
        }
    }

    /// Publishes that wait for their time, soonest first, each as text.
    pub async fn deferred(&self, limit: usize) -> Result<Vec<String>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.deferred(limit),
            Reach::Remote(client) => {
                #[derive(Deserialize)]
                struct Page {
                    deferred: Vec<Box<RawValue>>,
                }
                let page: Page = client.get(&format!("/v1/events/deferred?limit={limit}")).await?;
                Ok(page.deferred.into_iter().map(text).collect())
            }
        }
    }

    /// What led to an event and what it led to, as text.
    pub async fn lineage(&self, id: &str) -> Result<String, Problem> {
        match self {
            Reach::Local(local) => local.tenant.lineage(id),
            Reach::Remote(client) => {
                client.get::<Box<RawValue>>(&format!("/v1/events/{}/lineage", escape(id))).await.map(text)
            }
        }
    }
}

async fn publish_here(local: &Local, event: &[u8]) -> Result<Value, Problem> {
    let draft = Draft::parse(event, &local.tenant.limits())?;
    Ok(local.tenant.publish(&local.caller, draft).await?.to_json())
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, Problem>> + 'a>>;

/// How many lines may be on their way to the disk at once.
const PIPELINE: usize = 1_024;

/// Lines are begun in order, so that they stand in the ledger in order, and many share one sync.
async fn publish_lines_here(
    local: &Local,
    mut lines: mpsc::Receiver<Bytes>,
    told: &mut dyn FnMut(Value) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut waiting: VecDeque<(u64, Answer<'_>)> = VecDeque::new();
    let (mut number, mut open) = (0, true);
    while open || !waiting.is_empty() {
        tokio::select! {
            biased;
            line = lines.recv(), if open && waiting.len() < PIPELINE => match line {
                None => open = false,
                Some(line) => {
                    number += 1;
                    if !line.trim_ascii().is_empty() {
                        waiting.push_back((number, begin(local, line).await));
                    }
                }
            },
            answer = first(&mut waiting), if !waiting.is_empty() => {
                let line = waiting.pop_front().map_or(0, |(line, _)| line);
                told(line_answer(line, answer))?;
            }
        }
    }
    Ok(())
}

/// Starts a publish: after its first poll it stands in the tenant's queue, behind those begun before it.
async fn begin(local: &Local, line: Bytes) -> Answer<'_> {
    let mut answer: Answer<'_> = Box::pin(async move { publish_here(local, &line).await });
    let early = poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    });
    match early.await {
        Some(value) => Box::pin(std::future::ready(value)),
        None => answer,
    }
}

async fn first(waiting: &mut VecDeque<(u64, Answer<'_>)>) -> Result<Value, Problem> {
    match waiting.front_mut() {
        Some((_, answer)) => answer.await,
        None => std::future::pending().await,
    }
}

/// What a line of many is answered; one that was refused says which it was.
pub fn line_answer(line: u64, answer: Result<Value, Problem>) -> Value {
    answer.unwrap_or_else(|problem| {
        let mut error = error_json(&problem);
        error["line"] = json!(line);
        json!({ "error": error })
    })
}

fn local_query(finding: &Finding) -> Result<Query, Problem> {
    Ok(Query {
        topic: finding.topic.as_deref().map(Pattern::parse).transpose()?,
        space: finding.space.clone(),
        subject: finding.subject.as_deref().map(subject),
        after: finding.after,
        before: finding.before,
        since: finding.since,
        until: finding.until,
        filter: finding.filter.as_deref().map(parse_filter).transpose()?,
        descending: finding.descending,
        limit: finding.limit,
        cursor: finding.cursor.clone(),
        ..Query::default()
    })
}

fn remote_query(finding: &Finding) -> String {
    let number = |position: Option<Position>| position.map(|p| p.to_string());
    let instant = |time: Option<Timestamp>| time.map(|t| t.to_string());
    let (after, before) = (number(finding.after), number(finding.before));
    let (since, until) = (instant(finding.since), instant(finding.until));
    let limit = finding.limit.to_string();
    query(&[
        ("topic", finding.topic.as_deref()),
        ("space", finding.space.as_deref()),
        ("subject", finding.subject.as_deref()),
        ("after", after.as_deref()),
        ("before", before.as_deref()),
        ("since", since.as_deref()),
        ("until", until.as_deref()),
        ("filter", finding.filter.as_deref()),
        ("order", finding.descending.then_some("desc")),
        ("limit", Some(&limit)),
        ("cursor", finding.cursor.as_deref()),
    ])
}

/// `kind/id`; without a slash the kind is empty.
pub fn subject(text: &str) -> Subject {
    let (kind, id) = text.split_once('/').unwrap_or(("", text));
    Subject { kind: kind.to_owned(), id: id.to_owned() }
}

/// A filter as typed: an expression, or one of the JSON forms.
pub fn parse_filter(text: &str) -> Result<Filter, Problem> {
    Filter::parse(&filter_value(text))
}

/// What a filter is in a document: an object when it is typed as one, else the expression's text.
pub fn filter_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => object,
        _ => json!(text),
    }
}

pub fn text(raw: Box<RawValue>) -> String {
    Box::<str>::from(raw).into()
}

fn odd(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::Internal, format!("the server's answer is not understood: {error}"))
}
