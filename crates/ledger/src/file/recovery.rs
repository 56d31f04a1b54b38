//! Opens a ledger directory: tells a torn tail from damage, and makes what it read durable before anything
//! is answered.
//!
//! ```text
//!   … sealed │ good good good BAD? …
//!            └ the chain is known from here
//!
//!   The first bad place, where position p was due:
//!     a later line says s ≥ p, or the stop was clean  → corruption: do not open
//!       (clean: the mark beside the lines names a head; sound lines behind it are taken as they are)
//!     otherwise                                       → torn tail: blank it, say so
//! ```
//!
//! A witness outside the lines (`witness`) may know that more was durable than is here. Then only the one line that was
//! cut short can be a torn tail; when more than that is missing, the ledger has lost committed data.
//!
//! After an unclean stop every line above the last `s` is written again in place and synced: what was read
//! may stand in the page cache only, left there by a sync that failed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Position;

use super::{marker, parent_of, segment, walk};
use crate::disk::{self, Access, Disk, File};
use crate::witness::Witness;
use crate::{Bad, CLOSED, Chain, Error, Head, Segment, erase};

/// What opening found.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// The last record is `ledger.closed`.
    pub clean: bool,
    /// What a crash left unfinished, now blank; the caller records `ledger.truncated`.
    pub torn: Option<Torn>,
    /// Bytes that were written and synced again because they may not have been durable.
    pub rewritten: u64,
}

/// An append that a crash cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The position that was due there.
    pub position: Position,
    pub file: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// A directory made ready for its writer.
pub(crate) struct Recovered {
    pub segments: Vec<Segment>,
    pub file: Arc<dyn File>,
    pub path: PathBuf,
    /// Behind the last good line of the active segment.
    pub end: u64,
    pub head: Head,
    pub opened: Opened,
    pub marked: bool,
    pub headroom: bool,
}

/// Who says how much must be there.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    /// The directory was made durable just now, by this process.
    Made,
    Nothing,
    AtLeast(&'a Witness),
}

pub(crate) fn recover(disk: &dyn Disk, dir: &Path, known: Known<'_>) -> Result<Recovered, Error> {
    let listing = segment::list(disk, dir)?;
    if listing.has(segment::JOURNAL) {
        erase::finish(disk, dir)?;
    }
    let mark = listing.has(segment::MARKER).then(|| marker::read(disk, dir)).flatten();
    let active = *listing.segments.last().expect("a listing has a segment");
    let path = segment::path(dir, active.first);
    let file = disk.open(&path, Access::Write).map_err(Error::io("open", &path))?;
    let before = head_before(disk, dir, &listing.segments)?;
    let scanned = scan(&file, &path, active.first, (before, mark))?;
    let head = scanned.head;
    if let Known::AtLeast(witness) = known {
        scanned.satisfy(witness, &path)?;
    }
    let mut opened = Opened { clean: scanned.closed && scanned.torn.is_none(), ..Opened::default() };
    mark.map_or(Ok(()), |mark| fits_mark(&scanned, mark, &path))?;
    match mark {
        // Nothing was in flight.
        Some(mark) if mark == head => {}
        None if matches!(known, Known::Made) => {}
        _ => {
            make_durable(file.as_ref(), &path, &scanned, &mut opened)?;
            // A name may stand in the cache only, too: the active segment's, and the directory's own.
            disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
            disk.sync_dir(parent_of(dir)).map_err(Error::io("sync", dir))?;
        }
    }
    opened.torn = scanned.torn;
    let mut segments = listing.segments.clone();
    segments.last_mut().expect("a listing has a segment").bytes = scanned.end;
    let (marked, headroom) = (listing.has(segment::MARKER), listing.has(segment::HEADROOM));
    Ok(Recovered { segments, file, path, end: scanned.end, head, opened, marked, headroom })
}

/// The head before the active segment; `None` as chain when everything before it was trimmed.
struct Before {
    position: Position,
    chain: Option<Chain>,
}

fn head_before(disk: &dyn Disk, dir: &Path, segments: &[Segment]) -> Result<Before, Error> {
    let active = segments[segments.len() - 1].first;
    let Some(sealed) = segments.iter().rev().nth(1) else {
        return Ok(Before { position: active - 1, chain: (active == 1).then_some(Chain::ZERO) });
    };
    let path = segment::path(dir, sealed.first);
    let head = sealed_end(disk, &path, sealed)?;
    if head.position + 1 != active {
        let what = format!("the segment ends at position {}, the next begins at {active}", head.position);
        return Err(Error::Corrupt { file: path, offset: sealed.bytes, position: head.position + 1, what });
    }
    Ok(Before { position: head.position, chain: Some(head.chain) })
}

/// The head at the end of a sealed segment, from its last line; that line is checked against the one before
/// it.
fn sealed_end(disk: &dyn Disk, path: &Path, sealed: &Segment) -> Result<Head, Error> {
    let file = disk.open(path, Access::Read).map_err(Error::io("open", path))?;
    let last = walk::locate(file.as_ref(), path, Position::MAX, sealed.bytes)?;
    let before_last = walk::line_before(file.as_ref(), path, last)?;
    let mut pieces = walk::Pieces::of(file, path, before_last.unwrap_or(last));
    let mut end: Option<Head> = None;
    while let Some(piece) = pieces.next()? {
        let offset = piece.offset;
        let expected =
            end.map_or_else(|| crate::line::peek_position(piece.bytes), |head| Some(head.position + 1));
        let judged = expected.ok_or(Bad::Shape { at: 0 });
        let judged = judged.and_then(|due| walk::judge(piece.bytes, due, end.map(|head| head.chain)));
        let damaged = |bad: Bad| corrupt(path, offset, expected.unwrap_or(sealed.first), bad.to_string());
        let line = judged.map_err(damaged)?;
        end = Some(Head { position: line.last(), chain: line.chain });
    }
    end.ok_or_else(|| corrupt(path, 0, sealed.first, "a sealed segment without a line".into()))
}

