//! Forgets a space: its keys are destroyed, its rows go, and whatever was derived from its events with them (`docs/sealing.md`).
//!
//! ```text
//! forgetting   {"space"}             durable first: from here on a crash is gone on from
//!              → rows of the space are deleted → what is written there from now on has another key
//!              {"space","through"}   everything up to there goes
//!              → the keys of before are destroyed → what was derived is wiped as erased events are → the file is removed
//! ```
//!
//! Each step does nothing when it was done before, so the next open does all of it again.

use std::collections::BTreeSet;

use ledger::{BodyRef, RecordRef};
use model::{Code, Position, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::erase::{Doomed, runs, wipe, with_quotes};
use super::{alone, files};
use crate::admit::Caller;
use crate::entity::{Action, Write};
use crate::sealing::Held;
use crate::state::entity::RowSize;
use crate::tenant::Tenant;

const PENDING: &str = "forgetting";
/// Rows that one commit deletes, and how much they may hold: its event quotes each.
const ROWS: usize = 256;
const ROWS_BYTES: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Pending {
    space: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    through: Option<Position>,
}

/// As much of a record's data as tells where it belongs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct In {
    space: String,
}

impl Tenant {
    /// Destroys the keys of a space and wipes what its events left, up to now; how many events still said something. What is
    /// published there later is a new beginning. A repetition finds nothing, wipes what runs left since, and says so: `already`.
    pub async fn forget_space(&self, by: &Caller, space: &str) -> Result<Value, Problem> {
        crate::tenant::spaces::check_name(space)?;
        let (by, named) = (by.clone(), space.to_owned());
        let before = self.shown_space(space);
        let events = alone(self, move |tenant| {
            let events = standing(tenant, &named)?;
            forget(tenant, &by, Pending { space: named, through: None })?;
            Ok(events)
        });
        let events = events.await?;
        let mut shown = self.shown_space(space);
        shown["events"] = events.into();
        if events == 0 && before["forgotten_at"].is_string() {
            shown["already"] = true.into();
        }
        Ok(shown)
    }
}

/// How many events of the space have a content. A name with a typo is not taken for something that was forgotten.
fn standing(tenant: &Tenant, space: &str) -> Result<u64, Problem> {
    let (mut any, mut events) = (tenant.has_space_row(space), 0);
    runs::each(tenant, 1, |record| {
        if let Some(is_event) = belongs(record, space) {
            any = true;
            events += u64::from(is_event && matches!(record.body, Some(BodyRef::Json(_))));
        }
    })?;
    if !any {
        let detail = format!("nothing was ever written in a space \"{space}\"");
        return Err(Problem::new(Code::NotFound, detail)
            .hint("events show their space; `everwhen space list` shows those that are sealed")
            .at("/name"));
    }
    Ok(events)
}

fn forget(tenant: &Tenant, by: &Caller, mut pending: Pending) -> Result<(), Problem> {
    let path = super::dir_of(tenant)?.join(PENDING);
    let note = |pending: &Pending| files::write_small(&path, json!(pending).to_string().as_bytes());
    if pending.through.is_none() {
        note(&pending)?;
        drop_rows(tenant, by, &pending.space, |_| true)?;
        tenant.renew_key(by, &pending.space)?;
        pending.through = Some(tenant.head());
        note(&pending)?;
    }
    let through = pending.through.unwrap_or_default();
    tenant.destroy_keys(&pending.space)?;
    wipe_space(tenant, by, &pending.space, through)?;
    files::remove(&path)
}

fn wipe_space(tenant: &Tenant, by: &Caller, space: &str, through: Position) -> Result<(), Problem> {
    let (found, beside) = of_space(tenant, space, through)?;
    let mut events = with_quotes(tenant, &found)?;
    // A row that was written while this began would rest on what goes.
    while drop_rows(tenant, by, space, |version| version <= through || events.contains(&version))? > 0 {
        events = with_quotes(tenant, &found)?;
    }
    wipe(tenant, &Doomed { events: &events, beside, space: Some((space, through)) })
}

/// Events of a space up to a position; and the records beside them that say the same.
fn of_space(
    tenant: &Tenant,
    space: &str,
    through: Position,
) -> Result<(BTreeSet<Position>, BTreeSet<Position>), Problem> {
    let (mut events, mut beside) = (BTreeSet::new(), BTreeSet::new());
    runs::each(tenant, 1, |record| match belongs(record, space).filter(|_| record.position <= through) {
        Some(true) => drop(events.insert(record.position)),
        Some(false) => drop(beside.insert(record.position)),
        None => {}
    })?;
    Ok((events, beside))
}

/// Whether a record is an event of the space, or one beside it that says the same.
fn belongs(record: &RecordRef<'_>, space: &str) -> Option<bool> {
    let is_event = match record.kind {
        "event" => true,
        "event.deferred" | "entity.changed" => false,
        _ => return None,
    };
    let of: In = serde_json::from_str(record.data.get()).ok()?;
    (of.space == space).then_some(is_event)
}

/// Deletes rows of the space whose version is one of these, without starting anything; how many.
fn drop_rows(
    tenant: &Tenant,
    by: &Caller,
    space: &str,
    of: impl Fn(Position) -> bool,
) -> Result<usize, Problem> {
    let inside = Caller { outside: false, ..by.clone() };
    let mut rows = tenant.with_writer(|writer| writer.state.rows_in(space).map_err(super::broken))?;
    rows.retain(|row| of(row.version));
    let mut left = rows.as_slice();
    while !left.is_empty() {
        let (some, rest) = left.split_at(at_once(left));
        left = rest;
        let writes = some.iter().map(|row| Write {
            space: space.to_owned(),
            quiet: true,
            ..Write::of(&row.concept, Some(&row.id), Action::Delete)
        });
        match tenant.write_all_blocking(&inside, writes.collect()) {
            // Somebody else was quicker; the next look tells.
            Err(problem) if problem.code() == Code::NotFound => {}
            written => _ = written?,
        }
    }
    Ok(rows.len())
}

/// How many of these rows, the first of them at least, one commit deletes.
fn at_once(rows: &[RowSize]) -> usize {
    let mut bytes = 0;
    let fits = |row: &&RowSize| {
        bytes += row.bytes;
        bytes <= ROWS_BYTES
    };
    rows.iter().take(ROWS).take_while(fits).count().max(1)
}

/// Finishes what a crash interrupted; and what was forgotten elsewhere when the keys came here beside an older ledger.
pub(super) fn finish(tenant: &Tenant) -> Result<(), Problem> {
    let Some(path) = tenant.dir().map(|dir| dir.join(PENDING)) else { return Ok(()) };
    let by = Caller::local();
    if let Some(bytes) = files::read_small(&path)? {
        let pending: Pending = serde_json::from_slice(&bytes).map_err(|error| {
            Problem::new(Code::StoreCorrupt, format!("\"{}\": {error}", path.display()))
                .hint("it names a space that a crash kept from being forgotten; remove it and forget the space again")
        })?;
        tracing::info!(tenant = tenant.name(), space = pending.space, "finishing to forget a space");
        forget(tenant, &by, pending)?;
    }
    for (space, key) in tenant.sealed_spaces()? {
        if matches!(tenant.seals().held(&key), Some(Held::Forgotten { .. })) {
            tracing::info!(tenant = tenant.name(), space, "the key of this space was destroyed");
            forget(tenant, &by, Pending { space, through: None })?;
        }
    }
    Ok(())
}
