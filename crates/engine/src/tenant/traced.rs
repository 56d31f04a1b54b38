//! What a tenant tells as spans: publishes, deliveries, effects, and the records of runs. Each is nothing when nobody wants them.

use std::sync::Arc;
use std::time::Duration;

use model::event::Event;
use model::record::{How, RunRecord, RunStarted};
use model::{Position, Problem, Timestamp};
use serde_json::Value;

use super::Tenant;
use crate::admit::{Caller, Draft};
use crate::apply::Place;
use crate::command::Outcome;
use crate::read;
use crate::run::Effect;
use crate::telemetry::{
    Begun, Context, Decided, Fact, Kind, Of, Span, Step, Tag, Telemetry, What, base, passed_on,
};

/// A publish that is told: its span, without its end.
pub(super) struct Publishing {
    span: Span,
    started: Duration,
}

impl Tenant {
    /// Who takes spans; the layer `tracing` of the tenant must be on, too.
    fn telemetry(&self) -> Option<&Arc<Telemetry>> {
        self.0.around.telemetry.as_ref().filter(|_| self.settings().switches.tracing)
    }

    pub(super) fn is_traced(&self) -> bool {
        self.telemetry().is_some()
    }

    /// A publish from outside begins: what reads the event later goes on from its span, unless the event says from where.
    pub(super) fn begin_publish(&self, caller: &Caller, draft: &mut Draft) -> Option<Publishing> {
        let telemetry = self.telemetry().filter(|_| caller.outside)?;
        let said = draft.trace.as_deref().or(caller.trace.as_deref());
        let parent = said.and_then(Context::parse);
        let context = telemetry.begun(parent, self.random());
        if draft.trace.is_none() {
            draft.trace = Some(context.to_string());
        }
        if !context.sampled {
            return None;
        }
        let before = parent.unwrap_or(Context { span: [0; 8], ..context });
        let mut span = Span::below("events.publish", &before, context)
            .tag("topic", draft.topic.as_str())
            .tag("space_id", draft.space.as_deref().unwrap_or(&self.settings().default_space))
            .tag("size_bytes", draft.payload.get().len() as u64)
            .tag("tenant", self.name());
        (span.kind, span.began) = (Kind::Producer, self.now());
        Some(Publishing { span, started: self.real() })
    }

    pub(super) fn end_publish(&self, publishing: Option<Publishing>, outcome: Result<&Outcome, &Problem>) {
        let (Some(Publishing { mut span, started }), Some(telemetry)) = (publishing, self.telemetry()) else {
            return;
        };
        span.ended = span.began.plus(self.real().saturating_sub(started));
        span = match outcome {
            Ok(Outcome::Recorded(receipt)) => span
                .tag("id", receipt.id.as_str())
                .tag("position", receipt.position)
                .tag_some("duplicate", receipt.duplicate.then_some("true")),
            Ok(Outcome::Deferred { .. }) => span.tag("attention", "defer"),
            Ok(Outcome::Dropped { .. }) => span.tag("attention", "drop"),
            Err(problem) => Span { error: Some(problem.code().as_str().to_owned()), ..span },
        };
        telemetry.tell(span);
    }

    /// An event that a run published was committed.
    pub(super) fn trace_published(&self, event: &Event) {
        let (Some(run), Some(telemetry)) = (&event.envelope.run, self.telemetry()) else { return };
        let Some(context) = base(event).map(|said| telemetry.judged(said)) else { return };
        let mut span = Span::below("events.publish", &context.child(&["run", run]), context)
            .tag("topic", event.envelope.topic.as_str())
            .tag("space_id", event.envelope.space.as_str())
            .tag("size_bytes", event.content.payload().map_or(0, str::len) as u64)
            .tag("tenant", self.name())
            .tag("id", event.envelope.id.as_str())
            .tag("position", event.position);
        (span.kind, span.began, span.ended) = (Kind::Producer, event.recorded_at, event.recorded_at);
        telemetry.tell(span);
    }

    /// A delivery ended, `held` after it was handed out.
    pub(crate) fn trace_handled(
        &self,
        group: &str,
        (event, attempt): (&Event, u32),
        ok: bool,
        (ended, held): (Timestamp, Duration),
    ) {
        let Some((before, context)) = self.handling(group, event, attempt) else { return };
        let mut span = Span::below("events.handle", &before, context)
            .tag("topic", event.envelope.topic.as_str())
            .tag("group", group)
            .tag("offset", event.position)
            .tag("retries", u64::from(attempt.saturating_sub(1)))
            .tag("lat_ms", Tag::Share(held.as_secs_f64() * 1e3))
            .tag("tenant", self.name());
        (span.kind, span.began, span.ended) = (Kind::Consumer, ended.minus(held), ended);
        span.error = (!ok).then(|| "nack".to_owned());
        if let Some(telemetry) = self.telemetry() {
            telemetry.tell(span);
        }
    }

