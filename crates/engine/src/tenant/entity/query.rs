//! Asking for rows: lists, declared queries and mutations. Read on connections of their own, so that a long search holds
//! nobody's write up.

use lang::expr::{Expr, Scope, Val};
use model::definition::{self, AsOf, Field};
use model::record::How;
use model::{Code, Problem};
use rusqlite::{Connection, params_from_iter};
use serde_json::{Map, Value, json};

use super::broken;
use super::history::Moment;
use crate::admit::Caller;
use crate::declared::{self, Detached};
use crate::entity::find::{After, Asked, Find, Way, shape};
use crate::entity::mutation::{arguments, check_args};
use crate::entity::{Concept, Row, Write, Written};
use crate::run::Effect;
use crate::state::Fault;
use crate::state::entity::row_of;
use crate::tenant::Tenant;

/// Rows that a list looks at before it answers with what it has and a cursor.
const SCAN_MAX: u64 = 100_000;

/// Rows that are gathered and sorted for a page, rather than to go through the table until the page is full: some 25 ms.
const GATHERED_MAX: u64 = 10_000;

/// Which rows of a concept to list.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub space: Option<String>,
    pub filter: Option<String>,
    pub limit: usize,
    pub cursor: Option<String>,
}

/// What a query came to.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub rows: Vec<Value>,
    pub count: Option<u64>,
    pub next: Option<String>,
    /// How SQLite goes about it, when asked.
    pub plan: Option<Vec<String>>,
}

impl Found {
    /// As contracts §10 answers a query.
    pub fn to_json(&self) -> Value {
        let mut answer = match self.count {
            Some(count) => json!({ "count": count }),
            None => json!({ "rows": self.rows }),
        };
        if let Some(next) = &self.next {
            answer["next"] = next.clone().into();
        }
        if let Some(plan) = &self.plan {
            answer["plan"] = json!(plan);
        }
        answer
    }
}

/// How a query is to be answered.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    pub args: Map<String, Value>,
    pub space: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
    pub explain: bool,
    /// The rows as they were then; a query may declare one of its own.
    pub as_of: Option<Moment>,
}

