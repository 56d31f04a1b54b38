//! Inbound hooks of a tenant, near or far.

use model::Problem;
use serde_json::{Map, Value};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn hooks(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.hooks(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/hooks").await?;
                Ok(serde_json::from_value(all["hooks"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn put_hook(&self, name: &str, said: Map<String, Value>) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                server::check_hook(&local.tenant, name, &said)?;
                local.tenant.put_hook(&local.caller, name, said).await
            }
            Reach::Remote(client) => client.put(&path(name), &Value::Object(said)).await,
        }
        .map(|(_, hook)| hook)
    }

    pub async fn drop_hook(&self, name: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.drop_hook(&local.caller, name).await,
            Reach::Remote(client) => client.delete(&path(name)).await,
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/hooks/{}", escape(name))
}
