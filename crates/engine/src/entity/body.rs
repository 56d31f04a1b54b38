//! A row as somebody sends it: its fields, or a whole entity as it was read, with the fields under `fields`.

use model::{Code, Problem};
use serde_json::{Map, Value};

use super::Concept;

/// What may stand beside `fields` when an entity is sent back as it was read.
const AROUND: [&str; 10] = [
    "concept",
    "id",
    "space",
    "version",
    "created_at",
    "created_by",
    "updated_at",
    "provenance",
    "changed",
    "fields",
];

pub struct Sent {
    pub id: Option<String>,
    pub space: Option<String>,
    pub fields: Map<String, Value>,
    /// Where the fields stand in what was sent.
    pub under: &'static str,
}

/// Reads a row for `concept`; with `id_inside`, a flat one names its id among its fields.
pub fn read(concept: &Concept, value: Value, id_inside: bool) -> Result<Sent, Problem> {
    let Value::Object(mut object) = value else {
        return Err(Problem::new(Code::EntityInvalid, "a row is a JSON object of its fields")
            .hint("write it like {\"status\":\"ok\"}"));
    };
    let declares = |name: &str| concept.definition.fields.iter().any(|field| field.name == name);
    let wrapped = object.get("fields").is_some_and(Value::is_object)
        && !declares("fields")
        && object.keys().all(|key| AROUND.contains(&key.as_str()));
    let mut text = |name: &str| match object.get(name) {
        Some(Value::String(_)) => object.remove(name).and_then(|value| Some(value.as_str()?.to_owned())),
        _ => None,
    };
    if !wrapped {
        let id = if id_inside && !declares("id") { text("id") } else { None };
        let space = if id_inside && !declares("space") { text("space") } else { None };
        return Ok(Sent { id, space, fields: object, under: "" });
    }
    let (id, space) = (text("id"), text("space"));
    let fields = match object.remove("fields") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    Ok(Sent { id, space, fields, under: "/fields" })
}
