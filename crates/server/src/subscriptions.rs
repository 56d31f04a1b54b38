//! Subscriptions over HTTP: rows that say which events of a group start which automation (contracts §14).

use std::sync::Arc;

use axum::extract::Path;
use engine::Seen;
use engine::authority::Grant;
use engine::tenant::subscriptions::Drained;
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::automations::may_subscribe;
use crate::body::{self, object, only_json};
use crate::caller::Call;
use crate::listing::{self, There};
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{aside, seed003};

const BODY_MAX: usize = 64 << 10;
const FIELDS: [&str; 7] = ["id", "pattern", "filter", "input_mapper", "automation", "enabled", "group"];
/// Seed 003's names of columns, and what they are called here.
const COLUMNS: [(&str, &str); 4] = [
    ("subscription_id", "id"),
    ("event_type_glob", "pattern"),
    ("filter_expr", "filter"),
    ("workflow_type", "automation"),
];

/// `GET /v1/subscriptions`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let (tenant, seen) = (call.tenant.clone(), call.seen());
    let all = aside::blocking(move || {
        let mut all = tenant.subscriptions()?;
        all.iter_mut().for_each(|subscription| seen.cover_subscription(subscription));
        Ok(all)
    });
    listing::page(&params, "subscriptions", "id", all.await?)
}

/// `GET /v1/subscriptions/{id}`
pub async fn get(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    told(StatusCode::OK, call.seen(), call.tenant.subscription(&id)?).await
}

/// What who asks sees and may.
type By = (Seen, Option<Arc<Grant>>);

fn by(call: &Call) -> By {
    (call.seen(), call.grant.clone())
}

/// As who asks may see it; its tag is the same for all.
async fn told(status: StatusCode, seen: Seen, mut subscription: Value) -> Answer {
    let covered = aside::blocking(move || {
        seen.cover_subscription(&mut subscription);
        Ok(subscription)
    });
    let subscription = covered.await?;
    listing::tagged(status, &subscription, &tag(&subscription))
}

/// What it is; not what its runs came to.
fn tag(subscription: &Value) -> String {
    listing::tag(subscription, &FIELDS)
}

/// Refuses what a request makes depend on what is there.
fn check(tenant: &engine::Tenant, id: &str, headers: &HeaderMap) -> Result<(), Problem> {
    match tenant.subscription(id) {
        Ok(there) => listing::check_match(headers, &tag(&there)),
        Err(problem) if problem.code() == Code::NotFound => listing::check(headers, &There::Not),
        Err(problem) => Err(problem),
    }
}

/// `POST /v1/subscriptions`: as PUT, with the id in the body.
pub async fn add(call: Call) -> Answer {
    let (headers, by) = (call.head.headers.clone(), by(&call));
    let (tenant, said) = read(call).await?;
    let id = said["id"].as_str().map(str::to_owned);
    let id = id.ok_or_else(|| Problem::new(Code::RequestInvalid, "\"id\" is missing").at("/id"))?;
    check(&tenant, &id, &headers)?;
    put_as(&tenant, by, &id, &said).await
}

/// `PUT /v1/subscriptions/{id}`
pub async fn put(Path(id): Path<String>, call: Call) -> Answer {
    let (headers, by) = (call.head.headers.clone(), by(&call));
    let (tenant, said) = read(call).await?;
    is_of_path(&said, &id)?;
    check(&tenant, &id, &headers)?;
    put_as(&tenant, by, &id, &said).await
}

/// `PATCH /v1/subscriptions/{id}`: what is not said stays; `null` takes away.
pub async fn patch(Path(id): Path<String>, call: Call) -> Answer {
    let (headers, by) = (call.head.headers.clone(), by(&call));
    let (tenant, said) = read(call).await?;
    is_of_path(&said, &id)?;
    let mut whole = tenant.subscription(&id)?;
    listing::check_match(&headers, &tag(&whole))?;
    if let (Value::Object(whole), Value::Object(said)) = (&mut whole, said) {
        whole.remove("last");
        whole.extend(said);
    }
    put_as(&tenant, by, &id, &whole).await
}

/// The path names it; a body that does, too, names the same.
fn is_of_path(said: &Value, id: &str) -> Result<(), Problem> {
    match &said["id"] {
        Value::Null => Ok(()),
        said if said == id => Ok(()),
        said => Err(body::wrong("/id", format!("\"id\" is {said}, and the path names \"{id}\""))),
    }
}

/// `DELETE /v1/subscriptions/{id}`
pub async fn delete(Path(id): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    listing::check_match(&call.head.headers, &tag(&call.tenant.subscription(&id)?))?;
    call.tenant.drop_subscription(&id).await?;
    Ok(listing::gone())
}

/// `POST /v1/subscriptions/{id}/enable|disable`
pub async fn switch(Path((id, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    let enabled = match what.as_str() {
        "enable" => true,
        "disable" => false,
        _ => return Err(Problem::new(Code::NotFound, format!("\"{what}\" is nothing to do here")).into()),
    };
    listing::check_match(&call.head.headers, &tag(&call.tenant.subscription(&id)?))?;
    told(StatusCode::OK, call.seen(), call.tenant.enable_subscription(&id, enabled).await?).await
}

async fn read(call: Call) -> Result<(engine::Tenant, Value), Problem> {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let tenant = call.tenant.clone();
    let columns = COLUMNS.map(|(column, _)| column);
    let mut said = object(&call.bytes(BODY_MAX).await?, &[&FIELDS[..], &columns].concat())?;
    for (column, name) in COLUMNS {
        let Some(value) = said.remove(column) else { continue };
        if said.contains_key(name) {
            let detail = format!("\"{column}\" and \"{name}\" are two names of one field");
            return Err(body::wrong(&format!("/{column}"), &detail));
        }
        let value = match (column, &value) {
            ("event_type_glob", Value::String(text)) => seed003::glob(text).into(),
            _ => value,
        };
        said.insert(name.to_owned(), value);
    }
    Ok((tenant, Value::Object(said)))
}

async fn put_as(tenant: &engine::Tenant, (seen, grant): By, id: &str, said: &Value) -> Answer {
    may_subscribe(grant.as_deref(), said)?;
    let (new, subscription) = tenant.put_subscription(id, said).await?;
    told(if new { StatusCode::CREATED } else { StatusCode::OK }, seen, subscription).await
}

/// `POST /v1/groups/{name}/dispatch`: one pass over the events of a group.
pub async fn dispatch(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let tenant = call.tenant.clone();
    let said = body::object_or(Code::GroupInvalid, &call.bytes(BODY_MAX).await?, &["limit"])?;
    let limit = limit_of(said.get("limit"))?;
    let done = tenant.drain_subscriptions(&name, limit).await?;
    Ok(json_answer(StatusCode::OK, drained(&done).to_string()))
}

pub fn limit_of(said: Option<&Value>) -> Result<u64, Problem> {
    let wrong = || body::wrong("/limit", "\"limit\" is a whole number from 1");
    said.map_or(Ok(100), |limit| limit.as_u64().filter(|n| *n > 0).ok_or_else(wrong))
}

/// As contracts §4 answers a drain; where it halted, also why.
pub fn drained(drained: &Drained) -> Value {
    let mut told = json!({
        "processed": drained.processed, "triggered": drained.triggered, "halted_on_event_id": drained.halted_on,
        "last_event_id": drained.last, "skipped_due_to_lock": drained.locked,
    });
    if let Some((position, why)) = &drained.halted {
        told["halted_on_position"] = (*position).into();
        told["halted_because"] = why.as_str().into();
    }
    told
}
