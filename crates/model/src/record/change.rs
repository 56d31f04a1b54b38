//! Records about what is declared and about rows: `definitions.applied` and `entity.changed`, to text and back.
//!
//! ```text
//!  definitions.applied  d {"managed_by":"workspace:a","set":[{"kind","name","hash"}],"removed":[{"kind","name"}]}
//!                       body [definition, …] in the order of "set"
//!  entity.changed       d {"change":"created","concept","space","id","prev":<version before, if any>}
//!                       body {"since":{field:instant},"sealed":{pointer:text}}, left out when both are empty
//! ```
//!
//! **Invariant:** an `entity.changed` stands right after the event of its change, in the same commit, and takes the row's
//! values from that event's payload (`next`), so that they stand in the ledger once. The row's version is the
//! event's position.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{At, DecodeError, to_text};
use crate::Position;
use crate::definition::Kind;

/// A workspace's definitions as one commit sets and removes them.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub managed_by: String,
    pub set: Vec<Set>,
    pub removed: Vec<(Kind, String)>,
}

/// A checked definition in its JSON form.
#[derive(Clone, Debug)]
pub struct Set {
    pub kind: Kind,
    pub name: String,
    pub hash: String,
    pub definition: Box<RawValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Created,
    Updated,
    Deleted,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Updated => "updated",
            Change::Deleted => "deleted",
        }
    }
}

/// A row was created, updated or deleted by the event in the record before this one.
#[derive(Clone, Debug)]
pub struct Changed {
    pub change: Change,
    pub concept: String,
    pub space: String,
    pub id: String,
    /// The version before; history is read from link to link.
    pub prev: Option<Position>,
    /// Since when a field has its value, for those changed after the row was created.
    pub since: BTreeMap<String, String>,
    /// Secrets by JSON pointer, sealed; the event shows them masked.
    pub sealed: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Name {
    kind: Kind,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct AppliedData {
    managed_by: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<Name>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<Name>,
}

/// What `entity.changed` says in `d`; also read alone, to follow the links of a row's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangedData {
    pub change: Change,
    pub concept: String,
    pub space: String,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Position>,
}

#[derive(Default, Serialize, Deserialize)]
struct ChangedBody {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    since: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sealed: BTreeMap<String, String>,
}

impl Applied {
    pub(super) fn data(&self) -> String {
        let set = self.set.iter();
        let name = |set: &Set| Name { kind: set.kind, name: set.name.clone(), hash: Some(set.hash.clone()) };
        let removed = self.removed.iter();
        to_text(&AppliedData {
            managed_by: self.managed_by.clone(),
            set: set.map(name).collect(),
            removed: removed
                .map(|(kind, name)| Name { kind: *kind, name: name.clone(), hash: None })
                .collect(),
        })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let texts: Vec<&RawValue> = self.set.iter().map(|set| set.definition.as_ref()).collect();
        (!texts.is_empty()).then(|| to_text(&texts).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<Applied, DecodeError> {
        let AppliedData { managed_by, set, removed } = serde_json::from_str(at.data)?;
        let texts: Vec<Box<RawValue>> = serde_json::from_str(at.body.unwrap_or("[]"))?;
        if texts.len() != set.len() {
            return Err(DecodeError::Malformed("definitions.applied lacks a definition".to_owned()));
        }
        let set = set.into_iter().zip(texts).map(|(Name { kind, name, hash }, definition)| Set {
            kind,
            name,
            hash: hash.unwrap_or_default(),
            definition,
        });
        let removed = removed.into_iter().map(|name| (name.kind, name.name));
        Ok(Applied { managed_by, set: set.collect(), removed: removed.collect() })
    }
}

impl Changed {
    pub(super) fn data(&self) -> String {
        to_text(&ChangedData {
            change: self.change,
            concept: self.concept.clone(),
            space: self.space.clone(),
            id: self.id.clone(),
            prev: self.prev,
        })
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        if self.since.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let body = ChangedBody { since: self.since.clone(), sealed: self.sealed.clone() };
        Some(to_text(&body).into())
    }

    pub(super) fn decode(at: &At<'_>) -> Result<Changed, DecodeError> {
        let ChangedData { change, concept, space, id, prev } = serde_json::from_str(at.data)?;
        let ChangedBody { since, sealed } =
            at.body.map_or(Ok(ChangedBody::default()), serde_json::from_str)?;
        Ok(Changed { change, concept, space, id, prev, since, sealed })
    }
}
