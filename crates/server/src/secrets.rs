//! Secrets over HTTP: set and removed by name, listed without their values.

use axum::extract::Path;
use engine::Tenant;
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem};
use serde_json::Value;

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::listing::{self, There};
use crate::problem::Answer;
use crate::publish::json as json_answer;

/// The longest value, escaped.
const BODY_MAX: usize = 512 << 10;

/// It has no tag: it can only be asked to be there, or not to be.
fn conditions(tenant: &Tenant, name: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let there =
        listing::has_conditions(headers) && tenant.secrets()?.iter().any(|secret| secret["name"] == name);
    listing::check(headers, if there { &There::Untagged } else { &There::Not })
}

/// `GET /v1/secrets`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    listing::page(&params, "secrets", "name", call.tenant.secrets()?)
}

/// `PUT /v1/secrets/{name}`
pub async fn put(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    conditions(&tenant, &name, &call.head.headers)?;
    let said = object(&call.bytes(BODY_MAX).await?, &["value"])?;
    let Some(Value::String(value)) = said.get("value") else {
        let problem = Problem::new(Code::SecretInvalid, "\"value\" is missing, or no text").at("/value");
        return Err(problem.hint("send {\"value\": \"…\"}; bytes that are no text as base64").into());
    };
    let (new, secret) = tenant.put_secret(&caller, &name, value).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_answer(status, secret.to_string()))
}

/// `DELETE /v1/secrets/{name}`
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    conditions(&call.tenant, &name, &call.head.headers)?;
    call.tenant.drop_secret(&call.caller, &name).await?;
    Ok(listing::gone())
}
