//! Who administered what: an event for each act, in the ledger of the tenant that it concerns.
//!
//! ```text
//! topic    engine.audit.<act>          engine.audit.groups.seek, engine.audit.tokens.create
//! payload  {"act","path"?,"request_id"?,"status"?,"done"?}    actor, time and position as of every event
//! ```

pub(super) mod hearers;

use model::topic::{Pattern, is_house};
use model::{Problem, Timestamp};
use serde_json::{Map, Value, json};

use super::{Query, Tenant};
use crate::admit::{Caller, Draft};

/// What the topics of audit events begin with; nobody else publishes such.
pub const PREFIX: &str = "engine.audit.";
/// What an engine said of itself in another house, and an import brought.
pub const ELSEWHERE: &str = "engine.imported.";
/// What only those who administer see: acts, and events that tell what such acts were about. Which requests were answered names the
/// paths of acts; how pushes fare names where they lead.
const ADMINISTERED: [&str; 4] = [PREFIX, ELSEWHERE, "engine.request.", "engine.push."];

/// Whether an event of this topic, or one that such a pattern names, is for those who administer.
pub fn is_administered(topic: &str) -> bool {
    ADMINISTERED.iter().any(|prefix| topic.starts_with(prefix))
}

/// As [`is_administered`], rows of the house among it: whether only those who administer see an event of this topic.
pub fn is_act(topic: &str) -> bool {
    is_administered(topic) || is_house(topic)
}

/// Whether `triggered_by` or `caused_by` of a run, or of what is told of one, names an act.
pub fn names_act(text: &str) -> bool {
    text.strip_prefix("event:").is_some_and(is_act)
}

/// One act of administration that was done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Act {
    /// Words of a topic: `groups.seek`.
    pub act: String,
    /// What was asked, and under which id.
    pub path: Option<String>,
    pub request_id: Option<String>,
    pub status: Option<u16>,
    /// How much was done, of an act that may be done in part.
    pub done: Option<Value>,
}

impl Tenant {
    /// Writes an act down, before it is answered for.
    pub async fn audit(&self, by: &Caller, act: &Act) -> Result<(), Problem> {
        let mut payload = json!({"act": act.act});
        let more = [
            ("path", act.path.clone().map(Value::from)),
            ("request_id", act.request_id.clone().map(Value::from)),
            ("status", act.status.map(Value::from)),
            ("done", act.done.clone()),
        ];
        for (name, value) in more.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            payload[name] = value;
        }
        let inside = Caller { outside: false, ..by.clone() };
        let topic = format!("{PREFIX}{}", act.act);
        let draft = Draft { space: Some("_system".to_owned()), ..Draft::new(topic, &payload) };
        self.publish(&inside, draft).await.map(drop)
    }

    /// Acts, newest first: `position time actor` and what was said of each.
    pub fn acts(
        &self,
        since: Option<Timestamp>,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>), Problem> {
        let topic = Some(Pattern::parse(&format!("{PREFIX}#"))?);
        let page = self.find(&Query { topic, since, limit, cursor, descending: true, ..Query::default() })?;
        let acts = page.events.iter().map(|event| {
            let event: Value = serde_json::from_str(&event.to_json()).unwrap_or_default();
            let mut shown = Map::new();
            for name in ["position", "recorded_at", "actor"] {
                shown.insert(name.to_owned(), event[name].clone());
            }
            shown.extend(event["payload"].as_object().cloned().unwrap_or_default());
            Value::Object(shown)
        });
        Ok((acts.collect(), page.next))
    }
}
