//! The Model Context Protocol at `/mcp`: agents read and act through tools, with the rights of their token.
//!
//! ```text
//!  2025-06-18, 2025-11-25   initialize, then each request as it comes; no session is kept
//!  2026-07-28               no handshake: every request says its revision in `_meta` and in headers
//! ```
//! Every message is a `POST` with one JSON-RPC object, answered by one. A tool is a request to a route of the table, so that it
//! may what the token may, and nothing is decided here (`docs/mcp.md`).

mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use model::{Code, Problem};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::Doors;
use crate::body::{media_type, wrong_type};
use crate::caller::Call;
use crate::problem::Answer;
use tools::{Members, Tool};

const BODY_MAX: usize = 4 << 20;
/// Nesting of a message; readers stop there.
const DEPTH_MAX: usize = 128;
/// The revision without a handshake.
const STATELESS: &str = "2026-07-28";
/// Newest first.
const VERSIONS: [&str; 3] = [STATELESS, "2025-11-25", "2025-06-18"];
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
const INSTRUCTIONS: &str = "Everwhen keeps a durable ledger of events and runs automations over them. Search events, look at runs and \
    ask why something happened or did not. To change what is declared, propose it first, show the plan to a person, and apply it with \
    the plan's hash.";

const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const HEADER_MISMATCH: i64 = -32_020;
const UNSUPPORTED_VERSION: i64 = -32_022;

/// The doors behind this one; its requests carry it.
#[derive(Clone)]
pub struct Inside(pub Router);

/// Whom a tool asks, and as whom.
struct Behind {
    router: Router,
    head: Parts,
    doors: Arc<Doors>,
    tenant: String,
}

/// An answer that is an error of the protocol.
struct Wrong {
    status: StatusCode,
    code: i64,
    message: String,
    data: Value,
}

impl Wrong {
    fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Wrong {
        Wrong { status, code, message: message.into(), data: Value::Null }
    }

    fn params(message: impl Into<String>) -> Wrong {
        Wrong::new(StatusCode::OK, INVALID_PARAMS, message)
    }
}

/// One message, read.
struct Message {
    /// `None`: a notification.
    id: Option<Value>,
    method: String,
    params: Map<String, Value>,
    /// Of a tool, as they were written: what is published keeps every digit.
    arguments: Option<Box<RawValue>>,
}

/// What a request is answered with.
struct Given {
    result: Value,
    /// What a tool gave, as its door wrote it.
    structured: Option<Box<RawValue>>,
}

impl From<Value> for Given {
    fn from(result: Value) -> Given {
        Given { result, structured: None }
    }
}

/// `POST /mcp`
pub async fn post(call: Call) -> Answer {
    call.params(&[])?;
    match media_type(&call.head.headers)?.as_str() {
        "application/json" => {}
        other => return Err(wrong_type(other).into()),
    }
    let Call { doors, tenant, caller: _, grant, head, body } = call;
    let bytes = crate::body::read(body, BODY_MAX, doors.patience.body).await?;
    let message = match read(&bytes) {
        Ok(message) => message,
        Err(wrong) => return Ok(refused(Value::Null, wrong)),
    };
    let Some(id) = message.id.clone() else {
        return Ok(empty(StatusCode::ACCEPTED));
    };
    let Some(Inside(router)) = head.extensions.get::<Inside>().cloned() else {
        return Err(Problem::new(Code::Internal, "no doors behind this one").into());
    };
    let may = |tool: &Tool| tool.needs().is_none_or(|needed| grant.as_deref().is_none_or(|g| g.may(needed)));
    let behind = Behind { router, head, doors, tenant: tenant.name().to_owned() };
    let answered = match stateless(&message, &behind.head.headers) {
        Err(wrong) => Err(wrong),
        Ok(stateless) => answer(message, &behind, &may, stateless).await,
    };
    Ok(match answered {
        Ok(given) => said(StatusCode::OK, given.written(&id)),
        Err(wrong) => refused(id, wrong),
    })
}

fn read(bytes: &[u8]) -> Result<Message, Wrong> {
    let bad = |code, message: &str| Wrong::new(StatusCode::BAD_REQUEST, code, message);
    // As strictly as an event, because one may stand in it.
    model::json::check(bytes, DEPTH_MAX).map_err(|problem| {
        let data = json!({"code": problem.code().as_str()});
        Wrong { data, ..bad(PARSE_ERROR, problem.detail()) }
    })?;
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| bad(PARSE_ERROR, &format!("not JSON: {error}")))?;
    let Value::Object(mut map) = value else {
        return Err(bad(INVALID_REQUEST, "a message is one JSON-RPC object"));
    };
    if map.get("jsonrpc") != Some(&Value::from("2.0")) {
        return Err(bad(INVALID_REQUEST, "\"jsonrpc\" is \"2.0\""));
    }
    let id = map.remove("id");
    if id.as_ref().is_some_and(|id| !id.is_string() && !id.is_i64() && !id.is_u64()) {
        return Err(bad(INVALID_REQUEST, "an id is a text or a whole number"));
    }
    let method = match map.remove("method") {
        Some(Value::String(method)) => method,
        // An answer to something that was never asked.
        None if map.contains_key("result") || map.contains_key("error") => {
            return Ok(Message { id: None, method: String::new(), params: Map::new(), arguments: None });
        }
        _ => return Err(bad(INVALID_REQUEST, "\"method\" is missing")),
    };
    let params = match map.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(bad(INVALID_PARAMS, "\"params\" is an object")),
    };
    Ok(Message { id, method, params, arguments: arguments(bytes) })
}

