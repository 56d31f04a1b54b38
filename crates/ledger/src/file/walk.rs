//! Walks over the lines of a segment file in order: the common ground of recovery, `verify`, `salvage` and
//! `erase`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Position;

use crate::disk::{Access, Disk, File, read_full};
use crate::line::peek_position;
use crate::{Bad, Chain, Error, Line, parse};

const CHUNK: usize = 1 << 20;

/// What stands between two newlines, blank stretches left out.
pub(crate) struct Piece<'a> {
    pub offset: u64,
    /// With its newline; only the last piece of a file can lack one.
    pub bytes: &'a [u8],
}

/// The pieces of one file, from an offset on.
pub(crate) struct Pieces {
    pub path: PathBuf,
    file: Arc<dyn File>,
    buf: Vec<u8>,
    /// Where in `buf` the next piece is looked for, and how much of `buf` is filled.
    at: usize,
    filled: usize,
    /// The file offset of `buf[0]`.
    base: u64,
    ended: bool,
}

impl Pieces {
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Pieces, Error> {
        let file = disk.open(path, Access::Read).map_err(Error::io("open", path))?;
        Ok(Pieces::of(file, path, 0))
    }

    pub fn of(file: Arc<dyn File>, path: &Path, from: u64) -> Pieces {
        let path = path.to_path_buf();
        Pieces { path, file, buf: Vec::new(), at: 0, filled: 0, base: from, ended: false }
    }

    pub fn next(&mut self) -> Result<Option<Piece<'_>>, Error> {
        while self.skip_blank() == self.filled {
            if self.ended {
                return Ok(None);
            }
            self.refill()?;
        }
        let mut searched = self.at;
        let end = loop {
            match memchr::memchr(b'\n', &self.buf[searched..self.filled]) {
                Some(len) => break searched + len + 1,
                None if self.ended => break self.filled,
                None => {
                    searched = self.filled - self.at;
                    self.refill()?;
                }
            }
        };
        let start = std::mem::replace(&mut self.at, end);
        Ok(Some(Piece { offset: self.base + start as u64, bytes: &self.buf[start..end] }))
    }

    fn skip_blank(&mut self) -> usize {
        let blank = self.buf[self.at..self.filled].iter().take_while(|b| **b == b'\n').count();
        self.at += blank;
        self.at
    }

    /// Moves what is left to the front and reads on behind it.
    fn refill(&mut self) -> Result<(), Error> {
        self.buf.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        if self.buf.len() < self.filled + CHUNK {
            self.buf.resize((self.filled + CHUNK).max(self.buf.len() * 2), 0);
        }
        let offset = self.base + self.filled as u64;
        let room = &mut self.buf[self.filled..];
        let (file, path) = (&self.file, &self.path);
        let got = read_full(file.as_ref(), room, offset).map_err(Error::io("read", path))?;
        self.ended = got < room.len();
        self.filled += got;
        Ok(())
    }
}

/// Whether a piece is the line that is due. `prev` is `None` only for the first line kept after a trim, whose
/// predecessor is gone.
pub(crate) fn judge(bytes: &[u8], expected: Position, prev: Option<Chain>) -> Result<Line<'_>, Bad> {
    let line = parse(bytes)?;
    if !bytes.ends_with(b"\n") {
        return Err(Bad::Shape { at: bytes.len() });
    }
    if line.first != expected {
        return Err(Bad::Position { expected, found: line.first });
    }
    if prev.is_some_and(|prev| !line.fits(prev)) {
        return Err(Bad::Chain);
    }
    line.bad_body().map_or(Ok(line), |position| Err(Bad::Body { position }))
}

/// Whether a piece is the line that is due but for a carriage return at its end: no crash writes that.
pub(crate) fn has_foreign_end(bytes: &[u8], expected: Position, prev: Option<Chain>) -> bool {
    let Some(line) = bytes.strip_suffix(b"\r\n") else { return false };
    judge(&[line, b"\n"].concat(), expected, prev).is_ok()
}

