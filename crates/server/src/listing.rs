//! Pages of lists that fit into memory, in the order of their names: whole unless `limit` is given.

use hyper::StatusCode;
use hyper::header::{ETAG, HeaderMap, HeaderValue, IF_MATCH};
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::query::Params;

/// What a door of such a list understands.
pub const PARAMS: [&str; 2] = ["limit", "cursor"];

/// `{"<name>":[…],"next":…}`; the field `id` of each tells them apart, and is what a cursor holds.
pub fn page(params: &Params, name: &str, id: &str, items: Vec<Value>) -> Answer {
    let named = items.into_iter().map(|item| (item[id].as_str().unwrap_or_default().to_owned(), item));
    page_of(params, name, named.collect())
}

/// As [`page`], for things that do not say their names themselves.
pub fn page_of(params: &Params, name: &str, mut items: Vec<(String, Value)>) -> Answer {
    let limit = params.limit("limit", usize::MAX, 1_000)?;
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    if let Some(cursor) = params.text("cursor") {
        items.retain(|(id, _)| id.as_str() > cursor);
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().map(|(id, _)| id.clone());
    let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    let mut page = json!({ name: items });
    if let Some(last) = last.filter(|_| more) {
        page["next"] = last.into();
    }
    Ok(json_answer(StatusCode::OK, page.to_string()))
}

/// What tells a thing that is changed in place from what it was before; `None` of what it has that moves by itself.
pub fn tag(thing: &Value, of: &[&str]) -> String {
    let parts: Vec<String> = of.iter().map(|name| thing[*name].to_string()).collect();
    let hash = model::json::canonical_hash(parts.iter().map(String::as_str));
    format!("\"{}\"", &model::id::hex(&hash)[..16])
}

/// Refuses a change of something that is not any more what the client saw.
pub fn check_match(headers: &HeaderMap, tag: &str) -> Result<(), Problem> {
    let Some(given) = headers.get(IF_MATCH) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let fits = |one: &str| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == tag;
    if given.split(',').any(fits) {
        return Ok(());
    }
    Err(Problem::new(Code::IfMatchFailed, format!("it is {tag} now, not {given}"))
        .hint("read it again and decide anew"))
}

/// An answer that says what it is a version of.
pub fn tagged(status: StatusCode, thing: &Value, tag: &str) -> Answer {
    let mut response = json_answer(status, thing.to_string());
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}
