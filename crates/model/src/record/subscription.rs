//! Records about subscriptions: events of a group that start runs, as seed 003 has it (contracts §14).
//!
//! ```text
//!  subscription.put      d {"id"}                          body {"definition":{…}}
//!  subscription.dropped  d {"id"}
//!  subscription.started  d {"id","event","run"?}           an event was dispatched; without a run a gate held it back for good
//!  subscription.stuck    d {"id","event"}                  it failed, and that was said
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, DecodeError, to_text};
use crate::Position;

#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionRecord {
    Put { id: String, definition: Value },
    Dropped { id: String },
    Started { id: String, event: Position, run: Option<String> },
    Stuck { id: String, event: Position },
}

#[derive(Default, Serialize, Deserialize)]
struct Data {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Position>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Body {
    definition: Value,
}

impl SubscriptionRecord {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            SubscriptionRecord::Put { .. } => "subscription.put",
            SubscriptionRecord::Dropped { .. } => "subscription.dropped",
            SubscriptionRecord::Started { .. } => "subscription.started",
            SubscriptionRecord::Stuck { .. } => "subscription.stuck",
        }
    }

    pub(super) fn data(&self) -> String {
        let data = match self {
            SubscriptionRecord::Put { id, .. } | SubscriptionRecord::Dropped { id } => {
                Data { id: id.clone(), ..Data::default() }
            }
            SubscriptionRecord::Started { id, event, run } => {
                Data { id: id.clone(), event: Some(*event), run: run.clone() }
            }
            SubscriptionRecord::Stuck { id, event } => {
                Data { id: id.clone(), event: Some(*event), run: None }
            }
        };
        to_text(&data)
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let SubscriptionRecord::Put { definition, .. } = self else { return None };
        Some(to_text(&Body { definition: definition.clone() }).into())
    }

    /// `None`: the kind is none of these.
    pub(super) fn decode(at: &At<'_>) -> Result<Option<SubscriptionRecord>, DecodeError> {
        if !at.kind.starts_with("subscription.") {
            return Ok(None);
        }
        let Data { id, event, run } = serde_json::from_str(at.data)?;
        let event = event.unwrap_or(0);
        Ok(match at.kind {
            "subscription.put" => {
                let Body { definition } = super::run::body(at)?;
                Some(SubscriptionRecord::Put { id, definition })
            }
            "subscription.dropped" => Some(SubscriptionRecord::Dropped { id }),
            "subscription.started" => Some(SubscriptionRecord::Started { id, event, run }),
            "subscription.stuck" => Some(SubscriptionRecord::Stuck { id, event }),
            _ => None,
        })
    }
}
