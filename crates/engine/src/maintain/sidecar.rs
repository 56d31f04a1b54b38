//! What a sealed segment holds, so that finding events does not mean reading it all (R4). Disposable: built by the
//! housekeeper, passed over when missing, thrown away when it does not fit its segment.
//!
//! ```text
//! sidecars/<first, 20 digits>.idx    all numbers little-endian
//!   "everwhen.idx.1\0\0"             16 bytes
//!   first u64, last u64              the segment's positions
//!   bytes u64, chain [32]            its length and the chain at its end
//!   from i64, to i64                 earliest and latest time of an event, milliseconds, rounded outwards
//!   ids u32, subjects u32, causes u32, topics u32      how many of each follow; topics u32::MAX: too many to list
//!   ids      × (hash u64, nth u32)   of the event's id; its position is first + nth; sorted
//!   subjects × (hash u64, nth u32)   of kind, a zero byte, id; sorted
//!   causes   × (cause u64, nth u32)  sorted
//!   topics   × (length u16, text)    distinct
//!   SHA-256 of everything before     [32]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ledger::Chain;
use model::event::{Event, Subject};
use model::{Position, Problem, Timestamp};
use sha2::{Digest, Sha256};

use super::files;
use crate::deliver::lock;
use crate::read;
use crate::tenant::{Query, Tenant};

const MAGIC: &[u8; 16] = b"everwhen.idx.1\0\0";
const HEADER: usize = 16 + 8 * 3 + 32 + 8 * 2 + 4 * 4;
const ROW: u64 = 12;
/// A segment with more topics than this is not told apart by topic.
const TOPICS_MAX: usize = 512;

/// Sidecars that were checked against their segment since the tenant was opened.
#[derive(Default)]
pub struct Shelf(Mutex<BTreeMap<Position, Arc<Sidecar>>>);

/// A segment that is never appended to again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub first: Position,
    pub last: Position,
    pub bytes: u64,
}

/// What stands in a sidecar besides its tables, which stay on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    path: PathBuf,
    sealed: Sealed,
    chain: Chain,
    times: (i64, i64),
    /// How many rows each table has: ids, subjects, causes.
    rows: [u32; 3],
    topics: Option<Vec<String>>,
}

/// Where in a segment a search has to look.
#[derive(Debug, PartialEq, Eq)]
pub enum Clue {
    Nowhere,
    At(Vec<Position>),
    Everywhere,
}

/// The sealed segments, in order.
pub fn sealed(tenant: &Tenant) -> Result<Vec<Sealed>, Problem> {
    let segments = tenant.with_writer(|writer| Ok(writer.ledger.segments()))?;
    let pairs = segments.iter().zip(segments.iter().skip(1));
    Ok(pairs.map(|(own, next)| Sealed { first: own.first, last: next.first - 1, bytes: own.bytes }).collect())
}

/// Builds what is missing, newest first; how many were built.
pub fn build_missing(tenant: &Tenant) -> Result<usize, Problem> {
    let Some(dir) = tenant.dir().map(|dir| dir.join("sidecars")) else { return Ok(0) };
    let mut built = 0;
    for segment in sealed(tenant)?.into_iter().rev() {
        if tenant.is_closing() {
            break;
        }
        if find(tenant, &segment).is_none() {
            files::make_dir(&dir)?;
            files::write_small(&path_of(&dir, segment.first), &build(tenant, &segment)?)?;
            built += 1;
        }
    }
    Ok(built)
}

