//! `bench --slo`: the four lines that seed 002 promises, each at rising concurrency until it no longer holds.

mod handle;

use std::path::Path;
use std::time::Duration;

use engine::Engine;
use model::Problem;
use serde_json::{Map, Value, json};

use super::measure::{Rate, report, round};
use super::publish::{self, Load};
use crate::output::columns;

/// How many publishers, or workers of a handler, are tried.
const CONCURRENCY: &[usize] = &[1, 4, 16, 64, 256];
const BYTES: usize = 512;

/// One promise, and what was measured at each concurrency.
struct Line {
    name: &'static str,
    target: f64,
    unit: &'static str,
    /// Who is counted by the concurrency.
    of: &'static str,
    holds: fn(f64, f64) -> bool,
    measured: Vec<(usize, f64)>,
}

impl Line {
    fn new(name: &'static str, target: f64, unit: &'static str, of: &'static str) -> Line {
        let holds = |measured: f64, target: f64| measured <= target;
        Line { name, target, unit, of, holds, measured: Vec::new() }
    }

    /// Every concurrency at which the line holds.
    fn holds_at(&self) -> Vec<usize> {
        let good = self.measured.iter().filter(|(_, measured)| (self.holds)(*measured, self.target));
        good.map(|(concurrency, _)| *concurrency).collect()
    }

    /// The figure to show: where the line holds with the most at once, else the best there was.
    fn shown(&self) -> (usize, f64) {
        let last = self.holds_at().last().copied();
        let held = self.measured.iter().find(|(concurrency, _)| Some(*concurrency) == last);
        let better = |a: &&(usize, f64), b: &&(usize, f64)| match (self.holds)(a.1, b.1) {
            true => std::cmp::Ordering::Less,
            false => std::cmp::Ordering::Greater,
        };
        held.or_else(|| self.measured.iter().min_by(better)).copied().unwrap_or_default()
    }

    fn to_json(&self) -> Value {
        let (concurrency, measured) = self.shown();
        let all = self.measured.iter().map(|(n, figure)| json!({"concurrency": n, "measured": figure}));
        json!({
            "line": self.name, "target": self.target, "unit": self.unit, "measured": measured,
            "concurrency": concurrency, "of": self.of, "pass": !self.holds_at().is_empty(),
            "holds_at": self.holds_at(), "all": all.collect::<Vec<_>>(),
        })
    }
}

/// `scale` shortens every part, for a quick look and for tests; 1.0 is the real measure.
pub fn run(dir: &Path, scale: f64) -> Result<Value, Problem> {
    let mut lines = [
        Line {
            holds: |measured, target| measured >= target,
            ..Line::new("10,000 events/s", 10_000.0, "events_per_s", "publishers")
        },
        Line::new("p95 publish <= 3 ms", 3.0, "ms", "publishers"),
        Line {
            holds: |measured, target| measured < target,
            ..Line::new("p95 delivery < 5 ms", 5.0, "ms", "publishers")
        },
        Line::new("p95 handle <= handler + 1 ms", 1.0, "ms", "workers"),
    ];
    for &concurrency in CONCURRENCY {
        let figures = figures(&dir.join(concurrency.to_string()), concurrency, scale)?;
        lines.iter_mut().zip(figures).for_each(|(line, figure)| line.measured.push((concurrency, figure)));
    }
    let pass = lines.iter().all(|line| !line.holds_at().is_empty());
    let mut result = Map::new();
    result.insert("pass".into(), json!(pass));
    result.insert("lines".into(), lines.iter().map(Line::to_json).collect());
    Ok(report("slo", json!({"bytes": BYTES}), result, dir))
}

/// The figures of the four lines at one concurrency, in a ledger of its own.
fn figures(data: &Path, concurrency: usize, scale: f64) -> Result<[f64; 4], Problem> {
    let events = scaled((1_500 * concurrency as u64).clamp(3_000, 100_000), scale);
    let load = Load { publishers: concurrency, events, bytes: BYTES };
    let engine = Engine::open(data)?;
    let tenant = engine.main()?;
    publish::measure(&tenant, Load { events: events.div_ceil(5), ..load })?;
    let published = publish::measure(&tenant, load)?;
    let (delivered, handled) = super::block_on(async {
        let delivered = handle::delivery(&tenant, Load { events: events.div_ceil(2), ..load }).await?;
        let events = scaled(500.max(20 * concurrency as u64), scale);
        let handled = handle::overhead(&tenant, concurrency, events).await?;
        engine.close().await?;
        Ok((delivered, handled))
    })?;
    Ok([round(published.per_second(), 0), p95_ms(&published), p95_ms(&delivered), p95_ms(&handled)])
}

fn scaled(events: u64, scale: f64) -> u64 {
    ((events as f64 * scale) as u64).max(10)
}

fn p95_ms(rate: &Rate) -> f64 {
    let p95 = Duration::from_micros(rate.latencies.percentile_us(95.0));
    round(p95.as_secs_f64() * 1e3, 3)
}

/// The report for a person.
pub fn table(report: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |line: &Value| {
        let held = line["holds_at"].as_array().map(|at| at.iter().map(text).collect::<Vec<_>>().join(", "));
        let held = held.filter(|held| !held.is_empty()).unwrap_or_else(|| "none".to_owned());
        let measured = format!("{} {}", text(&line["measured"]), text(&line["unit"]));
        let result = if line["pass"] == true { "pass" } else { "FAIL" };
        vec![
            text(&line["line"]),
            result.to_owned(),
            format!("{measured} at {}", text(&line["concurrency"])),
            format!("{held} {}", text(&line["of"])),
        ]
    };
    let mut rows = vec![["line", "result", "measured", "holds at"].map(str::to_owned).to_vec()];
    rows.extend(report["lines"].as_array().into_iter().flatten().map(row));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_where_it_holds_with_the_most_at_once() {
        let mut line = Line::new("p95 publish <= 3 ms", 3.0, "ms", "publishers");
        line.measured = vec![(1, 0.4), (16, 2.9), (256, 7.0)];
        assert_eq!((line.holds_at(), line.shown()), (vec![1, 16], (16, 2.9)));
        line.target = 0.1;
        assert_eq!((line.holds_at(), line.shown()), (vec![], (1, 0.4)));
        line.holds = |measured, target| measured >= target;
        line.target = 9.0;
        assert_eq!((line.holds_at(), line.shown()), (vec![], (256, 7.0)));
    }
}
