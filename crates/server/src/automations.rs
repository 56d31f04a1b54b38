//! Automations one by one: created, changed, deleted and run (contracts §14); and logic that is called from outside.

use axum::extract::Path;
use engine::Tenant;
use engine::authority::{Grant, Permission};
use hyper::StatusCode;
use model::definition::{Definition, Kind};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use crate::aside;
use crate::body::{object, only_json, value};
use crate::caller::Call;
use crate::problem::Answer;
use crate::publish::json as json_answer;
use crate::{listing, ws};

const BODY_MAX: usize = 4 << 20;
const HEARS: &str = "hears of acts of administration and could tell them on";
const HANDED: &str =
    "is handed acts of administration, by a subscription or by what calls it, and could tell them on";

/// `POST /v1/automations`
pub async fn create(call: Call) -> Answer {
    call.params(&[])?;
    only_json(&call.head.headers)?;
    let (doors, tenant, grant) = (call.doors.clone(), call.tenant.clone(), call.grant.clone());
    let seen = call.seen();
    let said = value(&call.bytes(BODY_MAX).await?)?;
    may_declare(grant.as_deref(), &tenant, &said)?;
    let of = tenant.clone();
    let mut made = aside::blocking(move || of.create_automation(&said)).await?;
    ws::told_one(&doors, &tenant, "automation_created", &made);
    seen.cover_automation(&mut made);
    listing::tagged(StatusCode::CREATED, &made, &tag(&made))
}

/// What is declared and whether it is on; not how its runs fare.
pub fn tag(automation: &Value) -> String {
    listing::tag(automation, &["version", "enabled", "paused"])
}

/// Whether who may write automations may declare this one. Runs are the system's: they see all rows, whoever declared them. One that names
/// a secret could carry it outside, and one that hears acts of administration could tell them on: all of it is for those who may see it.
pub fn may_declare(grant: Option<&Grant>, tenant: &Tenant, definition: &Value) -> Result<(), Problem> {
    if may_all(grant) {
        return Ok(());
    }
    may_say(tenant, definition)?;
    let name = definition["automation"].as_str().or(definition["name"].as_str()).unwrap_or_default();
    match tenant.hear_acts()?.contains(name) {
        true => Err(needs_admin("an automation", HANDED)),
        false => Ok(()),
    }
}

/// Whether what it says is for everybody who may declare.
fn may_say(tenant: &Tenant, definition: &Value) -> Result<(), Problem> {
    let mut definition = definition.clone();
    // What it is for is said to people only.
    definition.as_object_mut().map(|whole| whole.remove("description"));
    let owned = || tenant.catalog().concepts().any(|concept| concept.owner().is_some());
    let why = if says(&definition, &names_secret) {
        "names a secret and could carry it outside"
    } else if says(&definition, &hears_acts) {
        HEARS
    } else if owned() {
        "would see rows that belong to others (`@rowAuthz`)"
    } else {
        return Ok(());
    };
    Err(needs_admin("an automation", why))
}

/// As [`may_declare`], of definitions that are tried and not kept: what they would have done is told, and with it what they heard. What
/// a concept says of its rows starts nothing.
pub fn may_try(grant: Option<&Grant>, tenant: &Tenant, definitions: &[Definition]) -> Result<(), Problem> {
    let acting = definitions.iter().filter(|definition| definition.kind() != Kind::Concept);
    let written = |one: &Definition| serde_json::from_str(&one.to_json()).unwrap_or_default();
    acting.filter(|_| !may_all(grant)).map(written).try_for_each(|definition| may_say(tenant, &definition))
}

/// As [`may_declare`], of a subscription: it is a trigger that stands elsewhere.
pub fn may_subscribe(grant: Option<&Grant>, subscription: &Value) -> Result<(), Problem> {
    if may_all(grant) || !says(&subscription["pattern"], &hears_acts) {
        return Ok(());
    }
    Err(needs_admin("a subscription", HEARS).at("/pattern"))
}

fn may_all(grant: Option<&Grant>) -> bool {
    grant.is_none_or(|grant| grant.may(Permission::AutomationAdmin))
}

