//! Requests against a real server on this machine, and a guard that keeps them from it.

#![allow(clippy::disallowed_methods)]

mod of_guard;
mod of_hostile;
mod of_http;
mod of_tls;
