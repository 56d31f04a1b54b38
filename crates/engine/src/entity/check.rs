//! Whether values fit a concept, and their normal form: instants in UTC, durations in seconds, absent for null.

use model::definition::{Field, Type};
use model::time::{duration_json, duration_of};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value};

use super::{Concept, MASK, token};

/// How absent fields are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A row being made: every default.
    All,
    /// A row that is there: defaults of required fields only, which came with a newer definition.
    Required,
}

/// The row's values in their normal form, or the first field that does not fit.
pub fn check(
    concept: &Concept,
    fields: Map<String, Value>,
    fill: Fill,
) -> Result<Map<String, Value>, Problem> {
    let checker = Checker { concept, fill, hidden: false };
    checker.object(&concept.definition.fields, concept.definition.open, fields, "")
}

/// One value of a field that is not a secret yet: what is sealed was checked first.
pub fn check_secret(concept: &Concept, field: &Field, value: Value, path: &str) -> Result<Value, Problem> {
    Checker { concept, fill: Fill::All, hidden: true }.typed(&field.of, Some(field), value, path)
}

struct Checker<'a> {
    concept: &'a Concept,
    fill: Fill,
    /// What is refused is or holds a secret, so that no message shows it.
    hidden: bool,
}

impl Checker<'_> {
    fn object(
        &self,
        fields: &[Field],
        open: bool,
        mut values: Map<String, Value>,
        path: &str,
    ) -> Result<Map<String, Value>, Problem> {
        let mut out = Map::new();
        for field in fields {
            let path = format!("{path}/{}", token(&field.name));
            let value = match values.remove(&field.name) {
                None | Some(Value::Null) => self.absent(field, &path)?,
                Some(Value::String(mask)) if field.secret && mask == MASK => Some(mask.into()),
                Some(value) => {
                    Some(self.hiding(field).field(field, fields, (&values, &out), (value, &path))?)
                }
            };
            if let Some(value) = value {
                out.insert(field.name.clone(), value);
            }
        }
        for (name, value) in values {
            if !open {
                return Err(self.unknown(fields, &name, path));
            }
            if !value.is_null() {
                out.insert(name, value);
            }
        }
        Ok(out)
    }

    fn hiding(&self, field: &Field) -> Checker<'_> {
        Checker { concept: self.concept, fill: self.fill, hidden: self.hidden || holds_secret(field) }
    }

    fn absent(&self, field: &Field, path: &str) -> Result<Option<Value>, Problem> {
        match &field.default {
            // In its normal form, as if it had been given: `check` has seen that it fits.
            Some(default) if self.fill == Fill::All || field.required => {
                let normal = self.typed(&field.of, Some(field), default.clone(), path);
                Ok(Some(normal.unwrap_or_else(|_| default.clone())))
            }
            _ if field.required => Err(self
                .refuse(path, "is required".to_owned())
                .hint("give it a value, or a default in the concept")),
            _ => Ok(None),
        }
    }

    /// `others` are the fields beside it, before and after their check: a variant depends on one of them.
    fn field(
        &self,
        field: &Field,
        fields: &[Field],
        others: (&Map<String, Value>, &Map<String, Value>),
        (value, path): (Value, &str),
    ) -> Result<Value, Problem> {
        let Type::Variant { by, cases } = &field.of else {
            return self.typed(&field.of, Some(field), value, path);
        };
        let chosen = others.1.get(by).or_else(|| others.0.get(by));
        let default =
            || fields.iter().find(|field| field.name == *by).and_then(|field| field.default.as_ref());
        let chosen = chosen.or_else(default).and_then(Value::as_str);
        match chosen.and_then(|chosen| cases.get(chosen)) {
            Some(inner) => self.typed(&Type::Object(inner.clone()), Some(field), value, path),
            None => self.typed(&Type::Object(Vec::new()), Some(field), value, path),
        }
    }

    fn typed(&self, of: &Type, field: Option<&Field>, value: Value, path: &str) -> Result<Value, Problem> {
        let value = match (of, value) {
            (Type::Any | Type::Json | Type::Variant { .. }, value) => value,
            (Type::String, value @ Value::String(_)) => value,
            (Type::Reference(_), value @ Value::String(_)) if value != "" => value,
            (Type::Bool, value @ Value::Bool(_)) => value,
            (Type::Int, Value::Number(number)) => integer(&number).ok_or_else(|| {
                self.refuse(path, format!("must be an integer, not {}", self.shown(&number.into())))
            })?,
            (Type::Double, value @ Value::Number(_)) => value,
            (Type::Timestamp, Value::String(text)) => match instant(&text) {
                Some(instant) => instant.to_string().into(),
                None => return Err(self.mismatch(of, &text.into(), path)),
            },
            (Type::Duration, value) => match duration_of(&value) {
                Some(duration) => duration_json(duration),
                None => return Err(self.mismatch(of, &value, path)),
            },
            (Type::Enum(allowed), value) => match allowed.contains(&value) {
                true => value,
                false => {
                    return Err(self.mismatch(of, &value, path));
                }
            },
            (Type::List(of), Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                let item = |(i, item)| self.typed(of, None, item, &format!("{path}/{i}"));
                Value::Array(items.map(item).collect::<Result<_, _>>()?)
            }
            (Type::Map(of), Value::Object(values)) => {
                let inner = |(name, value): (String, Value)| {
                    let value = self.typed(of, None, value, &format!("{path}/{}", token(&name)))?;
                    Ok::<_, Problem>((name, value))
                };
                Value::Object(values.into_iter().map(inner).collect::<Result<_, _>>()?)
            }
            (Type::Object(fields), Value::Object(values)) => {
                Value::Object(self.object(fields, fields.is_empty(), values, path)?)
            }
            (of, value) => return Err(self.mismatch(of, &value, path)),
        };
        if let Some(field) = field {
            self.bounds(field, &value, path)?;
        }
        Ok(value)
    }

    fn bounds(&self, field: &Field, value: &Value, path: &str) -> Result<(), Problem> {
        if let Some(number) = value.as_f64() {
            if let Some(min) = field.min.filter(|min| number < *min) {
                return Err(self.refuse(path, format!("must be at least {min}, not {}", self.shown(value))));
            }
            if let Some(max) = field.max.filter(|max| number > *max) {
                return Err(self.refuse(path, format!("must be at most {max}, not {}", self.shown(value))));
            }
        }
        let Value::String(text) = value else { return Ok(()) };
        let length = text.chars().count() as u64;
        if let Some(min) = field.min_length.filter(|min| length < *min) {
            return Err(self.refuse(path, format!("must have at least {min} characters, not {length}")));
        }
        if let Some(max) = field.max_length.filter(|max| length > *max) {
            return Err(self.refuse(path, format!("must have at most {max} characters, not {length}")));
        }
        match &field.pattern {
            Some(pattern)
                if !self.concept.patterns.get(pattern).is_some_and(|regex| regex.is_match(text)) =>
            {
                Err(self.refuse(path, format!("must match {pattern}, {} does not", self.shown(value))))
            }
            _ => Ok(()),
        }
    }

    fn mismatch(&self, of: &Type, value: &Value, path: &str) -> Problem {
        self.refuse(path, format!("must be {}, not {}", type_text(of), self.shown(value)))
    }

    /// A value short enough for a message, a secret by its mask.
    fn shown(&self, value: &Value) -> String {
        let text = if self.hidden { MASK.to_owned() } else { value.to_string() };
        match text.char_indices().nth(60) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    fn refuse(&self, path: &str, what: String) -> Problem {
        let name = path.trim_start_matches('/').replace('/', ".");
        let detail = format!("field \"{name}\" of \"{}\" {what}", self.concept.id());
        Problem::new(Code::EntityInvalid, detail).at(path)
    }

    fn unknown(&self, fields: &[Field], name: &str, path: &str) -> Problem {
        let detail = format!("\"{}\" has no field \"{name}\"", self.concept.id());
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let hint = format!("its fields are {}; `@open` on the concept keeps others, too", names.join(", "));
        Problem::new(Code::EntityInvalid, detail).hint(hint).at(format!("{path}/{}", token(name)))
    }
}

