//! A declared mutation made ready: its arguments as something that checks them, its expressions compiled once.

use lang::expr::{Expr, Refs, Scope, Val};
use model::definition::{self, Write as Kind};
use model::{Problem, Timestamp};
use serde_json::{Map, Value};

use super::check::{Fill, check};
use super::{Action, Concept, Provenance, Write};

const ROOTS: [&str; 3] = ["args", "actor", "now"];

#[derive(Debug)]
pub struct Mutation {
    name: String,
    concept: String,
    write: Kind,
    accept: Vec<String>,
    args: Concept,
    id: Option<Expr>,
    stamps: Vec<Stamp>,
}

/// A field that the mutation sets by itself.
#[derive(Debug)]
struct Stamp {
    field: String,
    value: Expr,
    /// What the caller's arguments alone decide is what the caller says; who and when are not.
    told: bool,
}

impl Mutation {
    pub fn new(declared: &definition::Mutation) -> Result<Mutation, Problem> {
        let compile =
            |expr: &definition::Expr| Expr::compile(&expr.0, &Scope { rows: false, ..Scope::rows(&ROOTS) });
        let mut stamps = Vec::with_capacity(declared.stamp.len());
        for (field, value) in &declared.stamp {
            let refs = Refs::of(&value.0);
            let told = !refs.now && refs.roots.iter().eq(["args"]);
            stamps.push(Stamp { field: field.clone(), value: compile(value)?, told });
        }
        Ok(Mutation {
            name: declared.name.clone(),
            concept: declared.concept.clone(),
            write: declared.write,
            accept: declared.accept.clone(),
            args: arguments(&declared.name, &declared.args)?,
            id: declared.id.as_ref().map(compile).transpose()?,
            stamps,
        })
    }

    /// The write that it makes of its arguments.
    pub fn write(&self, actor: &str, args: Map<String, Value>, now: Timestamp) -> Result<Write, Problem> {
        let args = Value::Object(check_args(&self.args, args)?);
        let roots = [Val::of(&args), Val::Text(actor.into()), Val::Timestamp(now.nanos())];
        let id = match &self.id {
            Some(id) => Some(id.eval(&roots)?.to_json()?),
            None => args.get("id").filter(|_| !self.accept.iter().any(|name| name == "id")).cloned(),
        };
        let id = id.filter(|id| !id.is_null()).map(|id| id.as_str().map_or(id.to_string(), str::to_owned));
        let mut fields: Map<String, Value> =
            self.accept.iter().filter_map(|name| Some((name.clone(), args.get(name)?.clone()))).collect();
        let mut told: Vec<String> = fields.keys().cloned().collect();
        for Stamp { field, value, told: says } in &self.stamps {
            fields.insert(field.clone(), value.eval(&roots)?.to_json()?);
            if *says {
                told.push(field.clone());
            }
        }
        let action = match self.write {
            Kind::Insert => Action::Insert { fields, told },
            Kind::Update => Action::Patch(fields),
            Kind::Upsert => Action::Upsert(fields),
            Kind::Delete => Action::Delete,
        };
        let provenance = Provenance::mutation(&self.name);
        Ok(Write { provenance, ..Write::of(&self.concept, id.as_deref(), action) })
    }
}

/// What checks the arguments of something that is called.
pub fn arguments(name: &str, args: &[definition::Field]) -> Result<Concept, Problem> {
    Concept::new(definition::Concept { id: name.to_owned(), fields: args.to_vec(), ..Default::default() })
}

/// Arguments as they are declared: types, defaults, and nothing else.
pub fn check_args(declared: &Concept, given: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    check(declared, given, Fill::All).map_err(|problem| {
        let detail = problem.detail().replacen("field \"", "argument \"", 1);
        let names: Vec<&str> = declared.definition.fields.iter().map(|arg| arg.name.as_str()).collect();
        let hint = match names.is_empty() {
            true => "it takes no arguments".to_owned(),
            false => format!("its arguments are {}", names.join(", ")),
        };
        Problem::new(problem.code(), detail)
            .hint(hint)
            .at(problem.pointer().unwrap_or_default())
            .within("/args")
    })
}
