//! The care of the data directory through the server that holds it: what the command line asks for when it finds a
//! running one. These may take as long as they need.

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::response::Response;
use engine::import::Importer;
use engine::{Tenant, maintain};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use crate::body::{DRAIN_FOR, data, drain, media_type, object, wrong_type};
use crate::caller::Call;
use crate::pipe::{Feed, pipe};
use crate::problem::Answer;
use crate::publish::event_bytes_max;
use crate::publish::json as json_answer;
use crate::publish::lines::Lines;
use crate::{aside, audit, rights};

const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest name of a backup.
const NAME_MAX: usize = 100;
/// Records ahead of a slow reader.
const RECORDS_BYTES_MAX: usize = 4 << 20;

/// Paths whose answers are not cut short: their work is as long as the ledger.
pub fn takes_long(path: &str) -> bool {
    let forgets = path.starts_with("/v1/spaces/") && path.ends_with("/forget");
    forgets || matches!(path, "/v1/erase" | "/v1/backup" | "/v1/verify" | "/v1/import" | "/v1/audit/verify")
}

/// What a door that changes or copies data was told. The content type must be there: no web page can send it here
/// without asking first.
async fn told(call: Call, known: &[&str]) -> Result<Map<String, Value>, Problem> {
    call.params(&[])?;
    match media_type(&call.head.headers)?.as_str() {
        "application/json" => {}
        other => return Err(wrong_type(other)),
    }
    object(&call.bytes(BODY_BYTES_MAX).await?, known)
}

fn invalid(pointer: &str, detail: &str) -> Problem {
    Problem::new(Code::RequestInvalid, detail).at(pointer)
}

/// `POST /v1/erase {"positions":[…]}` → `{"erased":n}`
pub async fn erase(call: Call) -> Answer {
    let (tenant, doors) = (call.tenant.clone(), call.doors.clone());
    let said = told(call, &["positions"]).await?;
    let wrong = || invalid("/positions", "\"positions\" is a list of positions");
    let list = said.get("positions").and_then(Value::as_array).ok_or_else(wrong)?;
    let positions: Option<Vec<Position>> = list.iter().map(Value::as_u64).collect();
    let erased = tenant.erase(&positions.ok_or_else(wrong)?).await?;
    doors.keys.forget(tenant.name());
    Ok(json_answer(StatusCode::OK, json!({ "erased": erased }).to_string()))
}

/// `POST /v1/backup {"to":"monday"}`: writes to the disk of this machine, and there into the directory of backups; anywhere only
/// for who holds the data directory itself.
pub async fn backup(call: Call) -> Answer {
    let engine = call.doors.engine.clone();
    let anywhere = rights::holds_the_directory(&call.head.headers, &call.doors);
    let backups = call.tenant.settings().backups.clone().unwrap_or_else(|| engine.dir().join("backups"));
    let said = told(call, &["to"]).await?;
    let wrong = || invalid("/to", "\"to\" names a directory that does not exist yet");
    let to = PathBuf::from(said.get("to").and_then(Value::as_str).ok_or_else(wrong)?);
    let to = if anywhere && to.is_absolute() { to } else { among(&backups, &to)? };
    let made = maintain::backup(&engine, &to).await?;
    Ok(json_answer(StatusCode::OK, made.to_json().to_string()))
}

/// A plain name below the directory of backups, or the path of one.
fn among(backups: &Path, to: &Path) -> Result<PathBuf, Problem> {
    let unreadable = |error: std::io::Error| {
        Problem::new(Code::StorageReadOnly, format!("\"{}\": {error}", backups.display()))
    };
    let backups = std::path::absolute(backups).map_err(unreadable)?;
    let to = backups.join(to);
    let name = to.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.');
    if to.parent() != Some(&backups) || !fits {
        let detail = format!("backups go into \"{}\" of the server's machine", backups.display());
        return Err(invalid("/to", &detail).hint(
            "name a new directory in it, such as \"monday\"; `[backup] dir` in everwhen.toml says which",
        ));
    }
    Ok(to)
}

