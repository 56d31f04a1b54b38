//! Concepts: a kind of entity with typed fields, what it relates to and which events its changes derive.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Expr, is_default};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Concept {
    /// `v<major>:<namespace>:<name>`, such as `v1:cognition:space`.
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub scope: Scope,
    /// `object`, `collection` or `reference`; `nodeType` of its events.
    #[serde(default = "object", skip_serializing_if = "is_object")]
    pub node_type: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// Fields that are not declared are kept as they come (`@open`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub open: bool,
    /// The author expects many rows (`@large`): a query that must scan them all is worth a warning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub large: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relationships: Vec<Relationship>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derives: Vec<Derive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_authz: Option<RowAuthz>,
}

impl Concept {
    /// Whether a row can hold something that must be sealed.
    pub fn has_secret(&self) -> bool {
        fn within(fields: &[Field]) -> bool {
            let inner = |of: &Type| matches!(of, Type::Object(fields) if within(fields));
            fields.iter().any(|field| field.secret || inner(&field.of))
        }
        within(&self.fields)
    }
}

fn object() -> String {
    "object".to_owned()
}

fn is_object(node_type: &str) -> bool {
    node_type == "object"
}

/// Where rows live: in the space of who writes them, or all in `_system`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    #[default]
    Space,
    Global,
}

/// A field of a concept or of an object in it, or an argument of a query, mutation, logic or automation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Field {
    pub name: String,
    #[serde(rename = "type")]
    pub of: Type,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub unique: bool,
    /// A regular expression that the whole text must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// In characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// Set once: a later write may repeat the value, not change it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub immutable: bool,
    /// Sealed before the record is formed, `"***"` on every read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    String,
    Int,
    Double,
    Bool,
    Timestamp,
    Duration,
    /// Any JSON value, stored as it comes.
    Json,
    #[default]
    Any,
    List(Box<Type>),
    /// An object with free keys and values of one type.
    Map(Box<Type>),
    /// An object with declared fields; with none, any object.
    Object(Vec<Field>),
    Enum(Vec<Value>),
    /// The id of a row of this concept.
    Reference(String),
    /// An object whose fields depend on the value of a sibling field.
    Variant {
        by: String,
        cases: BTreeMap<String, Vec<Field>>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relationship {
    /// `parent contains owns alias equals references createdBy interactsWith`.
    #[serde(rename = "type")]
    pub kind: String,
    pub field: String,
    /// A concept's id.
    pub target: String,
    /// `outgoing`, `incoming` or `bidirectional`.
    pub direction: String,
}

/// An event that a change of a row brings along, in the commit of the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derive {
    pub topic: String,
    /// Over `prev`, `next`, `delta`; absent: every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
}

/// Rows are seen and changed only by the actor that this field names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowAuthz {
    pub owner: String,
}
