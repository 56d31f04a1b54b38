//! What is administered through the doors is written down before it is answered, with who asked and under which request id.
//!
//! A request is known by its `X-Request-Id`, or by one that is made for it; the answer says it again, and so do problems and
//! the log.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::MatchedPath;
use axum::response::Response;
use engine::authority::Permission;
use engine::entropy::Entropy;
use engine::maintain::audit::{Checkpoint, Testimony, audit, checkpoint, testimony};
use engine::tenant::audit::Act;
use engine::{Caller, Tenant};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use model::digits::digits;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{ROUTES, Route, aside, rights};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const POSITION: HeaderName = HeaderName::from_static("everwhen-position");
const ID_MAX: usize = 128;
const BODY_MAX: usize = 16 << 20;

/// Doors that need the rights of an administrator or an author and change nothing, or only what is recorded anyway.
const NO_ACTS: [&str; 10] = [
    "/v1/logic/{name}",
    "/v1/plan",
    "/v1/simulate",
    "/v1/backtest",
    "/v1/runs",
    "/v1/automations/{name}/run",
    "/v1/groups/{name}/dispatch",
    "/v1/audit/verify",
    "/api/events/record",
    "/api/events/drain",
];

tokio::task_local! {
    static ASKED: Asked;
}

/// What is known of the request that is being answered.
struct Asked {
    id: String,
    /// Where it may have written something.
    tenant: RefCell<Option<Tenant>>,
    act: RefCell<Option<(Tenant, Caller, Act)>>,
}

/// Methods and paths of what is administered.
static ACTS: LazyLock<Vec<(Method, &'static str)>> = LazyLock::new(|| {
    let method = |route: &Route| Method::from_bytes(route.method.to_ascii_uppercase().as_bytes()).ok();
    let routes = ROUTES.iter().filter_map(|route| Some((method(route)?, route.path)));
    routes.filter(|(method, path)| *method != Method::GET && act_of(method, path, path).is_some()).collect()
});

/// Whether a request may be an act, told from its path before anything is read.
pub fn administers(method: &Method, path: &str) -> bool {
    ACTS.iter().any(|(of, matched)| of == method && fits(matched, path))
}

fn fits(matched: &str, path: &str) -> bool {
    let (mut matched, mut path) = (matched.split('/'), path.split('/'));
    loop {
        match (matched.next(), path.next()) {
            (None, None) => return true,
            (Some(of), Some(word)) if of == word || of.starts_with('{') => {}
            _ => return false,
        }
    }
}

