//! Those who post events to others: a sender per active push, at least once, signed as Standard Webhooks says.
//!
//! ```text
//!  group ─▶ pull ─▶ POST, signed, under one `webhook-id` ─▶ 2xx: ack
//!                                                         ─▶ 410: the push is disabled
//!                                                         ─▶ else: nack, full jitter; then one at a time, until one is taken
//! ```
//! After 50 failures in a row, or 24 hours of them, the push is paused and an event says so. What is out is memory: after a
//! crash the group hands it out again, and the receiver knows it by its id.

#![expect(
    clippy::disallowed_methods,
    reason = "senders are tasks beside the engine, and wait between failures"
)]

mod message;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::event::{Content, Envelope, Event};
use model::group::Definition;
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use super::http::{Http, Request};
use crate::admit::Handled;
use crate::deliver::dispatcher::Delivery;
use crate::deliver::lock;
use crate::tenant::Tenant;
use crate::tenant::pushes::Push;

/// A sender wakes at least so often to see whether it is still wanted.
const WAIT: Duration = Duration::from_secs(20);
/// After trouble that is not the receiver's.
const AGAIN: Duration = Duration::from_secs(1);
const FAILURES_MAX: u32 = 50;
const FAILING_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest that a receiver may ask to be left alone.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// The senders of all tenants of an engine.
pub(crate) struct Senders {
    http: Arc<Http>,
    running: Mutex<HashMap<(String, String), (Push, AbortHandle)>>,
    abandoned: AtomicBool,
}

/// What came of one request.
#[derive(Debug, PartialEq)]
enum Outcome {
    Taken,
    /// 410: never again.
    Gone,
    Failed {
        error: String,
        after: Option<Duration>,
    },
}

/// A run of failures.
#[derive(Debug, Default, PartialEq)]
struct Streak {
    failures: u32,
    since: Option<Timestamp>,
    /// What the last failure was; written down when it is another one than before.
    error: Option<String>,
}

impl Streak {
    /// Why no more is tried; `None`: it is.
    fn over(&self, now: Timestamp) -> Option<String> {
        if self.failures >= FAILURES_MAX {
            return Some(format!("{} failures in a row", self.failures));
        }
        let long = self.since.is_some_and(|since| now.since(since) >= FAILING_MAX);
        (self.failures > 0 && long).then(|| "nothing was taken for 24 hours".to_owned())
    }
}

impl Senders {
    pub(crate) fn new(http: Arc<Http>) -> Arc<Senders> {
        Arc::new(Senders { http, running: Mutex::default(), abandoned: AtomicBool::new(false) })
    }

