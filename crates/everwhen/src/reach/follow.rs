//! Events as they come, near or far. A server that goes away is waited for: a position says where to go on, so that nothing is
//! missed and nothing told twice.

use std::time::Duration;

use engine::Follow;
use hyper::Method;
use model::topic::Pattern;
use model::{Code, Position, Problem};
use serde_json::{Map, Value};

use super::Reach;
use super::events::{Finding, parse_filter};
use crate::client::lines::{Frame, Lines};
use crate::client::{Client, Sent, query};
use crate::session::Session;

/// Before the first try to come back, if the server has not said how long.
const PAUSE: Duration = Duration::from_secs(1);
/// Each try that fails doubles the pause up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Three pings that did not come: the connection is dead, though nobody closed it.
const SILENCE: Duration = Duration::from_secs(45);

/// A stream of events that does not end by itself.
pub struct Follower<'a> {
    session: &'a Session,
    finding: Finding,
    from: Source,
}

enum Source {
    Here(engine::Follower),
    There(Stream),
}

impl Reach {
    /// Events as they come, after a position or from now.
    pub async fn follow<'a>(&self, finding: Finding, session: &'a Session) -> Result<Follower<'a>, Problem> {
        let from = match self {
            Reach::Local(local) => {
                let pattern = Pattern::parse(finding.topic.as_deref().unwrap_or("#"))?;
                let filter = finding.filter.as_deref().map(parse_filter).transpose()?;
                let (space, after) = (finding.space.clone(), finding.after);
                let follow = Follow { patterns: vec![pattern], space, filter, after, ..Follow::default() };
                Source::Here(local.tenant.follow(follow)?)
            }
            Reach::Remote(client) => Source::There(Stream::open(client, &finding, finding.after).await?),
        };
        Ok(Follower { session, finding, from })
    }
}

impl Follower<'_> {
    /// Waits for at least one event and returns those that are there.
    pub async fn next(&mut self) -> Result<Vec<String>, Problem> {
        loop {
            let stream = match &mut self.from {
                Source::Here(follower) => {
                    let events = follower.next(1_000).await?;
                    return Ok(events.iter().map(|event| event.to_json()).collect());
                }
                Source::There(stream) => stream,
            };
            match (stream.next().await, stream.seen) {
                (Err(problem), Some(seen)) if passes(&problem) => {
                    let pause = stream.pause;
                    *stream = come_back(&self.finding, seen, (problem, pause), self.session).await?;
                }
                (next, _) => return next,
            }
        }
    }
}

/// Whether it may be over by itself: nobody answers, or somebody who cannot just now.
fn passes(problem: &Problem) -> bool {
    problem.code().exit() == Code::ServerUnreachable.exit()
}

/// Tries until the server is back, for as long as it takes; what will not pass ends it.
async fn come_back(
    finding: &Finding,
    seen: Position,
    (mut problem, mut pause): (Problem, Duration),
    session: &Session,
) -> Result<Stream, Problem> {
    let mut said = String::new();
    loop {
        if problem.detail() != said {
            problem.detail().clone_into(&mut said);
            session.out.warn(&format!("{said}; trying again, to go on after position {seen}"));
        }
        let asked = problem.extra().get("retry_after").and_then(Value::as_u64).unwrap_or(0);
        tokio::time::sleep(pause.max(Duration::from_secs(asked))).await;
        let reached = match Reach::again(session) {
            Ok(client) => Stream::open(&client, finding, Some(seen)).await,
            Err(problem) => Err(problem),
        };
        match reached {
            Ok(stream) => {
                session.out.note(&format!("connected again, going on after position {seen}"));
                return Ok(stream);
            }
            Err(failed) if passes(&failed) => problem = failed,
            Err(failed) => return Err(failed),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// What a server sends.
struct Stream {
    lines: Lines,
    /// Up to here everything was handed out. `None` until the server has said where it begins.
    seen: Option<Position>,
    /// How long to wait before coming back.
    pause: Duration,
    /// Why it ended, when events were still to be handed out.
    ended: Option<Problem>,
}

impl Stream {
    async fn open(client: &Client, finding: &Finding, after: Option<Position>) -> Result<Stream, Problem> {
        let position = after.map(|after| after.to_string());
        let path = query(&[
            ("topic", finding.topic.as_deref()),
            ("space", finding.space.as_deref()),
            ("filter", finding.filter.as_deref()),
            ("after", position.as_deref()),
        ]);
        let path = format!("/v1/events/stream{path}");
        let response = client.send(Method::GET, &path, Sent::Nothing).await?;
        Ok(Stream { lines: Lines::new(response), seen: after, pause: PAUSE, ended: None })
    }

    async fn next(&mut self) -> Result<Vec<String>, Problem> {
        if let Some(problem) = self.ended.take() {
            return Err(problem);
        }
        let (mut events, mut seen) = (Vec::new(), self.seen);
        while events.is_empty() || self.lines.ready() && events.len() < 1_000 {
            match self.frame().await {
                Ok(frame) if frame.event == "event" => {
                    seen = frame.id.or(seen);
                    events.push(frame.data);
                }
                Ok(frame) if frame.event == "ready" => seen = seen.or(begins(&frame)),
                Ok(_) => {}
                Err(problem) if events.is_empty() => {
                    self.seen = seen;
                    return Err(problem);
                }
                Err(problem) => {
                    self.ended = Some(problem);
                    break;
                }
            }
        }
        self.seen = seen;
        Ok(events)
    }

    async fn frame(&mut self) -> Result<Frame, Problem> {
        let lost = |what: String| {
            Problem::new(Code::ServerUnreachable, what)
                .hint("go on with --after and the last position you saw")
        };
        let frame = match tokio::time::timeout(SILENCE, self.lines.frame()).await {
            Ok(frame) => frame?.ok_or_else(|| lost("the server ended the stream".to_owned()))?,
            Err(_) => return Err(lost(format!("the server said nothing for {} s", SILENCE.as_secs()))),
        };
        if let Some(ms) = frame.retry_ms {
            self.pause = Duration::from_millis(ms).min(PAUSE_MAX);
        }
        if frame.event == "problem" {
            let document: Option<Map<String, Value>> = serde_json::from_str(&frame.data).ok();
            return Err(Problem::from_json(&document.unwrap_or_default()));
        }
        Ok(frame)
    }
}

/// The position that a stream begins at.
fn begins(ready: &Frame) -> Option<Position> {
    serde_json::from_str::<Value>(&ready.data).ok()?["position"].as_u64()
}
