//! Expressions by chance through the `cel` crate and through ours: both fail, or both give the same value of the same type.

use std::collections::HashMap;

use cel::{Context, Program, Value as Cel};
use lang::expr::{Expr, Scope, Val};
use serde_json::{Value, json};

use crate::generate::{Chance, TYPES, expression};

/// How the crate refuses to order NaN. CEL's own cases say that NaN is in no order, which is an answer: no.
const UNORDERED: &str = "applied to '(double, double)'";

pub fn run(cases: u64, seed: u64) -> Result<(), String> {
    let values = json!({
        "i": 42, "j": -7, "d": 2.5, "e": -0.5, "s": "abc", "t": "", "b": true, "l": [4, 5, 6, 4],
        "m": {"k": 3, "w": "wörd"},
    });
    let mut context = Context::default();
    context.add_variable_from_value("v", value(&values));
    let (mut failed, mut both_failed) = (0u64, 0u64);
    for number in 0..cases {
        let mut chance = Chance::new(seed.wrapping_add(number));
        let of = TYPES[chance.below(TYPES.len() as u64) as usize];
        let depth = 1 + chance.below(4) as u32;
        let source = expression(&mut chance, of, depth);
        let (theirs, ours) = (theirs(&source, &context), ours(&source, &values));
        match (&theirs, &ours) {
            (Ok(a), Ok(b)) if same(a, b) => {}
            (Err(_), Err(_)) => both_failed += 1,
            (Err(why), Ok(_)) if why.ends_with(UNORDERED) => {}
            _ => {
                failed += 1;
                println!("seed {}: {source}\n  cel  {theirs:?}\n  ours {ours:?}", seed.wrapping_add(number));
            }
        }
    }
    println!("{both_failed} of {cases} fail in both");
    println!("{} passed, {failed} failed", cases - failed);
    if failed == 0 { Ok(()) } else { Err(format!("{failed} expressions differ")) }
}

/// A document in cel's values. Its own conversion makes a uint of every whole number that is not negative.
fn value(json: &Value) -> Cel {
    match json {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => n.as_i64().map_or_else(|| Cel::Float(n.as_f64().unwrap_or_default()), Cel::Int),
        Value::String(text) => Cel::String(text.clone().into()),
        Value::Array(items) => Cel::List(items.iter().map(value).collect::<Vec<_>>().into()),
        Value::Object(map) => {
            let pairs = map.iter().map(|(key, item)| (key.clone(), value(item)));
            pairs.collect::<HashMap<String, Cel>>().into()
        }
    }
}

/// A value as JSON, with the name of its type.
type Answer = Result<(Value, &'static str), String>;

fn theirs(source: &str, context: &Context<'_, '_>) -> Answer {
    let program = Program::compile(source).map_err(|err| err.to_string())?;
    let value = program.execute(context).map_err(|err| err.to_string())?;
    let kind = match &value {
        Cel::Bool(_) => "bool",
        Cel::Int(_) => "int",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::List(_) => "list",
        _ => "other",
    };
    Ok((value.json().map_err(|err| err.to_string())?, kind))
}

fn ours(source: &str, values: &Value) -> Answer {
    let expr = Expr::compile(source, &Scope::of(&["v"])).map_err(|problem| problem.to_string())?;
    let roots = [Val::of(values)];
    let value = expr.eval(&roots).map_err(|problem| problem.to_string())?;
    Ok((value.to_json().map_err(|problem| problem.to_string())?, value.type_name()))
}

/// JSON has no infinity: cel writes null where we write its name.
fn same((a, kind): &(Value, &str), (b, other): &(Value, &str)) -> bool {
    kind == other && (a == b || (*kind == "double" && a.is_null() && b.is_string()))
}
