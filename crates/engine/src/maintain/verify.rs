//! Checks a data directory by reading only: every byte of the ledgers, and the states against what a fold of them gives.

use std::path::Path;

use ledger::disk::OsDisk;
use ledger::{Finding, FindingKind};
use model::{Code, Position, Problem};
use serde_json::{Value, json};

use super::files;
use super::refold::{self, Compared};
use crate::sealing::keys;
use crate::tenant::witness;

/// Beside a running writer a line may be read while it is written or erased; then it is read again.
const TRIES: usize = 3;

/// What `everwhen verify` says (contracts §7).
#[derive(Clone, Debug)]
pub struct Report {
    pub tenants: Vec<TenantReport>,
}

#[derive(Clone, Debug)]
pub struct TenantReport {
    pub tenant: String,
    pub ledger: ledger::Report,
    pub state: &'static str,
    /// What is wrong besides the ledger's own problems.
    pub problems: Vec<StateProblem>,
}

#[derive(Clone, Debug)]
pub struct StateProblem {
    pub kind: &'static str,
    pub file: String,
    pub position: Position,
    pub message: String,
}

impl Report {
    pub fn is_ok(&self) -> bool {
        self.tenants.iter().all(TenantReport::is_ok)
    }

    pub fn to_json(&self) -> Value {
        let tenants: Vec<Value> = self.tenants.iter().map(TenantReport::to_json).collect();
        json!({"ok": self.is_ok(), "tenants": tenants})
    }
}

impl Report {
    /// What waits in an open tenant and would never come due.
    pub fn add_unarmed(&mut self, tenant: &str, unarmed: Vec<String>) {
        let Some(of) = self.tenants.iter_mut().find(|report| report.tenant == tenant) else { return };
        let position = of.ledger.last;
        of.problems.extend(unarmed.into_iter().map(|message| StateProblem {
            kind: "state",
            file: "state.db".to_owned(),
            position,
            message,
        }));
    }
}

impl TenantReport {
    pub fn is_ok(&self) -> bool {
        self.ledger.is_ok() && self.problems.is_empty()
    }

    fn to_json(&self) -> Value {
        let ledger = &self.ledger;
        let mut problems: Vec<Value> =
            ledger.problems.iter().filter_map(|finding| serde_json::to_value(finding).ok()).collect();
        problems.extend(self.problems.iter().map(|problem| {
            json!({
                "kind": problem.kind, "file": problem.file, "offset": 0,
                "position": problem.position, "message": problem.message,
            })
        }));
        json!({
            "tenant": self.tenant, "ok": self.is_ok(), "segments": ledger.segments, "commits": ledger.commits,
            "records": ledger.records, "first": ledger.first, "last": ledger.last, "head": ledger.head,
            "erased": ledger.erased, "state": self.state, "problems": problems,
        })
    }
}

