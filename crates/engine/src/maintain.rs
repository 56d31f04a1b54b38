//! Housekeeping beside the path of an event: snapshots, trimming, backup, erasing, verifying, finding things again.
//!
//! All of it goes on while the tenant serves. What must not meet another of its kind (a trim deletes the file that a
//! backup copies) holds [`Upkeep::alone`]; the writer is taken for moments only.

pub mod audit;
pub mod backup;
mod erase;
pub(crate) mod files;
mod forget;
pub mod housekeeper;
mod records;
mod refold;
pub mod retention;
mod salvage;
pub mod sidecar;
pub mod snapshot;
pub(crate) mod trash;
mod verify;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};

use model::{Code, Problem};
use tokio::sync::oneshot;

pub use backup::{Backed, Restored, backup, restore};
pub use records::{records, some_records};
pub use salvage::{Salvaged, salvage};
pub use verify::{Report, verify};

use crate::deliver::lock;
use crate::pool::supervise;
use crate::state::Fault;
use crate::tenant::Tenant;
use crate::writer::Fatal;

/// What a tenant keeps for its housekeeping.
#[derive(Default)]
pub struct Upkeep {
    alone: Mutex<()>,
    /// Held by whoever writes a checkpoint.
    pub(crate) checkpoints: Mutex<()>,
    pub(crate) sidecars: sidecar::Shelf,
}

impl Upkeep {
    /// Waits until no other maintenance of this tenant is under way.
    fn alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.alone)
    }

    /// As [`Upkeep::alone`], but for work that can as well be done later.
    fn alone_now(&self) -> Option<MutexGuard<'_, ()>> {
        match self.alone.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(alone)) => Some(alone.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Finishes what a crash interrupted. Once, at open, before anybody is answered.
pub(crate) fn finish(tenant: &Tenant) -> Result<(), Problem> {
    erase::finish(tenant)?;
    forget::finish(tenant)?;
    retention::finish(tenant)
}

fn broken(fault: Fault) -> Problem {
    Fatal::from(fault).0
}

fn dir_of(tenant: &Tenant) -> Result<PathBuf, Problem> {
    let nowhere = || Problem::new(Code::RequestInvalid, "this tenant lives in memory only");
    tenant.dir().cloned().ok_or_else(nowhere)
}

/// As [`aside`], with no other maintenance of the tenant beside it.
pub(crate) async fn alone<T: Send + 'static>(
    tenant: &Tenant,
    work: impl FnOnce(&Tenant) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    aside(tenant, |tenant| {
        let _alone = tenant.upkeep().alone();
        work(tenant)
    })
    .await
}

/// Runs long work on a thread of its own, so that no async worker waits for a disk.
async fn aside<T: Send + 'static>(
    tenant: &Tenant,
    work: impl FnOnce(&Tenant) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (done, result) = oneshot::channel();
    let own = tenant.clone();
    supervise("maintenance", tenant.health(), move || {
        let result = work(&own);
        // Whoever hears of it may want to close the tenant.
        drop(own);
        let _ = done.send(result);
    })?;
    result.await.unwrap_or_else(|_| Err(Problem::new(Code::TaskDied, "the maintenance task died")))
}