fn corrupt(path: &Path, offset: u64, position: Position, what: String) -> Error {
    Error::Corrupt { file: path.to_path_buf(), offset, position, what }
}

/// What the lines of the active segment say.
struct Scanned {
    head: Head,
    end: u64,
    /// The `s` of the last good line.
    synced: Position,
    closed: bool,
    /// The head that the mark of a clean stop names was passed, or lies before the active segment.
    marked: bool,
    torn: Option<Torn>,
    /// How many records the line that was cut short may have held, when that one line is all that is bad.
    cut_records: u64,
}

impl Scanned {
    /// Refuses a ledger that lacks more than one cut line of what the witness saw.
    fn satisfy(&self, witness: &Witness, path: &Path) -> Result<(), Error> {
        let last = self.head.position;
        if witness.position <= last + self.cut_records {
            return Ok(());
        }
        let offset = self.torn.as_ref().map_or(self.end, |torn| torn.offset);
        Err(corrupt(path, offset, last + 1, witness.accuse(last)))
    }
}

fn scan(
    file: &Arc<dyn File>,
    path: &Path,
    first: Position,
    (before, mark): (Before, Option<Head>),
) -> Result<Scanned, Error> {
    let head = Head { position: before.position, chain: before.chain.unwrap_or(Chain::ZERO) };
    let mut found = Scanned {
        head,
        end: 0,
        synced: first - 1,
        closed: false,
        marked: mark.is_some_and(|mark| mark == head || mark.position < head.position),
        torn: None,
        cut_records: 0,
    };
    let mut prev = before.chain;
    let mut pieces = walk::Pieces::of(file.clone(), path, 0);
    while let Some(piece) = pieces.next()? {
        match walk::judge(piece.bytes, found.head.position + 1, prev) {
            Ok(line) => {
                found.head = Head { position: line.last(), chain: line.chain };
                found.end = piece.offset + piece.bytes.len() as u64;
                found.synced = line.synced;
                found.marked |= mark == Some(found.head);
                found.closed = line.records().last().is_some_and(|record| record.kind == CLOSED);
                prev = Some(line.chain);
            }
            Err(bad) => {
                let due = found.head.position + 1;
                if walk::has_foreign_end(piece.bytes, due, prev) {
                    let what = "the lines end in CR LF: another program has written to this file".into();
                    return Err(corrupt(path, piece.offset, due, what));
                }
                let claimed = walk::claim(piece.bytes, due);
                let cut_records = walk::cut_records(piece.bytes, due);
                let (offset, end) = (piece.offset, piece.offset + piece.bytes.len() as u64);
                let torn = tail(&mut pieces, &found, (offset, end, claimed), bad)?;
                if offset + torn.bytes == end {
                    found.cut_records = cut_records;
                }
                found.torn = Some(torn);
                break;
            }
        }
    }
    Ok(found)
}

/// Judges the first bad place by everything that stands behind it.
fn tail(
    pieces: &mut walk::Pieces,
    found: &Scanned,
    (offset, mut end, mut claimed): (u64, u64, Position),
    bad: Bad,
) -> Result<Torn, Error> {
    let position = found.head.position + 1;
    while let Some(piece) = pieces.next()? {
        claimed = claimed.max(walk::claim(piece.bytes, position));
        end = piece.offset + piece.bytes.len() as u64;
    }
    let file = pieces.path.clone();
    if claimed >= position {
        let what = format!("{bad}; a later line says that position {claimed} was durable");
        return Err(Error::Corrupt { file, offset, position, what });
    }
    Ok(Torn { position, file, offset, bytes: end - offset })
}

/// After a clean stop the ledger holds the head that the mark names, and nothing damaged. Sound lines behind it are somebody's
/// who knows nothing of marks: another program, or the files of a ledger that went on elsewhere.
fn fits_mark(scanned: &Scanned, mark: Head, path: &Path) -> Result<(), Error> {
    let position = scanned.head.position + 1;
    if let Some(torn) = &scanned.torn {
        return Err(corrupt(path, torn.offset, position, "damage after a clean stop".into()));
    }
    if !scanned.marked {
        let what = format!("the ledger was closed at position {}", mark.position);
        return Err(corrupt(path, scanned.end, position, what));
    }
    Ok(())
}

/// After an unclean stop: blanks a torn tail and writes again what may not have been durable.
fn make_durable(file: &dyn File, path: &Path, scanned: &Scanned, opened: &mut Opened) -> Result<(), Error> {
    if let Some(torn) = &scanned.torn {
        // From the end of the last good line on: what lies between is blank already, and the next append
        // begins there.
        disk::blank(file, scanned.end, torn.offset + torn.bytes).map_err(Error::io("blank", path))?;
    }
    if scanned.synced < scanned.head.position && scanned.end > 0 {
        let from = walk::locate(file, path, scanned.synced + 1, scanned.end)?;
        opened.rewritten = scanned.end - from;
        rewrite(file, from, scanned.end).map_err(Error::io("rewrite", path))?;
    }
    file.sync_data().map_err(Error::io("sync", path))
}

fn rewrite(file: &dyn File, from: u64, to: u64) -> std::io::Result<()> {
    let mut buf = vec![0; (to - from).min(1 << 20) as usize];
    let mut at = from;
    while at < to {
        let len = (to - at).min(buf.len() as u64) as usize;
        let got = disk::read_full(file, &mut buf[..len], at)?;
        disk::write_all(file, &buf[..got], at)?;
        at += got.max(1) as u64;
    }
    Ok(())
}
