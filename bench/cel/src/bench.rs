//! The `cel` crate on the expressions and the event that `everwhen bench expr` sends on stdin.
//!
//! ```text
//!  in   {"event": {…}, "expressions": {"two_clause": "…", "ten_node": "…"}}
//!  out  {"two_clause_ns": 1, "two_clause_converted_ns": 1, "ten_node_ns": 1, …, "version": "0.15"}
//! ```
//! `…_ns` is over an event that is already in cel's own values; `…_converted_ns` also turns our parsed event into them,
//! which is what somebody with a JSON document pays.

use std::hint::black_box;
use std::io::Read;
use std::time::Instant;

use cel::{Context, Program, Value as Cel};
use serde_json::{Map, Value, json};

pub fn run() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|err| err.to_string())?;
    let case: Value = serde_json::from_str(&text).map_err(|err| err.to_string())?;
    let expressions = case["expressions"].as_object().ok_or("no \"expressions\"")?;
    let mut out = Map::from_iter([("version".to_owned(), json!("0.15"))]);
    for (name, source) in expressions {
        let source = source.as_str().ok_or("an expression is a text")?;
        let (bare, converted) = measured(source, &case["event"])?;
        out.insert(format!("{name}_ns"), json!(bare));
        out.insert(format!("{name}_converted_ns"), json!(converted));
    }
    println!("{}", Value::Object(out));
    Ok(())
}

fn measured(source: &str, event: &Value) -> Result<(f64, f64), String> {
    let program = Program::compile(source).map_err(|err| err.to_string())?;
    let mut context = Context::default();
    context.add_variable("event", event).map_err(|err| err.to_string())?;
    let answer = program.execute(&context).map_err(|err| err.to_string())?;
    if answer != Cel::Bool(true) {
        return Err(format!("{source} is {answer:?}, and must be true"));
    }
    let bare = nanos(|| drop(black_box(program.execute(black_box(&context)))));
    let converted = nanos(|| {
        let mut own = context.new_inner_scope();
        let _ = own.add_variable("event", black_box(event));
        drop(black_box(program.execute(&own)));
    });
    Ok((bare, converted))
}

/// Nanoseconds of one call, the best of many passes: what it costs when nothing else runs.
fn nanos(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 300;
    let mut pass = || {
        let started = Instant::now();
        (0..CALLS).for_each(|_| call());
        started.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let best = (0..500).map(|_| pass()).fold(f64::MAX, f64::min);
    (best * 10.0).round() / 10.0
}
