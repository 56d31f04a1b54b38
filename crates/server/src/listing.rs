//! Pages of lists that fit into memory, in the order of their names: whole unless `limit` is given.

use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::http::request::Parts;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::openapi::takes_header;
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

/// What the conditions of a request are held against.
pub enum There<'a> {
    Not,
    /// It is there, and nothing tells its versions apart: no tag can be its own.
    Untagged,
    Tagged(&'a str),
}

/// Refuses a change of something that is not any more what the client saw.
pub fn check_match(headers: &HeaderMap, tag: &str) -> Result<(), Problem> {
    check(headers, &There::Tagged(tag))
}

pub fn has_conditions(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH)
}

/// For a change of one thing by a route that does not look at `If-Match` itself: what it changes has no tag.
pub fn check_untagged(head: &Parts, matched: &str) -> Result<(), Problem> {
    let (method, of_one) = (head.method.as_str().to_ascii_lowercase(), matched.contains('{'));
    let changes = of_one && !matches!(method.as_str(), "get" | "head");
    if !changes || !head.headers.contains_key(IF_MATCH) || takes_header(&method, matched, "If-Match") {
        return Ok(());
    }
    check(&head.headers, &There::Untagged)
}

/// `If-Match` wants it to be there, as one of what is listed; `If-None-Match` wants it not to be.
pub fn check(headers: &HeaderMap, there: &There<'_>) -> Result<(), Problem> {
    let (wanted, unwanted) = (listed(headers, IF_MATCH), listed(headers, IF_NONE_MATCH));
    let fits = |one: &str| match there {
        There::Not => false,
        There::Untagged => one == "*",
        There::Tagged(tag) => one == "*" || one == *tag,
    };
    // A weak tag says only that it is nearly the same, which is not enough to change it, and enough not to.
    let nearly = |one: &String| fits(one.trim_start_matches("W/"));
    let is = |untagged: &str| match there {
        There::Not => "it is not there".to_owned(),
        There::Untagged => untagged.to_owned(),
        There::Tagged(tag) => format!("it is {tag} now"),
    };
    let failed = if !wanted.is_empty() && !wanted.iter().any(|one| fits(one)) {
        format!("{}, and \"If-Match\" says {}", is("it has no versions"), wanted.join(", "))
    } else if unwanted.iter().any(nearly) {
        format!("{}, and \"If-None-Match\" says {}", is("it is there"), unwanted.join(", "))
    } else {
        return Ok(());
    };
    Err(Problem::new(Code::IfMatchFailed, failed).hint("read it again and decide anew"))
}

/// To a read: nothing again of what the client has, which `If-None-Match` names. Only for answers that the tag tells apart; what moves
/// by itself is not in it.
pub fn unless_known(headers: &HeaderMap, answer: Response) -> Response {
    let tag = answer.headers().get(ETAG).cloned();
    let known = tag.as_ref().and_then(|tag| tag.to_str().ok()).is_some_and(|tag| names(headers, tag));
    let Some(tag) = tag.filter(|_| known) else { return answer };
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, tag);
    response
}

/// Whether `If-None-Match` names this tag, be it as a weak one.
fn names(headers: &HeaderMap, tag: &str) -> bool {
    let one = |one: &String| one == "*" || one.trim_start_matches("W/") == tag;
    listed(headers, IF_NONE_MATCH).iter().any(one)
}

/// The tags of a condition, over all its lines.
fn listed(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let lines = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or_default());
    lines.flat_map(|line| line.split(',')).map(|one| one.trim().to_owned()).collect()
}

/// The answer to every DELETE that did it; of what is not there, also the second time, it is 404.
pub fn gone() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// An answer that says what it is a version of.
pub fn tagged(status: StatusCode, thing: &Value, tag: &str) -> Answer {
    let mut response = json_answer(status, thing.to_string());
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_for_what_is_there_and_for_what_is_not() {
        let tagged = There::Tagged("\"a\"");
        let cases = [
            ("if-match", "\"a\"", &tagged, true),
            ("if-match", "\"b\", \"a\"", &tagged, true),
            ("if-match", "W/\"a\"", &tagged, false),
            ("if-none-match", "W/\"a\"", &tagged, false),
            ("if-match", "\"b\"", &tagged, false),
            ("if-match", "*", &tagged, true),
            ("if-match", "*", &There::Untagged, true),
            ("if-match", "\"a\"", &There::Untagged, false),
            ("if-match", "*", &There::Not, false),
            ("if-none-match", "*", &There::Not, true),
            ("if-none-match", "*", &There::Untagged, false),
            ("if-none-match", "*", &tagged, false),
            ("if-none-match", "\"b\"", &tagged, true),
            ("if-none-match", "\"a\"", &tagged, false),
        ];
        for (name, value, there, holds) in cases {
            let pair = (HeaderName::from_static(name), HeaderValue::from_static(value));
            let headers = HeaderMap::from_iter([pair]);
            assert_eq!(check(&headers, there).is_ok(), holds, "{name}: {value}");
        }
        assert!(check(&HeaderMap::new(), &There::Not).is_ok());
        let all = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
        let problem = check(&all, &There::Untagged).unwrap_err();
        assert_eq!(problem.detail(), "it is there, and \"If-None-Match\" says *");
    }
}
