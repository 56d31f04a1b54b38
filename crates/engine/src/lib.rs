//! The path of an event, from the command that carries it to those who wait for it.
//!
//! ```text
//!  command ─▶ admit ─▶ mailbox ─▶ decide ─▶ ledger ─▶ apply ─▶ deliver
//!             who may   whatever   state ×    append    fold     groups, followers,
//!             say this  queued     command →  + one     into     handlers in process
//!             (caller's during the records    fdatasync state
//!             thread)   last sync  (pure)     a batch   (pure)
//!                       └────────────── writer ─────────────┘
//! ```
//!
//! An event arrived and nothing happened? `admit` may have refused or dropped it; `deliver/matcher` says whether a group
//! wants it; `deliver/dispatcher` says why it is not handed out yet.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod settings;

mod absent;
pub mod admit;
pub mod apply;
pub mod authority;
pub mod automation;
pub mod command;
mod condition;
mod decide;
mod declared;
pub mod deliver;
mod draft;
pub mod effect;
pub mod entity;
mod env;
pub mod gate;
mod lifecycle;
mod mailbox;
mod program;
mod route;
pub mod run;
pub mod schedule;
pub mod state;
mod walk;
pub mod writer;

mod faults;
pub mod history;
mod ranges;
mod read;
pub mod sealing;
mod tail;
pub mod tray;

mod engine;
pub mod import;
pub mod maintain;
pub mod metrics;
pub mod telemetry;
pub mod tenant;

pub mod clock;
pub mod entropy;
pub mod pages;
pub mod pool;

pub use admit::{Caller, Draft, Layer};
pub use command::{Outcome, Plan, Receipt};
pub use declared::DETACHED;
pub use deliver::follow::{Follow, Follower};
pub use deliver::push::{Ack, Handling, Nack, Subscription};
pub use deliver::{Delivery, Most};
pub use engine::{DEFAULT_TENANT, Engine, Health, Options, check_name as check_tenant_name, no_tenant};
pub use settings::{Limits, Settings};
pub use tenant::{
    AsOf, Asking, DeadLetterPage, Explained, Found, GroupView, HistoryPage, Lately, Listing, Page, Paging,
    Post, Posted, Query, Redrive, Seen, Settled, Tenant,
};
