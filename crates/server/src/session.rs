//! A stream session: one client that hears of events and takes deliveries while its connection lasts, over WebSocket or gRPC.
//!
//! ```text
//!   subscribe ─▶ follower of the ledger ─▶ ┐
//!   consume   ─▶ pulls, as credits allow ─▶ outbox ─▶ the client      too far behind: closed, and told why
//! ```
//! Every request asks the token again, so that one that was revoked ends with the next thing said.

pub mod kinds;
pub mod outbox;
pub mod requests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::authority::{Grant, Permission};
use engine::tenant::audit::Act;
use engine::{Caller, Delivery, Follow, Follower, Most, Seen, Tenant};
use hyper::StatusCode;
use model::event::Event;
use model::{Code, Problem};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::aside::Task;
use crate::caller::Call;
use crate::{Doors, aside, audit, caller, rights};
use outbox::{Outbox, slow};

/// Subscriptions of one session.
const FEEDS_MAX: usize = 100;
/// Deliveries that a client may ask for ahead.
pub const CREDITS_MAX: usize = 1_000;
/// Events and deliveries taken at once.
const BATCH: usize = 100;
/// Batches after which it is looked at whether a reader keeps up.
const PACE_BATCHES: u32 = 50;
const PULL_WAIT: Duration = Duration::from_secs(60);

/// How a session's frames are made of what it hears.
pub trait Wire: Send + Sync + 'static {
    type Frame: Send + 'static;
    /// An event for a subscription, and its size.
    fn event(&self, subscription: &str, event: &Event) -> (Self::Frame, usize);
    fn delivery(&self, subscription: &str, delivery: &Delivery) -> (Self::Frame, usize);
    /// Something went wrong that nobody asked for.
    fn problem(&self, subscription: &str, problem: &Problem) -> (Self::Frame, usize);
}

/// Runs that a session started, newest last.
pub type Started = tokio::sync::Mutex<VecDeque<String>>;

/// What tells sessions apart.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

pub struct Session<W: Wire> {
    pub number: u64,
    /// To be held while one is started.
    pub started: Arc<Started>,
    pub doors: Arc<Doors>,
    pub tenant: Tenant,
    pub caller: Caller,
    pub out: Arc<Outbox<W::Frame>>,
    wire: Arc<W>,
    /// `None`: may do everything.
    grant: Option<Arc<Grant>>,
    /// Of the request that it began with.
    request_id: String,
    feeds: HashMap<String, Feed>,
}

/// One subscription, gone when it is dropped.
struct Feed {
    _task: Task,
    /// Of a group: its name, and how much may still be handed out.
    group: Option<(String, Arc<Credits>)>,
    /// In the outbox.
    number: u64,
}

impl<W: Wire> Session<W> {
    pub fn open(call: &Call, wire: W) -> Session<W> {
        let session = Session {
            number: SESSIONS.fetch_add(1, Ordering::Relaxed),
            started: Arc::default(),
            doors: call.doors.clone(),
            tenant: call.tenant.clone(),
            caller: call.caller.clone(),
            out: Arc::default(),
            wire: Arc::new(wire),
            grant: call.grant.clone(),
            request_id: audit::request_id(),
            feeds: HashMap::new(),
        };
        session.say(true);
        session
    }

    fn say(&self, begins: bool) {
        self.tenant.say_session(&self.caller, begins, &json!({ "subject": self.caller.actor }));
    }

