//! Outbound pushes of a tenant: rows of its own that say where the events of a group are posted to (`docs/push.md`).
//!
//! ```text
//!  row v1:everwhen:push   where to, in which format, the sealed secret, whether it is active
//!  group push-<name>      which events, how far it has come, retries, dead letters
//! ```
//! The row is written first and the group follows; whoever sends makes a group that is missing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::group::Definition;
use model::time::{duration_json, duration_of};
use model::{Code, Problem, Timestamp, base64};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::admit::{Caller, Draft, check_read_space};
use crate::deliver::matcher;
use crate::effect::http;
use crate::entity::own::PUSH;
use crate::entity::{Action, MASK, Row, Write};

/// What a push may say.
pub const FIELDS: [&str; 14] = [
    "url",
    "pattern",
    "filter",
    "space",
    "max_band",
    "start",
    "ordered",
    "format",
    "secret",
    "timeout",
    "max_inflight",
    "max_retries",
    "backoff",
    "headers",
];
/// Fields of its group, as contracts §4 has them.
const OF_GROUP: [&str; 8] =
    ["pattern", "filter", "space", "max_band", "start", "max_inflight", "max_retries", "backoff"];
const NAME_MAX: usize = 59;
const TIMEOUT: Duration = Duration::from_secs(15);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// What a delivery has beyond its request before it counts as missed.
const MARGIN: Duration = Duration::from_secs(30);
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The event of contracts §2.
    Json,
    /// CloudEvents, structured.
    CloudEvents,
    /// CloudEvents, its attributes in headers.
    CloudEventsBinary,
}

impl Format {
    const ALL: [(&str, Format); 3] = [
        ("json", Format::Json),
        ("cloudevents", Format::CloudEvents),
        ("cloudevents-binary", Format::CloudEventsBinary),
    ];

    fn parse(word: &str) -> Option<Format> {
        Format::ALL.iter().find(|(known, _)| *known == word).map(|(_, format)| *format)
    }
}

/// A push as its sender needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    pub name: String,
    pub group: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub format: Format,
    pub timeout: Duration,
    pub ordered: bool,
    pub definition: Value,
    /// Never for an answer.
    pub secret: Vec<u8>,
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::PushInvalid, detail).at(format!("/{field}"))
}

impl Tenant {
    /// Makes or replaces a push; `true` when it is new. One that was stopped stays so, whatever is changed about it. A secret that was
    /// made here is told in this answer and nowhere else.
    pub async fn put_push(
        &self,
        by: &Caller,
        name: &str,
        mut said: Map<String, Value>,
    ) -> Result<(bool, Value), Problem> {
        check_name(name)?;
        let before = self.push_row(name).ok();
        let made = self.give_secret(before.is_some(), &mut said)?;
        self.unmask_headers(before.as_ref(), &mut said)?;
        let definition = checked(&said)?;
        if let Some(space) = definition["space"].as_str() {
            check_read_space(Code::PushInvalid, space)?;
        }
        said.extend(standing(before.as_ref()));
        let group = group_of(name);
        let written = self.write(&inside(by), Write::of(PUSH, Some(name), Action::Put(said))).await?;
        self.put_group(&group, &definition).await?;
        match is_active(&written.row) {
            true => self.resume(&group).await?,
            // The group may be a new one, if somebody had taken the old one away.
            false => self.pause(&group).await?,
        };
        self.pushes_changed();
        let mut shown = self.shown(&written.row);
        if let Some(made) = made {
            shown["secret"] = made.into();
        }
        Ok((before.is_none(), shown))
    }

    /// Without one that is said, the secret that is there stays; else one is made, which is given back to be told.
    fn give_secret(&self, there: bool, said: &mut Map<String, Value>) -> Result<Option<String>, Problem> {
        if let Some(given) = said.get("secret") {
            return secret_of(given).map(|_| None);
        }
        let made = (!there).then(|| format!("whsec_{}", base64::encode(&self.random::<32>())));
        said.insert("secret".to_owned(), made.as_deref().unwrap_or(MASK).into());
        Ok(made)
    }

