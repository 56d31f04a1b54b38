//! Reading events back: a search in pages, one event, and what led to it and came of it (contracts §2).

use axum::extract::Path;
use axum::response::Response;
use engine::admit::cloudevents::to_cloudevent;
use engine::{Page, Query};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use model::event::push_text;
use model::{Code, Problem};

use crate::aside;
use crate::caller::Call;
use crate::problem::{Answer, bad_request};
use crate::publish::json;

const CLOUDEVENTS: &str = "application/cloudevents+json";
const CLOUDEVENTS_BATCH: &str = "application/cloudevents-batch+json";
/// Events on one page, whatever `limit` says; one event is there, however large.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// The cursor of the next page of a batch.
const NEXT: HeaderName = HeaderName::from_static("everwhen-next");

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
        bytes_max: PAGE_BYTES_MAX,
        cursor: params.owned("cursor"),
        sight: call.caller.sight.clone(),
    };
    let batch = wants(&call.head.headers, &[CLOUDEVENTS, CLOUDEVENTS_BATCH]);
    let tenant = call.tenant;
    let page = aside::blocking(move || tenant.find(&query)).await?;
    Ok(if batch { batched(&page) } else { shown(&page) })
}

/// Whether one of these media types is asked for, by name.
fn wants(headers: &HeaderMap, names: &[&str]) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let media = |part: &str| part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    accepted.flat_map(|text| text.split(',')).any(|part| names.contains(&media(part).as_str()))
}

/// A page as a batch of CloudEvents; where it goes on stands in a header, because a batch is an array.
fn batched(page: &Page) -> Response {
    let events: Vec<String> = page.events.iter().map(|event| to_cloudevent(event)).collect();
    let mut response = json(StatusCode::OK, format!("[{}]", events.join(",")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CLOUDEVENTS_BATCH));
    if let Some(next) = page.next.as_ref().and_then(|next| HeaderValue::from_str(next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
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
    let params = call.read_params(&["limit", "cursor"]).await?;
    let (limit, cursor) = (params.limit("limit", 100, 1_000)?, params.owned("cursor"));
    let seen = call.seen();
    let (deferred, next) = aside::blocking(move || seen.deferred(limit, cursor.as_deref())).await?;
    let next = next.map_or(String::new(), |next| format!(",\"next\":\"{next}\""));
    Ok(json(StatusCode::OK, format!("{{\"deferred\":[{}]{next}}}", deferred.join(","))))
}

/// `GET /v1/events/{position or id}`
pub async fn get(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let cloud = wants(&call.head.headers, &[CLOUDEVENTS]);
    let (seen, wanted) = (call.seen(), id.clone());
    let event =
        aside::blocking(move || seen.event(&wanted)).await.map_err(|problem| not_there(&id, problem))?;
    if cloud {
        let mut response = json(StatusCode::OK, to_cloudevent(&event));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CLOUDEVENTS));
        return Ok(response);
    }
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
