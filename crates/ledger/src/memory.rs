//! A ledger in memory: the same promises as the file home without a disk, and faults at will for the tests
//! above it.

use std::sync::{Arc, Mutex, MutexGuard};

use model::Position;

use crate::erase::{Erased, without_bodies};
use crate::{
    AppendError, Batch, Error, Head, Ledger, ReadEnd, Reader, Segment, Trimmed, line::peek_position, lines,
    parse,
};

/// Holds its lines behind a shared pointer, so that a "restart" can find them again: see
/// [`MemoryLedger::crash`].
pub struct MemoryLedger {
    kept: Arc<Mutex<Kept>>,
    faults: MemoryFaults,
    closed: bool,
    stopped: bool,
    /// What came before its first position, in another ledger.
    past: Option<Box<dyn Reader>>,
}

/// Which calls fail; 0 and `None` mean never.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFaults {
    /// The nth append from now is refused.
    pub refuse_append: u32,
    /// The nth sync from now fails for good.
    pub fail_sync: u32,
    /// Beyond so many bytes appends are refused as full.
    pub capacity: Option<usize>,
}

struct Kept {
    lines: Vec<Held>,
    starts: Vec<Position>,
    head: Head,
    synced: Position,
}

struct Held {
    first: Position,
    bytes: Vec<u8>,
}

impl MemoryLedger {
    pub fn new() -> MemoryLedger {
        let kept = Kept { lines: Vec::new(), starts: vec![1], head: Head::EMPTY, synced: 0 };
        MemoryLedger::over(Arc::new(Mutex::new(kept)))
    }

    /// One that goes on after `head` of another, which stays as it is.
    pub fn after(head: Head, past: Box<dyn Reader>) -> MemoryLedger {
        let starts = vec![head.position + 1];
        let kept = Kept { lines: Vec::new(), starts, head, synced: head.position };
        MemoryLedger { past: Some(past), ..MemoryLedger::over(Arc::new(Mutex::new(kept))) }
    }

    fn over(kept: Arc<Mutex<Kept>>) -> MemoryLedger {
        MemoryLedger { kept, faults: MemoryFaults::default(), closed: false, stopped: false, past: None }
    }

    pub fn set_faults(&mut self, faults: MemoryFaults) {
        self.faults = faults;
    }

    /// What the next start finds after a power cut: everything that was not synced is gone.
    pub fn crash(self) -> MemoryLedger {
        {
            let mut kept = self.kept();
            let synced = kept.synced;
            kept.lines.retain(|line| line.first <= synced);
            kept.starts.retain(|start| *start <= synced + 1);
            kept.head = kept.end();
        }
        MemoryLedger::over(self.kept)
    }

    /// What the next start finds after a stop: everything that was written.
    pub fn restart(self) -> MemoryLedger {
        MemoryLedger::over(self.kept)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while it holds the lines")
    }

    fn refusal(&mut self, batch: &Batch) -> Result<(), AppendError> {
        let head = self.kept().head;
        if self.stopped {
            return Err(AppendError::Fatal(Error::Stopped));
        }
        if self.closed {
            return Err(AppendError::Refused(Error::Closed));
        }
        if batch.base() != head {
            let (batch, ledger) = (batch.first(), head.position + 1);
            return Err(AppendError::Refused(Error::Stale { batch, ledger }));
        }
        if counts_down(&mut self.faults.refuse_append) || self.over_capacity(batch.bytes().len()) {
            return Err(AppendError::Refused(Error::Full));
        }
        Ok(())
    }

    fn over_capacity(&self, more: usize) -> bool {
        self.faults.capacity.is_some_and(|most| self.kept().bytes() + more > most)
    }
}

impl Default for MemoryLedger {
    fn default() -> MemoryLedger {
        MemoryLedger::new()
    }
}

/// Whether a call that was to fail has come.
fn counts_down(counter: &mut u32) -> bool {
    let due = *counter == 1;
    *counter = counter.saturating_sub(1);
    due
}

impl Kept {
    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.bytes.len()).sum()
    }

    fn end(&self) -> Head {
        // No line at all: a seal and a trim left the head only, and both had synced it.
        let Some(last) = self.lines.last() else {
            return if self.starts == [1] { Head::EMPTY } else { self.head };
        };
        let line = parse(&last.bytes).expect("our own line");
        Head { position: line.last(), chain: line.chain }
    }

    /// The index of the line that contains `position`.
    fn index(&self, position: Position) -> usize {
        self.lines.partition_point(|line| line.first <= position).saturating_sub(1)
    }
}

impl Ledger for MemoryLedger {
    fn head(&self) -> Head {
        self.kept().head
    }

