//! Concepts of the house itself: tokens, inbound hooks, pushes, secrets and sealed spaces are rows like any others, so that they are durable, sealed
//! where it matters, and every act on them is an event with an actor. Nobody outside writes or reads them as entities.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use model::definition::{self, Field, Scope, Type};
use serde_json::json;

use super::Concept;

pub const TOKEN: &str = "v1:everwhen:token";
pub const HOOK: &str = "v1:everwhen:hook";
pub const SECRET: &str = "v1:everwhen:secret";
pub const TENANT: &str = "v1:everwhen:tenant";
pub const PUSH: &str = "v1:everwhen:push";
pub const SPACE: &str = "v1:everwhen:space";

/// The namespace that workspaces cannot declare in.
pub const NAMESPACE: &str = "everwhen";

static CONCEPTS: LazyLock<BTreeMap<String, Arc<Concept>>> = LazyLock::new(|| {
    let made = [token(), hook(), secret(), tenant(), push(), space()].map(|concept| {
        let concept = Concept::new(concept).expect("our own concepts have no patterns to compile");
        (concept.definition.id.clone(), Arc::new(concept))
    });
    made.into()
});

/// One of ours, by its id.
pub fn concept(id: &str) -> Option<&'static Arc<Concept>> {
    CONCEPTS.get(id)
}

fn token() -> definition::Concept {
    let words = || Type::List(Box::new(Type::String));
    let roles = ["owner", "admin", "editor", "viewer", "publisher"].map(|role| json!(role));
    let fields = vec![
        field("name", Type::String),
        field("role", Type::Enum(roles.to_vec())),
        field("scopes", words()),
        field("spaces", words()),
        field("max_band", Type::String),
        field("expires_at", Type::Timestamp),
        field("revoked_at", Type::Timestamp),
        field("last_used_at", Type::Timestamp),
        // Of the text that was given out once. Sealed, because whoever reads events must not even have that.
        Field { secret: true, ..field("hash", Type::String) },
    ];
    own(TOKEN, fields)
}

fn hook() -> definition::Concept {
    let fields = vec![
        field("scheme", Type::String),
        field("topic", Type::String),
        field("space", Type::String),
        Field { secret: true, ..field("secret", Type::String) },
    ];
    own(HOOK, fields)
}

fn push() -> definition::Concept {
    let texts = ["url", "format", "space", "max_band", "state", "reason", "last_error"]
        .map(|name| field(name, Type::String));
    let free = ["pattern", "filter", "start", "timeout", "backoff", "max_inflight", "max_retries"];
    let mut fields = texts.to_vec();
    fields.extend(free.map(|name| field(name, Type::Json)));
    fields.push(field("ordered", Type::Bool));
    fields.push(field("failing_since", Type::Timestamp));
    fields.push(Field { secret: true, ..field("secret", Type::String) });
    // Who authorizes itself to a receiver does it there.
    fields.push(Field { secret: true, ..field("headers", Type::Json) });
    own(PUSH, fields)
}

fn secret() -> definition::Concept {
    own(SECRET, vec![Field { secret: true, required: true, ..field("value", Type::String) }])
}

/// In `main` only: how the tenants of the house stand.
fn tenant() -> definition::Concept {
    own(TENANT, vec![field("suspended_at", Type::Timestamp), field("quota", Type::Json)])
}

/// A space that is sealed or was forgotten. `key` names the one that seals what is written there now.
fn space() -> definition::Concept {
    let instants = ["sealed_at", "forgotten_at"].map(|name| field(name, Type::Timestamp));
    own(SPACE, [vec![field("key", Type::String)], instants.to_vec()].concat())
}

fn own(id: &str, fields: Vec<Field>) -> definition::Concept {
    definition::Concept {
        id: id.to_owned(),
        name: id.rsplit(':').next().unwrap_or_default().to_owned(),
        node_type: "object".to_owned(),
        scope: Scope::Global,
        fields,
        ..definition::Concept::default()
    }
}

fn field(name: &str, of: Type) -> Field {
    Field { name: name.to_owned(), of, ..Field::default() }
}
