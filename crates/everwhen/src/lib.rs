//! Everwhen in your own process: open a directory, publish, subscribe; the same ledger that the binary serves.
//!
//! ```
//! use everwhen::{Ack, Draft, Engine, Subscription};
//! # use std::sync::atomic::{AtomicU64, Ordering};
//! # use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("everwhen-doc-{}", std::process::id()));
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let engine = Engine::open(&dir)?;
//! # let (seen, done) = tokio::sync::oneshot::channel();
//! # let seen = Arc::new(std::sync::Mutex::new(Some(seen)));
//!
//! // A group remembers what its handler has done, also over restarts. A panic is a nack.
//! engine
//!     .subscribe(Subscription::new("order.*", "billing").workers(2).set("max_retries", 3), move |event| {
//! #       let seen = seen.clone();
//!         async move {
//!             println!("{} {}", event.position, event.envelope.topic);
//! #           seen.lock().unwrap().take().map(|seen| seen.send(event.position));
//!             Ok(Ack)
//!         }
//!     })
//!     .await?;
//!
//! // Answered when it is on disk.
//! let outcome = engine.publish(Draft::new("order.created", &serde_json::json!({"id": 7}))).await?;
//! # let position = done.await?;
//! # assert_eq!(outcome.to_json()["position"], position);
//!
//! engine.close().await?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! Where to go on: [`Tenant`] publishes many at once, finds, follows, pulls and acknowledges; [`Layer`] puts your own
//! rule into the publish chain; [`Settings`] is what `everwhen.toml` says.

#![allow(clippy::disallowed_methods)]

pub use engine::admit::Handled;
pub use engine::clock::{Clock, ManualClock, SystemClock};
pub use engine::settings::{
    AttentionRule, Detector, Limits, Rate, RedactRule, Retention, SchemaRule, Settings, Switches, Verdict,
};
pub use engine::{
    Ack, Caller, DeadLetterPage, Delivery, Draft, Engine, Follow, Follower, GroupView, Handling, Health,
    Layer, Nack, Options, Outcome, Page, Query, Receipt, Redrive, Settled, Subscription, Tenant,
};
pub use lang::filter::Filter;
pub use model::event::{Band, Content, Envelope, Event, Subject};
pub use model::group::Start;
pub use model::topic::Pattern;
pub use model::{Code, Position, Problem, Timestamp};
