//! Who is asking and for which tenant: read from the headers before any door does its work (contracts §13).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::authority::{Grant, Permission};
use engine::telemetry::passed_on;
use engine::{Caller, DEFAULT_TENANT, Seen, Tenant};
use hyper::HeaderMap;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use model::{Code, Position, Problem};

use crate::openapi::takes_nothing;
use crate::problem::{Refusal, bad_request};
use crate::query::Params;
use crate::socket::Cut;
use crate::{Doors, aside, audit, body, listing, rights};

pub const TENANT: HeaderName = HeaderName::from_static("everwhen-tenant");
pub const ACTOR: HeaderName = HeaderName::from_static("everwhen-actor");
/// The parameter of every read, and a field of what a pull says.
pub const MIN_POSITION: &str = "min_position";
/// Longest body where none is needed.
const NOTHING_MAX: usize = 64 << 10;
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// One request to a door that concerns a tenant.
pub struct Call {
    pub doors: Arc<Doors>,
    pub tenant: Tenant,
    pub caller: Caller,
    /// `None`: may do everything.
    pub grant: Option<Arc<Grant>>,
    pub head: Parts,
    pub body: Body,
}

impl FromRequest<Arc<Doors>> for Call {
    type Rejection = Response;

    async fn from_request(request: Request, doors: &Arc<Doors>) -> Result<Call, Response> {
        let (head, body) = request.into_parts();
        let grant = rights::grant(&head, doors).map_err(refused)?;
        if let Some(denied) = grant.as_deref().and_then(|grant| rights::denied(&head, grant)) {
            return Err(denied);
        }
        listing::check_untagged(&head, rights::matched(&head)).map_err(refused)?;
        let call = Call::of(head, body, grant, doors).await.map_err(refused)?;
        match takes_nothing(&call.head.method, rights::matched(&call.head)) {
            true => call.said_nothing().await.map_err(refused),
            false => Ok(call),
        }
    }
}

fn refused(problem: Problem) -> Response {
    Refusal(problem).into_response()
}

impl Call {
    /// A request that is no route's: it needs what is said here, or only a token.
    pub async fn admitted(
        request: Request,
        doors: &Arc<Doors>,
        needed: Option<Permission>,
    ) -> Result<Call, Problem> {
        let (head, body) = request.into_parts();
        let grant = rights::grant(&head, doors)?;
        if let (Some(grant), Some(needed)) = (&grant, needed)
            && !grant.may(needed)
        {
            let detail = format!("this token does not allow \"{}\"", needed.as_str());
            return Err(Problem::new(Code::AuthDenied, detail).hint("use a token that does"));
        }
        Call::of(head, body, grant, doors).await
    }

    async fn of(
        head: Parts,
        body: Body,
        grant: Option<Arc<Grant>>,
        doors: &Arc<Doors>,
    ) -> Result<Call, Problem> {
        body::not_encoded(&head.headers)?;
        body::is_named(&head.headers, &body)?;
        let caller = caller(&head.headers, grant.as_deref())?;
        let named = match &grant {
            // The tenant is the token's; who names another was refused.
            Some(grant) => Some(grant.tenant.as_str()),
            // Who manages a tenant stands in the house: that one may be suspended, or not open at all.
            None if head.uri.path().starts_with("/v1/tenants") => Some(DEFAULT_TENANT),
            None => text(&head.headers, &TENANT)?,
        };
        let tenant = tenant(named, doors).await?;
        audit::note(&head, &tenant, &caller);
        Ok(Call { doors: doors.clone(), tenant, caller, grant, head, body })
    }

    /// Refuses what stands in a body that nobody reads: who says `dry_run` there means it.
    async fn said_nothing(mut self) -> Result<Call, Problem> {
        let given = std::mem::take(&mut self.body);
        let bytes = body::read(given, NOTHING_MAX, self.doors.patience.body).await?;
        if !bytes.is_empty() {
            body::only_json(&self.head.headers)?;
            body::object_or(body::code_at(rights::matched(&self.head)), &bytes, &[])?;
        }
        Ok(self)
    }

    /// The tenant, as much of it as the caller sees.
    pub fn seen(&self) -> Seen {
        self.tenant.seen_by(&self.caller.sight)
    }

    /// Ready, with what to say, once the caller may not go on: for what is held open.
    pub fn over(&self) -> impl Future<Output = Problem> + Send + use<> {
        let (doors, grant, tenant) = (self.doors.clone(), self.grant.clone(), self.tenant.clone());
        async move { rights::over(&doors, grant, tenant).await }
    }

