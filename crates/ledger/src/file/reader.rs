//! Reads a file ledger while its writer goes on: what followers, streams and groups stand on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use model::Position;

use crate::disk::{Access, Disk, File, read_full};
use crate::file::{segment, walk};
use crate::line::peek_position;
use crate::{Error, ReadEnd, Reader, Segment, parse};

/// What the writer tells its readers.
pub(crate) struct Shared {
    published: Mutex<Published>,
    /// Held for writing while a line is rewritten in place: a read must not see half of it.
    pub rewriting: RwLock<()>,
}

pub(crate) struct Published {
    /// In order, never empty; the last one is active and `bytes` is the end of what may be read of it.
    pub segments: Vec<Segment>,
    pub last: Position,
}

impl Shared {
    pub fn new(segments: Vec<Segment>, last: Position) -> Shared {
        Shared { published: Mutex::new(Published { segments, last }), rewriting: RwLock::new(()) }
    }

    pub fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().expect("nothing panics while it holds the list")
    }

    /// The segment that holds `from`; `None` when `from` is not written yet.
    fn segment_of(&self, from: Position) -> Result<Option<Segment>, Error> {
        let published = self.published();
        let first = published.segments[0].first;
        if from < first {
            return Err(Error::Gone { first });
        }
        let index = published.segments.partition_point(|segment| segment.first <= from) - 1;
        Ok((from <= published.last).then(|| published.segments[index]))
    }
}

pub(crate) struct FileReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shared: Arc<Shared>,
    place: Option<Place>,
}

/// Where the last read ended.
struct Place {
    segment: Position,
    path: PathBuf,
    file: Arc<dyn File>,
    next: Position,
    offset: u64,
}

impl FileReader {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, shared: Arc<Shared>) -> FileReader {
        FileReader { disk, dir, shared, place: None }
    }

    /// Stands at the line that contains `from`, with as few system calls as it takes.
    fn go_to(&mut self, from: Position, segment: Segment) -> Result<Place, Error> {
        let (path, file) = match self.place.take() {
            Some(place) if place.segment == segment.first && place.next == from => return Ok(place),
            Some(place) if place.segment == segment.first => (place.path, place.file),
            _ => self.open(segment.first)?,
        };
        let offset = match from == segment.first {
            true => 0,
            false => walk::locate(file.as_ref(), &path, from, segment.bytes)?,
        };
        Ok(Place { segment: segment.first, path, file, next: from, offset })
    }

    fn open(&self, first: Position) -> Result<(PathBuf, Arc<dyn File>), Error> {
        let path = segment::path(&self.dir, first);
        match self.disk.open(&path, Access::Read) {
            Ok(file) => Ok((path, file)),
            // A trim came in between.
            Err(_) if self.shared.published().segments[0].first > first => {
                Err(Error::Gone { first: self.shared.published().segments[0].first })
            }
            Err(err) => Err(Error::io("open", &path)(err)),
        }
    }
}

impl Reader for FileReader {
    fn another(&self) -> Box<dyn Reader> {
        Box::new(FileReader::new(self.disk.clone(), self.dir.clone(), self.shared.clone()))
    }

    fn read(&mut self, from: Position, max_bytes: usize, out: &mut Vec<u8>) -> Result<ReadEnd, Error> {
        let Some(segment) = self.shared.segment_of(from)? else {
            out.clear();
            return Ok(ReadEnd { next: from });
        };
        let mut place = self.go_to(from, segment)?;
        let following = {
            let _whole = self.shared.rewriting.read().expect("nothing panics while it rewrites");
            read_lines(&place, segment.bytes, max_bytes, out)?
        };
        place.next = match following {
            Some(position) => position,
            None => end_of(out).map_err(|what| damaged(&place, what))?,
        };
        if place.next <= from {
            // The segment ends before `from`, and the next one begins behind it.
            let what = format!("the segment ends at position {}, {from} was due", place.next - 1);
            return Err(Error::Corrupt { file: place.path, offset: segment.bytes, position: from, what });
        }
        place.offset += out.len() as u64;
        let next = place.next;
        self.place = Some(place);
        Ok(ReadEnd { next })
    }
}

fn damaged(place: &Place, what: String) -> Error {
    Error::Corrupt { file: place.path.clone(), offset: place.offset, position: place.next, what }
}

/// Fills `out` with whole lines from `place` on; a line longer than `max_bytes` comes alone. Says which position follows
/// when that was seen by the way.
fn read_lines(
    place: &Place,
    end: u64,
    max_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Position>, Error> {
    let left = end.saturating_sub(place.offset);
    let mut want = (max_bytes.max(4096) as u64).min(left);
    let mut have = 0;
    loop {
        // What a reused buffer held before is not cleared first: it is read over, and cut off.
        out.resize(want as usize, 0);
        let at = place.offset + have as u64;
        have +=
            read_full(place.file.as_ref(), &mut out[have..], at).map_err(Error::io("read", &place.path))?;
        if let Some(newline) = whole_lines(&out[..have]) {
            let end = cut(&out[..have], newline, max_bytes);
            let following = peek_position(&out[end..have]);
            out.truncate(end);
            return Ok(following);
        }
        if want >= left {
            out.truncate(have);
            return Ok(None);
        }
        want = (want * 2).min(left);
    }
}

/// The end of the last line in `bytes`, if there is a line at all.
fn whole_lines(bytes: &[u8]) -> Option<usize> {
    let end = memchr::memrchr(b'\n', bytes)? + 1;
    bytes[..end].iter().any(|b| *b != b'\n').then_some(end)
}

/// Small reads are rounded up to a page; gives back what was not asked for, down to one line.
fn cut(bytes: &[u8], end: usize, max_bytes: usize) -> usize {
    if end <= max_bytes {
        return end;
    }
    let asked = memchr::memrchr(b'\n', &bytes[..max_bytes]).map(|at| at + 1);
    asked.filter(|end| whole_lines(&bytes[..*end]).is_some()).unwrap_or_else(|| {
        let start = bytes.iter().take_while(|b| **b == b'\n').count();
        memchr::memchr(b'\n', &bytes[start..end]).map_or(end, |len| start + len + 1)
    })
}

/// The position behind the last line of `bytes`, or what is wrong with them.
fn end_of(bytes: &[u8]) -> Result<Position, String> {
    let last = last_line(bytes).ok_or("no line where one was due")?;
    Ok(parse(last).map_err(|bad| bad.to_string())?.last() + 1)
}

fn last_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().rposition(|b| *b != b'\n')? + 1;
    let start = memchr::memrchr(b'\n', &bytes[..end]).map_or(0, |at| at + 1);
    Some(&bytes[start..end])
}
