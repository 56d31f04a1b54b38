//! Finding rows: which of them a filter wants, what of it an index can answer, and in which order they come.
//!
//! ```text
//!  payload.status == args.status   a field compared with something known: SQLite, by an index of declared queries
//!  everything, that included       tested row by row as an expression; an error there is a no (contracts §14)
//! ```

mod after;
mod bound;
mod index;
mod narrow;

use std::sync::Arc;

use lang::expr::{Expr, Scope, Val};
use model::definition::{INTRINSIC, Query, ShapeField, Sort, Type};
use model::{Code, Problem, Timestamp};
use rusqlite::types::Value as Sql;
use rusqlite::{CachedStatement, Connection};
use serde_json::{Map, Value};

pub use after::After;
use bound::{Of, Want};
pub use index::{Index, Way};
use narrow::{Narrow, Test};

use super::{Catalog, Concept, Row, token};
use crate::admit::Caller;
use crate::state::entity::{COLUMNS, json_path};

/// What a filter, a sort and a shape may name: what is asked with, and what every row has of itself.
const NAMES: [&str; 16] = {
    let mut names = ["fields", "args", "actor", "now", "", "", "", "", "", "", "", "", "", "", "", ""];
    let mut i = 0;
    while i < INTRINSIC.len() {
        names[4 + i] = INTRINSIC[i];
        i += 1;
    }
    names
};
const ROOTS: Scope<'static> = Scope::rows(&NAMES);

/// Who asks, when, and with which arguments.
#[derive(Clone, Debug)]
pub struct Asked {
    pub args: Value,
    pub actor: String,
    pub now: Timestamp,
}

/// A search over the rows of a concept, made ready.
pub struct Find {
    pub concept: Arc<Concept>,
    pub space: Option<String>,
    /// Who sees only some of the rows. None: whoever reads looks after that.
    pub reader: Option<Caller>,
    tests: Vec<Expr>,
    /// What SQLite can tell of the tests beforehand.
    narrows: Vec<Narrow>,
    index: Option<Index>,
    sort: Vec<Order>,
    pub asked: Asked,
}

/// One key of a sort, as SQL.
struct Order {
    by: String,
    descending: bool,
    /// Whether some row may have no value there.
    nullable: bool,
}

/// SQL and its parameters.
pub struct Statement {
    pub sql: String,
    pub params: Vec<Sql>,
}

impl Find {
    /// Rows of a concept that one expression wants.
    pub fn all(concept: Arc<Concept>, filter: Option<&str>, asked: Asked) -> Result<Find, Problem> {
        let tests: Vec<(&str, bool)> = filter.into_iter().map(|text| (text, true)).collect();
        let mut timed = Timed::default();
        timed.add(&concept);
        Ok(Find { index: None, ..Find::new(concept, &tests, (&[], timed), asked)? })
    }

    /// What a declared query asks for with these arguments.
    pub fn query(catalog: &Catalog, query: &Query, asked: Asked) -> Result<Find, Problem> {
        let concept = catalog.concept(&query.concept)?.clone();
        let timed = Timed::of(query, &concept);
        let mut tests = Vec::new();
        for conjunct in &query.filter {
            let holds = match &conjunct.when {
                Some(when) => given(&when.0, &asked)?,
                None => true,
            };
            if holds {
                tests.push((conjunct.test.0.as_str(), conjunct.when.is_none()));
            }
        }
        Find::new(concept, &tests, (&query.sort, timed), asked)
    }

    /// Each text with whether it is always tested; `timed` are the paths that are declared to be instants or durations.
    fn new(
        concept: Arc<Concept>,
        texts: &[(&str, bool)],
        (sort, timed): (&[Sort], Timed),
        asked: Asked,
    ) -> Result<Find, Problem> {
        let found = |(text, always): &(&str, bool)| {
            let tests = narrow::tests(text, &concept, &timed);
            tests.into_iter().map(|test| (test, *always)).collect::<Vec<_>>()
        };
        let found: Vec<(Test, bool)> = texts.iter().flat_map(found).collect();
        let narrows = found.iter().filter_map(|(test, _)| test.narrow(&asked)).collect();
        let sort = sort.iter().map(|sort| order(sort, &concept)).collect::<Result<Vec<_>, _>>()?;
        let always: Vec<&Test> = found.iter().filter(|(_, always)| *always).map(|(test, _)| test).collect();
        let index = Index::choose(&concept, &always, &sort);
        let fields: Vec<&str> = concept.definition.fields.iter().map(|field| field.name.as_str()).collect();
        let scope =
            Scope { instants: &timed.instants, lengths: &timed.lengths, shorthands: &fields, ..ROOTS };
        let tests = texts.iter().map(|(text, _)| Expr::compile(text, &scope)).collect::<Result<_, _>>()?;
        Ok(Find { concept, space: None, reader: None, tests, narrows, index, sort, asked })
    }

