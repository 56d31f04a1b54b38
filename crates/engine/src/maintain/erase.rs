//! Takes the content of events out of the ledger, the state and memory for good; their place in the chain stays (R2).
//!
//! ```text
//!           runs that read it end as `event.erased`
//! erasing   the positions, durable before anything else; gone when all is done
//!           → `event.erased` is committed, its fold scrubs the state → bodies are erased in place → memory, snapshots
//! ```
//!
//! A crash leaves the file `erasing`, and the next open does all of it again: doing it twice is doing it once.

pub(super) mod runs;

use std::collections::BTreeSet;

use ledger::{BodyRef, Reader};
use model::record::Record;
use model::{Code, Position, Problem};
use serde::Deserialize;

use super::{aside, files, snapshot};
use crate::command::Command;
use crate::faults::planted;
use crate::read;
use crate::tenant::Tenant;
use crate::writer::Fatal;

/// Bodies erased while the writer is held; each costs a sync.
const STEP: usize = 16;
const PENDING: &str = "erasing";
/// Positions that one record names.
const NOTED: usize = 8_192;

impl Tenant {
    /// Erases the content of the events at these positions; how many had some. All must be events, else nothing happens.
    pub async fn erase(&self, positions: &[Position]) -> Result<u64, Problem> {
        let positions: BTreeSet<Position> = positions.iter().copied().collect();
        aside(self, move |tenant| erase(tenant, &positions)).await
    }

    /// As [`Tenant::erase`], for callers that may block.
    pub fn erase_blocking(&self, positions: &[Position]) -> Result<u64, Problem> {
        erase(self, &positions.iter().copied().collect())
    }
}

fn erase(tenant: &Tenant, events: &BTreeSet<Position>) -> Result<u64, Problem> {
    let _alone = tenant.upkeep().alone();
    check(tenant, events)?;
    let events = &with_quotes(tenant, events)?;
    let had_content = check(tenant, events)?;
    if had_content == 0 {
        return Ok(0);
    }
    let mut beside = BTreeSet::new();
    for event in events {
        beside.extend(tenant.with_reader(|reader| deferred_of(reader, *event))?);
        beside.extend(tenant.with_reader(|reader| change_of(reader, *event))?);
    }
    wipe(tenant, &Doomed { events, beside, space: None })?;
    Ok(had_content)
}

/// What is to lose its content.
pub(super) struct Doomed<'a> {
    pub events: &'a BTreeSet<Position>,
    /// Records that stand beside events and say the same: deferred publishes, changes of rows.
    pub beside: BTreeSet<Position>,
    /// A space all of whose runs are concerned that began up to this position. Its keys are destroyed: what they sealed is
    /// erased already, and stays as it stands.
    pub space: Option<(&'a str, Position)>,
}

/// Erases events, whatever was derived from them, and every copy.
pub(super) fn wipe(tenant: &Tenant, doomed: &Doomed<'_>) -> Result<(), Problem> {
    let events = doomed.events;
    let of_runs = runs::bodies(tenant, doomed)?;
    let mut scanned = tenant.head();
    let mut bodies = events.clone();
    bodies.extend(of_runs);
    bodies.extend(&doomed.beside);
    // What is told of a run is delivered at the positions of its records.
    let delivered = bodies.clone();
    bodies.extend(failures(tenant, &delivered, (*delivered.first().unwrap_or(&1), scanned))?);
    // A dead letter may be written from memory while the ledger is erased; then it is erased as well.
    let mut all = bodies.clone();
    while !bodies.is_empty() {
        all.extend(&bodies);
        carry_out(tenant, bodies.into_iter().collect(), doomed.space.is_some())?;
        if !planted("erase_ledger_only") {
            tenant.forget_content(&all);
        }
        let head = tenant.head();
        bodies = failures(tenant, &delivered, (scanned + 1, head))?;
        scanned = head;
    }
    clean_copies(tenant, &all)
}

/// These events, and of those that are changes of rows what quotes them: the change after it says them as `prev`, and
/// events that were derived from a change say all that it says. A body is erased with every copy, or not at all.
pub(super) fn with_quotes(
    tenant: &Tenant,
    events: &BTreeSet<Position>,
) -> Result<BTreeSet<Position>, Problem> {
    #[derive(Deserialize)]
    struct Rests {
        prev: Option<Position>,
        cause: Option<Position>,
    }
    let mut all = events.clone();
    let (mut next, head) = (events.first().copied().unwrap_or(1).max(tenant.first()), tenant.head());
    let mut bytes = Vec::new();
    while next <= head {
        let end =
            tenant.with_reader(|reader| reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem))?;
        for text in ledger::lines(&bytes) {
            let (line, _) = read::parse(text)?;
            let mut changes = BTreeSet::new();
            for record in line.records() {
                let rests = || serde_json::from_str::<Rests>(record.data.get()).ok();
                let position = record.position;
                if record.kind == "entity.changed" {
                    if rests().and_then(|rests| rests.prev).is_some_and(|prev| events.contains(&prev)) {
                        all.insert(position - 1);
                    }
                    changes.insert(position - 1);
                } else if record.kind == "event" && !changes.is_empty() {
                    let cause = rests().and_then(|rests| rests.cause);
                    if cause.is_some_and(|cause| changes.contains(&cause) && all.contains(&cause)) {
                        all.insert(position);
                    }
                }
            }
        }
        next = end.next;
    }
    Ok(all)
}

/// How many of these events still have content.
fn check(tenant: &Tenant, events: &BTreeSet<Position>) -> Result<u64, Problem> {
    let mut kept = 0;
    for position in events {
        let event = tenant.event(&position.to_string())?;
        if let Some((concept, id)) = tenant.row_resting_on(*position)? {
            let detail =
                format!("\"{id}\" of \"{concept}\" has its values from the event at position {position}");
            return Err(Problem::new(Code::EntityInvalid, detail).hint(
                "delete or change the row first, then erase its past; the change after an erased one quotes it and \
                 is erased with it",
            ));
        }
        kept += u64::from(event.content.payload().is_some());
    }
    Ok(kept)
}

