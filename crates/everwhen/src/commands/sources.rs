//! The files of a workspace from the disk: a folder of domains, or files alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lang::declare::is_source;
use model::{Code, Problem};

/// Files that make a folder a domain.
const OF_A_DOMAIN: [&str; 6] = ["concepts", "queries", "mutations", "shapes", "logic", "automations"];

#[derive(Default)]
pub struct Sources {
    /// By the path inside the workspace, as the language knows it.
    pub files: BTreeMap<String, String>,
    /// Where each lies, as it was given.
    pub paths: BTreeMap<String, PathBuf>,
}

/// Reads everything below `paths`. Files and folders whose names begin with `.` or `_` are left out.
pub fn read(paths: &[PathBuf]) -> Result<Sources, Problem> {
    let mut sources = Sources::default();
    for path in paths {
        let found = std::fs::metadata(path).map_err(|err| unreadable(path, &err))?;
        if found.is_dir() {
            let below = if is_domain(path) { name_of(path) } else { String::new() };
            sources.folder(path, &below)?;
        } else {
            let domain =
                path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|s| OF_A_DOMAIN.contains(&s));
            let folder = path.canonicalize().ok().and_then(|path| path.parent().map(name_of));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let key = match folder.filter(|_| domain) {
                Some(folder) if !folder.is_empty() => format!("{folder}/{name}"),
                _ => name,
            };
            sources.file(path, key)?;
        }
    }
    Ok(sources)
}

impl Sources {
    fn folder(&mut self, dir: &Path, below: &str) -> Result<(), Problem> {
        let entries = std::fs::read_dir(dir).map_err(|err| unreadable(dir, &err))?;
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let key = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            if is_read(&path) {
                if path.is_dir() { self.folder(&path, &key)? } else { self.file(&path, key)? }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, key: String) -> Result<(), Problem> {
        let bytes = std::fs::read(path).map_err(|err| unreadable(path, &err))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Problem::new(Code::DefinitionInvalid, format!("\"{}\" is not UTF-8", path.display()))
        })?;
        // Two roots may hold a file of the same name.
        let key = if self.files.contains_key(&key) { path.to_string_lossy().into_owned() } else { key };
        self.paths.insert(key.clone(), path.to_owned());
        self.files.insert(key, text);
        Ok(())
    }
}

/// Whether a file or folder below a workspace is part of it.
pub fn is_read(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.is_dir() {
        !name.starts_with(['.', '_']) && name != "target" && name != "node_modules"
    } else {
        is_source(&name)
    }
}

fn is_domain(dir: &Path) -> bool {
    OF_A_DOMAIN
        .iter()
        .any(|kind| dir.join(format!("{kind}.ew")).is_file() || dir.join(format!("{kind}.memql")).is_file())
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn unreadable(path: &Path, err: &std::io::Error) -> Problem {
    let what = format!("cannot read \"{}\": {err}", path.display());
    match err.kind() {
        std::io::ErrorKind::NotFound => Problem::new(Code::NotFound, what),
        _ => Problem::new(Code::UsageInvalid, what),
    }
}
