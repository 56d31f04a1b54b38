//! Drops the oldest segments by age and size, never past what a rebuild, a group or a run still needs (R3).
//!
//! ```text
//!   oldest ──────────────────────────────────────────────────────────▶ newest
//!   │ too old, or too much │ a group's floor │ 2nd-newest snapshot │ active segment
//!   └────── goes, as far as none of the others begins ──────┘
//! ```
//!
//! Segment by segment: `ledger.trimmed` is durable first, then the file goes. A crash in between is finished at open.

use std::time::Duration;

use ledger::{AppendError, Segment, Trimmed};
use model::definition::{Action, Step, TriggerKind};
use model::{Position, Problem, Timestamp};

use super::{broken, files, sidecar, snapshot};
use crate::command::Command;
use crate::read;
use crate::settings::Retention;
use crate::tenant::Tenant;

/// An active segment smaller than this is sealed for its age only if it has an event in it: the housekeeping's own records would
/// keep it turning.
const SEAL_MIN: u64 = 4 << 10;
/// A tenant that is closed is not opened more often than this to trim it.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// A state of this size is copied without thinking twice.
const SMALL_STATE: u64 = 4 << 20;

/// Segments go whole, so they are small against what is kept: a quarter of it at most.
pub(crate) fn segmented(options: ledger::Options, retention: &Retention) -> ledger::Options {
    let Some(most) = retention.bytes else { return options };
    ledger::Options { segment_bytes: options.segment_bytes.min(piece(most)), ..options }
}

fn piece(most: u64) -> u64 {
    (most / 4).max(SEAL_MIN)
}

/// Trims what the settings let go; `None` when that is nothing.
pub fn run(tenant: &Tenant) -> Result<Option<Trimmed>, Problem> {
    let retention = &tenant.settings().retention;
    if retention.age.is_none() && retention.bytes.is_none() {
        return Ok(None);
    }
    // A backup may take long, and other tenants wait for the housekeeper, too.
    let Some(_alone) = tenant.upkeep().alone_now() else { return Ok(None) };
    seal_if_due(tenant)?;
    let segments = tenant.with_writer(|writer| Ok(writer.ledger.segments()))?;
    let mut first = wanted(tenant, &segments)?;
    if first == segments[0].first {
        return Ok(None);
    }
    tenant.record_floors();
    if retention.respect_groups {
        first = first.min(lowest_floor(tenant)? + 1);
    }
    if retention.respect_runs {
        first = first.min(oldest_looked_at(tenant)?);
    }
    let starts: Vec<Position> = segments.iter().map(|segment| segment.first).collect();
    if !starts.iter().skip(1).any(|start| *start <= first) {
        return Ok(None);
    }
    let gain = segments.iter().filter(|segment| segment.first < first).map(|segment| segment.bytes).sum();
    first = first.min(snapshots_reach(tenant, first, gain)?);
    let mut done: Option<Trimmed> = None;
    for start in starts.into_iter().skip(1).filter(|start| *start <= first) {
        let cut = cut(tenant, start)?;
        let before = done.map_or((0, 0), |done| (done.segments, done.bytes));
        done = Some(Trimmed { segments: cut.segments + before.0, bytes: cut.bytes + before.1, ..cut });
    }
    Ok(done)
}

/// When a tenant that nobody uses should be looked after again: its oldest segment is then too old. Not sooner than in a
/// while, because a group may be what holds it.
pub(crate) fn next(tenant: &Tenant) -> Result<Option<Timestamp>, Problem> {
    let Some(age) = tenant.settings().retention.age else { return Ok(None) };
    let segments = tenant.with_writer(|writer| Ok(writer.ledger.segments()))?;
    if segments.len() == 1 && segments[0].bytes < SEAL_MIN && first_event(tenant, &segments[0])?.is_none() {
        return Ok(None);
    }
    let oldest = tenant.recorded_at(segments[0].first)?;
    Ok(Some(oldest.plus(age).max(tenant.moment().now.plus(LOOK_AGAIN))))
}

/// Only sealed segments can go, so an active one that is old or large enough is sealed.
fn seal_if_due(tenant: &Tenant) -> Result<(), Problem> {
    let retention = &tenant.settings().retention;
    let active = tenant.with_writer(|writer| Ok(writer.ledger.segments().last().copied()))?;
    let Some(active) = active else { return Ok(()) };
    let large = retention.bytes.is_some_and(|most| active.bytes > piece(most));
    let old = match retention.age {
        Some(age) => is_old(tenant, &active, before_now(tenant, age))?,
        None => false,
    };
    if !large && !old {
        return Ok(());
    }
    tenant.with_writer(|writer| writer.ledger.seal().map_err(AppendError::into_error).map_err(read::problem))
}

fn is_old(tenant: &Tenant, active: &Segment, before: Timestamp) -> Result<bool, Problem> {
    let oldest = match active.bytes < SEAL_MIN {
        true => first_event(tenant, active)?,
        false => Some(tenant.recorded_at(active.first)?),
    };
    Ok(oldest.is_some_and(|oldest| oldest <= before))
}

