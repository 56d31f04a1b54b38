//! Tokens over HTTP: given out once, listed without their text, revoked at once (contracts §13).

use axum::extract::Path;
use engine::admit::check_read_space;
use engine::authority::{Grant, Role, Terms};
use hyper::StatusCode;
use model::event::Band;
use model::{Code, Problem};
use serde_json::Value;

use crate::body::{object, only_json};
use crate::caller::Call;
use crate::listing;
use crate::problem::Answer;
use crate::publish::json as json_answer;

const BODY_MAX: usize = 64 << 10;
const FIELDS: [&str; 6] = ["name", "role", "scopes", "spaces", "max_band", "expires_in"];

const SPACE_BYTES_MAX: usize = 512;

/// `GET /v1/tokens`
pub async fn list(call: Call) -> Answer {
    let params = call.read_params(&listing::PARAMS).await?;
    listing::page(&params, "tokens", "id", call.doors.engine.authority().list(&call.tenant)?)
}

/// `GET /v1/tokens/{id}`
pub async fn get(Path(id): Path<String>, call: Call) -> Answer {
    call.read_params(&[]).await?;
    let tokens = call.doors.engine.authority().list(&call.tenant)?;
    let found = tokens.into_iter().find(|token| token["id"] == id.as_str());
    let absent = || Problem::new(Code::NotFound, format!("there is no token \"{id}\""));
    Ok(json_answer(StatusCode::OK, found.ok_or_else(absent)?.to_string()))
}

/// `POST /v1/tokens`: the answer is the only place that ever has its text.
pub async fn create(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, tenant, caller, grant) =
        (call.doors.clone(), call.tenant.clone(), call.caller.clone(), call.grant.clone());
    let said = object(&call.bytes(BODY_MAX).await?, &FIELDS)?;
    let terms = terms(&Value::Object(said), tenant.now())?;
    if let Some(grant) = grant {
        within(&grant, &terms)?;
    }
    let (text, mut shown) = doors.engine.authority().create(&tenant, &caller, terms).await?;
    shown["token"] = text.into();
    Ok(json_answer(StatusCode::CREATED, shown.to_string()))
}

/// A token gives out nothing that it does not have: no right, no space, no band, and no time.
fn within(grant: &Grant, terms: &Terms) -> Result<(), Problem> {
    let refused = |at: &str, detail: String| {
        Problem::new(Code::AuthDenied, detail).at(at.to_owned()).hint("ask an owner")
    };
    if !grant.permissions.covers(terms.permissions()?) {
        let role = terms.role.as_str();
        let detail = format!("a token cannot give out more than it has, and role \"{role}\" has more");
        return Err(refused("/role", detail));
    }
    let own = &grant.terms;
    let beyond = terms.spaces.is_empty() || !terms.spaces.iter().all(|space| own.spaces.contains(space));
    if beyond && !own.spaces.is_empty() {
        let detail = format!("this token is for {}, and gives out no other spaces", own.spaces.join(", "));
        return Err(refused("/spaces", detail));
    }
    if own.max_band.is_some_and(|most| terms.max_band.is_none_or(|band| band > most)) {
        return Err(refused("/max_band", "a token cannot give out a higher band than its own".to_owned()));
    }
    match own.expires_at {
        Some(end) if terms.expires_at.is_none_or(|at| at > end) => {
            let detail = format!("a token cannot give out one that outlives it, and this one ends at {end}");
            Err(refused("/expires_in", detail).hint("say a shorter \"expires_in\", or ask an owner"))
        }
        _ => Ok(()),
    }
}

/// `DELETE /v1/tokens/{id}`: without effect from the next request on.
pub async fn revoke(Path(id): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    if let Some(grant) = &call.grant {
        let tokens = call.doors.engine.authority().list(&call.tenant)?;
        let of = tokens.iter().find(|token| token["id"] == id.as_str());
        let role = of.and_then(|token| Role::parse(token["role"].as_str()?));
        if role.is_some_and(|role| !grant.permissions.covers(role.permissions())) && grant.id != id {
            let detail = "a token cannot revoke one whose role may more than it may itself";
            return Err(Problem::new(Code::AuthDenied, detail).hint("ask an owner").into());
        }
    }
    call.doors.engine.authority().revoke(&call.tenant, &call.caller, &id).await?;
    Ok(listing::gone())
}

fn wrong(at: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::TokenInvalid, detail).at(format!("/{at}"))
}

/// A list of texts; none when it is left out.
fn words(said: &Value, name: &str) -> Result<Vec<String>, Problem> {
    let no_texts = || wrong(name, format!("\"{name}\" is a list of texts"));
    match &said[name] {
        Value::Null => Ok(Vec::new()),
        // It would read as one that allows nothing, and would allow everything.
        Value::Array(list) if list.is_empty() => {
            let empty = wrong(name, format!("\"{name}\" is an empty list"));
            Err(empty.hint(format!("name at least one, or leave \"{name}\" out for all of them")))
        }
        Value::Array(list) => {
            let words = list.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<_>>().ok_or_else(no_texts)
        }
        _ => Err(no_texts()),
    }
}

fn spaces(said: &Value) -> Result<Vec<String>, Problem> {
    let spaces = words(said, "spaces")?;
    for (at, space) in spaces.iter().enumerate() {
        if space.len() > SPACE_BYTES_MAX {
            let detail = format!("a space has a name of 1 to {SPACE_BYTES_MAX} bytes");
            return Err(wrong(&format!("spaces/{at}"), detail));
        }
        check_read_space(Code::TokenInvalid, space).map_err(|problem| problem.at(format!("/spaces/{at}")))?;
    }
    Ok(spaces)
}

fn band(said: &Value) -> Result<Option<Band>, Problem> {
    match &said["max_band"] {
        Value::Null => Ok(None),
        said => said.as_str().and_then(Band::parse).map(Some).ok_or_else(|| {
            wrong("max_band", format!("{said} is no band")).hint("choose one of green, amber, red, black")
        }),
    }
}

/// What is wanted of a token, by its words in contracts §13.
pub fn terms(said: &Value, now: model::Timestamp) -> Result<Terms, Problem> {
    let role = said["role"].as_str().and_then(Role::parse).ok_or_else(|| {
        let detail = match &said["role"] {
            Value::Null => "\"role\" is missing".to_owned(),
            other => format!("{other} is no role"),
        };
        wrong("role", detail).hint("choose one of owner, admin, editor, viewer, publisher")
    })?;
    let expires_at = match &said["expires_in"] {
        Value::Null => None,
        length => {
            let refused = |why: &str| {
                wrong("expires_in", format!("\"expires_in\" {why}, not {length}"))
                    .hint("write it like \"90d\"")
            };
            let length = model::time::duration_of(length).ok_or_else(|| refused("is a length of time"))?;
            if length.is_zero() {
                return Err(refused("is longer than nothing"));
            }
            Some(now.plus(length))
        }
    };
    let name = match &said["name"] {
        Value::Null => String::new(),
        Value::String(name) if name.chars().any(char::is_control) => {
            return Err(wrong("name", "\"name\" has no line breaks or other control characters"));
        }
        Value::String(name) if name.len() <= 64 => name.clone(),
        _ => return Err(wrong("name", "\"name\" is a text of up to 64 bytes")),
    };
    let terms = Terms {
        name,
        scopes: words(said, "scopes")?,
        spaces: spaces(said)?,
        max_band: band(said)?,
        expires_at,
        role,
    };
    terms.permissions()?;
    Ok(terms)
}
