//! A canonical text of `state.db`: every row of every table in order. Two states are equal when their dumps are.

use rusqlite::types::ValueRef;
use sha2::{Digest, Sha256};

use super::{Result, State};

const TABLES: [(&str, &str); 18] = [
    ("meta", "name"),
    ("group", "name"),
    ("failure", "\"group\", position"),
    ("dead_letter", "\"group\", position"),
    ("redriven", "\"group\", position"),
    ("suspect", "\"group\", position"),
    ("key", "source, key"),
    ("deferred", "position"),
    ("definition", "kind, name"),
    ("entity", "concept, id, space"),
    ("run", "position"),
    ("pending", "position, n"),
    ("gate", "automation, trigger, gate, key"),
    ("event", "position"),
    ("version", "hash"),
    ("automation", "name"),
    ("schedule", "automation, trigger"),
    ("subscription", "id"),
];

impl State {
    /// Writes the dump line by line into `out`. Snapshots are left out: each names the dump before it.
    pub fn dump(&self, mut out: impl FnMut(&str)) -> Result<()> {
        let db = self.table()?;
        for (table, order) in TABLES {
            let mut read = db.prepare(&format!("SELECT * FROM \"{table}\" ORDER BY {order}"))?;
            let columns = read.column_count();
            let mut rows = read.query([])?;
            while let Some(row) = rows.next()? {
                let mut line = table.to_owned();
                for i in 0..columns {
                    line.push('\t');
                    line.push_str(&text_of(row.get_ref(i)?));
                }
                out(&line);
            }
        }
        Ok(())
    }

    pub fn dump_hash(&self) -> Result<String> {
        let mut hash = Sha256::new();
        self.dump(|line| {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        })?;
        Ok(model::id::hex(&hash.finalize()))
    }
}

fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(text) => {
            serde_json::Value::String(String::from_utf8_lossy(text).into_owned()).to_string()
        }
        ValueRef::Blob(bytes) => model::id::hex(bytes),
    }
}
