//! Subscriptions and their dispatch, near or far.

use model::Problem;
use serde_json::{Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn subscriptions(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.subscriptions(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/subscriptions").await?;
                Ok(serde_json::from_value(all["subscriptions"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn subscription(&self, id: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.subscription(id),
            Reach::Remote(client) => client.get(&path(id)).await,
        }
    }

    pub async fn put_subscription(&self, id: &str, definition: &Value) -> Result<(bool, Value), Problem> {
        match self {
            Reach::Local(local) => local.tenant.put_subscription(id, definition).await,
            Reach::Remote(client) => client.put(&path(id), definition).await,
        }
    }

    pub async fn drop_subscription(&self, id: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.drop_subscription(id).await,
            Reach::Remote(client) => client.delete(&path(id)).await,
        }
    }

    pub async fn enable_subscription(&self, id: &str, enabled: bool) -> Result<Value, Problem> {
        let word = if enabled { "enable" } else { "disable" };
        match self {
            Reach::Local(local) => local.tenant.enable_subscription(id, enabled).await,
            Reach::Remote(client) => client.post(&format!("{}/{word}", path(id)), &json!({})).await,
        }
    }

    /// One pass over the events of a group; as contracts §4 answers a drain.
    pub async fn dispatch(&self, group: &str, limit: u64) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let drained = local.tenant.drain_subscriptions(group, limit).await?;
                Ok(server::drained(&drained))
            }
            Reach::Remote(client) => {
                let path = format!("/v1/groups/{}/dispatch", escape(group));
                client.post(&path, &json!({ "limit": limit })).await
            }
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/subscriptions/{}", escape(id))
}
