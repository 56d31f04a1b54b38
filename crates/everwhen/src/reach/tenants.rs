//! The tenants of a house, near or far.

use model::Problem;
use serde_json::{Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn tenants(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.engine.list_tenants(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/tenants").await?;
                Ok(serde_json::from_value(all["tenants"].take()).unwrap_or_default())
            }
        }
    }

    pub async fn show_tenant(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.engine.show_tenant(name),
            Reach::Remote(client) => client.get(&path(name, "")).await,
        }
    }

    /// The tenant with the text of its owner's token, as that is told once.
    pub async fn create_tenant(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.engine.create_tenant(&local.caller, name).await,
            Reach::Remote(client) => client.post("/v1/tenants", &json!({ "name": name })).await,
        }
    }

    pub async fn suspend_tenant(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.engine.suspend_tenant(&local.caller, name).await,
            Reach::Remote(client) => client.post(&path(name, "/suspend"), &json!({})).await,
        }
    }

    pub async fn resume_tenant(&self, name: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.engine.resume_tenant(&local.caller, name).await,
            Reach::Remote(client) => client.post(&path(name, "/resume"), &json!({})).await,
        }
    }

    pub async fn set_quota(&self, name: &str, said: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let said = said.as_object().cloned().unwrap_or_default();
                local.engine.set_quota(&local.caller, name, server::read_quota(&said)?).await
            }
            Reach::Remote(client) => Ok(client.put(&path(name, "/quota"), said).await?.1),
        }
    }

    pub async fn delete_tenant(&self, name: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.engine.delete_tenant(&local.caller, name).await,
            Reach::Remote(client) => client.delete(&path(name, "")).await,
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/tenants/{}{rest}", escape(name))
}
