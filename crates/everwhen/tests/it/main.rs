//! The binary as its users meet it: run in directories of its own, judged by what it prints and how it exits.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod absent;
mod audit;
mod bench;
mod bus;
mod check;
mod config;
mod drain;
mod edges;
mod entities;
mod errors;
mod events;
mod exits;
mod groups;
mod ha;
mod held;
mod lifecycle;
mod maintain;
mod once;
mod pages;
mod pipes;
mod profiles;
mod rulings;
mod runs;
mod scenarios;
mod secrets;
mod slips;
mod spaces;
mod support;
mod tokens;
mod tour;
mod traces;
mod tries;
mod watch;
mod workers;
