//! `bench expr`: filters over an event that is already parsed, and the `cel` crate on the same ones in the same run.
//!
//! The `cel` crate is no part of this binary: `bench/cel` is a program of its own, run when `EVERWHEN_CEL` names it or
//! when it lies beside this one. Without it the report has no `cel`.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use lang::expr::{Expr, Scope, Val};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::failed;
use super::measure::{report, round};

/// 512 bytes.
const EVENT: &str = concat!(
    r#"{"id":"01J8ZQ4T5X6Y7Z8A9B0C1D2E3F","position":42,"topic":"price.changed","space":"default","#,
    r#""time":"2026-01-01T00:00:00Z","recorded_at":"2026-01-01T00:00:00.01Z","actor":"user:ann","#,
    r#""source":"erp","subject":{"kind":"item","id":"10472"},"depth":1,"priority":0,"band":"green","#,
    r#""type":"price.changed","payload":{"new":9.5,"old":8.25,"currency":"EUR","status":"active","#,
    r#""qty":12,"tags":["sale","spring"],"customer":{"tier":"gold","region":"eu-west","#,
    r#""name":"Example Ltd"},"note":"adjusted after review by the full team"}}"#,
);

const TWO_CLAUSE: &str = "event.payload.status == 'active' && event.payload.new > 9.0";

/// Ten operators and calls, counting neither paths nor literals nor `&&`.
const TEN_NODE: &str = "event.topic == 'price.changed' && event.payload.new > 9.0 && event.payload.qty >= 10 \
    && event.payload.currency in ['EUR', 'USD'] && event.payload.customer.region.startsWith('eu') \
    && size(event.payload.tags) == 2 && !(event.payload.new * 2.0 < event.payload.old)";

pub fn run(dir: &Path) -> Result<Value, Problem> {
    let event: Value = serde_json::from_str(EVENT).map_err(failed)?;
    let mut result = Map::new();
    result.insert("two_clause_ns".into(), json!(measured(TWO_CLAUSE, &event)?));
    result.insert("ten_node_ns".into(), json!(measured(TEN_NODE, &event)?));
    if let Some(program) = cel() {
        result.insert("cel".into(), beside(&program, &event)?);
    } else {
        eprintln!("left out: the cel crate; \"./x bench expr\" builds and measures it too");
    }
    Ok(report("expr", json!({"event_bytes": EVENT.len()}), result, dir))
}

/// Nanoseconds of one evaluation, the best of many short passes: what it costs when nothing else runs.
fn measured(source: &str, event: &Value) -> Result<f64, Problem> {
    const CALLS: u32 = 300;
    let expr = Expr::compile(source, &Scope::EVENT)?;
    let roots = [Val::of(event)];
    if !expr.test(&roots)? {
        return Err(Problem::new(Code::Internal, "the bench's own filter does not match its event"));
    }
    let pass = || {
        let started = Instant::now();
        for _ in 0..CALLS {
            let _ = black_box(expr.test(black_box(&roots)));
        }
        started.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    Ok(round((0..500).map(|_| pass()).fold(f64::MAX, f64::min), 1))
}

fn cel() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("EVERWHEN_CEL") {
        return Some(path.into());
    }
    let beside = std::env::current_exe().ok()?.with_file_name("everwhen-cel");
    beside.is_file().then_some(beside)
}

/// What `everwhen-cel bench` says to the same expressions over the same event.
fn beside(program: &Path, event: &Value) -> Result<Value, Problem> {
    let not = |error: &dyn std::fmt::Display| {
        let what = format!("\"{}\" did not measure the cel crate: {error}", program.display());
        Problem::new(Code::UsageInvalid, what).hint("build it with \"./x bench expr\", or unset EVERWHEN_CEL")
    };
    let case = json!({"event": event, "expressions": {"two_clause": TWO_CLAUSE, "ten_node": TEN_NODE}});
    let mut child = Command::new(program)
        .arg("bench")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not(&error))?;
    let mut stdin = child.stdin.take().expect("its stdin is piped");
    stdin.write_all(case.to_string().as_bytes()).map_err(|error| not(&error))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| not(&error))?;
    if !output.status.success() {
        return Err(not(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| not(&error))
}
