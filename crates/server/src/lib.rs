//! The HTTP doors: how an event comes in from outside and how groups, streams and people read what was
//! recorded.
//!
//! ```text
//!  connection ─▶ guard ─▶ router ─▶ caller ─▶ one file per door ─▶ engine
//!  accept,       panics,  path,     tenant,   publish events stream groups
//!  time limits   limits   method    actor     seed003 health metrics
//! ```
//! A door reads the request strictly, asks the engine once, and writes the answer; every refusal leaves
//! through `problem`. Nothing here decides anything about events.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::routing::{get, post, put};
use engine::{Engine, Tenant};
use model::Problem;
use tokio::net::TcpListener;
use tokio::sync::watch;

mod aside;
mod automations;
mod body;
mod caller;
mod clock;
mod connection;
mod declared;
mod entities;
mod events;
mod groups;
mod guard;
mod health;
mod hooks;
mod maintain;
mod metrics;
mod origin;
mod patience;
mod pipe;
mod problem;
mod publish;
mod query;
mod runs;
mod seed003;
mod stream;
mod subscriptions;

pub use hooks::{signature, tried};
pub use subscriptions::drained;

pub use patience::Patience;

/// What `serve` needs besides the engine.
pub struct Options {
    /// Bound already, so that port 0 is known before the first request.
    pub listener: TcpListener,
    /// The token in `serve.json`; a request may give it, and a wrong one is refused unless `no_auth`.
    pub token: Option<String>,
    pub no_auth: bool,
    /// The tenant of a request that names none.
    pub default_tenant: String,
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
    let Options { listener, token, no_auth, default_tenant } = options;
    let (phase, watched) = watch::channel(Phase::Open);
    let token = token.filter(|_| !no_auth);
    let default = OnceLock::new();
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let doors = Arc::new(Doors { engine, token, local, default_tenant, default, patience, phase: watched });
    connection::accept(listener, doors, phase, shutdown).await;
    Ok(())
}

/// What every door can reach.
pub(crate) struct Doors {
    engine: Engine,
    token: Option<String>,
    /// Only this machine can reach it.
    local: bool,
    default_tenant: String,
    /// The default tenant once it opened. A damaged one is refused per request, so that others still serve.
    default: OnceLock<Tenant>,
    patience: Patience,
    phase: watch::Receiver<Phase>,
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
    /// Ready once the server is closing, however long ago that began.
    async fn closing(&self) {
        let mut phase = self.phase.clone();
        // An error means that the sender is gone, which is closing too.
        let _ = phase.wait_for(|phase| *phase != Phase::Open).await;
    }
}

/// Every path, in the order of contracts §2, §4 and §13.
fn router(doors: Arc<Doors>) -> Router {
    of_bus()
        .merge(of_rows())
        .merge(of_automations())
        .merge(of_house())
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(doors)
}

/// Events and groups, and the paths of seed 003.
fn of_bus() -> Router<Arc<Doors>> {
    Router::new()
        .route("/v1/events", get(events::find).post(publish::publish))
        .route("/v1/events/stream", get(stream::stream))
        .route("/v1/events/deferred", get(events::deferred))
        .route("/v1/events/{id}", get(events::get))
        .route("/v1/events/{id}/lineage", get(events::lineage))
        .route("/v1/groups", get(groups::list))
        .route("/v1/groups/{name}", put(groups::put).get(groups::get).delete(groups::delete))
        .route("/v1/groups/{name}/pull", post(groups::deliver::pull))
        .route("/v1/groups/{name}/ack", post(groups::deliver::ack))
        .route("/v1/groups/{name}/nack", post(groups::deliver::nack))
        .route("/v1/groups/{name}/extend", post(groups::deliver::extend))
        .route("/v1/groups/{name}/reject", post(groups::deliver::reject))
        .route("/v1/groups/{name}/seek", post(groups::seek))
        .route("/v1/groups/{name}/pause", post(groups::pause))
        .route("/v1/groups/{name}/resume", post(groups::resume))
        .route("/v1/groups/{name}/dead-letters", get(groups::dead_letters))
        .route("/v1/groups/{name}/dead-letters/redrive", post(groups::redrive))
        .route("/v1/groups/{name}/dispatch", post(subscriptions::dispatch))
        .route("/api/events/record", post(seed003::record))
        .route("/api/events/recent", get(seed003::recent))
        .route("/api/events/drain", post(seed003::drain))
}

/// What is declared, and rows.
fn of_rows() -> Router<Arc<Doors>> {
    Router::new()
        .route("/v1/entities/{concept}", get(entities::list).post(entities::insert))
        .route("/v1/entities/{concept}/import", post(entities::import::import))
        .route(
            "/v1/entities/{concept}/{id}",
            get(entities::get).put(entities::put).patch(entities::patch).delete(entities::delete),
        )
        .route("/v1/entities/{concept}/{id}/history", get(entities::history))
        .route("/v1/concepts", get(declared::concepts))
        .route("/v1/concepts/{id}", get(declared::concept))
        .route("/v1/queries/{name}", post(declared::query))
        .route("/v1/mutations/{name}", post(declared::mutate))
        .route("/v1/plan", post(declared::plan))
        .route("/v1/apply", post(declared::apply))
}

/// Automations, their runs, and why.
fn of_automations() -> Router<Arc<Doors>> {
    Router::new()
        .route("/v1/runs", get(runs::list).post(runs::operate::start))
        .route("/v1/runs/bulk", post(runs::operate::bulk))
        .route("/v1/runs/{id}", get(runs::get))
        .route("/v1/runs/{id}/{what}", post(runs::operate::again))
        .route("/v1/backtest", post(declared::backtest))
        .route("/v1/simulate", post(runs::operate::simulate))
        .route("/v1/automations", get(runs::automations).post(automations::create))
        .route(
            "/v1/automations/{name}",
            get(runs::automation).patch(automations::patch).delete(automations::delete),
        )
        .route("/v1/automations/{name}/run", post(runs::operate::run))
        .route("/v1/logic/{name}", post(automations::logic))
        .route("/v1/automations/{name}/next", get(runs::next))
        .route("/v1/automations/{name}/{what}", post(runs::toggle))
        .route("/v1/waits", get(runs::waits))
        .route("/v1/waits/{id}/answer", post(runs::answer))
        .route("/v1/waits/{id}/redrive", post(runs::redrive))
        .route("/v1/subscriptions", get(subscriptions::list).post(subscriptions::add))
        .route(
            "/v1/subscriptions/{id}",
            get(subscriptions::get)
                .put(subscriptions::put)
                .patch(subscriptions::patch)
                .delete(subscriptions::delete),
        )
        .route("/v1/subscriptions/{id}/{what}", post(subscriptions::switch))
        .route("/v1/decisions", get(runs::decisions))
        .route("/v1/explain/{what}/{id}", get(runs::explain))
        .route("/v1/clock", post(clock::advance))
}

/// Upkeep and health.
fn of_house() -> Router<Arc<Doors>> {
    Router::new()
        .route("/v1/erase", post(maintain::erase))
        .route("/v1/backup", post(maintain::backup))
        .route("/v1/verify", get(maintain::verify))
        .route("/v1/import", post(maintain::import))
        .route("/v1/records", get(maintain::records))
        .route("/v1/hooks", get(hooks::list))
        .route("/v1/hooks/{name}", get(hooks::get).put(hooks::put).delete(hooks::delete))
        .route("/hooks/{tenant}/{name}", post(hooks::deliver))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/errors/{code}", get(problem::page))
}
