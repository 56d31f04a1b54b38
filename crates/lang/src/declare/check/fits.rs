//! Whether a plain value fits a declared type, and how to say that it does not.

use model::definition::{Field, Type};
use serde_json::Value;

pub(super) fn type_name(of: &Type) -> String {
    match of {
        Type::String => "a string".to_owned(),
        Type::Int => "an int".to_owned(),
        Type::Double => "a double".to_owned(),
        Type::Bool => "a bool".to_owned(),
        Type::Timestamp => "a timestamp".to_owned(),
        Type::Duration => "a duration".to_owned(),
        Type::Json | Type::Any => "anything".to_owned(),
        Type::List(inner) => format!("a list of {}", type_name(inner)),
        Type::Map(_) => "a map".to_owned(),
        Type::Object(_) | Type::Variant { .. } => "an object".to_owned(),
        Type::Enum(values) => {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            format!("one of {}", values.join(", "))
        }
        Type::Reference(concept) => format!("the id of a {concept}"),
    }
}

/// Why the value cannot stand in the field.
pub(super) fn misfit(field: &Field, value: &Value) -> Option<String> {
    if let Some(message) = misfit_type(&field.of, value) {
        return Some(message);
    }
    let number = value.as_f64();
    if let (Some(n), Some(min)) = (number, field.min)
        && n < min
    {
        return Some(format!("{n} is below {min}"));
    }
    if let (Some(n), Some(max)) = (number, field.max)
        && n > max
    {
        return Some(format!("{n} is above {max}"));
    }
    let text = value.as_str()?;
    let length = text.chars().count() as u64;
    if field.min_length.is_some_and(|min| length < min) {
        return Some(format!("{text:?} is too short"));
    }
    if field.max_length.is_some_and(|max| length > max) {
        return Some(format!("{text:?} is too long"));
    }
    let pattern = field.pattern.as_ref()?;
    let regex = crate::expr::build_regex(&format!("^(?:{pattern})$")).ok()?;
    (!regex.is_match(text)).then(|| format!("{text:?} does not match {pattern:?}"))
}

/// Why the value is not of the type. Null stands for "absent" and fits everywhere.
pub(super) fn misfit_type(of: &Type, value: &Value) -> Option<String> {
    let wrong = || Some(format!("expected {}, found {value}", type_name(of)));
    let fits = match (of, value) {
        (_, Value::Null) | (Type::Any | Type::Json, _) => true,
        (Type::String | Type::Reference(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => true,
        (Type::Int, Value::Number(n)) => {
            n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        (Type::Double, Value::Number(_)) => true,
        (Type::Timestamp, Value::String(text)) => is_instant(text),
        (Type::Duration, Value::Number(_)) => true,
        (Type::Duration, Value::String(text)) => model::time::parse_duration(text).is_some(),
        (Type::Enum(values), value) => values.contains(value),
        (Type::List(inner), Value::Array(items)) => {
            return items.iter().find_map(|item| misfit_type(inner, item));
        }
        (Type::Map(inner), Value::Object(pairs)) => {
            return pairs.values().find_map(|item| misfit_type(inner, item));
        }
        (Type::Object(fields), Value::Object(pairs)) => {
            return pairs.iter().find_map(|(key, item)| {
                if fields.is_empty() {
                    return None;
                }
                match fields.iter().find(|field| field.name == *key) {
                    Some(field) => misfit(field, item),
                    None => Some(format!("there is no field {key:?}")),
                }
            });
        }
        (Type::Variant { .. }, Value::Object(_)) => true,
        _ => false,
    };
    if fits { None } else { wrong() }
}

fn is_instant(text: &str) -> bool {
    crate::expr::read_instant(text).is_some() || model::Timestamp::parse(text).is_ok()
}

/// `@default("5")` of an int is 5: defaults may be written as text.
pub(super) fn read_default(of: &Type, value: Value) -> Value {
    match (of, &value) {
        (Type::Int | Type::Double | Type::Bool, Value::String(text)) => {
            serde_json::from_str(text).ok().filter(|read| misfit_type(of, read).is_none()).unwrap_or(value)
        }
        _ => value,
    }
}
