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

pub(super) type Live = broadcast::Sender<Arc<Event>>;

/// Whether only who listens hears of such an event, and the pattern names it.
pub(crate) fn names_live(pattern: &Pattern) -> bool {
    let mut topics = model::event::TOLD.iter().chain([&QUERY_EXECUTED]).chain(&SESSIONS);
    pattern.first_word_literal() && topics.any(|topic| pattern.matches(topic))
}

pub(super) fn channel() -> Live {
    broadcast::channel(WAITING_MAX).0
}

impl Tenant {
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.live.subscribe()
    }

    pub(super) fn say_executed(
        &self,
        caller: &Caller,
        query: &str,
        space: Option<&str>,
        (took, count): (Duration, u64),
    ) {
        self.metrics().queried(query, took.as_secs_f64());
        if !self.is_heard() {
            return;
        }
        let payload = json!({
            "query": query, "durationMs": took.as_secs_f64() * 1e3, "resultCount": count, "cached": false,
        });
        self.say_live(caller, QUERY_EXECUTED, space, &payload);
    }

    /// Tells who listens that a session of `caller` began or ended.
    pub fn say_session(&self, caller: &Caller, begins: bool, payload: &Value) {
        if self.is_heard() {
            self.say_live(caller, SESSIONS[usize::from(!begins)], None, payload);
        }
    }

    fn say_live(&self, caller: &Caller, topic: &str, space: Option<&str>, payload: &Value) {
        let now = self.moment().now;
        let space = space.unwrap_or(&self.settings().default_space);
        let envelope = Envelope {
            id: model::id::ulid(now, lock(&self.0.entropy).bytes()),
            topic: topic.to_owned(),
            space: if space.is_empty() { "_system" } else { space }.to_owned(),
            actor: caller.actor.clone(),
            trace: caller.trace.clone(),
            ..Envelope::default()
        };
        let content = Content::new(&payload.to_string(), None);
        self.say(Arc::new(Event { position: 0, recorded_at: now, envelope, content }));
    }

    /// Nobody listens any more: that is fine.
    pub(super) fn say(&self, event: Arc<Event>) {
        let _ = self.0.live.send(event);
    }

    pub(super) fn is_heard(&self) -> bool {
        self.0.live.receiver_count() > 0
    }
}