    /// Nothing is sent or answered for from here on.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        lock(&self.running).drain().for_each(|(_, (_, sender))| sender.abort());
    }

    /// Begins senders that are wanted and ends those that are not, if that changed.
    pub(crate) fn tend(self: &Arc<Self>, tenant: &Tenant) {
        if tenant.is_closing() || self.abandoned.load(Ordering::Acquire) || !tenant.take_pushes_changed() {
            return;
        }
        let wanted = match tenant.active_pushes() {
            Ok(wanted) => wanted,
            Err(problem) => {
                tracing::warn!(tenant = tenant.name(), %problem, "pushes cannot be read");
                return;
            }
        };
        let mut running = lock(&self.running);
        running.retain(|(of, _), (push, sender)| {
            let stays = of != tenant.name() || (wanted.contains(push) && !sender.is_finished());
            if !stays {
                sender.abort();
            }
            stays
        });
        for push in wanted {
            let key = (tenant.name().to_owned(), push.name.clone());
            if !running.contains_key(&key) {
                let (senders, of, mine) = (self.clone(), tenant.clone(), Arc::new(push.clone()));
                let sender = self.http.runtime().spawn(async move { senders.work(of, mine).await });
                running.insert(key, (push, sender.abort_handle()));
            }
        }
    }

    async fn work(self: Arc<Self>, tenant: Tenant, push: Arc<Push>) {
        let Ok(definition) = Definition::parse(&push.definition) else { return };
        let mut streak = Streak { since: tenant.push_failing_since(&push.name), ..Streak::default() };
        while !tenant.is_closing() && !self.abandoned.load(Ordering::Acquire) {
            match self.round(&tenant, &push, &definition, &mut streak).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(problem) if problem.code() == Code::ShuttingDown => return,
                Err(problem) if problem.code() == Code::GroupNotFound => {
                    if !make_group(&tenant, &push).await {
                        return;
                    }
                }
                Err(problem) => {
                    tracing::warn!(push = push.name, %problem, "a push could not go on");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Sends what is ready; false when the push is over.
    async fn round(
        self: &Arc<Self>,
        tenant: &Tenant,
        push: &Arc<Push>,
        definition: &Definition,
        streak: &mut Streak,
    ) -> Result<bool, Problem> {
        // A receiver that fails is asked by one delivery at a time.
        let most = if streak.failures == 0 { definition.max_inflight as usize } else { 1 };
        let deliveries = tenant.pull(&push.group, most, WAIT).await?;
        let mut held = Held { tenant: tenant.clone(), group: push.group.clone(), deliveries };
        let mut sends = JoinSet::new();
        for delivery in held.deliveries.clone() {
            let (senders, tenant, push) = (self.clone(), tenant.clone(), push.clone());
            sends.spawn(async move {
                let outcome = senders.deliver(&tenant, &push, &delivery).await;
                (delivery.token.to_string(), outcome)
            });
        }
        let mut rest = Duration::ZERO;
        while let Some(sent) = sends.join_next().await {
            let Ok((token, outcome)) = sent else { continue };
            match outcome {
                Outcome::Taken => {
                    held.forget(&token);
                    tenant.ack(&push.group, &[token], false).await?;
                    if std::mem::take(streak).since.is_some() {
                        tenant.note_push(&push.name, None, None).await?;
                    }
                }
                Outcome::Gone => {
                    tenant.stop_push(push, "disabled", "the receiver answered 410", streak.failures).await?;
                    return Ok(false);
                }
                Outcome::Failed { error, after } => {
                    failed(tenant, push, streak, &error).await?;
                    let share = f64::from(u32::from_be_bytes(tenant.random())) / f64::from(u32::MAX);
                    let jittered = definition.backoff.cap(streak.failures).mul_f64(share);
                    let delay = jittered.max(after.unwrap_or_default());
                    rest = rest.max(delay);
                    held.forget(&token);
                    tenant.nack(&push.group, &[token], Some(delay), Some(error)).await?;
                }
            }
        }
        if let Some(reason) = streak.over(tenant.now()) {
            tenant.stop_push(push, "paused", &reason, streak.failures).await?;
            return Ok(false);
        }
        tokio::time::sleep(rest).await;
        Ok(true)
    }

    async fn deliver(&self, tenant: &Tenant, push: &Push, delivery: &Delivery) -> Outcome {
        if let Handled::Quarantine(reason) = tenant.layers_allow(&delivery.event) {
            // The dead letter says why; the ack that follows finds a stale token.
            let _ = tenant.reject(&push.group, &[delivery.token.to_string()], Some(reason)).await;
            return Outcome::Taken;
        }
        let id = message::id(tenant.name(), push, &delivery.event);
        let mut request = message::request(push, &id, &delivery.event, tenant.now());
        request.trace(tenant.traceparent_of_delivery(&push.group, &delivery.event, delivery.attempt));
        self.post(&request).await.0
    }

    /// One request, and the status of its answer.
    async fn post(&self, request: &Request) -> (Outcome, Option<u16>) {
        let answer = match self.http.sent(request).await {
            Ok(answer) => answer,
            Err(failure) => {
                let error = failure.problem.detail().to_owned();
                return (Outcome::Failed { error, after: None }, None);
            }
        };
        let outcome = match answer.status {
            200..=299 => Outcome::Taken,
            410 => Outcome::Gone,
            status => {
                let after = answer.headers.iter().find(|(name, _)| name == "retry-after");
                let after = after.and_then(|(_, value)| value.trim().parse().ok()).map(Duration::from_secs);
                let error = format!("the receiver answered {status}");
                Outcome::Failed { error, after: after.map(|after| after.min(RETRY_AFTER_MAX)) }
            }
        };
        (outcome, Some(answer.status))
    }

    /// Sends an event that nobody published, so that its owner sees whether it arrives.
    pub(crate) async fn test(self: &Arc<Self>, tenant: &Tenant, push: Push) -> Result<Value, Problem> {
        let (senders, now, random) = (self.clone(), tenant.now(), tenant.random());
        let began = tenant.real();
        let sent = self.http.runtime().spawn(async move {
            let ulid = model::id::ulid(now, random);
            let event = test_event(&push, &ulid, now);
            let id = format!("msg_test_{ulid}");
            let (outcome, status) = senders.post(&message::request(&push, &id, &event, now)).await;
            (id, outcome, status)
        });
        let died = |_| Problem::new(Code::Internal, "the sender died");
        let (id, outcome, status) = sent.await.map_err(died)?;
        let took = tenant.real().saturating_sub(began);
        let mut told =
            json!({"ok": outcome == Outcome::Taken, "webhook_id": id, "took_ms": took.as_millis() as u64});
        if let Some(status) = status {
            told["status"] = status.into();
        }
        match outcome {
            Outcome::Failed { error, .. } => told["error"] = error.into(),
            Outcome::Gone => told["error"] = "the receiver answered 410".into(),
            Outcome::Taken => {}
        }
        Ok(told)
    }
}

/// One more failure: said when a run of them begins, written down then and when another one comes.
async fn failed(tenant: &Tenant, push: &Push, streak: &mut Streak, error: &str) -> Result<(), Problem> {
    streak.failures += 1;
    if streak.failures == 1 {
        tracing::warn!(tenant = tenant.name(), push = push.name, error, "a push fails, and is tried again");
    }
    if streak.error.as_deref() == Some(error) {
        return Ok(());
    }
    let since = *streak.since.get_or_insert_with(|| tenant.now());
    streak.error = Some(error.to_owned());
    tenant.note_push(&push.name, Some(since), Some(error)).await
}

/// Makes the group that a push has lost; false when there is no such push any more. Whoever removes one removes the row and then
/// the group: the row is looked for first, so that what was removed does not come back, and last, for who removes it meanwhile.
async fn make_group(tenant: &Tenant, push: &Push) -> bool {
    if tenant.push(&push.name).is_err_and(|problem| problem.code() == Code::NotFound) {
        return false;
    }
    if let Err(problem) = tenant.put_group(&push.group, &push.definition).await {
        tracing::warn!(push = push.name, %problem, "a push has no group");
        tokio::time::sleep(AGAIN).await;
    }
    let wanted = tenant.push(&push.name).is_ok();
    if !wanted {
        let _ = tenant.delete_group(&push.group).await;
    }
    wanted
}

fn test_event(push: &Push, ulid: &str, now: Timestamp) -> Event {
    let envelope = Envelope {
        id: ulid.to_owned(),
        topic: "push.test".to_owned(),
        space: "default".to_owned(),
        actor: "system:engine".to_owned(),
        ..Envelope::default()
    };
    let payload = json!({"push": push.name, "message": "this is a test; nobody published it"});
    Event { position: 0, recorded_at: now, envelope, content: Content::new(&payload.to_string(), None) }
}

/// Deliveries that are out; given back, without an attempt counted, when the sender ends early.
struct Held {
    tenant: Tenant,
    group: String,
    deliveries: Vec<Delivery>,
}

impl Held {
    fn forget(&mut self, token: &str) {
        self.deliveries.retain(|delivery| delivery.token.to_string() != token);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.deliveries.is_empty() {
            // A group that is gone needs nothing back.
            let _ = self.tenant.give_back(&self.group, &self.deliveries);
        }
    }
}
