//! The engine on a real directory: what users of the embedded API rely on.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod at_once;
mod audit;
mod authority;
mod effects;
mod endings;
mod entities;
mod followers;
mod formats;
mod gates;
mod groups;
mod histories;
mod house;
mod maintain;
mod publish;
mod quotas;
mod restart;
mod rig;
mod runs;
mod subscriptions;
mod suspects;
mod temp;
mod tenants;
mod together;
mod traps;
mod waits;
mod wikipedia;
mod witness;
