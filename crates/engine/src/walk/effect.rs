//! Steps that act outside: asked for here, worked on elsewhere, at least once, under a key that no retry changes.

use std::time::Duration;

use model::definition::{Http, Outside, Step};
use model::record::How;
use serde_json::{Map, Value, json};

use super::{Failure, Flow, Result, Stopped, Walk, failure};
use crate::run::{Block, Inside, WaitKind};

/// How long an effect may take that names no other time.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Walk<'_, '_> {
    pub(super) fn http(&mut self, http: &Http, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            let number = *number;
            let Some(ended) = self.ended(number) else { return Ok(Flow::Blocked) };
            self.forget(number);
            return match ended.how {
                How::Done => Ok(Flow::Done(ended.value)),
                _ => Err(Stopped::Failure(failure_of(&ended.value))),
            };
        }
        let state = &self.draft.state;
        let timeout = match &step.timeout {
            Some(length) => self.env.length(state, length)?,
            None => TIMEOUT,
        };
        let with = json!({
            "method": http.method, "url": self.env.input(state, &http.url)?,
            "headers": self.optional(http.headers.as_ref())?, "body": self.optional(http.body.as_ref())?,
            "timeout": timeout.as_secs_f64(),
        });
        let attempt = at.failures + 1;
        let kind = WaitKind::Effect { kind: "http".to_owned(), with, key: self.effect_key(path), attempt };
        let number = self.wait(path, kind, None, Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    /// The same for every try of the same step of the same run.
    fn effect_key(&self, path: &str) -> String {
        format!("{}:{path}", self.run.id)
    }

    pub(super) fn outside(&mut self, outside: &Outside) -> Result<Flow> {
        let message = format!("no runner configured for \"{}\"", outside.runner);
        Err(failure("effect.no_runner", message))
    }
}

/// What a worker says of an effect that failed.
fn failure_of(value: &Value) -> Failure {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let class = match value["class"].as_str() {
        Some("permanent") => "permanent",
        Some("budget") => "budget",
        _ => "transient",
    };
    Failure { code: text("code"), message: text("message"), class }
}
