//! One step: whether it is asked for, what it does, and what happens when it fails.

use std::time::Duration;

use model::Code;
use model::definition::{Action, OnError, Retry, Step};
use serde_json::{Map, Value, json};

use super::{Failure, Flow, Result, Stopped, Walk, failure};
use crate::condition;
use crate::run::{Block, Inside, WaitKind, mark};

impl Walk<'_, '_> {
    pub(super) fn step(&mut self, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        self.steps += 1;
        self.too_big()?;
        if let Some(Inside::Retry(wait)) = at.inside.as_deref() {
            if self.ended(*wait).is_none() {
                return Ok(Flow::Blocked);
            }
            let wait = *wait;
            self.forget(wait);
            at.inside = None;
        } else if at.inside.is_none() && !self.wanted(step)? {
            self.note(path, step, "skipped", at.failures, Map::new());
            self.bind_nothing(step, Value::Null);
            return Ok(Flow::Done(Value::Null));
        }
        if at.limit.is_some_and(|limit| self.ended(limit).is_some()) {
            let failure = self.give_up(at, path);
            return self.failed(step, at, path, failure);
        }
        let mark = if self.takes_back(step) { Some(self.draft.mark()?) } else { None };
        let result = self.act(step, at, path);
        match (result, mark) {
            (Ok(flow), mark) => {
                if let Some(mark) = mark {
                    self.draft.keep(mark)?;
                }
                match &flow {
                    Flow::Blocked => {
                        at.since.get_or_insert(self.draft.now);
                        self.limit(step, at, path)?;
                        self.name_waits(step, path);
                    }
                    _ => at.limit.take().into_iter().for_each(|limit| self.forget(limit)),
                }
                if let Flow::Done(output) = &flow {
                    let vars = self.vars_of(&step.action);
                    let duration = self.lasted(at).map_or(Value::Null, Value::from);
                    let said = [("output", output.clone()), ("vars", vars), ("duration", duration)];
                    self.note(path, step, "completed", at.failures, fields(said));
                    self.bind(step, output.clone());
                }
                Ok(flow)
            }
            (Err(Stopped::Failure(failure)), mark) => {
                match mark {
                    // A call that was not taken wrote only what became of it, and that stands.
                    Some(mark) if is_refused_call(step, &failure) => self.draft.keep(mark)?,
                    Some(mark) => self.draft.rewind(mark)?,
                    None => {}
                }
                self.failed(step, at, path, failure)
            }
            (Err(fault), _) => Err(fault),
        }
    }

    /// How many seconds a step took that came to a stand; the others take none of the engine's time.
    fn lasted(&self, at: &Block) -> Option<f64> {
        at.since.map(|since| self.draft.now.since(since).as_secs_f64())
    }

    /// Waits of a step that has an id say so.
    fn name_waits(&mut self, step: &Step, path: &str) {
        let Some(id) = &step.id else { return };
        let own = self.run.walk.waits.iter_mut().filter(|wait| wait.step.is_none() && wait.path == path);
        own.for_each(|wait| wait.step = Some(id.clone()));
    }

    /// What a `vars` step has just set; null for others.
    fn vars_of(&self, action: &Action) -> Value {
        match action {
            Action::Vars(vars) => {
                vars.keys().map(|name| (name.clone(), self.env.vars[name].clone())).collect()
            }
            _ => Value::Null,
        }
    }

    fn wanted(&self, step: &Step) -> Result<bool> {
        match &step.when {
            Some(when) => Ok(condition::test(&self.env, self.draft.state, when)?),
            None => Ok(true),
        }
    }

    /// Whether it may fail after it wrote, so that what it wrote is taken back. A single write or publish is decided before
    /// anything of it is folded. Inside logic that is the business of the call, unless the logic goes on after it.
    fn takes_back(&self, step: &Step) -> bool {
        let writes = matches!(step.action, Action::Logic(_) | Action::Atomic(_) | Action::Automation { .. });
        writes && (self.logic == 0 || step.on_error == OnError::Continue)
    }

    fn failed(&mut self, step: &Step, at: &mut Block, path: &str, failure: Failure) -> Result<Flow> {
        at.limit.take().into_iter().for_each(|limit| self.forget(limit));
        at.failures += 1;
        let error = json!({"code": failure.code, "message": failure.message, "class": failure.class});
        let error = fields([("error", error)]);
        // The outside said that it will end the same way each time, or until somebody pays.
        let outside = matches!(step.action, Action::Http(_) | Action::Outside(_));
        let is_final = failure.class == "budget" || failure.class == "permanent" && outside;
        let retry = step.retry.as_ref().filter(|retry| self.may_wait() && at.failures <= retry.max);
        if let Some(retry) = retry.filter(|_| !is_final) {
            let after = backoff(retry, at.failures, &self.run.id, path);
            let wait = self.wait(path, WaitKind::Retry, Some(after), Default::default());
            self.note(path, step, "waiting", at.failures, error);
            at.since.get_or_insert(self.draft.now);
            at.inside = Some(Box::new(Inside::Retry(wait)));
            return Ok(Flow::Blocked);
        }
        let mut ended = error;
        ended.extend(self.lasted(at).map(|seconds| ("duration".to_owned(), seconds.into())));
        self.note(path, step, "failed", at.failures, ended);
        if step.on_error == OnError::Continue {
            self.bind_nothing(step, json!({"code": failure.code, "message": failure.message}));
            return Ok(Flow::Done(Value::Null));
        }
        Err(Stopped::Failure(failure))
    }

