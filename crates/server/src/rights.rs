//! Who asks and whether they may: a token is asked what its route needs (contracts §13).
//!
//! ```text
//!  no token, or one that is not known   401, always in the same words
//!  known, and not enough                403 for writes and administration; what is read is as good as absent: 404, an empty list
//! ```

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use engine::authority::{Grant, Permission};
use engine::{Engine, Tenant};
use hyper::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use model::{Code, Problem};
use serde_json::{Map, Value};

use crate::logins::Peer;
use crate::problem::Refusal;
use crate::publish::json as json_answer;
use crate::{Doors, ROUTES, caller};

/// What each method of a path asks of a token; `None`: nothing. A word that is no permission keeps everybody out, which a
/// test notices.
type Needs = HashMap<&'static str, Vec<(&'static str, Option<Permission>)>>;

static NEEDS: LazyLock<Needs> = LazyLock::new(|| {
    let mut needs = Needs::new();
    for route in ROUTES {
        let needed = match route.needs {
            // A token is asked for where its tenant is; what it needs is then asked by what it does.
            "open" | "token" => None,
            "metrics" => Some(Permission::Read),
            word => Some(Permission::parse(word).unwrap_or(Permission::Node)),
        };
        needs.entry(route.path).or_default().push((route.method, needed));
    }
    needs
});

pub fn needed(method: &Method, path: &str) -> Option<Permission> {
    let methods = NEEDS.get(path).map_or(&[][..], Vec::as_slice);
    let found = methods.iter().find(|(of, _)| method.as_str().eq_ignore_ascii_case(of));
    found.map_or(Some(Permission::Node), |(_, needed)| *needed)
}

/// The token of a request, or `None` where none is asked for and for who holds the directory itself.
pub fn grant(head: &Parts, doors: &Doors) -> Result<Option<Arc<Grant>>, Problem> {
    if doors.no_auth {
        return Ok(None);
    }
    let Some(given) = shown(&head.headers) else {
        return Err(Problem::new(Code::AuthRequired, "a token is required").hint(
            "send \"Authorization: Bearer ew_…\" (`everwhen --token …`); an owner or admin gives one out (`everwhen tokens create`)",
        ));
    };
    if is_local(given, doors) {
        return Ok(None);
    }
    let authority = doors.engine.authority();
    let grant = authority.grant(given, doors.engine.now()).map_err(|problem| {
        let guess = head.extensions.get::<Peer>().filter(|_| !given.is_empty() && !authority.knew(given));
        let told = guess.map_or(Ok(()), |peer| doors.logins.guessed(peer.0, doors.engine.real()));
        told.err().unwrap_or(problem)
    })?;
    // What was meant for another tenant must not be done here. Both names are the caller's own words.
    if let Some(named) = caller::text(&head.headers, &caller::TENANT)?.filter(|named| *named != grant.tenant)
    {
        let detail =
            format!("this token is of the tenant \"{}\", and the request names \"{named}\"", grant.tenant);
        return Err(Problem::new(Code::AuthDenied, detail).hint("use a token of that tenant, or name none"));
    }
    doors.engine.admits(&grant.tenant)?;
    if !grant.sight.is_whole() && !holds_to_a_part(head.uri.path()) {
        return Err(closed_to_a_part(head));
    }
    Ok(Some(grant))
}

/// As [`grant`] and [`denied`], for a publish by who shows this `authorization` and names no tenant. `None` when anything is wrong
/// with it: who asks again on the long way is told what, and counted there.
pub fn may_publish(authorization: Option<&str>, doors: &Doors) -> Option<Option<Arc<Grant>>> {
    if doors.no_auth {
        return Some(None);
    }
    let given = authorization.and_then(bearer)?;
    if is_local(given, doors) {
        return Some(None);
    }
    let grant = doors.engine.authority().grant(given, doors.engine.now()).ok()?;
    doors.engine.admits(&grant.tenant).ok()?;
    grant.may(Permission::EventWrite).then_some(Some(grant))
}

/// The token that a request shows, whatever it is worth.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).or_else(|| offered(headers));
    given.and_then(bearer)
}

