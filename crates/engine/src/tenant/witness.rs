//! Who knows how far a ledger went, besides its own lines: `state.db`, snapshots and sidecars are made of synced lines only.

use std::path::Path;

use ledger::Witness;
use ledger::disk::Disk;

use crate::maintain::{sidecar, snapshot};
use crate::state;

/// The one that has seen most. A `state.db` that was made from another ledger knows nothing of this one.
pub fn find(disk: &dyn Disk, dir: &Path) -> Option<Witness> {
    let path = dir.join("state.db");
    let state = state::peek(&path).filter(|peek| {
        let own = ledger::origin(disk, &dir.join("ledger")).map(state::short);
        peek.origin == 0 || own.is_none_or(|own| own == peek.origin)
    });
    let state = state.map(|peek| (path, peek.applied.position));
    let snapshot = snapshot::placed(dir).into_iter().next();
    let sidecar = sidecar::newest(dir);
    let most = [state, snapshot, sidecar].into_iter().flatten().max_by_key(|(_, position)| *position);
    most.map(|(path, position)| Witness { position, who: path.display().to_string() })
}
