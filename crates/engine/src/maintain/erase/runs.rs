//! What runs keep of erased events: their input, variables, outputs and waits, and the values that decisions saw.
//!
//! A run that read one of them, or was called or repeated by one that did, or got the answer of one that did, or was begun by
//! what is told of one, is concerned. It is over first, as `event.erased`, if it still lives; then the bodies of all its records
//! go, and of what told that its automation was switched off. What it published are events of their own and stay. A decision
//! that set a gate or is pending with an event of the ledger keeps its body: without it the state could not be folded again.
//! What it waits with, when that is no event of the ledger, stands apart from it and goes.

use std::collections::BTreeSet;

use ledger::{BodyRef, RecordRef};
use model::{Code, Position, Problem};
use serde::Deserialize;
use serde_json::Value;

use super::Doomed;
use crate::command::{Command, RunCommand};
use crate::lifecycle;
use crate::read;
use crate::route::lost::{Lost, TOLD};
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

/// What is concerned.
#[derive(Default)]
struct Concerned {
    lost: Lost,
    /// Where callers of runs that are wait for them.
    callers: BTreeSet<(Position, u32)>,
}

#[derive(Deserialize)]
struct Settled {
    of: (Position, u32),
}

/// Ends the live runs that are concerned; the bodies of all that are.
pub(super) fn bodies(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<BTreeSet<Position>, Problem> {
    let lost = over(tenant, doomed)?;
    // A start names its run to the history, with a body or without.
    let (mut bodies, mut decided) = (lost.runs.clone(), BTreeSet::new());
    each(tenant, first_of(doomed), |record| {
        let position = record.position;
        // With the key of its space a body is erased already; what was derived from it is not.
        let gone = doomed.space.is_some() && record.body == Some(BodyRef::Erased);
        if !gone && !matches!(record.body, Some(BodyRef::Json(_))) {
            return;
        }
        match record.kind {
            "routed" if is_about(record, gone, &lost) && !sets(record) => {
                decided.insert(position);
                bodies.insert(position);
            }
            "routed" | "occurrence.moved" if repeats(record, &lost) => _ = bodies.insert(position),
            "occurrence.settled" => {
                let settled = serde_json::from_str::<Settled>(record.data.get());
                if settled.is_ok_and(|settled| decided.contains(&settled.of.0)) && !sets(record) {
                    bodies.insert(position);
                }
            }
            "run.moved" | "wait.ended" | "run.ended" | "effect.late"
                if lost.runs.contains(&of(record).run) =>
            {
                bodies.insert(position);
            }
            "event" if lost.events.contains(&position) => _ = bodies.insert(position),
            _ => {}
        }
    })?;
    Ok(bodies)
}

/// Whether it tells why an automation was switched off or paused by one of these runs, and quotes it.
fn tells_of(record: &RecordRef<'_>, lost: &Lost) -> bool {
    if !QUOTES.contains(&of(record).topic.as_str()) {
        return false;
    }
    let payload = &body(record)["payload"];
    let says = payload["message"].is_string() && payload["reason"] != Code::EventErased.as_str();
    says && lost.names_one(record.position, payload["run"].as_str())
}

/// Ends those that are concerned, until nothing begins any more that is. They are all that were.
fn over(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<Lost, Problem> {
    let mut known = None;
    loop {
        let found = concerned(tenant, doomed)?.lost;
        if known.as_ref() == Some(&found) {
            return Ok(found);
        }
        tenant.ask_blocking(Command::Run(RunCommand::Lose(Box::new(found.clone()))))?;
        known = Some(found);
    }
}

fn concerned(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<Concerned, Problem> {
    let space = doomed.space.map(|(space, through)| (space.to_owned(), through));
    let lost = Lost { events: doomed.events.clone(), space, ..Lost::default() };
    let mut found = Concerned { lost, ..Concerned::default() };
    each(tenant, first_of(doomed), |record| match record.kind {
        "run.started" => {
            let of = of(record);
            if found.reads(&of, record.position) || found.begins(&of, record) {
                found.add(record.position, of, record.position);
            }
        }
        "wait.ended" => {
            let of = of(record);
            let quotes = found.reads(&of, record.position) || found.callers.contains(&(of.run, of.wait));
            if quotes && !found.lost.runs.contains(&of.run) {
                found.add(of.run, start_of(tenant, of.run), record.position);
            }
        }
        "event" if tells_of(record, &found.lost) => _ = found.lost.events.insert(record.position),
        _ => {}
    })?;
    Ok(found)
}

impl Concerned {
    fn add(&mut self, run: Position, start: Of, since: Position) {
        self.lost.runs.insert(run);
        self.lost.ids.entry(start.id).or_insert(since);
        self.callers.extend(start.caller);
    }

    /// Whether a start or the end of a wait quotes what is to go.
    fn reads(&self, of: &Of, position: Position) -> bool {
        let event = of.event.iter().chain(&of.events).any(|event| self.lost.events.contains(event));
        let within = self.lost.space.as_ref().is_some_and(|(space, through)| {
            position <= *through && (of.space == *space || of.other_spaces.contains(space))
        });
        event || within
    }

    /// Whether another run that is concerned called or repeats this one, or it was begun by what is told of one.
    fn begins(&self, of: &Of, start: &RecordRef<'_>) -> bool {
        let called = of.caller.is_some_and(|(caller, _)| self.lost.runs.contains(&caller));
        let runs =
            [&of.parent, &of.rerun_of].into_iter().flatten().map(String::as_str).chain([of.id.as_str()]);
        let told = || self.lost.names_one(start.position, lifecycle::quoted_run(&body(start)["event"]));
        called || self.lost.names_one(start.position, runs) || lifecycle::is_one(&of.topic) && told()
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

fn of(record: &RecordRef<'_>) -> Of {
    serde_json::from_str(record.data.get()).unwrap_or_default()
}

fn body(record: &RecordRef<'_>) -> Value {
    match &record.body {
        Some(BodyRef::Json(text)) => serde_json::from_str(text.get()).unwrap_or_default(),
        _ => Value::Null,
    }
}

/// What a record of decisions says of each.
fn verdicts(record: &RecordRef<'_>) -> Vec<Value> {
    match body(record) {
        Value::Array(of) => of,
        one => vec![one],
    }
}

/// Whether the decision changed what a gate remembers, or is remembered itself while it is pending.
fn sets(record: &RecordRef<'_>) -> bool {
    verdicts(record).iter().any(|one| one.get("set").is_some() || one.get("key").is_some())
}

/// Whether decisions were about one of these events, or about what is told of one of these runs. Of which run that was is
/// not known any more where a key is `gone`: it was one of its space.
fn is_about(record: &RecordRef<'_>, gone: bool, lost: &Lost) -> bool {
    let event = of(record).event.unwrap_or_default();
    let told = |one: &Value| lost.names_one(record.position, one["values"][TOLD].as_str());
    lost.events.contains(&event) || event == 0 && (gone || verdicts(record).iter().any(told))
}

/// Whether it says what an occurrence waits with, which quotes something of it. That place was given up before. One that
/// also says what a gate remembers stays: such were written before the two stood apart.
fn repeats(record: &RecordRef<'_>, lost: &Lost) -> bool {
    let quotes = |one: &Value| lost.is_quoted_by(record.position, &one["values"]["start"]);
    let of = verdicts(record);
    of.iter().any(quotes) && !of.iter().any(|one| one.get("set").is_some())
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