/// Checks every tenant. `quick` leaves the states alone. `progress` hears bytes done and bytes in all.
pub fn verify(data: &Path, quick: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Problem> {
    let tenants = files::tenants(data)?;
    let sizes: Vec<u64> = tenants.iter().map(|(_, dir)| ledger_bytes(dir)).collect();
    let total = sizes.iter().sum();
    let mut done = 0;
    let mut report = Report { tenants: Vec::new() };
    for ((name, dir), bytes) in tenants.iter().zip(&sizes) {
        let mut told = |at: u64, _| progress((done + at).min(total), total);
        report.tenants.extend(verify_tenant(data, name, dir, quick, &mut told));
        done += bytes;
    }
    Ok(report)
}

fn ledger_bytes(dir: &Path) -> u64 {
    let segments = files::list(&dir.join("ledger"));
    segments.iter().filter(|path| files::ends_with(path, "jsonl")).map(|path| files::size(path)).sum()
}

/// `None` for a folder that never was a tenant: a crash came before its ledger was there, and it is empty or nearly.
fn verify_tenant(
    data: &Path,
    name: &str,
    dir: &Path,
    quick: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<TenantReport> {
    if dir.is_dir() && !dir.join("ledger").exists() && !dir.join("state.db").exists() {
        return None;
    }
    for _ in 1..TRIES {
        let report = look_once(name, dir, quick, progress);
        if report.is_ok() && report.ledger.problems.is_empty() || !files::is_held(data) {
            return Some(report);
        }
    }
    let mut report = look_once(name, dir, quick, progress);
    // Under a running writer an unfinished last line is no tail that was torn.
    report.ledger.problems.retain(|finding| finding.kind != FindingKind::TornTail);
    Some(report)
}

/// The state is copied first: whatever it has applied is then in the ledger that is read after it.
fn look_once(name: &str, dir: &Path, quick: bool, progress: &mut dyn FnMut(u64, u64)) -> TenantReport {
    let copy = if quick { None } else { refold::copy(dir) };
    let witness = witness::find(&OsDisk, dir);
    let mut ledger = ledger::verify(&OsDisk, &dir.join("ledger"), progress)
        .unwrap_or_else(|error| unreadable(&dir.join("ledger"), &error));
    witness.inspect(|witness| witness.testify(&dir.join("ledger"), &mut ledger));
    let sound = ledger.is_ok();
    let mut report = TenantReport { tenant: name.to_owned(), ledger, state: "skipped", problems: Vec::new() };
    if !sound {
        return report;
    }
    let seals = match keys::load(dir) {
        Ok(seals) => seals,
        Err(error) => {
            report.problems.push(state_problem(dir, 0, error.detail().to_owned()));
            return report;
        }
    };
    let Some(copy) = copy else {
        let last = report.ledger.last;
        let found = refold::opens((dir, &seals), report.ledger.first, (!quick).then_some(last));
        // Without its keys the ledger is as sound as with them; only what it folds to cannot be known.
        let found = found.or_else(|error| if seals.missed().is_some() { Ok(()) } else { Err(error) });
        report.problems.extend(found.err().map(|error| match error.code() {
            Code::StoreNewer => newer(dir, last, &error),
            _ => state_problem(dir, last, error.detail().to_owned()),
        }));
        return report;
    };
    // The line that was cut short had been applied: the next start discards such a state and folds again.
    let torn = report.ledger.problems.iter().any(|finding| finding.kind == FindingKind::TornTail);
    if torn && copy.as_ref().is_ok_and(|state| state.applied.position > report.ledger.last) {
        return report;
    }
    let problem = |position, message| state_problem(dir, position, message);
    let span = (report.ledger.first, report.ledger.last);
    match copy.and_then(|copy| refold::compare((dir, &seals), &copy, span)) {
        Ok(Compared::Equal) => report.state = "equal",
        Ok(Compared::Differs { position, message }) => {
            report.problems.push(problem(position, message));
            report.state = "differs";
        }
        Err(_) if seals.missed().is_some() => {}
        // What this version cannot fold, it cannot compare either.
        Err(error) if error.code() == Code::StoreNewer => report.problems.push(newer(dir, span.1, &error)),
        Err(error) => {
            report.problems.push(problem(0, error.to_string()));
            report.state = "differs";
        }
    }
    report
}

/// Sound, as far as this version can tell; but it could not open it.
fn newer(dir: &Path, position: Position, error: &Problem) -> StateProblem {
    let (file, message) = (dir.join("ledger").display().to_string(), format!("store.newer: {error}"));
    StateProblem { kind: "newer", file, position, message }
}

fn state_problem(dir: &Path, position: Position, message: String) -> StateProblem {
    let file = dir.join("state.db").display().to_string();
    StateProblem { kind: "state", file, position, message }
}

/// A ledger that cannot even be walked, in the words of one that was.
fn unreadable(dir: &Path, error: &ledger::Error) -> ledger::Report {
    let message = error.to_string();
    let finding =
        Finding { kind: FindingKind::Corrupt, file: dir.to_path_buf(), offset: 0, position: 0, message };
    let head = ledger::Chain::ZERO.to_string();
    let problems = vec![finding];
    ledger::Report {
        segments: 0,
        commits: 0,
        records: 0,
        first: 0,
        last: 0,
        head,
        erased: 0,
        problems,
        cut_records: 0,
    }
}
