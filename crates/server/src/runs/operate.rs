//! Operating runs: start, try, cancel, retry, resume, run again, and many at a time (contracts §11); simulate.

use std::time::Duration;

use axum::extract::Path;
use engine::tenant::runs::{Bulk, Rerun, Started, Verb};
use engine::{Caller, Draft, Tenant};
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem, time};
use serde_json::{Map, Value, json};

use super::{BODY_MAX, ok};
use crate::body::{flag, instant, object, only_json, text};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{aside, audit};

/// Longer than this nobody is kept waiting for a run.
const WAIT_MAX: Duration = Duration::from_secs(60);
const STATUSES: [&str; 6] = ["queued", "running", "waiting", "completed", "failed", "cancelled"];

/// `POST /v1/runs`
pub async fn start(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let patience = prefer_wait(&call.head.headers);
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let mut said = object(&call.bytes(BODY_MAX).await?, &["automation", "input", "event", "dry_run"])?;
    let name = said.remove("automation").and_then(|name| Some(name.as_str()?.to_owned()));
    let name = name.ok_or_else(|| wrong("automation", "names what to run"))?;
    started((tenant, caller), name, said, patience).await
}

/// `POST /v1/automations/{name}/run`
pub async fn run(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let patience = prefer_wait(&call.head.headers);
    let by = (call.tenant.clone(), call.caller.clone());
    let said = optional(call, &["input", "event", "dry_run"]).await?;
    started(by, name, said, patience).await
}

async fn started(
    (tenant, caller): (Tenant, Caller),
    name: String,
    mut said: Map<String, Value>,
    patience: Option<Duration>,
) -> Answer {
    let dry = flag(&said, "dry_run")?;
    let (input, event) = (said.remove("input").unwrap_or_default(), event(said.remove("event"))?);
    if dry {
        let of = tenant.clone();
        let tried = aside::blocking(move || of.dry_run(&caller, &name, input, event)).await?;
        return ok(&tried.map_err(|started| held_back(&tenant, &started))?);
    }
    let started = {
        let tenant = tenant.clone();
        aside::blocking(move || tenant.start_run(&caller, &name, input, event)).await?
    };
    let Some(id) = started.run else { return Err(held_back(&tenant, &started).into()) };
    match patience {
        None => Ok(json_answer(StatusCode::ACCEPTED, json!({ "id": id }).to_string())),
        Some(patience) => ok(&ended(tenant, id, patience).await?),
    }
}

/// What stands for the event: the fields of one, of which it needs none.
fn event(given: Option<Value>) -> Result<Option<Value>, Problem> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(event)) => Ok(Some(Value::Object(event))),
        Some(_) => Err(wrong("event", "is an event, an object")),
    }
}

/// `Prefer: wait=10` (RFC 7240).
fn prefer_wait(headers: &HeaderMap) -> Option<Duration> {
    let prefer = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let mut parts = prefer.flat_map(|text| text.split([',', ';'])).map(str::trim);
    let seconds = parts.find_map(|part| part.strip_prefix("wait=")?.trim().parse().ok())?;
    Some(Duration::from_secs(seconds).min(WAIT_MAX))
}

/// The run once it has ended, or as it is when the patience has.
async fn ended(tenant: Tenant, id: String, patience: Duration) -> Result<Value, Problem> {
    let look = || {
        let (tenant, id) = (tenant.clone(), id.clone());
        aside::blocking(move || tenant.run(&id))
    };
    let ended = async {
        loop {
            let head = tenant.head();
            let run = look().await?;
            if matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled")) {
                return Ok(run);
            }
            tenant.reached(head + 1).await?;
        }
    };
    match tokio::time::timeout(patience, ended).await {
        Ok(run) => run,
        Err(_) => look().await,
    }
}

fn held_back(tenant: &Tenant, started: &Started) -> Problem {
    let (outcome, reason) = (started.outcome, started.reason.as_deref().unwrap_or("-"));
    if reason == "budget" {
        return tenant.runs_used_up();
    }
    Problem::new(Code::RunRefused, format!("it was not started: {} ({reason})", outcome.as_str()))
        .hint("`everwhen explain automation NAME` shows its decisions")
        .with("outcome", outcome.as_str())
        .with("reason", reason)
}

