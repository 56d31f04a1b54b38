//! The publish path on the caller's side: admit, watch the groups that must not be outrun, ask the writer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use model::group::LagAction;
use model::{Code, Position, Problem, Timestamp};
use tracing::{Instrument, Span};

use super::Tenant;
use super::entity::broken;
use crate::admit::{Admission, Caller, Context, Draft, Prepared};
use crate::command::{Answer, Command, Outcome};
use crate::decide::publish::conflict;
use crate::deliver::{GroupHandle, lock};
use crate::read;

/// How long `on_lag: block` holds a publish before it is refused.
const BLOCK_MAX: Duration = Duration::from_secs(10);

/// Says who notes what about events that are about to be recorded.
pub type Note<'a> = &'a (dyn Fn(Vec<Expected>) -> (Caller, Draft) + Send + Sync);

/// What is known of an event's outcome before the writer was asked. A key that somebody else takes in that moment makes it
/// another.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// In the order of the drafts, right before the note.
    Recorded {
        id: String,
    },
    /// A record right before the note, too.
    Deferred {
        until: Timestamp,
    },
    /// Its key is that of the event at this position.
    Repeated {
        position: Position,
    },
    /// Its key is that of an earlier draft.
    Again {
        index: usize,
    },
    Known(Outcome),
}

/// Drafts after admission: what goes to the writer, and the answers that are known already.
struct Admitted {
    events: Vec<Prepared>,
    /// One per draft; `None` where the writer answers.
    outcomes: Vec<Option<Outcome>>,
}

impl Admitted {
    /// Draft by draft, the event that goes to the writer.
    fn each(&self) -> impl Iterator<Item = Option<&Prepared>> {
        let mut events = self.events.iter();
        self.outcomes.iter().map(move |known| if known.is_none() { events.next() } else { None })
    }

    /// Each event is told which draft it was.
    fn tell_places(&mut self) {
        let to_writer = self.outcomes.iter().enumerate().filter(|(_, known)| known.is_none());
        self.events.iter_mut().zip(to_writer).for_each(|(event, (index, _))| event.index = Some(index));
    }

    /// Draft by draft, what becomes of it; `stands` says what its key already stands for in the ledger.
    fn expected(&self, stands: impl Fn(&Prepared) -> Option<Expected>) -> Vec<Expected> {
        let mut events = self.events.iter();
        let mut firsts = HashMap::new();
        let mut written = |index: usize, event: &Prepared| {
            let first = key_of(event).map_or(index, |(source, key)| {
                *firsts.entry((source.map(str::to_owned), key.to_owned())).or_insert(index)
            });
            if first < index {
                return Expected::Again { index: first };
            }
            stands(event).unwrap_or_else(|| match event.deferred {
                Some(until) => Expected::Deferred { until },
                None => Expected::Recorded { id: event.event.envelope.id.clone() },
            })
        };
        let each = self.outcomes.iter().enumerate().map(|(index, known)| match known {
            Some(outcome) => Some(Expected::Known(outcome.clone())),
            None => events.next().map(|event| written(index, event)),
        });
        each.flatten().collect()
    }

    fn has_key_of(&self, event: &Prepared) -> bool {
        self.events.iter().any(|earlier| key_of(earlier) == key_of(event))
    }
}

/// What a repeat is known by.
fn key_of(event: &Prepared) -> Option<(Option<&str>, &str)> {
    let envelope = &event.event.envelope;
    Some((envelope.source.as_deref(), envelope.key.as_deref()?))
}

impl Tenant {
    /// Publishes one event; answers when it is durable.
    pub async fn publish(&self, caller: &Caller, mut draft: Draft) -> Result<Outcome, Problem> {
        let publishing = self.begin_publish(caller, &mut draft);
        let span = self.span(&draft);
        let published = self.publish_one(caller, draft);
        let outcome = if span.is_disabled() { published.await } else { published.instrument(span).await };
        self.end_publish(publishing, outcome.as_ref());
        outcome
    }

