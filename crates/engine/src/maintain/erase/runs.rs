//! What runs keep of erased events: their input, variables, outputs and waits, and the values that decisions saw.
//!
//! A run that read one of them, or was called or repeated by one that did, or got the answer of one that did, is concerned.
//! It is over first, as `event.erased`, if it still lives; then the bodies of all its records go, and of what told that its
//! automation was switched off. What it published are events of their own and stay. A decision that set a gate or is pending
//! under a key keeps its body: without it the state could not be folded again.

use std::collections::BTreeSet;

use ledger::{BodyRef, RecordRef};
use model::{Position, Problem};
use serde::Deserialize;
use serde_json::Value;

use super::Doomed;
use crate::command::{Command, RunCommand};
use crate::read;
use crate::tenant::Tenant;

/// Events that quote the error of a run.
const QUOTES: [&str; 2] = ["automation.disabled", "automation.paused"];

/// As much of a record's data as tells whom it concerns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Of {
    id: String,
    event: Option<Position>,
    events: Vec<Position>,
    run: Position,
    wait: u32,
    caller: Option<(Position, u32)>,
    rerun_of: Option<String>,
    parent: Option<String>,
    topic: String,
    space: String,
    other_spaces: Vec<String>,
}

/// Runs that are concerned, by the position of their start and by id.
#[derive(Default, PartialEq)]
struct Concerned {
    runs: BTreeSet<Position>,
    ids: BTreeSet<String>,
    /// Where their callers wait for them.
    callers: BTreeSet<(Position, u32)>,
}

#[derive(Deserialize)]
struct Settled {
    of: (Position, u32),
}

/// Ends the live runs that are concerned; the bodies of all that are.
pub(super) fn bodies(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<BTreeSet<Position>, Problem> {
    let (events, concerned) = (doomed.events, over(tenant, doomed)?);
    // A start names its run to the history, with a body or without.
    let (mut bodies, mut decided) = (concerned.runs.clone(), BTreeSet::new());
    let mut routed = BTreeSet::new();
    each(tenant, first_of(doomed), |record| {
        let position = record.position;
        if record.kind == "routed" && of(record).event.is_some_and(|event| events.contains(&event)) {
            routed.insert(position);
        }
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
            "occurrence.moved" if quotes_start(record) => {
                let moved = serde_json::from_str::<Settled>(record.data.get());
                if moved.is_ok_and(|moved| routed.contains(&moved.of.0)) {
                    bodies.insert(position);
                }
            }
            "occurrence.settled" => {
                let settled = serde_json::from_str::<Settled>(record.data.get());
                if settled.is_ok_and(|settled| decided.contains(&settled.of.0)) && !sets(record) {
                    bodies.insert(position);
                }
            }
            "run.moved" | "wait.ended" | "run.ended" | "effect.late"
                if concerned.runs.contains(&of(record).run) =>
            {
                bodies.insert(position);
            }
            "event" if tells_of(record, &concerned) => _ = bodies.insert(position),
            _ => {}
        }
    })?;
    Ok(bodies)
}

/// Whether it tells why an automation was switched off or paused by one of these runs, and quotes it.
fn tells_of(record: &RecordRef<'_>, concerned: &Concerned) -> bool {
    let Some(BodyRef::Json(text)) = &record.body else { return false };
    if !QUOTES.contains(&of(record).topic.as_str()) {
        return false;
    }
    let body = serde_json::from_str::<Value>(text.get()).unwrap_or_default();
    body["payload"]["run"].as_str().is_some_and(|run| concerned.ids.contains(run))
}

/// Ends those that are concerned, until nothing begins any more that is. They are all that were.
fn over(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<Concerned, Problem> {
    let mut known = None;
    loop {
        let found = concerned(tenant, doomed)?;
        if known.as_ref() == Some(&found) {
            return Ok(found);
        }
        let (runs, of) = (found.runs.iter().copied().collect(), doomed.events.iter().copied().collect());
        tenant.ask_blocking(Command::Run(RunCommand::Lose { runs, events: of }))?;
        known = Some(found);
    }
}

fn concerned(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<Concerned, Problem> {
    let mut found = Concerned::default();
    each(tenant, first_of(doomed), |record| match record.kind {
        "run.started" => {
            let of = of(record);
            let called = of.caller.is_some_and(|(caller, _)| found.runs.contains(&caller))
                || of.parent.as_ref().is_some_and(|id| found.ids.contains(id));
            let again =
                of.rerun_of.as_ref().is_some_and(|id| found.ids.contains(id)) || found.ids.contains(&of.id);
            if reads(&of, record.position, doomed) || called || again {
                found.add(record.position, of);
            }
        }
        "wait.ended" => {
            let of = of(record);
            let quotes = reads(&of, record.position, doomed) || found.callers.contains(&(of.run, of.wait));
            if quotes && !found.runs.contains(&of.run) {
                found.add(of.run, start_of(tenant, of.run));
            }
        }
        _ => {}
    })?;
    Ok(found)
}

impl Concerned {
    fn add(&mut self, run: Position, start: Of) {
        self.runs.insert(run);
        self.ids.insert(start.id);
        self.callers.extend(start.caller);
    }
}

/// It may stand before all that is looked at. One that was trimmed says nothing.
fn start_of(tenant: &Tenant, run: Position) -> Of {
    let mut found = Of::default();
    let mut bytes = Vec::new();
    let read = tenant.with_reader(|reader| reader.read(run, 1, &mut bytes).map_err(read::problem));
    for text in ledger::lines(&bytes).filter(|_| read.is_ok()) {
        let Ok((line, _)) = read::parse(text) else { continue };
        found = line.records().find(|record| record.position == run).map(of).unwrap_or(found);
    }
    found
}

/// Whether a start or the end of a wait quotes what is to go.
fn reads(of: &Of, position: Position, doomed: &Doomed<'_>) -> bool {
    let event = of.event.iter().chain(&of.events).any(|event| doomed.events.contains(event));
    let within = doomed.space.is_some_and(|(space, through)| {
        position <= through && (of.space == space || of.other_spaces.iter().any(|other| other == space))
    });
    event || within
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

/// Whether one that was refused took a place in the queue with a copy of its event. That place was given up before.
fn quotes_start(record: &RecordRef<'_>) -> bool {
    let Some(BodyRef::Json(text)) = &record.body else { return false };
    let body = serde_json::from_str::<Value>(text.get()).unwrap_or_default();
    body["values"]["start"]["position"].is_u64()
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