/// `POST /v1/runs/{id}/cancel` and its like.
pub async fn again(Path((id, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    let (tenant, seen) = (call.tenant.clone(), call.seen());
    let mut said = optional(call, &["from_step", "allow_side_effects"]).await?;
    let rerun = Rerun {
        from_step: from_step(said.remove("from_step"))?,
        allow_side_effects: flag(&said, "allow_side_effects")?,
    };
    let run = aside::blocking(move || {
        seen.run(&id)?;
        let run = match what.as_str() {
            "cancel" => tenant.cancel_run(&id).and_then(|()| tenant.run(&id)),
            "retry" => tenant.retry_run(&id),
            "resume" => tenant.resume_run_from(&id, &rerun),
            "rerun" => tenant.rerun(&id, &rerun),
            _ => Err(Problem::new(Code::NotFound, format!("a run has no \"{what}\""))
                .hint("one of cancel, retry, resume, rerun")),
        }?;
        Ok(seen.covered(run))
    });
    ok(&run.await?)
}

/// A body that may be left out.
async fn optional(call: Call, known: &[&str]) -> Result<Map<String, Value>, Problem> {
    only_json(&call.head.headers)?;
    let bytes = call.bytes(BODY_MAX).await?;
    if bytes.is_empty() { Ok(Map::new()) } else { object(&bytes, known) }
}

/// `POST /v1/runs/bulk`
pub async fn bulk(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let seen = call.seen();
    let said = object(&call.bytes(BODY_MAX).await?, &["do", "where", "dry_run"])?;
    let verb = match said.get("do").and_then(Value::as_str) {
        Some("cancel") => Verb::Cancel,
        Some("retry") => Verb::Retry,
        Some("resume") => Verb::Resume,
        Some("run") => Verb::Run,
        _ => return Err(wrong("do", "is one of cancel, retry, resume, run").into()),
    };
    let dry_run = flag(&said, "dry_run")?;
    let bulk = chosen(verb, said.get("where"), dry_run)?;
    let told = aside::blocking(move || seen.runs_in_bulk(&bulk)).await?;
    audit::did(told.clone());
    ok(&told)
}

fn chosen(verb: Verb, given: Option<&Value>, dry_run: bool) -> Result<Bulk, Problem> {
    let Some(Value::Object(given)) = given else {
        return Err(wrong("where", "says which runs are meant").hint(
            "{\"automation\":\"page\"}, with \"status\" and \"since\" if you like; {} means every one",
        ));
    };
    let known: &[&str] = match verb {
        Verb::Run => &["automation", "outcome", "reason", "since"],
        _ => &["automation", "status", "since"],
    };
    if let Some(unknown) = given.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(wrong("where", &format!("has the unknown key \"{unknown}\"")).hint(known.join(", ")));
    }
    picked(verb, given, dry_run).map_err(|problem| problem.within("/where"))
}

/// What is left out narrows nothing, so nothing that is said may count as left out.
fn picked(verb: Verb, given: &Map<String, Value>, dry_run: bool) -> Result<Bulk, Problem> {
    if text(given, "outcome")?.is_some_and(|outcome| outcome != "refused") {
        return Err(wrong("outcome", "is \"refused\": of others nothing is left to run"));
    }
    let (automation, reason) = (text(given, "automation")?, text(given, "reason")?);
    let chosen = text(given, "status")?;
    status(chosen.as_deref())?;
    Ok(Bulk { verb, automation, status: chosen, reason, since: instant(given, "since")?, dry_run })
}

/// A status that there is, or none.
pub fn status(given: Option<&str>) -> Result<(), Problem> {
    match given {
        Some(given) if !STATUSES.contains(&given) => {
            Err(Problem::new(Code::RequestInvalid, format!("\"{given}\" is no status of a run"))
                .hint(STATUSES.join(", "))
                .with("parameter", "status"))
        }
        _ => Ok(()),
    }
}

/// `POST /v1/simulate`
pub async fn simulate(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let mut said = object(&call.bytes(BODY_MAX + 4096).await?, &["event", "advance"])?;
    let event = said.remove("event").ok_or_else(|| wrong("event", "is the event to try"))?;
    let advance = match said.remove("advance") {
        None => Duration::ZERO,
        Some(by) => time::duration_of(&by).ok_or_else(|| wrong("advance", "is a length of time"))?,
    };
    ok(&aside::blocking(move || tried(&tenant, &caller, &event, advance)).await?)
}

fn tried(tenant: &Tenant, caller: &Caller, event: &Value, advance: Duration) -> Result<Value, Problem> {
    let draft = Draft::parse(event.to_string().as_bytes(), &tenant.limits())
        .map_err(|problem| problem.within("/event"))?;
    tenant.simulate(caller, draft, advance)
}

fn wrong(name: &str, what: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("\"{name}\" {what}")).at(format!("/{name}"))
}

fn from_step(said: Option<Value>) -> Result<Option<String>, Problem> {
    match said {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(path)) => Ok(Some(path)),
        Some(other) => {
            let detail = format!("\"from_step\" must be a step's path, not {other}");
            Err(Problem::new(Code::RequestInvalid, detail)
                .hint("such as \"actions[1]\"; `everwhen runs get ID` shows them")
                .at("/from_step"))
        }
    }
}
