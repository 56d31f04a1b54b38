//! The ordered durable log of one tenant: decided records go in as commits, everything downstream reads
//! them from here.
//!
//! A commit is one line of JSON. Every byte of this drawing is fixed, and any language's standard library
//! can check it:
//!
//! ```text
//! {"p":7,"t":"2026-01-01T00:00:00Z","s":6,"r":[RECORD,…],"chain":"<64 hex>","b":[BODY,…]}⏎
//!
//! p      position of the first record; the others follow it
//! s      the last position known durable when the line was written
//! RECORD {"k":kind,"v":version,"d":engine data,"x":"<digest>"}           "x" only with a body
//! chain  SHA-256(previous chain, 32 raw bytes, zeros for the first ‖ the line before `,"chain":`)
//! BODY   {"s":"<salt, 32 hex>","p":JSON}   or   "erased"                 one per "x", in that order
//! x      SHA-256(the salt's 16 raw bytes ‖ the bytes of p as they stand)
//! ```
//!
//! Bodies stand behind the chain, so one can be erased while the line and the chain stand. No engine data
//! uses the key `chain`, and a quote inside a string is escaped, so the first `,"chain":` of a line is
//! always the real one.
//!
//! **Invariant:** nothing here knows what a record means, except `ledger.closed` (a clean end) and
//! `ledger.trimmed` (where the kept lines begin).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
mod chain;
pub mod disk;
mod erase;
mod error;
mod fault;
mod file;
mod line;
mod memory;
mod salvage;
mod verify;
mod witness;

use model::Position;

pub use batch::{Batch, LineMark, NewBody, NewRecord};
pub use chain::{Chain, Head};
pub use erase::{Erased, erase};
pub use error::{AppendError, Error};
pub use file::headroom::LEAST as HEADROOM_LEAST;
pub use file::{FileLedger, Opened, Options, Prefill, Torn};
pub use line::{Bad, BodyRef, Json, Line, RecordRef, check, lines, parse};
pub use memory::{MemoryFaults, MemoryLedger};
pub use salvage::{Salvaged, begins_after, salvage};
pub use verify::{Finding, FindingKind, Noted, Report, Wanted, verify, verify_noting};
pub use witness::{Witness, closed_at, origin};

/// The kind of the record that ends a clean stop.
pub const CLOSED: &str = "ledger.closed";
/// The kind of the record that says where the kept lines begin: `d` = `{"first":N,"before":"<64 hex>"}`.
pub const TRIMMED: &str = "ledger.trimmed";

/// One tenant's ledger, held by its single writer: the seam between one machine and many.
///
/// ```text
///   trimmed │ sealed segments │ active segment            │ nothing yet
///   ────────┼─────────────────┼───────────────┬───────────┼──────────
///        first()                           synced()    head()
/// ```
///
/// What `append` with `sync` or `sync` answered with success survives a power cut. Everything up to
/// `head()` is visible to readers, but what lies after `synced()` may be gone after a crash: always a
/// suffix of whole commits.
pub trait Ledger: Send {
    /// The end of what is written.
    fn head(&self) -> Head;

    /// The last position known durable.
    fn synced(&self) -> Position;

    /// The first position still kept: 1 unless trimmed.
    fn first(&self) -> Position;

    /// Adds a batch that was formed on `head()`. Without `sync` it is written only, and a crash may undo it.
    fn append(&mut self, batch: &Batch, sync: bool) -> Result<(), AppendError>;

    /// Makes everything written durable.
    fn sync(&mut self) -> Result<(), AppendError>;

    /// A reader of its own pace: sees what is written now and what will be. It outlives the writer.
    fn reader(&self) -> Box<dyn Reader>;

    /// Every segment in order; the last one is active.
    fn segments(&self) -> Vec<Segment>;

    /// Drops the sealed segments that lie wholly below `first`, oldest first. `ledger.trimmed` with what
    /// [`floor`] says must be durable before.
    fn trim(&mut self, first: Position) -> Result<Trimmed, Error>;

    /// Closes the active segment and begins the next. Does nothing while the active one is empty.
    fn seal(&mut self) -> Result<(), AppendError>;

    /// Replaces the bodies at these positions by `"erased"`, durably; line, chain and positions stand.
    fn erase(&mut self, positions: &[Position]) -> Result<Erased, Error>;

    /// Whether publishing must be refused for want of space. What frees space or lowers the load (acks,
    /// dead letters, a snapshot before a trim) may still append: headroom is kept back for it. Cheap enough
    /// for every batch.
    fn is_full(&mut self) -> bool;

    /// Somebody who writes beside the ledger, `state.db` above all, found the disk full: what is kept back is
    /// given up for it, and [`Ledger::is_full`] says so until there is room again.
    fn make_room(&mut self);

    /// The end of a clean stop: makes everything durable and cuts what was prefilled. The caller appended
    /// `ledger.closed` just before; nothing can be appended after.
    fn close(&mut self) -> Result<(), AppendError>;
}

/// Reads whole lines in order, from any position on.
pub trait Reader: Send {
    /// Replaces `out` by the whole lines from the one that contains `from` on: about `max_bytes` of them,
    /// at least one, or none when `from` lies behind everything written. Reading on at `next` is one read
    /// of the file.
    fn read(&mut self, from: Position, max_bytes: usize, out: &mut Vec<u8>) -> Result<ReadEnd, Error>;

    /// Another reader of the same ledger; asks nothing of the writer.
    fn another(&self) -> Box<dyn Reader>;
}

/// Where a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEnd {
    /// The position after the last line returned; `from` itself when there was none.
    pub next: Position,
}

/// A file's worth of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub first: Position,
    pub bytes: u64,
}

/// What a trim dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The first position kept now.
    pub first: Position,
    pub segments: usize,
    pub bytes: u64,
}

/// Where a trim to `first` would really cut: the head just before the first line it keeps, which is what
/// `ledger.trimmed` records. `None` when there is nothing to drop.
pub fn floor(ledger: &dyn Ledger, first: Position) -> Result<Option<Head>, Error> {
    let start = ledger.segments().iter().map(|s| s.first).take_while(|start| *start <= first).last();
    match start {
        Some(start) if start > ledger.first() => head_at(ledger.reader().as_mut(), start - 1).map(Some),
        _ => Ok(None),
    }
}

/// The head as it stood after the line that contains `position`: how to tell whether a recorded pair of
/// position and chain is in this ledger.
pub fn head_at(reader: &mut dyn Reader, position: Position) -> Result<Head, Error> {
    if position == 0 {
        return Ok(Head::EMPTY);
    }
    let mut bytes = Vec::new();
    reader.read(position, 1, &mut bytes)?;
    let line = lines(&bytes).next().ok_or(Error::Beyond { position })?;
    let line = parse(line).map_err(|bad| Error::Unreadable { position, what: bad.to_string() })?;
    Ok(Head { position: line.last(), chain: line.chain })
}