/// Drops the sidecars of segments that were trimmed.
pub(super) fn drop_below(tenant: &Tenant, first: Position) -> Result<(), Problem> {
    lock(&tenant.upkeep().sidecars.0).retain(|start, _| *start >= first);
    let Some(dir) = tenant.dir().map(|dir| dir.join("sidecars")) else { return Ok(()) };
    for path in files::list(&dir) {
        let start = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Position>().ok());
        if start.is_some_and(|start| start < first) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

/// The newest sidecar of a tenant's directory and the first position of its segment, which is sealed and so durable.
pub fn newest(dir: &std::path::Path) -> Option<(PathBuf, Position)> {
    let path = files::list(&dir.join("sidecars")).into_iter().rfind(|path| files::ends_with(path, "idx"))?;
    let first = path.file_stem()?.to_str()?.parse().ok()?;
    Some((path, first))
}

fn path_of(dir: &std::path::Path, first: Position) -> PathBuf {
    dir.join(format!("{first:020}.idx"))
}

/// The sidecar of a segment, if there is one and it fits.
pub fn find(tenant: &Tenant, segment: &Sealed) -> Option<Arc<Sidecar>> {
    if let Some(known) = lock(&tenant.upkeep().sidecars.0).get(&segment.first) {
        return Some(known.clone());
    }
    let path = path_of(&tenant.dir()?.join("sidecars"), segment.first);
    let sidecar = Sidecar::parse(path.clone(), &files::read_small(&path).ok()??)?;
    let head = tenant.with_reader(|reader| ledger::head_at(reader, segment.last).map_err(read::problem));
    if sidecar.sealed != *segment || head.ok()?.chain != sidecar.chain {
        return None;
    }
    let sidecar = Arc::new(sidecar);
    lock(&tenant.upkeep().sidecars.0).insert(segment.first, sidecar.clone());
    Some(sidecar)
}

fn hash(parts: &[&str]) -> u64 {
    let mut digest = Sha256::new();
    for (index, part) in parts.iter().enumerate() {
        digest.update(if index > 0 { &b"\0"[..] } else { b"" });
        digest.update(part.as_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&digest.finalize()[..8]);
    u64::from_le_bytes(first)
}

/// What is gathered while a segment is read once.
#[derive(Default)]
struct Gathered {
    tables: [Vec<(u64, u32)>; 3],
    topics: BTreeSet<String>,
    times: Option<(Timestamp, Timestamp)>,
}

impl Gathered {
    fn add(&mut self, event: &Event, first: Position) {
        let nth = (event.position - first) as u32;
        let envelope = &event.envelope;
        self.tables[0].push((hash(&[&envelope.id]), nth));
        if let Some(Subject { kind, id }) = &envelope.subject {
            self.tables[1].push((hash(&[kind, id]), nth));
        }
        if let Some(cause) = envelope.cause {
            self.tables[2].push((cause, nth));
        }
        if self.topics.len() <= TOPICS_MAX && !self.topics.contains(&envelope.topic) {
            self.topics.insert(envelope.topic.clone());
        }
        let (time, before) = (event.time(), self.times.unwrap_or((event.time(), event.time())));
        self.times = Some((before.0.min(time), before.1.max(time)));
    }
}

fn build(tenant: &Tenant, segment: &Sealed) -> Result<Vec<u8>, Problem> {
    let mut gathered = Gathered::default();
    let (mut next, mut bytes) = (segment.first, Vec::new());
    while next <= segment.last {
        let end =
            tenant.with_reader(|reader| reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem))?;
        read::events(&bytes, (next, segment.last), |event| gathered.add(&event, segment.first))?;
        next = end.next;
    }
    let head = tenant.with_reader(|reader| ledger::head_at(reader, segment.last).map_err(read::problem))?;
    gathered.tables.iter_mut().for_each(|table| table.sort_unstable());
    Ok(write(&gathered, segment, head.chain))
}

fn write(gathered: &Gathered, segment: &Sealed, chain: Chain) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for number in [segment.first, segment.last, segment.bytes] {
        out.extend(number.to_le_bytes());
    }
    out.extend(chain.0);
    // Empty when there is no event: no time lies in it.
    let (from, to) = gathered.times.map_or((1, 0), |(from, to)| (from.millis(), to.millis() + 1));
    out.extend(from.to_le_bytes());
    out.extend(to.to_le_bytes());
    for table in &gathered.tables {
        out.extend((table.len() as u32).to_le_bytes());
    }
    let listed = gathered.topics.len() <= TOPICS_MAX;
    out.extend(if listed { gathered.topics.len() as u32 } else { u32::MAX }.to_le_bytes());
    for (key, nth) in gathered.tables.iter().flatten() {
        out.extend(key.to_le_bytes());
        out.extend(nth.to_le_bytes());
    }
    for topic in gathered.topics.iter().filter(|_| listed) {
        out.extend((topic.len() as u16).to_le_bytes());
        out.extend(topic.as_bytes());
    }
    let digest = Sha256::digest(&out);
    out.extend(digest);
    out
}

