//! How a worker in another process takes tasks of runs and says what became of them (contracts §11).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::tenant::tasks::{Taken, Task};
use engine::{Seen, Tenant};
use hyper::StatusCode;
use model::time::duration_of;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use crate::body::{object, only_json, wrong};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{Doors, aside, listing};

/// An output of 1 MiB, and what stands around it.
const BODY_MAX: usize = (1 << 20) + (16 << 10);
const OUTPUT_MAX: usize = 1 << 20;
const POLL_MAX: u64 = 100;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// `GET /v1/tasks`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let seen = call.seen();
    let tasks = aside::blocking(move || seen.tasks());
    listing::page(&params, "tasks", "id", tasks.await?)
}

/// `POST /v1/tasks/poll`; without `wait` it answers at once.
pub async fn poll(call: Call) -> Answer {
    let (said_all, seen) = (call.said_all(), call.seen());
    let (doors, tenant, said) = said(call, &["kinds", "max", "wait"]).await?;
    let kinds = kinds(&said)?;
    let max = match said.get("max") {
        None => 1,
        Some(value) => {
            let max = value.as_u64().filter(|max| (1..=POLL_MAX).contains(max));
            max.ok_or_else(|| wrong("/max", format!("\"max\" is a whole number from 1 to {POLL_MAX}")))?
        }
    };
    let wait = match said.get("wait") {
        None => Duration::ZERO,
        Some(value) => duration_of(value).filter(|wait| *wait <= WAIT_MAX).ok_or_else(|| {
            wrong("/wait", format!("\"wait\": {value} is no duration up to 60 s")).hint("write \"20s\"")
        })?,
    };
    // The first look is finished, also for who will say no more.
    let mut taken = next(&doors, (&tenant, &seen), kinds.clone(), max as usize, Duration::ZERO).await?;
    if taken.is_empty() && !wait.is_zero() {
        taken = tokio::select! {
            biased;
            taken = next(&doors, (&tenant, &seen), kinds, max as usize, wait) => taken?,
            () = said_all => Vec::new(),
        };
    }
    let tasks: Vec<Value> = taken.iter().map(Task::to_json).collect();
    Ok(json_answer(StatusCode::OK, json!({ "tasks": tasks }).to_string()))
}

/// Looks whenever a task was asked for or a lease may be over, until the time is. What was taken when it is, is given back.
async fn next(
    doors: &Arc<Doors>,
    (tenant, seen): (&Tenant, &Seen),
    kinds: Vec<String>,
    max: usize,
    wait: Duration,
) -> Result<Vec<Task>, Problem> {
    let look = || {
        let (of, wanted) = (seen.clone(), kinds.clone());
        aside::blocking(move || of.take_tasks(&wanted, max))
    };
    if wait.is_zero() {
        return look().await.map(Taken::keep);
    }
    let found = async {
        loop {
            let mut asked = pin!(tenant.task_asked());
            asked.as_mut().enable();
            let taken: Taken = look().await?;
            if !taken.is_empty() {
                return Ok(taken.keep());
            }
            tokio::select! {
                _ = tokio::time::timeout(taken.free_in.unwrap_or(WAIT_MAX), asked) => {}
                () = doors.closing() => return Ok(Vec::new()),
            }
        }
    };
    tokio::time::timeout(wait, found).await.unwrap_or_else(|_| Ok(Vec::new()))
}

/// `POST /v1/tasks/heartbeat`
pub async fn heartbeat(call: Call) -> Answer {
    let (_, tenant, said) = said(call, &["token"]).await?;
    let deadline = tenant.heartbeat_task(token(&said)?)?;
    Ok(json_answer(StatusCode::OK, json!({ "deadline": deadline }).to_string()))
}

/// `POST /v1/tasks/complete`
pub async fn complete(call: Call) -> Answer {
    let (_, tenant, mut said) = said(call, &["token", "output"]).await?;
    let output = said.remove("output").unwrap_or_default();
    if output.to_string().len() > OUTPUT_MAX {
        return Err(Problem::new(Code::BodyTooLarge, format!("the output has more than {OUTPUT_MAX} bytes"))
            .hint("store it elsewhere, and let the output say where")
            .with("limit", OUTPUT_MAX)
            .into());
    }
    tenant.complete_task(token(&said)?, output).await?;
    Ok(done())
}

/// `POST /v1/tasks/fail`: it is tried again if the step says so, unless it is not `retryable`.
pub async fn fail(call: Call) -> Answer {
    let (_, tenant, said) = said(call, &["token", "error", "retryable"]).await?;
    let retryable = match said.get("retryable") {
        None => true,
        Some(Value::Bool(retryable)) => *retryable,
        Some(_) => return Err(wrong("/retryable", "\"retryable\" is true or false").into()),
    };
    tenant.fail_task(token(&said)?, error(&said)?, retryable).await?;
    Ok(done())
}

fn done() -> axum::response::Response {
    json_answer(StatusCode::OK, json!({"done": true}).to_string())
}

async fn said(call: Call, known: &[&str]) -> Result<(Arc<Doors>, Tenant, Map<String, Value>), Problem> {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, tenant) = (call.doors.clone(), call.tenant.clone());
    let said = object(&call.bytes(BODY_MAX).await?, known)?;
    Ok((doors, tenant, said))
}

fn token(said: &Map<String, Value>) -> Result<&str, Problem> {
    said.get("token").and_then(Value::as_str).ok_or_else(|| {
        wrong("/token", "\"token\" is the text that came with the task").hint("poll for tasks to get one")
    })
}

fn kinds(said: &Map<String, Value>) -> Result<Vec<String>, Problem> {
    let text = |value: &Value| value.as_str().filter(|kind| !kind.is_empty()).map(str::to_owned);
    let refuse =
        |detail: &str| Err(wrong("/kinds", detail).hint("[\"render\"]; leave it out for all of them"));
    match said.get("kinds") {
        None => Ok(Vec::new()),
        // It would read as one that wants nothing, and would be given everything.
        Some(Value::Array(kinds)) if kinds.is_empty() => refuse("\"kinds\" is an empty list"),
        Some(Value::Array(kinds)) => match kinds.iter().map(text).collect() {
            Some(kinds) => Ok(kinds),
            None => refuse("\"kinds\" is a list of kinds of tasks"),
        },
        Some(_) => refuse("\"kinds\" is a list of kinds of tasks"),
    }
}

/// A text, or `code` and `message`; as a run shows it.
fn error(said: &Map<String, Value>) -> Result<Value, Problem> {
    let text = |value: &Value, name: &str| {
        let said = value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        said.map(str::to_owned)
    };
    let is_budget = said.get("error").is_some_and(|error| error["class"] == "budget");
    let (code, message) = match said.get("error") {
        None => (None, "the worker said no more".to_owned()),
        Some(Value::String(message)) => (None, message.clone()),
        Some(error @ Value::Object(_)) => {
            let message = text(error, "message").unwrap_or_else(|| "the worker said no more".to_owned());
            (text(error, "code"), message)
        }
        Some(_) => return Err(wrong("/error", "\"error\" is a text, or has \"code\" and \"message\"")),
    };
    let code = code.unwrap_or_else(|| Code::TaskFailed.as_str().to_owned());
    let mut error = json!({"code": code, "message": message});
    if is_budget {
        error["class"] = "budget".into();
    }
    Ok(error)
}
