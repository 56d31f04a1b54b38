//! `DATA/serve.json`: how a command finds the process that holds a data directory, and how that process says so.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{Code, Problem};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// What the holder tells about itself. The token is its owner's: whoever may read the file may use the directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    pub url: String,
    pub pid: u32,
    pub token: String,
}

impl Holder {
    /// Written aside and renamed, so that a reader never sees half of it; nobody else may read it.
    pub fn write(&self, data: &Path) -> Result<(), Problem> {
        let aside = data.join(format!("serve.json.{}", self.pid));
        let write = || {
            let _ = std::fs::remove_file(&aside);
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
            file.write_all(serde_json::to_string(self)?.as_bytes())?;
            std::fs::rename(&aside, path(data))
        };
        write().map_err(|error: std::io::Error| {
            let _ = std::fs::remove_file(&aside);
            Problem::new(
                Code::StorageFailed,
                format!("\"{}\" cannot be written: {error}", path(data).display()),
            )
        })
    }

    /// `None` when nobody says anything, or nothing that can be understood.
    pub fn read(data: &Path) -> Option<Holder> {
        serde_json::from_slice(&std::fs::read(path(data)).ok()?).ok()
    }

    /// As [`Holder::read`], but only while somebody holds the lock: a killed server leaves its file behind.
    pub fn alive(data: &Path) -> Option<Holder> {
        if is_free(data) { None } else { Holder::read(data) }
    }

    /// Only for the one who holds the lock: what another process left behind is then stale.
    pub fn forget(data: &Path) {
        let _ = std::fs::remove_file(path(data));
    }
}

/// Whether nobody holds the directory's lock just now.
pub fn is_free(data: &Path) -> bool {
    match std::fs::File::open(data.join("lock")) {
        Err(_) => true,
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
    }
}

fn path(data: &Path) -> PathBuf {
    data.join("serve.json")
}

const LOCAL: &str = "ew_local_";

/// A token nobody can guess: 128 bits of the kernel's.
pub fn new_token() -> String {
    format!("{LOCAL}{}", model::id::hex(&engine::entropy::Entropy::kernel().bytes::<16>()))
}

/// Whether a token is a holder's own: it names nobody, so who shows it may say in whose name they speak.
pub fn is_local(token: &str) -> bool {
    token.starts_with(LOCAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_owner_may_read_who_holds_the_directory() {
        let data = std::env::temp_dir().join(format!("everwhen-held-{}", std::process::id()));
        std::fs::create_dir_all(&data).unwrap();
        let holder = Holder { url: "http://127.0.0.1:1".into(), pid: 7, token: new_token() };
        holder.write(&data).unwrap();
        assert_eq!(std::fs::metadata(path(&data)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Holder::read(&data), Some(holder));
        Holder::forget(&data);
        assert_eq!(Holder::read(&data), None);
        std::fs::remove_dir_all(&data).unwrap();
    }
}
