//! `everwhen try webhook --jsonl`: one delivery as a JSON object in, whether it is believed out (contracts §5).

use model::{Code, Problem, Timestamp, base64};
use serde_json::{Map, Value, json};

use super::signature::{Delivery, Scheme, Secret, verify};

/// Answers one case. Without a tolerance nothing is too old; a real hook has 300 s.
pub fn answer(case: &Map<String, Value>, now: Timestamp) -> Result<Value, Problem> {
    let text = |name: &str| case.get(name).and_then(Value::as_str);
    let needed = |name: &str| {
        text(name).ok_or_else(|| Problem::new(Code::HookInvalid, format!("\"{name}\" is missing or no text")))
    };
    let scheme = Scheme::parse(needed("scheme")?)?;
    let secret = Secret::parse(scheme, needed("secret")?)?;
    let headers = lower(case.get("headers"))?;
    let body = match text("body_b64") {
        Some(coded) => base64::decode_loosely(coded)
            .ok_or_else(|| Problem::new(Code::HookInvalid, "\"body_b64\" is not base64"))?,
        None => needed("body")?.as_bytes().to_vec(),
    };
    let header =
        |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let delivery = Delivery {
        header: &header,
        body: &body,
        now: seconds(case.get("now"))?.unwrap_or(now.millis() / 1_000),
        tolerance: seconds(case.get("tolerance_seconds"))?,
    };
    Ok(match verify(scheme, &secret, &delivery) {
        Ok(()) => json!({"valid": true}),
        Err(reason) => json!({"valid": false, "reason": reason.as_str()}),
    })
}

/// One line in, one line out; `id` is echoed.
pub fn line(text: &str, now: Timestamp) -> Value {
    let case = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(case)) => Ok(case),
        Ok(_) => Err(Problem::new(Code::JsonInvalid, "a case is a JSON object")),
        Err(error) => Err(Problem::new(Code::JsonInvalid, error.to_string())),
    };
    let id = case.as_ref().ok().and_then(|case| case.get("id").cloned());
    let mut said = case.and_then(|case| answer(&case, now)).unwrap_or_else(
        |problem| json!({"error": {"code": problem.code().as_str(), "message": problem.detail()}}),
    );
    if let Some(id) = id {
        said["id"] = id;
    }
    said
}

fn lower(headers: Option<&Value>) -> Result<Vec<(String, String)>, Problem> {
    let wrong = || Problem::new(Code::HookInvalid, "\"headers\" is an object of names and texts");
    match headers {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| {
                Ok((name.to_ascii_lowercase(), value.as_str().ok_or_else(wrong)?.to_owned()))
            })
            .collect(),
        Some(_) => Err(wrong()),
    }
}

/// Whole seconds since 1970, or an instant as text.
fn seconds(value: Option<&Value>) -> Result<Option<i64>, Problem> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(Timestamp::parse(text)?.millis() / 1_000)),
        Some(other) => other
            .as_i64()
            .map(Some)
            .ok_or_else(|| Problem::new(Code::HookInvalid, format!("{other} is no whole number of seconds"))),
    }
}
