//! Fills files with newlines ahead of the writer, so that a sync changes no metadata and `jq` can read the
//! active file.
//!
//! ```text
//! active:   lines lines lines ⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎
//!                            │end            │filled    grows 256 KiB → 4 MiB → 64 MiB, once half is used
//! next:     ⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎⏎   renamed in at rotation; made once half of the active one is used
//! ```
//!
//! This saves time; no promise rests on it. A file that was not filled is extended by the append itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::disk::{self, Access, Disk, File};

const STEPS: [u64; 3] = [256 << 10, 4 << 20, 64 << 20];
/// Written and synced at a time: the writer's own sync waits for it, so it is little unless the writer is on its heels.
const CHUNK: u64 = 256 << 10;
const CHUNK_IN_HASTE: u64 = 1 << 20;
/// Between two chunks, so that at a steady trickle few of the writer's syncs meet one.
const REST: Duration = Duration::from_millis(8);

/// Who fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefill {
    Off,
    /// Inside the append that finds it due: deterministic, for simulations.
    Inline,
    /// A thread that lives as long as there is something to fill.
    Background,
}

/// The active file, shared by its writer and its filler. The writer owns everything below `filled`, the
/// filler what lies above; who moves the border holds the lock.
pub(crate) struct Filled {
    pub file: Arc<dyn File>,
    filled: AtomicU64,
    /// Behind the writer's last append.
    used: AtomicU64,
    border: Mutex<()>,
    sealed: AtomicBool,
    /// A sync of the filler failed: what the writer synced is in doubt too.
    pub failed: AtomicBool,
}

impl Filled {
    pub fn new(file: Arc<dyn File>, filled: u64) -> Filled {
        let (sealed, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (filled, used) = (AtomicU64::new(filled), AtomicU64::new(0));
        Filled { file, filled, used, border: Mutex::new(()), sealed, failed }
    }

    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// The writer's append.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        self.used.store(end, Ordering::Relaxed);
        if end <= self.filled() {
            return disk::write_all(self.file.as_ref(), bytes, offset);
        }
        let _border = self.border.lock().expect("nothing panics while it holds the border");
        disk::write_all(self.file.as_ref(), bytes, offset)?;
        self.filled.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Takes back a failed append: what was filled is blank again, what was not is cut off.
    pub fn take_back(&self, offset: u64, len: u64) -> io::Result<()> {
        let _border = self.border.lock().expect("nothing panics while it holds the border");
        let filled = self.filled();
        disk::blank(self.file.as_ref(), offset, filled.min(offset + len))?;
        if self.file.len()? > filled {
            self.file.set_len(filled)?;
        }
        self.file.sync_data()
    }

    /// Ends the file at `end`; the filler leaves it alone from here on.
    pub fn cut(&self, end: u64) -> io::Result<()> {
        let _border = self.border.lock().expect("nothing panics while it holds the border");
        self.sealed.store(true, Ordering::Release);
        self.file.set_len(end)?;
        self.filled.store(end, Ordering::Release);
        self.file.sync_data()
    }

    /// The filler writes through a handle of its own: a sync error is told once to each handle, and the
    /// writer must not miss one because the filler heard it first.
    fn grow(&self, own: &dyn File, target: u64, pace: &mut Pace) -> io::Result<()> {
        while self.filled() < target && pace.goes_on() {
            {
                let _border = self.border.lock().expect("nothing panics while it holds the border");
                let from = self.filled();
                if self.sealed.load(Ordering::Acquire) || from >= target {
                    return Ok(());
                }
                let to = target.min(from + pace.chunk());
                disk::blank(own, from, to)?;
                self.filled.store(to, Ordering::Release);
            }
            own.sync_data().inspect_err(|_| self.failed.store(true, Ordering::Release))?;
        }
        Ok(())
    }
}

/// How fast one round of filling goes: gently beside a writer that uses little, at full speed before one that uses much.
struct Pace {
    mode: Prefill,
    stop: Arc<AtomicBool>,
    writer: Arc<Filled>,
    /// Where the writer was at the last chunk; `None` before the first.
    seen: Option<u64>,
    in_haste: bool,
}

impl Pace {
    /// Rests unless there is haste. False when the ledger closes.
    fn goes_on(&mut self) -> bool {
        if self.seen.is_some() && !self.in_haste && self.mode == Prefill::Background {
            thread::park_timeout(REST);
        }
        let used = self.writer.used.load(Ordering::Relaxed);
        let far = self.seen.is_some_and(|seen| used.saturating_sub(seen) > CHUNK / 4);
        // A sealed file has a follower by now, which nobody fills before this round is over.
        self.in_haste = far || self.writer.sealed.load(Ordering::Acquire);
        self.seen = Some(used);
        !self.stop.load(Ordering::Acquire)
    }