    /// A header that is said as it is shown keeps the value that it has.
    fn unmask_headers(&self, before: Option<&Row>, said: &mut Map<String, Value>) -> Result<(), Problem> {
        let Some(Value::Object(headers)) = said.get_mut("headers") else { return Ok(()) };
        let masked = headers.iter_mut().filter(|(_, value)| **value == MASK);
        let kept = match before {
            Some(row) => self.reveal(row, "/headers")?.unwrap_or_default(),
            None => Value::Null,
        };
        for (name, value) in masked {
            let mut known = kept.as_object().into_iter().flatten();
            let Some((_, kept)) = known.find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
                let detail = format!("\"{MASK}\" is what the header \"{name}\" would read as, not its value");
                return Err(wrong("headers", detail).hint("give the value itself, or leave the header out"));
            };
            *value = kept.clone();
        }
        Ok(())
    }

    /// Refuses to let the group of a push be changed apart from it: they would not fit any more.
    pub fn check_no_push(&self, group: &str) -> Result<(), Problem> {
        match group.strip_prefix("push-") {
            Some(push) if self.push_row(push).is_ok() => {
                let detail = format!("the group \"{group}\" is that of the push \"{push}\"");
                let hint = format!(
                    "`everwhen push add {push}` changes both, `everwhen push rm {push}` removes both"
                );
                Err(Problem::new(Code::DefinitionConflict, detail).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// Every push, without its secret.
    pub fn pushes(&self) -> Result<Vec<Value>, Problem> {
        Ok(self.own_rows(PUSH)?.iter().map(|row| self.shown(row)).collect())
    }

    pub fn shown_push(&self, name: &str) -> Result<Value, Problem> {
        Ok(self.shown(&self.push_row(name)?))
    }

    /// Forgets the push and its group.
    pub async fn drop_push(&self, by: &Caller, name: &str) -> Result<(), Problem> {
        self.push_row(name)?;
        self.write(&inside(by), Write::of(PUSH, Some(name), Action::Delete)).await?;
        self.pushes_changed();
        match self.delete_group(&group_of(name)).await {
            Err(problem) if problem.code() != Code::GroupNotFound => Err(problem),
            _ => Ok(()),
        }
    }

    /// Sends nothing until it is resumed.
    pub async fn pause_push(&self, by: &Caller, name: &str) -> Result<Value, Problem> {
        self.push_row(name)?;
        self.set_push(by, name, json!({"state": "paused", "reason": "by hand"})).await?;
        self.pause(&group_of(name)).await?;
        self.pushes_changed();
        self.shown_push(name)
    }

    /// Sends again, from where it stopped.
    pub async fn resume_push(&self, by: &Caller, name: &str) -> Result<Value, Problem> {
        self.push_row(name)?;
        let active = json!({"state": "active", "reason": null, "failing_since": null, "last_error": null});
        self.set_push(by, name, active).await?;
        self.resume(&group_of(name)).await?;
        self.pushes_changed();
        self.shown_push(name)
    }

    /// The sender gives up: `state` is `paused` or `disabled`. Said as an event.
    pub(crate) async fn stop_push(
        &self,
        push: &Push,
        state: &str,
        reason: &str,
        failures: u32,
    ) -> Result<(), Problem> {
        let engine = engine();
        self.set_push(&engine, &push.name, json!({"state": state, "reason": reason})).await?;
        self.pause(&push.group).await?;
        let payload = json!({"push": push.name, "url": push.url, "reason": reason, "failures": failures});
        let draft = Draft {
            space: Some("_system".to_owned()),
            ..Draft::new(format!("engine.push.{state}"), &payload)
        };
        self.publish(&engine, draft).await.map(drop)
    }

    /// When its run of failures began, and what came of the last request; nothing: the last delivery was taken.
    pub(crate) async fn note_push(
        &self,
        name: &str,
        since: Option<Timestamp>,
        error: Option<&str>,
    ) -> Result<(), Problem> {
        self.set_push(&engine(), name, json!({"failing_since": since, "last_error": error})).await
    }

    pub(crate) fn push_failing_since(&self, name: &str) -> Option<Timestamp> {
        let row = self.push_row(name).ok()?;
        Timestamp::parse(row.fields.get("failing_since")?.as_str()?).ok()
    }

    /// A push by its name, active or not, with its secret in the clear.
    pub fn push(&self, name: &str) -> Result<Push, Problem> {
        self.revealed(&self.push_row(name)?)
    }

    pub(crate) fn active_pushes(&self) -> Result<Vec<Push>, Problem> {
        let rows = self.own_rows(PUSH)?;
        rows.iter().filter(|row| is_active(row)).map(|row| self.revealed(row)).collect()
    }

    pub(super) fn is_pushing(&self) -> Result<bool, Problem> {
        Ok(self.own_rows(PUSH)?.iter().any(is_active))
    }

    fn pushes_changed(&self) {
        self.0.outside.pushes_seen.store(false, Ordering::Release);
        self.0.around.effects.ring();
    }

    /// Whether pushes were changed since this was last asked; at first they were.
    pub(crate) fn take_pushes_changed(&self) -> bool {
        !self.0.outside.pushes_seen.swap(true, Ordering::AcqRel)
    }

    fn revealed(&self, row: &Row) -> Result<Push, Problem> {
        let secret = self.reveal(row, "/secret")?.unwrap_or_default();
        let text = |field: &str| row.fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let headers = self.reveal(row, "/headers")?.unwrap_or_default();
        let headers = headers.as_object().into_iter().flatten();
        Ok(Push {
            name: row.id.clone(),
            group: group_of(&row.id),
            url: text("url"),
            headers: headers
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            format: Format::parse(&text("format")).unwrap_or(Format::Json),
            timeout: row.fields.get("timeout").and_then(duration_of).unwrap_or(TIMEOUT),
            ordered: row.fields.get("ordered") == Some(&Value::Bool(true)),
            definition: checked(&row.fields)?,
            secret: secret_of(&secret)?,
        })
    }

    async fn set_push(&self, by: &Caller, name: &str, fields: Value) -> Result<(), Problem> {
        let Value::Object(fields) = fields else { return Ok(()) };
        self.write(&inside(by), Write::of(PUSH, Some(name), Action::Patch(fields))).await.map(drop)
    }

    fn push_row(&self, name: &str) -> Result<Row, Problem> {
        self.entity(&engine(), PUSH, None, name).map_err(|problem| match problem.code() {
            Code::NotFound => Problem::new(Code::NotFound, format!("there is no push \"{name}\""))
                .hint("`everwhen push list` shows them"),
            _ => problem,
        })
    }

    fn shown(&self, row: &Row) -> Value {
        let group = group_of(&row.id);
        let mut push = json!({
            "name": row.id, "group": group, "format": "json", "ordered": false, "timeout": duration_json(TIMEOUT),
            "created_at": row.created_at, "created_by": row.created_by,
        });
        let told = row.fields.iter().filter(|(name, value)| *name != "secret" && !value.is_null());
        told.for_each(|(name, value)| push[name] = value.clone());
        told_durations(&mut push);
        // Their names say what is sent; what they say is nobody's to read.
        if let Ok(Some(Value::Object(headers))) = self.reveal(row, "/headers") {
            push["headers"] = headers.into_iter().map(|(name, _)| (name, Value::from(MASK))).collect();
        }
        if let Ok(view) = self.group(&group) {
            let view = view.to_json();
            for field in ["floor", "lag", "inflight", "delayed", "dead_letters", "events_processed_total"] {
                push[field] = view[field].clone();
            }
        }
        push
    }
}

/// However they were said, durations are told in seconds (contracts §0).
fn told_durations(push: &mut Value) {
    for pointer in ["/timeout", "/backoff/base", "/backoff/max"] {
        if let Some(value) = push.pointer_mut(pointer)
            && let Some(duration) = duration_of(value)
        {
            *value = duration_json(duration);
        }
    }
}

fn is_active(row: &Row) -> bool {
    row.fields.get("state").is_some_and(|state| state == "active")
}

/// What has become of a push, of which its settings say nothing.
const STANDING: [&str; 4] = ["state", "reason", "failing_since", "last_error"];

/// Active, unless it was stopped before: then only a resume lets it go on.
fn standing(before: Option<&Row>) -> Map<String, Value> {
    let Some(row) = before.filter(|row| !is_active(row)) else {
        return Map::from_iter([("state".to_owned(), "active".into())]);
    };
    let kept = |field: &str| row.fields.get(field).filter(|value| !value.is_null()).cloned();
    STANDING.iter().filter_map(|field| Some(((*field).to_owned(), kept(field)?))).collect()
}

fn group_of(name: &str) -> String {
    format!("push-{name}")
}

fn engine() -> Caller {
    Caller { actor: "system:engine".to_owned(), outside: false, ..Caller::local() }
}

/// The house acts for who asked.
fn inside(by: &Caller) -> Caller {
    Caller { outside: false, ..by.clone() }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if begins && name.len() <= NAME_MAX && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Problem::new(Code::PushInvalid, format!("\"{name}\" is no name for a push"))
        .hint(format!("use up to {NAME_MAX} lower-case letters, digits, - and _")))
}

/// What its group is, after all of it was looked at.
fn checked(said: &Map<String, Value>) -> Result<Value, Problem> {
    let given = |field: &str| said.get(field).filter(|value| !value.is_null());
    let url = given("url").and_then(Value::as_str).ok_or_else(|| wrong("url", "\"url\" is missing"))?;
    http::check_url(url).map_err(|problem| wrong("url", problem.detail().to_owned()))?;
    let ordered = match given("ordered") {
        None => false,
        Some(Value::Bool(ordered)) => *ordered,
        Some(_) => return Err(wrong("ordered", "\"ordered\" is true or false")),
    };
    if let Some(format) = given("format")
        && format.as_str().and_then(Format::parse).is_none()
    {
        return Err(wrong("format", format!("{format} is no format"))
            .hint("choose json, cloudevents or cloudevents-binary"));
    }
    let timeout = match given("timeout") {
        None => TIMEOUT,
        Some(value) => duration_of(value)
            .filter(|timeout| !timeout.is_zero() && *timeout <= TIMEOUT_MAX)
            .ok_or_else(|| wrong("timeout", format!("\"timeout\": {value} is no duration up to 60 s")))?,
    };
    check_headers(given("headers"))?;
    let mut group = json!({
        "max_inflight": if ordered { 1 } else { 8 }, "max_retries": 100,
        "backoff": {"base": "1s", "mult": 2, "max": "1h"},
    });
    for field in OF_GROUP {
        if let Some(value) = given(field) {
            group[field] = value.clone();
        }
    }
    group["ordering"] = if ordered { "strict" } else { "none" }.into();
    group["ack_deadline"] = duration_json(timeout + MARGIN);
    let definition = Definition::parse(&group).map_err(of_push)?;
    matcher::check(&definition).map_err(of_push)?;
    Ok(group)
}

fn of_push(problem: Problem) -> Problem {
    let pointer = problem.pointer().unwrap_or_default().to_owned();
    Problem::new(Code::PushInvalid, problem.detail()).at(pointer)
}

fn check_headers(headers: Option<&Value>) -> Result<(), Problem> {
    // Of a row only the mask is left, and it was checked before it was sealed.
    let Some(headers) = headers.filter(|headers| **headers != MASK) else { return Ok(()) };
    let refuse = || wrong("headers", "\"headers\" has texts by the names of headers");
    let headers = headers.as_object().ok_or_else(refuse)?;
    let plain = headers.values().map(Value::as_str).collect::<Option<Vec<_>>>().ok_or_else(refuse)?;
    let signs = |name: &String| name.to_ascii_lowercase().starts_with("webhook-");
    if let Some(name) = headers.keys().find(|name| signs(name)) {
        return Err(wrong("headers", format!("the header \"{name}\" is the signature's")));
    }
    let pairs = headers.keys().cloned().zip(plain.into_iter().map(str::to_owned)).collect();
    http::check_headers(pairs).map_err(|problem| wrong("headers", problem.detail().to_owned()))
}

/// `whsec_<base64>`, as Standard Webhooks writes it.
fn secret_of(given: &Value) -> Result<Vec<u8>, Problem> {
    let text = given.as_str().unwrap_or_default();
    let bytes = base64::decode_loosely(text.strip_prefix("whsec_").unwrap_or(text));
    bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len())).ok_or_else(|| {
        wrong("secret", "a secret is \"whsec_\" and 16 to 64 bytes in base64")
            .hint("leave it out, and one is made and told once")
    })
}
