//! Push in process: workers that pull from a group, call a handler and answer for it. A panic is a nack.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use model::event::Event;
use model::{Code, Problem};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::dispatcher::Delivery;
use crate::admit::Handled;
use crate::tenant::{PULL_MAX, Tenant};

/// The event was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack;

/// The event was not handled; it is tried again after `delay`, or after the group's backoff.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nack {
    pub delay: Option<Duration>,
    pub error: Option<String>,
}

impl Nack {
    pub fn because(error: impl std::fmt::Display) -> Nack {
        Nack { delay: None, error: Some(error.to_string()) }
    }
}

impl<E: std::error::Error> From<E> for Nack {
    fn from(error: E) -> Nack {
        Nack::because(error)
    }
}

/// What a handler gives back: `Ok(Ack)`, or why not.
pub type Handling = Result<Ack, Nack>;

/// Which events go to a handler, and how many at a time.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub group: String,
    pub definition: Value,
    pub workers: usize,
}

impl Subscription {
    /// Every event on `topic` (a pattern), remembered under `group`, from now on.
    pub fn new(topic: &str, group: &str) -> Subscription {
        Subscription { group: group.to_owned(), definition: json!({"pattern": topic}), workers: 1 }
    }

    pub fn workers(mut self, workers: usize) -> Subscription {
        self.workers = workers.max(1);
        self
    }

    /// Sets any field of a group's definition (contracts §4): `.set("max_retries", 3)`.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> Subscription {
        self.definition[field] = value.into();
        self
    }
}

/// How many events a worker takes at first. A quick handler is given more at once, up to what a pull gives; what a slow
/// one has taken only waits behind it, so it is given fewer.
const TAKE_FIRST: usize = 128;
const QUICK: Duration = Duration::from_millis(5);
/// A pull wakes at least so often to notice that the engine closes.
const WAIT: Duration = Duration::from_secs(20);

/// Starts the workers of a subscription on the current tokio runtime.
pub(crate) fn start<H, F>(tenant: &Tenant, subscription: &Subscription, handler: H, tasks: &mut JoinSet<()>)
where
    H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
    F: Future<Output = Handling> + Send + 'static,
{
    let handler = Arc::new(handler);
    for worker in 0..subscription.workers {
        let (tenant, group, handler) = (tenant.clone(), subscription.group.clone(), handler.clone());
        tasks.spawn(async move {
            if let Err(problem) = work(&tenant, &group, handler.as_ref()).await
                && problem.code() != Code::ShuttingDown
            {
                tracing::error!(group, worker, %problem, "a worker of a subscription stopped");
                tenant.report_dead(&format!("worker {worker} of group {group} stopped: {problem}"));
            }
        });
    }
}

async fn work<H, F>(tenant: &Tenant, group: &str, handler: &H) -> Result<(), Problem>
where
    H: Fn(Arc<Event>) -> F,
    F: Future<Output = Handling>,
{
    let mut take = TAKE_FIRST;
    while !tenant.is_closing() {
        let deliveries = tenant.pull_on(group, take, WAIT).await?;
        let started = tenant.real();
        let mut acks = Vec::with_capacity(deliveries.len());
        for (index, delivery) in deliveries.iter().enumerate() {
            if tenant.is_closing() {
                tenant.give_back(group, &deliveries[index..])?;
                break;
            }
            match handle(tenant, group, delivery, handler).await {
                Ok(Ack) => acks.push(delivery.token),
                Err(Nack { delay, error }) => {
                    tenant.nack_uncounted(group, &[delivery.token.to_string()], delay, error).await?;
                }
            }
        }
        tenant.ack_handled(group, &acks).await?;
        take = next_take(take, tenant.real().saturating_sub(started));
    }
    Ok(())
}

fn next_take(take: usize, took: Duration) -> usize {
    match took < QUICK {
        true => (take * 2).min(PULL_MAX),
        false => (take / 2).max(1),
    }
}

async fn handle<H, F>(tenant: &Tenant, group: &str, delivery: &Delivery, handler: &H) -> Handling
where
    H: Fn(Arc<Event>) -> F,
    F: Future<Output = Handling>,
{
    if let Handled::Quarantine(reason) = tenant.layers_allow(&delivery.event) {
        // Rejected: the dead letter says why, and the ack that follows finds a stale token.
        let _ = tenant.reject(group, &[delivery.token.to_string()], Some(reason)).await;
        return Ok(Ack);
    }
    let started = tenant.real();
    let handling = match std::panic::catch_unwind(AssertUnwindSafe(|| handler(delivery.event.clone()))) {
        Ok(future) => Guarded(Box::pin(future)).instrument(span(tenant, group, delivery)).await,
        Err(panic) => Err(panicked(panic)),
    };
    let took = tenant.real().saturating_sub(started);
    let now = tenant.now();
    // One that missed its deadline was counted as that; nobody takes its answer any more.
    if now < delivery.deadline {
        tenant.metrics().handled(&delivery.event.envelope.topic, group, handling.is_ok(), took.as_secs_f64());
        let handled = (delivery.event.as_ref(), delivery.attempt);
        tenant.trace_handled(group, handled, handling.is_ok(), (now, took));
    }
    handling
}

/// Seed 002's span around a handler; nothing unless somebody listens at debug level.
fn span(tenant: &Tenant, group: &str, delivery: &Delivery) -> Span {
    if !tenant.settings().switches.tracing {
        return Span::none();
    }
    let (event, retries) = (&delivery.event, delivery.attempt - 1);
    let trace = event.envelope.trace.as_deref();
    tracing::debug_span!(
        "events.handle",
        topic = event.envelope.topic,
        group,
        position = event.position,
        retries,
        trace
    )
}

/// A handler's future whose panic is an answer.
struct Guarded<F>(Pin<Box<F>>);

impl<F: Future<Output = Handling>> Future for Guarded<F> {
    type Output = Handling;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Handling> {
        let future = self.0.as_mut();
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(Err(panicked(panic))),
        }
    }
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Nack {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Nack::because(format!("handler panicked: {}", text.unwrap_or_else(|| "no message".to_owned())))
}
