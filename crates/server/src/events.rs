//! Reading events back: a search in pages, one event, and what led to it and came of it (contracts §2).

use axum::extract::Path;
use axum::response::Response;
use engine::{Page, Query};
use hyper::StatusCode;
use model::event::push_text;
use model::{Code, Problem};

use crate::aside;
use crate::caller::Call;
use crate::problem::{Answer, bad_request};
use crate::publish::json;

const PARAMS: [&str; 11] =
    ["topic", "space", "subject", "after", "before", "since", "until", "filter", "order", "limit", "cursor"];

/// `GET /v1/events`
pub async fn find(call: Call) -> Answer {
    let params = call.read_params(&PARAMS).await?;
    let query = Query {
        topic: params.pattern("topic")?,
        space: params.owned("space"),
        subject: params.subject("subject")?,
        after: params.position("after")?,
        before: params.position("before")?,
        since: params.instant("since")?,
        until: params.instant("until")?,
        filter: params.filter("filter")?,
        descending: params.is_second("order", ["asc", "desc"])?,
        limit: params.limit("limit", 100, 1_000)?,
        cursor: params.owned("cursor"),
        sight: call.caller.sight.clone(),
    };
    let tenant = call.tenant;
    let page = aside::blocking(move || tenant.find(&query)).await?;
    Ok(shown(&page))
}

fn shown(page: &Page) -> Response {
    let mut out = String::with_capacity(64 + 512 * page.events.len());
    out.push_str("{\"events\":[");
    for (i, event) in page.events.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        event.write_json(&mut out);
    }
    out.push(']');
    if let Some(next) = &page.next {
        out.push_str(",\"next\":");
        push_text(&mut out, next);
    }
    out.push('}');
    json(StatusCode::OK, out)
}

/// `GET /v1/events/deferred`: publishes that wait for their time.
pub async fn deferred(call: Call) -> Answer {
    let params = call.read_params(&["limit"]).await?;
    let limit = params.limit("limit", 100, 1_000)?;
    let seen = call.seen();
    let deferred = aside::blocking(move || seen.deferred(limit)).await?;
    Ok(json(StatusCode::OK, format!("{{\"deferred\":[{}]}}", deferred.join(","))))
}

/// `GET /v1/events/{position or id}`
pub async fn get(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let (seen, wanted) = (call.seen(), id.clone());
    let event =
        aside::blocking(move || seen.event(&wanted)).await.map_err(|problem| not_there(&id, problem))?;
    Ok(json(StatusCode::OK, event.to_json()))
}

/// `GET /v1/events/{position or id}/lineage`
pub async fn lineage(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let (seen, wanted) = (call.seen(), id.clone());
    let found = aside::blocking(move || seen.lineage(&wanted)).await;
    let lineage = found.map_err(|problem| not_there(&id, problem))?;
    Ok(json(StatusCode::OK, lineage))
}

/// What is not there and looks like a position below the first was a mistake in the request.
fn not_there(id: &str, problem: Problem) -> Problem {
    let number = id.strip_prefix('-').unwrap_or_default();
    if problem.code() != Code::EventNotFound
        || number.is_empty()
        || !number.bytes().all(|b| b.is_ascii_digit())
    {
        return problem;
    }
    bad_request("id", format_args!("is a position or an id, not \"{id}\"")).hint("positions begin at 1")
}
