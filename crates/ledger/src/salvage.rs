//! Copies what is sound of a damaged ledger, up to the first bad place, into a new directory; the old one
//! is not touched.
//!
//! Beside a running writer it makes a copy as of some moment: what is not whole yet is left out.

use std::path::Path;

use model::Position;

use crate::disk::{self, Access, Disk};
use crate::file::{self, segment, walk};
use crate::verify::TrimmedData;
use crate::{Chain, Error, Head, RecordRef, Segment, TRIMMED};

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    pub commits: u64,
    pub records: u64,
    pub bytes: u64,
    pub head: Head,
    /// The first position of what was saved.
    pub first: Position,
    pub first_line: Vec<u8>,
    /// What is before it when it is not 1: the chain there, from a `ledger.trimmed` that fits the first line.
    pub before: Option<Chain>,
    /// Whether that record is among what was saved, as `verify` demands.
    pub explained: bool,
    /// The time of the last line saved.
    pub time: Option<String>,
    /// Why and where it ended before the end, if it did.
    pub stopped: Option<String>,
}

/// Copies the valid prefix of `dir` to `to`, which must not exist. `progress` hears bytes done and bytes in
/// all.
pub fn salvage(
    disk: &dyn Disk,
    dir: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Salvaged, Error> {
    if disk.list(to).is_ok() {
        return Err(Error::Exists { dir: to.to_path_buf() });
    }
    let listing = segment::list(disk, dir)?;
    let total = listing.segments.iter().map(|segment| segment.bytes).sum();
    let aside = file::begin_aside(disk, to)?;
    let first = listing.segments[0].first;
    let head = Head { position: first - 1, chain: Chain::ZERO };
    let saved = Salvaged {
        commits: 0,
        records: 0,
        bytes: 0,
        head,
        first,
        first_line: Vec::new(),
        before: None,
        explained: first == 1,
        time: None,
        stopped: None,
    };
    let mut copy = Copy { saved, prev: (first == 1).then_some(Chain::ZERO) };
    for segment in &listing.segments {
        copy.segment(disk, dir, &aside, segment.first)?;
        progress(copy.saved.bytes, total);
        if copy.saved.stopped.is_some() {
            break;
        }
    }
    file::finish_aside(disk, &aside, to)?;
    if first > 1 {
        copy.saved.before = copy.find_before(disk, dir, &listing.segments)?;
    }
    Ok(copy.saved)
}

/// Whether `before` is the chain before this line: no other text has that sum.
pub fn begins_after(line: &[u8], before: Chain) -> bool {
    crate::parse(line).is_ok_and(|line| line.fits(before))
}

struct Copy {
    saved: Salvaged,
    prev: Option<Chain>,
}

impl Copy {
    /// The record that tells the start lies behind every trim, so often behind the damage, too. What was saved from before
    /// the first line is nothing: then the copy begins a chain of its own.
    fn find_before(&self, disk: &dyn Disk, dir: &Path, segments: &[Segment]) -> Result<Option<Chain>, Error> {
        if self.saved.first_line.is_empty() {
            return Ok(Some(Chain::ZERO));
        }
        let mut before = None;
        for segment in segments {
            let mut pieces = walk::Pieces::open(disk, &segment::path(dir, segment.first))?;
            while let Some(piece) = pieces.next()? {
                let Ok(line) = crate::parse(piece.bytes) else { continue };
                let told = line.records().filter_map(trimmed).filter(|told| told.first == self.saved.first);
                let fitting = |chain: &Chain| begins_after(&self.saved.first_line, *chain);
                before = told.filter_map(|told| Chain::parse(&told.before)).find(fitting).or(before);
            }
        }
        Ok(before)
    }

    fn segment(&mut self, disk: &dyn Disk, dir: &Path, aside: &Path, first: Position) -> Result<(), Error> {
        let path = segment::path(dir, first);
        if first != self.saved.head.position + 1 {
            let due = self.saved.head.position + 1;
            self.saved.stopped =
                Some(format!("position {due} was due, \"{}\" begins at {first}", path.display()));
            return Ok(());
        }
        let mut pieces = walk::Pieces::open(disk, &path)?;
        let mut out = Out::create(disk, &segment::path(aside, first))?;
        while let Some(piece) = pieces.next()? {
            match walk::judge(piece.bytes, self.saved.head.position + 1, self.prev) {
                Ok(line) => {
                    self.saved.commits += 1;
                    self.saved.records += line.records().len() as u64;
                    self.saved.bytes += piece.bytes.len() as u64;
                    self.saved.head = Head { position: line.last(), chain: line.chain };
                    self.saved.time = Some(line.time.to_owned());
                    self.prev = Some(line.chain);
                    self.saved.explained |=
                        line.records().filter_map(trimmed).any(|told| told.first >= self.saved.first);
                    if self.saved.first_line.is_empty() {
                        self.saved.first_line = piece.bytes.to_vec();
                    }
                    out.push(piece.bytes)?;
                }
                Err(bad) => {
                    let place = format!("\"{}\" at byte {}: {bad}", path.display(), piece.offset);
                    self.saved.stopped = Some(place);
                    break;
                }
            }
        }
        out.finish()
    }
}

fn trimmed(record: &RecordRef<'_>) -> Option<TrimmedData> {
    (record.kind == TRIMMED).then(|| serde_json::from_str(record.data.get()).ok())?
}

/// A file written from front to back.
struct Out {
    path: std::path::PathBuf,
    file: std::sync::Arc<dyn disk::File>,
    buf: Vec<u8>,
    written: u64,
}

impl Out {
    fn create(disk: &dyn Disk, path: &Path) -> Result<Out, Error> {
        let file = disk.open(path, Access::Create).map_err(Error::io("create", path))?;
        Ok(Out { path: path.to_path_buf(), file, buf: Vec::new(), written: 0 })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buf.extend_from_slice(bytes);
        if self.buf.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let written = disk::write_all(self.file.as_ref(), &self.buf, self.written);
        written.map_err(Error::io("write", &self.path))?;
        self.written += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), Error> {
        self.flush()?;
        self.file.sync_data().map_err(Error::io("sync", &self.path))
    }
}
