//! The first page: what was recorded and what came of it, as plain HTML that the server writes (seed 003's timeline).
//!
//! ```text
//!   GET /ui/runs ─▶ Visit ─────────────▶ runs::list ─▶ JSON ─▶ HTML
//!                   the cookie is the     the door that programs use: the same rights,
//!                   token of the request  the same limits, nothing a token may not see
//! ```
//! But for the two positions that `/ui/health` shows, a page never asks the engine itself. It changes nothing, so the cookie can do no harm where another site uses it.

mod event;
mod groups;
mod health;
mod html;
mod runs;
mod sign_in;
mod timeline;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Path, Request, State};
use axum::response::{IntoResponse, Response};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue,
};
use hyper::{HeaderMap, StatusCode, Uri};
use model::{Code, Problem};
use serde_json::Value;

pub use event::event;
pub use groups::{group, groups};
pub use health::health;
pub use runs::{automation, automations, run, runs, waits};
pub use sign_in::{sign_in, sign_in_page, sign_out};
pub use timeline::{stream, timeline};

use crate::Doors;
use crate::caller::Call;
use crate::problem::{Answer, Refusal};

/// Under which name a browser keeps its token.
const COOKIE_NAME: &str = "everwhen";
/// The longest answer of a door that a page is made of.
const ANSWER_MAX: usize = 64 << 20;

const NOT_SHOWN: &str = "the token that you signed in with may not read this; sign in with one that may, such as a viewer's \
    (an owner or admin gives one out: everwhen tokens create --role viewer)";

/// A request of somebody with a browser.
pub struct Visit(Call);

impl FromRequest<Arc<Doors>> for Visit {
    type Rejection = Response;

    async fn from_request(mut request: Request, doors: &Arc<Doors>) -> Result<Visit, Response> {
        if !request.headers().contains_key(AUTHORIZATION)
            && let Some(token) = kept(request.headers())
            && let Ok(value) = HeaderValue::from_str(&format!("Bearer {token}"))
        {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        match Call::from_request(request, doors).await {
            Ok(call) => Ok(Visit(call)),
            Err(refused) => Err(match said(Ok(refused)).await {
                Err(failed) if failed.status == StatusCode::UNAUTHORIZED => {
                    sign_in::form(&failed.words(), StatusCode::UNAUTHORIZED, Frame::without_token())
                }
                // What the token may not see is empty or absent for programs; a person is told why.
                Err(failed) if !matches!(failed.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => {
                    Frame::of(doors).around(Err(failed))
                }
                _ => sign_in::form(NOT_SHOWN, StatusCode::FORBIDDEN, Frame::of(doors)),
            }),
        }
    }
}

/// The token that the browser keeps.
fn kept(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(COOKIE)?.to_str().ok()?.split("; ");
    cookies
        .filter_map(|cookie| cookie.split_once('='))
        .find(|(name, _)| *name == COOKIE_NAME)
        .map(|(_, token)| token)
}

/// What stands around every page, by whether this server asks for tokens.
#[derive(Clone, Copy)]
struct Frame {
    has_tokens: bool,
}

impl Frame {
    fn of(doors: &Doors) -> Frame {
        Frame { has_tokens: !doors.no_auth }
    }

    /// For somebody who has not signed in, and so has nothing to sign out of.
    fn without_token() -> Frame {
        Frame { has_tokens: false }
    }

    fn around(self, shown: Shown) -> Response {
        shown.unwrap_or_else(Failed::page).framed(self)
    }
}

impl Visit {
    fn frame(&self) -> Frame {
        Frame::of(&self.0.doors)
    }

    /// The same request with another query, as the door wants it.
    fn asking(mut self, query: &str) -> Result<Call, Failed> {
        let path = self.0.head.uri.path();
        let uri = format!("{path}?{query}").parse::<Uri>();
        self.0.head.uri = uri.map_err(|_| Problem::new(Code::RequestInvalid, "that cannot be asked for"))?;
        Ok(self.0)
    }

    /// The request for another door, of which only who asks is kept.
    fn again(&self) -> Visit {
        let Call { doors, tenant, caller, grant, head, .. } = &self.0;
        let mut parts = hyper::Request::new(()).into_parts().0;
        (parts.uri, parts.headers) = (head.uri.clone(), head.headers.clone());
        Visit(Call {
            doors: doors.clone(),
            tenant: tenant.clone(),
            caller: caller.clone(),
            grant: grant.clone(),
            head: parts,
            body: Body::empty(),
        })
    }
}

/// What a person reads instead of a page.
struct Failed {
    detail: String,
    hint: String,
    status: StatusCode,
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Failed {
        let status = Refusal(problem.clone()).into_response().status();
        Failed { detail: problem.to_string(), hint: problem.advice().to_owned(), status }
    }
}

impl Failed {
    /// In one line.
    fn words(&self) -> String {
        match self.hint.as_str() {
            "" => self.detail.clone(),
            hint => format!("{} ({hint})", self.detail),
        }
    }

    fn page(self) -> html::Page {
        let title = self.status.canonical_reason().unwrap_or("refused");
        self.within(&html::Head { title, at: "" }, "")
    }

    /// On the page that was asked for, below its form with what was typed: that is where it is mended.
    fn within(self, head: &html::Head<'_>, form: &str) -> html::Page {
        let (detail, hint) = (html::text(&self.detail), html::text(&self.hint));
        let body = format!("{form}<p role=\"alert\">{detail}</p><p>{hint}</p>");
        html::page(self.status, head, &body)
    }
}

type Shown = Result<html::Page, Failed>;

/// What a door answered.
async fn said(answer: Answer) -> Result<Value, Failed> {
    let response = answer.map_err(|Refusal(problem)| Failed::from(problem))?;
    let (status, body) = (response.status(), response.into_body());
    let bytes = axum::body::to_bytes(body, ANSWER_MAX).await;
    let value: Value = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    if status.is_success() || value.get("code").is_none() {
        return Ok(value);
    }
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    Err(Failed { detail: text("detail"), hint: text("hint"), status })
}

/// `GET /ui/{file}`: what the pages look like and how the first one stays live.
pub async fn file(Path(name): Path<String>, State(doors): State<Arc<Doors>>) -> Response {
    let (kind, text) = match name.as_str() {
        "style.css" => ("text/css; charset=utf-8", include_str!("page/style.css")),
        "live.js" => ("text/javascript; charset=utf-8", include_str!("page/live.js")),
        _ => return no_page(&format!("/ui/{name}"), &doors),
    };
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Told to a person, who goes on from the parts above.
pub fn no_page(path: &str, doors: &Doors) -> Response {
    let problem = Problem::new(Code::NotFound, format!("there is no page \"{path}\""));
    Frame::of(doors).around(Err(problem.hint("the parts that there are stand above").into()))
}

/// Nothing of a page runs or loads that did not come from here, nobody may put it into a frame, and no cache keeps it.
fn guarded(mut response: Response) -> Response {
    const GUARDS: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        ),
        (hyper::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (hyper::header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in GUARDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