    /// For rows as they were, perhaps before a field was declared to be an instant or a duration: what they hold there may be
    /// written otherwise than rows are now, and only the filter reads it.
    pub fn look_at_past(&mut self) {
        self.narrows.retain(|narrow| {
            narrow.column.of == Of::Plain || matches!(narrow.column.name.as_str(), "createdAt" | "updatedAt")
        });
    }

    pub fn wants(&self, row: &Row) -> bool {
        if self.reader.as_ref().is_some_and(|reader| !self.concept.shows(row, reader)) {
            return false;
        }
        with_roots(row, &self.asked, |roots| self.tests.iter().all(|test| test.test(roots).unwrap_or(false)))
    }

    /// The row as a shape shows it.
    pub fn shaped(&self, fields: &[(String, Expr)], row: &Row) -> Result<Value, Problem> {
        with_roots(row, &self.asked, |roots| {
            let value = |(name, value): &(String, Expr)| Ok((name.clone(), value.eval(roots)?.to_json()?));
            let shaped = fields.iter().map(value).collect::<Result<Vec<_>, Problem>>()?;
            // What a row has not is left out, as in the row itself.
            Ok(Value::Object(shaped.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>()))
        })
    }

    /// Candidates in order, those behind `after`, ready on a connection, with the parameters. Behind [`COLUMNS`] stand the
    /// sort's keys.
    pub fn prepare<'c>(
        &self,
        db: &'c Connection,
        after: Option<&After>,
        way: Way,
    ) -> rusqlite::Result<(CachedStatement<'c>, Vec<Sql>)> {
        let statement = self.statement(after, way);
        match db.prepare_cached(&statement.sql) {
            // A table of rows as they were has no such index, nor has one that was committed before the query was declared.
            Err(_) if way == Way::Index => self.prepare(db, after, Way::Free),
            read => Ok((read?, statement.params)),
        }
    }

    pub fn statement(&self, after: Option<&After>, way: Way) -> Statement {
        let mut params = Vec::new();
        let mut bind = |value: Sql| {
            params.push(value);
            format!("?{}", params.len())
        };
        let keys: String = self.sort.iter().map(|order| format!(", {}", order.by)).collect();
        let mut sql = format!("SELECT {COLUMNS}{keys} FROM {}", self.candidates(way, &mut bind));
        if let Some(after) = after {
            sql.push_str(&self.behind(after, &mut bind));
        }
        let order: Vec<String> = self.sort.iter().map(Order::sql).collect();
        let order: Vec<&str> = order.iter().map(String::as_str).chain(["id", "space"]).collect();
        sql.push_str(&format!(" ORDER BY {}", order.join(", ")));
        Statement { sql, params }
    }

    /// Counts candidates by the index, as far as `at_most`.
    fn counting(&self, at_most: u64) -> Statement {
        let mut params = Vec::new();
        let mut bind = |value: Sql| {
            params.push(value);
            format!("?{}", params.len())
        };
        let candidates = self.candidates(Way::Index, &mut bind);
        Statement {
            sql: format!("SELECT count(*) FROM (SELECT 1 FROM {candidates} LIMIT {at_most})"),
            params,
        }
    }

    /// The table and what holds of every row that is wanted.
    fn candidates(&self, way: Way, bind: &mut impl FnMut(Sql) -> String) -> String {
        // Without figures SQLite takes a concept for a few rows and would go through all of them.
        let by = self.index.as_ref().filter(|_| way == Way::Index);
        let by = by.map(|index| format!(" INDEXED BY {}", index.name)).unwrap_or_default();
        let concept = format!("concept = {}", quoted(self.concept.id()));
        let mut sql = format!("entity{by} WHERE {concept}");
        let is_told =
            |narrow: &&Narrow| way != Way::Walk || narrow.want.is_one() || narrow.column.sql == "id";
        for narrow in self.narrows.iter().filter(is_told) {
            sql.push_str(&format!(" AND {}", narrow.sql(&concept, bind)));
        }
        if let Some(space) = &self.space {
            sql.push_str(&format!(" AND space = {}", bind(Sql::Text(space.clone()))));
        }
        sql
    }

    /// Fields that the tests read.
    fn fields_read(&self) -> impl Iterator<Item = String> + '_ {
        let reads = self.tests.iter().flat_map(Expr::reads);
        let of_row = reads.filter(|read| matches!(NAMES[read.root], "payload" | "fields"));
        of_row.filter_map(|read| Some(format!("payload.{}", read.field.as_ref()?)))
    }

    /// What holds of every row behind this one: it goes on in one key, and agrees in those before it.
    fn behind(&self, after: &After, bind: &mut impl FnMut(Sql) -> String) -> String {
        let (id, space) = (bind(Sql::Text(after.id.clone())), bind(Sql::Text(after.space.clone())));
        let mut behind = format!("(id, space) > ({id}, {space})");
        let mut bound = String::new();
        for (order, key) in self.sort.iter().zip(&after.keys).rev() {
            let (by, at) = (&order.by, bind(key.clone()));
            // No value comes first, and last when descending.
            let further = match (order.descending, key) {
                (false, Sql::Null) => format!("{by} IS NOT NULL"),
                (false, _) => format!("{by} > {at}"),
                (true, Sql::Null) => "0".to_owned(),
                (true, _) if order.nullable => format!("({by} < {at} OR {by} IS NULL)"),
                (true, _) => format!("{by} < {at}"),
            };
            behind = format!("({further} OR {by} IS {at} AND {behind})");
            // Said once more of the first key alone, so that an index begins there.
            bound = match (order.descending, key) {
                (false, Sql::Null) => String::new(),
                (false, _) => format!(" AND {by} >= {at}"),
                (true, _) if order.nullable => String::new(),
                (true, _) => format!(" AND {by} <= {at}"),
            };
        }
        format!(" AND {behind}{bound}")
    }

    pub fn sort_keys(&self) -> usize {
        self.sort.len()
    }
}

