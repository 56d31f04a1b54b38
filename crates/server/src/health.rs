//! `/livez` and `/readyz`: whether the process runs, and whether it can do its work (contracts §13).

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::json;

use crate::publish::json as json_answer;
use crate::{Doors, Phase};

pub async fn live() -> Response {
    json_answer(StatusCode::OK, json!({"live": true}).to_string())
}

/// 503 with the reasons when something failed; a server that is closing wants no new work.
pub async fn ready(State(doors): State<Arc<Doors>>) -> Response {
    let health = doors.engine.health();
    let mut failing = health.failing;
    if *doors.phase.borrow() != Phase::Open {
        failing.push("the server is stopping".to_owned());
    }
    let ready = health.ready && failing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_answer(status, json!({"ready": ready, "failing": failing}).to_string())
}