/// What the client calls its request, or an id that is made for it.
pub fn id_of(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let usable =
        |id: &&str| (1..=ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    given.filter(usable).map_or_else(fresh_id, str::to_owned)
}

/// Answers a request under its id; what it administered is written down before the answer leaves.
pub async fn under_id(id: String, answer: impl Future<Output = Response>) -> Response {
    let header = HeaderValue::from_str(&id);
    let asked = Asked { id, tenant: RefCell::new(None), act: RefCell::new(None) };
    let mut response = ASKED
        .scope(asked, async {
            let mut response = answer.await;
            write_down(response.status()).await;
            say_position(&mut response);
            response
        })
        .await;
    if let Ok(id) = header {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Every answer to a write says how far the ledger is: whoever reads elsewhere gives it as `min_position`. Lines that are answered
/// one by one say it themselves.
fn say_position(response: &mut Response) {
    let by_lines = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/x-ndjson");
    if !response.status().is_success() || response.headers().get(CONTENT_TYPE).is_some_and(by_lines) {
        return;
    }
    let head = ASKED.with(|asked| asked.tenant.borrow().as_ref().map_or(0, Tenant::head_begun));
    if head > 0 {
        response.headers_mut().insert(POSITION, HeaderValue::from(head));
    }
}

/// Remembers where a request writes.
pub fn wrote(tenant: &Tenant) {
    let _ = ASKED.try_with(|asked| *asked.tenant.borrow_mut() = Some(tenant.clone()));
}

/// The id of the request that is being answered.
pub fn request_id() -> String {
    ASKED.try_with(|asked| asked.id.clone()).unwrap_or_else(|_| fresh_id())
}

/// Unique among the requests of all processes: process ids come again, in a container after every start.
pub fn fresh_id() -> String {
    let mut id = String::with_capacity(40);
    push_fresh_id(&mut id);
    id
}

/// Appends what [`fresh_id`] returns.
pub fn push_fresh_id(out: &mut String) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static START: LazyLock<String> = LazyLock::new(start);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ["req_", START.as_str(), "_", digits(number, &mut [0; 20])].iter().for_each(|part| out.push_str(part));
}

/// A name that no other start has.
fn start() -> String {
    model::id::hex(&Entropy::kernel().bytes::<6>())
}

/// Remembers what a request is about to administer, if it is.
pub fn note(head: &Parts, tenant: &Tenant, caller: &Caller) {
    if head.method == Method::GET || head.method == Method::HEAD {
        return;
    }
    wrote(tenant);
    let Some(matched) = head.extensions.get::<MatchedPath>() else { return };
    let Some(act) = act_of(&head.method, matched.as_str(), head.uri.path()) else { return };
    let act = Act { act, path: Some(head.uri.path().to_owned()), ..Act::default() };
    let _ = ASKED.try_with(|asked| *asked.act.borrow_mut() = Some((tenant.clone(), caller.clone(), act)));
}

/// `PUT /v1/groups/{name}` is `groups.put`, `POST /v1/groups/{name}/seek` is `groups.seek`, `POST /v1/tokens` is `tokens.create`.
fn act_of(method: &Method, matched: &str, path: &str) -> Option<String> {
    let administers = matches!(
        rights::needed(method, matched)?,
        Permission::Admin
            | Permission::Node
            | Permission::AutomationAdmin
            | Permission::AutomationWrite
            | Permission::GroupWrite
    );
    if !administers || NO_ACTS.contains(&matched) {
        return None;
    }
    let told = matched.split('/').zip(path.split('/')).skip(2);
    let mut words: Vec<String> = told
        .filter(|(of, _)| !of.starts_with('{') || *of == "{what}")
        .map(|(_, word)| word.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect())
        .collect();
    let whole = words.len() == 1 && words[0].ends_with('s');
    match *method {
        Method::POST if whole => words.push("create".to_owned()),
        Method::POST => {}
        _ => words.push(method.as_str().to_ascii_lowercase()),
    }
    Some(words.join("."))
}

/// The name of the act that a request to this path is, with variables in braces or words for them; `None`: it is none.
pub fn act(method: &str, path: &str) -> Option<String> {
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let (_, matched) = ACTS.iter().find(|(of, matched)| *of == method && fits(matched, path))?;
    act_of(&method, matched, path)
}

/// Says how much of an act is done: all of it, or the part that stands although the rest was refused.
pub fn did(what: Value) {
    let _ = ASKED.try_with(|asked| {
        if let Some((_, _, act)) = asked.act.borrow_mut().as_mut() {
            act.done = Some(what);
        }
    });
}

/// What was not done is no act. What ended in a bug may be done, and so may a part of what was refused.
async fn write_down(status: StatusCode) {
    let noted = ASKED.try_with(|asked| asked.act.borrow_mut().take().map(|act| (act, asked.id.clone())));
    let Ok(Some(((tenant, caller, mut act), id))) = noted else { return };
    let may_be_done = status == StatusCode::INTERNAL_SERVER_ERROR || act.done.is_some();
    if !status.is_success() && !may_be_done {
        return;
    }
    act.status = Some(status.as_u16());
    act.request_id = Some(id);
    written(&tenant, &caller, &act).await;
}

/// Writes an act down, or says in the log that it could not be.
pub async fn written(tenant: &Tenant, caller: &Caller, act: &Act) {
    let (what, request_id) = (act.act.as_str(), act.request_id.as_deref());
    match tenant.audit(caller, act).await {
        Ok(()) => tracing::info!(
            tenant = tenant.name(),
            actor = caller.actor,
            act = what,
            request_id,
            "administered"
        ),
        Err(problem) => {
            tracing::error!(tenant = tenant.name(), actor = caller.actor, act = what, request_id, %problem,
                "administered, and not written down");
        }
    }
}

/// `GET /v1/audit`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&["since", "limit", "cursor"]).await?;
    let (since, limit) = (params.instant("since")?, params.limit("limit", 100, 1_000)?);
    let (tenant, cursor) = (call.tenant, params.owned("cursor"));
    let page = aside::blocking(move || tenant.acts(since, limit, cursor)).await;
    let (acts, next) = page.map_err(|problem| match problem.extra().get("parameter") {
        // Acts are found as events are, by a topic and in an order that nobody chose here.
        Some(of) if of == "cursor" => {
            problem.hint("give the \"next\" of a page of acts, or begin without one")
        }
        _ => problem,
    })?;
    let mut page = json!({ "acts": acts });
    if let Some(next) = next {
        page["next"] = next.into();
    }
    Ok(json_answer(StatusCode::OK, page.to_string()))
}

/// `GET /v1/audit/checkpoints`: with one of this moment.
pub async fn checkpoints(call: Call) -> Answer {
    call.read_params(&[]).await?;
    let tenant = call.tenant;
    let said = aside::blocking(move || {
        checkpoint(&tenant)?;
        testimony(dir(&tenant)?)
    });
    Ok(json_answer(StatusCode::OK, said.await?.to_json().to_string()))
}

/// `POST /v1/audit/verify`
pub async fn verify(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let tenant = call.tenant.clone();
    let said = object(&call.bytes(BODY_MAX).await?, &["checkpoints", "key", "algorithm"])?;
    let wrong = |at: &str, why: String| Problem::new(Code::RequestInvalid, why).at(at);
    let checkpoints: Vec<Checkpoint> = match said.get("checkpoints") {
        None | Some(Value::Null) => Vec::new(),
        // Nothing would be compared, and the answer would read as if it had been.
        Some(Value::Array(list)) if list.is_empty() => {
            let why = wrong("/checkpoints", "there is no checkpoint in the list".to_owned());
            return Err(why.hint("give some, or leave \"checkpoints\" out to check the chain alone").into());
        }
        Some(list) => {
            serde_json::from_value(list.clone()).map_err(|error| wrong("/checkpoints", error.to_string()))?
        }
    };
    let key = match said.get("key") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(key)) => key.clone(),
        Some(other) => return Err(wrong("/key", format!("a key is a text, not {other}")).into()),
    };
    let report =
        aside::blocking(move || audit(dir(&tenant)?, tenant.name(), Some(Testimony { key, checkpoints })));
    Ok(json_answer(StatusCode::OK, report.await?.to_json().to_string()))
}

