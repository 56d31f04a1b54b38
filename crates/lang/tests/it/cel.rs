//! CEL's own conformance cases: how many hold already. Informative until the language is whole, but never
//! fewer.

use std::collections::BTreeMap;
use std::rc::Rc;

use lang::expr::{Expr, Scope, Val};
use lang::number::Number;
use serde_json::Value;

use crate::vectors::suite;

/// Eligible cases that held when this was last raised.
const FLOOR: usize = 580;

/// A typed value of the vectors; `None` when it uses a type that this language does not have (contracts §14).
fn typed(value: &Value) -> Option<Val<'_>> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "null" => Val::Null,
        "bool" => Val::Bool(inner.as_bool()?),
        "int" => Val::int(inner.as_str()?.parse().ok()?),
        "double" => Val::Number(Number::Double(match inner.as_str() {
            Some("NaN") => f64::NAN,
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            _ => inner.as_f64()?,
        })),
        "string" => Val::Text(inner.as_str()?.into()),
        "list" => Val::list(inner.as_array()?.iter().map(typed).collect::<Option<_>>()?),
        "map" => {
            let pairs = inner.as_array()?.iter().map(|pair| Some((typed(&pair[0])?, typed(&pair[1])?)));
            Val::Map(Rc::new(pairs.collect::<Option<_>>()?))
        }
        _ => return None,
    })
}

fn holds(case: &Value, names: &[&str], values: &[Val<'_>]) -> bool {
    let scope = Scope { roots: names, shorthands: &[] };
    let Ok(expr) = Expr::compile(case["expr"].as_str().unwrap(), &scope) else {
        return case.get("value").is_none();
    };
    match (expr.eval(values), case.get("value").map(typed)) {
        (Ok(got), Some(Some(want))) => got.type_name() == want.type_name() && got.to_json() == want.to_json(),
        (Err(_), None) => true,
        _ => false,
    }
}

#[test]
fn cel_conformance_never_falls_back() {
    let Some(cases) = suite("expr_cel") else { return };
    let mut score: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for case in &cases {
        let bindings = case.get("bindings").and_then(Value::as_object).cloned().unwrap_or_default();
        let names: Vec<&str> = bindings.keys().map(String::as_str).collect();
        let Some(values) = bindings.values().map(typed).collect::<Option<Vec<Val<'_>>>>() else { continue };
        if case.get("value").is_some_and(|value| typed(value).is_none()) {
            continue;
        }
        let line = score.entry(case["source"].as_str().unwrap()).or_default();
        line.1 += 1;
        if holds(case, &names, &values) {
            line.0 += 1;
        } else if std::env::var("CEL_SHOW").is_ok() {
            println!("  {} {}", case["source"], case);
        }
    }
    let (held, eligible) = score.values().fold((0, 0), |sum, line| (sum.0 + line.0, sum.1 + line.1));
    for (source, (held, of)) in &score {
        println!("{held:4} of {of:4}  {source}");
    }
    println!("{held:4} of {eligible:4}  eligible cases of expr_cel hold");
    assert!(held >= FLOOR, "{held} eligible CEL cases hold, {FLOOR} did before");
}
