//! CEL's own conformance cases, as `everwhen try expr` answers them: every eligible case of the groups that
//! the language shares with CEL, and `docs/expressions.md` tells the rate of every group.

use std::collections::BTreeMap;

use lang::try_lines::Kind;
use serde_json::{Map, Value, json};

use crate::vectors::{answer, suite};

/// Groups that must hold whole.
const WHOLE: [&str; 10] = [
    "basic",
    "comparisons",
    "conversions",
    "fp_math",
    "integer_math",
    "lists",
    "logic",
    "macros",
    "string",
    "timestamps",
];

/// Contracts §14: these types only, and no comparison of null with `""`.
fn eligible(case: &Value) -> bool {
    let bindings = case.get("bindings").and_then(Value::as_object);
    let plain = bindings.is_none_or(|bindings| bindings.values().all(shared));
    plain && case.get("value").is_none_or(shared)
}

fn shared(value: &Value) -> bool {
    let Some((kind, inner)) = value.as_object().and_then(|map| map.iter().next()) else { return false };
    match kind.as_str() {
        "null" | "bool" | "int" | "double" | "string" | "timestamp" | "duration" => true,
        "list" => inner.as_array().unwrap().iter().all(shared),
        "map" => inner.as_array().unwrap().iter().all(|pair| shared(&pair[0]) && shared(&pair[1])),
        _ => false,
    }
}

/// A typed value of the vectors as `try expr` writes it.
fn written(value: &Value) -> (Value, &str) {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    let plain = match kind.as_str() {
        "null" => Value::Null,
        "int" => json!(inner.as_str().unwrap().parse::<i64>().unwrap()),
        "uint" => json!(inner.as_str().unwrap().parse::<u64>().unwrap()),
        "double" if inner.is_number() => json!(inner.as_f64().unwrap()),
        "list" => inner.as_array().unwrap().iter().map(|item| written(item).0).collect(),
        "map" => {
            let key = |pair: &Value| match written(&pair[0]).0 {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let pairs = inner.as_array().unwrap().iter().map(|pair| (key(pair), written(&pair[1]).0));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        _ => inner.clone(),
    };
    (plain, if kind == "bytes_b64" { "bytes" } else { kind })
}

fn holds(case: &Value) -> bool {
    let got = answer(Kind::Expr, case);
    match case.get("value").map(written) {
        Some((value, kind)) => got.get("value") == Some(&value) && got["type"] == kind,
        None => got.contains_key("error"),
    }
}

#[test]
fn cel_conformance_holds_as_the_page_says() {
    let Some(cases) = suite("expr_cel") else { return };
    let mut score: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for case in &cases {
        let group = case["source"].as_str().unwrap().trim_start_matches("cel ");
        let (counts, held) = (usize::from(eligible(case)), usize::from(holds(case)));
        let line = score.entry(group).or_default();
        *line = [line[0] + held * counts, line[1] + counts, line[2] + held, line[3] + 1];
        assert!(
            held == 1 || counts == 0 || !WHOLE.contains(&group),
            "{case}\n{:?}",
            answer(Kind::Expr, case)
        );
        if held == 0 && std::env::var("CEL_SHOW").is_ok() {
            println!("{group} {case}\n    {:?}", answer(Kind::Expr, case));
        }
    }
    let row = |(group, [held, of, all_held, all]): (&&str, &[usize; 4])| {
        format!("| {group} | {held} of {of} | {all_held} of {all} |\n")
    };
    let table: String = score.iter().map(row).collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/expressions.md");
    let text = std::fs::read_to_string(page).unwrap_or_default();
    assert!(text.contains(&table), "docs/expressions.md must have these lines:\n{table}");
}
