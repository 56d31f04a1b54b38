//! Tasks for workers, near or far.

use model::{Code, Problem};
use serde_json::Value;

use super::Reach;

impl Reach {
    pub async fn tasks(&self) -> Result<Vec<Value>, Problem> {
        match self {
            Reach::Local(local) => local.tenant.tasks(),
            Reach::Remote(client) => {
                let mut all: Value = client.get("/v1/tasks").await?;
                Ok(serde_json::from_value(all["tasks"].take()).unwrap_or_default())
            }
        }
    }

    /// What a worker says. Only a server remembers between two commands who has which task.
    pub async fn tell_tasks(&self, what: &str, said: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(_) => {
                Err(Problem::new(Code::UsageInvalid, "a task is held only while a server runs")
                    .hint("start one with: everwhen serve"))
            }
            Reach::Remote(client) => client.post(&format!("/v1/tasks/{what}"), said).await,
        }
    }
}
