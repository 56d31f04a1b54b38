//! The harness itself: seeds repeat, and every planted bug is found.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod faults;
mod seeds;