    /// The context of a delivery, and that before it.
    fn handling(&self, group: &str, event: &Event, attempt: u32) -> Option<(Context, Context)> {
        let telemetry = self.telemetry()?;
        let before = match base(event) {
            Some(said) => telemetry.judged(said),
            None => telemetry.derived(&["event", &event.envelope.id]),
        };
        let parts = ["handle", group, event.envelope.id.as_str(), &attempt.to_string()];
        Some((before, before.child(&parts)))
    }

    /// The `traceparent` of a request that hands an event on to another.
    pub(crate) fn traceparent_of_delivery(&self, group: &str, event: &Event, attempt: u32) -> Option<String> {
        match self.handling(group, event, attempt) {
            Some((_, context)) => Some(context.to_string()),
            None => passed_on(event.envelope.trace.as_deref()),
        }
    }

    /// The `traceparent` of a request that a run makes.
    pub(crate) fn traceparent_of(&self, effect: &Effect) -> Option<String> {
        match self.effecting(effect) {
            Some((_, context)) => Some(context.to_string()),
            None => passed_on(effect.trace.as_deref()),
        }
    }

    fn effecting(&self, effect: &Effect) -> Option<(Context, Context)> {
        let telemetry = self.telemetry()?;
        let trace = match effect.trace.as_deref().and_then(Context::parse) {
            Some(said) => telemetry.judged(said),
            None => telemetry.derived(&["run", &effect.run_id]),
        };
        let step = trace.child(&["step", &effect.run_id, &effect.path]);
        let wait = effect.wait.to_string();
        Some((step, trace.child(&["effect", &effect.run_id, &wait])))
    }

    /// An attempt at an effect ended.
    pub(crate) fn trace_effect(&self, effect: &Effect, began: Timestamp, how: How, value: &Value) {
        let Some((step, context)) = self.effecting(effect).filter(|(_, context)| context.sampled) else {
            return;
        };
        let mut span = Span::below("effect", &step, context)
            .tag("run", effect.run_id.as_str())
            .tag("automation", effect.automation.as_str())
            .tag("path", effect.path.as_str())
            .tag("kind", effect.kind.as_str())
            .tag("attempt", u64::from(effect.attempt))
            .tag_some("http.request.method", effect.with["method"].as_str())
            .tag_some("http.response.status_code", value["status"].as_u64())
            .tag("tenant", self.name());
        (span.kind, span.began, span.ended) = (Kind::Client, began, self.now());
        let code = value["code"].as_str().unwrap_or_default();
        span.error = (how != How::Done).then(|| code.to_owned());
        if let Some(telemetry) = self.telemetry() {
            telemetry.tell(span);
        }
    }

    /// A record of a run was committed. Here on the writer's thread as little as can be is done.
    pub(super) fn trace_run(&self, place: Place, record: &RunRecord) {
        let Some(telemetry) = self.telemetry() else { return };
        let what = match record {
            RunRecord::Routed(routed) if routed.event > 0 => {
                let verdicts = routed.verdicts.iter().map(|verdict| Decided {
                    automation: verdict.automation.clone(),
                    trigger: verdict.trigger.clone(),
                    outcome: verdict.outcome.as_str(),
                    gate: verdict.gate.clone(),
                    reason: verdict.reason.clone(),
                });
                What::Decided { event: routed.event, verdicts: verdicts.collect() }
            }
            RunRecord::Started(started) => What::Started { run: place.position, begun: Begun::of(started) },
            RunRecord::Moved(moved) => What::Walked { run: moved.run, steps: steps(&moved.steps) },
            RunRecord::WaitEnded(ended) => What::Woken { run: ended.run },
            RunRecord::Ended(ended) => What::Ended {
                run: ended.run,
                steps: steps(&ended.steps),
                status: ended.status.as_str(),
                code: ended.code.clone(),
            },
            _ => return,
        };
        let of = Of { tenant: self.name().to_owned(), home: Arc::downgrade(&self.0) };
        telemetry.tell_run(Fact { of, at: place.time, what });
    }

    /// As far as it is still there.
    pub(crate) fn event_for_span(&self, position: Position) -> Option<Arc<Event>> {
        let tail = self.0.tail.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let near = tail.read(position, 1).and_then(|events| events.into_iter().next());
        drop(tail);
        let near = near.filter(|event| event.position == position);
        near.or_else(|| self.with_reader(|reader| read::event_at(reader, position)).ok().flatten())
    }

    pub(crate) fn start_for_span(&self, run: Position) -> Option<(RunStarted, Timestamp)> {
        match self.with_reader(|reader| read::run_record_at(reader, run)).ok()?? {
            (RunRecord::Started(started), at) => Some((*started, at)),
            _ => None,
        }
    }
}

fn steps(told: &[Value]) -> Vec<Step> {
    let text = |step: &Value, name: &str| step[name].as_str().unwrap_or_default().to_owned();
    let step = |step: &Value| Step {
        path: text(step, "path"),
        kind: text(step, "kind"),
        status: text(step, "status"),
        attempts: step["attempts"].as_u64().unwrap_or(0),
        code: step["error"]["code"].as_str().map(str::to_owned),
    };
    told.iter().map(step).collect()
}