/// An instant in RFC 3339; a day is the one at its beginning.
pub fn instant(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).or_else(|_| Timestamp::parse(&format!("{text}T00:00:00Z"))).ok()
}

/// 3 and 3.0 are the same integer.
fn integer(number: &serde_json::Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return Some(Value::Number(number.clone()));
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
    Some((float as i64).into())
}

fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether it is a secret, or has one somewhere below.
fn holds_secret(field: &Field) -> bool {
    field.secret
        || match &field.of {
            Type::Object(fields) => fields.iter().any(holds_secret),
            Type::Variant { cases, .. } => cases.values().flatten().any(holds_secret),
            _ => false,
        }
}

fn type_text(of: &Type) -> String {
    match of {
        Type::String => "a string".to_owned(),
        Type::Int => "an integer".to_owned(),
        Type::Double => "a number".to_owned(),
        Type::Bool => "true or false".to_owned(),
        Type::Timestamp => "an instant (RFC 3339)".to_owned(),
        Type::Duration => "a duration such as \"5m\" or a number of seconds".to_owned(),
        Type::Json | Type::Any => "any JSON".to_owned(),
        Type::List(of) => format!("a list, each element {}", type_text(of)),
        Type::Map(of) => format!("an object, each value {}", type_text(of)),
        Type::Object(_) | Type::Variant { .. } => "an object".to_owned(),
        Type::Enum(allowed) => format!("one of {}", list(allowed)),
        Type::Reference(concept) => format!("the id of a \"{concept}\""),
    }
}