/// `GET /v1/verify[?quick=true]`: contracts §7, beside everything that goes on.
pub async fn verify(call: Call) -> Answer {
    let quick = call.read_params(&["quick"]).await?.is_second("quick", ["false", "true"])?;
    let engine = call.doors.engine.clone();
    let report = aside::blocking(move || {
        let mut report = maintain::verify(engine.dir(), quick, &mut |_, _| ())?;
        for tenant in engine.open_tenants() {
            report.add_unarmed(tenant.name(), tenant.unarmed()?);
        }
        Ok(report)
    });
    let report = report.await?;
    Ok(json_answer(StatusCode::OK, report.to_json().to_string()))
}

/// `POST /v1/import[?again=true]`: the lines of an export; those that name no actor are the caller's. A line that is refused ends it; everything in earlier
/// commits stays.
pub async fn import(call: Call) -> Answer {
    let again = call.params(&["again"])?.is_second("again", ["false", "true"])?;
    match media_type(&call.head.headers)?.as_str() {
        "application/x-ndjson" => {}
        other => return Err(wrong_type(other).hint("send the lines as application/x-ndjson").into()),
    }
    let mut body = call.body;
    let importer = Importer::new(call.tenant.clone()).by(&call.caller);
    let mut importer = if again { importer.again() } else { importer };
    let taken = take_lines(&call.tenant, &mut importer, &mut body).await;
    let imported = importer.so_far();
    if imported.imported > 0 || taken.is_ok() {
        audit::did(imported.to_json());
    }
    match taken {
        Ok(()) => Ok(json_answer(StatusCode::OK, imported.to_json().to_string())),
        Err(problem) => {
            // So that the client gets to read the refusal instead of a reset connection.
            let _ = tokio::time::timeout(DRAIN_FOR, drain(&mut body)).await;
            Err(problem.into())
        }
    }
}

async fn take_lines(tenant: &Tenant, importer: &mut Importer, body: &mut Body) -> Result<(), Problem> {
    // An exported line has the fields that a publish leaves to the engine, too.
    let mut lines = Lines::new(2 * event_bytes_max(&tenant.limits()));
    while !lines.ended() {
        match data(body).await? {
            Some(part) => lines.push(&part),
            None => lines.end(),
        }
        while let Some((number, line)) = lines.next() {
            let line = line.map_err(|problem| problem.with("line", number))?;
            importer.line(&line).await?;
        }
    }
    importer.finish().await.map(drop)
}

/// `GET /v1/records?from=N`: every record up to the head as it is now, as NDJSON.
pub async fn records(call: Call) -> Answer {
    let from = call.read_params(&["from"]).await?.position("from")?.unwrap_or(1);
    let (tenant, head) = (call.tenant.clone(), call.tenant.head());
    // The first piece now, so that what cannot be read is refused and not cut off.
    let first = piece(&tenant, (from, head)).await?;
    let (feed, outlet) = pipe(RECORDS_BYTES_MAX);
    aside::spawn(async move {
        if let Err(problem) = pour(&tenant, &feed, first, head).await {
            let (code, message) = (problem.code().as_str(), problem.detail());
            feed.push(json!({"error": {"code": code, "message": message}}).to_string().as_bytes());
        }
    });
    let mut response = Response::new(Body::new(outlet));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

async fn piece(tenant: &Tenant, span: (Position, Position)) -> Result<(String, Position), Problem> {
    let tenant = tenant.clone();
    aside::blocking(move || {
        let mut lines = String::new();
        let next = maintain::some_records(&tenant, span, &mut lines)?;
        Ok((lines, next))
    })
    .await
}

async fn pour(
    tenant: &Tenant,
    feed: &Feed,
    first: (String, Position),
    head: Position,
) -> Result<(), Problem> {
    let (mut lines, mut next) = first;
    loop {
        feed.push(lines.as_bytes());
        if next > head || !feed.room().await {
            return Ok(());
        }
        (lines, next) = piece(tenant, (next, head)).await?;
    }
}
