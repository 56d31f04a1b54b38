//! What the event of a change says (contracts §10): the row before and after, what differs, and the row's fields by name.

use model::Timestamp;
use model::record::Change;
use serde_json::{Map, Value};

use super::{Concept, Provenance, Row, same};

/// A change of a row: `prev` is absent when it is created, `next` when it is deleted.
pub struct Changing<'a> {
    pub concept: &'a Concept,
    pub prev: Option<&'a Row>,
    pub next: Option<&'a Row>,
    pub actor: &'a str,
    /// What made this change; a row that is gone keeps that of the one before.
    pub provenance: &'a Provenance,
    pub now: Timestamp,
}

/// What changed at the top level: the new value, `null` for what is gone.
pub fn delta(prev: Option<&Map<String, Value>>, next: Option<&Map<String, Value>>) -> Map<String, Value> {
    let empty = Map::new();
    let (prev, next) = (prev.unwrap_or(&empty), next.unwrap_or(&empty));
    let set = next.iter().filter(|(name, value)| !prev.get(*name).is_some_and(|before| same(before, value)));
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

    /// The payload as JSON. Written as text, because a row stands in it up to four times: each is made once.
    pub fn payload(&self, delta: &Map<String, Value>) -> String {
        let Some(row) = self.next.or(self.prev) else { return "null".to_owned() };
        let changed = json(&delta.keys().collect::<Vec<_>>());
        let fields = |row: Option<&Row>| row.map_or("null".to_owned(), |row| json(&row.fields));
        let (prev, next) = (fields(self.prev), fields(self.next));
        let last = if self.next.is_some() { &next } else { &prev };
        let (id, concept) = (json(&row.id), json(&row.concept));
        let said: [(&str, &str); 16] = [
            ("id", &id),
            ("nodeId", &id),
            ("concept", &concept),
            ("kind", &concept),
            ("nodeType", &json(&self.concept.definition.node_type)),
            ("partition", &json(&row.space)),
            ("actor", &json(self.actor)),
            ("createdAt", &json(&row.created_at)),
            ("occurredAt", &json(&self.now)),
            ("prev", &prev),
            ("next", &next),
            ("delta", &json(delta)),
            ("changed_fields", &changed),
            ("changedFields", &changed),
            ("provenance", &json(self.provenance)),
            ("payload", last),
        ];
        let mut out = String::with_capacity(384 + prev.len() + next.len() + 3 * last.len());
        for (name, value) in said {
            out.push_str(if out.is_empty() { "{\"" } else { ",\"" });
            out.push_str(name);
            out.push_str("\":");
            out.push_str(value);
        }
        for (name, value) in row.fields.iter().filter(|(name, _)| said.iter().all(|(taken, _)| taken != name))
        {
            out.push(',');
            out.push_str(&json(name));
            out.push(':');
            out.push_str(&json(value));
        }
        out.push('}');
        out
    }
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names, instants and values of rows are JSON")
}
