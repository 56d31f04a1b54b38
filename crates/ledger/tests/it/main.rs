//! The proofs of the ledger: one suite for every home, a model with power cuts, damage byte by byte, every
//! IO failing once.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod conformance;
mod damage;
mod faults;
mod fixture;
mod model_test;
mod python;
mod space;
mod tools;