impl Narrow {
    /// `concept` is what holds of the whole search: each side of an alternative must say it to be served by an index over the
    /// rows of one concept.
    fn sql(&self, concept: &str, bind: &mut impl FnMut(Sql) -> String) -> String {
        let by = &self.column.sql;
        match &self.want {
            Want::OneOf(values) => {
                let bound: Vec<String> = values
                    .iter()
                    .filter(|value| **value != Sql::Null)
                    .map(|value| bind(value.clone()))
                    .collect();
                let is_one = match bound.as_slice() {
                    [one] => format!("{by} = {one}"),
                    many => format!("{by} IN ({})", many.join(", ")),
                };
                match (values.contains(&Sql::Null), bound.is_empty()) {
                    (false, _) => is_one,
                    (true, true) => format!("{by} IS NULL"),
                    (true, false) => format!("({concept} AND {by} IS NULL OR {concept} AND {is_one})"),
                }
            }
            Want::Between(low, high) => {
                let low = low.iter().map(|(at, is_wanted)| (if *is_wanted { ">=" } else { ">" }, at));
                let high = high.iter().map(|(at, is_wanted)| (if *is_wanted { "<=" } else { "<" }, at));
                let sides: Vec<String> =
                    low.chain(high).map(|(sign, at)| format!("{by} {sign} {}", bind(at.clone()))).collect();
                sides.join(" AND ")
            }
        }
    }
}

impl Order {
    fn sql(&self) -> String {
        format!("{}{}", self.by, if self.descending { " DESC" } else { "" })
    }
}

/// The expressions of a shape, ready.
pub fn shape(fields: &[ShapeField], concept: &Concept) -> Result<Vec<(String, Expr)>, Problem> {
    let mut timed = Timed::default();
    timed.add(concept);
    let scope = Scope { instants: &timed.instants, lengths: &timed.lengths, ..ROOTS };
    let one = |field: &ShapeField| Ok((field.name.clone(), Expr::compile(&field.value.0, &scope)?));
    fields.iter().map(one).collect()
}

/// Paths that are declared to be instants or durations.
#[derive(Default)]
struct Timed {
    instants: Vec<String>,
    lengths: Vec<String>,
}

impl Timed {
    /// Those of a row, and the arguments of the query.
    fn of(query: &Query, concept: &Concept) -> Timed {
        let args = |of: Type| {
            let of_type = query.args.iter().filter(move |arg| arg.of == of);
            of_type.map(|arg| format!("args.{}", arg.name)).collect()
        };
        let mut timed = Timed { instants: args(Type::Timestamp), lengths: args(Type::Duration) };
        timed.add(concept);
        timed
    }

