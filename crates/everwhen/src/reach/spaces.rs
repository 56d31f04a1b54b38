//! Sealed spaces of a tenant, near or far.

use model::Problem;
use serde_json::{Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn spaces(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.spaces(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/spaces").await?;
                Ok(serde_json::from_value(all["spaces"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn seal_space(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.seal_space(&local.caller, name).await?.1),
            Reach::Remote(client) => client.post(&path(name, "seal"), &json!({})).await,
        }
    }

    pub async fn forget_space(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.forget_space(&local.caller, name).await,
            Reach::Remote(client) => client.post(&path(name, "forget"), &json!({})).await,
        }
    }
}

fn path(name: &str, what: &str) -> String {
    format!("/v1/spaces/{}/{what}", escape(name))
}
