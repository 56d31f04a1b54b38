//! The file home: segments of lines in one directory, one write and one sync per batch. Stands under the
//! loop.
//!
//! ```text
//! ledger/00000000000000000001.jsonl   sealed: cut to length, never written again (but for `erase`)
//!        00000000000000000871.jsonl   active: lines, then newlines
//!        next                         the coming segment, being filled      (prefill)
//!        headroom                     blocks kept back for a full disk      (headroom)
//!        closed                       only after a clean stop               (marker)
//!        erase.journal                only while lines are rewritten        (erase)
//! ```
//!
//! **Invariant:** a segment is durable to its end, and so is its name, before the next one is begun. So
//! only the active one can have a torn tail.

pub(crate) mod headroom;
pub(crate) mod marker;
pub(crate) mod prefill;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod segment;
pub(crate) mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Position;

use crate::disk::{Access, Disk};
use crate::erase::{self, Erased};
use crate::fault;
use crate::witness::Witness;
use crate::{AppendError, Batch, Error, Head, Ledger, Reader, Segment, Trimmed};
use headroom::Headroom;
use prefill::{Filled, Filler};
use reader::{FileReader, Shared};
use recovery::Known;

pub use prefill::Prefill;
pub use recovery::{Opened, Torn};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A segment is sealed before an append would take it beyond this. A larger batch makes a larger segment.
    pub segment_bytes: u64,
    pub prefill: Prefill,
    /// The most that is kept back for a full disk; 0 = nothing, and `is_full` is never true.
    pub headroom: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { segment_bytes: 64 << 20, prefill: Prefill::Background, headroom: 4 << 20 }
    }
}

/// A ledger in a directory. The caller sees to it that there is one writer only.
pub struct FileLedger {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: Options,
    shared: Arc<Shared>,
    active: Arc<Filled>,
    path: PathBuf,
    /// Behind the last line of the active segment.
    end: u64,
    head: Head,
    synced: Position,
    filler: Filler,
    headroom: Headroom,
    /// The mark of a clean stop is still there.
    marked: bool,
    /// The last record written is `ledger.closed`.
    closes: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    Stopped,
}

impl FileLedger {
    /// Makes an empty ledger: built aside, durable, then renamed in, so that a crash leaves a whole one or
    /// none.
    pub fn create(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<FileLedger, Error> {
        if disk.list(dir).is_ok() {
            return Err(Error::Exists { dir: dir.to_path_buf() });
        }
        let aside = begin_aside(disk.as_ref(), dir)?;
        let path = segment::path(&aside, 1);
        // Empty, it has nothing to sync but its name.
        disk.open(&path, Access::Create).map_err(Error::io("create", &path))?;
        finish_aside(disk.as_ref(), &aside, dir)?;
        let found = recovery::recover(disk.as_ref(), dir, Known::Made)?;
        FileLedger::begin_on(disk, dir, options, found).map(|(ledger, _)| ledger)
    }

    /// Opens a ledger, mending what a crash left. Refuses one whose committed data is damaged.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<(FileLedger, Opened), Error> {
        let found = recovery::recover(disk.as_ref(), dir, Known::Nothing)?;
        FileLedger::begin_on(disk, dir, options, found)
    }

