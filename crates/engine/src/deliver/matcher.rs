//! Whether an event concerns a group: pattern, space, band and filter, compiled once when the group is put.

use lang::expr::{Expr, Scope, Val};
use lang::filter::Filter;
use model::event::Event;
use model::group::{Definition, Ordering};
use model::{Code, Problem};
use serde_json::Value;

pub struct Matcher {
    definition: Definition,
    filter: Option<Filter>,
    key: Option<Expr>,
}

/// What a matcher says of an event.
#[derive(Debug, PartialEq)]
pub enum Match {
    No,
    /// The filter could not be evaluated: not a match, but counted and explainable.
    Error(String),
    Yes {
        key: Option<String>,
    },
}

impl Matcher {
    pub fn new(definition: &Definition) -> Result<Matcher, Problem> {
        let filter = definition.filter.as_ref().map(Filter::parse).transpose();
        let key = definition.key.as_ref().map(|key| Expr::compile(key, &Scope::EVENT));
        Ok(Matcher {
            definition: definition.clone(),
            filter: filter.map_err(|problem| problem.within("/filter"))?,
            key: key.transpose().map_err(|problem| problem.within("/key"))?,
        })
    }

    /// Whether it takes what is told of runs, which is read out of their records.
    pub fn hears_runs(&self) -> bool {
        self.definition.patterns.iter().any(crate::lifecycle::names_runs)
    }

    /// By topic, space and band alone; no payload is read.
    pub fn concerns(&self, event: &Event) -> bool {
        let envelope = &event.envelope;
        let space = self.definition.space.as_ref();
        space.is_none_or(|space| *space == envelope.space)
            && envelope.band <= self.definition.max_band
            && self.definition.patterns.iter().any(|pattern| pattern.receives(&envelope.topic))
    }

    pub fn test(&self, event: &Event) -> Match {
        if !self.concerns(event) {
            return Match::No;
        }
        let keyed = self.definition.ordering == Ordering::Key;
        if self.filter.is_none() && !keyed {
            return Match::Yes { key: None };
        }
        let value = event.to_value();
        match self.filter.as_ref().map_or(Ok(true), |filter| filter.test(&value)) {
            Ok(false) => Match::No,
            Err(problem) => Match::Error(problem.to_string()),
            Ok(true) if keyed => Match::Yes { key: Some(self.key_of(&value)) },
            Ok(true) => Match::Yes { key: None },
        }
    }

    /// Events whose key cannot be told keep order among themselves.
    fn key_of(&self, event: &Value) -> String {
        let key = self.key.as_ref().and_then(|key| key.eval(&[Val::of(event)]).ok()?.to_json().ok());
        match key {
            Some(Value::String(text)) => text,
            Some(value) => plain(value).to_string(),
            None => String::new(),
        }
    }
}

/// One text for numbers that are equal: 1.0 and 1e0 are 1.
fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            // Whole, and far from where a float skips whole numbers.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}

/// Refuses a definition whose filter or key cannot be compiled, or with a pattern that could never be given anything.
pub fn check(definition: &Definition) -> Result<(), Problem> {
    for (index, pattern) in definition.patterns.iter().enumerate() {
        let place =
            if definition.patterns.len() == 1 { "/pattern".to_owned() } else { format!("/pattern/{index}") };
        crate::lifecycle::check_for_group(pattern).map_err(|problem| problem.at(place))?;
    }
    let compiled = Matcher::new(definition);
    compiled.map(|_| ()).map_err(|problem| match problem.code() {
        Code::ExprSyntax | Code::ExprUnknownName | Code::ExprLimit => {
            let pointer = problem.pointer().unwrap_or_default().to_owned();
            let code = if pointer.starts_with("/key") { Code::GroupInvalid } else { Code::FilterInvalid };
            let see = || format!("see docs/errors/{}.md", code.as_str());
            let hint = problem.hint_text().map_or_else(see, str::to_owned);
            Problem::new(code, problem.to_string()).hint(hint).at(pointer)
        }
        _ => problem,
    })
}
