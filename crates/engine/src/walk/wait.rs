//! Steps that stand still: `delay`, `wait_until`, `wait_for`; and how a walk keeps its waits.

use std::sync::Arc;
use std::time::Duration;

use lang::expr::{EntityRef, Refs};
use model::definition::{Action, Filter, Length, OnTimeout, Step, TriggerKind, WaitFor, WaitUntil};
use model::event::Event;
use model::record::How;
use model::{Code, Position, Timestamp};
use serde_json::{Map, Value, json};

use super::effect::failure_of;
use super::{Failure, Flow, Result, StateResult, Stopped, Walk, failure};
use crate::automation::patterns;
use crate::condition;
use crate::draft::Draft;
use crate::faults::planted;
use crate::route;
use crate::run::{Block, Ended, Inside, Run, Wait, WaitKind, band_of};
use crate::state::State;

/// Positions that a wait looks back over in the commit that arms it; further back it looks beside the writer.
const NEAR: u64 = 1_000;

impl Walk<'_, '_> {
    /// A new wait; gives its number.
    pub(super) fn wait(
        &mut self,
        path: &str,
        kind: WaitKind,
        lasts: Option<Duration>,
        env: Map<String, Value>,
    ) -> u32 {
        self.run.walk.waited += 1;
        let number = self.run.walk.waited;
        let since = self.draft.now;
        self.run.walk.waits.push(Wait {
            number,
            path: path.to_owned(),
            step: None,
            kind,
            since,
            due: lasts.map(|lasts| since.plus(lasts)),
            lasts_ms: lasts.map(|lasts| lasts.as_millis() as u64),
            env,
            ended: None,
        });
        number
    }

    /// How a wait ended, if it has.
    pub(super) fn ended(&self, number: u32) -> Option<Ended> {
        self.run.wait(number).and_then(|wait| wait.ended.clone())
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.run.walk.waits.retain(|wait| wait.number != number);
    }

    /// Forgets the waits of everything below a step.
    pub(super) fn forget_below(&mut self, path: &str) {
        self.run.walk.waits.retain(|wait| !is_below(&wait.path, path));
    }

    /// A step that may only take so long, and stands still: its time begins.
    pub(super) fn limit(&mut self, step: &Step, at: &mut Block, path: &str) -> Result<()> {
        // A request and a question end by themselves. Of the others all time is waiting, and a step's clock stands still then.
        let is_own = matches!(
            step.action,
            Action::Http(_) | Action::Ask(_) | Action::Delay(_) | Action::WaitUntil(_) | Action::WaitFor(_)
        );
        let is_retry = matches!(at.inside.as_deref(), Some(Inside::Retry(_)));
        let Some(length) = step.timeout.as_ref().filter(|_| !is_own && !is_retry) else { return Ok(()) };
        let number = match at.limit {
            Some(number) => number,
            None => {
                let length = self.env.length(self.draft.state, length)?;
                self.wait(path, WaitKind::Limit, Some(length), Map::new())
            }
        };
        at.limit = Some(number);
        let (now, goes_on) = (self.draft.now, self.clock_goes_on(path));
        if let Some(limit) = self.run.wait_mut(number) {
            keep_time(limit, now, goes_on);
        }
        Ok(())
    }

    /// The clock of a step stands still while all that steps in it do is wait. Work that is done for it counts.
    fn clock_goes_on(&self, path: &str) -> bool {
        let works = |kind: &WaitKind| {
            matches!(kind, WaitKind::Effect(_) | WaitKind::Call { .. } | WaitKind::Retry | WaitKind::Yield)
        };
        let open = self.run.walk.waits.iter().filter(|wait| wait.ended.is_none());
        let mut below = open.filter(|wait| is_below(&wait.path, path)).peekable();
        below.peek().is_none() || below.any(|wait| works(&wait.kind))
    }

    /// The step's time is over: it, and all that it waits for, is given up.
    pub(super) fn give_up(&mut self, at: &mut Block, path: &str) -> Failure {
        self.forget_below(path);
        self.run.walk.waits.retain(|wait| wait.path != path);
        (at.inside, at.limit) = (None, None);
        let message = "the step took longer than its timeout".to_owned();
        Failure { code: Code::StepTimeout.as_str().to_owned(), message, class: "transient" }
    }

