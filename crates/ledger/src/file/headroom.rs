//! Space kept back for what must still be written on a full disk: acks, dead letters, a snapshot before a
//! trim.
//!
//! A file `headroom` holds blocks that nobody else can take. Publishing is refused while less than that is
//! free besides; when even the rest is gone, the file is given up and its blocks serve the appends that
//! remain. It is made again once there is room for it twice.

use std::path::PathBuf;
use std::sync::Arc;

use super::segment::HEADROOM;
use crate::disk::{Access, Disk};

/// How much may be appended between two looks at the disk, and how often it may be asked: others fill it too.
const LOOK_EVERY: u64 = 1 << 20;
const ASK_EVERY: u32 = 64;

pub(crate) struct Headroom {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    bytes: u64,
    held: bool,
    full: bool,
    appended: u64,
    asked: u32,
}

impl Headroom {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, bytes: u64, held: bool) -> Headroom {
        Headroom { disk, dir, bytes, held, full: false, appended: LOOK_EVERY, asked: 0 }
    }

    pub fn appended(&mut self, bytes: u64) {
        self.appended += bytes;
    }

    pub fn is_full(&mut self) -> bool {
        self.asked += 1;
        let due = self.full || self.appended >= LOOK_EVERY || self.asked >= ASK_EVERY;
        if self.bytes > 0 && due {
            self.look();
        }
        self.full
    }

    fn look(&mut self) {
        (self.appended, self.asked) = (0, 0);
        let Ok(free) = self.disk.free_space(&self.dir) else { return };
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
        if !self.held {
            let file = self.disk.open(&self.dir.join(HEADROOM), Access::Create);
            self.held = file.and_then(|file| file.reserve(self.bytes)).is_ok();
        }
    }

    /// Frees the blocks for an append that found the disk full; whether that is worth another try.
    pub fn give_up(&mut self) -> bool {
        self.full = self.bytes > 0;
        std::mem::replace(&mut self.held, false) && self.disk.remove(&self.dir.join(HEADROOM)).is_ok()
    }
}