/// When the first event of a small segment was recorded, if it has one.
fn first_event(tenant: &Tenant, segment: &Segment) -> Result<Option<Timestamp>, Problem> {
    let head = tenant.head();
    if segment.first > head {
        return Ok(None);
    }
    let (events, _) = tenant.events_from(segment.first, head, 1)?;
    Ok(events.first().map(|event| event.recorded_at))
}

fn before_now(tenant: &Tenant, age: Duration) -> Timestamp {
    tenant.moment().now.minus(age)
}

/// The first position to keep by age and size alone. What is kept by size is at least as much as the settings say: it is
/// trimmed once a whole segment is too much.
fn wanted(tenant: &Tenant, segments: &[Segment]) -> Result<Position, Problem> {
    let retention = &tenant.settings().retention;
    let mut total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    for (segment, next) in segments.iter().zip(&segments[1..]) {
        let large = retention.bytes.is_some_and(|most| total - segment.bytes >= most);
        let old = match retention.age {
            Some(age) => tenant.recorded_at(next.first - 1)? <= before_now(tenant, age),
            None => false,
        };
        if !large && !old {
            return Ok(segment.first);
        }
        total -= segment.bytes;
    }
    Ok(segments[segments.len() - 1].first)
}

fn lowest_floor(tenant: &Tenant) -> Result<Position, Problem> {
    tenant.with_writer(|writer| {
        let floors = writer.state.groups.values().map(|group| group.floor);
        Ok(floors.min().unwrap_or(Position::MAX - 1))
    })
}

/// The oldest event of a run in progress that may look back to what came after it.
fn oldest_looked_at(tenant: &Tenant) -> Result<Position, Problem> {
    tenant.with_writer(|writer| {
        let state = &writer.state;
        let runs = state.runs.live.iter().filter(|(_, run)| {
            let automation = state.version(&run.automation, &run.hash);
            automation.is_some_and(|automation| looks_back(&automation.definition.steps))
        });
        let oldest = runs.map(|(position, run)| if run.event > 0 { run.event } else { *position }).min();
        Ok(oldest.unwrap_or(Position::MAX))
    })
}

fn looks_back(steps: &[Step]) -> bool {
    steps.iter().any(|step| match &step.action {
        Action::WaitFor(wait) => matches!(wait.trigger, TriggerKind::Event(_)),
        action => action.blocks().into_iter().any(looks_back),
    })
}

/// How far the second-newest snapshot that is recorded and there lets a trim go. When that is too little, snapshots are
/// taken, unless copying the state costs more than the `gain`.
fn snapshots_reach(tenant: &Tenant, first: Position, gain: u64) -> Result<Position, Problem> {
    let dir = super::dir_of(tenant)?;
    let cost = files::size(&dir.join("state.db"));
    let second = || -> Result<Position, Problem> {
        let recorded = tenant.with_writer(|writer| writer.state.snapshots().map_err(broken))?;
        let there = snapshot::positions(&dir);
        let both = there.into_iter().filter(|at| recorded.iter().any(|(position, ..)| position == at));
        Ok(both.take(2).nth(1).unwrap_or(0))
    };
    // The third is for an active segment that is still empty: the first one then stands just before it.
    for _ in 0..3 {
        if second()? >= first || cost > gain.max(SMALL_STATE) {
            break;
        }
        snapshot::take_keeping(tenant, 2)?;
    }
    second()
}

/// Everything below `start`, where a segment begins, goes.
fn cut(tenant: &Tenant, start: Position) -> Result<Trimmed, Problem> {
    let before = tenant.with_reader(|reader| ledger::head_at(reader, start - 1).map_err(read::problem))?;
    let respect_groups = tenant.settings().retention.respect_groups;
    tenant.ask_blocking(Command::Trim { first: start, before: before.chain.to_string(), respect_groups })?;
    drop_files(tenant, start)
}

fn drop_files(tenant: &Tenant, first: Position) -> Result<Trimmed, Problem> {
    let trimmed = tenant.with_writer(|writer| writer.ledger.trim(first).map_err(read::problem))?;
    sidecar::drop_below(tenant, trimmed.first)?;
    tracing::info!(
        tenant = tenant.name(),
        first = trimmed.first,
        bytes = trimmed.bytes,
        "the ledger was trimmed"
    );
    Ok(trimmed)
}

/// A crash may have left segments that `ledger.trimmed` has given up.
pub(super) fn finish(tenant: &Tenant) -> Result<(), Problem> {
    let (recorded, kept) = tenant.with_writer(|writer| Ok((writer.state.first, writer.ledger.first())))?;
    if kept < recorded {
        let trimmed = drop_files(tenant, recorded)?;
        tenant.begins_at(trimmed.first);
    }
    Ok(())
}
