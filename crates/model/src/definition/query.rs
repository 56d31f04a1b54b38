//! What reads and writes rows by name: queries and the shapes they answer in, mutations, logic.

use std::collections::BTreeMap;

/// What every row has of itself, beside the fields it declares: filters, sorts and shapes may name these.
pub const INTRINSIC: [&str; 12] = [
    "id",
    "concept",
    "type",
    "createdAt",
    "createdBy",
    "updatedAt",
    "partition",
    "space",
    "schema",
    "payload",
    "provenance",
    "version",
];

use serde::{Deserialize, Serialize};

use super::{Expr, Field, Step, is_default};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub name: String,
    /// A concept's id.
    pub concept: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Field>,
    /// All hold. Fields of the row are written `payload.<path>`; beside them `id concept type createdAt createdBy
    /// updatedAt space`, and `args`, `actor`, `now`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<Conjunct>,
    /// The name of a shape; absent: whole rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<Sort>,
    /// Rows in a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paginate: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
    /// Answers with the number of rows instead of the rows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub count: bool,
    /// In a run: computed off the writer's loop, at a position (rules R5).
    #[serde(default, skip_serializing_if = "is_default")]
    pub detached: bool,
}

/// One part of a filter. `when(args.x) { test }` asks it only if the argument was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conjunct {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    pub test: Expr,
}

/// `payload.<path>` or an intrinsic such as `createdAt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sort {
    pub field: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsOf {
    Latest,
    /// A position or an instant.
    Expr(Expr),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub name: String,
    /// A concept's id.
    pub concept: String,
    pub fields: Vec<ShapeField>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeField {
    pub name: String,
    /// Over the same names as a query's filter.
    pub value: Expr,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    #[default]
    Insert,
    Update,
    Upsert,
    Delete,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mutation {
    pub name: String,
    /// A concept's id.
    pub concept: String,
    pub write: Write,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Field>,
    /// Over `args`, `actor`, `now`. Absent in an insert: the hash of concept and row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Expr>,
    /// Fields copied from the arguments of the same names, when given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// Fields computed here; they win over `accept`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stamp: BTreeMap<String, Expr>,
}

/// A function over rows and events: steps without waits or outside effects, ended by a `return`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Logic {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Field>,
    /// In an order in which every reference is already bound.
    pub steps: Vec<Step>,
}