    /// Every name under which those of a row are read.
    fn add(&mut self, concept: &Concept) {
        self.instants.extend(["createdAt", "updatedAt"].map(str::to_owned));
        self.instants.extend(concept.paths_below(&["payload", "fields"], &Type::Timestamp));
        self.lengths.extend(concept.paths_below(&["payload", "fields"], &Type::Duration));
    }
}

/// `when(args.x)`: whether the argument was given, or the expression is true.
fn given(when: &str, asked: &Asked) -> Result<bool, Problem> {
    let expr = Expr::compile(when, &Scope { roots: &["args", "actor", "now"], ..ROOTS })?;
    let value = expr.eval(&[
        Val::of(&asked.args),
        Val::Text(asked.actor.as_str().into()),
        Val::Timestamp(asked.now.nanos()),
    ])?;
    Ok(!matches!(value.to_json()?, Value::Null | Value::Bool(false)))
}

/// The values of [`NAMES`], in their order.
fn with_roots<T>(row: &Row, asked: &Asked, run: impl FnOnce(&[Val<'_>]) -> T) -> T {
    let (created, updated) = (row.created_at.to_string(), row.updated_at.to_string());
    let provenance = serde_json::to_value(&row.provenance).unwrap_or_default();
    fn text(text: &str) -> Val<'_> {
        Val::Text(text.into())
    }
    run(&[
        Val::Object(&row.fields),
        Val::of(&asked.args),
        text(&asked.actor),
        Val::Timestamp(asked.now.nanos()),
        text(&row.id),
        text(&row.concept),
        text("object"),
        text(&created),
        text(&row.created_by),
        text(&updated),
        text(&row.space),
        text(&row.space),
        text(&row.concept),
        Val::Object(&row.fields),
        Val::of(&provenance),
        Val::int(row.version as i64),
    ])
}

fn order(sort: &Sort, concept: &Concept) -> Result<Order, Problem> {
    let by = match sort.field.as_str() {
        "id" => "id".to_owned(),
        // Without their end, instants of any precision are in order as text.
        "createdAt" => "rtrim(created_at, 'Z')".to_owned(),
        "updatedAt" => "rtrim(updated_at, 'Z')".to_owned(),
        "createdBy" => "created_by".to_owned(),
        "space" => "space".to_owned(),
        path => {
            let path = path.strip_prefix("payload.").unwrap_or(path);
            let pointer: String = path.split('.').map(|step| format!("/{}", token(step))).collect();
            if path.contains(['"', '\'']) {
                let detail = format!("a query cannot be sorted by {path:?}");
                return Err(Problem::new(Code::DefinitionInvalid, detail));
            }
            let by = format!("json_extract(fields, {})", json_path(&pointer));
            if concept.type_at(&pointer) == Some(&Type::Timestamp) { format!("rtrim({by}, 'Z')") } else { by }
        }
    };
    Ok(Order { nullable: by.contains("json_"), by, descending: sort.descending })
}

/// A text as an SQL literal; an index over the rows of one concept is only found by a literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_row_has_its_value() {
        let row = Row {
            concept: "v1:a:b".into(),
            space: "s".into(),
            id: "i".into(),
            version: 7,
            created_at: Timestamp::EPOCH,
            created_by: "user:ann".into(),
            updated_at: Timestamp::EPOCH,
            fields: Map::from_iter([("x".to_owned(), Value::from(1))]),
            sealed: Default::default(),
            since: Default::default(),
            provenance: super::super::Provenance::api("cli"),
        };
        let asked =
            Asked { args: serde_json::json!({"n": 2}), actor: "user:bob".into(), now: Timestamp::EPOCH };
        for test in [
            r#"id == "i" && concept == "v1:a:b" && type == "object" && space == "s" && partition == "s""#,
            r#"schema == "v1:a:b" && createdBy == "user:ann" && createdAt == updatedAt && version == 7"#,
            r#"payload.x == 1 && fields.x == 1 && provenance.via == "cli" && args.n == 2 && actor == "user:bob""#,
        ] {
            let test = Expr::compile(test, &ROOTS).unwrap();
            assert!(with_roots(&row, &asked, |roots| test.test(roots).unwrap()), "{test:?}");
        }
    }
}
