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
use crate::{listing, ws};

const BODY_MAX: usize = 4 << 20;

/// `POST /v1/automations`
pub async fn create(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, tenant) = (call.doors.clone(), call.tenant.clone());
    let said = value(&call.bytes(BODY_MAX).await?)?;
    let of = tenant.clone();
    let made = aside::blocking(move || of.create_automation(&said)).await?;
    ws::told_one(&doors, &tenant, "automation_created", &made);
    listing::tagged(StatusCode::CREATED, &made, &tag(&made))
}

/// What is declared and whether it is on; not how its runs fare.
pub fn tag(automation: &Value) -> String {
    listing::tag(automation, &["version", "enabled", "paused"])
}

/// `PATCH /v1/automations/{name}`
pub async fn patch(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let (doors, tenant) = (call.doors.clone(), call.tenant.clone());
    let headers = call.head.headers.clone();
    let Value::Object(patch) = value(&call.bytes(BODY_MAX).await?)? else {
        return Err(Problem::new(Code::RequestInvalid, "a patch is an object of the keys to change").into());
    };
    let of = tenant.clone();
    let patched = aside::blocking(move || {
        listing::check_match(&headers, &tag(&of.automation(&name)?))?;
        of.patch_automation(&name, &patch)
    });
    let made = patched.await?;
    ws::told_one(&doors, &tenant, "automation_updated", &made);
    listing::tagged(StatusCode::OK, &made, &tag(&made))
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
    let plan = aside::blocking(move || tenant.delete_automation(&name, finish)).await?;
    ws::told_of(&call.doors, &call.tenant, &plan).await;
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
