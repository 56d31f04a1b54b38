//! The HTTP doors: how an event comes in from outside and how groups, streams and people read what was
//! recorded.
//!
//! ```text
//!  connection ─▶ guard ─▶ router ─▶ caller ─▶ one file per door ─▶ engine
//!  accept,       panics,  path,     tenant,   publish events stream groups
//!  time limits   limits   method    actor     seed003 health metrics
//!       └─▶ lane: a plain publish, straight to the engine
//! ```
//! A door reads the request strictly, asks the engine once, and writes the answer; every refusal leaves
//! through `problem`. Nothing here decides anything about events.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::Router;
use engine::{Engine, Tenant};
use model::Problem;
use tokio::net::TcpListener;
use tokio::sync::watch;

mod aside;
mod audit;
mod automations;
mod body;
mod caller;
mod clock;
mod connection;
mod declared;
mod entities;
mod events;
mod framing;
mod groups;
mod grpc;
mod guard;
mod health;
mod hooks;
mod idempotency;
mod lane;
mod listing;
mod logins;
mod maintain;
mod mcp;
mod metrics;
mod openapi;
mod origin;
mod page;
mod patience;
mod pipe;
mod problem;
mod publish;
mod pushes;
mod query;
mod rights;
mod routes;
mod runs;
mod secrets;
mod seed003;
mod session;
mod socket;
mod spaces;
mod stream;
mod subscriptions;
mod tasks;
mod tenants;
mod tls;
mod tokens;
mod ws;

pub use audit::act;
pub use hooks::{check as check_hook, signature, tried};
pub use openapi::document as openapi;
pub use subscriptions::drained;
pub use tenants::read_quota;
pub use tls::Tls;
pub use tokens::terms;

pub use patience::Patience;
pub use rights::may;
pub use routes::{ROUTES, Route};

/// What `serve` needs besides the engine.
pub struct Options {
    /// Bound already, so that port 0 is known before the first request.
    pub listener: TcpListener,
    /// The token in `serve.json`: whoever can read that file may do everything.
    pub token: Option<String>,
    /// Whoever can connect may do everything; for loopback only.
    pub no_auth: bool,
    /// The tenant of a request that names none.
    pub default_tenant: String,
    /// Connections are encrypted, and others not answered.
    pub tls: Option<Tls>,
}

/// Serves until `shutdown` is ready, then finishes what is in progress and returns; the caller closes the
/// engine.
pub async fn serve(
    engine: Engine,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Problem> {
    serve_with(engine, options, Patience::default(), shutdown).await
}

/// As [`serve`], with other time limits; for tests that cannot wait.
pub async fn serve_with(
    engine: Engine,
    options: Options,
    patience: Patience,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Problem> {
    let Options { listener, token, no_auth, default_tenant, tls } = options;
    let (phase, watched) = watch::channel(Phase::Open);
    let default = OnceLock::new();
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let (many, threads) = lane::Many::new();
    let doors = Arc::new(Doors {
        engine,
        token,
        no_auth,
        local,
        default_tenant,
        default,
        patience,
        phase: watched,
        logins: logins::Logins::default(),
        automations: ws::channel(),
        keys: Default::default(),
        many,
        tls,
    });
    let threads = threads.start(&doors);
    connection::accept(listener, doors, phase, shutdown).await;
    for thread in threads {
        thread.ended().await;
    }
    Ok(())
}

/// What every door can reach.
pub(crate) struct Doors {
    engine: Engine,
    token: Option<String>,
    no_auth: bool,
    /// Only this machine can reach it.
    local: bool,
    default_tenant: String,
    /// The default tenant once it opened. A damaged one is refused per request, so that others still serve.
    default: OnceLock<Tenant>,
    patience: Patience,
    phase: watch::Receiver<Phase>,
    /// Tokens that were none.
    logins: logins::Logins,
    /// What is done to automations, for those who watch them.
    automations: ws::Automations,
    keys: idempotency::Keys,
    many: lane::Many,
    tls: Option<Tls>,
}

/// How far the server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// No new connections; waits and streams end now, requests in progress finish.
    Closing,
    /// Grace is over: connections are dropped.
    Cut,
}

impl Doors {
    /// No token protects it, but only this machine can reach it.
    fn is_bare(&self) -> bool {
        self.local && self.no_auth
    }

    /// Ready once the server is closing, however long ago that began.
    async fn closing(&self) {
        let mut phase = self.phase.clone();
        // An error means that the sender is gone, which is closing too.
        let _ = phase.wait_for(|phase| *phase != Phase::Open).await;
    }
}

fn router(doors: Arc<Doors>) -> Router {
    routes::router()
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(doors)
}