fn bearer(given: &str) -> Option<&str> {
    let (scheme, token) = given.split_once([' ', '.'])?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn is_local(given: &str, doors: &Doors) -> bool {
    doors.token.as_ref().is_some_and(|token| crate::caller::same(given.as_bytes(), token.as_bytes()))
}

/// Whether who asks has read `serve.json`, and so could write wherever the server can.
pub fn holds_the_directory(headers: &HeaderMap, doors: &Doors) -> bool {
    shown(headers).is_some_and(|given| is_local(given, doors))
}

/// Doors that hold who sees only a part to that part. Every other is closed to them: a new one is safe before it is named here.
const OF_A_PART: [&str; 19] = [
    "/v1/events",
    "/v1/groups",
    "/v1/entities",
    "/v1/queries",
    "/v1/mutations",
    "/v1/concepts",
    "/v1/automations",
    "/v1/runs",
    "/v1/waits",
    "/v1/tasks",
    "/v1/decisions",
    "/v1/explain",
    "/v1/subscriptions",
    "/v1/tokens",
    "/api/events",
    // Each of its tools asks a door of its own.
    "/mcp",
    "/ui",
    // A session follows, pulls and settles as its token sees, and asks it for every request.
    "/v1/ws",
    "/everwhen.v1.EverwhenService",
];

fn holds_to_a_part(path: &str) -> bool {
    let below =
        |door: &str| path.strip_prefix(door).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path == "/" || OF_A_PART.iter().any(|door| below(door))
}

/// Reads of what is administered are refused as its writes are: everybody knows that it is there.
fn closed_to_a_part(head: &Parts) -> Problem {
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if reads && !needed(&Method::GET, matched(head)).is_some_and(administers) {
        return Problem::new(Code::NotFound, "there is nothing here");
    }
    Problem::new(Code::AuthDenied, "this door is closed to tokens for single spaces or bands")
        .hint("use a token without \"spaces\" and \"max_band\"")
}

/// The path of the route that a request goes to. Publishing goes past the router, so that its path is the one that was asked for.
pub fn matched(head: &Parts) -> &str {
    head.extensions.get::<MatchedPath>().map_or(head.uri.path(), MatchedPath::as_str)
}

fn administers(needed: Permission) -> bool {
    matches!(needed, Permission::Admin | Permission::Node | Permission::AutomationAdmin)
}

/// How often those who hold something open look whether they still may, besides being told.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Ready, with what to say, once a token has no effect any more or its tenant rests: for those who hold something open.
pub async fn over(doors: &Doors, grant: Option<Arc<Grant>>, tenant: Tenant) -> Problem {
    let authority = doors.engine.authority();
    // Listen first, look after: what changes in between is not missed.
    let mut changes = authority.changes();
    loop {
        changes.borrow_and_update();
        let now = doors.engine.now();
        if let Err(problem) = doors.engine.admits(tenant.name()) {
            return problem;
        }
        if tenant.is_closing() || grant.as_ref().is_some_and(|grant| !authority.stands(grant, now)) {
            return Problem::new(Code::AuthRequired, "the token is not valid any more")
                .hint("come back with another one");
        }
        let ends = grant.as_ref().and_then(|grant| grant.terms.expires_at);
        let wait = ends.map_or(LOOK_AGAIN, |at| at.since(now).min(LOOK_AGAIN));
        let _ = tokio::time::timeout(wait.max(Duration::from_millis(1)), changes.changed()).await;
    }
}

/// Whether a token may use a route: what every request is asked, for those who measure it.
pub fn may(engine: &Engine, token: &str, method: &str, path: &str) -> Result<bool, Problem> {
    let grant = engine.authority().grant(token, engine.now())?;
    engine.admits(&grant.tenant)?;
    let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
    Ok(needed(&method, path).is_none_or(|needed| grant.may(needed)))
}

/// As browsers say it, which cannot give a WebSocket headers of their own: as a subprotocol, `bearer.ew_…`. An address
/// would end up in logs; this header does not.
fn offered(headers: &HeaderMap) -> Option<&str> {
    let offers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|offer| offer.split(',')).map(str::trim).find(|offer| offer.starts_with("bearer."))
}

/// What a route answers to who may not use it; `None`: they may.
pub fn denied(head: &Parts, grant: &Grant) -> Option<Response> {
    let matched = matched(head);
    let method = if head.method == Method::HEAD { Method::GET } else { head.method.clone() };
    let needed = needed(&method, matched).filter(|needed| !grant.may(*needed))?;
    if method != Method::GET || administers(needed) {
        let detail = format!("this token does not allow \"{}\"", needed.as_str());
        return Some(
            Refusal(Problem::new(Code::AuthDenied, detail).hint("use a token that does")).into_response(),
        );
    }
    Some(match list_of(matched) {
        Some(name) => {
            let empty = Map::from_iter([(name.to_owned(), Value::Array(Vec::new()))]);
            json_answer(StatusCode::OK, Value::Object(empty).to_string())
        }
        None => Refusal(Problem::new(Code::NotFound, "there is nothing here")).into_response(),
    })
}

/// The one field of a list that is empty; `None` for what is one thing.
fn list_of(path: &str) -> Option<&'static str> {
    Some(match path {
        "/v1/events" | "/api/events/recent" => "events",
        "/v1/events/deferred" => "deferred",
        "/v1/groups" => "groups",
        "/v1/concepts" => "concepts",
        "/v1/automations" => "automations",
        "/v1/runs" => "runs",
        "/v1/waits" => "waits",
        "/v1/tasks" => "tasks",
        "/v1/decisions" => "decisions",
        "/v1/subscriptions" => "subscriptions",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_needs_something_that_a_token_can_allow_or_is_open() {
        for route in ROUTES {
            let known = matches!(route.needs, "open" | "metrics" | "token")
                || Permission::parse(route.needs).is_some();
            assert!(known, "{} {} needs {:?}", route.method, route.path, route.needs);
        }
    }
}
