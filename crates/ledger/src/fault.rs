//! Planted bugs for the proofs: with the feature `faults`, `EVERWHEN_FAULT` switches one on; without it
//! nothing can.

/// `skip_fsync`: a batch counts as synced without being so. It must turn every power-cut test red.
#[cfg(feature = "faults")]
pub(crate) fn skips_fsync() -> bool {
    static SKIPS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SKIPS.get_or_init(|| std::env::var("EVERWHEN_FAULT").is_ok_and(|fault| fault == "skip_fsync"))
}

#[cfg(not(feature = "faults"))]
pub(crate) fn skips_fsync() -> bool {
    false
}
