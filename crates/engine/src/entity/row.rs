//! One row: the current state of one thing of a concept.

use std::collections::BTreeMap;

use model::{Position, Timestamp};
use serde_json::{Map, Value, json};

use super::Provenance;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub concept: String,
    pub space: String,
    pub id: String,
    /// The position of the event that last changed it.
    pub version: Position,
    pub created_at: Timestamp,
    pub created_by: String,
    pub updated_at: Timestamp,
    /// Secrets in it are masked.
    pub fields: Map<String, Value>,
    pub sealed: BTreeMap<String, String>,
    pub since: BTreeMap<String, String>,
    pub provenance: Provenance,
}

impl Row {
    /// As contracts §10 shows it.
    pub fn to_json(&self) -> Value {
        let mut row = json!({
            "concept": self.concept, "id": self.id, "space": self.space, "version": self.version,
            "created_at": self.created_at, "created_by": self.created_by, "updated_at": self.updated_at,
            "fields": self.fields, "provenance": self.provenance,
        });
        // Who made a row of long ago may be trimmed.
        if let (true, Value::Object(row)) = (self.created_by.is_empty(), &mut row) {
            row.remove("created_by");
        }
        row
    }

    /// Since when a top-level field has the value it has now.
    pub fn in_state_since(&self, field: &str) -> Timestamp {
        let changed = self.since.get(field).and_then(|at| Timestamp::parse(at).ok());
        changed.unwrap_or(self.created_at)
    }

    /// Whether `actor` (`kind:name`) is who this field of the row names.
    pub fn belongs_to(&self, field: &str, actor: &str) -> bool {
        owned_by(&self.fields, field, actor)
    }
}

pub(crate) fn owned_by(fields: &Map<String, Value>, field: &str, actor: &str) -> bool {
    let name = actor.split_once(':').map_or(actor, |(_, name)| name);
    fields.get(field).and_then(Value::as_str).is_some_and(|owner| owner == actor || owner == name)
}
