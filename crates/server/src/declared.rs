//! What is declared and what can be asked of it: concepts, queries, mutations, plan and apply (contracts §10).

use std::collections::BTreeMap;

use axum::extract::Path;
use engine::entity::catalog::Entry;
use engine::tenant::backtest::Edge;
use engine::{Asking, Plan};
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderValue};
use lang::declare::check_workspace;
use model::definition::{Definition, Kind};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value};

use crate::automations::may_try;
use crate::body::{object, only_json};
use crate::caller::Call;
use crate::entities;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::ws;
use crate::{aside, listing};

/// Largest workspace in one request.
const WORKSPACE_BYTES_MAX: usize = 16 << 20;
const ARGS_BYTES_MAX: usize = 1 << 20;

/// `GET /v1/concepts`
pub async fn concepts(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    let catalog = call.tenant.catalog();
    let entries = catalog.entries().filter(|((kind, _), _)| *kind == Kind::Concept);
    let concepts = entries.map(|((_, id), entry)| (id.clone(), shown(entry))).collect();
    listing::page_of(&params, "concepts", concepts)
}

/// `GET /v1/concepts/{id}`
pub async fn concept(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let catalog = call.tenant.catalog();
    let id = catalog.concept(&id)?.id().to_owned();
    let entry = catalog.get(Kind::Concept, &id);
    let entry =
        entry.ok_or_else(|| Problem::new(Code::ConceptNotFound, format!("there is no concept \"{id}\"")))?;
    Ok(json_answer(StatusCode::OK, shown(entry).to_string()))
}

fn shown(entry: &Entry) -> Value {
    let mut value: Value = serde_json::from_str(&entry.definition.to_json()).unwrap_or_default();
    value["managed_by"] = entry.managed_by.clone().into();
    value["hash"] = entry.hash.clone().into();
    value
}

/// `POST /v1/queries/{name}`
pub async fn query(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.read_params(&["explain", "space", "limit", "cursor", "as_of"]).await?;
    only_json(&call.head.headers)?;
    let limit = params.text("limit").map(|_| params.limit("limit", 100, 1_000)).transpose()?;
    let explain = params.text("explain").is_some_and(|text| text != "0" && text != "false");
    let (space, mut cursor) = (params.owned("space"), params.owned("cursor"));
    let as_of = entities::moment(&params)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let bytes = call.bytes(ARGS_BYTES_MAX).await?;
    let mut said = object(&bytes, &["args", "cursor"])?;
    if let Some(given) = said.remove("cursor").filter(|given| !given.is_null()) {
        let text = given.as_str().map(str::to_owned);
        cursor = Some(text.ok_or_else(|| {
            Problem::new(Code::RequestInvalid, "\"cursor\" is the \"next\" of a page").at("/cursor")
        })?);
    }
    let args = args_of(said)?;
    let asking = Asking { args, space, limit, cursor, explain, as_of };
    let found = aside::blocking(move || tenant.query(&caller, &name, &asking)).await?;
    Ok(json_answer(StatusCode::OK, found.to_json().to_string()))
}

/// `POST /v1/mutations/{name}`
pub async fn mutate(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.params(&["space"])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let args = args(&call.bytes(ARGS_BYTES_MAX).await?)?;
    let written = tenant.mutate(&caller, &name, args, params.text("space")).await?;
    let mut response = json_answer(StatusCode::OK, written.to_json().to_string());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", written.row.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn args(bytes: &[u8]) -> Result<Map<String, Value>, Problem> {
    args_of(object(bytes, &["args"])?)
}

fn args_of(mut said: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    match said.remove("args") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(args)) => Ok(args),
        Some(_) => Err(Problem::new(Code::RequestInvalid, "\"args\" is an object of arguments").at("/args")),
    }
}

/// `POST /v1/plan`
pub async fn plan(call: Call) -> Answer {
    let tenant = call.tenant.clone();
    let (workspace, definitions) = workspace(call).await?;
    answered(tenant.plan(&workspace, definitions).await?)
}

/// `POST /v1/apply`
pub async fn apply(call: Call) -> Answer {
    let (doors, tenant) = (call.doors.clone(), call.tenant.clone());
    let (workspace, definitions) = workspace(call).await?;
    let plan = tenant.apply(&workspace, definitions).await?;
    ws::told_of(&doors, &tenant, &plan).await;
    answered(plan)
}

/// `POST /v1/backtest`
pub async fn backtest(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (tenant, grant) = (call.tenant.clone(), call.grant.clone());
    let mut said = object(&call.bytes(WORKSPACE_BYTES_MAX).await?, &["files", "from", "to"])?;
    let from = edge(&said, "from", tenant.now())?.unwrap_or(Edge::Time(Timestamp::EPOCH));
    let to = edge(&said, "to", tenant.now())?.unwrap_or(Edge::Time(tenant.now()));
    let files = files(said.remove("files"))?;
    let told = aside::blocking(move || {
        let definitions = checked(&files)?;
        may_try(grant.as_deref(), &tenant, &definitions)?;
        tenant.backtest(&definitions, (from, to))
    });
    Ok(json_answer(StatusCode::OK, told.await?.to_string()))
}

/// Where a window begins or ends, if that is said.
fn edge(said: &Map<String, Value>, name: &str, now: Timestamp) -> Result<Option<Edge>, Problem> {
    let edge = match said.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(position)) => position.as_u64().map(Edge::Position),
        Some(Value::String(text)) => Edge::parse(text, now),
        Some(_) => None,
    };
    edge.map(Some).ok_or_else(|| {
        Problem::new(Code::RequestInvalid, format!("\"{name}\" is no position, instant or length of time"))
            .hint("such as 42, \"2026-01-31T09:30:00Z\", or \"2h\" for two hours ago")
            .at(format!("/{name}"))
    })
}

fn files(given: Option<Value>) -> Result<BTreeMap<String, String>, Problem> {
    serde_json::from_value(given.unwrap_or_default()).map_err(|_| {
        Problem::new(Code::DefinitionInvalid, "\"files\" is an object of paths and texts").at("/files")
    })
}

fn answered(plan: Plan) -> Answer {
    Ok(json_answer(StatusCode::OK, plan.to_json().to_string()))
}

/// The definitions of the files that were sent, or every finding that keeps them from being used.
async fn workspace(call: Call) -> Result<(String, Vec<Definition>), Problem> {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let mut said = object(&call.bytes(WORKSPACE_BYTES_MAX).await?, &["files", "workspace"])?;
    let name = match said.remove("workspace") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => {
            return Err(Problem::new(Code::RequestInvalid, "\"workspace\" is a name").at("/workspace"));
        }
    };
    let files = files(said.remove("files"))?;
    let definitions = aside::blocking(move || checked(&files)).await?;
    Ok((name.unwrap_or_else(|| "default".to_owned()), definitions))
}

fn checked(files: &BTreeMap<String, String>) -> Result<Vec<Definition>, Problem> {
    let checked = check_workspace(files);
    if !checked.has_errors() {
        return Ok(checked.definitions);
    }
    let findings: Vec<Value> = checked.findings.iter().map(|finding| finding.to_json()).collect();
    let errors = checked.findings.iter().filter(|finding| finding.severity == lang::declare::Severity::Error);
    let first =
        errors.clone().next().map_or(String::new(), |finding| finding.to_json()["message"].to_string());
    let detail = match errors.count() {
        1 => format!("there is an error in the files: {first}"),
        several => format!("{several} errors in the files, the first: {first}"),
    };
    Err(Problem::new(Code::DefinitionInvalid, detail)
        .hint("`everwhen check` shows them all with their places")
        .with("findings", findings))
}
