//! `POST /v1/clock`: moves the time of a server whose clock stands still otherwise (contracts §9).

use engine::clock::Move;
use hyper::StatusCode;
use model::{Code, Problem, time};
use serde_json::{Map, Value, json};

use crate::aside;
use crate::body::{instant, object, only_json};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;

const BODY_MAX: usize = 4 << 10;

pub async fn advance(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let engine = call.doors.engine.clone();
    let by = read(&object(&call.bytes(BODY_MAX).await?, &["advance", "to"])?)?;
    let now = aside::blocking(move || engine.move_clock(by)).await?;
    Ok(json_answer(StatusCode::OK, json!({ "now": now }).to_string()))
}

fn read(said: &Map<String, Value>) -> Result<Move, Problem> {
    let wrong = |detail: &str| {
        Problem::new(Code::RequestInvalid, detail)
            .hint("{\"advance\":\"5m\"} or {\"to\":\"2026-01-01T00:05:00Z\"}; {\"advance\":0} only waits for what is due")
    };
    match (said.get("advance"), said.get("to")) {
        (Some(by), None) => time::duration_of(by)
            .map(Move::By)
            .ok_or_else(|| wrong("\"advance\" is a length of time").at("/advance")),
        (None, Some(_)) => {
            instant(said, "to")?.map(Move::To).ok_or_else(|| wrong("\"to\" is an instant").at("/to"))
        }
        _ => Err(wrong("the clock is moved by \"advance\" or \"to\", one of them")),
    }
}
