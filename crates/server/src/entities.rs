//! `/v1/entities`: rows read, written, listed and looked back at (contracts §10).

use axum::extract::Path;
use axum::response::Response;
use engine::entity::{Action, Expect, Provenance, Row, Write, Written, body as sent};
use engine::{AsOf, Caller, Lately, Listing, Paging, Tenant};
use hyper::header::{ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{HeaderMap, StatusCode};
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use crate::body::{self, media_type, wrong_type};
use crate::caller::Call;
use crate::problem::{Answer, bad_request};
use crate::publish::json as json_answer;
use crate::query::Params;
use crate::{aside, listing};

pub mod import;

/// Largest body of a row; the engine refuses rows long before.
const BODY_BYTES_MAX: usize = 1 << 20;

type At = Path<(String, String)>;

/// `GET /v1/entities/{concept}/{id}`
pub async fn get(Path((concept, id)): At, call: Call) -> Answer {
    let params = call.read_params(&["as_of", "space", "in_state_since", "transitions", "window"]).await?;
    let moment = moment(&params)?;
    let lately = Lately {
        in_state_since: params.owned("in_state_since"),
        transitions: params.owned("transitions"),
        window: params.owned("window"),
    };
    if moment.is_some() && (lately.in_state_since.is_some() || lately.transitions.is_some()) {
        return Err(bad_request("as_of", "does not go with what is asked about now").into());
    }
    // How often something changed lately moves while the row stays as it is.
    let moves = lately.transitions.is_some();
    let (tenant, caller, space) = (call.tenant, call.caller, params.owned("space"));
    let (row, answer) = aside::blocking(move || {
        let at = (concept.as_str(), space.as_deref(), id.as_str());
        match moment {
            None => tenant.entity_lately(&caller, at, &lately),
            Some(moment) => tenant.entity_as_of(&caller, at, moment).map(|row| (row.clone(), row.to_json())),
        }
    })
    .await?;
    let answer = tagged(StatusCode::OK, &row, answer);
    Ok(if moves { answer } else { listing::unless_known(&call.head.headers, answer) })
}

/// `as_of`: a position or an instant, whose `+` may have become a space on its way.
pub(crate) fn moment(params: &Params) -> Result<Option<AsOf>, Problem> {
    let moment = params.text("as_of").map(|text| AsOf::parse(&text.replace(' ', "+"))).transpose();
    moment.map_err(|_| bad_request("as_of", "is a position or an instant"))
}

/// `PUT /v1/entities/{concept}/{id}`
pub async fn put(Path((concept, id)): At, call: Call) -> Answer {
    write(call, concept, Some(id), Action::Put).await
}

/// `PATCH /v1/entities/{concept}/{id}`
pub async fn patch(Path((concept, id)): At, call: Call) -> Answer {
    write(call, concept, Some(id), Action::Patch).await
}

/// `POST /v1/entities/{concept}`: a new row; without an id, under the hash of what it says.
pub async fn insert(Path(concept): Path<String>, call: Call) -> Answer {
    let insert =
        |fields: Map<String, Value>| Action::Insert { told: fields.keys().cloned().collect(), fields };
    write(call, concept, None, insert).await
}

/// `DELETE /v1/entities/{concept}/{id}`
pub async fn delete(Path((concept, id)): At, call: Call) -> Answer {
    let params = call.params(&["space"])?;
    let (expect, tags) = (expectation(&call.head.headers)?, foreign_tags(&call.head.headers));
    let space = params.owned("space").unwrap_or_default();
    let write = Write { expect, space, ..through_http(&concept, Some(&id), Action::Delete) };
    call.tenant.write(&call.caller, write).await.map_err(|problem| foreign(problem, &tags))?;
    Ok(listing::gone())
}

async fn write(
    call: Call,
    concept: String,
    id: Option<String>,
    action: impl FnOnce(Map<String, Value>) -> Action,
) -> Answer {
    let params = call.params(&["space"])?;
    match media_type(&call.head.headers)?.as_str() {
        "" | "application/json" | "application/merge-patch+json" => {}
        other => return Err(wrong_type(other).into()),
    }
    let (expect, tags) = (expectation(&call.head.headers)?, foreign_tags(&call.head.headers));
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let value = body::value(&call.bytes(BODY_BYTES_MAX).await?)?;
    let catalog = tenant.catalog();
    let read = sent::read(catalog.concept(&concept)?, value, id.is_none())?;
    let space = params.owned("space").or(read.space).unwrap_or_default();
    let id = id.or(read.id);
    let write = Write { expect, space, ..through_http(&concept, id.as_deref(), action(read.fields)) };
    let written = tenant.write(&caller, write).await;
    let written = written.map_err(|problem| foreign(below(problem, read.under), &tags))?;
    let status = if written.created() { StatusCode::CREATED } else { StatusCode::OK };
    Ok(tagged(status, &written.row, written.to_json()))
}

fn through_http(concept: &str, id: Option<&str>, action: Action) -> Write {
    Write { provenance: Provenance::api("http"), ..Write::of(concept, id, action) }
}

/// A field's place in the body as it was sent.
fn below(problem: Problem, under: &str) -> Problem {
    if problem.code() == Code::EntityInvalid && problem.pointer().is_some() {
        problem.within(under)
    } else {
        problem
    }
}

/// `GET /v1/entities/{concept}`
pub async fn list(Path(concept): Path<String>, call: Call) -> Answer {
    let params = call.read_params(&["filter", "space", "limit", "cursor"]).await?;
    let listing = Listing {
        space: params.owned("space"),
        filter: params.owned("filter"),
        limit: params.limit("limit", 100, 1_000)?,
        cursor: params.owned("cursor"),
    };
    let (tenant, caller) = (call.tenant, call.caller);
    let found = aside::blocking(move || tenant.entities(&caller, &concept, &listing)).await?;
    let mut answer = json!({ "entities": found.rows });
    if let Some(next) = found.next {
        answer["next"] = next.into();
    }
    Ok(json_answer(StatusCode::OK, answer.to_string()))
}

/// `GET /v1/entities/{concept}/{id}/history`
pub async fn history(Path((concept, id)): At, call: Call) -> Answer {
    let params = call.read_params(&["space", "order", "limit", "cursor"]).await?;
    let paging = Paging {
        descending: params.is_second("order", ["asc", "desc"])?,
        limit: params.limit("limit", 100, 1_000)?,
        cursor: params.position("cursor")?,
    };
    let (tenant, caller, space) = (call.tenant, call.caller, params.owned("space"));
    let page =
        aside::blocking(move || tenant.entity_history(&caller, (&concept, space.as_deref(), &id), &paging))
            .await?;
    let mut answer = json!({ "changes": page.changes });
    if let Some(next) = page.next {
        answer["next"] = next.to_string().into();
    }
    Ok(json_answer(StatusCode::OK, answer.to_string()))
}

fn tagged(status: StatusCode, row: &Row, value: Value) -> Response {
    let mut response = json_answer(status, value.to_string());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", row.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// `If-Match` names the version that is meant, or several of which it must be one; `If-None-Match: *` a row that is not there yet.
fn expectation(headers: &HeaderMap) -> Result<Expect, Problem> {
    if let Some(none) = headers.get(IF_NONE_MATCH) {
        return match none.as_bytes() {
            b"*" => Ok(Expect::Absent),
            _ => Err(bad_request("If-None-Match", "is only understood as \"*\" on a write")),
        };
    }
    let given = headers.get_all(IF_MATCH).into_iter().map(|value| value.to_str().unwrap_or_default());
    let tags: Vec<&str> = given.flat_map(|value| value.split(',')).map(str::trim).collect();
    if tags.contains(&"*") {
        return Ok(Expect::Present);
    }
    let versions: Vec<Position> = tags.iter().filter_map(|tag| version(tag)).collect();
    Ok(match (tags.len(), &versions[..]) {
        (0, _) => Expect::Anything,
        (1, [version]) => Expect::Version(*version),
        _ => Expect::OneOf(versions),
    })
}

/// A tag that is none of ours cannot be the row's; one that is weak, neither.
fn version(tag: &str) -> Option<Position> {
    tag.trim_matches('"').parse().ok()
}

/// Names what no row could have as its version, to who learns that the row has another.
fn foreign(problem: Problem, given: &str) -> Problem {
    if given.is_empty() || problem.code() != Code::IfMatchFailed {
        return problem;
    }
    problem.hint(format!("\"If-Match\" says {given}, which is no version of a row: those read like \"780\""))
}

/// The tags of `If-Match` that are no versions.
fn foreign_tags(headers: &HeaderMap) -> String {
    let given = headers.get_all(IF_MATCH).into_iter().map(|value| value.to_str().unwrap_or_default());
    let tags = given.flat_map(|value| value.split(',')).map(str::trim);
    tags.filter(|tag| *tag != "*" && version(tag).is_none()).collect::<Vec<_>>().join(", ")
}

/// Writes one line of an import.
async fn import_line(
    tenant: &Tenant,
    caller: &Caller,
    (concept, space): (&str, Option<&str>),
    line: &[u8],
) -> Result<Written, Problem> {
    let value = body::value(line)?;
    let catalog = tenant.catalog();
    let read = sent::read(catalog.concept(concept)?, value, true)?;
    let action = Action::Put(read.fields);
    let provenance = Provenance { kind: "import".to_owned(), ..Provenance::api("http") };
    let space = read.space.or(space.map(str::to_owned)).unwrap_or_default();
    let write = Write { space, provenance, ..Write::of(concept, read.id.as_deref(), action) };
    tenant.write_queued(caller, write).await.map_err(|problem| below(problem, read.under))
}
