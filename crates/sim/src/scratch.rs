//! A directory of its own for one run, gone when the run is over; in memory where the machine offers that.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Scratch(PathBuf);

impl Scratch {
    /// For what needs no real disk.
    pub fn in_memory() -> std::io::Result<Scratch> {
        let shared = Path::new("/dev/shm");
        Scratch::within(if shared.is_dir() { shared } else { Path::new("/tmp") })
    }

    /// For what must lie on a disk.
    pub fn on_disk() -> std::io::Result<Scratch> {
        Scratch::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> std::io::Result<Scratch> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("everwhen-sim-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = parent.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Scratch(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
