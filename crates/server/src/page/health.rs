//! `/ui/health`: whether it can take events, and what is failing if not.

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;

use super::html::{Head, facts, page, plain, state, text};
use super::{Shown, Visit, said};

pub async fn health(visit: Visit) -> Response {
    visit.frame().around(shown(visit).await)
}

async fn shown(visit: Visit) -> Shown {
    let (tenant, doors) = (visit.0.tenant.clone(), visit.0.doors.clone());
    let ready = said(Ok(crate::health::ready(State(doors)).await)).await?;
    let failing: String = ready["failing"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(|what| format!("<li>{}</li>", plain(what)))
        .collect();
    let standing = if ready["ready"].as_bool() == Some(true) { "ready" } else { "failed" };
    let known = facts(&[
        ("state", state(if standing == "ready" { "on" } else { standing })),
        ("tenant", text(tenant.name())),
        ("first position kept", tenant.first().to_string()),
        ("newest position", tenant.head().to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    let body = format!("{known}<ul>{failing}</ul><p><a href=\"/metrics\">Metrics</a> for Prometheus.</p>");
    Ok(page(StatusCode::OK, &Head { title: "Health", at: "/ui/health" }, &body))
}
