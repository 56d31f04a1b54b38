//! Space kept back for what must still be written on a full disk: acks, dead letters, a snapshot before a
//! trim.
//!
//! A file `headroom` holds blocks that nobody else can take. Publishing is refused while less than that is
//! free besides; when even the rest is gone, the file is given up and its blocks serve the appends that
//! remain. It is made again once there is room for it twice.
//!
//! The disk is asked before every batch: segments are prefilled, so appends go on long after somebody else
//! took the last block, and `state.db` would be the first to find none.
//!
//! It is as large as what may have to be written, a snapshot above all, and that is at most about as large as the ledger: 256
//! KiB for a new tenant, doubled as the ledger grows, up to what the options say.

use std::path::PathBuf;
use std::sync::Arc;

use super::segment::HEADROOM;
use crate::disk::{Access, Disk};

/// What is kept back for a new tenant: an empty `state.db`, its log and a few lines.
pub const LEAST: u64 = 256 << 10;

pub(crate) struct Headroom {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    most: u64,
    /// How much is to be held, and how much is.
    bytes: u64,
    held: u64,
    ledger_bytes: u64,
    full: bool,
}

impl Headroom {
    /// `there`: an earlier life left a file.
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, most: u64, there: bool, ledger_bytes: u64) -> Headroom {
        let left = || disk.open(&dir.join(HEADROOM), Access::Read).and_then(|file| file.len()).unwrap_or(0);
        let held = if there { left() } else { 0 };
        Headroom { disk, dir, most, bytes: wanted(ledger_bytes, most), held, ledger_bytes, full: false }
    }

    pub fn appended(&mut self, bytes: u64) {
        self.ledger_bytes += bytes;
    }

    pub fn is_full(&mut self) -> bool {
        if self.bytes > 0 {
            self.look();
        }
        self.full
    }

    fn look(&mut self) {
        let Ok(free) = self.disk.free_space(&self.dir) else { return };
        let wanted = wanted(self.ledger_bytes, self.most);
        if wanted > self.bytes && free >= 2 * wanted {
            self.bytes = wanted;
        }
        if free < self.bytes {
            self.full = true;
        } else if free >= 2 * self.bytes {
            self.full = false;
            self.hold();
        }
        // Somebody else ate what was left beside it, `state.db` perhaps: it needs room to go on too.
        if free < self.bytes / 4 {
            self.give_up();
        }
    }

    fn hold(&mut self) {
        if self.held >= self.bytes {
            return;
        }
        let access = if self.held == 0 { Access::Create } else { Access::Write };
        let file = self.disk.open(&self.dir.join(HEADROOM), access);
        if file.and_then(|file| file.reserve(self.bytes)).is_ok() {
            self.held = self.bytes;
        }
    }

    /// Frees the blocks for somebody who found the disk full; whether that is worth another try.
    pub fn give_up(&mut self) -> bool {
        self.full = self.bytes > 0;
        std::mem::take(&mut self.held) > 0 && self.disk.remove(&self.dir.join(HEADROOM)).is_ok()
    }
}

fn wanted(ledger_bytes: u64, most: u64) -> u64 {
    ledger_bytes.next_power_of_two().max(LEAST).min(most)
}
