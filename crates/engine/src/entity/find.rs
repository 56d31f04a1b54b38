//! Finding rows: which of them a filter wants, what of it an index can answer, and in which order they come.
//!
//! ```text
//!  payload.status == args.status   an equality of a field with something known: SQLite, by an index of declared queries
//!  everything, that included       tested row by row as an expression; an error there is a no (contracts §14)
//! ```

use std::sync::Arc;

use lang::expr::{Expr, Scope, Val};
use model::definition::{INTRINSIC, Query, ShapeField, Sort, Type};
use model::time::{duration_json, duration_of, parse_duration};
use model::{Code, Problem, Timestamp, base64};
use rusqlite::types::Value as Sql;
use serde_json::{Map, Value};

use super::check::instant;
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
    /// Fields whose value is known.
    equal: Vec<(String, Value)>,
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

/// The last row of a page, in the order of its search.
#[derive(Clone, Debug)]
pub struct After {
    pub keys: Vec<Sql>,
    pub id: String,
    pub space: String,
}

/// SQL and its parameters.
pub struct Statement {
    pub sql: String,
    pub params: Vec<Sql>,
}

impl Find {
    /// Rows of a concept that one expression wants.
    pub fn all(concept: Arc<Concept>, filter: Option<&str>, asked: Asked) -> Result<Find, Problem> {
        let tests: Vec<&str> = filter.into_iter().collect();
        Find::new(concept, &tests, (&[], Timed::default()), asked)
    }

    /// What a declared query asks for with these arguments.
    pub fn query(catalog: &Catalog, query: &Query, asked: Asked) -> Result<Find, Problem> {
        let concept = catalog.concept(&query.concept)?.clone();
        let args = |of: Type| {
            let of_type = query.args.iter().filter(move |arg| arg.of == of);
            of_type.map(|arg| format!("args.{}", arg.name)).collect()
        };
        let args = Timed { instants: args(Type::Timestamp), lengths: args(Type::Duration) };
        let mut tests = Vec::new();
        for conjunct in &query.filter {
            let holds = match &conjunct.when {
                Some(when) => given(&when.0, &asked)?,
                None => true,
            };
            if holds {
                tests.push(conjunct.test.0.as_str());
            }
        }
        Find::new(concept, &tests, (&query.sort, args), asked)
    }