    /// Seed 002's span around a publish; nothing unless somebody listens at debug level.
    pub(super) fn span(&self, draft: &Draft) -> Span {
        if !self.settings().switches.tracing {
            return Span::none();
        }
        let size_bytes = draft.payload.get().len();
        tracing::debug_span!(
            "events.publish",
            topic = draft.topic,
            space = draft.space,
            size_bytes,
            trace = draft.trace
        )
    }

    async fn publish_one(&self, caller: &Caller, draft: Draft) -> Result<Outcome, Problem> {
        let started = self.real();
        let topic = draft.topic.clone();
        self.allow_events(caller, 1)?;
        let admitted = self.admit(caller, vec![draft], &mut || {})?;
        self.keep_pace(caller, std::iter::once((topic.as_str(), admitted.events.first()))).await?;
        let outcome = self.record(caller, admitted).await.map(first)?;
        self.observe(&topic, &outcome, started);
        Ok(outcome)
    }

    /// As [`Tenant::publish`], for one of many events in a row that are not waited for one by one: those that are
    /// polled while a sync is in progress share the next one. The first poll gives the event its place in line.
    pub async fn publish_queued(&self, caller: &Caller, mut draft: Draft) -> Result<Outcome, Problem> {
        let publishing = self.begin_publish(caller, &mut draft);
        let outcome = self.queue_one(caller, draft).await;
        self.end_publish(publishing, outcome.as_ref());
        outcome
    }

    async fn queue_one(&self, caller: &Caller, draft: Draft) -> Result<Outcome, Problem> {
        let started = self.real();
        let topic = draft.topic.clone();
        self.allow_events(caller, 1)?;
        let Admitted { events, outcomes } = self.admit(caller, vec![draft], &mut || {})?;
        self.keep_pace(caller, std::iter::once((topic.as_str(), events.first()))).await?;
        if events.is_empty() {
            return Ok(first(merge(outcomes, Vec::new())));
        }
        self.keys_are_seen(caller, &events)?;
        let outcome = match self
            .ask_queued(Command::Publish { events })
            .await
            .map_err(|problem| self.veiled(caller, problem))?
        {
            Answer::Published(recorded) => first(merge(outcomes, recorded)),
            _ => return Err(unexpected()),
        };
        self.observe(&topic, &outcome, started);
        Ok(outcome)
    }

    /// Publishes several events in one commit: all of them, or none.
    pub async fn publish_all(&self, caller: &Caller, drafts: Vec<Draft>) -> Result<Vec<Outcome>, Problem> {
        self.publish_all_with(caller, drafts, None).await
    }

    /// As [`Tenant::publish_all`], with a note about them in the same commit: who finds it knows that they are there.
    pub async fn publish_all_noted(
        &self,
        caller: &Caller,
        drafts: Vec<Draft>,
        note: Note<'_>,
    ) -> Result<Vec<Outcome>, Problem> {
        self.publish_all_with(caller, drafts, Some(note)).await
    }

    async fn publish_all_with(
        &self,
        caller: &Caller,
        drafts: Vec<Draft>,
        note: Option<Note<'_>>,
    ) -> Result<Vec<Outcome>, Problem> {
        let mut drafts = drafts;
        let publishing: Vec<_> = drafts.iter_mut().map(|draft| self.begin_publish(caller, draft)).collect();
        let outcomes = self.publish_together(caller, drafts, note).await;
        for (index, publishing) in publishing.into_iter().enumerate() {
            self.end_publish(publishing, outcomes.as_ref().map(|outcomes| &outcomes[index]));
        }
        outcomes
    }

