//! What steps do outside: written down, and answered as the scenario says, with success and null when it says nothing.

use engine::Tenant;
use engine::tenant::runs::Effect;
use model::Problem;
use model::record::How;
use serde_json::{Map, Value, json};

use super::read::{object, only, wrong};
use super::subset;

/// One element of `given.effects`: which effects it answers, and how.
#[derive(Clone)]
pub struct Answer {
    /// Everything here is also in the effect.
    fits: Value,
    how: How,
    value: Value,
    /// How often it answers; then the next one that fits does.
    times: Option<u64>,
}

impl Answer {
    pub fn read(value: &Value) -> Result<Answer, Problem> {
        let mut fits = object(value, "an effect")?.clone();
        let output = fits.remove("output");
        let error = fits.remove("error");
        let times = fits.remove("times").map(|times| {
            times.as_u64().ok_or_else(|| wrong(format!("\"times\" is a whole number, not {times}")))
        });
        let (how, value) = match (output, error) {
            (Some(_), Some(_)) => return Err(wrong("an effect has an output or an error, not both")),
            (output, None) => (How::Done, output.unwrap_or_default()),
            (None, Some(error)) => (How::Failed, failure(error)?),
        };
        Ok(Answer { fits: Value::Object(fits), how, value, times: times.transpose()? })
    }
}

fn failure(error: Value) -> Result<Value, Problem> {
    Ok(match error {
        Value::String(code) => json!({"code": code, "message": code, "class": "permanent"}),
        Value::Object(map) => {
            only(&map, "an error", &["code", "message", "class"])?;
            let mut whole =
                json!({"code": model::Code::HttpFailed.as_str(), "message": "failed", "class": "permanent"});
            if let Value::Object(whole) = &mut whole {
                whole.extend(map);
            }
            whole
        }
        other => return Err(wrong(format!("an error is a code, or code, message and class, not {other}"))),
    })
}

#[derive(Default)]
pub struct Effects {
    answers: Vec<Answer>,
    /// In the order they were asked for; a further try is a further element.
    pub seen: Vec<Value>,
}

impl Effects {
    pub fn new(answers: Vec<Answer>) -> Effects {
        Effects { answers, seen: Vec::new() }
    }

    /// Answers what is open; says whether there was anything.
    pub fn answer(&mut self, tenant: &Tenant) -> Result<bool, Problem> {
        let open = tenant.open_effects()?;
        for effect in &open {
            let (how, value) = match effect.kind.as_str() {
                // Rows are read, not pretended.
                engine::DETACHED => tenant.answer_query(effect),
                _ => {
                    let shown = shown(effect);
                    let answer = self.take(&shown);
                    self.seen.push(shown);
                    answer
                }
            };
            tenant.effect_done(effect, how, value)?;
        }
        Ok(!open.is_empty())
    }

    fn take(&mut self, effect: &Value) -> (How, Value) {
        let fits = |answer: &&mut Answer| answer.times != Some(0) && subset::holds(&answer.fits, effect);
        let Some(answer) = self.answers.iter_mut().find(fits) else { return (How::Done, Value::Null) };
        answer.times = answer.times.map(|times| times - 1);
        (answer.how, answer.value.clone())
    }
}

/// Kind, key and attempt beside what the step says.
fn shown(effect: &Effect) -> Value {
    let mut map = match &effect.with {
        Value::Object(with) => with.clone(),
        other => Map::from_iter([("with".to_owned(), other.clone())]),
    };
    map.insert("kind".to_owned(), effect.kind.as_str().into());
    map.insert("key".to_owned(), effect.key.as_str().into());
    map.insert("attempt".to_owned(), effect.attempt.into());
    Value::Object(map)
}
