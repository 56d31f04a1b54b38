//! Steps that act outside: asked for here, worked on elsewhere, at least once, under a key that no retry changes.
//!
//! With `once: true` an attempt whose end nobody knows is not made again: a person says what happened.

use model::Code;
use model::definition::{Http, OnError, Outside, Step};
use model::record::How;
use serde_json::{Map, Value, json};

use super::{Failure, Flow, Result, Stopped, Walk, failure};
use crate::effect::secret;
use crate::run::{Block, Ended, Inside, Marks, Request, TASK, WaitKind};

/// What a person may answer when it is not known whether an effect happened.
const ANSWERS: [&str; 3] = ["done", "again", "failed"];

impl Walk<'_, '_> {
    pub(super) fn http(&mut self, http: &Http, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        let Some(Inside::Wait(number)) = at.inside.as_deref() else {
            return self.ask_for(http, step, at, path);
        };
        let number = *number;
        let Some(ended) = self.ended(number) else { return Ok(Flow::Blocked) };
        self.forget(number);
        match (ended.how, ended.value.as_str()) {
            (How::Answered, Some("again")) => self.ask_for(http, step, at, path),
            (How::Answered, Some("failed")) => {
                Err(failure(Code::EffectUnknown, "a person said that it failed"))
            }
            (How::Answered, _) => Ok(Flow::Done(Value::Null)),
            (How::Done, _) => Ok(Flow::Done(ended.value)),
            _ => self.not_done(http, step, ended, at, path),
        }
    }

    fn ask_for(&mut self, http: &Http, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        self.stands_still()?;
        let (mut with, secrets) = self.naming_secrets(|walk| {
            Ok(json!({
                "method": http.method, "url": walk.env.input(walk.draft.state, &http.url)?,
                "headers": walk.optional(http.headers.as_ref())?, "body": walk.optional(http.body.as_ref())?,
            }))
        })?;
        if let Some(length) = &step.timeout {
            with["timeout"] = self.env.length(self.draft.state, length)?.as_secs_f64().into();
        }
        let request =
            Request { kind: "http".to_owned(), with, once: http.once, secrets, ..Request::default() };
        self.ask_outside(request, at, path)
    }

    /// It failed; or nobody knows, which is asked, unless the step says how to go on.
    fn not_done(
        &mut self,
        http: &Http,
        step: &Step,
        ended: Ended,
        at: &mut Block,
        path: &str,
    ) -> Result<Flow> {
        let failure = failure_of(&ended.value);
        if failure.code != Code::EffectUnknown.as_str() || step.on_error == OnError::Continue {
            return Err(Stopped::Failure(failure));
        }
        let (url, _) = self.naming_secrets(|walk| Ok(walk.env.input(walk.draft.state, &http.url)?))?;
        let url = url.as_str().unwrap_or_default();
        let question = format!("did {} {url} happen? {}", http.method, failure.message);
        let kind = WaitKind::Ask {
            question: question.into(),
            to: Value::Null,
            options: ANSWERS.map(Value::from).to_vec(),
            form: Vec::new(),
            approve: false,
            default: Value::Null,
        };
        let number = self.wait(path, kind, None, Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    /// What a step asks of the outside, with a mark for each secret in it. The marks are chosen so that nothing else in it
    /// reads like one: whoever sends an event cannot have a secret put where the author did not.
    pub(super) fn naming_secrets(&mut self, ask: impl Fn(&Self) -> Result<Value>) -> Result<(Value, Marks)> {
        let names = match &self.env.about {
            Some(about) if !about.automation.secrets.is_empty() => about.automation.secrets.clone(),
            _ => return Ok((ask(self)?, Marks::new())),
        };
        let mut asked = |marks: &Marks| {
            self.env.fixed.insert("secrets".to_owned(), json!(marks));
            let made = ask(self);
            self.env.fixed.remove("secrets");
            made
        };
        let bare = asked(&names.iter().map(|name| (name.clone(), String::new())).collect())?;
        let marks = secret::marks(&names, &bare);
        Ok((asked(&marks)?, marks))
    }

    /// `exec`, `agent`, `deliver`: without runners they are asked for only where the outside is pretended.
    pub(super) fn outside(&mut self, outside: &Outside, at: &mut Block, path: &str) -> Result<Flow> {
        if outside.runner == TASK {
            return self.task(&outside.with, at, path);
        }
        if let Some(answer) = self.answer_of(at) {
            return answer;
        }
        if !self.draft.state.pretends {
            let message = format!("no runner configured for \"{}\"", outside.runner);
            return Err(failure(Code::EffectNoRunner, message));
        }
        self.stands_still()?;
        let request = Request {
            kind: outside.runner.clone(),
            with: self.env.input(self.draft.state, &outside.with)?,
            ..Request::default()
        };
        self.ask_outside(request, at, path)
    }

    /// Asks for it, under a key that is the same on every try, and stands still until somebody says what became of it.
    pub(super) fn ask_outside(&mut self, request: Request, at: &mut Block, path: &str) -> Result<Flow> {
        let request = Request {
            key: format!("{}:{path}", self.run.id),
            attempt: at.failures + 1,
            scheduled: self.run.occurrence.kind == "schedule",
            ..request
        };
        let number = self.wait(path, WaitKind::Effect(Box::new(request)), None, Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    /// What became of what a step asked for; `None`: it has not asked yet.
    pub(super) fn answer_of(&mut self, at: &Block) -> Option<Result<Flow>> {
        let Some(Inside::Wait(number)) = at.inside.as_deref() else { return None };
        let number = *number;
        let Some(ended) = self.ended(number) else { return Some(Ok(Flow::Blocked)) };
        self.forget(number);
        Some(match ended.how {
            How::Done => Ok(Flow::Done(ended.value)),
            _ => Err(Stopped::Failure(failure_of(&ended.value))),
        })
    }
}

/// What a worker says of an effect that failed.
pub(super) fn failure_of(value: &Value) -> Failure {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let class = match value["class"].as_str() {
        Some("permanent") => "permanent",
        Some("budget") => "budget",
        _ => "transient",
    };
    Failure { code: text("code"), message: text("message"), class }
}
