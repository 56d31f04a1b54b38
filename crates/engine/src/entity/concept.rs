//! A concept made ready: its patterns and derives compiled, its secrets and unique fields known by path.

use std::collections::BTreeMap;

use lang::expr::{Expr, Scope, Val};
use model::definition::{self, Field, Type};
use model::{Code, Problem};
use regex::Regex;
use serde_json::{Map, Value};

use super::{Row, token};
use crate::admit::Caller;

/// What a derive reads.
const DERIVE: Scope<'static> = Scope::of(&["prev", "next", "delta"]);

#[derive(Debug)]
pub struct Concept {
    pub definition: definition::Concept,
    /// By their text.
    pub(super) patterns: BTreeMap<String, Regex>,
    derives: Vec<(String, Option<Expr>)>,
    /// JSON pointers of secret fields.
    pub secrets: Vec<String>,
    /// JSON pointers of unique fields.
    pub unique: Vec<String>,
    /// JSON pointers of fields that are set once.
    pub immutable: Vec<String>,
}

impl Concept {
    pub fn new(definition: definition::Concept) -> Result<Concept, Problem> {
        let mut concept = Concept {
            patterns: BTreeMap::new(),
            derives: Vec::new(),
            secrets: Vec::new(),
            unique: Vec::new(),
            immutable: Vec::new(),
            definition,
        };
        let fields = concept.definition.fields.clone();
        concept.note(&fields, "")?;
        let instants = concept.paths_below(DERIVE.roots, &Type::Timestamp);
        let lengths = concept.paths_below(DERIVE.roots, &Type::Duration);
        let scope = Scope { instants: &instants, lengths: &lengths, ..DERIVE };
        for derive in &concept.definition.derives {
            let when = derive.when.as_ref().map(|when| Expr::compile(&when.0, &scope)).transpose()?;
            concept.derives.push((derive.topic.clone(), when));
        }
        Ok(concept)
    }

    fn note(&mut self, fields: &[Field], path: &str) -> Result<(), Problem> {
        for field in fields {
            let path = format!("{path}/{}", token(&field.name));
            if let Some(pattern) = &field.pattern {
                let whole = Regex::new(&format!("^(?:{pattern})$")).map_err(|err| self.bad(&path, &err))?;
                self.patterns.insert(pattern.clone(), whole);
            }
            if field.secret {
                self.secrets.push(path.clone());
            }
            if field.unique {
                self.unique.push(path.clone());
            }
            if field.immutable {
                self.immutable.push(path.clone());
            }
            if let Type::Object(inner) = &field.of {
                self.note(inner, &path)?;
            }
        }
        Ok(())
    }

    fn bad(&self, path: &str, err: &regex::Error) -> Problem {
        let detail = format!("the pattern of \"{path}\" in \"{}\" cannot be read: {err}", self.definition.id);
        Problem::new(Code::DefinitionInvalid, detail)
            .hint("write a regular expression that matches the whole text")
    }

    pub fn id(&self) -> &str {
        &self.definition.id
    }

    /// What the field at this JSON pointer is declared to be.
    pub fn type_at(&self, pointer: &str) -> Option<&Type> {
        super::seal::field_at(&self.definition.fields, pointer).map(|field| &field.of)
    }

    /// Dotted paths of fields that are declared to be of this type: instants and durations are compared as such.
    pub fn paths_of(&self, wanted: &Type) -> Vec<String> {
        fn below(fields: &[Field], path: &str, wanted: &Type, out: &mut Vec<String>) {
            for field in fields {
                match &field.of {
                    of if of == wanted => out.push(format!("{path}{}", field.name)),
                    Type::Object(inner) => below(inner, &format!("{path}{}.", field.name), wanted, out),
                    _ => {}
                }
            }
        }
        let mut out = Vec::new();
        below(&self.definition.fields, "", wanted, &mut out);
        out
    }

    /// The same below each of these roots.
    pub fn paths_below(&self, roots: &[&str], wanted: &Type) -> Vec<String> {
        let paths = self.paths_of(wanted);
        roots.iter().flat_map(|root| paths.iter().map(move |path| format!("{root}.{path}"))).collect()
    }

    /// The field whose actor alone sees and changes a row.
    pub fn owner(&self) -> Option<&str> {
        self.definition.row_authz.as_ref().map(|authz| authz.owner.as_str())
    }

    /// Rows that belong to an owner are as good as absent for everybody else from outside, and those of spaces that are not
    /// seen.
    pub fn shows(&self, row: &Row, to: &Caller) -> bool {
        to.sight.sees_space(&row.space)
            && (!to.outside || self.owner().is_none_or(|field| row.belongs_to(field, &to.actor)))
    }

    /// Topics of the events this change brings along, each once. A derive that errs says nothing.
    pub fn derived(
        &self,
        prev: Option<&Map<String, Value>>,
        next: Option<&Map<String, Value>>,
        delta: &Map<String, Value>,
    ) -> Vec<&str> {
        let row = |fields| Option::map_or(fields, Val::Null, Val::Object);
        let roots = [row(prev), row(next), Val::Object(delta)];
        let holds = |when: &Option<Expr>| when.as_ref().is_none_or(|when| when.test(&roots).unwrap_or(false));
        let mut topics: Vec<&str> = Vec::new();
        for (topic, _) in self.derives.iter().filter(|(_, when)| holds(when)) {
            if !topics.contains(&topic.as_str()) {
                topics.push(topic);
            }
        }
        topics
    }
}