/// How many records a line that was cut short, or hit in one place, may have held; 0 for what is no such line.
pub(crate) fn cut_records(bytes: &[u8], due: Position) -> u64 {
    let begin = format!("{{\"p\":{due},\"t\":\"");
    let len = begin.len().min(bytes.len());
    let differing = begin.as_bytes()[..len].iter().zip(bytes).filter(|(due, found)| due != found).count();
    let records = memchr::memmem::find_iter(bytes, b"{\"k\":").count() as u64;
    if differing <= 1 { records.max(1) } else { 0 }
}

/// The highest position that a piece at or behind the first bad place, where `due` was expected, says was
/// durable.
///
/// Only a line behind `due` can know, and no line knows of itself. A newline that was hit glues two lines
/// together; the second one still counts. Text that a user wrote cannot stand for a line: it lies inside a
/// body, and the piece does not end where that text does.
pub(crate) fn claim(bytes: &[u8], due: Position) -> Position {
    // Line ends that another program rewrote do not silence a line.
    let bytes = bytes.trim_ascii_end();
    let starts = memchr::memmem::find_iter(bytes, b"{\"p\":");
    let lines = starts.filter_map(|at| parse(&bytes[at..]).ok());
    let knowing = lines.filter(|line| line.first > due && line.synced < line.first);
    knowing.map(|line| line.synced).max().unwrap_or(0)
}

/// The offset of the line that contains `position`, by halving: lines say their own positions, so no index
/// is needed. The file's first line begins at or below `position`, and `end` is behind the last line that
/// may be looked at.
pub(crate) fn locate(file: &dyn File, path: &Path, position: Position, end: u64) -> Result<u64, Error> {
    let (mut low, mut high) = (0, end);
    while high - low > PROBE as u64 {
        let middle = low + (high - low) / 2;
        // From one byte before, so that a line which starts right in the middle is seen.
        match line_after(file, path, middle - 1, (high + LOOK as u64).min(end))? {
            Some((start, first)) if first <= position && start < high => low = start,
            _ => high = middle,
        }
    }
    let bytes = read_range(file, path, low, (high + LOOK as u64).min(end))?;
    let mut found = low;
    for at in starts_in(&bytes).take_while(|at| low + (*at as u64) < high) {
        if peek_position(&bytes[at..]).is_none_or(|first| first > position) {
            break;
        }
        found = low + at as u64;
    }
    Ok(found)
}

const PROBE: usize = 16 * 1024;
/// Enough to see a line's position.
const LOOK: usize = 32;

/// The first line that starts behind `from` and shows its position before `end`.
fn line_after(file: &dyn File, path: &Path, from: u64, end: u64) -> Result<Option<(u64, Position)>, Error> {
    let mut len = PROBE as u64 / 4;
    loop {
        let bytes = read_range(file, path, from, (from + len).min(end))?;
        let newline = memchr::memchr(b'\n', &bytes);
        let start = newline.and_then(|at| Some(at + bytes[at..].iter().position(|b| *b != b'\n')?));
        if let Some(first) = start.and_then(|at| peek_position(&bytes[at..])) {
            return Ok(Some((from + start.unwrap_or(0) as u64, first)));
        }
        if from + len >= end {
            return Ok(None);
        }
        len *= 4;
    }
}

/// Where lines start in bytes that begin with one.
fn starts_in(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let after = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1);
    [0].into_iter().chain(after).filter(|at| bytes.get(*at).is_some_and(|b| *b != b'\n'))
}

fn read_range(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize];
    let len = read_full(file, &mut bytes, from).map_err(Error::io("read", path))?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Where the line before the one at `offset` starts; `None` when that is the file's first.
pub(crate) fn line_before(file: &dyn File, path: &Path, offset: u64) -> Result<Option<u64>, Error> {
    let mut len = PROBE as u64;
    loop {
        let from = offset.saturating_sub(len);
        let bytes = read_range(file, path, from, offset)?;
        let end = bytes.iter().rposition(|b| *b != b'\n').map(|at| at + 1);
        let newline = end.and_then(|end| memchr::memrchr(b'\n', &bytes[..end]));
        match (end, newline) {
            (Some(_), Some(at)) => return Ok(Some(from + at as u64 + 1)),
            (Some(_), None) if from == 0 => return Ok(Some(0)),
            (None, _) if from == 0 => return Ok(None),
            _ => len *= 4,
        }
    }
}