    fn synced(&self) -> Position {
        self.kept().synced
    }

    fn first(&self) -> Position {
        self.kept().starts[0]
    }

    fn append(&mut self, batch: &Batch, sync: bool) -> Result<(), AppendError> {
        self.refusal(batch)?;
        {
            let mut kept = self.kept();
            for line in lines(batch.bytes()) {
                let first = peek_position(line).expect("our own line");
                kept.lines.push(Held { first, bytes: [line, b"\n"].concat() });
            }
            kept.head = batch.head();
        }
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), AppendError> {
        if self.stopped || counts_down(&mut self.faults.fail_sync) {
            self.stopped = true;
            return Err(AppendError::Fatal(Error::Stopped));
        }
        let mut kept = self.kept();
        kept.synced = kept.head.position;
        Ok(())
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(MemoryReader(self.kept.clone(), self.past.as_ref().map(|past| past.another())))
    }

    fn segments(&self) -> Vec<Segment> {
        let kept = self.kept();
        let size = |from: Position, to: Position| {
            let inside = kept.lines.iter().filter(|line| line.first >= from && line.first < to);
            inside.map(|line| line.bytes.len() as u64).sum()
        };
        let ends = kept.starts.iter().skip(1).copied().chain([Position::MAX]);
        kept.starts
            .iter()
            .zip(ends)
            .map(|(first, end)| Segment { first: *first, bytes: size(*first, end) })
            .collect()
    }

    fn trim(&mut self, first: Position) -> Result<Trimmed, Error> {
        let mut kept = self.kept();
        let before = kept.bytes();
        let segments = kept.starts.iter().skip(1).filter(|start| **start <= first).count();
        kept.starts.drain(..segments);
        let floor = kept.starts[0];
        kept.lines.retain(|line| line.first >= floor);
        Ok(Trimmed { first: floor, segments, bytes: (before - kept.bytes()) as u64 })
    }

    fn seal(&mut self) -> Result<(), AppendError> {
        self.sync()?;
        let mut kept = self.kept();
        let next = kept.head.position + 1;
        if kept.starts.last() != Some(&next) {
            kept.starts.push(next);
        }
        Ok(())
    }

    fn erase(&mut self, positions: &[Position]) -> Result<Erased, Error> {
        self.sync().map_err(|_| Error::Stopped)?;
        let mut kept = self.kept();
        let mut erased = Erased::default();
        for position in positions {
            let index = kept.index(*position);
            let Some(line) = kept.lines.get_mut(index) else { continue };
            if let Some(bytes) = without_bodies(&line.bytes, &[*position], &mut erased) {
                line.bytes = bytes;
            }
        }
        Ok(erased)
    }

    fn is_full(&mut self) -> bool {
        self.over_capacity(1)
    }

    fn make_room(&mut self) {}

    fn close(&mut self) -> Result<(), AppendError> {
        self.sync()?;
        self.closed = true;
        Ok(())
    }
}

struct MemoryReader(Arc<Mutex<Kept>>, Option<Box<dyn Reader>>);

impl Reader for MemoryReader {
    fn another(&self) -> Box<dyn Reader> {
        Box::new(MemoryReader(self.0.clone(), self.1.as_ref().map(|past| past.another())))
    }

    fn read(&mut self, from: Position, max_bytes: usize, out: &mut Vec<u8>) -> Result<ReadEnd, Error> {
        out.clear();
        let kept = self.0.lock().expect("nothing panics while it holds the lines");
        let first = kept.starts[0];
        if from < first {
            return match &mut self.1 {
                Some(past) => before(past.as_mut(), first, from, max_bytes, out),
                None => Err(Error::Gone { first }),
            };
        }
        if from > kept.head.position {
            return Ok(ReadEnd { next: from });
        }
        let mut next = from;
        for line in &kept.lines[kept.index(from)..] {
            if !out.is_empty() && out.len() + line.bytes.len() > max_bytes {
                break;
            }
            out.extend_from_slice(&line.bytes);
            next = parse(&line.bytes).expect("our own line").last() + 1;
        }
        Ok(ReadEnd { next })
    }
}

/// Reads the past, which may have gone on meanwhile, up to where this ledger begins.
fn before(
    past: &mut dyn Reader,
    first: Position,
    from: Position,
    max_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<ReadEnd, Error> {
    let end = past.read(from, max_bytes, out)?;
    if end.next > first {
        let ours = lines(out).take_while(|line| peek_position(line).is_some_and(|at| at < first));
        *out = ours.flat_map(|line| [line, b"\n"].concat()).collect();
    }
    Ok(ReadEnd { next: end.next.min(first) })
}
