//! Automations and their runs over HTTP: list, answer, and why (contracts §11, §12).

pub mod operate;

use axum::extract::Path;
use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::{Caller, Explained, Seen, Tenant};
use hyper::StatusCode;
use model::record::Outcome;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::query::Params;
use crate::ws;
use crate::{aside, automations, listing};

const BODY_MAX: usize = 1 << 20;

fn ok(value: &Value) -> Answer {
    Ok(json_answer(StatusCode::OK, value.to_string()))
}

/// Asks the tenant on a thread that may wait. The request itself is not held meanwhile: its body cannot be shared.
fn ask<T, F>(call: &Call, look: F) -> impl Future<Output = Result<T, Problem>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Tenant, &Caller) -> Result<T, Problem> + Send + 'static,
{
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    aside::blocking(move || look(&tenant, &caller))
}

/// As [`ask`], of what happened, as much of it as the caller sees.
fn ask_seen<T, F>(call: &Call, look: F) -> impl Future<Output = Result<T, Problem>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Seen) -> Result<T, Problem> + Send + 'static,
{
    let seen = call.seen();
    aside::blocking(move || look(&seen))
}

fn wanted(params: &Params, status: &str) -> Result<Wanted, Problem> {
    let cursor = params
        .text("cursor")
        .map(str::parse)
        .transpose()
        .map_err(|_| Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out"))?;
    Ok(Wanted {
        automation: params.owned("automation"),
        status: params.owned(status),
        since: params.instant("since")?,
        event: None,
        limit: params.limit("limit", 100, 1_000)?,
        before: cursor,
    })
}

fn newest(name: &str, (items, next): (Vec<Value>, Option<u64>)) -> Answer {
    let mut value = json!({ name: items });
    if let Some(next) = next {
        value["next"] = next.to_string().into();
    }
    ok(&value)
}

/// `GET /v1/runs`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&["automation", "status", "since", "limit", "cursor"]).await?;
    let wanted = wanted(&params, "status")?;
    operate::status(wanted.status.as_deref())?;
    newest("runs", ask_seen(&call, move |seen| seen.runs(&wanted)).await?)
}

/// `GET /v1/runs/{id}`
pub async fn get(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    ok(&ask_seen(&call, move |seen| seen.run(&id)).await?)
}

/// `GET /v1/automations`
pub async fn automations(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let all = ask_seen(&call, |seen| seen.automations()).await?;
    listing::page(&params, "automations", "name", all)
}

/// `GET /v1/automations/{name}`
pub async fn automation(Path(name): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let automation = ask_seen(&call, move |seen| seen.automation(&name)).await?;
    listing::tagged(StatusCode::OK, &automation, &automations::tag(&automation))
}

/// `GET /v1/automations/{name}/next`
pub async fn next(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.read_params(&["count"]).await?;
    let count = params.limit("count", 5, 1_000)?;
    let next = ask(&call, move |tenant, _| tenant.next_instants(&name, count)).await?;
    ok(&json!({ "next": next }))
}

/// `POST /v1/automations/{name}/enable` and its like.
pub async fn toggle(Path((name, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    let toggle = match what.as_str() {
        "enable" => Toggle::Enable,
        "disable" => Toggle::Disable,
        "pause" => Toggle::Pause,
        "resume" => Toggle::Resume,
        "drain" => Toggle::Drain,
        _ => {
            return Err(Problem::new(Code::NotFound, format!("an automation has no \"{what}\""))
                .hint("one of enable, disable, pause, resume, drain, run")
                .into());
        }
    };
    let headers = call.head.headers.clone();
    let set = ask(&call, move |tenant, _| {
        listing::check_match(&headers, &automations::tag(&tenant.automation(&name)?))?;
        tenant.set_automation(&name, toggle)?;
        tenant.automation(&name)
    });
    let mut set = set.await?;
    ws::told_one(&call.doors, &call.tenant, "automation_updated", &set);
    call.seen().cover_automation(&mut set);
    listing::tagged(StatusCode::OK, &set, &automations::tag(&set))
}

/// `GET /v1/waits`
pub async fn waits(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let waits = ask_seen(&call, |seen| seen.waits()).await?;
    listing::page(&params, "waits", "id", waits)
}

/// `POST /v1/waits/{id}/answer`
pub async fn answer(Path(id): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, caller, seen) = (call.tenant.clone(), call.caller.clone(), call.seen());
    let value = object(&call.bytes(BODY_MAX).await?, &["value"])?.remove("value");
    let value =
        value.ok_or_else(|| Problem::new(Code::RequestInvalid, "\"value\" is missing").at("/value"))?;
    aside::blocking(move || seen.may_answer(&id).and_then(|()| tenant.answer_wait(&caller, &id, value)))
        .await?;
    ok(&json!({"answered": true}))
}

/// `POST /v1/waits/{id}/redrive`: an effect that was out at ten crashes is tried again.
pub async fn redrive(Path(id): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let (tenant, seen) = (call.tenant.clone(), call.seen());
    aside::blocking(move || seen.may_answer(&id).and_then(|()| tenant.redrive_effect(&id))).await?;
    ok(&json!({"redriven": true}))
}

/// `GET /v1/decisions`
pub async fn decisions(call: Call) -> Answer {
    let params = call.read_params(&["automation", "outcome", "since", "limit", "cursor"]).await?;
    let wanted = wanted(&params, "outcome")?;
    outcome(wanted.status.as_deref())?;
    newest("decisions", ask_seen(&call, move |seen| seen.decisions(&wanted)).await?)
}

/// An outcome that there is, or none.
pub fn outcome(given: Option<&str>) -> Result<(), Problem> {
    let known: Vec<&str> =
        std::iter::once(Outcome::Pending).chain(Outcome::ENDS).map(Outcome::as_str).collect();
    match given {
        Some(given) if !known.contains(&given) => {
            Err(Problem::new(Code::RequestInvalid, format!("\"{given}\" is no outcome of an occurrence"))
                .hint(known.join(", "))
                .with("parameter", "outcome"))
        }
        _ => Ok(()),
    }
}

/// `GET /v1/explain/{what}/{id}`
pub async fn explain(Path((what, id)): Path<(String, String)>, call: Call) -> Answer {
    let params = call.read_params(&["since"]).await?;
    let since = params.instant("since")?;
    let explained = ask_seen(&call, move |seen| match what.as_str() {
        "event" => seen.explain_event(&id),
        "automation" => seen.explain_automation(&id, since).map(Explained::from),
        "run" => seen.explain_run(&id),
        _ => Err(Problem::new(Code::NotFound, format!("\"{what}\" cannot be explained"))
            .hint("one of event, automation, run")),
    });
    Ok(json_answer(StatusCode::OK, explained.await?.to_json()))
}
