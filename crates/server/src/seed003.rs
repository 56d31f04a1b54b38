//! Seed 003's three paths with that document's names: record, recent, drain (end of contracts §4).

use axum::response::Response;
use engine::tenant::subscriptions::DRAINER;
use engine::{Draft, Outcome, Query, Tenant};
use hyper::StatusCode;
use lang::filter::Filter;
use model::event::Subject;
use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::body::{self, object};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::query::Params;
use crate::{aside, publish, subscriptions};

/// How many pages are looked through for one answer; each takes a second at most.
const PAGES_MAX: usize = 5;

/// `POST /api/events/record`
pub async fn record(call: Call) -> Answer {
    call.params(&[])?;
    body::only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let limits = tenant.limits();
    let key = publish::key(&call.head.headers)?;
    let bytes = call.bytes(publish::event_bytes_max(&limits)).await?;
    let mut draft = Draft::from_seed003(&bytes, &limits)?;
    publish::with_key(&mut draft, key).map_err(named)?;
    Ok(recorded(&tenant.publish(&caller, draft).await.map_err(named)?))
}

/// What a refusal points at, by the name that it has in this document.
fn named(problem: Problem) -> Problem {
    let column = match problem.pointer() {
        Some("/topic") => "/event_type",
        Some("/subject/kind") => "/entity_type",
        Some("/subject" | "/subject/id") => "/entity_id",
        Some("/source") => "/source_system",
        Some("/time") => "/occurred_at",
        Some("/key") => "/idempotency_key",
        _ => return problem,
    };
    problem.at(column)
}

fn recorded(outcome: &Outcome) -> Response {
    match outcome {
        Outcome::Recorded(receipt) => {
            let status = if receipt.duplicate { StatusCode::OK } else { StatusCode::CREATED };
            let answer =
                json!({"event_id": receipt.id, "position": receipt.position, "collapsed": receipt.duplicate});
            json_answer(status, answer.to_string())
        }
        other => json_answer(StatusCode::ACCEPTED, other.to_json().to_string()),
    }
}

/// `GET /api/events/recent`: seed rows, newest first.
pub async fn recent(call: Call) -> Answer {
    let params = call.read_params(&["limit", "event_type", "entity_type", "entity_id"]).await?;
    let query = Query { sight: call.caller.sight.clone(), ..recent_query(&params)? };
    let tenant = call.tenant;
    let rows = aside::blocking(move || rows(&tenant, query)).await?;
    Ok(json_answer(StatusCode::OK, format!("{{\"events\":[{}]}}", rows.join(","))))
}

fn recent_query(params: &Params) -> Result<Query, Problem> {
    let event_type = params.text("event_type").map(glob);
    let topic = event_type.map(|text| Pattern::parse(&text)).transpose()?;
    let (subject, filter) = match (params.owned("entity_type"), params.owned("entity_id")) {
        (Some(kind), Some(id)) => (Some(Subject { kind, id }), None),
        (Some(kind), None) => (None, Some(json!({"field": "subject.kind", "eq": kind}))),
        (None, Some(id)) => (None, Some(json!({"field": "subject.id", "eq": id}))),
        (None, None) => (None, None),
    };
    let filter = filter.map(|filter| Filter::parse(&filter)).transpose()?;
    let limit = params.limit("limit", 100, 1_000)?;
    Ok(Query { topic, subject, filter, limit, descending: true, ..Query::default() })
}

/// A final `.*` is read as `.#` at seed 003's doors (contracts §14).
pub fn glob(text: &str) -> String {
    match text.strip_suffix(".*") {
        Some(front) => format!("{front}.#"),
        None => text.to_owned(),
    }
}

fn rows(tenant: &Tenant, mut query: Query) -> Result<Vec<String>, Problem> {
    let mut rows = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = tenant.find(&query)?;
        rows.extend(page.events.iter().map(|event| event.to_seed_row()));
        if page.next.is_none() || rows.len() >= query.limit {
            break;
        }
        query.cursor = page.next;
    }
    rows.truncate(query.limit);
    Ok(rows)
}

/// `POST /api/events/drain`: one pass of a drainer over the events it has not dispatched yet.
pub async fn drain(call: Call) -> Answer {
    call.params(&[])?;
    body::only_json(&call.head.headers)?;
    let tenant = call.tenant.clone();
    let said = object(&call.bytes(64 * 1024).await?, &["drainer_id", "limit"])?;
    let limit = subscriptions::limit_of(said.get("limit"))?;
    let id = match said.get("drainer_id") {
        None => DRAINER,
        Some(Value::String(id)) => id.as_str(),
        Some(_) => {
            let detail = "\"drainer_id\" is the name of a group";
            return Err(Problem::new(Code::GroupInvalid, detail).at("/drainer_id").into());
        }
    };
    if tenant.group(id).is_err() {
        let detail = format!("nothing dispatches for the drainer \"{id}\" yet");
        let hint = "PUT /v1/subscriptions/ID {\"pattern\", \"automation\"} makes one";
        return Err(Problem::new(Code::DrainNoDispatcher, detail).hint(hint).into());
    }
    let drained = tenant.drain_subscriptions(id, limit).await?;
    Ok(json_answer(StatusCode::OK, subscriptions::drained(&drained).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_points_at_the_name_that_is_used_here() {
        let at = |pointer| named(Problem::new(Code::EventTopicInvalid, "wrong").at(pointer));
        assert_eq!(at("/topic").pointer(), Some("/event_type"));
        assert_eq!(at("/subject/kind").pointer(), Some("/entity_type"));
        assert_eq!(at("/payload/topic").pointer(), Some("/payload/topic"));
    }
}
