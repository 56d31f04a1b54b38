//! Live events: said to those who follow at this moment and counted, but written down nowhere. They have no position.

use std::sync::Arc;
use std::time::Duration;

use model::event::{Content, Envelope, Event};
use model::topic::Pattern;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::Tenant;
use crate::admit::Caller;
use crate::deliver::lock;

/// A declared query was answered.
pub(crate) const QUERY_EXECUTED: &str = "query.executed";
/// A stream session began or ended.
pub const SESSIONS: [&str; 2] = ["session.opened", "session.closed"];
/// What a follower that does not read may have waiting; what is older is dropped.
const WAITING_MAX: usize = 256;

/// Who listens, to each of the two kinds: what happens to runs is told only while somebody names it, since telling costs the
/// writer time, and `#` does not name it (contracts §0).
pub(super) struct Live {
    runs: broadcast::Sender<Arc<Event>>,
    others: broadcast::Sender<Arc<Event>>,
}

pub(super) fn channel() -> Live {
    Live { runs: broadcast::channel(WAITING_MAX).0, others: broadcast::channel(WAITING_MAX).0 }
}

type Receiver = Option<broadcast::Receiver<Arc<Event>>>;

/// The live events that some patterns take.
pub(crate) struct Hearing {
    runs: Receiver,
    others: Receiver,
}

impl Hearing {
    /// The next one; never, for who hears none. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Arc<Event> {
        tokio::select! {
            event = heard(&mut self.runs) => event,
            event = heard(&mut self.others) => event,
        }
    }
}

/// What came too fast is skipped.
async fn heard(receiver: &mut Receiver) -> Arc<Event> {
    while let Some(receiver) = receiver {
        match receiver.recv().await {
            Ok(event) => return event,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => break,
        }
    }
    std::future::pending().await
}

impl Tenant {
    pub(crate) fn listen(&self, patterns: &[Pattern]) -> Hearing {
        let takes = |topics: &[&str]| {
            let mut pairs =
                patterns.iter().flat_map(|pattern| topics.iter().map(move |topic| (pattern, topic)));
            pairs.any(|(pattern, topic)| pattern.receives(topic))
        };
        let Live { runs, others } = &self.0.live;
        let takes_others = takes(&[QUERY_EXECUTED]) || takes(&SESSIONS);
        Hearing {
            runs: takes(&model::event::TOLD).then(|| runs.subscribe()),
            others: takes_others.then(|| others.subscribe()),
        }
    }

    pub(super) fn say_executed(
        &self,
        caller: &Caller,
        query: &str,
        space: Option<&str>,
        (took, count): (Duration, u64),
    ) {
        self.metrics().queried(query, took.as_secs_f64());
        if self.0.live.others.receiver_count() == 0 {
            return;
        }
        let payload = json!({
            "query": query, "durationMs": took.as_secs_f64() * 1e3, "resultCount": count, "cached": false,
        });
        self.say_live(caller, QUERY_EXECUTED, space, &payload);
    }

    /// Tells who listens that a session of `caller` began or ended.
    pub fn say_session(&self, caller: &Caller, begins: bool, payload: &Value) {
        if self.0.live.others.receiver_count() > 0 {
            self.say_live(caller, SESSIONS[usize::from(!begins)], None, payload);
        }
    }

    fn say_live(&self, caller: &Caller, topic: &str, space: Option<&str>, payload: &Value) {
        let now = self.moment().now;
        let space = space.unwrap_or(caller.sight.space_meant(&self.settings().default_space));
        let envelope = Envelope {
            id: model::id::ulid(now, lock(&self.0.entropy).bytes()),
            topic: topic.to_owned(),
            space: if space.is_empty() { "_system" } else { space }.to_owned(),
            actor: caller.actor.clone(),
            trace: caller.trace.clone(),
            ..Envelope::default()
        };
        let content = Content::new(&payload.to_string(), None);
        // Nobody listens any more: that is fine.
        let _ = self.0.live.others.send(Arc::new(Event { position: 0, recorded_at: now, envelope, content }));
    }

    /// What happened to a run, to who listens.
    pub(super) fn tell(&self, event: Arc<Event>) {
        let _ = self.0.live.runs.send(event);
    }

    /// Whether somebody wants to be told what happens to runs.
    pub(super) fn is_heard(&self) -> bool {
        self.0.live.runs.receiver_count() > 0
    }
}
