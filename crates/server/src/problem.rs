//! How a refusal leaves the server: `application/problem+json` with a request id (contracts §3).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode, Uri};
use model::problem::Who;
use model::{Code, Problem};
use serde_json::Value;

use crate::page::no_page;
use crate::{Doors, routes};

/// What a door answers.
pub type Answer = Result<Response, Refusal>;

/// A problem on its way out.
pub struct Refusal(pub Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(problem) = self;
        let request_id = crate::audit::request_id();
        log(&problem, &request_id);
        let code = problem.code();
        let mut document = problem.to_json();
        document.insert("request_id".into(), Value::String(request_id));
        let mut response = Response::new(Body::from(Value::Object(document).to_string()));
        *response.status_mut() =
            StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match code.status() {
            401 => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            429 => {
                let after = problem.extra().get("retry_after").and_then(Value::as_u64).unwrap_or(1);
                headers.insert(RETRY_AFTER, HeaderValue::from(after));
            }
            _ => {}
        }
        response
    }
}

/// Says in the log what the operator or we have to act on; what a client did wrong is the client's to read.
fn log(problem: &Problem, request_id: &str) {
    let (code, detail) = (problem.code().as_str(), problem.detail());
    match problem.code().who() {
        Who::Us => tracing::error!(request_id, code, detail, "refused a request"),
        Who::Operator if problem.code().status() >= 500 => {
            tracing::warn!(request_id, code, detail, "refused a request");
        }
        _ => tracing::debug!(request_id, code, detail, "refused a request"),
    }
}

pub async fn no_such_path(State(doors): State<Arc<Doors>>, uri: Uri) -> Response {
    if uri.path() == "/ui" || uri.path().starts_with("/ui/") {
        return no_page(uri.path(), &doors);
    }
    let problem = Problem::new(Code::NotFound, format!("there is no path \"{}\"", uri.path()));
    let hint = format!("there are {}; docs/http.md says what each does", routes::beginnings());
    Refusal(problem.hint(hint)).into_response()
}

pub async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let detail = format!("\"{}\" does not answer {method}", uri.path());
    Refusal(Problem::new(Code::MethodNotAllowed, detail).hint("the header \"allow\" names what it answers"))
}

/// `GET /errors/{code}`: what a problem's `type` leads to.
pub async fn page(Path(text): Path<String>) -> Answer {
    let known = Code::ALL.iter().find(|code| code.as_str() == text);
    let unknown = || Problem::new(Code::NotFound, format!("there is no error code \"{text}\""));
    let code = known.ok_or_else(unknown)?;
    let mut response = Response::new(Body::from(code.page()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/markdown; charset=utf-8"));
    Ok(response)
}

/// A 400 that names the parameter or header that is wrong.
pub fn bad_request(what: &str, why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::RequestInvalid, format!("\"{what}\" {why}")).with("parameter", what)
}
