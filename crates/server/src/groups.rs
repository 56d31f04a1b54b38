//! `/v1/groups`: defining groups, seeing them, moving them, and what became dead letters (contracts §4).

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use engine::authority::Permission;
use engine::{GroupView, Redrive, Seen, Tenant};
use hyper::{HeaderMap, StatusCode};
use lang::filter::Filter;
use model::event::push_text;
use model::group::parse_start;
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use crate::body::{self, object_or};
use crate::caller::Call;
use crate::listing::There;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{Doors, aside, listing};

pub mod deliver;

/// Largest body of a definition or a verb.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A verb's request, read: where it goes and what it says.
struct Verb {
    doors: Arc<Doors>,
    tenant: Tenant,
    seen: Seen,
    said: Map<String, Value>,
}

/// A field of what a verb says that is not what it must be.
fn wrong(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::GroupInvalid, detail).at(pointer)
}

async fn verb(call: Call, known: &[&str]) -> Result<Verb, Problem> {
    let (doors, tenant, seen) = (call.doors.clone(), call.tenant.clone(), call.seen());
    let said = object_or(Code::GroupInvalid, &bytes(call).await?, known)?;
    Ok(Verb { doors, tenant, seen, said })
}

/// As [`verb`], for what changes the group itself.
async fn change(name: &str, call: Call, known: &[&str]) -> Result<Verb, Problem> {
    not_of_a_push(name, &call)?;
    let headers = call.head.headers.clone();
    let verb = verb(call, known).await?;
    verb.seen.may_change(name)?;
    conditions(&verb.tenant, name, &headers)?;
    Ok(verb)
}

/// A group moves by itself and has no tag: it can only be asked to be there, or not to be.
fn conditions(tenant: &Tenant, name: &str, headers: &HeaderMap) -> Result<(), Problem> {
    if !listing::has_conditions(headers) {
        return Ok(());
    }
    let there = tenant.groups_in_short().iter().any(|view| view.group.name == name);
    listing::check(headers, if there { &There::Untagged } else { &There::Not })
}

async fn bytes(call: Call) -> Result<bytes::Bytes, Problem> {
    call.params(&[])?;
    body::only_json(&call.head.headers)?;
    call.bytes(BODY_BYTES_MAX).await
}

fn shown(status: StatusCode, group: &GroupView) -> Response {
    json_answer(status, group.to_json().to_string())
}

pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let seen = call.seen();
    let groups = aside::blocking(move || seen.groups()).await?;
    listing::page(&params, "groups", "name", groups.iter().map(GroupView::to_json).collect())
}

pub async fn put(Path(name): Path<String>, call: Call) -> Answer {
    not_of_a_push(&name, &call)?;
    call.tenant.check_no_push(&name)?;
    let (tenant, seen, headers) = (call.tenant.clone(), call.seen(), call.head.headers.clone());
    let definition = seen.definition(&name, body::value(&bytes(call).await?)?)?;
    conditions(&tenant, &name, &headers)?;
    let (created, group) = tenant.put_group(&name, &definition).await?;
    Ok(shown(if created { StatusCode::CREATED } else { StatusCode::OK }, &group))
}

pub async fn get(Path(name): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let seen = call.seen();
    let group = aside::blocking(move || seen.group(&name)).await?;
    Ok(shown(StatusCode::OK, &group))
}

/// The group of a push is administered with it: whoever moves or removes it decides what is sent.
fn not_of_a_push(name: &str, call: &Call) -> Result<(), Problem> {
    let administers = call.grant.as_ref().is_none_or(|grant| grant.may(Permission::Admin));
    match name.strip_prefix("push-") {
        Some(push) if !administers && call.tenant.shown_push(push).is_ok() => Err(Problem::new(
            Code::AuthDenied,
            format!("the group \"{name}\" belongs to the push \"{push}\""),
        )
        .hint("a token that allows \"admin\" may change it")),
        _ => Ok(()),
    }
}

pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    call.seen().may_change(&name)?;
    not_of_a_push(&name, &call)?;
    call.tenant.check_no_push(&name)?;
    conditions(&call.tenant, &name, &call.head.headers)?;
    call.tenant.delete_group(&name).await?;
    Ok(listing::gone())
}

pub async fn seek(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, said, .. } = change(&name, call, &["to"]).await?;
    let to = said.get("to").ok_or_else(|| {
        wrong("/to", "\"to\" is missing")
            .hint("say \"beginning\", \"end\", {\"position\": N} or {\"time\": T}")
    })?;
    let start = parse_start(to).map_err(|problem| problem.at("/to"))?;
    Ok(shown(StatusCode::OK, &tenant.seek(&name, start).await?))
}

pub async fn pause(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, .. } = change(&name, call, &[]).await?;
    Ok(shown(StatusCode::OK, &tenant.pause(&name).await?))
}

pub async fn resume(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, .. } = change(&name, call, &[]).await?;
    Ok(shown(StatusCode::OK, &tenant.resume(&name).await?))
}

pub async fn dead_letters(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.read_params(&["limit", "cursor"]).await?;
    let limit = params.limit("limit", 100, 1_000)?;
    let cursor = params.owned("cursor");
    let seen = call.seen();
    let page = aside::blocking(move || seen.dead_letters(&name, limit, cursor.as_deref())).await?;
    let mut out = format!("{{\"dead_letters\":[{}]", page.texts.join(","));
    if let Some(next) = &page.next {
        out.push_str(",\"next\":");
        push_text(&mut out, next);
    }
    out.push('}');
    Ok(json_answer(StatusCode::OK, out))
}

pub async fn redrive(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, said, .. } = change(&name, call, &["positions", "filter", "all"]).await?;
    let redriven = tenant.redrive(&name, which(&said)?).await?;
    Ok(json_answer(StatusCode::OK, json!({ "redriven": redriven }).to_string()))
}

fn which(said: &Map<String, Value>) -> Result<Redrive, Problem> {
    let one = |pointer: &str, detail: &str| {
        wrong(pointer, detail).hint("say {\"positions\":[…]}, {\"filter\":\"…\"} or {\"all\":true}")
    };
    match (said.len(), said.iter().next()) {
        (1, Some((name, value))) => match (name.as_str(), value) {
            ("all", Value::Bool(true)) => Ok(Redrive::All),
            ("all", _) => Err(one("/all", "\"all\" is true")),
            ("filter", value) => Ok(Redrive::Filter(Filter::parse(value).map_err(|p| p.within("/filter"))?)),
            (_, Value::Array(list)) => Ok(Redrive::Positions(positions(list)?)),
            _ => Err(one("/positions", "\"positions\" is a list of positions")),
        },
        _ => Err(one("", "say which dead letters, in one way")),
    }
}

fn positions(list: &[Value]) -> Result<Vec<Position>, Problem> {
    let read = |(i, value): (usize, &Value)| {
        let position = value.as_u64().filter(|position| *position >= 1);
        position.ok_or_else(|| wrong(&format!("/positions/{i}"), format!("{value} is not a position")))
    };
    list.iter().enumerate().map(read).collect()
}
