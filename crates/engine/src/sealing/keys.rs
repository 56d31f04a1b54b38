//! The files of a tenant's space keys, beside its other key and in no backup.
//!
//! ```text
//! DATA/keys/<tenant>.spaces/<id>    {"space":"a","key":"<64 hex>"}     mode 0600
//!                                   {"space":"a","forgotten":"<instant>"}   it was destroyed: what it sealed reads as erased
//!                                   zeros                                   a crash came between the two
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Code, Problem, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Held, Seals};
use crate::maintain::files;

#[derive(Serialize, Deserialize)]
struct File {
    space: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten: Option<Timestamp>,
}

/// Where the keys of the tenant in `dir` are.
pub fn folder(dir: &Path) -> PathBuf {
    let data = dir.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    data.join("keys").join(format!("{name}.spaces"))
}

/// Every key of the tenant in `dir`.
pub fn load(dir: &Path) -> Result<Seals, Problem> {
    let mut keys = BTreeMap::new();
    for path in files::list(&folder(dir)).iter().filter(|path| path.extension().is_none()) {
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = files::read_small(path)?.unwrap_or_default();
        keys.insert(id, parse(path, &bytes)?);
    }
    Ok(Seals::new(keys))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Held, Problem> {
    if !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0) {
        return Ok(Held::Forgotten { space: String::new() });
    }
    let read = || -> Option<Held> {
        let File { space, key, forgotten } = serde_json::from_slice(bytes).ok()?;
        match (key, forgotten) {
            (Some(key), None) => Some(Held::Key { space, key: model::id::unhex(&key)? }),
            (None, Some(_)) => Some(Held::Forgotten { space }),
            _ => None,
        }
    };
    read().ok_or_else(|| {
        Problem::new(Code::StoreCorrupt, format!("\"{}\" is not a key", path.display()))
            .hint("restore it from where you keep keys: what it sealed cannot be opened without it")
    })
}

/// A new key, durable before anything is sealed with it.
pub fn make(dir: &Path, id: &str, space: &str, key: [u8; 32]) -> Result<Held, Problem> {
    let folder = folder(dir);
    files::make_private_dir(&folder)?;
    let file = File { space: space.to_owned(), key: Some(model::id::hex(&key)), forgotten: None };
    files::write_private(&folder.join(id), json!(file).to_string().as_bytes())?;
    folder.parent().map_or(Ok(()), files::sync_dir)?;
    Ok(Held::Key { space: space.to_owned(), key })
}

/// Overwrites a key where it stands, syncs that, and unlinks it; a note that it is gone takes its name.
pub fn destroy(dir: &Path, id: &str, space: &str, now: Timestamp) -> Result<Held, Problem> {
    let path = folder(dir).join(id);
    files::zero(&path)?;
    let file = File { space: space.to_owned(), key: None, forgotten: Some(now) };
    files::write_private(&path, json!(file).to_string().as_bytes())?;
    Ok(Held::Forgotten { space: space.to_owned() })
}
