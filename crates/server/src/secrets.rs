//! Secrets over HTTP: set and removed by name, listed without their values.

use axum::extract::Path;
use hyper::StatusCode;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::listing;
use crate::problem::Answer;
use crate::publish::json as json_answer;

/// The longest value, escaped.
const BODY_MAX: usize = 512 << 10;

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
    call.tenant.drop_secret(&call.caller, &name).await?;
    Ok(json_answer(StatusCode::OK, json!({"deleted": true}).to_string()))
}