    /// Ready once the client will say no more and perhaps has gone: nothing new is then handed to it.
    pub fn said_all(&self) -> impl Future<Output = ()> + Send + use<> {
        let cut = self.head.extensions.get::<Cut>().cloned();
        async move {
            match cut {
                Some(cut) => cut.said_all().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The query's parameters, of which only `known` may stand there.
    pub fn params(&self, known: &[&str]) -> Result<Params, Problem> {
        Params::read(self.head.uri.query(), known)
    }

    /// As [`Call::params`], for a read: waits until the ledger has reached `min_position`, if that is given.
    pub fn read_params(
        &self,
        known: &[&str],
    ) -> impl Future<Output = Result<Params, Problem>> + Send + use<> {
        let params = self.params(&[known, &[MIN_POSITION]].concat());
        // Not `self`, whose body no other thread may look at meanwhile.
        let (doors, tenant) = (self.doors.clone(), self.tenant.clone());
        async move {
            let params = params?;
            if let Some(position) = params.position(MIN_POSITION)? {
                wait_for(&doors, &tenant, position).await?;
            }
            Ok(params)
        }
    }

    /// The whole body, at most `bytes_max` long.
    pub async fn bytes(self, bytes_max: usize) -> Result<Bytes, Problem> {
        body::read(self.body, bytes_max, self.doors.patience.body).await
    }
}

/// What a read asks to have seen at least (rules R1). Ready at once where this server wrote it; a client that got
/// its position elsewhere waits a little, and is told how far the ledger is if that was in vain.
pub async fn wait_for(doors: &Doors, tenant: &Tenant, position: Position) -> Result<(), Problem> {
    match tokio::time::timeout(doors.patience.position, tenant.reached(position)).await {
        Ok(reached) => reached,
        Err(_) => {
            let head = tenant.head();
            let detail = format!("the ledger has reached position {head}, not {position}");
            Err(Problem::new(Code::PositionAhead, detail)
                .hint("try again, or ask without \"min_position\" for what is there")
                .with("position", head))
        }
    }
}

/// Compares without telling by its duration where the first difference is.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn caller(headers: &HeaderMap, grant: Option<&Grant>) -> Result<Caller, Problem> {
    let mut caller = match (grant, text(headers, &ACTOR)?) {
        (Some(grant), _) => of_token(grant),
        (None, Some(actor)) => {
            Caller::named(actor).map_err(|problem| problem.with("parameter", ACTOR.as_str()))?
        }
        (None, None) => Caller::local(),
    };
    // A trace that cannot be read is no reason to refuse an event (W3C trace context says: ignore it).
    caller.trace = trace(headers);
    Ok(caller)
}

pub fn of_token(grant: &Grant) -> Caller {
    Caller { actor: grant.actor(), trace: None, outside: true, sight: grant.sight.clone() }
}

/// To whose trace a request belongs.
pub fn trace(headers: &HeaderMap) -> Option<String> {
    passed_on(headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()))
}

pub async fn tenant(named: Option<&str>, doors: &Arc<Doors>) -> Result<Tenant, Problem> {
    let name = named.unwrap_or(&doors.default_tenant);
    let default = name == doors.default_tenant;
    doors.engine.admits(name)?;
    // One that was suspended meanwhile is another after.
    if default && let Some(tenant) = doors.default.get().filter(|tenant| !tenant.is_closing()) {
        return Ok(tenant.clone());
    }
    let (engine, owned) = (doors.engine.clone(), name.to_owned());
    let tenant = aside::blocking(move || engine.visit(&owned)).await?;
    if default && !tenant.is_unborn() {
        // Two first requests may both have opened it; both handles are the same tenant.
        let _ = doors.default.set(tenant.clone());
    }
    Ok(tenant)
}

/// As [`tenant`], of one that is open.
pub fn tenant_now(named: Option<&str>, doors: &Doors) -> Option<Tenant> {
    let name = named.unwrap_or(&doors.default_tenant);
    doors.engine.admits(name).ok()?;
    let default = doors.default.get().filter(|tenant| name == doors.default_tenant && !tenant.is_closing());
    default.cloned().or_else(|| doors.engine.opened_now(name))
}

/// A tenant by name, as it is now.
pub async fn visited(doors: &Doors, name: &str) -> Result<Tenant, Problem> {
    let (engine, name) = (doors.engine.clone(), name.to_owned());
    aside::blocking(move || engine.visit(&name)).await
}

/// A header's text; absent when it is empty.
pub fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text =
        std::str::from_utf8(value.as_bytes()).map_err(|_| bad_request(name.as_str(), "is not UTF-8"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}
