//! Whether memory comes in huge pages: not before there is something to do with them.
//!
//! A huge page is 2 MiB at the first touch. Under load they are worth a fifth of the publishes; an engine that only waits would
//! hold five of them, a quarter of its memory, for nothing (docs/benchmarks.md).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::disable_transparent_huge_pages;

static HELD_BACK: AtomicBool = AtomicBool::new(false);

/// For a process that is all ours: no huge pages until the first batch of several commands.
pub fn hold_back() {
    if disable_transparent_huge_pages(true).is_ok() {
        HELD_BACK.store(true, Ordering::Relaxed);
    }
}

/// There is load.
pub(crate) fn let_go() {
    // Read before it is changed: this is asked by every batch.
    if HELD_BACK.load(Ordering::Relaxed) && HELD_BACK.swap(false, Ordering::Relaxed) {
        // Without them everything is as right, and a little slower.
        let _ = disable_transparent_huge_pages(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_held_back_until_there_is_load() {
        let held = || rustix::thread::transparent_huge_pages_are_disabled().unwrap();
        hold_back();
        assert!(held());
        let_go();
        assert!(!held());
    }
}