/// The records of deliveries of these events that went wrong: a dead letter holds a copy, an error may quote it.
fn failures(
    tenant: &Tenant,
    events: &BTreeSet<Position>,
    (from, to): (Position, Position),
) -> Result<BTreeSet<Position>, Problem> {
    #[derive(Deserialize)]
    struct Of {
        position: Position,
    }
    let mut found = BTreeSet::new();
    let (mut next, mut bytes) = (from.max(tenant.first()), Vec::new());
    while next <= to {
        let end =
            tenant.with_reader(|reader| reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem))?;
        for text in ledger::lines(&bytes) {
            let (line, _) = read::parse(text)?;
            for record in
                line.records().filter(|record| ["group.dead", "group.failed"].contains(&record.kind))
            {
                let of = serde_json::from_str::<Of>(record.data.get());
                if of.is_ok_and(|of| events.contains(&of.position)) {
                    found.insert(record.position);
                }
            }
        }
        next = end.next;
    }
    Ok(found)
}

/// The deferred publish that became this event: `event.admitted` stands right before it in the same line.
fn deferred_of(reader: &mut dyn Reader, event: Position) -> Result<Option<Position>, Problem> {
    #[derive(Deserialize)]
    struct Admitted {
        deferred: Position,
    }
    let mut bytes = Vec::new();
    reader.read(event, 1, &mut bytes).map_err(read::problem)?;
    let Some(text) = ledger::lines(&bytes).next() else { return Ok(None) };
    let (line, _) = read::parse(text)?;
    let before =
        line.records().find(|record| record.position + 1 == event && record.kind == "event.admitted");
    let admitted = before.and_then(|record| serde_json::from_str::<Admitted>(record.data.get()).ok());
    Ok(admitted.map(|admitted| admitted.deferred))
}

/// The change that this event is of: `entity.changed` stands right after it, and may hold sealed secrets.
fn change_of(reader: &mut dyn Reader, event: Position) -> Result<Option<Position>, Problem> {
    let mut bytes = Vec::new();
    reader.read(event, 1, &mut bytes).map_err(read::problem)?;
    Ok(read::changed_at(&bytes, event + 1)?.map(|_| event + 1))
}

fn carry_out(tenant: &Tenant, positions: Vec<Position>, forgets: bool) -> Result<(), Problem> {
    let pending = tenant.dir().map(|dir| dir.join(PENDING));
    if let Some(path) = &pending {
        files::write_small(path, serde_json::json!(positions).to_string().as_bytes())?;
    }
    commit(tenant, &positions)?;
    let standing = if forgets { readable(tenant, positions)? } else { positions };
    erase_bodies(tenant, &standing)?;
    pending.map_or(Ok(()), |path| files::remove(&path))
}

/// The record first, and the state with it, then the bodies: so no state ever knows less than the ledger shows.
fn commit(tenant: &Tenant, positions: &[Position]) -> Result<(), Problem> {
    for some in positions.chunks(NOTED) {
        let records = vec![Record::EventErased { positions: some.to_vec() }];
        tenant.ask_blocking(Command::Note { records })?;
    }
    Ok(())
}

/// Those of them that still say something.
fn readable(tenant: &Tenant, mut positions: Vec<Position>) -> Result<Vec<Position>, Problem> {
    let from = positions.iter().min().copied().unwrap_or(1);
    let mut silent = BTreeSet::new();
    runs::each(tenant, from, |record| {
        if matches!(record.body, None | Some(BodyRef::Erased)) {
            silent.insert(record.position);
        }
    })?;
    positions.retain(|position| !silent.contains(position));
    Ok(positions)
}

fn erase_bodies(tenant: &Tenant, positions: &[Position]) -> Result<(), Problem> {
    for some in positions.chunks(STEP) {
        tenant.with_writer(|writer| {
            writer.settle().map_err(|Fatal(problem)| problem)?;
            writer.ledger.erase(some).map_err(read::problem)
        })?;
    }
    Ok(())
}

/// Snapshots from before still have the content, and so have the history and the log of `state.db`.
fn clean_copies(tenant: &Tenant, erased: &BTreeSet<Position>) -> Result<(), Problem> {
    tenant.erase_history(erased)?;
    let Some(dir) = tenant.dir() else { return Ok(()) };
    if !snapshot::positions(dir).is_empty() {
        snapshot::take_keeping(tenant, 1)?;
    }
    match tenant.cut_state_log()? {
        true => Ok(()),
        false => {
            Err(Problem::new(Code::StorageFailed, "the log of state.db is being copied and could not be cut")
                .hint("ask again: until then what was erased may stand in that file"))
        }
    }
}

/// Finishes what a crash interrupted.
pub(super) fn finish(tenant: &Tenant) -> Result<(), Problem> {
    let Some(path) = tenant.dir().map(|dir| dir.join(PENDING)) else { return Ok(()) };
    let Some(bytes) = files::read_small(&path)? else { return Ok(()) };
    let positions: Vec<Position> = serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(Code::StoreCorrupt, format!("\"{}\": {error}", path.display()))
            .hint("it lists what a crash kept from being erased; remove it to go on without erasing")
    })?;
    tracing::info!(tenant = tenant.name(), positions = positions.len(), "finishing an erasure");
    let erased = positions.iter().copied().collect();
    commit(tenant, &positions)?;
    erase_bodies(tenant, &positions)?;
    clean_copies(tenant, &erased)?;
    files::remove(&path)
}
