//! Outbound pushes over HTTP: where events are posted to, and whether they arrive (`docs/push.md`).

use axum::extract::Path;
use engine::Tenant;
use engine::tenant::pushes::FIELDS;
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem};
use serde_json::Value;

use crate::body::{object_or, only_json};
use crate::caller::Call;
use crate::listing::There;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{aside, listing};

const BODY_MAX: usize = 64 << 10;

fn ok(value: &Value) -> Answer {
    Ok(json_answer(StatusCode::OK, value.to_string()))
}

/// It has no tag: it can only be asked to be there, or not to be.
fn conditions(tenant: &Tenant, name: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let there = listing::has_conditions(headers) && tenant.shown_push(name).is_ok();
    listing::check(headers, if there { &There::Untagged } else { &There::Not })
}

/// `GET /v1/push`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let tenant = call.tenant.clone();
    listing::page(&params, "pushes", "name", aside::blocking(move || tenant.pushes()).await?)
}

/// `GET /v1/push/{name}`
pub async fn get(Path(name): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let tenant = call.tenant.clone();
    ok(&aside::blocking(move || tenant.shown_push(&name)).await?)
}

/// `PUT /v1/push/{name}`
pub async fn put(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    conditions(&tenant, &name, &call.head.headers)?;
    let said = object_or(Code::PushInvalid, &call.bytes(BODY_MAX).await?, &FIELDS)?;
    let (new, push) = tenant.put_push(&caller, &name, said).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_answer(status, push.to_string()))
}

/// `DELETE /v1/push/{name}`
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    conditions(&call.tenant, &name, &call.head.headers)?;
    call.tenant.drop_push(&call.caller, &name).await?;
    Ok(listing::gone())
}

/// `POST /v1/push/{name}/pause|resume|test`
pub async fn act(Path((name, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    conditions(&call.tenant, &name, &call.head.headers)?;
    match what.as_str() {
        "pause" => ok(&call.tenant.pause_push(&call.caller, &name).await?),
        "resume" => ok(&call.tenant.resume_push(&call.caller, &name).await?),
        "test" => ok(&call.doors.engine.test_push(&call.tenant, &name).await?),
        other => Err(Problem::new(Code::NotFound, format!("a push cannot \"{other}\""))
            .hint("choose pause, resume or test")
            .into()),
    }
}
