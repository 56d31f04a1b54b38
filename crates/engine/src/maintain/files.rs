//! The few things maintenance does with whole files: copy, sync, clear away. Stands under backup, salvage and snapshots.

#![expect(clippy::disallowed_methods, reason = "maintenance copies files")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use model::{Code, Problem};

use crate::engine::{check_name, io_problem, unmakeable};

/// The tenants of a data directory, by name, each with its folder.
pub fn tenants(data: &Path) -> Result<Vec<(String, PathBuf)>, Problem> {
    let parent = data.join("tenants");
    let entries = fs::read_dir(&parent).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Problem::new(Code::StoreNotFound, format!("there is no data directory at \"{}\"", data.display()))
                .hint("`--data DIR` names another")
        }
        _ => io_problem(&parent, &error),
    })?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut tenants: Vec<_> =
        names.filter(|name| check_name(name).is_ok()).map(|name| (name.clone(), parent.join(name))).collect();
    tenants.retain(|(_, dir)| is_own_dir(dir));
    tenants.sort();
    Ok(tenants)
}

/// The files in a folder by name; none when there is no such folder.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

pub fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

/// Makes a target directory that does not exist yet or is empty.
pub fn claim(dir: &Path) -> Result<(), Problem> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::new(Code::StoreExists, format!("\"{}\" is not empty", dir.display()))
            .hint("name a directory that does not exist yet")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_dir(dir),
        Err(error) => Err(io_problem(dir, &error)),
    }
}

/// Makes a folder and those above it; their names are durable when this returns.
pub fn make_dir(dir: &Path) -> Result<(), Problem> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_dir(above)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(unmakeable(dir, &error)),
        _ => sync_dir(above),
    }
}

pub fn sync_dir(dir: &Path) -> Result<(), Problem> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(|error| io_problem(dir, &error))
}

/// Copies a file, or its first `bytes`, durably but for its name; how much it copied.
pub fn copy(from: &Path, to: &Path, bytes: Option<u64>) -> Result<u64, Problem> {
    let source = File::open(from).map_err(|error| io_problem(from, &error))?;
    let mut target = File::create(to).map_err(|error| io_problem(to, &error))?;
    let copied = io::copy(&mut source.take(bytes.unwrap_or(u64::MAX)), &mut target);
    let copied = copied.and_then(|copied| target.sync_all().map(|()| copied));
    let copied = copied.map_err(|error| io_problem(to, &error))?;
    match bytes {
        Some(bytes) if copied < bytes => Err(Problem::new(
            Code::StorageFailed,
            format!("\"{}\" ends at byte {copied}, {bytes} were due", from.display()),
        )),
        _ => Ok(copied),
    }
}

/// Copies the files of a folder, without what is below it. Nothing happens when there is no such folder.
pub fn copy_dir(from: &Path, to: &Path) -> Result<u64, Problem> {
    let files = list(from);
    if files.is_empty() {
        return Ok(0);
    }
    make_dir(to)?;
    let mut bytes = 0;
    for file in files {
        bytes += copy(&file, &to.join(file.file_name().unwrap_or_default()), None)?;
    }
    sync_dir(to)?;
    Ok(bytes)
}

/// As [`copy_dir`], for keys: nobody else may read them.
pub fn copy_keys(from: &Path, to: &Path) -> Result<u64, Problem> {
    use std::os::unix::fs::PermissionsExt;
    let bytes = copy_dir(from, to)?;
    for file in list(to) {
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&file, private).map_err(|error| io_problem(&file, &error))?;
    }
    Ok(bytes)
}

/// Writes a small file so that it is there whole or not at all, durably.
pub fn write_small(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let aside = path.with_extension("new");
    fs::write(&aside, bytes).map_err(|error| io_problem(&aside, &error))?;
    sync_file(&aside)?;
    rename(&aside, path)
}

/// Adds a line, durably. What a crash left of the one before is cut off.
pub fn append_line(path: &Path, line: &str) -> Result<(), Problem> {
    use std::io::Write;
    let new = !path.exists();
    if let Some(bytes) = read_small(path)?.filter(|bytes| bytes.last().is_some_and(|last| *last != b'\n')) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        write_small(path, &bytes[..whole])?;
    }
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    let written = opened
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| io_problem(path, &error))?;
    if new { path.parent().map_or(Ok(()), sync_dir) } else { Ok(()) }
}

/// A directory for what nobody else may read.
pub fn make_private_dir(dir: &Path) -> Result<(), Problem> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| io_problem(dir, &error))
}

/// As [`write_small`], for what nobody else may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let aside = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&aside);
    let written = opened.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| io_problem(&aside, &error))?;
    rename(&aside, path)
}

/// Overwrites a file with zeros where it stands, durably; one that is not there is fine.
pub fn zero(path: &Path) -> Result<(), Problem> {
    use std::io::Write;
    let mut file = match fs::OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|error| io_problem(path, &error))?,
    };
    let written = file.write_all(&vec![0; size(path) as usize]).and_then(|()| file.sync_all());
    written.map_err(|error| io_problem(path, &error))
}

/// The content of a small file; `None` when it is not there.
pub fn read_small(path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_problem(path, &error)),
    }
}

pub fn open(path: &Path) -> Result<File, Problem> {
    File::open(path).map_err(|error| io_problem(path, &error))
}

pub fn sync_file(path: &Path) -> Result<(), Problem> {
    open(path)?.sync_all().map_err(|error| io_problem(path, &error))
}

/// Gives a file or folder its name, durably.
pub fn rename(from: &Path, to: &Path) -> Result<(), Problem> {
    fs::rename(from, to).map_err(|error| io_problem(from, &error))?;
    sync_dir(to.parent().unwrap_or(Path::new(".")))
}

/// Removes a file, durably; one that is not there is fine.
pub fn remove(path: &Path) -> Result<(), Problem> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(path.parent().unwrap_or(Path::new("."))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_problem(path, &error)),
    }
}

/// Takes away what a failed copy left. A rest is only untidy, so nothing is said.
pub fn clear(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
}

/// How long a file is; 0 when it is not there.
pub fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// How long all files below a folder are.
pub fn size_of_all(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of_all(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Whether a folder stands there itself, not something that leads elsewhere.
pub fn is_own_dir(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir())
}

/// Whether another process, or another part of this one, holds the data directory open.
pub fn is_held(data: &Path) -> bool {
    let Ok(file) = File::open(data.join("lock")) else { return false };
    // Shared, and let go of at once: it must not keep a server from starting.
    matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
}
