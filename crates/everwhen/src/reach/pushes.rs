//! Outbound pushes of a tenant, near or far.

use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn pushes(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.pushes(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/push").await?;
                Ok(serde_json::from_value(all["pushes"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn push(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.shown_push(name),
            Reach::Remote(client) => client.get(&path(name)).await,
        }
    }

    pub async fn put_push(&self, name: &str, said: Map<String, Value>) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.put_push(&local.caller, name, said).await,
            Reach::Remote(client) => client.put(&path(name), &Value::Object(said)).await,
        }
        .map(|(_, push)| push)
    }

    pub async fn drop_push(&self, name: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.drop_push(&local.caller, name).await,
            Reach::Remote(client) => client.delete(&path(name)).await,
        }
    }

    /// `pause`, `resume` or `test`.
    pub async fn act_on_push(&self, name: &str, what: &str) -> Result<Value, Problem> {
        match (self, what) {
            (Reach::Remote(client), _) => client.post(&format!("{}/{what}", path(name)), &json!({})).await,
            (Reach::Local(local), "pause") => local.tenant.pause_push(&local.caller, name).await,
            (Reach::Local(local), "resume") => local.tenant.resume_push(&local.caller, name).await,
            (Reach::Local(local), "test") => local.engine.test_push(&local.tenant, name).await,
            (Reach::Local(_), other) => {
                Err(Problem::new(Code::UsageInvalid, format!("a push cannot \"{other}\"")))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/push/{}", escape(name))
}