    /// As [`FileLedger::open`], but refuses a ledger that lacks what the witness saw.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        witness: &Witness,
    ) -> Result<(FileLedger, Opened), Error> {
        let found = recovery::recover(disk.as_ref(), dir, Known::AtLeast(witness))?;
        FileLedger::begin_on(disk, dir, options, found)
    }

    fn begin_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        found: recovery::Recovered,
    ) -> Result<(FileLedger, Opened), Error> {
        let length = found.file.len().map_err(Error::io("measure", &found.path))?;
        // What was trimmed may live on in the state, so a trimmed ledger's size says nothing of it.
        let trimmed = found.segments[0].first > 1;
        let bytes =
            if trimmed { options.headroom } else { found.segments.iter().map(|segment| segment.bytes).sum() };
        let headroom =
            Headroom::new(disk.clone(), dir.to_path_buf(), options.headroom, found.headroom, bytes);
        let ledger = FileLedger {
            shared: Arc::new(Shared::new(found.segments, found.head.position)),
            active: Arc::new(Filled::new(found.file, length.max(found.end))),
            path: found.path,
            end: found.end,
            head: found.head,
            synced: found.head.position,
            filler: Filler::new(options.prefill, disk.clone(), dir, options.segment_bytes),
            headroom,
            marked: found.marked,
            closes: found.opened.clean,
            state: State::Open,
            dir: dir.to_path_buf(),
            disk,
            options,
        };
        Ok((ledger, found.opened))
    }

    /// What must hold before anything is written.
    fn begin(&mut self) -> Result<(), AppendError> {
        match self.state {
            State::Stopped => return Err(AppendError::Fatal(Error::Stopped)),
            State::Closed => return Err(AppendError::Refused(Error::Closed)),
            State::Open => {}
        }
        if self.marked {
            let path = self.dir.join(segment::MARKER);
            self.disk.remove(&path).map_err(|err| AppendError::Refused(Error::io("remove", &path)(err)))?;
            self.sync_dir()?;
            self.marked = false;
        }
        Ok(())
    }

    fn stop(&mut self, error: Error) -> AppendError {
        self.state = State::Stopped;
        AppendError::Fatal(error)
    }

    fn sync_dir(&mut self) -> Result<(), AppendError> {
        let synced = self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir));
        synced.map_err(|error| self.stop(error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        let mut written = self.active.write(bytes, self.end).map_err(Error::io("write", &self.path));
        if matches!(written, Err(Error::Full)) && self.headroom.give_up() {
            written = self.active.write(bytes, self.end).map_err(Error::io("write", &self.path));
        }
        let Err(error) = written else { return Ok(()) };
        let blanked =
            self.active.take_back(self.end, bytes.len() as u64).map_err(Error::io("blank", &self.path));
        blanked.map_err(|error| self.stop(error))?;
        Err(AppendError::Refused(error))
    }

    fn sync_active(&mut self) -> Result<(), AppendError> {
        if !fault::planted("skip_fsync") {
            let mut synced = self.active.file.sync_data();
            if fault::planted("retry_fsync") && synced.is_err() {
                synced = self.active.file.sync_data();
            }
            let synced = synced.map_err(Error::io("sync", &self.path));
            synced.map_err(|error| self.stop(error))?;
        }
        if self.active.failed.load(Ordering::Acquire) {
            return Err(self.stop(Error::Stopped));
        }
        self.synced = self.head.position;
        Ok(())
    }

    fn publish(&self) {
        let mut published = self.shared.published();
        published.last = self.head.position;
        published.segments.last_mut().expect("there is an active segment").bytes = self.end;
    }

    fn rotate(&mut self) -> Result<(), AppendError> {
        self.sync_active()?;
        let cut = self.active.cut(self.end).map_err(Error::io("cut", &self.path));
        cut.map_err(|error| self.stop(error))?;
        let first = self.head.position + 1;
        let path = segment::path(&self.dir, first);
        let (file, filled) = self.next_file(&path).map_err(|error| match error {
            Error::Full => AppendError::Refused(Error::Full),
            // The name may be there or not, and an append to the old segment would then lie in front of it.
            error => self.stop(error),
        })?;
        self.sync_dir()?;
        self.active = Arc::new(Filled::new(file, filled));
        self.path = path;
        self.end = 0;
        self.shared.published().segments.push(Segment { first, bytes: 0 });
        Ok(())
    }

    /// The prepared file under its new name, or an empty one.
    fn next_file(&mut self, path: &Path) -> Result<(Arc<dyn crate::disk::File>, u64), Error> {
        if let Some(next) = self.filler.take_next() {
            let file = self.disk.open(&next, Access::Write).map_err(Error::io("open", &next))?;
            let filled = file.len().map_err(Error::io("measure", &next))?;
            self.disk.rename(&next, path).map_err(Error::io("rename", &next))?;
            return Ok((file, filled));
        }
        let file = self.disk.open(path, Access::Create).map_err(Error::io("create", path))?;
        Ok((file, 0))
    }

    fn drop_segment(&mut self, segment: Segment) -> Result<(), Error> {
        let path = segment::path(&self.dir, segment.first);
        // Readers learn of it first: to them a missing file is then gone, not damaged.
        self.shared.published().segments.remove(0);
        if let Err(err) = self.disk.remove(&path) {
            self.shared.published().segments.insert(0, segment);
            return Err(Error::io("remove", &path)(err));
        }
        // One by one: a crash must not leave a hole among the segments.
        self.sync_dir().map_err(AppendError::into_error)
    }
}

impl Ledger for FileLedger {
    fn head(&self) -> Head {
        self.head
    }

    fn synced(&self) -> Position {
        self.synced
    }

    fn first(&self) -> Position {
        self.shared.published().segments[0].first
    }

