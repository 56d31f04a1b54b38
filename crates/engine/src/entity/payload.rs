//! What the event of a change says (contracts §10): the row before and after, what differs, and the row's fields by name.

use model::Timestamp;
use model::record::Change;
use serde_json::{Map, Value, json};

use super::{Concept, Row};

/// A change of a row: `prev` is absent when it is created, `next` when it is deleted.
pub struct Changing<'a> {
    pub concept: &'a Concept,
    pub prev: Option<&'a Row>,
    pub next: Option<&'a Row>,
    pub actor: &'a str,
    pub now: Timestamp,
}

/// What changed at the top level: the new value, `null` for what is gone.
pub fn delta(prev: Option<&Map<String, Value>>, next: Option<&Map<String, Value>>) -> Map<String, Value> {
    let empty = Map::new();
    let (prev, next) = (prev.unwrap_or(&empty), next.unwrap_or(&empty));
    let set = next.iter().filter(|(name, value)| prev.get(*name) != Some(value));
    let mut delta: Map<String, Value> = set.map(|(name, value)| (name.clone(), value.clone())).collect();
    let gone = prev.keys().filter(|name| !next.contains_key(*name));
    delta.extend(gone.map(|name| (name.clone(), Value::Null)));
    delta
}

impl Changing<'_> {
    pub fn change(&self) -> Change {
        match (self.prev, self.next) {
            (None, _) => Change::Created,
            (Some(_), Some(_)) => Change::Updated,
            (Some(_), None) => Change::Deleted,
        }
    }

    /// What changed; a secret that was replaced changes under its mask.
    pub fn delta(&self) -> Map<String, Value> {
        let mut changed = delta(self.prev.map(|row| &row.fields), self.next.map(|row| &row.fields));
        if let (Some(prev), Some(next)) = (self.prev, self.next) {
            let replaced = next.sealed.iter().filter(|(at, sealed)| prev.sealed.get(*at) != Some(sealed));
            for (pointer, _) in replaced {
                let name = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
                if let Some(value) = next.fields.get(name) {
                    changed.insert(name.to_owned(), value.clone());
                }
            }
        }
        changed
    }

    pub fn payload(&self, delta: &Map<String, Value>) -> Value {
        let Some(row) = self.next.or(self.prev) else { return Value::Null };
        let changed: Vec<&String> = delta.keys().collect();
        let mut payload = json!({
            "id": row.id, "nodeId": row.id, "concept": row.concept, "kind": row.concept,
            "nodeType": self.concept.definition.node_type, "partition": row.space, "actor": self.actor,
            "createdAt": row.created_at, "occurredAt": self.now,
            "prev": self.prev.map(|row| &row.fields), "next": self.next.map(|row| &row.fields),
            "delta": delta, "changed_fields": changed, "changedFields": changed,
            "provenance": row.provenance, "payload": row.fields,
        });
        if let Value::Object(payload) = &mut payload {
            for (name, value) in &row.fields {
                if !payload.contains_key(name) {
                    payload.insert(name.clone(), value.clone());
                }
            }
        }
        payload
    }
}
