//! `ask` and `approve`: a person answers, or the time is over.

use model::Code;
use model::definition::{Ask, Step, approval};
use model::record::How;
use serde_json::{Map, Value, json};

use super::{Flow, Result, Walk, failure};
use crate::run::{Block, Inside, WaitKind};

impl Walk<'_, '_> {
    pub(super) fn ask(&mut self, ask: &Ask, step: &Step, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            let number = *number;
            return self.answered(ask, number);
        }
        self.stands_still()?;
        let kind = WaitKind::Ask {
            question: self.env.input(self.draft.state, &ask.question)?,
            to: self.optional(ask.to.as_ref())?,
            options: ask.options.clone(),
            form: ask.form.clone(),
            approve: ask.approve,
            default: ask
                .default
                .as_ref()
                .and_then(|default| self.env.written(self.draft.state, default))
                .unwrap_or_default(),
        };
        let timeout = ask.timeout.as_ref().or(step.timeout.as_ref());
        let timeout = timeout.map(|length| self.env.length(self.draft.state, length)).transpose()?;
        let number = self.wait(path, kind, timeout, Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }

    fn answered(&mut self, ask: &Ask, number: u32) -> Result<Flow> {
        let Some(ended) = self.ended(number) else { return Ok(Flow::Blocked) };
        self.forget(number);
        self.by.clone_from(&ended.by);
        let expired = ended.how == How::Timeout;
        let answer = match (expired, &ask.default) {
            (false, _) => ended.value,
            (true, Some(default)) => self.env.input(self.draft.state, default)?,
            (true, None) => {
                self.say(ask, "hitl.expired", &Value::Null)?;
                return Err(failure(Code::WaitTimeout, "nobody answered in time"));
            }
        };
        let verdict = if ask.approve { approval(&answer) } else { None };
        let topic = match (expired, verdict) {
            (true, _) => "hitl.expired",
            (false, Some(true)) => "hitl.approved",
            (false, _) => "hitl.rejected",
        };
        self.say(ask, topic, &answer)?;
        // Whatever word it was given in, an approval is yes or no; with a form always an object, so that one test fits all answers.
        Ok(Flow::Done(match verdict {
            Some(verdict) if !answer.is_object() && ask.form.is_empty() => verdict.into(),
            Some(verdict) => {
                let mut filled = answer.as_object().cloned().unwrap_or_default();
                filled.insert("approved".to_owned(), verdict.into());
                filled.into()
            }
            None => answer,
        }))
    }

    /// Approvals are events, too.
    fn say(&mut self, ask: &Ask, topic: &str, answer: &Value) -> Result<()> {
        if !ask.approve {
            return Ok(());
        }
        let mut payload = json!({"run": self.run.id, "automation": self.run.automation, "answer": answer});
        if let Some(by) = &self.by {
            payload["by"] = by.as_str().into();
        }
        self.emit(topic.to_owned(), payload, Map::new()).map(drop)
    }
}