    async fn publish_together(
        &self,
        caller: &Caller,
        drafts: Vec<Draft>,
        note: Option<Note<'_>>,
    ) -> Result<Vec<Outcome>, Problem> {
        let started = self.real();
        let topics: Vec<String> = drafts.iter().map(|draft| draft.topic.clone()).collect();
        self.allow_events(caller, drafts.len())?;
        let mut index = 0;
        let mut admitted = self
            .admit(caller, drafts, &mut || index += 1)
            .map_err(|problem| problem.within(&format!("/{index}")))?;
        admitted.tell_places();
        let mut index = 0;
        let paced = topics.iter().zip(admitted.each()).enumerate().map(|(i, (topic, event))| {
            index = i;
            (topic.as_str(), event)
        });
        let paced = self.keep_pace(caller, paced).await;
        paced.map_err(|problem| problem.within(&format!("/{index}")))?;
        if let Some(note) = note {
            let (house, draft) = note(admitted.expected(|event| self.stands(event)));
            let noted = self.admit(&house, vec![draft], &mut || {})?;
            admitted.events.extend(noted.events);
            admitted.outcomes.extend(noted.outcomes);
        }
        let mut outcomes = self.record(caller, admitted).await?;
        // Without the note's.
        outcomes.truncate(topics.len());
        topics.iter().zip(&outcomes).for_each(|(topic, outcome)| self.observe(topic, outcome, started));
        Ok(outcomes)
    }

    /// As [`Tenant::publish`], for callers that may block; an idle writer commits on this thread.
    pub fn publish_blocking(&self, caller: &Caller, mut draft: Draft) -> Result<Outcome, Problem> {
        let publishing = self.begin_publish(caller, &mut draft);
        let outcome = self.publish_here(caller, draft);
        self.end_publish(publishing, outcome.as_ref());
        outcome
    }

    fn publish_here(&self, caller: &Caller, draft: Draft) -> Result<Outcome, Problem> {
        let started = self.real();
        let topic = draft.topic.clone();
        self.allow_events(caller, 1)?;
        let admitted = self.admit(caller, vec![draft], &mut || {})?;
        let mut lagging = self.lagging(caller, &topic).into_iter();
        if let Some((_, limit)) = lagging.next().filter(|_| !self.is_repeat(admitted.events.first())) {
            return Err(limit.problem);
        }
        if admitted.events.is_empty() {
            return Ok(first(merge(admitted.outcomes, Vec::new())));
        }
        let Admitted { events, outcomes } = admitted;
        self.keys_are_seen(caller, &events)?;
        let outcome = match self
            .ask_blocking(Command::Publish { events })
            .map_err(|problem| self.veiled(caller, problem))?
        {
            Answer::Published(recorded) => first(merge(outcomes, recorded)),
            _ => return Err(unexpected()),
        };
        self.observe(&topic, &outcome, started);
        Ok(outcome)
    }

    fn admit(
        &self,
        caller: &Caller,
        drafts: Vec<Draft>,
        next: &mut dyn FnMut(),
    ) -> Result<Admitted, Problem> {
        let now = self.0.around.clock.now();
        let mut admitted =
            Admitted { events: Vec::with_capacity(drafts.len()), outcomes: Vec::with_capacity(drafts.len()) };
        for draft in drafts {
            match self.admit_one(caller, draft, now)? {
                Admission::Prepared(prepared) => {
                    admitted.events.push(Prepared { quiet: !caller.outside, ..prepared });
                    admitted.outcomes.push(None);
                }
                Admission::Dropped { rule, keyed } => {
                    let repeat =
                        keyed.filter(|event| admitted.has_key_of(event) || self.is_repeat(Some(event)));
                    let known = repeat.is_none().then_some(Outcome::Dropped { rule });
                    admitted.events.extend(repeat.map(|event| Prepared { quiet: !caller.outside, ..*event }));
                    admitted.outcomes.push(known);
                }
            }
            next();
        }
        Ok(admitted)
    }

