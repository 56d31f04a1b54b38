//! Where deleted tenants go: renamed there at once and durably, unlinked after. What a crash leaves, the next start removes.
//!
//! ```text
//! DATA/trash/<tenant>.<mark>/data    what was DATA/tenants/<tenant>
//!                           /<key>   what was DATA/keys/<tenant>, and what begins with that name and a dot
//! ```

#![expect(clippy::disallowed_methods, reason = "folders are moved and removed here")]

use std::fs;
use std::path::{Path, PathBuf};

use model::Problem;

use super::files;
use crate::engine::io_problem;

const DIR: &str = "trash";

/// Takes a tenant's folder and its keys away. When this returns it is gone, though its bytes may still be there.
pub fn take(data: &Path, name: &str, mark: &str) -> Result<(), Problem> {
    let place = data.join(DIR).join(format!("{name}.{mark}"));
    files::make_dir(&place)?;
    // The folder first: keys without a tenant are removed by the next start, a tenant without keys is lost.
    move_into(&data.join("tenants").join(name), &place.join("data"))?;
    for key in keys_of(data, name) {
        let file = place.join(key.file_name().unwrap_or_default());
        move_into(&key, &file)?;
    }
    Ok(())
}

/// A rename between two folders is durable once both are.
fn move_into(from: &Path, to: &Path) -> Result<(), Problem> {
    files::rename(from, to)?;
    files::sync_dir(from.parent().unwrap_or(Path::new(".")))
}

/// Names of tenants have no dot, so that nobody else's keys begin like this.
fn keys_of(data: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("keys")).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let own = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.split_once('.').map_or(&*file, |(before, _)| before) == name
    };
    paths.filter(own).collect()
}

/// Unlinks what was thrown away. A deletion that was cut short between folder and keys is finished.
pub fn empty(data: &Path) -> Result<(), Problem> {
    let trash = data.join(DIR);
    let Ok(entries) = fs::read_dir(&trash) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let file = entry.file_name().to_string_lossy().into_owned();
        let name = file.split_once('.').map_or(&*file, |(name, _)| name);
        if entry.path().join("data").exists() && !data.join("tenants").join(name).exists() {
            for key in keys_of(data, name) {
                move_into(&key, &entry.path().join(key.file_name().unwrap_or_default()))?;
            }
        }
    }
    fs::remove_dir_all(&trash).map_err(|error| io_problem(&trash, &error))?;
    files::sync_dir(data)
}
