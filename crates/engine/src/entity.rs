//! Entities: what is declared about rows, whether values fit it, and what a change of a row says as an event.
//!
//! ```text
//!  caller's thread   seal @secret values ─▶ a write in the mailbox
//!  decide            merge with the row ─▶ check by the concept ─▶ event (graph.node.…) + entity.changed + derived events
//!  apply             the row as the event says it, under the version the event's position is
//! ```
//! Pure, but for the tenant's key that seals are made with.

pub mod body;
pub mod catalog;
pub mod check;
pub mod concept;
pub mod find;
pub mod mutation;
pub mod own;
pub mod payload;
pub mod row;
pub mod seal;

pub use catalog::Catalog;
pub use concept::Concept;
pub use row::Row;

use std::collections::BTreeMap;

use model::record::Change;
use model::{Position, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a secret reads as; written back, it keeps the secret that is there.
pub const MASK: &str = "***";
/// Bytes of a row's values as JSON: its event carries them up to four times.
pub const ROW_BYTES_MAX: usize = 256 * 1024;

/// Who or what made a change, beside the actor (contracts §10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trigger: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub via: String,
}

impl Provenance {
    pub fn api(via: &str) -> Provenance {
        Provenance { kind: "api".to_owned(), via: via.to_owned(), ..Provenance::default() }
    }

    pub fn mutation(name: &str) -> Provenance {
        Provenance { kind: "mutation".to_owned(), name: name.to_owned(), ..Provenance::default() }
    }
}

/// What a write does to its row.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The whole row, new or not.
    Put(Map<String, Value>),
    /// RFC 7396 over the row that is there.
    Patch(Map<String, Value>),
    /// As `Patch`, over an empty row when there is none.
    Upsert(Map<String, Value>),
    /// A new row. One with this id that agrees in `told` is the same one: nothing changes.
    Insert {
        fields: Map<String, Value>,
        told: Vec<String>,
    },
    Delete,
}

impl Action {
    pub fn fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        match self {
            Action::Put(fields) | Action::Patch(fields) | Action::Upsert(fields) => Some(fields),
            Action::Insert { fields, .. } => Some(fields),
            Action::Delete => None,
        }
    }
}

/// What the row must be before the write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    #[default]
    Anything,
    Version(Position),
    OneOf(Vec<Position>),
    Present,
    Absent,
}

/// One write of one row.
#[derive(Clone, Debug)]
pub struct Write {
    /// A concept's id or, when that is enough, its name.
    pub concept: String,
    /// Empty only for concepts whose rows are all in `_system`.
    pub space: String,
    /// Without one: the hash of concept and row.
    pub id: Option<String>,
    pub action: Action,
    pub expect: Expect,
    /// New secrets by JSON pointer, sealed; in the fields stands the mask.
    pub sealed: BTreeMap<String, String>,
    pub actor: String,
    /// Whose rows may be touched when the concept binds them to an owner; `None`: all.
    pub owner: Option<String>,
    pub provenance: Provenance,
    pub trace: Option<String>,
    /// An event also when nothing changes.
    pub force: bool,
    /// It starts and wakes nothing.
    pub quiet: bool,
}

impl Write {
    /// A write that expects nothing; the tenant fills in who makes it.
    pub fn of(concept: &str, id: Option<&str>, action: Action) -> Write {
        Write {
            concept: concept.to_owned(),
            space: String::new(),
            id: id.map(str::to_owned),
            action,
            expect: Expect::Anything,
            sealed: BTreeMap::new(),
            actor: String::new(),
            owner: None,
            provenance: Provenance::api(""),
            trace: None,
            force: false,
            quiet: false,
        }
    }
}

/// What became of a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The row after it; after a delete, the last one.
    pub row: Row,
    /// `None`: nothing changed.
    pub change: Option<Change>,
}

impl Written {
    /// The entity as contracts §10 answers it, plus `changed`.
    pub fn to_json(&self) -> Value {
        let mut value = self.row.to_json();
        value["changed"] = self.change.is_some().into();
        value
    }

    pub fn created(&self) -> bool {
        self.change == Some(Change::Created)
    }
}

/// RFC 7396: `null` removes, objects are merged, everything else replaces.
pub fn merge(into: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                into.remove(&name);
            }
            Value::Object(patch) => {
                let slot = into.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(inner) = slot {
                    merge(inner, patch);
                }
            }
            value => {
                into.insert(name, value);
            }
        }
    }
}

/// Whether two values say the same: numbers by their value, however they are written.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a.as_f64() == b.as_f64(),
            // A double beyond 2^53 is near many integers and equal to one.
            (Some(whole), None) => b.as_f64().is_some_and(|n| n.fract() == 0.0 && n as i128 == whole),
            (None, Some(whole)) => a.as_f64().is_some_and(|n| n.fract() == 0.0 && n as i128 == whole),
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => same_fields(a, b),
        _ => a == b,
    }
}

/// As [`same`], for the fields of a row.
pub fn same_fields(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
}

/// A pointer's token for a field's name (RFC 6901).
pub fn token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether an id can stand in URLs, subjects and lists.
pub fn check_id(id: &str) -> Result<(), Problem> {
    let bad = if id.is_empty() || id.len() > 512 {
        format!("has {} bytes, not 1 to 512", id.len())
    } else if id.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Problem::new(model::Code::EntityInvalid, format!("the id {id:?} {bad}"))
        .hint("choose a short visible name, or leave it out of an insert to get a hash")
        .at("/id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_the_same_by_value() {
        for (a, b) in [("5", "5.0"), ("100", "1e2"), ("0", "-0.0"), ("[{\"a\":1}]", "[{\"a\":1.0}]")] {
            let read = |text| serde_json::from_str::<Value>(text).unwrap();
            assert!(same(&read(a), &read(b)), "{a} {b}");
        }
        assert!(!same(&json!(9007199254740993i64), &json!(9007199254740992.0)));
        assert!(!same(&json!("5"), &json!(5)));
    }

    #[test]
    fn a_patch_merges_objects_removes_by_null_and_replaces_the_rest() {
        let Value::Object(mut row) = json!({"a": 1, "b": {"x": 1, "y": 2}, "c": [1]}) else { panic!() };
        let Value::Object(patch) = json!({"a": null, "b": {"x": null, "z": {"q": null}}, "c": {"k": 1}})
        else {
            panic!()
        };
        merge(&mut row, patch);
        assert_eq!(Value::Object(row), json!({"b": {"y": 2, "z": {}}, "c": {"k": 1}}));
    }
}
