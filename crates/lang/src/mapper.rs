//! Input mappers (contracts §5): what a run, or a drained command, gets to see of an event.
//!
//! ```text
//!  {"price": "$.payload.price", "kind": "literal:order", "total": {"expr": "event.payload.n * 2"}}
//! ```
//! A path that can select only one node gives its value; one that can select several (`[*]`, `..`, a
//! filter) gives the list of their values, however many there are. No node: the name is left out.

use model::{Code, Problem};
use serde_json::{Map, Value};

use crate::expr::{Expr, Scope, Val};
use crate::jsonpath::JsonPath;

/// Seed 003's names for parts of the envelope, and where they are here, first found.
const ALIASES: [(&str, &[&str]); 5] = [
    ("$.event_id", &["$.id"]),
    ("$.event_type", &["$.topic", "$.type"]),
    ("$.entity_type", &["$.subject.kind"]),
    ("$.entity_id", &["$.subject.id"]),
    ("$.occurred_at", &["$.time", "$.recorded_at"]),
];

#[derive(Clone, Debug)]
pub struct Mapper {
    entries: Vec<(String, Source)>,
}

#[derive(Clone, Debug)]
enum Source {
    /// The first of these that selects anything.
    Paths(Vec<JsonPath>),
    Literal(String),
    Expr(Box<Expr>),
}

impl Mapper {
    /// Compiles a mapper; fails with `mapper.invalid`, or with what is wrong in a path or expression.
    pub fn parse(map: &Value) -> Result<Mapper, Problem> {
        let Value::Object(map) = map else {
            return Err(Problem::new(Code::MapperInvalid, "a mapper is an object of names and sources")
                .hint("write {\"price\": \"$.payload.price\"}"));
        };
        let entry = |(name, source): (&String, &Value)| {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            let source = Source::parse(name, source).map_err(|p| p.within(&pointer))?;
            Ok((name.clone(), source))
        };
        Ok(Mapper { entries: map.iter().map(entry).collect::<Result<_, Problem>>()? })
    }

    /// The input for this event. Fails only when an expression does.
    pub fn apply(&self, event: &Value) -> Result<Map<String, Value>, Problem> {
        let mut out = Map::new();
        for (name, source) in &self.entries {
            if let Some(value) = source.take(event)? {
                out.insert(name.clone(), value);
            }
        }
        Ok(out)
    }
}

impl Source {
    fn parse(name: &str, source: &Value) -> Result<Source, Problem> {
        let wrong = || {
            Problem::new(Code::MapperInvalid, format!("the source of {name:?} is not understood"))
                .hint("write \"$.payload.x\", \"literal:text\" or {\"expr\": \"…\"}")
        };
        match source {
            Value::String(text) => match text.strip_prefix("literal:") {
                Some(literal) => Ok(Source::Literal(literal.to_owned())),
                None if text.starts_with('$') => Source::paths(text),
                None => Err(wrong()),
            },
            Value::Object(map) if map.len() == 1 => match map.get("expr") {
                Some(Value::String(text)) => {
                    let expr = Expr::compile(text, &Scope::EVENT).map_err(|p| p.within("/expr"))?;
                    Ok(Source::Expr(expr.into()))
                }
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }

    fn paths(text: &str) -> Result<Source, Problem> {
        let alias = ALIASES.iter().find(|(name, _)| *name == text);
        let places = alias.map_or(&[][..], |(_, places)| places);
        let all = [text].into_iter().chain(places.iter().copied());
        Ok(Source::Paths(all.map(JsonPath::parse_bounded).collect::<Result<_, _>>()?))
    }

    fn take(&self, event: &Value) -> Result<Option<Value>, Problem> {
        match self {
            Source::Paths(paths) => Ok(paths.iter().find_map(|path| select(path, event))),
            Source::Literal(text) => Ok(Some(text.as_str().into())),
            Source::Expr(expr) => expr.eval(&[Val::of(event)])?.to_json().map(Some),
        }
    }
}

fn select(path: &JsonPath, event: &Value) -> Option<Value> {
    let values = path.values(event);
    match path.is_singular() {
        true => values.first().copied().cloned(),
        false => (!values.is_empty()).then(|| values.into_iter().cloned().collect()),
    }
}