fn needs_admin(what: &str, why: &str) -> Problem {
    let detail = format!("{what} that {why} needs \"automation:admin\", which this token does not allow");
    Problem::new(Code::AuthDenied, detail).hint("have an admin declare it, or leave that out")
}

/// As [`may_declare`], of what is there with the keys that are changed.
pub fn may_patch(
    grant: Option<&Grant>,
    tenant: &Tenant,
    there: &Value,
    patch: &Map<String, Value>,
) -> Result<(), Problem> {
    let mut whole = there["definition"].as_object().cloned().unwrap_or_default();
    // What runs stands under another name once it is declared.
    if patch.contains_key("actions") {
        whole.remove("steps");
    }
    whole.extend(patch.clone());
    may_declare(grant, tenant, &Value::Object(whole))
}

/// Whether a text of it is such a one.
fn says(value: &Value, is: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(items) => items.iter().any(|item| says(item, is)),
        Value::Object(fields) => fields.iter().any(|(name, value)| is(name) || says(value, is)),
        _ => false,
    }
}

/// The word itself, in any case: however it is called, a call has it.
fn names_secret(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_ascii_lowercase);
    words.any(|word| word.ends_with("secret") || word == "secrets")
}

/// By a topic, or by the concept of a row of the house.
fn hears_acts(text: &str) -> bool {
    text.starts_with("engine.") || text.contains(":everwhen:")
}

/// `PATCH /v1/automations/{name}`
pub async fn patch(Path(name): Path<String>, call: Call) -> Answer {
    call.params(&[])?;
    let (doors, tenant) = (call.doors.clone(), call.tenant.clone());
    let (headers, grant, seen) = (call.head.headers.clone(), call.grant.clone(), call.seen());
    let Value::Object(patch) = value(&call.bytes(BODY_MAX).await?)? else {
        return Err(Problem::new(Code::RequestInvalid, "a patch is an object of the keys to change").into());
    };
    let of = tenant.clone();
    let patched = aside::blocking(move || {
        let there = of.automation(&name)?;
        listing::check_match(&headers, &tag(&there))?;
        may_patch(grant.as_deref(), &of, &there, &patch)?;
        of.patch_automation(&name, &patch)
    });
    let mut made = patched.await?;
    ws::told_one(&doors, &tenant, "automation_updated", &made);
    seen.cover_automation(&mut made);
    listing::tagged(StatusCode::OK, &made, &tag(&made))
}

/// `DELETE /v1/automations/{name}?runs=cancel|finish`
pub async fn delete(Path(name): Path<String>, call: Call) -> Answer {
    let finish = match call.params(&["runs"])?.text("runs") {
        None | Some("cancel") => false,
        Some("finish") => true,
        Some(other) => {
            return Err(Problem::new(Code::RequestInvalid, format!("\"runs\" cannot be \"{other}\""))
                .hint("cancel ends runs in progress, finish lets them go on to their end")
                .with("parameter", "runs")
                .into());
        }
    };
    let (tenant, headers) = (call.tenant.clone(), call.head.headers.clone());
    let deleted = aside::blocking(move || {
        listing::check_match(&headers, &tag(&tenant.automation(&name)?))?;
        tenant.delete_automation(&name, finish)
    });
    let plan = deleted.await?;
    ws::told_of(&call.doors, &call.tenant, &plan).await;
    Ok(listing::gone())
}

/// `POST /v1/logic/{name}`
pub async fn logic(Path(name): Path<String>, call: Call) -> Answer {
    let params = call.params(&["space"])?;
    only_json(&call.head.headers)?;
    let (tenant, caller) = (call.tenant.clone(), call.caller.clone());
    let bytes = call.bytes(BODY_MAX).await?;
    let args = match bytes.is_empty() {
        true => None,
        false => object(&bytes, &["args"])?.remove("args"),
    };
    let args = match args {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => {
            let detail = "\"args\" is an object of arguments";
            return Err(Problem::new(Code::RequestInvalid, detail).at("/args").into());
        }
    };
    let space = params.owned("space");
    let output = aside::blocking(move || tenant.call_logic(&caller, &name, args, space.as_deref())).await?;
    Ok(json_answer(StatusCode::OK, json!({ "output": output }).to_string()))
}
