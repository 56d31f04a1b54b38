//! Reads a ledger's files with nothing of the engine in between: what really stands there, for the oracle to judge.

use std::path::Path;

use engine::apply::{Place, apply};
use engine::state::State;
use ledger::disk::{Access, Disk};
use ledger::{BodyRef, Head};
use model::record::{At, Record};
use model::{Position, Timestamp};

/// One record as it stands.
pub struct Found {
    pub position: Position,
    pub time: Timestamp,
    pub record: Record,
    /// The end of the line it stands in.
    pub head: Head,
}

/// Verifies the ledger in `dir` and reads all its records. Anything but a sound ledger is an error.
pub fn scan(disk: &dyn Disk, dir: &Path) -> Result<Vec<Found>, String> {
    let report = verify(disk, dir)?;
    match report.problems.first() {
        Some(finding) => Err(format!("verify found {finding:?}")),
        None => read_all(disk, dir, report.last),
    }
}

/// As [`scan`], of a ledger that nobody has opened since it crashed: its tail may be torn.
pub fn scan_crashed(disk: &dyn Disk, dir: &Path) -> Result<Vec<Found>, String> {
    let report = verify(disk, dir)?;
    match report.is_ok() {
        false => Err(format!("verify found {:?}", report.problems)),
        true => read_all(disk, dir, report.last),
    }
}

fn verify(disk: &dyn Disk, dir: &Path) -> Result<ledger::Report, String> {
    ledger::verify(disk, dir, &mut |_, _| ()).map_err(|error| format!("verify: {error}"))
}

/// Every record up to and with `last`; what lies behind it is a torn tail.
fn read_all(disk: &dyn Disk, dir: &Path, last: Position) -> Result<Vec<Found>, String> {
    let mut names: Vec<String> = disk.list(dir).map_err(text)?.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name.ends_with(".jsonl"));
    names.sort();
    let mut found = Vec::new();
    for name in names {
        take_file(&read(disk, &dir.join(name))?, last, &mut found)?;
    }
    check_gapless(&found)?;
    Ok(found)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, String> {
    let file = disk.open(path, Access::Read).map_err(text)?;
    let mut bytes = vec![0; file.len().map_err(text)? as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64).map_err(text)? {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn take_file(bytes: &[u8], last: Position, found: &mut Vec<Found>) -> Result<(), String> {
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if found.last().is_some_and(|one| one.position == last) || last == 0 {
            return Ok(());
        }
        let line = ledger::parse(line).map_err(text)?;
        let time = Timestamp::parse(line.time).map_err(text)?;
        let head = Head { position: line.last(), chain: line.chain };
        for record in line.records() {
            let body = match &record.body {
                Some(BodyRef::Json(json)) => Some(json.get()),
                Some(BodyRef::Erased) | None => None,
            };
            let (position, data) = (record.position, record.data.get());
            let at =
                At { position, recorded_at: time, kind: record.kind, version: record.version, data, body };
            let record = Record::decode(at).map_err(|error| format!("position {position}: {error:?}"))?;
            found.push(Found { position, time, record, head });
        }
    }
    Ok(())
}

fn check_gapless(found: &[Found]) -> Result<(), String> {
    for pair in found.windows(2) {
        if pair[1].position != pair[0].position + 1 {
            return Err(format!("a gap: position {} follows {}", pair[1].position, pair[0].position));
        }
    }
    Ok(())
}

/// Folds what `state` does not know yet, up to and with `through`.
pub fn fold(state: &mut State, found: &[Found], through: Position) -> Result<(), String> {
    let from = state.applied.position;
    let news = |one: &&Found| one.position > from && one.position <= through;
    if !found.iter().any(|one| news(&one)) {
        return Ok(());
    }
    state.begin().map_err(text)?;
    for one in found.iter().filter(news) {
        apply(state, Place { position: one.position, time: one.time }, &one.record).map_err(text)?;
        state.applied = one.head;
    }
    state.commit().map_err(text)
}

/// The canonical text of a state.
pub fn dump(state: &State) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    state.dump(|line| lines.push(line.to_owned())).map_err(text)?;
    Ok(lines)
}
