//! `bench check`: a workspace of many declarations, from text to findings.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lang::declare::check_workspace;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::measure::{report, round};

/// Declarations of one domain, as [`domain`] writes it.
const OF_A_DOMAIN: usize = 10;

pub fn run(dir: &Path, declarations: usize) -> Result<Value, Problem> {
    let files: BTreeMap<String, String> = (0..declarations.div_ceil(OF_A_DOMAIN)).map(domain).collect();
    let (mut best, mut made) = (Duration::MAX, 0);
    for _ in 0..5 {
        let started = Instant::now();
        let checked = check_workspace(&files);
        best = best.min(started.elapsed());
        made = checked.definitions.len();
        if let Some(finding) = checked.findings.first() {
            return Err(Problem::new(
                Code::Internal,
                format!("the bench's own text is wrong: {}", finding.message),
            ));
        }
    }
    let mut result = Map::new();
    result.insert("check_ms".into(), json!(round(best.as_secs_f64() * 1e3, 3)));
    result.insert("definitions".into(), json!(made));
    Ok(report("check", json!({"declarations": declarations}), result, dir))
}

fn domain(i: usize) -> (String, String) {
    let mut text = format!("concept thing{i} {{ name string! status enum(\"a\", \"b\") n int }}\n");
    for j in 0..4 {
        text.push_str(&format!(
            "query thing{i} q{i}_{j} {{ args {{ s string! }} filter payload.status == \"a\" && payload.name == args.s }}\n"
        ));
    }
    for j in 0..2 {
        text.push_str(&format!(
            "mutation thing{i} m{i}_{j} {{ args {{ s string! }} insert {{ name: args.s, status: \"b\" }} }}\n\
             logic l{i}_{j} {{\n  args {{ event object! }}\n  found := q{i}_0({{ s: args.event.payload.name }})\n  \
             made := if found.empty() {{ m{i}_{j}({{ s: \"z\" }}) }}\n  return coalesce(made, found.first())\n}}\n"
        ));
    }
    text.push_str(&format!(
        "automation a{i} @trigger(event=\"node.created\", concept=\"v1:d{i}:thing{i}\") => logic l{i}_0\n"
    ));
    (format!("d{i}/all.ew"), text)
}
