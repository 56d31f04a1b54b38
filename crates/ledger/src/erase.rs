//! Takes user data out of lines that stay: the body becomes `"erased"`, the chain in front of it is not
//! touched.
//!
//! A line is rewritten in its place, made up with spaces to its old length. A crash in the middle would
//! leave it torn, so the new lines are first made durable in a journal, which the next open carries out:
//!
//! ```text
//! erase.journal = {"file":"<segment>","offset":<byte>}⏎ the new line⏎ …     there whole or not at all
//! ```

use std::path::Path;

use model::Position;
use serde::{Deserialize, Serialize};

use crate::disk::{self, Access, Disk};
use crate::file::segment::{self, JOURNAL};
use crate::file::walk::{self, Pieces};
use crate::{BodyRef, Error, RecordRef, Segment, lines, parse};

/// What an erasure did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    pub erased: u64,
    /// Were erased before.
    pub already: u64,
    /// Have no body, or are not in the ledger.
    pub absent: Vec<Position>,
}

/// Lines to be rewritten.
pub(crate) struct Plan {
    edits: Vec<Edit>,
    erased: Erased,
}

struct Edit {
    at: Place,
    line: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Place {
    file: String,
    offset: u64,
}

/// Erases bodies of a ledger that nobody has open.
pub fn erase(disk: &dyn Disk, dir: &Path, positions: &[Position]) -> Result<Erased, Error> {
    let listing = segment::list(disk, dir)?;
    if listing.has(JOURNAL) {
        finish(disk, dir)?;
    }
    let plan = plan(disk, dir, &listing.segments, positions)?;
    carry_out(disk, dir, plan)
}

pub(crate) fn plan(
    disk: &dyn Disk,
    dir: &Path,
    segments: &[Segment],
    positions: &[Position],
) -> Result<Plan, Error> {
    let mut positions = positions.to_vec();
    positions.sort_unstable();
    positions.dedup();
    let mut plan = Plan { edits: Vec::new(), erased: Erased::default() };
    let mut rest = &positions[..];
    while let Some(position) = rest.first() {
        let taken = match segments.iter().rfind(|segment| segment.first <= *position) {
            Some(segment) => plan_line(disk, dir, segment, rest, &mut plan)?,
            None => 0,
        };
        if taken == 0 {
            plan.erased.absent.push(*position);
        }
        rest = &rest[taken.max(1)..];
    }
    Ok(plan)
}

/// Plans the line that holds the first of these positions; how many of them it holds.
fn plan_line(
    disk: &dyn Disk,
    dir: &Path,
    segment: &Segment,
    positions: &[Position],
    plan: &mut Plan,
) -> Result<usize, Error> {
    let path = segment::path(dir, segment.first);
    let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
    let offset = walk::locate(file.as_ref(), &path, positions[0], segment.bytes)?;
    let mut pieces = Pieces::of(file, &path, offset);
    let Some(piece) = pieces.next()? else { return Ok(0) };
    let Ok(line) = parse(piece.bytes) else { return Ok(0) };
    let inside = positions.iter().take_while(|p| (line.first..=line.last()).contains(p)).count();
    if let Some(line) = without_bodies(piece.bytes, &positions[..inside], &mut plan.erased) {
        let at = Place { file: segment::name(segment.first), offset: piece.offset };
        plan.edits.push(Edit { at, line });
    }
    Ok(inside)
}

/// The line without the bodies at these positions, as long as before; `None` when that changes nothing.
pub(crate) fn without_bodies(bytes: &[u8], positions: &[Position], erased: &mut Erased) -> Option<Vec<u8>> {
    let line = parse(bytes).ok()?;
    let before = erased.erased;
    let mut out = bytes[..line.len_before_bodies()].to_vec();
    for record in line.records() {
        let chosen = positions.contains(&record.position);
        match record.body {
            None if chosen => erased.absent.push(record.position),
            None => {}
            Some(BodyRef::Erased) => {
                erased.already += u64::from(chosen);
                push_body(&mut out, "\"erased\"");
            }
            Some(_) if chosen => {
                erased.erased += 1;
                push_body(&mut out, "\"erased\"");
            }
            Some(BodyRef::Json(_)) => push_body(&mut out, &body_text(record)),
        }
    }
    out.extend_from_slice(b"]}");
    out.resize(bytes.len() - 1, b' ');
    out.push(b'\n');
    (erased.erased > before).then_some(out)
}

fn push_body(out: &mut Vec<u8>, text: &str) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
    out.extend_from_slice(text.as_bytes());
}

fn body_text(record: &RecordRef<'_>) -> String {
    let (Some(salt), Some(BodyRef::Json(json))) = (record.salt, record.body) else { return String::new() };
    format!("{{\"s\":\"{salt}\",\"p\":{}}}", json.get())
}

/// Writes the journal, then the lines.
pub(crate) fn carry_out(disk: &dyn Disk, dir: &Path, plan: Plan) -> Result<Erased, Error> {
    if plan.edits.is_empty() {
        return Ok(plan.erased);
    }
    let mut journal = Vec::new();
    for edit in &plan.edits {
        let place = serde_json::to_vec(&edit.at).expect("a name and a number are JSON");
        journal.extend([&place[..], b"\n", &edit.line].concat());
    }
    disk::write_small(disk, dir, JOURNAL, &journal).map_err(Error::io("write", &dir.join(JOURNAL)))?;
    finish(disk, dir)?;
    Ok(plan.erased)
}

/// Does what the journal says and removes it. Doing it twice is doing it once.
pub(crate) fn finish(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let path = dir.join(JOURNAL);
    let journal = disk::read_small(disk, &path).map_err(Error::io("read", &path))?;
    let mut pieces = lines(&journal);
    while let (Some(place), Some(line)) = (pieces.next(), pieces.next()) {
        let place: Place = serde_json::from_slice(place).map_err(|err| damaged(&path, err.to_string()))?;
        let line = parse(line).map(|_| line).map_err(|bad| damaged(&path, bad.to_string()))?;
        let target = dir.join(&place.file);
        let file = disk.open(&target, Access::Write).map_err(Error::io("open", &target))?;
        disk::write_all(file.as_ref(), line, place.offset).map_err(Error::io("write", &target))?;
        file.sync_data().map_err(Error::io("sync", &target))?;
    }
    disk.remove(&path).map_err(Error::io("remove", &path))?;
    disk.sync_dir(dir).map_err(Error::io("sync", dir))
}

fn damaged(path: &Path, what: String) -> Error {
    Error::Corrupt { file: path.to_path_buf(), offset: 0, position: 0, what }
}