    /// `timed` are the arguments that are declared to be instants or durations.
    fn new(
        concept: Arc<Concept>,
        tests: &[&str],
        (sort, mut timed): (&[Sort], Timed),
        asked: Asked,
    ) -> Result<Find, Problem> {
        timed.add(&concept);
        let known = |text: &&str| {
            let (at, side) = equality(text)?;
            let value = side.value(&asked)?;
            // Rows hold instants and durations in one form, whatever form is asked for.
            let value = match concept.type_at(&at) {
                Some(Type::Timestamp) => instant(value.as_str()?)?.to_string().into(),
                Some(Type::Duration) => duration_json(duration_of(&value)?),
                _ => value,
            };
            Some((at, value))
        };
        let equal = tests.iter().flat_map(|text| parts(text)).filter_map(|text| known(&text)).collect();
        let fields: Vec<&str> = concept.definition.fields.iter().map(|field| field.name.as_str()).collect();
        let scope =
            Scope { instants: &timed.instants, lengths: &timed.lengths, shorthands: &fields, ..ROOTS };
        let tests = tests.iter().map(|text| Expr::compile(text, &scope)).collect::<Result<_, _>>()?;
        let sort = sort.iter().map(|sort| order(sort, &concept)).collect::<Result<Vec<_>, _>>()?;
        Ok(Find { concept, space: None, reader: None, tests, equal, sort, asked })
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

    /// Candidates in order, those behind `after`. Behind [`COLUMNS`] stand the sort's keys.
    pub fn statement(&self, after: Option<&After>) -> Statement {
        let keys: String = self.sort.iter().map(|order| format!(", {}", order.by)).collect();
        let mut sql =
            format!("SELECT {COLUMNS}{keys} FROM entity WHERE concept = {}", quoted(self.concept.id()));
        let mut params = Vec::new();
        let mut bind = |value: Sql| {
            params.push(value);
            format!("?{}", params.len())
        };
        for (pointer, value) in &self.equal {
            let value = bind(sql_value(value));
            sql.push_str(&format!(" AND json_extract(fields, {}) = {value}", json_path(pointer)));
        }
        if let Some(space) = &self.space {
            sql.push_str(&format!(" AND space = {}", bind(Sql::Text(space.clone()))));
        }
        if let Some(after) = after {
            sql.push_str(&self.behind(after, &mut bind));
        }
        let order: Vec<String> = self.sort.iter().map(Order::sql).collect();
        let order: Vec<&str> = order.iter().map(String::as_str).chain(["id", "space"]).collect();
        sql.push_str(&format!(" ORDER BY {}", order.join(", ")));
        Statement { sql, params }
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

impl Order {
    fn sql(&self) -> String {
        format!("{}{}", self.by, if self.descending { " DESC" } else { "" })
    }
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

/// The expressions of a shape, ready.
pub fn shape(fields: &[ShapeField], concept: &Concept) -> Result<Vec<(String, Expr)>, Problem> {
    let mut timed = Timed::default();
    timed.add(concept);
    let scope = Scope { instants: &timed.instants, lengths: &timed.lengths, ..ROOTS };
    let one = |field: &ShapeField| Ok((field.name.clone(), Expr::compile(&field.value.0, &scope)?));
    fields.iter().map(one).collect()
}

/// What the index of a query is over: fields that it compares with something known, then the keys of its sort.
pub fn indexed(query: &Query, concept: &Concept) -> Vec<String> {
    let tests = query.filter.iter().filter(|conjunct| conjunct.when.is_none());
    let mut at: Vec<String> = tests
        .flat_map(|conjunct| parts(&conjunct.test.0))
        .filter_map(|text| Some(equality(text)?.0))
        .collect();
    at.sort();
    at.dedup();
    let mut columns: Vec<String> =
        at.iter().map(|at| format!("json_extract(fields, {})", json_path(at))).collect();
    columns.extend(query.sort.iter().filter_map(|sort| Some(order(sort, concept).ok()?.sql())));
    columns
}

/// Paths that are declared to be instants or durations.
#[derive(Default)]
struct Timed {
    instants: Vec<String>,
    lengths: Vec<String>,
}

impl Timed {
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

/// The other side of an equality, as far as it can be known without a row.
enum Side<'a> {
    Arg(&'a str),
    Actor,
    UserId,
    Literal(Value),
}

impl Side<'_> {
    /// Only what an index finds exactly: a missing field equals `""`, and that is no value in an index.
    fn value(&self, asked: &Asked) -> Option<Value> {
        let value = match self {
            Side::Arg(name) => asked.args.get(name).cloned()?,
            Side::Actor => asked.actor.clone().into(),
            Side::UserId => asked.actor.strip_prefix("user:").unwrap_or(&asked.actor).into(),
            Side::Literal(value) => value.clone(),
        };
        match &value {
            Value::String(text) if !text.is_empty() => Some(value),
            Value::Number(_) | Value::Bool(_) => Some(value),
            _ => None,
        }
    }
}

/// The parts of `a && b && c`; an expression with an `||` or `?` is one part.
fn parts(text: &str) -> Vec<&str> {
    let whole = text.contains("||") || text.contains('?') || text.contains('(') || text.contains('{');
    if whole || text.matches('"').count() % 2 == 1 || text.contains('\\') {
        return vec![text];
    }
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, None);
    let bytes = text.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        match (byte, inside) {
            (b'"' | b'\'', None) => inside = Some(*byte),
            (byte, Some(quote)) if *byte == quote => inside = None,
            (b'&', None) if bytes.get(i + 1) == Some(&b'&') => {
                parts.push(text[begin..i].trim());
                begin = i + 2;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

/// Reads `payload.<path> == <something known>`, and nothing more complicated than that.
fn equality(text: &str) -> Option<(String, Side<'_>)> {
    let (left, right) = text.split_once("==")?;
    let path = left.trim().strip_prefix("payload.").or_else(|| left.trim().strip_prefix("fields."))?;
    let word = |text: &str| {
        let mut chars = text.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !path.split('.').all(word) {
        return None;
    }
    let pointer: String = path.split('.').map(|step| format!("/{}", token(step))).collect();
    let right = right.trim();
    let side = match right.strip_prefix("args.") {
        Some(name) if word(name) => Side::Arg(name),
        Some(_) => return None,
        None if right == "actor" => Side::Actor,
        None if right == "actor.userId" => Side::UserId,
        None => Side::Literal(literal(right)?),
    };
    Some((pointer, side))
}

fn literal(text: &str) -> Option<Value> {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    match inner {
        Some(inner) if !inner.contains(['\'', '\\']) => Some(inner.into()),
        Some(_) => None,
        None => {
            let json: Option<Value> = serde_json::from_str(text).ok();
            // `5m` stands for itself here: what it is compared with says what it means.
            let length = || {
                let is_one = text.starts_with(|c: char| c.is_ascii_digit()) && parse_duration(text).is_some();
                is_one.then(|| text.into())
            };
            json.or_else(length).filter(|value| !value.is_object() && !value.is_array())
        }
    }
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

fn sql_value(value: &Value) -> Sql {
    match value {
        Value::Bool(yes) => Sql::Integer((*yes).into()),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Sql::Real(number.as_f64().unwrap_or(0.0)), Sql::Integer)
        }
        Value::String(text) => Sql::Text(text.clone()),
        _ => Sql::Null,
    }
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

    #[test]
    fn only_plain_equalities_are_left_to_an_index() {
        let found =
            |text: &str| parts(text).into_iter().filter_map(equality).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(found(r#"payload.a == "x" && payload.b.c == args.n"#), ["/a", "/b/c"]);
        assert_eq!(found(r#"payload.a == 'x' && payload.n > 1"#), ["/a"]);
        for other in [
            r#"payload.a == "x" || payload.b == 1"#,
            "payload.a == payload.b",
            "payload.a == args.x + 1",
            "payload.a != 1",
            "(payload.a == 1)",
            r#"payload.a == "x && payload.b == 1"#,
        ] {
            assert_eq!(found(other), Vec::<String>::new(), "{other}");
        }
    }
}