fn arguments(bytes: &[u8]) -> Option<Box<RawValue>> {
    let mut message: Members = serde_json::from_slice(bytes).ok()?;
    let mut params: Members = serde_json::from_str(message.remove("params")?.get()).ok()?;
    params.remove("arguments")
}

/// Whether a request is of the revision without a handshake, after its headers were compared with its body.
fn stateless(message: &Message, headers: &HeaderMap) -> Result<bool, Wrong> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let bad = |code, message: String| Wrong::new(StatusCode::BAD_REQUEST, code, message);
    let said = header("mcp-protocol-version");
    let meta = message.params.get("_meta").and_then(|meta| meta.get(META_VERSION)).and_then(Value::as_str);
    if meta.is_none() && said != Some(STATELESS) {
        return match said {
            Some(version) if !VERSIONS.contains(&version) => Err(unsupported(version)),
            _ => Ok(false),
        };
    }
    let Some(meta) = meta else {
        return Err(bad(INVALID_PARAMS, format!("\"_meta\" does not say \"{META_VERSION}\"")));
    };
    let name = match message.method.as_str() {
        "tools/call" => message.params.get("name").and_then(Value::as_str),
        _ => None,
    };
    let mirrored = [
        ("mcp-protocol-version", Some(meta)),
        ("mcp-method", Some(message.method.as_str())),
        ("mcp-name", name),
    ];
    for (of, expected) in mirrored {
        if expected.is_some() && header(of) != expected {
            let message = format!("the header \"{of}\" is not what the body says");
            return Err(bad(HEADER_MISMATCH, message));
        }
    }
    if meta != STATELESS { Err(unsupported(meta)) } else { Ok(true) }
}

fn unsupported(version: &str) -> Wrong {
    let data = json!({"supported": VERSIONS, "requested": version});
    let message = format!("revision \"{version}\" is not spoken here");
    Wrong { data, ..Wrong::new(StatusCode::BAD_REQUEST, UNSUPPORTED_VERSION, message) }
}

async fn answer(
    message: Message,
    behind: &Behind,
    may: &impl Fn(&Tool) -> bool,
    stateless: bool,
) -> Result<Given, Wrong> {
    let Message { method, params, arguments, .. } = message;
    let mut given: Given = match method.as_str() {
        "initialize" if !stateless => initialized(&params).into(),
        "ping" if !stateless => json!({}).into(),
        "server/discover" => json!({
            "supportedVersions": VERSIONS, "capabilities": capabilities(), "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        })
        .into(),
        "tools/list" => {
            let told: Vec<Value> = tools::TOOLS.iter().filter(|tool| may(tool)).map(Tool::to_json).collect();
            json!({ "tools": told }).into()
        }
        "tools/call" => {
            let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
            // One that the token may not use is as good as absent.
            let tool = tools::TOOLS.iter().find(|tool| tool.name == name && may(tool));
            let tool = tool.ok_or_else(|| Wrong::params(format!("there is no tool \"{name}\"")))?;
            let arguments = match &arguments {
                Some(written) if written.get() != "null" => serde_json::from_str(written.get())
                    .map_err(|_| Wrong::params("\"arguments\" is an object"))?,
                _ => Members::new(),
            };
            called(tool.call(arguments, behind).await)
        }
        other => {
            let status = if stateless { StatusCode::NOT_FOUND } else { StatusCode::OK };
            return Err(Wrong::new(status, METHOD_NOT_FOUND, format!("there is no method \"{other}\"")));
        }
    };
    if stateless || method == "server/discover" {
        let result = &mut given.result;
        result["resultType"] = "complete".into();
        result["_meta"] = json!({ META_SERVER: server_info() });
        if matches!(method.as_str(), "server/discover" | "tools/list") {
            // What is there depends on the token.
            (result["ttlMs"], result["cacheScope"]) = (60_000.into(), "private".into());
        }
    }
    Ok(given)
}

/// What a route refuses is a result too, which the agent can read and mend.
fn called(answered: Result<Box<RawValue>, Box<RawValue>>) -> Given {
    let (document, failed) = match answered {
        Ok(document) => (document, false),
        Err(problem) => (problem, true),
    };
    let result = json!({"content": [{"type": "text", "text": document.get()}], "isError": failed});
    Given { result, structured: (!failed).then_some(document) }
}

impl Given {
    fn written(&self, id: &Value) -> String {
        let result = self.result.as_object().into_iter().flatten();
        let mut members: Vec<String> =
            result.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
        members.extend(self.structured.iter().map(|exact| format!("\"structuredContent\":{exact}")));
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{}}}}}", members.join(","))
    }
}

/// The revision that was asked for, or the newest that has a handshake.
fn initialized(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = asked.filter(|asked| VERSIONS[1..].contains(asked)).unwrap_or(VERSIONS[1]);
    json!({
        "protocolVersion": version, "capabilities": capabilities(), "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

fn capabilities() -> Value {
    json!({"tools": {"listChanged": false}})
}

fn server_info() -> Value {
    json!({"name": "everwhen", "title": "Everwhen", "version": env!("CARGO_PKG_VERSION")})
}

fn said(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(id: Value, wrong: Wrong) -> Response {
    let mut error = json!({"code": wrong.code, "message": wrong.message});
    if !wrong.data.is_null() {
        error["data"] = wrong.data;
    }
    said(wrong.status, json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
