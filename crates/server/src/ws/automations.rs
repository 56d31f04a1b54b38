//! Seed 004's messages: automations listed, changed, run and watched over the same socket (contracts §14).

use std::collections::VecDeque;
use std::sync::Arc;

use engine::authority::Permission;
use engine::command::Toggle;
use engine::{Follow, Follower, Seen, Tenant};
use hyper::StatusCode;
use model::event::Event;
use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::Told;
use super::frames::{Frames, written};
use crate::aside;
use crate::automations::{may_declare, may_patch};
use crate::body::flag;
use crate::session::outbox::Outbox;
use crate::session::{Session, Started};

/// The subscription of those who said `subscribe_automations`; no other can have this name.
const WATCH: &str = "\u{0}automations";
/// Where HTTP does the same.
const ROUTE: &str = "/v1/automations";
/// Runs that a session is known to have started; with more at once the first are told again.
const STARTED_MAX: usize = 100;
/// Lifecycle events taken at once.
const EVENTS_MAX: usize = 100;

/// What comes with another issue.
const LATER: [&str; 8] = [
    "subscribe_inbox",
    "unsubscribe_inbox",
    "list_inbox",
    "update_inbox_item",
    "configure_heartbeat",
    "wake_heartbeat",
    "parse_automation",
    "apply_draft",
];

/// The answer to a message, with what the client called it.
pub async fn answer(session: &mut Session<Frames>, said: Map<String, Value>, bytes: &[u8]) -> String {
    let kind = said.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    // As they were written: of a long number no digit is lost.
    let names: Vec<(&str, String)> = ["requestId", "request_id", "message_id"]
        .into_iter()
        .filter(|name| said.contains_key(*name))
        .filter_map(|name| Some((name, written(bytes, name)?)))
        .collect();
    let mut answer = match done(session, &kind, said).await {
        Ok(answer) => answer,
        Err(problem) => {
            let mut refused = Value::Object(problem.to_json());
            // The problem's own "type" is an address; here it says what kind of message this is.
            refused["type"] = "error".into();
            refused["message"] = problem.detail().into();
            refused["request"] = kind.as_str().into();
            refused
        }
    };
    for (name, _) in &names {
        answer.as_object_mut().map(|answer| answer.remove(*name));
    }
    let mut frame = answer.to_string();
    for (name, value) in names {
        let between = if frame.len() > 2 { "," } else { "" };
        frame.truncate(frame.len() - 1);
        frame.push_str(&format!("{between}\"{name}\":{value}}}"));
    }
    frame
}

async fn done(
    session: &mut Session<Frames>,
    kind: &str,
    mut said: Map<String, Value>,
) -> Result<Value, Problem> {
    match kind {
        "ping" => return Ok(json!({"type": "pong"})),
        "subscribe_automations" => return watch(session).await,
        "unsubscribe_automations" => {
            session
                .unsubscribe(WATCH)
                .map_err(|_| Problem::new(Code::NotFound, "automations are not subscribed to"))?;
            return Ok(json!({"type": "ok", "request": kind}));
        }
        "list_automations" => return list(session, flag(&said, "includeDisabled")?).await,
        later if LATER.contains(&later) => {
            return Err(Problem::new(Code::NotAvailable, format!("\"{later}\" is not there yet")));
        }
        "create_automation" => {
            session.allow(Permission::AutomationWrite).await?;
            let said = defined(said.remove("automation"))?;
            may_declare(session.grant(), &session.tenant, &said)?;
            let made =
                act(session, "automation_created", move |tenant| tenant.create_automation(&said)).await?;
            session.administered("automations.create", ROUTE.to_owned(), StatusCode::CREATED).await;
            return Ok(made);
        }
        _ => {}
    }
    let needed = match kind {
        "get_automation" => Permission::Read,
        "update_automation" | "delete_automation" | "toggle_automation" | "run_automation" => {
            Permission::AutomationWrite
        }
        _ => {
            return Err(
                Problem::new(Code::RequestInvalid, format!("there is no message \"{kind}\"")).at("/type")
            );
        }
    };
    session.allow(needed).await?;
    let name = said.get("automationId").and_then(Value::as_str).map(str::to_owned);
    let name = name.ok_or_else(|| wrong("automationId", "names an automation"))?;
    match kind {
        "get_automation" => {
            let seen = session.seen();
            Ok(shown("automation_detail", aside::blocking(move || seen.automation(&name)).await?))
        }
        "run_automation" => run(session, name).await,
        _ => changed(session, kind, name, said).await,
    }
}