    fn act(&mut self, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        match &step.action {
            Action::Value(input) => Ok(Flow::Done(self.env.input(self.draft.state, input)?)),
            Action::Vars(vars) => {
                for (name, input) in vars {
                    let value = self.env.input(self.draft.state, input)?;
                    self.env.vars[name] = value;
                }
                Ok(Flow::Done(Value::Null))
            }
            Action::Logic(call) => self.logic(call),
            Action::Query(call) => self.query(call, at, path),
            Action::Mutate(call) => self.mutate(call),
            Action::Publish(publish) => self.publish(publish),
            Action::If { .. } | Action::Switch(_) | Action::Atomic(_) => self.choose(&step.action, at, path),
            Action::Parallel { branches, any } => self.parallel(branches, *any, at, path),
            Action::For(each) => self.each(each, at, path),
            Action::Repeat(repeat) => self.repeat(repeat, at, path),
            Action::Delay(length) => self.delay(length, at, path),
            Action::WaitUntil(until) => self.wait_until(until, at, path),
            Action::WaitFor(wait) => self.wait_for(wait, at, path),
            Action::Ask(ask) => self.ask(ask, step, at, path),
            Action::Http(http) => self.http(http, step, at, path),
            Action::Outside(outside) => self.outside(outside, at, path),
            Action::Automation { call, wait } => self.call(call, *wait, at, path),
            Action::Stop { reason } => Ok(Flow::Leave(self.optional(reason.as_ref())?)),
            Action::Return { value } => Ok(Flow::Leave(self.optional(value.as_ref())?)),
            Action::Fail { message } => {
                let message = self.optional(message.as_ref())?;
                let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
                Err(failure(Code::RunFailed, message))
            }
        }
    }

    pub(super) fn optional(&self, input: Option<&model::definition::Input>) -> Result<Value> {
        match input {
            Some(input) => Ok(self.env.input(self.draft.state, input)?),
            None => Ok(Value::Null),
        }
    }

    fn outputs(&mut self) -> &mut Map<String, Value> {
        match self.env.frames.last_mut() {
            Some(frame) => &mut frame.outputs,
            None => &mut self.env.outputs,
        }
    }

    fn bind(&mut self, step: &Step, output: Value) {
        let Some(id) = &step.id else { return };
        let outputs = self.outputs();
        if outputs.insert(id.clone(), output).is_some() {
            outputs.remove(&mark(id));
        }
    }

    /// It has no output; `error` says why, null that it was skipped.
    fn bind_nothing(&mut self, step: &Step, error: Value) {
        self.bind(step, Value::Null);
        if let Some(id) = &step.id {
            self.outputs().insert(mark(id), error);
        }
    }

    /// `more` is said where it is not null.
    pub(super) fn note(
        &mut self,
        path: &str,
        step: &Step,
        status: &str,
        failures: u32,
        more: Map<String, Value>,
    ) {
        if self.logic > 0 {
            return;
        }
        let attempts = failures + u32::from(matches!(status, "completed"));
        let mut note = more;
        note.retain(|_, value| !value.is_null());
        let mut say = |name: &str, value: Value| _ = note.insert(name.to_owned(), value);
        say("path", path.into());
        say("kind", kind_of(&step.action).into());
        say("status", status.into());
        if attempts > 0 {
            say("attempts", attempts.into());
        }
        if let Some(id) = &step.id {
            say("id", id.as_str().into());
        }
        if let Some(by) = self.by.take() {
            say("by", by.into());
        }
        if let Some(event) = self.took.take() {
            say("event", event.into());
        }
        if !self.run.walk.band.is_least() {
            say("band", self.run.walk.band.as_str().into());
        }
        self.trace.push(Value::Object(note));
    }
}

fn fields<const N: usize>(said: [(&str, Value); N]) -> Map<String, Value> {
    said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn is_refused_call(step: &Step, failure: &Failure) -> bool {
    matches!(step.action, Action::Automation { .. }) && failure.code == Code::RunRefused.as_str()
}

/// U(0, min(base·mult^i, limit)), derived from the run, the step and the try, so that a replay waits as long.
fn backoff(retry: &Retry, failures: u32, run: &str, path: &str) -> Duration {
    let base = retry.base.unwrap_or(Duration::from_millis(500));
    // Who wants a longer base than that did not mean it to be cut short.
    let limit = retry.limit.unwrap_or(Duration::from_secs(30).max(base)).as_secs_f64();
    let base = base.as_secs_f64();
    let most = (base * retry.mult.unwrap_or(2.0).powi(failures as i32)).min(limit).max(0.0);
    let seed = json!([run, path, failures]).to_string();
    let hash = model::json::canonical_hash([seed.as_str()]);
    let share = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    Duration::from_secs_f64(most * f64::from(share) / f64::from(u32::MAX))
}

pub(super) fn kind_of(action: &Action) -> &str {
    match action {
        Action::Value(_) => "value",
        Action::Vars(_) => "vars",
        Action::Logic(_) => "call",
        Action::Query(_) => "query",
        Action::Mutate(_) => "mutate",
        Action::Publish(_) => "publish",
        Action::If { .. } => "if",
        Action::Switch(_) => "switch",
        Action::For(_) => "for",
        Action::Parallel { .. } => "parallel",
        Action::Repeat(_) => "repeat",
        Action::Atomic(_) => "atomic",
        Action::Delay(_) => "delay",
        Action::WaitUntil(_) => "wait_until",
        Action::WaitFor(_) => "wait_for",
        Action::Ask(_) => "ask",
        Action::Http(_) => "http",
        Action::Outside(outside) => &outside.runner,
        Action::Automation { .. } => "automation",
        Action::Stop { .. } => "stop",
        Action::Fail { .. } => "fail",
        Action::Return { .. } => "return",
    }
}