    /// An event that is ready to be recorded, or what becomes of it instead.
    pub(super) fn admit_alone(
        &self,
        caller: &Caller,
        draft: Draft,
    ) -> Result<Result<Prepared, Outcome>, Problem> {
        match self.admit_one(caller, draft, self.0.around.clock.now())? {
            Admission::Prepared(prepared) => Ok(Ok(Prepared { quiet: false, ..prepared })),
            Admission::Dropped { rule, .. } => Ok(Err(Outcome::Dropped { rule })),
        }
    }

    fn admit_one(&self, caller: &Caller, draft: Draft, now: Timestamp) -> Result<Admission, Problem> {
        let cause_depth = match draft.cause {
            Some(cause) => Some(self.depth_at(caller, cause)?),
            None => None,
        };
        let mut fill = |out: &mut [u8]| lock(&self.0.entropy).fill(out);
        let mut context = Context { now, entropy: &mut fill, cause_depth };
        self.0.admitter.admit(caller, draft, &mut context)
    }

    /// How long the chain of causes behind the event at `cause` is.
    fn depth_at(&self, caller: &Caller, cause: Position) -> Result<u32, Problem> {
        let unknown = || {
            Problem::new(Code::EventInvalid, format!("\"cause\": there is no event at position {cause}"))
                .hint("a cause is the position of an event that is in the ledger")
                .at("/cause")
        };
        if cause == 0 || cause > self.head() {
            return Err(unknown());
        }
        // Trimmed causes are believed, because nobody can look them up any more.
        if cause < self.first() {
            return Ok(0);
        }
        let event = self.with_reader(|reader| read::event_at(reader, cause))?;
        let seen = event.filter(|event| caller.sight.sees_event(event));
        seen.map(|event| event.envelope.depth).ok_or_else(unknown)
    }

    async fn record(&self, caller: &Caller, admitted: Admitted) -> Result<Vec<Outcome>, Problem> {
        let Admitted { events, outcomes } = admitted;
        if events.is_empty() {
            return Ok(merge(outcomes, Vec::new()));
        }
        self.keys_are_seen(caller, &events)?;
        match self.ask(Command::Publish { events }).await.map_err(|problem| self.veiled(caller, problem))? {
            Answer::Published(recorded) => Ok(merge(outcomes, recorded)),
            _ => Err(unexpected()),
        }
    }

    /// Who sees only a part is not told whether they guessed what an event says that they do not see: its key is taken, and
    /// that is all.
    fn keys_are_seen(&self, caller: &Caller, events: &[Prepared]) -> Result<(), Problem> {
        if caller.sight.is_whole() {
            return Ok(());
        }
        for event in events {
            let Some((source, key)) = key_of(event) else { continue };
            let known = self.with_writer(|writer| writer.state.key(source, key).map_err(broken))?;
            let Some(first) = known.filter(|first| first.deferred_until.is_none()) else { continue };
            let stands = self.event(&first.position.to_string()).ok();
            if stands.is_some_and(|event| !caller.sight.sees_event(&event)) {
                let taken = conflict(key, &first, event.fingerprint.unwrap_or_default());
                return Err(self.veiled(caller, event.place(taken)));
            }
        }
        Ok(())
    }

    /// That a key is taken must be said; by what, only to who may read that event or brought it.
    pub(super) fn veiled(&self, caller: &Caller, problem: Problem) -> Problem {
        let sight = &caller.sight;
        if problem.code() != Code::EventKeyConflict || (sight.sees_all() && sight.reads()) {
            return problem;
        }
        let position = problem.extra().get("position").and_then(serde_json::Value::as_u64);
        let seen = position.and_then(|at| self.seen_by(sight).event(&at.to_string()).ok());
        if seen.is_some_and(|event| sight.reads() || event.envelope.actor == caller.actor) {
            return problem;
        }
        let hint = problem.hint_text().unwrap_or_default().to_owned();
        let veiled = Problem::new(Code::EventKeyConflict, "this key was used with another event").hint(hint);
        let veiled = problem.pointer().map_or(veiled.clone(), |pointer| veiled.at(pointer));
        match problem.extra().get("this_hash") {
            Some(own) => veiled.with("this_hash", own.clone()),
            None => veiled,
        }
    }

