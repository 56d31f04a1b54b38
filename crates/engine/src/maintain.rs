//! Housekeeping beside the path of an event: snapshots, trimming, backup, erasing, verifying.

pub mod snapshot;
