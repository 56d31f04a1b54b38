//! Groups and their dead letters, near or far.

use std::time::Duration;

use engine::{Delivery as LocalDelivery, Redrive, Settled};
use model::group::parse_start;
use model::time::duration_json;
use model::{Position, Problem};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Reach;
use super::events::{filter_value, parse_filter, text};
use crate::client::{escape, query};

/// An event handed to us, with the token that settles it.
#[derive(Deserialize)]
pub struct Delivery {
    pub token: String,
    pub attempt: u32,
    pub deadline: String,
    pub event: Box<RawValue>,
}

/// How a delivery ends.
pub enum Settle {
    Ack {
        sync: bool,
    },
    Nack {
        delay: Option<Duration>,
        error: Option<String>,
    },
    /// The end of a pass: a group that halts does so at once.
    Halt {
        error: String,
    },
    Extend {
        by: Duration,
    },
    Reject {
        error: Option<String>,
    },
}

/// Which dead letters go back to their group.
pub enum Letters {
    All,
    Positions(Vec<Position>),
    Filter(String),
}

impl Reach {
    /// Makes or changes a group; `true` when it is new.
    pub async fn put_group(&self, name: &str, definition: &Value) -> Result<(bool, Value), Problem> {
        match self {
            Reach::Local(local) => {
                local.tenant.check_no_push(name)?;
                let (created, view) = local.tenant.put_group(name, definition).await?;
                Ok((created, view.to_json()))
            }
            Reach::Remote(client) => client.put(&path(name, ""), definition).await,
        }
    }

