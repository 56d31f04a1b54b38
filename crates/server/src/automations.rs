//! Automations one by one: created, changed, deleted and run (contracts §14); and logic that is called from outside.

use axum::extract::Path;
use hyper::{Response, StatusCode};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use crate::aside;
use crate::body::{object, only_json, value};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;

const BODY_MAX: usize = 4 << 20;

/// `POST /v1/automations`
pub async fn create(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let tenant = call.tenant.clone();
    let said = value(&call.bytes(BODY_MAX).await?)?;
    let made = aside::blocking(move || tenant.create_automation(&said)).await?;
    Ok(json_answer(StatusCode::CREATED, made.to_string()))
}

/// `PATCH /v1/automations/{name}`
pub async fn patch(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let tenant = call.tenant.clone();
    let Value::Object(patch) = value(&call.bytes(BODY_MAX).await?)? else {
        return Err(Problem::new(Code::RequestInvalid, "a patch is an object of the keys to change").into());
    };
    let made = aside::blocking(move || tenant.patch_automation(&name, &patch)).await?;
    Ok(json_answer(StatusCode::OK, made.to_string()))
}

/// `DELETE /v1/automations/{name}?runs=cancel|finish`
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    let finish = match call.params(&["runs"])?.text("runs") {
        None | Some("cancel") => false,
        Some("finish") => true,
        Some(other) => {
            return Err(Problem::new(Code::RequestInvalid, format!("\"runs\" cannot be \"{other}\""))
                .hint("cancel ends runs in progress, finish lets them go on to their end")
                .with("parameter", "runs")
                .into());
        }
    };
    let tenant = call.tenant.clone();
    aside::blocking(move || tenant.delete_automation(&name, finish)).await?;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// `POST /v1/logic/{name}`
pub async fn logic(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.params(&["space"])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let bytes = call.bytes(BODY_MAX).await?;
    let args = match bytes.is_empty() {
        true => None,
        false => object(&bytes, &["args"])?.remove("args"),
    };
    let args = match args {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => {
            let detail = "\"args\" is an object of arguments";
            return Err(Problem::new(Code::RequestInvalid, detail).at("/args").into());
        }
    };
    let space = params.owned("space");
    let output = aside::blocking(move || tenant.call_logic(&caller, &name, args, space.as_deref())).await?;
    Ok(json_answer(StatusCode::OK, json!({ "output": output }).to_string()))
}
