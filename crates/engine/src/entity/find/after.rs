//! Where a page of rows ended, as text that a client gives back.

use model::base64;
use rusqlite::types::Value as Sql;
use serde_json::Value;

/// The last row of a page, in the order of its search.
#[derive(Clone, Debug)]
pub struct After {
    pub keys: Vec<Sql>,
    pub id: String,
    pub space: String,
}

impl After {
    /// As text that a client gives back unread.
    pub fn to_cursor(&self) -> String {
        let key = |key: &Sql| match key {
            Sql::Integer(n) => (*n).into(),
            // Its bits: digits would not come back exactly.
            Sql::Real(n) => serde_json::json!({ "bits": n.to_bits() }),
            Sql::Text(text) => text.clone().into(),
            Sql::Null | Sql::Blob(_) => Value::Null,
        };
        let keys: Vec<Value> = self.keys.iter().map(key).collect();
        let text = serde_json::json!([keys, self.id, self.space]).to_string();
        // In letters that stand in an address as they are.
        let letters = base64::encode(text.as_bytes()).replace('+', "-").replace('/', "_");
        letters.trim_end_matches('=').to_owned()
    }

    /// `None` for what was not made by [`After::to_cursor`].
    pub fn parse(cursor: &str) -> Option<After> {
        // Those of before were the text itself.
        let text = match cursor.starts_with('[') {
            true => cursor.to_owned(),
            false => {
                let letters = cursor.replace('-', "+").replace('_', "/");
                String::from_utf8(base64::decode_loosely(&letters)?).ok()?
            }
        };
        let (keys, id, space): (Vec<Value>, String, String) = serde_json::from_str(&text).ok()?;
        let key = |key: &Value| match key {
            Value::Null => Some(Sql::Null),
            Value::String(text) => Some(Sql::Text(text.clone())),
            Value::Number(n) => n.as_i64().map(Sql::Integer),
            other => other["bits"].as_u64().map(|bits| Sql::Real(f64::from_bits(bits))),
        };
        Some(After { keys: keys.iter().map(key).collect::<Option<_>>()?, id, space })
    }
}
