//! Snapshots of `state.db`: what a trimmed ledger is folded on top of. Taken off the loop, checked, then recorded.
//!
//! ```text
//! snapshots/00000000000000004711.db       the state after that position; at most two are kept
//!           00000000000000004711.db.new   being made, or left by a crash
//! ```

use std::path::{Path, PathBuf};

use ledger::Head;
use model::record::Record;
use model::{Code, Position, Problem};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{broken, files, refold};
use crate::command::Command;
use crate::read;
use crate::state::{self, State};
use crate::tenant::Tenant;
use crate::writer::Fatal;

/// Trimming may reach the second-newest at most, so one damaged file does no harm.
const KEPT: usize = 2;

/// The snapshots of a tenant's directory, newest first.
pub fn newest_first(dir: &Path) -> Vec<PathBuf> {
    let mut found = files::list(&dir.join("snapshots"));
    found.retain(|path| files::ends_with(path, "db"));
    found.reverse();
    found
}

/// Positions of the snapshots that are there, newest first.
pub fn positions(dir: &Path) -> Vec<Position> {
    placed(dir).into_iter().map(|(_, position)| position).collect()
}

/// The snapshots and their positions, newest first.
pub fn placed(dir: &Path) -> Vec<(PathBuf, Position)> {
    let place = |path: PathBuf| Some((path.clone(), path.file_stem()?.to_str()?.parse().ok()?));
    newest_first(dir).into_iter().filter_map(place).collect()
}

/// Whether the snapshot at `path`, read as `state`, is what its `snapshot.taken` says. Also when nothing says it, and when
/// another version took it: what was migrated dumps differently.
pub(crate) fn is_sound(dir: &Path, path: &Path, state: &State) -> bool {
    let version = |db: &Connection| db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).ok();
    let taken_with = state::read_only(path).ok().and_then(|db| version(&db));
    if taken_with != version(&state.db) {
        return true;
    }
    recorded_hash(dir, state.applied.position)
        .is_none_or(|hash| state.dump_hash().is_ok_and(|own| own == hash))
}

/// What the ledger says of the snapshot at `position`.
fn recorded_hash(dir: &Path, position: Position) -> Option<String> {
    let mut hash = None;
    let read = refold::raw_lines(dir, position + 1, |text| {
        let (line, _) = read::parse(text)?;
        for record in line.records().filter(|record| record.kind == "snapshot.taken") {
            let data: Value = serde_json::from_str(record.data.get()).unwrap_or_default();
            if data["position"] == position {
                hash = data["hash"].as_str().map(str::to_owned);
            }
        }
        Ok(hash.is_none())
    });
    read.ok().and(hash)
}

/// Takes a snapshot of the state as it is now and records it; its position.
pub fn take(tenant: &Tenant) -> Result<Position, Problem> {
    let _alone = tenant.upkeep().alone();
    let position = record_one(tenant)?;
    drop_beyond(tenant, KEPT)?;
    Ok(position)
}

/// As [`take`], for a caller that is alone already; older ones beyond `kept` go.
pub(super) fn take_keeping(tenant: &Tenant, kept: usize) -> Result<Position, Problem> {
    let position = record_one(tenant)?;
    drop_beyond(tenant, kept)?;
    Ok(position)
}

fn record_one(tenant: &Tenant) -> Result<Position, Problem> {
    let dir = super::dir_of(tenant)?;
    let (source, head) = pin(tenant, &dir.join("state.db"))?;
    let folder = dir.join("snapshots");
    files::make_dir(&folder)?;
    let path = folder.join(format!("{:020}.db", head.position));
    let aside = path.with_extension("db.new");
    let hash = source.dump_hash().map_err(broken)?;
    copy_to(&source, &aside)?;
    check(&aside, head, &hash)?;
    files::rename(&aside, &path)?;
    let taken = Record::SnapshotTaken { position: head.position, head: head.chain.to_string(), hash };
    tenant.ask_blocking(Command::Note { records: vec![taken] })?;
    Ok(head.position)
}

/// The state at a committed position, held still on a connection of its own while the writer goes on.
fn pin(tenant: &Tenant, path: &Path) -> Result<(State, Head), Problem> {
    tenant.with_writer(|writer| {
        writer.settle().map_err(|Fatal(problem)| problem)?;
        let pinned = || -> state::Result<State> {
            let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            db.execute_batch("BEGIN")?;
            // The first read fixes what is seen until the connection is closed.
            State::over(db)
        };
        Ok((pinned().map_err(broken)?, writer.state.applied))
    })
}

pub(super) fn copy_to(source: &State, path: &Path) -> Result<(), Problem> {
    files::remove(path)?;
    let made = || -> state::Result<()> {
        let mut db = Connection::open(path)?;
        state::copy(&source.db, &mut db)?;
        // One file, complete in itself.
        db.pragma_update(None, "journal_mode", "delete")?;
        db.close().map_err(|(_, error)| error)?;
        Ok(())
    };
    made().map_err(broken)?;
    files::sync_file(path)
}

/// What was written must be what was read, seen through a fresh connection.
fn check(path: &Path, head: Head, hash: &str) -> Result<(), Problem> {
    let copy = state::read_only(path).and_then(State::over).map_err(broken)?;
    if copy.applied == head && copy.dump_hash().map_err(broken)? == hash {
        return Ok(());
    }
    Err(Problem::new(Code::StorageFailed, format!("\"{}\" does not read back as written", path.display()))
        .hint("the snapshot is not used; check the disk"))
}

fn drop_beyond(tenant: &Tenant, kept: usize) -> Result<(), Problem> {
    let dir = super::dir_of(tenant)?;
    for old in newest_first(&dir).into_iter().skip(kept) {
        files::remove(&old)?;
    }
    for rest in files::list(&dir.join("snapshots")).iter().filter(|path| files::ends_with(path, "new")) {
        files::remove(rest)?;
    }
    Ok(())
}
