//! The few things a file ledger asks of a disk. Everything it reads or writes goes through here, so that
//! the simulation can take the power away between any two of them.

mod os;
mod sim;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use os::OsDisk;
pub use sim::{Fault, SimDisk};

/// A file system. Names are durable only after `sync_dir` of the folder they stand in.
pub trait Disk: Send + Sync {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Replaces `to`, at once, if it is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The files in `dir`, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;

    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes still free for us on the disk of `dir`.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. What `write_at` and `set_len` did is durable only after `sync_data`.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file that")]
pub trait File: Send + Sync {
    /// May read less than asked; 0 means the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// May write less than asked.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    fn sync_data(&self) -> io::Result<()>;

    fn set_len(&self, len: u64) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    /// Takes the blocks of the first `len` bytes now, so that writing them later cannot find the disk full.
    fn reserve(&self, len: u64) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Also makes it, and empties one that is there.
    Create,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
    pub is_dir: bool,
}

pub(crate) fn write_all(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends; how much it got.
pub(crate) fn read_full(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(done)
}

/// Overwrites a range with newlines, which is how a ledger file says "nothing".
pub(crate) fn blank(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    static NEWLINES: [u8; 64 * 1024] = [b'\n'; 64 * 1024];
    let mut at = from;
    while at < to {
        let len = (to - at).min(NEWLINES.len() as u64);
        write_all(file, &NEWLINES[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// Writes a small file so that it is there whole or not at all, durably.
pub(crate) fn write_small(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = dir.join(format!("{name}.new"));
    let file = disk.open(&aside, Access::Create)?;
    write_all(file.as_ref(), bytes, 0)?;
    file.sync_data()?;
    disk.rename(&aside, &dir.join(name))?;
    disk.sync_dir(dir)
}

pub(crate) fn read_small(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    let len = read_full(file.as_ref(), &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}
