//! Declared queries and mutations as a run calls them: on the writer's own connection, so that it sees its own writes, or
//! detached, off the loop, as long as it takes.

use model::definition::{AsOf, Query};
use model::record::How;
use model::{Code, Problem, Timestamp};
use rusqlite::{Connection, params_from_iter};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admit::Caller;
use crate::entity::find::{self, Find, Way, shape};
use crate::entity::{Catalog, Row};
use crate::run::Effect;
use crate::state::entity::row_of;

pub(crate) use crate::tenant::entity_query::call_args;

/// The kind of the effects that are detached queries. They act on nothing outside, and tries and simulations answer them too.
pub const DETACHED: &str = "query";

/// Rows that a query inside a walk may look at: worth about 5 ms (rules R5).
const ROWS_MAX: u64 = 5_000;
/// Bytes of a step's output (rules R5).
const SAID_MAX: usize = 1 << 20;

pub struct Asked<'a> {
    pub name: &'a str,
    pub args: Map<String, Value>,
    /// `None`: all spaces.
    pub space: Option<&'a str>,
    pub caller: &'a Caller,
    pub now: Timestamp,
}

/// What a run wrote down to have answered off the loop.
#[derive(Deserialize)]
pub struct Detached {
    pub query: String,
    args: Map<String, Value>,
    space: Option<String>,
    actor: String,
    now: Timestamp,
}

impl Detached {
    pub fn of(effect: &Effect) -> Result<Detached, Problem> {
        let garbled =
            |error: serde_json::Error| Problem::new(Code::Internal, format!("a query asks {error}"));
        Detached::deserialize(&effect.with).map_err(garbled)
    }

    /// The answer, by whoever can look for rows: without a limit on how many, but on how much is said of them.
    pub fn answer(
        self,
        catalog: &Catalog,
        look: impl FnOnce(&Query, &mut Find) -> Result<Vec<Row>, Problem>,
    ) -> Result<Value, Problem> {
        let query = catalog.query(&self.query)?;
        let caller = Caller { actor: self.actor, trace: None, outside: false, sight: Default::default() };
        let space = self.space.as_deref();
        let asked = Asked { name: &self.query, args: self.args, space, caller: &caller, now: self.now };
        let mut find = find(catalog, query, asked)?;
        let rows = look(query, &mut find)?;
        let said = shaped(catalog, query, &find, rows)?;
        match model::json::length(&said) {
            0..=SAID_MAX => Ok(said),
            bytes => {
                let detail = format!("query \"{}\" found {bytes} bytes of rows for one step", query.name);
                Err(Problem::new(Code::QueryTooSlow, detail).hint("count, shape or paginate them"))
            }
        }
    }

    /// As [`Detached::answer`], over rows that are at hand.
    pub fn answer_from(self, catalog: &Catalog, db: &Connection) -> Result<Value, Problem> {
        self.answer(catalog, |query, find| match query.as_of {
            Some(AsOf::Expr(_)) => Err(past(query)),
            _ => collect(db, find, query, u64::MAX),
        })
    }
}

/// As a worker tells it.
pub fn told(answer: Result<Value, Problem>) -> (How, Value) {
    match answer {
        Ok(value) => (How::Done, value),
        Err(problem) => {
            let error =
                json!({"code": problem.code().as_str(), "message": problem.detail(), "class": "permanent"});
            (How::Failed, error)
        }
    }
}

fn past(query: &Query) -> Problem {
    let detail = format!("query \"{}\" reads the past, which takes too long here", query.name);
    Problem::new(Code::RequestInvalid, detail).hint("declare it `detached`")
}

/// Rows as a list, shaped as the query says, or their number.
pub fn query(catalog: &Catalog, db: &Connection, asked: Asked<'_>) -> Result<Value, Problem> {
    let query = catalog.query(asked.name)?;
    if let Some(AsOf::Expr(_)) = &query.as_of {
        return Err(past(query));
    }
    let find = find(catalog, query, asked)?;
    shaped(catalog, query, &find, collect(db, &find, query, ROWS_MAX)?)
}

/// What is looked for, its arguments checked.
pub fn find(catalog: &Catalog, query: &Query, asked: Asked<'_>) -> Result<Find, Problem> {
    let args = Value::Object(call_args(&query.name, &query.args, asked.args)?);
    let actor = asked.caller.actor.clone();
    let mut find = Find::query(catalog, query, find::Asked { args, actor, now: asked.now })?;
    find.space = asked.space.map(str::to_owned);
    find.reader = Some(asked.caller.clone());
    Ok(find)
}

pub fn shaped(catalog: &Catalog, query: &Query, find: &Find, rows: Vec<Row>) -> Result<Value, Problem> {
    if query.count {
        return Ok(rows.len().into());
    }
    match query.shape.as_deref().and_then(|name| catalog.shape(name)) {
        None => Ok(rows.into_iter().map(node).collect()),
        Some(declared) => {
            let fields = shape(&declared.fields, &find.concept)?;
            rows.iter().map(|row| find.shaped(&fields, row)).collect()
        }
    }
}

/// The rows that are wanted; an error when that takes a look at more than `rows_max`.
pub fn collect(db: &Connection, find: &Find, query: &Query, rows_max: u64) -> Result<Vec<Row>, Problem> {
    let broken = |err: rusqlite::Error| crate::env::broken(crate::state::Fault(err));
    let limit = if query.count { usize::MAX } else { query.paginate.map_or(1_000, |n| n as usize) };
    let way = way(db, find, (limit, rows_max)).map_err(broken)?.ok_or_else(|| too_slow(query, find))?;
    let (mut read, params) = find.prepare(db, None, way).map_err(broken)?;
    let mut found = read.query(params_from_iter(params)).map_err(broken)?;
    let (mut rows, mut looked_at) = (Vec::new(), 0);
    while let Some(row) = found.next().map_err(broken)? {
        looked_at += 1;
        if looked_at > rows_max {
            return Err(too_slow(query, find));
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

/// `None` when more than `rows_max` rows would have to be gathered before the first is known.
fn way(db: &Connection, find: &Find, (limit, rows_max): (usize, u64)) -> rusqlite::Result<Option<Way>> {
    if rows_max == u64::MAX {
        return find.way(db, usize::MAX, u64::MAX).map(Some);
    }
    Ok(match find.way(db, limit, rows_max)? {
        Way::Index if find.gathers() && find.left(db, rows_max)? > rows_max => None,
        Way::Index => Some(Way::Index),
        Way::Free | Way::Walk => Some(Way::Walk),
    })
}

fn too_slow(query: &Query, find: &Find) -> Problem {
    let detail = format!(
        "query \"{}\" looks at more than {ROWS_MAX} rows inside a run: {}",
        query.name,
        find.unserved()
    );
    Problem::new(Code::QueryTooSlow, detail)
        .hint("compare a field with ==, in, < or > so that an index answers it, or declare it `detached`")
}

/// A row as logic reads it.
pub fn node(row: Row) -> Value {
    let told: [(&str, Value); 9] = [
        ("id", row.id.into()),
        ("concept", row.concept.clone().into()),
        ("type", row.concept.into()),
        ("space", row.space.into()),
        ("version", row.version.into()),
        ("createdAt", row.created_at.to_string().into()),
        ("createdBy", row.created_by.into()),
        ("updatedAt", row.updated_at.to_string().into()),
        ("payload", row.fields.into()),
    ];
    told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
