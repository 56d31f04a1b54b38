//! Secrets of a tenant, near or far.

use model::Problem;
use serde_json::{Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn secrets(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.secrets(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/secrets").await?;
                Ok(serde_json::from_value(all["secrets"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn put_secret(&self, name: &str, value: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.put_secret(&local.caller, name, value).await?.1),
            Reach::Remote(client) => {
                let path = format!("/v1/secrets/{}", escape(name));
                Ok(client.put(&path, &json!({ "value": value })).await?.1)
            }
        }
    }

    pub async fn drop_secret(&self, name: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.drop_secret(&local.caller, name).await,
            Reach::Remote(client) => client.delete(&format!("/v1/secrets/{}", escape(name))).await,
        }
    }
}
