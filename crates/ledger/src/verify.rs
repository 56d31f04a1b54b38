//! Checks every byte of a ledger that matters, offline or beside a running writer: lines, positions, chain,
//! bodies.
//!
//! It judges the tail by the rule of recovery, so "ok" and "opens" mean the same for the part both look at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use model::Position;
use serde::{Deserialize, Serialize};

use crate::file::segment::{self, MARKER};
use crate::file::{marker, walk};
use crate::line::peek_position;
use crate::{Bad, BodyRef, Chain, Error, Head, Line, Segment, TRIMMED, disk::Disk};

/// More are not listed; the first one is what matters.
const FINDINGS_MAX: usize = 100;

/// What `everwhen verify` says about one ledger, in its own field names.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub segments: usize,
    pub commits: u64,
    pub records: u64,
    /// The first position kept.
    pub first: Position,
    pub last: Position,
    /// The chain at `last`, in hex.
    pub head: String,
    /// How many bodies are erased.
    pub erased: u64,
    pub problems: Vec<Finding>,
    /// Of a torn tail: how many records the one line that was cut short may have held.
    #[serde(skip)]
    pub cut_records: u64,
}

impl Report {
    /// A torn tail alone is what a crash leaves: the next open mends it.
    pub fn is_ok(&self) -> bool {
        self.problems.iter().all(|finding| finding.kind == FindingKind::TornTail)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    pub file: PathBuf,
    pub offset: u64,
    pub position: Position,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    TornTail,
    Corrupt,
    Chain,
    Gap,
    Body,
}

/// Checks the whole ledger in `dir`. `progress` hears bytes done and bytes in all.
pub fn verify(disk: &dyn Disk, dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Error> {
    verify_noting(disk, dir, &Wanted::default(), progress).map(|(report, _)| report)
}

/// What is to be noted on the way.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Ends of lines.
    pub ends: BTreeSet<Position>,
    /// A kind of record.
    pub kind: &'static str,
}

/// What was found of it in sound lines.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// The chain after each line that ends at a wanted position.
    pub chains: BTreeMap<Position, Chain>,
    /// The data of each record of the wanted kind.
    pub records: Vec<String>,
    /// Where bodies are erased.
    pub erased: Vec<Position>,
}

/// As [`verify`], noting what is wanted.
pub fn verify_noting(
    disk: &dyn Disk,
    dir: &Path,
    wanted: &Wanted,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Report, Noted), Error> {
    let listing = segment::list(disk, dir)?;
    let total = listing.segments.iter().map(|segment| segment.bytes).sum();
    let mut walk = Walk::new(&listing.segments);
    walk.wanted = wanted.clone();
    let mark = listing.has(MARKER).then(|| marker::read(disk, dir)).flatten();
    walk.await_mark(mark);
    let mut done = 0;
    for segment in &listing.segments {
        walk.begin_segment(segment, &segment::path(dir, segment.first));
        let mut pieces = walk::Pieces::open(disk, &walk.path)?;
        let mut told = done;
        while let Some(piece) = pieces.next()? {
            walk.take(piece.offset, piece.bytes);
            if done + piece.offset >= told + (8 << 20) {
                told = done + piece.offset;
                progress(told, total);
            }
        }
        done += segment.bytes;
        progress(done, total);
    }
    let mut noted = std::mem::take(&mut walk.noted);
    let report = walk.finish();
    noted.chains.retain(|position, _| *position <= report.last);
    Ok((report, noted))
}

/// The place of the check.
struct Walk {
    report: Report,
    head: Chain,
    path: PathBuf,
    expected: Position,
    /// `None` behind a hole or a trim: the next line's word is taken.
    chain: Option<Chain>,
    /// An unreadable line hides how far it went: the next line's position is taken too.
    lost: bool,
    /// The chain before each segment, where it is known.
    starts: Vec<(Position, Option<Chain>)>,
    /// The first line kept, for the day its `before` is read.
    first_line: Vec<u8>,
    trimmed: Option<TrimmedData>,
    doubt: Option<Doubt>,
    /// The mark of a clean stop, and whether its head was passed.
    mark: Option<Head>,
    marked: bool,
    wanted: Wanted,
    noted: Noted,
}

/// The first bad place while nothing has shown yet that its position had been durable.
struct Doubt {
    position: Position,
    /// The report and the chain as they stood, to go back to when it was a torn tail.
    report: Report,
    head: Chain,
    finding: Finding,
    cut_records: u64,
}

#[derive(Deserialize)]
pub(crate) struct TrimmedData {
    pub first: Position,
    pub before: String,
}

impl Walk {
    fn new(segments: &[Segment]) -> Walk {
        let first = segments[0].first;
        let head = String::new();
        let (segments, last, problems) = (segments.len(), first - 1, Vec::new());
        let report = Report {
            segments,
            commits: 0,
            records: 0,
            first,
            last,
            head,
            erased: 0,
            problems,
            cut_records: 0,
        };
        Walk {
            report,
            head: Chain::ZERO,
            path: PathBuf::new(),
            expected: first,
            chain: (first == 1).then_some(Chain::ZERO),
            lost: false,
            starts: Vec::new(),
            first_line: Vec::new(),
            trimmed: None,
            doubt: None,
            mark: None,
            marked: false,
            wanted: Wanted::default(),
            noted: Noted::default(),
        }
    }

    fn await_mark(&mut self, mark: Option<Head>) {
        let start = Head { position: self.report.last, chain: Chain::ZERO };
        self.marked = mark.is_some_and(|mark| mark == start || mark.position < start.position);
        self.mark = mark;
    }