    /// Refuses to stand still where nothing may.
    pub(super) fn stands_still(&self) -> Result<()> {
        match self.may_wait() {
            true => Ok(()),
            false => Err(failure(Code::DefinitionInvalid, "nothing waits inside `atomic` or logic")),
        }
    }

    pub(super) fn delay(&mut self, length: &Length, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            let number = *number;
            if self.ended(number).is_none() {
                return Ok(Flow::Blocked);
            }
            self.forget(number);
            return Ok(Flow::Done(Value::Null));
        }
        let length = self.env.length(self.draft.state, length)?;
        if length.is_zero() {
            return Ok(Flow::Done(Value::Null));
        }
        self.stands_still()?;
        let number = self.wait(path, WaitKind::Delay, Some(length), Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    /// The condition is asked in this very commit and armed in it, so no change can slip between.
    pub(super) fn wait_until(&mut self, until: &WaitUntil, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            return self.resume(*number, until.on_timeout);
        }
        self.stands_still()?;
        let timeout =
            until.timeout.as_ref().map(|length| self.env.length(self.draft.state, length)).transpose()?;
        // One that cannot be evaluated does not hold yet; one that looks at too much never will.
        let is_so = match condition::test(&self.env, self.draft.state, &until.condition) {
            Err(problem) if problem.code() == Code::ExprLimit => return Err(problem.into()),
            tested => tested.unwrap_or(false),
        };
        if is_so && !planted("arm_after_check") {
            self.env.wait = json!({"completed": true, "remaining": timeout.map(|left| left.as_secs_f64())});
            return Ok(Flow::Done(self.env.wait.clone()));
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.timed_out(until.on_timeout, Some(0.0));
        }
        let refs = condition::refs(&until.condition);
        let kind = WaitKind::Until {
            condition: until.condition.clone(),
            refs: rows_of(self.draft.state, &self.env.entities(self.draft.state, &refs)),
            indeterminate: refs.may_read_any_row(),
            recheck: refs.now.then(|| condition::next_try(&self.env, self.draft.state, &until.condition)),
        };
        let env = self.env.snapshot(&refs);
        let number = self.wait(path, kind, timeout, env);
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    pub(super) fn wait_for(&mut self, wait: &WaitFor, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            let taken = self.ended(*number).and_then(|ended| ended.event);
            let flow = self.resume(*number, wait.on_timeout)?;
            if let Some(event) = taken {
                self.takes(path, event);
            }
            return Ok(flow);
        }
        self.stands_still()?;
        let timeout =
            wait.timeout.as_ref().map(|length| self.env.length(self.draft.state, length)).transpose()?;
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        let refs = match &wait.filter {
            Some(Filter::Expr(expr)) => Refs::of(&expr.0),
            _ => Refs::default(),
        };
        let env = self.env.snapshot(&refs);
        let looks_back = matches!(wait.trigger, TriggerKind::Event(_)) && !planted("arm_after_check");
        let (floor, _) = self.run.walk.taken_by(path);
        let after = if looks_back { floor.max(self.run.occurrence.position) } else { self.draft.next() };
        let far = looks_back && self.draft.has_past() && self.draft.come() > after + NEAR;
        let looking = far && refs.entities.is_empty() && !refs.may_read_any_row();
        let dwell =
            wait.dwell.as_ref().map(|length| self.env.length(self.draft.state, length)).transpose()?;
        let kind = WaitKind::For {
            trigger: wait.trigger.clone(),
            filter: wait.filter.clone(),
            after,
            looking,
            dwell_ms: dwell.map(|dwell| dwell.as_millis() as u64).filter(|dwell| *dwell > 0),
            held: None,
        };
        let number = self.wait(path, kind, timeout, env);
        let found = match self.run.wait(number).filter(|_| looks_back && !looking) {
            Some(wait) => earlier(self.draft, &self.run, wait, after)?,
            None => None,
        };
        if let Some(event) = found {
            self.forget(number);
            let remaining = timeout.map(|left| left.as_secs_f64());
            self.env.wait = json!({"completed": true, "remaining": remaining, "event": event.to_value()});
            self.takes(path, event.position);
            return Ok(Flow::Done(self.env.wait.clone()));
        }
        if at_once && !looking {
            self.forget(number);
            return self.timed_out(wait.on_timeout, Some(0.0));
        }
        if let Some(wait) = self.run.wait_mut(number).filter(|_| at_once) {
            // It looks once, and that look is under way: what ends it is the look, not the clock.
            wait.due = None;
        }
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    /// The event that stands in `wait` now.
    fn takes(&mut self, path: &str, event: Position) {
        self.run.walk.took(path, event);
        self.run.walk.hears(band_of(&self.env.wait["event"]));
        self.took = Some(event);
    }

    /// A wait for something ended, or not yet.
    fn resume(&mut self, number: u32, on_timeout: OnTimeout) -> Result<Flow> {
        let Some(ended) = self.ended(number) else { return Ok(Flow::Blocked) };
        let wait = self.run.wait(number);
        let (due, limit) = (wait.and_then(|wait| wait.due), wait.and_then(|wait| wait.lasts_ms));
        self.forget(number);
        let remaining = due.map(|due| due.since(ended.at).as_secs_f64()).or(limit.map(|_| 0.0));
        match ended.how {
            How::Timeout => return self.timed_out(on_timeout, remaining.map(|_| 0.0)),
            How::Failed => return Err(Stopped::Failure(failure_of(&ended.value))),
            _ => {}
        }
        let event = match ended.event {
            Some(position) => match self.draft.state.event_value(position)? {
                Some(event) => Some(event.as_ref().clone()),
                // Found far back: its copy came with the answer.
                None => Some(ended.value).filter(|event| !event.is_null()),
            },
            None => None,
        };
        self.env.wait = json!({"completed": true, "remaining": remaining});
        if let Some(event) = event {
            self.env.wait["event"] = event;
        }
        Ok(Flow::Done(self.env.wait.clone()))
    }

    fn timed_out(&mut self, on_timeout: OnTimeout, remaining: Option<f64>) -> Result<Flow> {
        self.env.wait = json!({"completed": false, "remaining": remaining});
        match on_timeout {
            OnTimeout::Continue => Ok(Flow::Done(self.env.wait.clone())),
            OnTimeout::Fail => Err(failure(Code::WaitTimeout, "what it waited for did not come in time")),
        }
    }
}

/// The first event after `after` that this wait would have taken, had it been armed.
pub(crate) fn earlier(
    draft: &Draft<'_>,
    run: &Run,
    wait: &Wait,
    after: Position,
) -> StateResult<Option<Arc<Event>>> {
    let WaitKind::For { trigger, .. } = &wait.kind else { return Ok(None) };
    let Some(automation) = draft.state.version(&run.automation, &run.hash) else { return Ok(None) };
    let topics = patterns(trigger).unwrap_or_default();
    draft.look_back(after, |event| {
        let fits = topics.iter().any(|pattern| pattern.receives(&event.envelope.topic));
        Ok(fits && route::wait_takes(draft.state, &automation, run, wait, event, &event.to_value())?)
    })
}

fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Stops the clock of a limit, or lets it go on with what is left.
fn keep_time(limit: &mut Wait, now: Timestamp, goes_on: bool) {
    match (limit.due, limit.lasts_ms) {
        (Some(due), _) if !goes_on => {
            (limit.due, limit.lasts_ms) = (None, Some(due.since(now).as_millis() as u64));
        }
        (None, Some(left)) if goes_on => {
            (limit.since, limit.due) = (now, Some(now.plus(Duration::from_millis(left))));
        }
        _ => {}
    }
}

/// References by the concepts' ids: `concept/id`, `concept/*`.
fn rows_of(state: &State, entities: &[EntityRef]) -> Vec<String> {
    let id_of = |kind: &str| state.catalog.concept(kind).map_or(kind.to_owned(), |c| c.id().to_owned());
    let name = |entity: &EntityRef| match entity {
        EntityRef::One { kind, id } => format!("{}/{id}", id_of(kind)),
        EntityRef::All { kind } => format!("{}/*", id_of(kind)),
    };
    entities.iter().map(name).collect()
}
