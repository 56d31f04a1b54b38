//! The mark of a clean stop: a small file `closed` beside the segments that names the head.
//!
//! Without it, a damaged last line looks like an append that a crash cut short. While it is there, nothing
//! was in flight: the ledger must hold that head, and anything missing or damaged at its end is corruption.
//! It is removed, durably, before the first write after an open, so a torn first append is not taken for
//! damage. Lines behind it that are sound and fit the chain are the ledger's, whoever wrote them.
//!
//! ```text
//! closed = {"last":<position>,"chain":"<64 hex>"}⏎
//! ```
//!
//! A marker that does not read says nothing; the ordinary rule of the tail then holds.

use std::io;
use std::path::Path;

use model::Position;
use serde::Deserialize;

use super::segment::MARKER;
use crate::disk::{self, Disk};
use crate::{Chain, Head};

#[derive(Deserialize)]
struct Text<'a> {
    last: Position,
    chain: &'a str,
}

pub(crate) fn write(disk: &dyn Disk, dir: &Path, head: Head) -> io::Result<()> {
    let text = format!("{{\"last\":{},\"chain\":\"{}\"}}\n", head.position, head.chain);
    disk::write_small(disk, dir, MARKER, text.as_bytes())
}

pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Option<Head> {
    let bytes = disk::read_small(disk, &dir.join(MARKER)).ok()?;
    let text: Text<'_> = serde_json::from_slice(&bytes).ok()?;
    Some(Head { position: text.last, chain: Chain::parse(text.chain)? })
}