fn dir(tenant: &Tenant) -> Result<&std::path::Path, Problem> {
    let absent = || Problem::new(Code::NotFound, "this tenant has no ledger yet");
    tenant.dir().map(std::path::PathBuf::as_path).filter(|_| !tenant.is_unborn()).ok_or_else(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_administered_is_known_by_its_path() {
        let post = |path: &str| administers(&Method::POST, path);
        assert!(post("/v1/tokens") && post("/v1/import") && post("/v1/groups/g/seek") && post("/v1/apply"));
        assert!(!post("/v1/groups/g/pull") && !post("/v1/tokens/") && !post("/v1/plan") && !post("/livez"));
        assert!(administers(&Method::DELETE, "/v1/tokens/t") && !administers(&Method::GET, "/v1/tokens"));
    }

    #[test]
    fn ids_of_requests_are_of_one_start_and_come_once() {
        assert_ne!(start(), start());
        let (first, second) = (fresh_id(), fresh_id());
        assert!(first != second && first.rsplit_once('_').unwrap().0 == second.rsplit_once('_').unwrap().0);
    }

    #[test]
    fn acts_are_named_by_what_is_done_to_what() {
        let named = |method: &str, matched: &str, path: &str| {
            act_of(&Method::from_bytes(method.as_bytes()).unwrap(), matched, path).unwrap_or_default()
        };
        let cases = [
            ("PUT", "/v1/groups/{name}", "/v1/groups/g", "groups.put"),
            ("POST", "/v1/groups/{name}/seek", "/v1/groups/g/seek", "groups.seek"),
            (
                "POST",
                "/v1/groups/{name}/dead-letters/redrive",
                "/v1/groups/g/dead-letters/redrive",
                "groups.dead-letters.redrive",
            ),
            ("POST", "/v1/tokens", "/v1/tokens", "tokens.create"),
            ("DELETE", "/v1/tokens/{id}", "/v1/tokens/t", "tokens.delete"),
            ("POST", "/v1/automations/{name}/{what}", "/v1/automations/a/pause", "automations.pause"),
            ("POST", "/v1/apply", "/v1/apply", "apply"),
            ("POST", "/v1/erase", "/v1/erase", "erase"),
            ("POST", "/v1/groups/{name}/ack", "/v1/groups/g/ack", ""),
            ("POST", "/v1/plan", "/v1/plan", ""),
            ("PUT", "/v1/entities/{concept}/{id}", "/v1/entities/c/1", ""),
        ];
        for (method, matched, path, act) in cases {
            assert_eq!(named(method, matched, path), act, "{method} {matched}");
        }
    }
}