impl Tenant {
    /// Rows of a concept by id. May hold fewer than `limit` while there is a `next`.
    pub fn entities(&self, caller: &Caller, concept: &str, listing: &Listing) -> Result<Found, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept(concept)?.clone();
        let asked = Asked { args: Value::Null, actor: caller.actor.clone(), now: self.moment().now };
        let mut find = Find::all(concept, listing.filter.as_deref(), asked)?;
        find.space.clone_from(&listing.space);
        let page = Page { limit: listing.limit, cursor: listing.cursor.as_deref(), scan_max: SCAN_MAX };
        let (rows, next) = self.with_rows(&find.concept, |db| collect(db, caller, &find, &page))?;
        Ok(Found { rows: rows.iter().map(Row::to_json).collect(), next, ..Found::default() })
    }

    /// Every row of one of the house's own concepts.
    pub(crate) fn own_rows(&self, concept: &str) -> Result<Vec<Row>, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept_for(false, concept)?.clone();
        let asked = Asked { args: Value::Null, actor: String::new(), now: self.now() };
        let (find, caller) = (Find::all(concept, None, asked)?, Caller { outside: false, ..Caller::local() });
        let page = Page { limit: usize::MAX, cursor: None, scan_max: u64::MAX };
        let look = |writer: &crate::writer::Writer| {
            collect(writer.state.table().map_err(broken)?, &caller, &find, &page)
        };
        self.with_writer(|writer| look(writer)).map(|(rows, _)| rows)
    }

    /// Runs a declared query.
    pub fn query(&self, caller: &Caller, name: &str, asking: &Asking) -> Result<Found, Problem> {
        let (catalog, began) = (self.catalog(), self.real());
        let query = catalog.query(name)?;
        let args = call_args(name, &query.args, asking.args.clone())?;
        let asked = Asked { args: Value::Object(args), actor: caller.actor.clone(), now: self.moment().now };
        let moment = match (asking.as_of, &query.as_of) {
            (Some(moment), _) => Some(moment),
            (None, Some(AsOf::Expr(at))) => Some(moment_of(&at.0, &asked)?),
            (None, _) => None,
        };
        let mut find = Find::query(&catalog, query, asked)?;
        find.space.clone_from(&asking.space);
        let limit = asking.limit.or(query.paginate.map(|n| n as usize)).unwrap_or(1_000);
        let limit = if query.count { usize::MAX } else { limit };
        let page = Page { limit, cursor: asking.cursor.as_deref(), scan_max: u64::MAX };
        let explained = || self.with_rows(&find.concept, |db| explain(db, &find, limit));
        let plan = asking.explain.then(explained).transpose()?;
        let (rows, next) = match moment {
            None => self.with_rows(&find.concept, |db| collect(db, caller, &find, &page))?,
            Some(moment) => {
                let then = self.rows_as_of(&find, moment)?;
                find.look_at_past();
                collect(&then, caller, &find, &page)?
            }
        };
        let took = self.real().saturating_sub(began);
        self.say_executed(caller, name, asking.space.as_deref(), (took, rows.len() as u64));
        if query.count {
            return Ok(Found { count: Some(rows.len() as u64), plan, ..Found::default() });
        }
        let rows = match query.shape.as_deref().and_then(|name| catalog.shape(name)) {
            None => rows.iter().map(Row::to_json).collect(),
            Some(declared) => {
                let fields = shape(&declared.fields, &find.concept)?;
                rows.iter().map(|row| find.shaped(&fields, row)).collect::<Result<_, _>>()?
            }
        };
        Ok(Found { rows, count: None, next, plan })
    }

    /// Answers the detached query that a run waits for, beside the writer and over everything recorded so far.
    pub fn answer_query(&self, effect: &Effect) -> (How, Value) {
        let look = |query: &definition::Query, find: &mut Find| match &query.as_of {
            Some(AsOf::Expr(at)) => {
                let then = self.rows_as_of(find, moment_of(&at.0, &find.asked)?)?;
                find.look_at_past();
                declared::collect(&then, find, query, u64::MAX)
            }
            _ => self.with_rows(&find.concept, |db| declared::collect(db, find, query, u64::MAX)),
        };
        declared::told(Detached::of(effect).and_then(|asked| asked.answer(&self.catalog(), look)))
    }

    /// Runs a declared mutation: one write of one row.
    pub async fn mutate(
        &self,
        caller: &Caller,
        name: &str,
        args: Map<String, Value>,
        space: Option<&str>,
    ) -> Result<Written, Problem> {
        let mutation = self.catalog().mutation_ready(name)?;
        let write = mutation.write(&caller.actor, args, self.moment().now)?;
        let write = Write { space: space.unwrap_or_default().to_owned(), ..write };
        self.write(caller, write).await
    }

    /// A look at the rows of a concept, everything answered so far among them.
    pub(super) fn with_rows<T>(
        &self,
        concept: &Concept,
        read: impl FnOnce(&Connection) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.dir().is_some() && self.0.recent.touches(concept.id()) {
            self.with_writer(|writer| {
                let settled = if writer.state.is_open() { writer.settle() } else { Ok(()) };
                self.0.recent.tidy(writer.state.committed);
                settled.map_err(|crate::writer::Fatal(problem)| problem)
            })?;
        }
        self.with_committed(read)
    }

    /// A look at what `state.db` says by its last COMMIT; in memory, and while closing, at the writer's own.
    pub(super) fn with_committed<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let Some(dir) = self.dir().filter(|_| !self.is_closing()) else {
            return self.with_writer(|writer| read(writer.state.table().map_err(broken)?));
        };
        self.0.row_readers.look(&dir.join("state.db"), read).map_err(broken)?
    }

    /// Commits the state and cuts its log, with no reader of rows looking at it; false when somebody else does.
    pub(crate) fn cut_state_log(&self) -> Result<bool, Problem> {
        let cut = || {
            self.with_writer(|writer| {
                writer.settle().map_err(|crate::writer::Fatal(problem)| problem)?;
                writer.state.checkpoint().map_err(broken)
            })
        };
        self.0.row_readers.while_none(cut).map_err(broken)?
    }
}

