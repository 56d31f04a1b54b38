//! What was administered, and what was signed of the ledger, near or far.

use engine::maintain::audit::{self, Testimony};
use engine::tenant::audit::Act;
use engine::{Caller, Engine};
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};

use super::Reach;
use super::maintain::{aside, existing};
use crate::client::query;
use crate::session::{Place, Session};

/// Commands that administer; done on a directory without a server, they are written down here.
const ACTS: [&str; 31] = [
    "apply",
    "automations create",
    "automations delete",
    "automations disable",
    "automations drain",
    "automations enable",
    "automations patch",
    "automations pause",
    "automations resume",
    "backup",
    "dead-letters redrive",
    "erase",
    "groups pause",
    "groups put",
    "groups resume",
    "groups rm",
    "groups seek",
    "import",
    "runs cancel",
    "runs rerun",
    "runs resume",
    "runs retry",
    "secret rm",
    "secret set",
    "space forget",
    "space seal",
    "subscriptions add",
    "subscriptions rm",
    "tokens create",
    "tokens revoke",
    "waits answer",
];

/// After a command that was done well on an engine of this process.
pub async fn write_down(engine: &Engine, tenant: &str, command: &str) -> Result<(), Problem> {
    if !ACTS.contains(&command) {
        return Ok(());
    }
    let act = Act { act: command.replace(' ', "."), ..Act::default() };
    engine.visit(tenant)?.audit(&Caller::local(), &act).await
}

/// Compares the ledger with what was signed, by reading only.
pub async fn verify(session: &Session, given: Option<Testimony>) -> Result<Value, Problem> {
    let tenant = session.tenant()?;
    match session.place()? {
        Place::Server(url) => {
            let client = session.client(&url, &tenant)?;
            let said = given.unwrap_or_default();
            let mut body = json!({ "checkpoints": said.checkpoints });
            if !said.key.is_empty() {
                body["key"] = said.key.into();
            }
            client.post("/v1/audit/verify", &body).await
        }
        Place::Directory(data) => {
            let dir = existing(data)?.join("tenants").join(&tenant);
            if !dir.is_dir() {
                return Err(Problem::new(
                    Code::NotFound,
                    format!("there is no tenant \"{tenant}\" to check"),
                ));
            }
            aside(move || Ok(audit::audit(&dir, &tenant, given)?.to_json())).await
        }
    }
}

impl Reach {
    /// Acts, newest first, and how to go on.
    pub async fn acts(
        &self,
        since: Option<Timestamp>,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>), Problem> {
        match self {
            Reach::Local(local) => local.tenant.acts(since, limit, cursor),
            Reach::Remote(client) => {
                let (since, limit) = (since.map(|since| since.to_string()), limit.to_string());
                let words =
                    [("since", since.as_deref()), ("limit", Some(&limit)), ("cursor", cursor.as_deref())];
                let mut page: Value = client.get(&format!("/v1/audit{}", query(&words))).await?;
                let next = page["next"].as_str().map(str::to_owned);
                Ok((serde_json::from_value(page["acts"].take()).unwrap_or_default(), next))
            }
        }
    }

    /// Every checkpoint, with one of this moment, and the key.
    pub async fn testimony(&self) -> Result<Testimony, Problem> {
        match self {
            Reach::Local(local) => {
                audit::checkpoint(&local.tenant)?;
                let absent = || Problem::new(Code::NotFound, "this tenant has no ledger yet");
                audit::testimony(local.tenant.dir().ok_or_else(absent)?)
            }
            Reach::Remote(client) => {
                let mut said: Value = client.get("/v1/audit/checkpoints").await?;
                let key = said["key"].as_str().unwrap_or_default().to_owned();
                let checkpoints = serde_json::from_value(said["checkpoints"].take());
                let garbled = |error| Problem::new(Code::Internal, format!("the answer is garbled: {error}"));
                Ok(Testimony { key, checkpoints: checkpoints.map_err(garbled)? })
            }
        }
    }
}
