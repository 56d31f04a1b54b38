//! Breaks the engine on purpose: the whole of it on a simulated disk and clock by one seed, and the real one by kills and
//! power cuts. Stands outside the path of an event and holds it to its promises.
//!
//! ```text
//!              ┌────────────── one thread, one seed ──────────────┐
//!   clients ──▶│ Tenant (engine) ─▶ FileLedger ─▶ SimDisk          │◀── crashes, faults, clock steps
//!      │       └──────────────────────────────────────────────────┘
//!      └──▶ Oracle: what was answered, kept outside; compared with every byte found after each crash
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![allow(
    clippy::disallowed_methods,
    reason = "a harness: it makes directories, starts processes and measures time"
)]

pub mod clock;
pub mod crash;
pub mod oracle;
pub mod power;
pub mod random;
pub mod scan;
pub mod scratch;
pub mod world;
