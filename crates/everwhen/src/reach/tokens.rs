//! Tokens of a tenant, near or far.

use model::Problem;
use serde_json::{Value, json};

use super::Reach;
use crate::client::escape;

impl Reach {
    pub async fn tokens(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.engine.authority().list(&local.tenant),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/tokens").await?;
                Ok(serde_json::from_value(all["tokens"].take()).unwrap_or_default())
            }
        }
    }

    /// The token with its text, as it is told once.
    pub async fn create_token(&self, said: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let terms = server::terms(said, local.tenant.now())?;
                let (text, mut shown) =
                    local.engine.authority().create(&local.tenant, &local.caller, terms).await?;
                shown["token"] = text.into();
                Ok(shown)
            }
            Reach::Remote(client) => client.post("/v1/tokens", &json!(said)).await,
        }
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.engine.authority().revoke(&local.tenant, &local.caller, id).await,
            Reach::Remote(client) => client.delete(&format!("/v1/tokens/{}", escape(id))).await,
        }
    }
}