    /// What was dropped was not published: attention counts it.
    pub(super) fn observe(&self, topic: &str, outcome: &Outcome, started: Duration) {
        if self.settings().switches.metrics && !matches!(outcome, Outcome::Dropped { .. }) {
            self.metrics().observe_publish(topic, self.real().saturating_sub(started).as_secs_f64());
        }
    }

    /// Whether the event is in the ledger already, by its key: then it is answered as the first time, whatever would become
    /// of a new one.
    fn is_repeat(&self, event: Option<&Prepared>) -> bool {
        let Some((source, key)) = event.and_then(key_of) else { return false };
        self.with_writer(|writer| Ok(writer.state.key(source, key).is_ok_and(|known| known.is_some())))
            .unwrap_or(false)
    }

    /// What a key stands for in the ledger.
    fn stands(&self, event: &Prepared) -> Option<Expected> {
        let (source, key) = key_of(event)?;
        let first = self.with_writer(|writer| writer.state.key(source, key).map_err(broken)).ok()??;
        Some(match first.deferred_until {
            Some(until) => Expected::Known(Outcome::Deferred { until }),
            None => Expected::Repeated { position: first.position },
        })
    }

    /// Holds or refuses a publish from outside while a group that must not fall behind has fallen behind.
    async fn keep_pace<'a>(
        &self,
        caller: &Caller,
        events: impl Iterator<Item = (&'a str, Option<&'a Prepared>)>,
    ) -> Result<(), Problem> {
        let mut started = None;
        for (topic, event) in events {
            while let Some((handle, lag)) = self.lagging(caller, topic).into_iter().next() {
                if self.is_repeat(event) {
                    break;
                }
                let now = self.real();
                let left = BLOCK_MAX.saturating_sub(now.saturating_sub(*started.get_or_insert(now)));
                if lag.action == LagAction::Refuse || left.is_zero() {
                    return Err(lag.problem);
                }
                let mut freed = std::pin::pin!(handle.freed.notified());
                // Listen first, look again after: an ack in between is not missed.
                freed.as_mut().enable();
                if self.lags(caller, topic) {
                    let _ = tokio::time::timeout(left, freed).await;
                }
            }
        }
        Ok(())
    }

    /// Whether a publish has to wait for a group, or is refused because of one.
    pub(super) fn lags(&self, caller: &Caller, topic: &str) -> bool {
        !self.lagging(caller, topic).is_empty()
    }

    fn lagging(&self, caller: &Caller, topic: &str) -> Vec<(Arc<GroupHandle>, Lag)> {
        if !caller.outside {
            return Vec::new();
        }
        let watched = self.registry().watched(topic);
        let mut lagging = Vec::new();
        for (handle, definition) in watched {
            let lag = self.lag_of(&handle, definition.lag_events);
            if lag >= definition.lag_events {
                let detail = format!(
                    "group \"{}\" is {lag} events behind, its limit is {}",
                    handle.name, definition.lag_events
                );
                let problem = Problem::new(Code::GroupLagging, detail)
                    .hint("let the group's consumers catch up, or raise its on_lag.events")
                    .with("group", handle.name.clone());
                lagging.push((handle, Lag { action: definition.lag_action, problem }));
            }
        }
        lagging
    }
}

struct Lag {
    action: LagAction,
    problem: Problem,
}

/// Puts the writer's answers where the drafts were that it got.
fn merge(outcomes: Vec<Option<Outcome>>, recorded: Vec<Outcome>) -> Vec<Outcome> {
    let mut recorded = recorded.into_iter();
    outcomes.into_iter().filter_map(|known| known.or_else(|| recorded.next())).collect()
}

fn first(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.swap_remove(0)
}

pub(super) fn unexpected() -> Problem {
    Problem::new(Code::Internal, "the writer answered another question than was asked")
}
