//! The language from outside: other projects' vectors, golden messages, and lines as `everwhen try` sees
//! them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cel;
mod chance;
mod cron;
mod cron_oracle;
mod declare;
mod fuzz;
mod messages;
mod pages;
mod vectors;
mod wikipedia;