    pub async fn group(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.group(name)?.to_json()),
            Reach::Remote(client) => client.get(&path(name, "")).await,
        }
    }

    pub async fn groups(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.groups()?.iter().map(|view| view.to_json()).collect()),
            Reach::Remote(client) => {
                #[derive(Deserialize)]
                struct Groups {
                    groups: Vec<Value>,
                }
                Ok(client.get::<Groups>("/v1/groups").await?.groups)
            }
        }
    }

    pub async fn delete_group(&self, name: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => {
                local.tenant.check_no_push(name)?;
                local.tenant.delete_group(name).await
            }
            Reach::Remote(client) => client.delete(&path(name, "")).await,
        }
    }

    pub async fn pull(&self, name: &str, max: usize, wait: Duration) -> Result<Vec<Delivery>, Problem> {
        match self {
            Reach::Local(local) => {
                local.tenant.pull(name, max, wait).await?.iter().map(handed).collect::<Result<_, _>>()
            }
            Reach::Remote(client) => {
                #[derive(Deserialize)]
                struct Pulled {
                    deliveries: Vec<Delivery>,
                }
                let body = json!({ "max": max, "wait": duration_json(wait) });
                Ok(client.post::<Pulled>(&path(name, "/pull"), &body).await?.deliveries)
            }
        }
    }

    /// Settles deliveries; the answer is `{"done","stale"}`.
    pub async fn settle(&self, name: &str, tokens: &[String], how: Settle) -> Result<Value, Problem> {
        match self {
            Reach::Remote(client) => {
                let (verb, body) = settle_request(tokens, &how);
                client.post(&path(name, verb), &body).await
            }
            Reach::Local(local) => {
                let tenant = &local.tenant;
                let Settled { done, stale } = match how {
                    Settle::Ack { sync } => tenant.ack(name, tokens, sync).await?,
                    Settle::Nack { delay, error } => tenant.nack(name, tokens, delay, error).await?,
                    Settle::Halt { error } => tenant.nack_halting(name, tokens, Some(error)).await?,
                    Settle::Extend { by } => tenant.extend(name, tokens, by).await?,
                    Settle::Reject { error } => tenant.reject(name, tokens, error).await?,
                };
                Ok(json!({ "done": done, "stale": stale }))
            }
        }
    }

    /// Moves a group to a place, written as in `{"to": …}`.
    pub async fn seek(&self, name: &str, to: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.seek(name, parse_start(to)?).await?.to_json()),
            Reach::Remote(client) => client.post(&path(name, "/seek"), &json!({ "to": to })).await,
        }
    }

    pub async fn pause(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.pause(name).await?.to_json()),
            Reach::Remote(client) => client.post(&path(name, "/pause"), &json!({})).await,
        }
    }

    pub async fn resume(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.resume(name).await?.to_json()),
            Reach::Remote(client) => client.post(&path(name, "/resume"), &json!({})).await,
        }
    }

    /// Begins a pass over a group: a halted one tries its failed event again. A paused one stays paused.
    pub async fn drain_pass(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.drain_pass(name).await?.to_json()),
            Reach::Remote(_) => match self.group(name).await? {
                view if view["halted_on"].is_number() && view["paused"] != true => self.resume(name).await,
                view => Ok(view),
            },
        }
    }

    /// A page of dead letters, each as text, and where the next page begins.
    pub async fn dead_letters(
        &self,
        name: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), Problem> {
        match self {
            Reach::Local(local) => {
                let page = local.tenant.dead_letters(name, limit, cursor)?;
                Ok((page.texts, page.next))
            }
            Reach::Remote(client) => {
                #[derive(Deserialize)]
                struct Page {
                    dead_letters: Vec<Box<RawValue>>,
                    next: Option<String>,
                }
                let limit = limit.to_string();
                let query = query(&[("limit", Some(&limit)), ("cursor", cursor)]);
                let page: Page = client.get(&path(name, &format!("/dead-letters{query}"))).await?;
                Ok((page.dead_letters.into_iter().map(text).collect(), page.next))
            }
        }
    }

    /// Gives dead letters back to their group; how many went.
    pub async fn redrive(&self, name: &str, letters: Letters) -> Result<u64, Problem> {
        match self {
            Reach::Local(local) => {
                let which = match letters {
                    Letters::All => Redrive::All,
                    Letters::Positions(positions) => Redrive::Positions(positions),
                    Letters::Filter(filter) => Redrive::Filter(parse_filter(&filter)?),
                };
                local.tenant.redrive(name, which).await
            }
            Reach::Remote(client) => {
                let body = match letters {
                    Letters::All => json!({ "all": true }),
                    Letters::Positions(positions) => json!({ "positions": positions }),
                    Letters::Filter(filter) => json!({ "filter": filter_value(&filter) }),
                };
                let answer: Value = client.post(&path(name, "/dead-letters/redrive"), &body).await?;
                Ok(answer["redriven"].as_u64().unwrap_or_default())
            }
        }
    }

    /// Asks a server whether it is ready: `{"ready","failing"}`.
    pub async fn ready(&self) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let health = local.engine.health();
                Ok(json!({ "ready": health.ready, "failing": health.failing }))
            }
            Reach::Remote(client) => client.ready().await,
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/groups/{}{rest}", escape(name))
}

fn handed(delivery: &LocalDelivery) -> Result<Delivery, Problem> {
    let event = RawValue::from_string(delivery.event.to_json())
        .map_err(|error| Problem::new(model::Code::Internal, format!("an event is not JSON: {error}")))?;
    let LocalDelivery { token, attempt, deadline, .. } = delivery;
    Ok(Delivery { token: token.to_string(), attempt: *attempt, deadline: deadline.to_string(), event })
}

fn settle_request(tokens: &[String], how: &Settle) -> (&'static str, Value) {
    let mut body = json!({ "tokens": tokens });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    let verb = match how {
        Settle::Ack { sync } => {
            add("sync", Some(json!(sync)));
            "/ack"
        }
        Settle::Nack { delay, error } => {
            add("delay", delay.map(duration_json));
            add("error", error.as_ref().map(|error| json!(error)));
            "/nack"
        }
        Settle::Halt { error } => {
            add("error", Some(json!(error)));
            add("halt", Some(json!(true)));
            "/nack"
        }
        Settle::Extend { by } => {
            add("by", Some(duration_json(*by)));
            "/extend"
        }
        Settle::Reject { error } => {
            add("error", error.as_ref().map(|error| json!(error)));
            "/reject"
        }
    };
    (verb, body)
}