    fn append(&mut self, batch: &Batch, sync: bool) -> Result<(), AppendError> {
        self.begin()?;
        if batch.is_empty() {
            return if sync { self.sync() } else { Ok(()) };
        }
        if batch.base() != self.head {
            let (batch, ledger) = (batch.first(), self.head.position + 1);
            return Err(AppendError::Refused(Error::Stale { batch, ledger }));
        }
        let bytes = batch.bytes();
        if self.end > 0 && self.end + bytes.len() as u64 > self.options.segment_bytes {
            self.rotate()?;
        }
        self.write(bytes)?;
        self.head = batch.head();
        self.end += bytes.len() as u64;
        self.closes = batch.closes();
        if sync {
            self.sync_active()?;
        }
        self.publish();
        self.headroom.appended(bytes.len() as u64);
        self.filler.tend(&self.active, &self.path, self.end);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), AppendError> {
        match self.state {
            State::Stopped => Err(AppendError::Fatal(Error::Stopped)),
            _ if self.synced == self.head.position => Ok(()),
            _ => self.sync_active(),
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(FileReader::new(self.disk.clone(), self.dir.clone(), self.shared.clone()))
    }

    fn segments(&self) -> Vec<Segment> {
        self.shared.published().segments.clone()
    }

    fn trim(&mut self, first: Position) -> Result<Trimmed, Error> {
        let segments = self.segments();
        let dropped = segments.iter().skip(1).take_while(|segment| segment.first <= first).count();
        for segment in &segments[..dropped] {
            self.drop_segment(*segment)?;
        }
        let bytes = segments[..dropped].iter().map(|segment| segment.bytes).sum();
        Ok(Trimmed { first: segments[dropped].first, segments: dropped, bytes })
    }

    fn seal(&mut self) -> Result<(), AppendError> {
        self.begin()?;
        if self.end == 0 { Ok(()) } else { self.rotate() }
    }

    fn erase(&mut self, positions: &[Position]) -> Result<Erased, Error> {
        self.sync().map_err(AppendError::into_error)?;
        let plan = erase::plan(self.disk.as_ref(), &self.dir, &self.segments(), positions)?;
        let shared = self.shared.clone();
        let _whole = shared.rewriting.write().expect("nothing panics while it rewrites");
        // Half done, it is finished by the next open only.
        erase::carry_out(self.disk.as_ref(), &self.dir, plan).inspect_err(|_| self.state = State::Stopped)
    }

    fn is_full(&mut self) -> bool {
        self.headroom.is_full()
    }

    fn make_room(&mut self) {
        self.headroom.give_up();
    }

    fn close(&mut self) -> Result<(), AppendError> {
        self.begin()?;
        self.filler.finish();
        self.sync_active()?;
        let cut = self.active.cut(self.end).map_err(Error::io("cut", &self.path));
        cut.map_err(|error| self.stop(error))?;
        if self.closes {
            let marked = marker::write(self.disk.as_ref(), &self.dir, self.head);
            marked.map_err(Error::io("mark", &self.dir)).map_err(|error| self.stop(error))?;
        }
        // Left behind, it would be made anew anyway.
        let _ = self.disk.remove(&self.dir.join(segment::NEXT));
        self.state = State::Closed;
        Ok(())
    }
}

/// An empty directory beside `dir`, whatever an earlier crash left there.
pub(crate) fn begin_aside(disk: &dyn Disk, dir: &Path) -> Result<PathBuf, Error> {
    if fault::planted("create_without_rename") {
        disk.create_dir(dir).map_err(Error::io("create", dir))?;
        return Ok(dir.to_path_buf());
    }
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let aside = dir.with_file_name(name);
    match disk.list(&aside) {
        Ok(entries) => {
            for entry in entries {
                disk.remove(&aside.join(entry.name)).map_err(Error::io("remove", &aside))?;
            }
        }
        Err(_) => disk.create_dir(&aside).map_err(Error::io("create", &aside))?,
    }
    Ok(aside)
}

/// Makes what was built aside durable and gives it its name.
pub(crate) fn finish_aside(disk: &dyn Disk, aside: &Path, dir: &Path) -> Result<(), Error> {
    disk.sync_dir(aside).map_err(Error::io("sync", aside))?;
    if aside != dir {
        disk.rename(aside, dir).map_err(Error::io("rename", aside))?;
    }
    disk.sync_dir(parent_of(dir)).map_err(Error::io("sync", dir))
}

fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
