//! Declared queries and mutations as a run calls them: on the writer's own connection, so that it sees its own writes.

use model::definition::{AsOf, Query};
use model::{Code, Problem, Timestamp};
use rusqlite::{Connection, params_from_iter};
use serde_json::{Map, Value, json};

use crate::admit::Caller;
use crate::entity::find::{self, Find, shape};
use crate::entity::{Catalog, Row};
use crate::state::entity::row_of;

pub(crate) use crate::tenant::entity_query::{check_args, mutation};

/// Rows that a query inside a walk may look at: worth about 5 ms (rules R5).
const ROWS_MAX: u64 = 5_000;

pub struct Asked<'a> {
    pub name: &'a str,
    pub args: Map<String, Value>,
    /// `None`: all spaces.
    pub space: Option<&'a str>,
    pub caller: &'a Caller,
    pub now: Timestamp,
}

/// Rows as a list, shaped as the query says, or their number.
pub fn query(catalog: &Catalog, db: &Connection, asked: Asked<'_>) -> Result<Value, Problem> {
    let query = catalog.query(asked.name)?;
    if let Some(AsOf::Expr(_)) = &query.as_of {
        let detail = format!("query \"{}\" reads the past, which a run cannot wait for", query.name);
        return Err(Problem::new(Code::RequestInvalid, detail));
    }
    let args = Value::Object(check_args(&query.name, &query.args, asked.args)?);
    let actor = asked.caller.actor.clone();
    let mut find = Find::query(catalog, query, find::Asked { args, actor, now: asked.now })?;
    find.space = asked.space.map(str::to_owned);
    let rows = collect(db, &find, query)?;
    if query.count {
        return Ok(rows.len().into());
    }
    match query.shape.as_deref().and_then(|name| catalog.shape(name)) {
        None => Ok(rows.iter().map(node).collect()),
        Some(declared) => {
            let fields = shape(&declared.fields)?;
            rows.iter().map(|row| find.shaped(&fields, row)).collect()
        }
    }
}

fn collect(db: &Connection, find: &Find, query: &Query) -> Result<Vec<Row>, Problem> {
    let broken = |err: rusqlite::Error| crate::env::broken(crate::state::Fault(err));
    let limit = if query.count { usize::MAX } else { query.paginate.map_or(1_000, |n| n as usize) };
    let statement = find.statement(None);
    let mut read = db.prepare_cached(&statement.sql).map_err(broken)?;
    let mut found = read.query(params_from_iter(statement.params)).map_err(broken)?;
    let (mut rows, mut looked_at) = (Vec::new(), 0);
    while let Some(row) = found.next().map_err(broken)? {
        looked_at += 1;
        if looked_at > ROWS_MAX {
            return Err(too_slow(query));
        }
        let row = row_of(row).map_err(broken)?;
        if find.wants(&row) {
            rows.push(row);
        }
        if rows.len() >= limit {
            break;
        }
    }
    Ok(rows)
}

fn too_slow(query: &Query) -> Problem {
    let detail = format!("query \"{}\" looks at more than {ROWS_MAX} rows inside a run", query.name);
    Problem::new(Code::QueryTooSlow, detail)
        .hint("compare a field with == so that an index answers it, or declare it `detached`")
}

/// A row as logic reads it.
pub fn node(row: &Row) -> Value {
    json!({
        "id": row.id, "concept": row.concept, "type": row.concept, "space": row.space, "version": row.version,
        "createdAt": row.created_at, "createdBy": row.created_by, "updatedAt": row.updated_at,
        "payload": row.fields,
    })
}
