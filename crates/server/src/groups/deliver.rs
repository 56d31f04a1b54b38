//! How a remote worker takes events from a group and says what became of them: pull, ack, nack, extend,
//! reject.

use std::fmt::Write;
use std::pin::pin;
use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use engine::{Delivery, Most, Settled};
use hyper::StatusCode;
use model::Problem;
use model::event::push_text;
use model::time::duration_of;
use serde_json::{Map, Value, json};

use super::{Verb, verb, wrong};
use crate::caller::{Call, MIN_POSITION, wait_for};
use crate::problem::Answer;
use crate::publish::json as json_answer;

const PULL_MAX: u64 = 1_000;
/// Events in one answer; one delivery is there, however large.
const PULL_BYTES_MAX: usize = 8 << 20;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// `pull`: without `wait` it answers at once.
pub async fn pull(Path(name): Path<String>, call: Call) -> Answer {
    let (over, said_all) = (call.over(), call.said_all());
    let Verb { doors, tenant, seen, said } = verb(call, &["max", "wait", MIN_POSITION]).await?;
    let max = match said.get("max") {
        None => 100,
        Some(value) => {
            let max = value.as_u64().filter(|max| (1..=PULL_MAX).contains(max));
            max.ok_or_else(|| wrong("/max", format!("\"max\" is a whole number from 1 to {PULL_MAX}")))?
        }
    };
    let wait = duration(&said, "wait")?.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(wrong("/wait", "\"wait\" is at most 60 s").into());
    }
    if let Some(value) = said.get(MIN_POSITION) {
        let wrong = || wrong("/min_position", format!("\"min_position\": {value} is not a position"));
        wait_for(&doors, &tenant, value.as_u64().ok_or_else(wrong)?).await?;
    }
    let most = Most { events: max as usize, bytes: PULL_BYTES_MAX };
    let mut over = pin!(over);
    let mut pulled = tokio::select! {
        biased;
        // First: nothing is handed to a token that has just lost its effect.
        problem = &mut over => return Err(problem.into()),
        // What is there is for whoever asks, also for who will say no more.
        pulled = seen.pull(&name, most, Duration::ZERO) => pulled?,
    };
    if pulled.is_empty() && !wait.is_zero() {
        pulled = tokio::select! {
            biased;
            problem = over => return Err(problem.into()),
            pulled = seen.pull(&name, most, wait) => pulled?,
            () = doors.closing() => Vec::new(),
            () = said_all => Vec::new(),
        };
    }
    Ok(json_answer(StatusCode::OK, deliveries(&pulled)))
}

/// Written by hand, because this is how a backlog leaves: no value is built in between.
fn deliveries(pulled: &[Delivery]) -> String {
    let payloads: usize = pulled.iter().map(|d| d.event.content.payload().map_or(0, str::len)).sum();
    let mut out = String::with_capacity(32 + 512 * pulled.len() + payloads);
    out.push_str("{\"deliveries\":[");
    for (i, delivery) in pulled.iter().enumerate() {
        out.push_str(if i == 0 { "{\"token\":" } else { ",{\"token\":" });
        push_text(&mut out, &delivery.token.to_string());
        let (attempt, deadline) = (delivery.attempt, delivery.deadline);
        // Writing to a String cannot fail.
        let _ = write!(out, ",\"attempt\":{attempt},\"deadline\":\"{deadline}\",\"event\":");
        delivery.event.write_json(&mut out);
        out.push('}');
    }
    out.push_str("]}");
    out
}

pub async fn ack(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, seen, mut said, .. } = verb(call, &["tokens", "sync"]).await?;
    let (tokens, others) = seen.own_tokens(&name, tokens(&mut said)?)?;
    let sync = switch(&said, "sync")?;
    Ok(settled(tenant.ack(&name, &tokens, sync).await?, others))
}

pub async fn nack(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, seen, mut said, .. } = verb(call, &["tokens", "delay", "error", "halt"]).await?;
    let (tokens, others) = seen.own_tokens(&name, tokens(&mut said)?)?;
    let delay = duration(&said, "delay")?;
    if switch(&said, "halt")? {
        return Ok(settled(tenant.nack_halting(&name, &tokens, error(&said)?).await?, others));
    }
    Ok(settled(tenant.nack(&name, &tokens, delay, error(&said)?).await?, others))
}

pub async fn extend(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, seen, mut said, .. } = verb(call, &["tokens", "by"]).await?;
    let (tokens, others) = seen.own_tokens(&name, tokens(&mut said)?)?;
    let by = duration(&said, "by")?
        .ok_or_else(|| wrong("/by", "\"by\" is missing").hint("say for how long, e.g. \"30s\""))?;
    Ok(settled(tenant.extend(&name, &tokens, by).await?, others))
}

pub async fn reject(Path(name): Path<String>, call: Call) -> Answer {
    let Verb { tenant, seen, mut said, .. } = verb(call, &["tokens", "error"]).await?;
    let (tokens, others) = seen.own_tokens(&name, tokens(&mut said)?)?;
    Ok(settled(tenant.reject(&name, &tokens, error(&said)?).await?, others))
}

fn switch(said: &Map<String, Value>, name: &str) -> Result<bool, Problem> {
    match said.get(name) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(wrong(&format!("/{name}"), format!("\"{name}\" is true or false"))),
    }
}

/// `others`: tokens that were none of the caller's.
fn settled(mut settled: Settled, others: Vec<String>) -> Response {
    settled.stale.extend(others);
    json_answer(StatusCode::OK, json!({"done": settled.done, "stale": settled.stale}).to_string())
}

pub fn tokens(said: &mut Map<String, Value>) -> Result<Vec<String>, Problem> {
    let Some(Value::Array(list)) = said.remove("tokens") else {
        return Err(
            wrong("/tokens", "\"tokens\" is a list of tokens").hint("give the tokens of the deliveries")
        );
    };
    let read = |(i, value): (usize, Value)| match value {
        Value::String(token) => Ok(token),
        other => Err(wrong(&format!("/tokens/{i}"), format!("{other} is not a token"))),
    };
    list.into_iter().enumerate().map(read).collect()
}

pub fn error(said: &Map<String, Value>) -> Result<Option<String>, Problem> {
    match said.get("error") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong("/error", "\"error\" is a string")),
    }
}

pub fn duration(said: &Map<String, Value>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(value) = said.get(name) else { return Ok(None) };
    let wrong = || {
        wrong(&format!("/{name}"), format!("\"{name}\": {value} is not a duration"))
            .hint("write \"30s\", \"1h30m\", \"PT5M\" or a number of seconds")
    };
    duration_of(value).map(Some).ok_or_else(wrong)
}