struct Page<'a> {
    limit: usize,
    cursor: Option<&'a str>,
    scan_max: u64,
}

/// Rows that are wanted and may be seen; where to go on when there may be more.
fn collect(
    db: &Connection,
    caller: &Caller,
    find: &Find,
    page: &Page<'_>,
) -> Result<(Vec<Row>, Option<String>), Problem> {
    let wrong = || Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out");
    let fault = |err: rusqlite::Error| broken(Fault(err));
    let after = page.cursor.map(|cursor| After::parse(cursor).ok_or_else(wrong)).transpose()?;
    if after.as_ref().is_some_and(|after| after.keys.len() != find.sort_keys()) {
        return Err(wrong());
    }
    let way = find.way(db, page.limit, GATHERED_MAX).map_err(fault)?;
    let (mut read, params) = find.prepare(db, after.as_ref(), way).map_err(fault)?;
    let columns = read.column_count() - find.sort_keys();
    let mut found = read.query(params_from_iter(params)).map_err(fault)?;
    let (mut rows, mut last, mut scanned, mut hidden) = (Vec::new(), None, 0, 0);
    while let Some(sql) = found.next().map_err(fault)? {
        let is_full = rows.len() >= page.limit;
        let row = row_of(sql).map_err(fault)?;
        // That there is more would tell of a row that is not shown.
        if is_full && hidden < GATHERED_MAX && !find.concept.shows(&row, caller) {
            hidden += 1;
            continue;
        }
        if is_full || scanned >= page.scan_max {
            return Ok((rows, last.as_ref().map(After::to_cursor)));
        }
        scanned += 1;
        let keys = (0..find.sort_keys()).map(|key| sql.get(columns + key));
        let keys = keys.collect::<rusqlite::Result<_>>().map_err(fault)?;
        last = Some(After { keys, id: row.id.clone(), space: row.space.clone() });
        if find.concept.shows(&row, caller) && find.wants(&row) {
            rows.push(row);
        }
    }
    Ok((rows, None))
}

/// What a query's `asOf` comes to: a position or an instant.
fn moment_of(text: &str, asked: &Asked) -> Result<Moment, Problem> {
    let scope = Scope::rows(&["args", "actor", "now"]);
    let roots =
        [Val::of(&asked.args), Val::Text(asked.actor.as_str().into()), Val::Timestamp(asked.now.nanos())];
    match Expr::compile(text, &scope)?.eval(&roots)?.to_json()? {
        Value::Number(n) if n.as_u64().is_some() => Ok(Moment::Position(n.as_u64().unwrap_or_default())),
        Value::String(at) => Moment::parse(&at),
        other => {
            let detail = format!("asOf is a position or an instant, and {text} is {other}");
            Err(Problem::new(Code::RequestInvalid, detail))
        }
    }
}

fn explain(db: &Connection, find: &Find, limit: usize) -> Result<Vec<String>, Problem> {
    let fault = |err: rusqlite::Error| broken(Fault(err));
    let way = find.way(db, limit, GATHERED_MAX).map_err(fault)?;
    let plan_of = |way| {
        let statement = find.statement(None, way);
        let read = db.prepare(&format!("EXPLAIN QUERY PLAN {}", statement.sql));
        read.map(|read| (read, statement.params))
    };
    // As `Find::prepare` goes where there is no such index.
    let (mut read, params) = plan_of(way).or_else(|_| plan_of(Way::Free)).map_err(fault)?;
    let lines = read.query_map(params_from_iter(params), |row| row.get::<_, String>(3)).map_err(fault)?;
    lines.collect::<Result<_, _>>().map_err(fault)
}

/// Checks the arguments of what is called and writes no row of its own: a misfit is one of the call.
pub(crate) fn call_args(
    name: &str,
    args: &[Field],
    given: Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    check_args(&arguments(name, args)?, given).map_err(|problem| {
        Problem::new(Code::DefinitionArguments, problem.detail())
            .hint(problem.hint_text().unwrap_or_default())
            .at(problem.pointer().unwrap_or_default())
    })
}
