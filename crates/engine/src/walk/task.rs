//! The step `task`: asked for here, done by a worker in another process, at least once, under a key that no retry changes.

use model::Code;
use model::definition::Input;
use serde_json::{Map, Value, json};

use super::{Failure, Flow, Result, Stopped, Walk, failure};
use crate::run::{Block, Request, TASK};

/// The longest name of a kind of task.
const KIND_MAX: usize = 128;

impl Walk<'_, '_> {
    /// `{kind, input}`, or the kind alone. Its time is the step's: a worker that is too late is told so.
    pub(super) fn task(&mut self, with: &Input, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(answer) = self.answer_of(at) {
            return answer;
        }
        if self.atomic > 0 || self.logic > 0 {
            return Err(failure(
                Code::DefinitionInvalid,
                "nothing inside `atomic` or logic waits for a task",
            ));
        }
        let (with, secrets) = self.naming_secrets(|walk| Ok(walk.env.input(walk.draft.state, with)?))?;
        let (kind, input) = asked(with).map_err(Stopped::Failure)?;
        let request = Request {
            kind: TASK.to_owned(),
            with: json!({"task": kind, "input": input}),
            secrets,
            ..Request::default()
        };
        self.ask_outside(request, at, path)
    }
}

fn asked(with: Value) -> std::result::Result<(String, Value), Failure> {
    let wrong = |message: String| Failure {
        code: Code::DefinitionInvalid.as_str().to_owned(),
        message,
        class: "permanent",
    };
    let mut with = match with {
        Value::String(kind) => Map::from_iter([("kind".to_owned(), kind.into())]),
        Value::Object(with) => with,
        other => return Err(wrong(format!("a task is a kind and an input, not {other}"))),
    };
    let input = with.remove("input").unwrap_or_default();
    let kind = match with.remove("kind") {
        Some(Value::String(kind)) if !kind.is_empty() && kind.len() <= KIND_MAX => kind,
        Some(other) => {
            return Err(wrong(format!("the kind of a task is a text of 1 to {KIND_MAX} bytes, not {other}")));
        }
        None => return Err(wrong("a task has no kind".to_owned())),
    };
    match with.keys().next() {
        Some(key) => Err(wrong(format!("a task has a kind and an input, not \"{key}\""))),
        None => Ok((kind, input)),
    }
}