    fn chunk(&self) -> u64 {
        if self.in_haste { CHUNK_IN_HASTE } else { CHUNK }
    }
}

/// The filling of one ledger: decides what is due and has it done.
pub(crate) struct Filler {
    mode: Prefill,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    thread: Option<JoinHandle<()>>,
    next_ready: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// After a failure, not tried again before the active file has grown to here.
    pause_until: Arc<AtomicU64>,
}

impl Filler {
    pub fn new(mode: Prefill, disk: Arc<dyn Disk>, dir: &Path, segment_bytes: u64) -> Filler {
        let (next_ready, stop) = (Arc::default(), Arc::default());
        let (dir, thread, pause_until) = (dir.to_path_buf(), None, Arc::default());
        Filler { mode, disk, dir, segment_bytes, thread, next_ready, stop, pause_until }
    }

    /// Has done what is due; called after every append, so the common answer is quick.
    pub fn tend(&mut self, active: &Arc<Filled>, path: &Path, end: u64) {
        let filled = active.filled();
        let wants_active = filled < self.segment_bytes && end >= filled / 2;
        let wants_next = end >= self.segment_bytes / 2 && !self.next_ready.load(Ordering::Acquire);
        let idle = self.mode != Prefill::Off && self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        if idle && (wants_active || wants_next) && end >= self.pause_until.load(Ordering::Acquire) {
            self.start(Job {
                mode: self.mode,
                disk: self.disk.clone(),
                dir: self.dir.clone(),
                active: active.clone(),
                grows: wants_active.then(|| path.to_path_buf()),
                segment_bytes: self.segment_bytes,
                next_ready: wants_next.then(|| self.next_ready.clone()),
                stop: self.stop.clone(),
                end,
                pause_until: self.pause_until.clone(),
            });
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "nothing rests on this thread: when it dies, files are not filled ahead"
    )]
    fn start(&mut self, job: Job) {
        match self.mode {
            Prefill::Off => {}
            Prefill::Inline => job.run(),
            // No thread to be had: nothing is filled, which costs time only.
            Prefill::Background => {
                self.thread = thread::Builder::new().name("prefill".into()).spawn(move || job.run()).ok();
            }
        }
    }

    /// The prepared file, if it is ready: the caller renames it, and a new one is made later.
    pub fn take_next(&mut self) -> Option<PathBuf> {
        self.next_ready.swap(false, Ordering::AcqRel).then(|| self.dir.join(super::segment::NEXT))
    }

    pub fn finish(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in the filler loses newlines only.
            let _ = thread.join();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.finish();
    }
}

/// One round of filling.
struct Job {
    mode: Prefill,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    active: Arc<Filled>,
    /// The path of the active file, if that is to be filled further.
    grows: Option<PathBuf>,
    segment_bytes: u64,
    next_ready: Option<Arc<AtomicBool>>,
    stop: Arc<AtomicBool>,
    end: u64,
    pause_until: Arc<AtomicU64>,
}

impl Job {
    fn run(self) {
        if self.fill_active().and_then(|()| self.make_next()).is_err() {
            self.pause_until.store(self.end + CHUNK_IN_HASTE, Ordering::Release);
        }
    }

    fn fill_active(&self) -> io::Result<()> {
        let Some(path) = &self.grows else { return Ok(()) };
        let filled = self.active.filled();
        let step = STEPS.into_iter().find(|step| *step > filled.max(self.end)).unwrap_or(self.segment_bytes);
        let target = step.min(self.segment_bytes).min(filled + self.most()?);
        let own = self.disk.open(path, Access::Write)?;
        self.active.grow(own.as_ref(), target, &mut self.pace())
    }

    fn make_next(&self) -> io::Result<()> {
        let Some(ready) = &self.next_ready else { return Ok(()) };
        let file = self.disk.open(&self.dir.join(super::segment::NEXT), Access::Create)?;
        let (mut at, target) = (0, self.segment_bytes.min(self.most()?));
        let mut pace = self.pace();
        while at < target {
            if !pace.goes_on() {
                return Ok(());
            }
            let to = target.min(at + pace.chunk());
            disk::blank(file.as_ref(), at, to)?;
            file.sync_data()?;
            at = to;
        }
        ready.store(true, Ordering::Release);
        Ok(())
    }

    fn pace(&self) -> Pace {
        let (stop, writer) = (self.stop.clone(), self.active.clone());
        Pace { mode: self.mode, stop, writer, seen: None, in_haste: false }
    }

    /// Never more than a sixteenth of what is free.
    fn most(&self) -> io::Result<u64> {
        Ok(self.disk.free_space(&self.dir)? / 16)
    }
}
