//! What runs keep of erased events: their input, variables, outputs and waits, and the values that decisions saw.
//!
//! A run that read one of them, or was called or repeated by one that did, is concerned. It is over first, as `event.erased`,
//! if it still lives; then the bodies of all its records go. What it published are events of their own and stay. A decision
//! that set a gate or is pending under a key keeps its body: without it the state could not be folded again.

use std::collections::BTreeSet;

use ledger::{BodyRef, RecordRef};
use model::{Position, Problem};
use serde::Deserialize;
use serde_json::Value;

use super::Doomed;
use crate::command::{Command, RunCommand};
use crate::read;
use crate::tenant::Tenant;

/// As much of a record's data as tells whom it concerns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Of {
    id: String,
    event: Option<Position>,
    run: Position,
    caller: Option<(Position, u32)>,
    rerun_of: Option<String>,
    space: String,
}

#[derive(Deserialize)]
struct Settled {
    of: (Position, u32),
}

/// Ends the live runs that are concerned; the bodies of all that are.
pub(super) fn bodies(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<BTreeSet<Position>, Problem> {
    let (events, concerned) = (doomed.events, over(tenant, doomed)?);
    // A start names its run to the history, with a body or without.
    let (mut bodies, mut decided) = (concerned.clone(), BTreeSet::new());
    each(tenant, first_of(doomed), |record| {
        let position = record.position;
        // With the key of its space a body is erased already; what was derived from it is not.
        let gone = doomed.space.is_some() && record.body == Some(BodyRef::Erased);
        if !gone && !matches!(record.body, Some(BodyRef::Json(_))) {
            return;
        }
        match record.kind {
            "routed" if of(record).event.is_some_and(|event| events.contains(&event)) && !sets(record) => {
                decided.insert(position);
                bodies.insert(position);
            }
            "occurrence.settled" => {
                let settled = serde_json::from_str::<Settled>(record.data.get());
                if settled.is_ok_and(|settled| decided.contains(&settled.of.0)) && !sets(record) {
                    bodies.insert(position);
                }
            }
            "run.moved" | "wait.ended" | "run.ended" | "effect.late"
                if concerned.contains(&of(record).run) =>
            {
                bodies.insert(position);
            }
            _ => {}
        }
    })?;
    Ok(bodies)
}

/// Ends those that are concerned, until nothing begins any more that is. They are all that were.
fn over(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<BTreeSet<Position>, Problem> {
    let mut known = None;
    loop {
        let found = concerned(tenant, doomed)?;
        if known.as_ref() == Some(&found) {
            return Ok(found);
        }
        let (runs, of) = (found.iter().copied().collect(), doomed.events.iter().copied().collect());
        tenant.ask_blocking(Command::Run(RunCommand::Lose { runs, events: of }))?;
        known = Some(found);
    }
}

/// Runs by the position of their start.
fn concerned(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<BTreeSet<Position>, Problem> {
    let (mut runs, mut ids) = (BTreeSet::new(), BTreeSet::new());
    each(tenant, first_of(doomed), |record| {
        let read = |of: &Of| of.event.is_some_and(|event| doomed.events.contains(&event));
        let within = |of: &Of| {
            doomed.space.is_some_and(|(space, through)| of.space == space && record.position <= through)
        };
        match record.kind {
            "run.started" => {
                let of = of(record);
                let called = of.caller.is_some_and(|(caller, _)| runs.contains(&caller));
                let again = of.rerun_of.as_ref().is_some_and(|id| ids.contains(id)) || ids.contains(&of.id);
                if read(&of) || called || again || within(&of) {
                    runs.insert(record.position);
                    ids.insert(of.id);
                }
            }
            "wait.ended" => {
                let of = of(record);
                if read(&of) {
                    runs.insert(of.run);
                }
            }
            _ => {}
        }
    })?;
    Ok(runs)
}

fn of(record: &RecordRef<'_>) -> Of {
    serde_json::from_str(record.data.get()).unwrap_or_default()
}

/// Whether the decision changed what a gate remembers, or is remembered itself while it is pending.
fn sets(record: &RecordRef<'_>) -> bool {
    let Some(BodyRef::Json(text)) = &record.body else { return false };
    let body = serde_json::from_str::<Value>(text.get()).unwrap_or_default();
    let one = |verdict: &Value| verdict.get("set").is_some() || verdict.get("key").is_some();
    body.as_array().map_or_else(|| one(&body), |of| of.iter().any(one))
}

/// Before it stands nothing that is concerned.
fn first_of(doomed: &Doomed<'_>) -> Position {
    let first = || doomed.events.first().copied();
    doomed.space.is_none().then(first).flatten().unwrap_or(1)
}

/// Every record from a position on.
pub(in crate::maintain) fn each(
    tenant: &Tenant,
    from: Position,
    mut look: impl FnMut(&RecordRef<'_>),
) -> Result<(), Problem> {
    let (mut next, head) = (from.max(tenant.first()), tenant.head());
    let mut bytes = Vec::new();
    while next <= head {
        let end =
            tenant.with_reader(|reader| reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem))?;
        for text in ledger::lines(&bytes) {
            let (line, _) = read::parse(text)?;
            line.records().for_each(&mut look);
        }
        next = end.next;
    }
    Ok(())
}
