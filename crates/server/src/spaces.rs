//! Spaces over HTTP: which are sealed, sealing one, forgetting one.

use axum::extract::Path;
use hyper::StatusCode;
use model::{Code, Problem};

use crate::caller::Call;
use crate::listing;
use crate::problem::Answer;
use crate::publish::json as json_answer;

/// `GET /v1/spaces`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    listing::page(&params, "spaces", "name", call.tenant.spaces()?)
}

/// `POST /v1/spaces/{name}/seal` and `/forget`
pub async fn act(Path((name, what)): Path<(String, String)>, call: Call) -> Answer {
    call.params(&[])?;
    let space = match what.as_str() {
        "seal" => call.tenant.seal_space(&call.caller, &name).await?.1,
        "forget" => {
            let forgotten = call.tenant.forget_space(&call.caller, &name).await?;
            call.doors.keys.forget(call.tenant.name());
            forgotten
        }
        _ => {
            return Err(Problem::new(Code::NotFound, format!("a space has no \"{what}\""))
                .hint("one of seal, forget")
                .into());
        }
    };
    Ok(json_answer(StatusCode::OK, space.to_string()))
}
