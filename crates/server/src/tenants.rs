//! Tenants over HTTP: made, suspended, resumed and removed by whoever owns the house (contracts §13).
//!
//! Everybody else who administers sees one tenant, their own; any other reads as one that is not there.

use axum::extract::Path;
use engine::authority::Permission;
use engine::no_tenant;
use engine::settings::Quota;
use hyper::StatusCode;
use model::{Code, Problem};
use serde_json::{Map, Value};

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::listing::There;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{aside, listing, tokens};

const BODY_MAX: usize = 64 << 10;

/// Whether the caller may know of this tenant.
fn knows(call: &Call, name: &str) -> bool {
    call.grant.as_ref().is_none_or(|grant| grant.may(Permission::Node) || grant.tenant == name)
}

fn ok(value: &Value) -> Answer {
    Ok(json_answer(StatusCode::OK, value.to_string()))
}

/// `GET /v1/tenants`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let engine = call.doors.engine.clone();
    let mut all = aside::blocking(move || engine.list_tenants()).await?;
    all.retain(|tenant| knows(&call, tenant["name"].as_str().unwrap_or_default()));
    listing::page(&params, "tenants", "name", all)
}

/// `GET /v1/tenants/{name}`
pub async fn get(Path(name): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    if !knows(&call, &name) {
        return Err(no_tenant(&name).into());
    }
    let engine = call.doors.engine.clone();
    ok(&aside::blocking(move || engine.show_tenant(&name)).await?)
}

/// `POST /v1/tenants`: the answer is the only place that has the text of its owner's token.
pub async fn create(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, caller) = (call.doors.clone(), call.caller.clone());
    if let Some(end) = call.grant.as_ref().and_then(|grant| grant.terms.expires_at) {
        let detail =
            format!("this token ends at {end}, and the token of the tenant's owner would outlive it");
        return Err(Problem::new(Code::AuthDenied, detail).hint("use a token that does not end").into());
    }
    let said = object(&call.bytes(BODY_MAX).await?, &["name"])?;
    let name = match said.get("name") {
        Some(Value::String(name)) => Ok(name),
        Some(other) if !other.is_null() => Err(format!("\"name\" is a text, not {other}")),
        _ => Err("\"name\" is missing".to_owned()),
    };
    let name = name.map_err(|detail| {
        Problem::new(Code::TenantInvalid, detail).hint("{\"name\":\"acme\"}").at("/name")
    })?;
    let made = doors.engine.create_tenant(&caller, name).await?;
    Ok(json_answer(StatusCode::CREATED, made.to_string()))
}

/// `PUT /v1/tenants/{name}/quota`: all of it; what is left out is as the settings have it.
pub async fn quota(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, caller, headers) = (call.doors.clone(), call.caller.clone(), call.head.headers.clone());
    let bytes = call.bytes(BODY_MAX).await?;
    if bytes.is_empty() {
        // Nothing said would lift every limit there is.
        return Err(Problem::new(Code::TenantInvalid, "the body is missing")
            .hint("{} lifts every limit")
            .into());
    }
    let said = object(&bytes, &Quota::NAMES)?;
    if listing::has_conditions(&headers) {
        // A tenant that is there has a quota, of which nothing tells the versions apart.
        let (engine, named) = (doors.engine.clone(), name.clone());
        aside::blocking(move || engine.show_tenant(&named)).await?;
        listing::check(&headers, &There::Untagged)?;
    }
    ok(&doors.engine.set_quota(&caller, &name, read_quota(&said)?).await?)
}

/// What was said of a quota, each a whole number or `null`.
pub fn read_quota(said: &Map<String, Value>) -> Result<Quota, Problem> {
    let number = |name: &str| match said.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            let detail = format!("\"{name}\" is a whole number, not {value}");
            Problem::new(Code::TenantInvalid, detail).hint("null is no limit").at(format!("/{name}"))
        }),
    };
    Ok(Quota {
        bytes: number("bytes")?,
        events_per_s: number("events_per_s")?,
        groups: number("groups")?,
        automations: number("automations")?,
        runs_per_day: number("runs_per_day")?,
    })
}

/// `POST /v1/tenants/{name}/suspend` and `/resume`
pub async fn toggle(Path((name, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    let engine = &call.doors.engine;
    match what.as_str() {
        "suspend" => ok(&engine.suspend_tenant(&call.caller, &name).await?),
        "resume" => ok(&engine.resume_tenant(&call.caller, &name).await?),
        _ => Err(Problem::new(Code::NotFound, format!("a tenant has no \"{what}\""))
            .hint("one of suspend, resume, tokens")
            .into()),
    }
}

/// `POST /v1/tenants/{name}/tokens`: for a tenant whose own were lost.
pub async fn create_token(Path(name): Path<String>, call: Call) -> Answer {
    let engine = call.doors.engine.clone();
    let named = name.clone();
    let tenant = aside::blocking(move || {
        engine.show_tenant(&named)?;
        engine.tenant(&named)
    });
    let call = Call { tenant: tenant.await?, ..call };
    tokens::create(call).await
}

/// `DELETE /v1/tenants/{name}`: for ever.
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    call.doors.engine.delete_tenant(&call.caller, &name).await?;
    Ok(listing::gone())
}
