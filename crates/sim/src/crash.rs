//! Kills the real engine on a real disk, again and again, and counts what is lost: by `kill -9`, or with the power.
//!
//! ```text
//!   parent                                    worker (a child process, the embedded engine)
//!   ──────                                    ──────
//!   reads every line  ◀──── pipe ───────────  try 17 · ok 17 42 · got all 42 · ack all 42
//!   kill, or stop + cut the power + kill ───▶ ✝
//!   reads the files, compares
//! ```
//!
//! The pipe survives the worker, and its lines were written after the engine's answer: what they say must hold.

pub mod account;
mod http;
pub mod rounds;
pub mod runs;
pub mod serve;
mod server;
mod sink;
pub mod worker;

/// The groups of the workers.
pub const GROUPS: [&str; 2] = ["all", "keyed"];

const TOPICS: [&str; 4] = ["a.x", "a.y", "b.x", "c"];

/// Everything about publish `n` follows from its number.
pub struct Numbered {
    pub topic: &'static str,
    pub body: String,
    pub key: Option<String>,
}

pub fn numbered(n: usize) -> Numbered {
    let body = crate::oracle::payload(n, n as u64 % 4, n % 300);
    Numbered { topic: TOPICS[n % 4], body, key: n.is_multiple_of(3).then(|| format!("key-{n}")) }
}