    /// `None`: may do everything.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_deref()
    }

    /// Whether the client may do that now; the tenant is looked at anew, because it may have begun since.
    pub async fn allow(&mut self, needed: Permission) -> Result<(), Problem> {
        self.is_known()?;
        if self.grant.as_ref().is_some_and(|grant| !grant.may(needed)) {
            let detail = format!("this token does not allow \"{}\"", needed.as_str());
            return Err(Problem::new(Code::AuthDenied, detail).hint("use a token that does"));
        }
        if self.tenant.is_unborn() {
            let name = self.tenant.name().to_owned();
            self.tenant = caller::tenant(Some(&name), &self.doors).await?;
        }
        Ok(())
    }

    /// Whether the token still is one, and its tenant serves; asked now and then of who only listens.
    pub fn is_known(&self) -> Result<(), Problem> {
        let engine = &self.doors.engine;
        engine.admits(self.tenant.name())?;
        if self.grant.as_ref().is_some_and(|grant| !engine.authority().stands(grant, engine.now())) {
            return Err(Problem::new(Code::AuthRequired, "the token is not valid any more")
                .hint("come back with another one"));
        }
        Ok(())
    }

    /// Ready, with what to say, once the token or its tenant is no more: an idle session is told at once.
    pub fn over(&self) -> impl Future<Output = Problem> + Send + use<W> {
        let (doors, grant, tenant) = (self.doors.clone(), self.grant.clone(), self.tenant.clone());
        async move { rights::over(&doors, grant, tenant).await }
    }

    /// Writes down what the client administered, as the route that does the same would.
    pub async fn administered(&self, act: &str, path: String, status: StatusCode) {
        let act = Act {
            act: act.to_owned(),
            path: Some(path),
            request_id: Some(self.request_id.clone()),
            status: Some(status.as_u16()),
            done: None,
        };
        audit::written(&self.tenant, &self.caller, &act).await;
    }

    /// The tenant, as much of it as the client sees.
    pub fn seen(&self) -> Seen {
        self.tenant.seen_by(&self.caller.sight)
    }

    /// Hears what `follow` wants from here on; where that is.
    pub async fn subscribe(&mut self, id: String, follow: Follow) -> Result<u64, Problem> {
        self.allow(Permission::EventRead).await?;
        self.has_room(&id)?;
        let (tenant, follow) = (self.tenant.clone(), Follow { sight: self.caller.sight.clone(), ..follow });
        let follower = aside::blocking(move || tenant.follow(follow)).await?;
        let position = follower.position();
        let (out, wire, patience) = (self.out.clone(), self.wire.clone(), self.doors.patience.reader);
        let (name, number) = (id.clone(), out.open());
        let task = aside::task(async move {
            let ended = tell(follower, (&name, number), (&*out, &*wire), patience).await;
            let (frame, bytes) = wire.problem(&name, &ended);
            out.push_of(number, frame, bytes);
        });
        self.feeds.insert(id, Feed { _task: task, group: None, number });
        Ok(position)
    }

    /// Takes deliveries of a group, as many as there are credits.
    pub async fn consume(&mut self, id: String, group: String, credits: usize) -> Result<(), Problem> {
        self.allow(Permission::GroupConsume).await?;
        self.has_room(&id)?;
        // Refused now if there is no such group.
        let (seen, name) = (self.seen(), group.clone());
        aside::blocking(move || seen.group(&name)).await?;
        let left = Arc::new(Credits::of(credits));
        let (out, wire, patience) = (self.out.clone(), self.wire.clone(), self.doors.patience.reader);
        let (tenant, of, credits, name) = (self.tenant.clone(), group.clone(), left.clone(), id.clone());
        let seen = self.seen();
        let task = aside::task(async move {
            let ended = hand_out((&tenant, &seen), (&of, &credits), &name, (&*out, &*wire), patience).await;
            let (frame, bytes) = wire.problem(&name, &ended);
            out.push(frame, bytes);
        });
        self.feeds.insert(id, Feed { _task: task, group: Some((group, left)), number: 0 });
        Ok(())
    }

    /// More deliveries may come; how many in all.
    pub fn credit(&self, id: &str, credits: usize) -> Result<usize, Problem> {
        let feed = self.feeds.get(id).and_then(|feed| feed.group.as_ref()).ok_or_else(|| unknown(id))?;
        Ok(feed.1.add(credits))
    }

    /// The group of a subscription.
    pub fn group_of(&self, id: &str) -> Result<String, Problem> {
        let feed = self.feeds.get(id).and_then(|feed| feed.group.as_ref());
        feed.map(|(name, _)| name.clone()).ok_or_else(|| unknown(id))
    }

    /// Something else that tells this client things, gone with the session.
    pub fn attach(&mut self, id: &str, task: Task) -> Result<(), Problem> {
        self.has_room(id)?;
        self.feeds.insert(id.to_owned(), Feed { _task: task, group: None, number: 0 });
        Ok(())
    }

    /// Nothing of it is heard after this, unless it took deliveries: those are out, and are to be settled.
    pub fn unsubscribe(&mut self, id: &str) -> Result<(), Problem> {
        let feed = self.feeds.remove(id).ok_or_else(|| unknown(id))?;
        self.out.close(feed.number);
        Ok(())
    }

    fn has_room(&self, id: &str) -> Result<(), Problem> {
        if self.feeds.contains_key(id) {
            return Err(Problem::new(
                Code::RequestInvalid,
                format!("there is a subscription \"{id}\" already"),
            )
            .hint("unsubscribe from it first, or take another id"));
        }
        if self.feeds.len() >= FEEDS_MAX {
            let detail = format!("a session has at most {FEEDS_MAX} subscriptions");
            return Err(Problem::new(Code::QuotaExceeded, detail).hint("open another connection"));
        }
        Ok(())
    }
}