/// What a route would do, and in the audit it is what that route does.
async fn changed(
    session: &Session<Frames>,
    kind: &str,
    name: String,
    mut said: Map<String, Value>,
) -> Result<Value, Problem> {
    let path = format!("{ROUTE}/{name}");
    let (done, path, word, status) = match kind {
        "update_automation" => {
            let Some(Value::Object(patch)) = said.remove("patch") else {
                return Err(wrong("patch", "is an object of the keys to change"));
            };
            let grant = session.grant().cloned();
            let patched = move |tenant: &Tenant| {
                may_patch(grant.as_ref(), tenant, &tenant.automation(&name)?, &patch)?;
                tenant.patch_automation(&name, &patch)
            };
            (act(session, "automation_updated", patched).await?, path, "patch", StatusCode::OK)
        }
        "delete_automation" => (delete(session, name).await?, path, "delete", StatusCode::NO_CONTENT),
        _ => {
            let enabled = said.get("enabled").and_then(Value::as_bool);
            let enabled = enabled.ok_or_else(|| wrong("enabled", "is true or false"))?;
            let toggle = if enabled { Toggle::Enable } else { Toggle::Disable };
            let word = if enabled { "enable" } else { "disable" };
            let toggled = move |tenant: &Tenant| {
                tenant.set_automation(&name, toggle)?;
                tenant.automation(&name)
            };
            let done = act(session, "automation_updated", toggled).await?;
            (done, format!("{path}/{word}"), word, StatusCode::OK)
        }
    };
    session.administered(&format!("automations.{word}"), path, status).await;
    Ok(done)
}

fn wrong(name: &str, what: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("\"{name}\" {what}")).at(format!("/{name}"))
}

/// As contracts §8 writes one; the seed's clients call it `name`.
fn defined(said: Option<Value>) -> Result<Value, Problem> {
    let Some(Value::Object(mut said)) = said else {
        return Err(wrong("automation", "is a definition, an object"));
    };
    if let (false, Some(name)) = (said.contains_key("automation"), said.remove("name")) {
        said.insert("automation".to_owned(), name);
    }
    Ok(Value::Object(said))
}

/// A message about one automation; its name is its id.
pub fn shown(kind: &str, mut automation: Value) -> Value {
    automation["id"] = automation["name"].clone();
    json!({"type": kind, "automationId": automation["id"], "automation": automation})
}

async fn list(session: &mut Session<Frames>, disabled_too: bool) -> Result<Value, Problem> {
    session.allow(Permission::Read).await?;
    let seen = session.seen();
    let mut all = aside::blocking(move || seen.automations()).await?;
    all.retain(|automation| disabled_too || automation["enabled"] != false);
    all.iter_mut().for_each(|automation| automation["id"] = automation["name"].clone());
    Ok(json!({"type": "automation_list", "automations": all}))
}

async fn act(
    session: &Session<Frames>,
    kind: &str,
    act: impl FnOnce(&Tenant) -> Result<Value, Problem> + Send + 'static,
) -> Result<Value, Problem> {
    let tenant = session.tenant.clone();
    let automation = aside::blocking(move || act(&tenant)).await?;
    let mut message = shown(kind, automation);
    tell_others(session, &message);
    cover(&session.seen(), &mut message);
    Ok(message)
}

fn cover(seen: &Seen, message: &mut Value) {
    if let Some(automation) = message.get_mut("automation") {
        seen.cover_automation(automation);
    }
}

/// Who did it has its answer.
fn tell_others(session: &Session<Frames>, message: &Value) {
    let (tenant, by) = (session.tenant.name().to_owned(), Some(session.number));
    let _ = session.doors.automations.send(Arc::new(Told { tenant, message: message.clone(), by }));
}

async fn delete(session: &Session<Frames>, name: String) -> Result<Value, Problem> {
    let (tenant, gone) =
        (session.tenant.clone(), json!({"type": "automation_deleted", "automationId": name}));
    aside::blocking(move || tenant.delete_automation(&name, false)).await?;
    tell_others(session, &gone);
    Ok(gone)
}

