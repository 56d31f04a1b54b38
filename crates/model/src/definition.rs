//! What authors declare, after checking: concepts, queries, mutations, shapes, logic, automations as plain data.
//!
//! Text (`.ew`, YAML, JSON) becomes this in `lang`; it lives in the ledger in its JSON form, under the hash of that form:
//!
//! ```text
//!  {"edition":1,"kind":"concept","id":"v1:cognition:space","name":"space","fields":[…]}
//!  hash     SHA-256 over the canonical JSON (crate::json::canonical_hash)
//!  version  its first 12 hex digits, as runs show it
//! ```
//!
//! **Invariant:** places, comments and layout are not part of it, and names are resolved: moving a declaration,
//! formatting it or importing it under another name gives the same hash. What is absent is left out, so an
//! optional field may be added without changing what was written before.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::canonical_hash;

mod action;
mod automation;
mod concept;
mod query;
pub mod seconds;

#[cfg(test)]
mod tests;

pub use action::{
    Action, Ask, Branch, Call, Case, For, Http, OnError, OnTimeout, Outside, Publish, Repeat, Retry, Step,
    Switch, WaitFor, WaitUntil, approval,
};
pub use automation::{
    Automation, Batch, Bound, CatchUp, Change, Condition, Debounce, Dedup, Edge, EntityRef, Every, Filter,
    Limit, Mode, ModeKind, Rate, Refire, Storm, Test, TimeOfDay, Trigger, TriggerKind, Window,
};
pub use concept::{Concept, Derive, Field, Relationship, RowAuthz, Scope, Type};
pub use query::{AsOf, Conjunct, INTRINSIC, Logic, Mutation, Query, Shape, ShapeField, Sort, Write};

/// The edition of the language that a definition was checked under. A higher one than ours is of a newer version.
pub const EDITION: u32 = 1;

/// Whether `secret("name")` can name it: so that a reference is told from any text around it.
pub fn is_secret_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// An expression as normal text: one line, names resolved, spaces as `fmt` sets them. Compiled when loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Expr(pub String);

/// A value to be computed: by an expression (the language), or by a JSON value whose strings are templates (YAML).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Expr(Expr),
    Template(Value),
}

/// A length of time: written down, or computed by an expression (seconds or a duration).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Length {
    Fixed(#[serde(with = "seconds")] std::time::Duration),
    Computed(Expr),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Definition {
    Concept(Concept),
    Query(Query),
    Mutation(Mutation),
    Shape(Shape),
    Logic(Logic),
    Automation(Automation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Concept,
    Query,
    Mutation,
    Shape,
    Logic,
    Automation,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Concept => "concept",
            Kind::Query => "query",
            Kind::Mutation => "mutation",
            Kind::Shape => "shape",
            Kind::Logic => "logic",
            Kind::Automation => "automation",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Definition {
    pub fn kind(&self) -> Kind {
        match self {
            Definition::Concept(_) => Kind::Concept,
            Definition::Query(_) => Kind::Query,
            Definition::Mutation(_) => Kind::Mutation,
            Definition::Shape(_) => Kind::Shape,
            Definition::Logic(_) => Kind::Logic,
            Definition::Automation(_) => Kind::Automation,
        }
    }

    /// What it is known by among its kind, in the whole tenant: a concept's id, else its name.
    pub fn key(&self) -> &str {
        match self {
            Definition::Concept(concept) => &concept.id,
            Definition::Query(query) => &query.name,
            Definition::Mutation(mutation) => &mutation.name,
            Definition::Shape(shape) => &shape.name,
            Definition::Logic(logic) => &logic.name,
            Definition::Automation(automation) => &automation.name,
        }
    }

    /// The JSON form that the ledger keeps.
    pub fn to_json(&self) -> String {
        let value = serde_json::to_value(self).expect("definitions have string keys and finite numbers");
        let Value::Object(mut object) = value else { unreachable!("a tagged struct is an object") };
        object.insert("edition".to_owned(), EDITION.into());
        Value::Object(object).to_string()
    }

    /// Reads what [`Definition::to_json`] wrote, now or in an earlier edition.
    pub fn from_json(text: &str) -> Result<Definition, FromJsonError> {
        #[derive(Deserialize)]
        struct Edition {
            edition: u32,
        }
        let Edition { edition } = serde_json::from_str(text)?;
        if edition > EDITION {
            return Err(FromJsonError::Newer(edition));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The hash that the ledger keeps it under, in hex.
    pub fn hash(&self) -> String {
        let hash = canonical_hash([self.to_json().as_str()]);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The short form of the hash that people see (contracts §11).
    pub fn version(&self) -> String {
        let mut hash = self.hash();
        hash.truncate(12);
        hash
    }
}

#[derive(Debug)]
pub enum FromJsonError {
    /// Checked under an edition that this binary does not know.
    Newer(u32),
    Json(serde_json::Error),
}

impl From<serde_json::Error> for FromJsonError {
    fn from(err: serde_json::Error) -> FromJsonError {
        FromJsonError::Json(err)
    }
}

impl std::fmt::Display for FromJsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FromJsonError::Newer(edition) => {
                write!(f, "the definition is of edition {edition}, this binary knows up to {EDITION}")
            }
            FromJsonError::Json(err) => write!(f, "the definition cannot be read: {err}"),
        }
    }
}

impl std::error::Error for FromJsonError {}

/// For serde: leaves out what is at its default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
