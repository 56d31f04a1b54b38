//! JSON Schema per topic pattern: a payload that does not fit is refused before anything else sees it.

use jsonschema::Validator;
use model::topic::Pattern;
use model::{Code, Problem};

use super::{Draft, check, parse};
use crate::settings::SchemaRule;

pub(super) struct Schema {
    topic: Pattern,
    name: String,
    validator: Validator,
}

impl Schema {
    pub(super) fn new(rule: &SchemaRule) -> Result<Schema, Problem> {
        let validator = jsonschema::validator_for(&rule.schema).map_err(|error| {
            Problem::new(Code::ConfigInvalid, format!("schema {:?} is no JSON Schema: {error}", rule.name))
                .hint("correct the schema; references must point into the same document")
        })?;
        Ok(Schema { topic: rule.topic.clone(), name: rule.name.clone(), validator })
    }

    /// Content that is not JSON has no schema.
    pub(super) fn check(&self, draft: &Draft) -> Result<(), Problem> {
        if !self.topic.receives(&draft.topic) || !draft.content_type.as_deref().is_none_or(check::is_json) {
            return Ok(());
        }
        let payload = parse(draft.payload.get());
        let Err(error) = self.validator.validate(&payload) else { return Ok(()) };
        // The value itself stays out of the message: it was not redacted yet.
        let message: String = error.masked_with("the value").to_string().chars().take(300).collect();
        let detail = format!("\"payload\" does not fit schema {:?}: {message}", self.name);
        Err(Problem::new(Code::EventSchema, detail)
            .hint(format!("see what schema {:?} asks for at {}", self.name, error.schema_path()))
            .at(format!("/payload{}", error.instance_path()))
            .with("schema", self.name.as_str()))
    }
}
