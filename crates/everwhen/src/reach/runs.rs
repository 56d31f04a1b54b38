//! Automations, runs and waits, near or far.

mod operate;

use std::time::Duration;

use engine::clock::Move;
use engine::command::Toggle;
use engine::history::read::Wanted;
use engine::{Caller, Explained};
use model::{Problem, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use operate::{Start, no_edge};

use super::Reach;
use crate::client::{escape, query};

impl Reach {
    /// Runs or decisions, newest first; `next` goes on.
    pub async fn happened(&self, what: &str, wanted: &Wanted) -> Result<(Vec<Value>, Option<u64>), Problem> {
        match self {
            Reach::Local(local) if what == "runs" => local.tenant.runs(wanted),
            Reach::Local(local) => local.tenant.decisions(wanted),
            Reach::Remote(client) => {
                let status = if what == "runs" { "status" } else { "outcome" };
                let (limit, since) = (wanted.limit.to_string(), wanted.since.map(|since| since.to_string()));
                let cursor = wanted.before.map(|before| before.to_string());
                let query = query(&[
                    ("automation", wanted.automation.as_deref()),
                    (status, wanted.status.as_deref()),
                    ("since", since.as_deref()),
                    ("limit", Some(&limit)),
                    ("cursor", cursor.as_deref()),
                ]);
                let mut page: Value = client.get(&format!("/v1/{what}{query}")).await?;
                let next = page["next"].as_str().and_then(|next| next.parse().ok());
                let items = serde_json::from_value(page[what].take()).unwrap_or_default();
                Ok((items, next))
            }
        }
    }

    pub async fn run(&self, id: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.run(id),
            Reach::Remote(client) => client.get(&format!("/v1/runs/{}", escape(id))).await,
        }
    }

    pub async fn automations(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.automations(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/automations").await?;
                Ok(serde_json::from_value(all["automations"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn automation(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.automation(name),
            Reach::Remote(client) => client.get(&format!("/v1/automations/{}", escape(name))).await,
        }
    }

    pub async fn next_instants(&self, name: &str, count: usize) -> Result<Vec<Timestamp>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.next_instants(name, count),
            Reach::Remote(client) => {
                let path = format!("/v1/automations/{}/next?count={count}", escape(name));
                let mut next: Value = client.get(&path).await?;
                Ok(serde_json::from_value(next["next"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn toggle(&self, name: &str, toggle: Toggle) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                local.tenant.set_automation(name, toggle)?;
                local.tenant.automation(name)
            }
            Reach::Remote(client) => {
                let word = match toggle {
                    Toggle::Enable => "enable",
                    Toggle::Disable => "disable",
                    Toggle::Pause => "pause",
                    Toggle::Resume => "resume",
                    Toggle::Drain => "drain",
                };
                client.post(&format!("/v1/automations/{}/{word}", escape(name)), &json!({})).await
            }
        }
    }

    pub async fn waits(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.waits(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/waits").await?;
                Ok(serde_json::from_value(all["waits"].take()).unwrap_or_default())
            }
        }
    }

    /// `by`: in whose name, if not one's own.
    pub async fn answer(&self, wait: &str, value: Value, by: Option<&str>) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => {
                let by = by.map_or_else(|| Ok(local.caller.clone()), Caller::named)?;
                local.tenant.answer_wait(&by, wait, value)
            }
            Reach::Remote(client) => {
                let (path, body) = (format!("/v1/waits/{}/answer", escape(wait)), json!({ "value": value }));
                let answered = match by {
                    Some(by) => client.post_as::<Value>(&path, &body, by).await,
                    None => client.post::<Value>(&path, &body).await,
                };
                answered.map(drop)
            }
        }
    }

    /// Moves the time of a server; a directory that is opened here goes by the machine's.
    pub async fn move_clock(&self, by: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                local.engine.move_clock(Move::By(Duration::ZERO)).map(|now| json!({ "now": now }))
            }
            Reach::Remote(client) => client.post("/v1/clock", by).await,
        }
    }

    pub async fn redrive_effect(&self, wait: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.redrive_effect(wait),
            Reach::Remote(client) => client
                .post::<Value>(&format!("/v1/waits/{}/redrive", escape(wait)), &json!({}))
                .await
                .map(drop),
        }
    }

    /// Why something happened or did not: `event`, `automation` or `run`; as text, so that payloads keep every digit.
    pub async fn explain(&self, what: &str, id: &str, since: Option<Timestamp>) -> Result<String, Problem> {
        match self {
            Reach::Local(local) => {
                let explained = match what {
                    "event" => local.tenant.explain_event(id),
                    "automation" => local.tenant.explain_automation(id, since).map(Explained::from),
                    _ => local.tenant.explain_run(id),
                };
                explained.map(|explained| explained.to_json())
            }
            Reach::Remote(client) => {
                let since = since.map(|since| since.to_string());
                let query = query(&[("since", since.as_deref())]);
                let path = format!("/v1/explain/{what}/{}{query}", escape(id));
                client.get::<Box<RawValue>>(&path).await.map(|text| text.get().to_owned())
            }
        }
    }
}
