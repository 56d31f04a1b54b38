//! Reading on as the ledger grows: live streams, replays and exports are all this one thing, from a position on.

use std::sync::Arc;

use lang::filter::Filter;
use model::event::Event;
use model::topic::{Pattern, is_engine, is_house};
use model::{Position, Problem};

use super::followers::{Place, Wants};
use crate::authority::Sight;
use crate::tenant::{Hearing, Tenant};

/// Most bytes of events handed out at once, unless a single one is larger: what a reader that does not take them
/// holds in memory.
const BYTES_MAX: usize = 64 << 10;

/// What a follower wants to see. No pattern: everything but the engine's own events.
#[derive(Default)]
pub struct Follow {
    pub patterns: Vec<Pattern>,
    pub space: Option<String>,
    pub filter: Option<Filter>,
    /// Begin after this position; `None`, or one that is not reached yet: from now.
    pub after: Option<Position>,
    /// What lies outside is passed over.
    pub sight: Sight,
}

impl Follow {
    fn events(&self) -> Wants<'_> {
        Wants::Events(&self.patterns)
    }

    /// Whether the event is wanted. A filter that errs does not match.
    pub fn wants(&self, event: &Event) -> bool {
        let envelope = &event.envelope;
        let topic = match self.patterns.as_slice() {
            [] => !is_engine(&envelope.topic) && !is_house(&envelope.topic),
            patterns => patterns.iter().any(|pattern| pattern.receives(&envelope.topic)),
        };
        topic
            && self.sight.sees_event(event)
            && self.space.as_ref().is_none_or(|space| *space == envelope.space)
            && self.filter.as_ref().is_none_or(|filter| filter.test(&event.to_value()).unwrap_or(false))
    }
}

pub struct Follower {
    tenant: Tenant,
    follow: Follow,
    place: Place,
    live: Box<Hearing>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.tenant.followers().leave(self.follow.events(), &self.place);
    }
}

impl Follower {
    pub(crate) fn new(tenant: Tenant, follow: Follow) -> Result<Follower, Problem> {
        let place = tenant.followers().join(follow.events(), follow.after, || tenant.head());
        let live = Box::new(tenant.listen(&follow.patterns));
        let follower = Follower { tenant, follow, place, live };
        match follower.tenant.first() {
            first if follower.place.next < first => Err(crate::read::gone(first)),
            _ => Ok(follower),
        }
    }

    /// The tenant has begun that was followed before it was there; nothing of it was seen.
    fn move_to(&mut self, tenant: Tenant) {
        let after = Some(self.position());
        let place = tenant.followers().join(self.follow.events(), after, || tenant.head());
        *self.live = tenant.listen(&self.follow.patterns);
        let place = std::mem::replace(&mut self.place, place);
        let before = std::mem::replace(&mut self.tenant, tenant);
        before.followers().leave(self.follow.events(), &place);
    }

    /// Everything up to here was looked at; nothing after it will be missed.
    pub fn position(&self) -> Position {
        self.place.next - 1
    }

    /// How many positions it has not looked at yet.
    pub fn behind(&self) -> u64 {
        self.tenant.head().saturating_sub(self.position())
    }

    /// What is there now, at most `max`; may be empty.
    pub fn try_next(&mut self, max: usize) -> Result<Vec<Arc<Event>>, Problem> {
        let mut wanted = Vec::new();
        let head = self.pass_over();
        while self.place.next <= head && wanted.is_empty() {
            wanted = self.step(head, max)?;
        }
        Ok(wanted)
    }

    /// Passes over what is of no concern, and says how far there is something to read.
    fn pass_over(&mut self) -> Position {
        let head = self.tenant.head();
        self.place.pass_over(head);
        head
    }

    /// Looks at the next piece of the ledger.
    fn step(&mut self, head: Position, max: usize) -> Result<Vec<Arc<Event>>, Problem> {
        let (events, through) = self.tenant.events_from(self.place.next, head, max)?;
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        for event in events.into_iter().filter(|event| self.follow.wants(event)) {
            if bytes > 0 && bytes + event.size() > BYTES_MAX {
                // Read again when the caller has dealt with these.
                self.place.next = event.position;
                return Ok(wanted);
            }
            bytes += event.size();
            wanted.push(event);
        }
        self.place.next = through + 1;
        Ok(wanted)
    }

    /// Waits until there is something. Dropping the future loses nothing. A long way through events that are not
    /// wanted is gone piece by piece, so that others on this thread are served in between.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Arc<Event>>, Problem> {
        while let Some((mut births, begun)) = self.tenant.awaited() {
            match begun {
                Some(tenant) => self.move_to(tenant),
                None => births.changed().await.map_err(|_| crate::tenant::closing())?,
            }
        }
        loop {
            let head = self.pass_over();
            while self.place.next <= head {
                let events = self.step(head, max)?;
                if !events.is_empty() {
                    return Ok(events);
                }
                tokio::task::yield_now().await;
            }
            tokio::select! {
                () = self.place.called() => {}
                event = self.live.next() => {
                    if self.follow.wants(&event) {
                        return Ok(vec![event]);
                    }
                }
            }
        }
    }
}