/// Takes fixed-size pieces from the front.
struct Front<'a>(&'a [u8]);

impl Front<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*piece)
    }
}

impl Sidecar {
    fn parse(path: PathBuf, bytes: &[u8]) -> Option<Sidecar> {
        let (content, digest) = bytes.split_last_chunk::<32>()?;
        if Sha256::digest(content)[..] != digest[..] {
            return None;
        }
        let mut front = Front(content);
        if front.take::<16>()? != *MAGIC {
            return None;
        }
        let [first, last, bytes] = [front.take()?, front.take()?, front.take()?].map(u64::from_le_bytes);
        let chain = Chain(front.take()?);
        let [from, to] = [front.take()?, front.take()?].map(i64::from_le_bytes);
        let rows = [front.take()?, front.take()?, front.take()?].map(u32::from_le_bytes);
        let count = u32::from_le_bytes(front.take()?);
        let tables = rows.iter().map(|rows| u64::from(*rows) * ROW).sum::<u64>() as usize;
        let mut front = Front(content.get(HEADER + tables..)?);
        let mut topics = (count != u32::MAX).then(Vec::new);
        for _ in 0..topics.as_ref().map_or(0, |_| count) {
            let len = usize::from(u16::from_le_bytes(front.take()?));
            let (text, rest) = front.0.split_at_checked(len)?;
            front.0 = rest;
            topics.as_mut()?.push(std::str::from_utf8(text).ok()?.to_owned());
        }
        let sealed = Sealed { first, last, bytes };
        Some(Sidecar { path, sealed, chain, times: (from, to), rows, topics })
    }

    /// Positions whose id may be this one; `None` when the file cannot be read.
    pub fn with_id(&self, id: &str) -> Option<Vec<Position>> {
        self.look_up(0, hash(&[id]))
    }

    /// Positions whose subject may be this one.
    pub fn about(&self, subject: &Subject) -> Option<Vec<Position>> {
        self.look_up(1, hash(&[&subject.kind, &subject.id]))
    }

    /// Positions of events that name `cause` as theirs.
    pub fn caused_by(&self, cause: Position) -> Option<Vec<Position>> {
        self.look_up(2, cause)
    }

    fn look_up(&self, table: usize, key: u64) -> Option<Vec<Position>> {
        let file = files::open(&self.path).ok()?;
        let skipped: u64 = self.rows[..table].iter().map(|rows| u64::from(*rows)).sum();
        let row = |index: u64| -> Option<(u64, u32)> {
            let mut row = [0; ROW as usize];
            file.read_exact_at(&mut row, HEADER as u64 + (skipped + index) * ROW).ok()?;
            let mut front = Front(&row);
            Some((u64::from_le_bytes(front.take()?), u32::from_le_bytes(front.take()?)))
        };
        let (mut low, mut high) = (0, u64::from(self.rows[table]));
        while low < high {
            let middle = low + (high - low) / 2;
            if row(middle)?.0 < key { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        while low < u64::from(self.rows[table]) {
            match row(low)? {
                (same, nth) if same == key => found.push(self.sealed.first + u64::from(nth)),
                _ => break,
            }
            low += 1;
        }
        Some(found)
    }

    /// Where in this segment the query can find something.
    pub fn clue(&self, query: &Query) -> Clue {
        let (from, to) = self.times;
        let late = query.since.is_some_and(|since| since.millis() > to);
        let early = query.until.is_some_and(|until| until.millis() < from);
        let topics = self.topics.as_ref().zip(query.topic.as_ref());
        let off_topic = topics.is_some_and(|(topics, pattern)| !topics.iter().any(|t| pattern.receives(t)));
        if self.rows[0] == 0 || late || early || off_topic {
            return Clue::Nowhere;
        }
        match query.subject.as_ref().and_then(|subject| self.about(subject)) {
            Some(positions) if positions.is_empty() => Clue::Nowhere,
            Some(positions) => Clue::At(positions),
            None => Clue::Everywhere,
        }
    }
}
