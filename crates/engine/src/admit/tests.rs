//! Tests of admission, by station; what they share is here.

mod any;
mod chain;
mod of_attention;
mod of_cloudevents;
mod of_drafts;
mod of_redaction;
mod of_seeds;

use model::event::Subject;
use model::topic::Pattern;
use serde_json::json;

use super::cloudevents::{NO_SOURCE, parse_subject, to_cloudevent};
use super::draft::raw;
use super::*;
use crate::settings::Limits;

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn admitter(settings: &Settings) -> Admitter {
    Admitter::new(settings, Vec::new()).unwrap()
}

/// Admits with entropy of nothing but sevens.
fn admit_at(admitter: &Admitter, caller: &Caller, draft: Draft, at: Timestamp) -> Result<Admission, Problem> {
    let mut entropy = |bytes: &mut [u8]| bytes.fill(7);
    admitter.admit(caller, draft, &mut Context { now: at, entropy: &mut entropy, cause_depth: None })
}

fn admit(admitter: &Admitter, draft: Draft) -> Result<Admission, Problem> {
    admit_at(admitter, &Caller::local(), draft, now())
}

fn prepared(admission: Result<Admission, Problem>) -> Prepared {
    match admission {
        Ok(Admission::Prepared(prepared)) => prepared,
        other => panic!("not prepared: {other:?}"),
    }
}

/// Text → draft → event, with default settings.
fn publish(text: &str) -> Result<Admission, Problem> {
    let settings = Settings::default();
    admit(&admitter(&settings), Draft::parse(text.as_bytes(), &settings.limits())?)
}

/// `code at pointer: detail (hint)`, the whole of what a user sees.
fn shown(problem: &Problem) -> String {
    let pointer = problem.pointer().unwrap_or("-");
    format!("{} at {pointer}: {problem} ({})", problem.code(), problem.hint_text().unwrap_or("no hint"))
}

fn body(prepared: &Prepared) -> Value {
    serde_json::from_str(&prepared.record.body.as_ref().unwrap().json).unwrap()
}
