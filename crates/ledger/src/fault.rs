//! Planted bugs for the proofs: with the feature `faults`, `EVERWHEN_FAULT` switches one on; without it
//! nothing can.
//!
//! `skip_fsync`: a batch counts as synced without being so. `retry_fsync`: a sync that failed is tried again and then
//! believed. `create_without_rename`: a new ledger is built where it stands. Each must turn crash tests red.

/// Whether `EVERWHEN_FAULT` names this bug.
#[cfg(feature = "faults")]
#[expect(clippy::disallowed_methods, reason = "read once, and only in binaries built to be broken")]
pub(crate) fn planted(bug: &str) -> bool {
    static BUG: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    BUG.get_or_init(|| std::env::var("EVERWHEN_FAULT").ok()).as_deref() == Some(bug)
}

#[cfg(not(feature = "faults"))]
pub(crate) fn planted(_bug: &str) -> bool {
    false
}
