//! How scenarios went: a line of JSON each, words for people, and a file that build servers read.

use serde_json::{Value, json};

use super::{Failure, Played, Scenario};

/// Failed runs that people are told of.
const RUNS_SHOWN: usize = 10;

/// The last play of a scenario counts: the plain one, or the one with kills when the plain one passed.
pub struct Result<'s> {
    pub scenario: &'s Scenario,
    pub played: Played,
}

impl Result<'_> {
    pub fn to_json(&self) -> Value {
        let mut failures: Vec<Value> = self.played.failures.iter().map(failure_json).collect();
        if self.played.killed {
            failures.iter_mut().for_each(|failure| failure["killed"] = true.into());
        }
        let mut line = json!({
            "scenario": self.scenario.name, "file": self.scenario.file.display().to_string(),
            "passed": self.played.passed(), "failures": failures,
        });
        if !self.played.failed_runs.is_empty() {
            line["failed_runs"] = json!(self.played.failed_runs);
        }
        line
    }

    /// One line when it passed; else each failing step with what was expected and what was there, and why runs failed.
    pub fn words(&self) -> String {
        let place = format!("{} ({})", self.scenario.name, self.scenario.file.display());
        if self.played.passed() {
            return format!("ok      {place}");
        }
        let again = if self.played.killed { ", with a kill at every wait" } else { "" };
        let mut text = format!("FAILED  {place}{again}");
        let mut last = 0;
        for failure in &self.played.failures {
            if failure.step != last {
                text.push_str(&format!("\n  step {}: {}", failure.step, self.shown(failure.step)));
                last = failure.step;
            }
            text.push_str(&format!(
                "\n    {}\n      expected {}\n      actual   {}",
                failure.path, failure.expected, failure.actual
            ));
        }
        for run in self.played.failed_runs.iter().take(RUNS_SHOWN) {
            text.push_str(&format!("\n  {}", failed_run(run)));
        }
        if let Some(more) = self.played.failed_runs.len().checked_sub(RUNS_SHOWN).filter(|more| *more > 0) {
            text.push_str(&format!("\n  and {more} more"));
        }
        text
    }

    fn shown(&self, step: usize) -> String {
        self.played.shown.get(step - 1).map(short).unwrap_or_default()
    }

    fn junit(&self) -> String {
        let (name, file) = (escaped(&self.scenario.name), escaped(&self.scenario.file.display().to_string()));
        if self.played.passed() {
            return format!("  <testcase classname=\"{file}\" name=\"{name}\"/>\n");
        }
        let message = self.played.failures.first().map(said).unwrap_or_default();
        let (message, text) = (escaped(&message), escaped(&self.words()));
        format!(
            "  <testcase classname=\"{file}\" name=\"{name}\">\n    <failure message=\"{message}\">{text}</failure>\n  </testcase>\n"
        )
    }
}

pub fn junit(results: &[Result<'_>]) -> String {
    let failed = results.iter().filter(|result| !result.played.passed()).count();
    let cases: String = results.iter().map(Result::junit).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"everwhen\" tests=\"{}\" failures=\"{failed}\" errors=\"0\">\n{cases}</testsuite>\n",
        results.len()
    )
}

fn failed_run(run: &Value) -> String {
    let text = |name: &str| run[name].as_str().unwrap_or_default();
    let at = match run["step"].as_str() {
        Some(step) => format!(" at {step} ({})", text("kind")),
        None => String::new(),
    };
    format!("a run of {} failed{at}: {} [{}]", text("automation"), text("message"), text("code"))
}

fn failure_json(failure: &Failure) -> Value {
    json!({"step": failure.step, "path": failure.path, "expected": failure.expected, "actual": failure.actual})
}

fn said(failure: &Failure) -> String {
    let Failure { step, path, expected, actual } = failure;
    format!("step {step}: {path}: expected {expected}, actual {actual}")
}

/// A step on one line.
fn short(step: &Value) -> String {
    let text = step.as_str().map_or_else(|| step.to_string(), str::to_owned);
    match text.char_indices().nth(160) {
        Some((cut, _)) => format!("{} …", &text[..cut]),
        None => text,
    }
}

/// Text for XML; control characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}
