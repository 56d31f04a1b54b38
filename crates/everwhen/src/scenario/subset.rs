//! Whether a value is what was expected: objects hold at least what is named, lists hold exactly that in order.

use model::Timestamp;
use serde_json::{Map, Value};

/// Where the first difference is, with both sides there; `path` grows by the way to it.
pub struct Difference {
    pub path: String,
    pub expected: Value,
    pub actual: Value,
}

pub fn differences(expected: &Value, actual: &Value, path: &str, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Value::Object(wanted), _) if is_range(wanted) => {
            if !actual.as_f64().is_some_and(|n| in_range(wanted, n)) {
                found.push(Difference::at(path, expected, actual));
            }
        }
        (Value::Object(wanted), Value::Object(there)) => {
            for (key, value) in wanted {
                let below = format!("{path}.{key}");
                differences(
                    value,
                    there.get(key).unwrap_or(&Value::Null),
                    below.trim_start_matches('.'),
                    found,
                );
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for (index, (value, there)) in wanted.iter().zip(there).enumerate() {
                differences(value, there, &format!("{path}[{index}]"), found);
            }
        }
        _ if same(expected, actual) => {}
        _ => found.push(Difference::at(path, expected, actual)),
    }
}

pub fn holds(expected: &Value, actual: &Value) -> bool {
    let mut found = Vec::new();
    differences(expected, actual, "", &mut found);
    found.is_empty()
}

impl Difference {
    fn at(path: &str, expected: &Value, actual: &Value) -> Difference {
        Difference { path: path.to_owned(), expected: expected.clone(), actual: actual.clone() }
    }
}

/// Numbers by their value, instants by the moment they mean.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::String(a), Value::String(b)) => {
            a == b || matches!((Timestamp::parse(a), Timestamp::parse(b)), (Ok(a), Ok(b)) if a == b)
        }
        _ => a == b,
    }
}

/// `{gt, gte, lt, lte}`, any of them, with numbers.
fn is_range(map: &Map<String, Value>) -> bool {
    let known = |key: &str| matches!(key, "gt" | "gte" | "lt" | "lte");
    !map.is_empty() && map.iter().all(|(key, value)| known(key) && value.is_number())
}

fn in_range(range: &Map<String, Value>, n: f64) -> bool {
    range.iter().all(|(key, bound)| {
        let bound = bound.as_f64().unwrap_or(f64::NAN);
        match key.as_str() {
            "gt" => n > bound,
            "gte" => n >= bound,
            "lt" => n < bound,
            _ => n <= bound,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_subsets_lists_are_whole_and_numbers_may_be_ranges() {
        for (expected, actual, fits) in [
            (json!({"a": 1}), json!({"a": 1.0, "b": 2}), true),
            (json!({"a": null}), json!({"b": 2}), true),
            (json!({"a": 1}), json!({}), false),
            (json!([{"a": 1}]), json!([{"a": 1, "b": 2}]), true),
            (json!([{"a": 1}]), json!([{"a": 1}, {"a": 2}]), false),
            (json!([1, 2]), json!([2, 1]), false),
            (json!({"gt": 1, "lte": 3}), json!(3), true),
            (json!({"gt": 1, "lt": 3}), json!(3), false),
            (json!({"gt": 1}), json!("2"), false),
            (json!({"gt": "a"}), json!({"gt": "a"}), true),
            (json!("2026-01-01T01:00:00+01:00"), json!("2026-01-01T00:00:00Z"), true),
        ] {
            assert_eq!(holds(&expected, &actual), fits, "{expected} against {actual}");
        }
    }

    #[test]
    fn a_difference_names_its_place() {
        let mut found = Vec::new();
        differences(&json!({"a": [{"b": 1}]}), &json!({"a": [{"b": 2}]}), "runs", &mut found);
        assert_eq!((found[0].path.as_str(), &found[0].actual), ("runs.a[0].b", &json!(2)));
    }
}
