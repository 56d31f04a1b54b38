//! The yardstick of every benchmark: the writes that the ledger really issued, done again by bare `write` + `fdatasync`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ledger::disk::{Access, Disk, Entry, File as DiskFile, OsDisk};

use super::measure::{Latencies, Rate};

/// Bytes written before each sync, in order.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<Tally>>);

#[derive(Default)]
struct Tally {
    open: usize,
    syncs: Vec<usize>,
}

impl Writes {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was counted so far.
    pub fn reset(&self) {
        *self.tally() = Tally::default();
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.tally().syncs.clone()
    }
}

/// The machine's disk, with the ledger's writes counted. Newlines written ahead of use are not the ledger's batches.
pub struct CountingDisk {
    pub writes: Writes,
}

struct CountingFile {
    file: Arc<dyn DiskFile>,
    writes: Writes,
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = OsDisk.open(path, access)?;
        Ok(Arc::new(CountingFile { file, writes: self.writes.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        OsDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.sync_dir(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        OsDisk.free_space(dir)
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.file.write_at(bytes, offset)?;
        if bytes.first() == Some(&b'{') {
            self.writes.tally().open += written;
        }
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        let mut tally = self.writes.tally();
        let open = std::mem::take(&mut tally.open);
        if open > 0 {
            tally.syncs.push(open);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.file.reserve(len)
    }
}

/// Replays the writes into a growing file, and into one that was filled with zeros before.
pub fn replay(dir: &Path, sizes: &[usize], events: u64) -> io::Result<(Rate, Rate)> {
    let path = dir.join("raw.tmp");
    let bytes = vec![b'x'; sizes.iter().copied().max().unwrap_or(1)];
    let growing = {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let rate = timed(sizes, events, |size, _| {
            file.write_all(&bytes[..size])?;
            file.sync_data()
        })?;
        std::fs::remove_file(&path)?;
        rate
    };
    let file = zeroed(&path, sizes.iter().map(|size| *size as u64).sum())?;
    let filled = timed(sizes, events, |size, offset| {
        file.write_all_at(&bytes[..size], offset)?;
        file.sync_data()
    })?;
    std::fs::remove_file(&path)?;
    Ok((growing, filled))
}

fn timed(
    sizes: &[usize],
    events: u64,
    mut write: impl FnMut(usize, u64) -> io::Result<()>,
) -> io::Result<Rate> {
    let mut latencies = Latencies::with_capacity(sizes.len());
    let mut offset = 0;
    let started = Instant::now();
    for size in sizes {
        let begun = Instant::now();
        write(*size, offset)?;
        latencies.add(begun.elapsed());
        offset += *size as u64;
    }
    Ok(Rate { seconds: started.elapsed(), events, latencies, fsyncs: sizes.len() as u64 })
}

fn zeroed(path: &Path, len: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    let mut left = len;
    while left > 0 {
        let some = left.min(zeros.len() as u64) as usize;
        file.write_all(&zeros[..some])?;
        left -= some as u64;
    }
    file.sync_all()?;
    Ok(file)
}
