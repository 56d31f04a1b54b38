//! Signing in with a token: the browser keeps it where no script can read it, and sends it to this server only.
//!
//! People's single sign-on comes with the console; it will set the same cookie.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderValue, LOCATION, SET_COOKIE};
use hyper::http::request::Parts;
use model::Problem;
use std::sync::Arc;

use super::html::{Head, page, text};
use super::{COOKIE_NAME, Failed, Frame};
use crate::query::Params;
use crate::{Doors, body, rights};

/// The longest form that can hold a token.
const FORM_MAX: usize = 4 * 1024;

/// What somebody sees who has not signed in, or whose token is no longer good, or not for this page.
pub fn form(why: &str, status: StatusCode, frame: Frame) -> Response {
    let body = format!(
        "<p role=\"status\">{}</p>\
         <form method=\"post\" action=\"/ui/sign-in\"><label>Token \
         <input type=\"password\" name=\"token\" autocomplete=\"current-password\" required autofocus></label> \
         <button>Sign in</button></form>",
        text(why)
    );
    page(status, &Head { title: "Sign in", at: "" }, &body).framed(frame)
}

/// `GET /ui/sign-in`
pub async fn sign_in_page() -> Response {
    let why = "Sign in with a token (an owner or admin gives one out: everwhen tokens create).";
    form(why, StatusCode::OK, Frame::without_token())
}

/// `POST /ui/sign-in`: keeps a token that is good; what it may see, the next page finds out.
pub async fn sign_in(State(doors): State<Arc<Doors>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let forwarded = head.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = forwarded || doors.tls.is_some();
    let read = body::read(body, FORM_MAX, doors.patience.body).await;
    let token = read.and_then(|bytes| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Params::read(Some(&text), &["token"])?.owned("token").unwrap_or_default())
    });
    match token {
        Ok(token) if is_token(token.trim()) => match is_good(token.trim(), head, &doors) {
            Ok(()) => keep(token.trim(), secure),
            Err(problem) => {
                let failed = Failed::from(problem);
                form(&failed.words(), failed.status, Frame::without_token())
            }
        },
        Ok(_) => {
            let why = "that is no token: it begins with \"ew_\"";
            form(why, StatusCode::UNPROCESSABLE_ENTITY, Frame::without_token())
        }
        Err(problem) => Frame::of(&doors).around(Err(Failed::from(problem))),
    }
}

/// As every other door asks for it, and guesses are counted there.
fn is_good(token: &str, mut head: Parts, doors: &Doors) -> Result<(), Problem> {
    if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {token}")) {
        head.headers.insert(AUTHORIZATION, bearer);
    }
    rights::grant(&head, doors).map(drop)
}

/// Nothing that could end the cookie and begin another header.
fn is_token(text: &str) -> bool {
    (8..=512).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn keep(token: &str, secure: bool) -> Response {
    let secure = if secure { "; Secure" } else { "" };
    away(&format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"))
}

/// `POST /ui/sign-out`
pub async fn sign_out() -> Response {
    away(&format!("{COOKIE_NAME}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"))
}

fn away(cookie: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
