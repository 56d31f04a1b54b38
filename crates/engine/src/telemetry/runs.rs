//! From records of runs to spans: `decide`, `run` and `step`. Which runs are under way is memory, bounded; a run that is not
//! there any more, or began in an earlier life of the process, is read again from where its start is recorded.

use std::collections::BTreeMap;
use std::sync::Weak;

use model::event::Event;
use model::record::RunStarted;
use model::{Position, Timestamp};

use super::Sampler;
use super::context::{Context, base};
use super::span::Span;
use crate::tenant::{Inner, Tenant};

/// Runs that are remembered.
const LIVE_MAX: usize = 10_000;

/// One record, as far as spans need it.
pub(crate) struct Fact {
    pub of: Of,
    pub at: Timestamp,
    pub what: What,
}

/// Whose record, and where more can be read.
#[derive(Clone)]
pub(crate) struct Of {
    pub tenant: String,
    pub home: Weak<Inner>,
}

pub(crate) enum What {
    /// What became of an event, for each automation that it met.
    Decided {
        event: Position,
        verdicts: Vec<Decided>,
    },
    Started {
        run: Position,
        begun: Begun,
    },
    Walked {
        run: Position,
        steps: Vec<Step>,
    },
    Woken {
        run: Position,
    },
    Ended {
        run: Position,
        steps: Vec<Step>,
        status: &'static str,
        code: Option<String>,
    },
}

/// What a run's start says, without what it was given.
pub(crate) struct Begun {
    id: String,
    automation: String,
    trigger: String,
    attempt: u32,
    /// 0: the start quotes what it reads.
    event: Position,
    trace: Option<String>,
}

impl Begun {
    pub fn of(started: &RunStarted) -> Begun {
        let quoted = started.synthetic.as_ref();
        Begun {
            id: started.id.clone(),
            automation: started.automation.clone(),
            trigger: started.trigger.clone(),
            attempt: started.attempt,
            event: if quoted.is_none() { started.event } else { 0 },
            trace: quoted.and_then(|event| event["trace"].as_str()).map(str::to_owned),
        }
    }
}

pub(crate) struct Decided {
    pub automation: String,
    pub trigger: String,
    pub outcome: &'static str,
    pub gate: Option<String>,
    pub reason: Option<String>,
}

pub(crate) struct Step {
    pub path: String,
    pub kind: String,
    pub status: String,
    pub attempts: u64,
    pub code: Option<String>,
}

/// A run that has not ended.
struct Live {
    /// Its own span, and what is before that.
    context: Context,
    parent: Option<[u8; 8]>,
    begun: Begun,
    began: Timestamp,
    /// When it last stood still, and when it went on.
    stood: Timestamp,
    woken: Option<Timestamp>,
}

pub(super) struct Runs {
    sampler: Sampler,
    live: BTreeMap<(String, Position), Live>,
}

impl Runs {
    pub fn new(sampler: Sampler) -> Runs {
        Runs { sampler, live: BTreeMap::new() }
    }

    pub fn take(&mut self, fact: Fact, spans: &mut Vec<Span>) {
        let Fact { of, at, what } = fact;
        match what {
            What::Decided { event, verdicts } => self.decided(&of, at, (event, &verdicts), spans),
            What::Started { run, begun } => {
                let live = self.begun(&of, at, begun);
                self.keep(&of, run, live);
            }
            What::Woken { run } => {
                if let Some(live) = self.live.get_mut(&(of.tenant, run)) {
                    live.woken = Some(at);
                }
            }
            What::Walked { run, steps } => {
                let Some(mut live) = self.remembered(&of, run) else { return };
                live.walked(at, &steps, spans);
                self.keep(&of, run, live);
            }
            What::Ended { run, steps, status, code } => {
                let Some(mut live) = self.remembered(&of, run) else { return };
                live.walked(at, &steps, spans);
                live.ended(&of.tenant, at, (status, code), spans);
            }
        }
    }

    fn decided(
        &self,
        of: &Of,
        at: Timestamp,
        (event, verdicts): (Position, &[Decided]),
        spans: &mut Vec<Span>,
    ) {
        let Some(event) = of.event(event) else { return };
        let before = self.base(&event);
        for verdict in verdicts.iter().filter(|_| before.sampled) {
            let context = before.child(&["decide", &verdict.automation, &verdict.trigger]);
            let mut span = Span::below("decide", &before, context)
                .tag("tenant", of.tenant.as_str())
                .tag("automation", verdict.automation.as_str())
                .tag("trigger", verdict.trigger.as_str())
                .tag("outcome", verdict.outcome)
                .tag_some("gate", verdict.gate.as_deref())
                .tag_some("reason", verdict.reason.as_deref())
                .tag("position", event.position);
            (span.began, span.ended) = (event.recorded_at, at);
            spans.push(span);
        }
    }