impl<W: Wire> Drop for Session<W> {
    fn drop(&mut self) {
        self.say(false);
    }
}

/// What a client is ready to take.
struct Credits {
    /// No pull holds these.
    free: Semaphore,
    /// These, and those that a pull holds which waits: no delivery has cost them yet.
    left: Mutex<usize>,
}

impl Credits {
    fn of(credits: usize) -> Credits {
        let left = credits.min(CREDITS_MAX);
        Credits { free: Semaphore::new(left), left: Mutex::new(left) }
    }

    /// As many more as there may be; how many there are then.
    fn add(&self, credits: usize) -> usize {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let more = credits.min(CREDITS_MAX.saturating_sub(*left));
        self.free.add_permits(more);
        *left += more;
        *left
    }

    /// A pull that held some is over, and this many deliveries cost one each.
    fn cost(&self, deliveries: usize, held: usize) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left -= deliveries;
        self.free.add_permits(held - deliveries);
    }
}

fn unknown(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no subscription \"{id}\" in this session"))
}

/// Until something fails. A reader of what is old takes its time; one of what happens now, who is a thousand events behind
/// and does not catch up, is too slow.
async fn tell<W: Wire>(
    mut follower: Follower,
    (id, number): (&str, u64),
    (out, wire): (&Outbox<W::Frame>, &W),
    patience: Duration,
) -> Problem {
    let (mut pace, mut live) = (Pace::default(), false);
    loop {
        let mut events = match follower.try_next(BATCH) {
            Ok(events) => events,
            Err(problem) => return problem,
        };
        let waits = events.is_empty();
        if waits {
            live = true;
            events = match follower.next(BATCH).await {
                Ok(events) => events,
                Err(problem) => return problem,
            };
        }
        out.room(patience).await;
        if live && pace.is_lost(follower.behind()) {
            out.end(slow(format!("the reader is {} positions behind, and falls back", follower.behind())));
        }
        for event in &events {
            let (frame, bytes) = wire.event(id, event);
            out.push_of(number, frame, bytes);
        }
        // Who reads what is there already lets others go on in between; who waited for it did.
        if !waits {
            tokio::task::yield_now().await;
        }
    }
}

/// Whether a reader keeps up, judged every now and then: all are behind for a moment when much happens at once.
#[derive(Default)]
struct Pace {
    batches: u32,
    behind: u64,
}

impl Pace {
    fn is_lost(&mut self, behind: u64) -> bool {
        self.batches += 1;
        if self.batches < PACE_BATCHES {
            return false;
        }
        let before = std::mem::replace(&mut self.behind, behind);
        self.batches = 0;
        behind > outbox::FRAMES_MAX as u64 && before > 0 && behind >= before
    }
}

/// Until something fails.
async fn hand_out<W: Wire>(
    (tenant, seen): (&Tenant, &Seen),
    (group, credits): (&str, &Credits),
    id: &str,
    (out, wire): (&Outbox<W::Frame>, &W),
    patience: Duration,
) -> Problem {
    loop {
        let Ok(credit) = credits.free.acquire().await else {
            return Problem::new(Code::ShuttingDown, "the session is over");
        };
        credit.forget();
        let free = &credits.free;
        let more = (1..BATCH).take_while(|_| free.try_acquire().map(|more| more.forget()).is_ok()).count();
        out.room(patience).await;
        // No more than may wait for a reader: the rest is for others, or for when there is room again.
        let most = Most { events: 1 + more, bytes: outbox::BYTES_MAX };
        let deliveries = match seen.pull(group, most, PULL_WAIT).await {
            Ok(deliveries) => deliveries,
            Err(problem) => return problem,
        };
        credits.cost(deliveries.len(), 1 + more);
        if deliveries.is_empty() && tenant.is_closing() {
            return Problem::new(Code::ShuttingDown, "the engine is shutting down");
        }
        for delivery in &deliveries {
            let (frame, bytes) = wire.delivery(id, delivery);
            out.push(frame, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_falls_back_further_is_lost_and_who_catches_up_is_not() {
        let judge = |behinds: &[u64]| {
            let mut pace = Pace::default();
            behinds.iter().any(|behind| (0..PACE_BATCHES).any(|_| pace.is_lost(*behind)))
        };
        assert!(!judge(&[90_000, 50_000, 10_000, 0]));
        assert!(!judge(&[900, 950, 990]));
        assert!(judge(&[2_000, 3_000]));
    }
}