async fn run(session: &Session<Frames>, name: String) -> Result<Value, Problem> {
    let (tenant, caller, of) = (session.tenant.clone(), session.caller.clone(), name.clone());
    // Whoever watches in this session waits until it is known which run is its own.
    let mut own = session.started.lock().await;
    let started = aside::blocking(move || tenant.start_run(&caller, &of, Value::Null, None)).await?;
    match started.run {
        Some(run) => {
            let over = (own.len() + 1).saturating_sub(STARTED_MAX);
            own.drain(..over);
            own.push_back(run.clone());
            Ok(json!({"type": "automation_run_started", "automationId": name, "runId": run}))
        }
        None => {
            let why = started.reason.unwrap_or_else(|| started.outcome.as_str().to_owned());
            Err(Problem::new(Code::RunRefused, format!("it was not started: {why}")))
        }
    }
}

async fn watch(session: &mut Session<Frames>) -> Result<Value, Problem> {
    session.allow(Permission::Read).await?;
    let mut follow = Follow { sight: session.caller.sight.clone(), ..Follow::default() };
    follow.patterns.push(Pattern::parse("automation.#")?);
    let (tenant, name) = (session.tenant.clone(), session.tenant.name().to_owned());
    let follower = aside::blocking(move || tenant.follow(follow)).await?;
    let (out, told) = (session.out.clone(), session.doors.automations.subscribe());
    let patience = session.doors.patience.reader;
    let own = (session.number, session.started.clone());
    let seen = session.seen();
    let task = aside::task(async move { tell(&out, (&name, &seen), (told, follower), own, patience).await });
    session.attach(WATCH, task).map_err(|problem| match problem.code() {
        Code::RequestInvalid => Problem::new(Code::RequestInvalid, "automations are subscribed to already")
            .hint("say \"unsubscribe_automations\" first to begin anew"),
        _ => problem,
    })?;
    Ok(json!({"type": "ok", "request": "subscribe_automations"}))
}

/// Until the session ends.
async fn tell(
    out: &Outbox<String>,
    (tenant, seen): (&str, &Seen),
    (mut told, mut follower): (broadcast::Receiver<Arc<Told>>, Follower),
    (number, started): (u64, Arc<Started>),
    patience: std::time::Duration,
) {
    loop {
        out.room(patience).await;
        let messages: Vec<Value> = tokio::select! {
            told = told.recv() => match told {
                Ok(told) if told.tenant == tenant && told.by != Some(number) => {
                    let mut message = told.message.clone();
                    cover(seen, &mut message);
                    vec![message]
                }
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            },
            events = follower.next(EVENTS_MAX) => match events {
                Ok(events) => {
                    let messages: Vec<Value> = events.iter().filter_map(|event| of_run(event)).collect();
                    let mut own = started.lock().await;
                    messages.into_iter().filter(|message| !answered(message, &mut own)).collect()
                }
                Err(_) => return,
            },
        };
        for message in messages {
            let message = message.to_string();
            let bytes = message.len();
            out.push(message, bytes);
        }
    }
}

/// Whether it says that a run began which the session itself started: that it was told as the answer.
fn answered(message: &Value, own: &mut VecDeque<String>) -> bool {
    let at = own.iter().position(|run| message["runId"] == run.as_str());
    message["type"] == "automation_run_started" && at.and_then(|at| own.remove(at)).is_some()
}

/// What a lifecycle event is in the seed's words.
fn of_run(event: &Event) -> Option<Value> {
    let payload: Value = serde_json::from_str(event.content.payload()?).ok()?;
    let of = |kind: &str| {
        json!({
            "type": kind, "automationId": payload["automationName"], "runId": payload["executionId"],
            "ts": event.time(),
        })
    };
    match event.envelope.topic.as_str() {
        "automation.started" => Some(of("automation_run_started")),
        "automation.completed" | "automation.failed" | "automation.cancelled" => {
            let mut message = of("automation_run_completed");
            message["status"] = payload["status"].clone();
            if !payload["error"].is_null() {
                message["error"] = payload["error"].clone();
            }
            Some(message)
        }
        "automation.step.started" if payload["stepType"] == "ask" => {
            let mut message = of("automation_run_blocked");
            message["stepId"] = payload["stepId"].clone();
            Some(message)
        }
        "automation.disabled" => {
            Some(json!({"type": "automation_updated", "automationId": payload["automation"],
            "enabled": false, "reason": payload["reason"]}))
        }
        "automation.paused" => {
            Some(json!({"type": "automation_updated", "automationId": payload["automation"],
            "paused": true, "reason": payload["reason"]}))
        }
        _ => None,
    }
}