    /// Where an event's readers go on from; an event without a trace begins one.
    fn base(&self, event: &Event) -> Context {
        match base(event) {
            Some(said) => Context { sampled: self.sampler.samples(&said), ..said },
            None => self.derived(&["event", &event.envelope.id]),
        }
    }

    fn derived(&self, parts: &[&str]) -> Context {
        let context = Context::root(parts);
        Context { sampled: self.sampler.begins(&context.trace), ..context }
    }

    fn begun(&self, of: &Of, at: Timestamp, begun: Begun) -> Live {
        let event = of.event(begun.event).filter(|event| base(event).is_some());
        let said = begun.trace.as_deref().and_then(Context::parse);
        let (before, parent) = match (event, said) {
            (Some(event), _) => {
                let before = self.base(&event);
                let decide = before.child(&["decide", &begun.automation, &begun.trigger]);
                (before, decide.parent())
            }
            (None, Some(said)) => (Context { sampled: self.sampler.samples(&said), ..said }, said.parent()),
            // Its effects must find the same, and know no more of it than its id.
            (None, None) => (self.derived(&["run", &begun.id]), None),
        };
        let context = before.child(&["run", &begun.id]);
        Live { context, parent, begun, began: at, stood: at, woken: None }
    }

    fn keep(&mut self, of: &Of, run: Position, live: Live) {
        if self.live.len() >= LIVE_MAX {
            self.live.pop_first();
        }
        self.live.insert((of.tenant.clone(), run), live);
    }

    fn remembered(&mut self, of: &Of, run: Position) -> Option<Live> {
        let known = self.live.remove(&(of.tenant.clone(), run));
        known.or_else(|| {
            let (started, at) = of.started(run)?;
            Some(self.begun(of, at, Begun::of(&started)))
        })
    }
}

impl Of {
    fn event(&self, position: Position) -> Option<std::sync::Arc<Event>> {
        let tenant = Tenant(self.home.upgrade()?);
        (position > 0).then(|| tenant.event_for_span(position)).flatten()
    }

    fn started(&self, run: Position) -> Option<(RunStarted, Timestamp)> {
        Tenant(self.home.upgrade()?).start_for_span(run)
    }
}

impl Live {
    /// The first step of a stretch may be what it stood still at; the others began when it went on.
    fn walked(&mut self, at: Timestamp, steps: &[Step], spans: &mut Vec<Span>) {
        let mut began = self.stood;
        // A try that is followed by another is told by its effect.
        for step in steps.iter().filter(|step| self.context.sampled && step.status != "waiting") {
            let context = self.context.child(&["step", &self.begun.id, &step.path]);
            let mut span = Span::below("step", &self.context, context)
                .tag("run", self.begun.id.as_str())
                .tag("path", step.path.as_str())
                .tag("kind", step.kind.as_str())
                .tag("status", step.status.as_str())
                .tag("attempts", step.attempts);
            (span.began, span.ended) = (began, at);
            span.error = (step.status == "failed").then(|| step.code.clone().unwrap_or_default());
            spans.push(span);
            began = self.woken.unwrap_or(self.stood);
        }
        (self.stood, self.woken) = (at, None);
    }

    fn ended(
        self,
        tenant: &str,
        at: Timestamp,
        (status, code): (&'static str, Option<String>),
        spans: &mut Vec<Span>,
    ) {
        if !self.context.sampled {
            return;
        }
        let before = Context { span: self.parent.unwrap_or_default(), ..self.context };
        let mut span = Span::below("run", &before, self.context)
            .tag("tenant", tenant)
            .tag("run", self.begun.id.as_str())
            .tag("automation", self.begun.automation.as_str())
            .tag("trigger", self.begun.trigger.as_str())
            .tag("attempt", u64::from(self.begun.attempt))
            .tag("status", status);
        (span.began, span.ended) = (self.began, at);
        span.error = if status == "failed" { Some(code.unwrap_or_default()) } else { None };
        spans.push(span);
    }
}
