//! What can go wrong with a ledger, sorted by who must act.

use std::io;
use std::path::{Path, PathBuf};

use model::Position;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    /// Reading below what is kept.
    #[error("positions below {first} are gone")]
    Gone { first: Position },

    #[error("position {position} is not in the ledger yet")]
    Beyond { position: Position },

    /// Committed data is damaged: this tenant must not open.
    #[error("\"{}\" is damaged at byte {offset}, position {position}: {what}", file.display())]
    Corrupt { file: PathBuf, offset: u64, position: Position, what: String },

    /// A line that a reader came upon does not read back.
    #[error("the line at position {position} is damaged: {what}")]
    Unreadable { position: Position, what: String },

    #[error("the disk is full")]
    Full,

    #[error("the disk is read-only")]
    ReadOnly,

    #[error("there is no ledger in \"{}\"", dir.display())]
    Missing { dir: PathBuf },

    #[error("\"{}\" exists already", dir.display())]
    Exists { dir: PathBuf },

    /// The batch was formed on another head than the ledger's: a bug of the caller.
    #[error("the batch begins at position {batch}, the ledger continues at {ledger}")]
    Stale { batch: Position, ledger: Position },

    #[error("the ledger is closed")]
    Closed,

    /// An earlier sync failed, so what is on the disk is no longer known.
    #[error("the ledger stopped after an earlier failure")]
    Stopped,

    #[error("{what} \"{}\": {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly,
            _ => Error::Io { what, path: path.to_path_buf(), source },
        }
    }
}

#[derive(Debug, Error)]
pub enum AppendError {
    /// Nothing of the batch is in the ledger, now or after a crash. The ledger goes on.
    #[error("not written: {0}")]
    Refused(Error),

    /// A failed sync, or a failed append that could not be taken back: the process must stop. What the disk
    /// holds is known again only after the next open.
    #[error("the ledger must stop: {0}")]
    Fatal(Error),
}

/// For callers that end either way.
impl From<AppendError> for Error {
    fn from(error: AppendError) -> Error {
        error.into_error()
    }
}

impl AppendError {
    pub fn into_error(self) -> Error {
        match self {
            AppendError::Refused(error) | AppendError::Fatal(error) => error,
        }
    }
}