    fn begin_segment(&mut self, segment: &Segment, path: &Path) {
        // A segment is begun only when everything before it is durable.
        self.settle(segment.first - 1);
        self.path = path.to_path_buf();
        self.find_way(segment.first);
        if segment.first != self.expected {
            let message =
                format!("position {} was due, the segment begins at {}", self.expected, segment.first);
            self.find(FindingKind::Gap, 0, message);
            (self.expected, self.chain) = (segment.first, None);
        }
        self.starts.push((segment.first, self.chain));
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(doubt) = &mut self.doubt {
            doubt.cut_records = 0;
            let claimed = walk::claim(bytes, doubt.position);
            self.settle(claimed);
        }
        if let Some(first) = peek_position(bytes) {
            self.find_way(first);
        }
        match walk::judge(bytes, self.expected, self.chain) {
            Ok(line) => {
                if self.report.commits == 0 && self.doubt.is_none() {
                    self.first_line = bytes.to_vec();
                }
                self.count(&line);
                self.pass(&line);
            }
            Err(bad) => self.take_bad(offset, bytes, bad),
        }
    }

    fn find_way(&mut self, first: Position) {
        if std::mem::take(&mut self.lost) && first > self.expected {
            self.expected = first;
        }
    }

    /// Notes a bad line and goes on behind it as well as can be.
    fn take_bad(&mut self, offset: u64, bytes: &[u8], bad: Bad) {
        let kind = match bad {
            Bad::Shape { .. } => FindingKind::Corrupt,
            Bad::Position { .. } => FindingKind::Gap,
            Bad::Chain => FindingKind::Chain,
            Bad::Body { .. } => FindingKind::Body,
        };
        let position = self.expected;
        let finding = Finding { kind, file: self.path.clone(), offset, position, message: bad.to_string() };
        let foreign = walk::has_foreign_end(bytes, position, self.chain);
        if self.doubt.is_none() && self.report.problems.is_empty() && !foreign {
            let cut_records = walk::cut_records(bytes, position);
            let (report, head) = (self.report.clone(), self.head);
            self.doubt = Some(Doubt { position, report, head, finding, cut_records });
            self.settle(walk::claim(bytes, position));
        } else {
            self.push(finding);
        }
        match crate::parse(bytes) {
            Ok(line) => self.pass(&line),
            Err(_) => (self.chain, self.lost) = (None, true),
        }
    }

    /// A later line said that everything up to `claimed` was durable: then the bad place is no torn tail.
    fn settle(&mut self, claimed: Position) {
        if let Some(doubt) = self.doubt.take_if(|doubt| claimed >= doubt.position) {
            self.report.problems.insert(0, doubt.finding);
        }
    }

    fn count(&mut self, line: &Line<'_>) {
        self.report.commits += 1;
        self.report.records += line.records().len() as u64;
        self.report.last = line.last();
        self.head = line.chain;
        self.marked |= self.mark == Some(Head { position: line.last(), chain: line.chain });
        if self.wanted.ends.contains(&line.last()) {
            self.noted.chains.insert(line.last(), line.chain);
        }
        for record in line.records() {
            if record.body == Some(BodyRef::Erased) {
                self.report.erased += 1;
                self.noted.erased.push(record.position);
            }
            if record.kind == self.wanted.kind {
                self.noted.records.push(record.data.get().to_owned());
            }
            if record.kind == TRIMMED {
                self.trimmed = serde_json::from_str(record.data.get()).ok().or(self.trimmed.take());
            }
        }
    }

    fn pass(&mut self, line: &Line<'_>) {
        self.expected = line.last().saturating_add(1);
        self.chain = Some(line.chain);
    }

    fn find(&mut self, kind: FindingKind, offset: u64, message: String) {
        let (file, position) = (self.path.clone(), self.expected);
        self.push(Finding { kind, file, offset, position, message });
    }

    fn push(&mut self, finding: Finding) {
        if self.report.problems.len() < FINDINGS_MAX {
            self.report.problems.push(finding);
        }
    }

    fn finish(mut self) -> Report {
        if let Some(doubt) = self.doubt.take() {
            (self.report, self.head) = (doubt.report, doubt.head);
            self.expected = doubt.position;
            self.report.cut_records = doubt.cut_records;
            let kind = if self.mark.is_some() { doubt.finding.kind } else { FindingKind::TornTail };
            self.report.problems.push(Finding { kind, ..doubt.finding });
        }
        self.check_mark();
        self.check_start();
        self.report.head = self.head.to_string();
        self.report
    }

    /// After a clean stop the ledger holds the head that the mark names.
    fn check_mark(&mut self) {
        let Some(mark) = self.mark else { return };
        if !self.marked && self.report.problems.is_empty() {
            let message = format!("the ledger was closed at position {}", mark.position);
            self.find(FindingKind::Corrupt, 0, message);
        }
    }

    /// A ledger that does not begin at 1 must say why, and with which chain.
    fn check_start(&mut self) {
        let first = self.report.first;
        let told = self.trimmed.take().filter(|trimmed| trimmed.first >= first);
        let Some(trimmed) = told else {
            if first > 1 {
                self.find(FindingKind::Gap, 0, format!("nothing says why positions below {first} are gone"));
            }
            return;
        };
        let before = Chain::parse(&trimmed.before);
        let known = self.starts.iter().find(|start| start.0 == trimmed.first);
        let fits = match (known, before) {
            (Some((start, None)), Some(before)) if *start == first => {
                self.first_line.is_empty()
                    || crate::parse(&self.first_line).is_ok_and(|line| line.fits(before))
            }
            (Some((_, Some(chain))), before) => before == Some(*chain),
            _ => before.is_some(),
        };
        if !fits {
            let message = format!("the chain before position {} is not the recorded one", trimmed.first);
            self.find(FindingKind::Chain, 0, message);
        }
    }
}
