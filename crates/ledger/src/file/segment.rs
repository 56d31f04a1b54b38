//! The files of a ledger directory: what each is called, and which are segments.

use std::io;
use std::path::{Path, PathBuf};

use model::Position;

use crate::disk::Disk;
use crate::{Error, Segment};

/// The mark of a clean stop, see `marker`.
pub(crate) const MARKER: &str = "closed";
/// Space kept back, see `headroom`.
pub(crate) const HEADROOM: &str = "headroom";
/// The next segment, filled with newlines ahead of time, see `prefill`.
pub(crate) const NEXT: &str = "next";
/// Lines about to be rewritten, see `erase`.
pub(crate) const JOURNAL: &str = "erase.journal";

/// A segment is called after its first position, in 20 digits, so that names sort as positions do.
pub(crate) fn name(first: Position) -> String {
    format!("{first:020}.jsonl")
}

pub(crate) fn path(dir: &Path, first: Position) -> PathBuf {
    dir.join(name(first))
}

fn first_of(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(".jsonl")?;
    let first = digits.parse().ok()?;
    (digits.len() == 20 && first > 0).then_some(first)
}

/// What a ledger directory holds.
pub(crate) struct Listing {
    /// In order; never empty.
    pub segments: Vec<Segment>,
    pub others: Vec<String>,
}

impl Listing {
    pub fn has(&self, name: &str) -> bool {
        self.others.iter().any(|other| other == name)
    }
}

pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing, Error> {
    let missing = || Error::Missing { dir: dir.to_path_buf() };
    let entries = disk.list(dir).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => Error::io("list", dir)(err),
    })?;
    let mut listing = Listing { segments: Vec::new(), others: Vec::new() };
    for entry in entries {
        match first_of(&entry.name) {
            Some(first) => listing.segments.push(Segment { first, bytes: entry.bytes }),
            None => listing.others.push(entry.name),
        }
    }
    if listing.segments.is_empty() {
        // A ledger is made aside and renamed in with its first segment: one without has lost it.
        let (file, what) = (dir.to_path_buf(), "there is no segment in it".to_owned());
        return Err(Error::Corrupt { file, offset: 0, position: 1, what });
    }
    listing.segments.sort_by_key(|segment| segment.first);
    Ok(listing)
}
