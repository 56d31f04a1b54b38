//! What was administered, and what was signed of the ledger, near or far.

use engine::maintain::audit::{self, Testimony};
use engine::tenant::audit::Act;
use engine::{Caller, DEFAULT_TENANT, Engine};
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};

use super::Reach;
use super::maintain::{aside, existing};
use crate::cli::Called;
use crate::client::{escape, query};
use crate::session::{Place, Session};

/// Commands that administer, and the route that does the same through a server: an act has one name, whoever did it. Done on a
/// directory without a server, they are written down here.
pub const ACTS: [(&str, &str, &str); 49] = [
    ("apply", "POST", "/v1/apply"),
    ("automations create", "POST", "/v1/automations"),
    ("automations disable", "POST", "/v1/automations/{name}/disable"),
    ("automations drain", "POST", "/v1/automations/{name}/drain"),
    ("automations enable", "POST", "/v1/automations/{name}/enable"),
    ("automations patch", "PATCH", "/v1/automations/{name}"),
    ("automations pause", "POST", "/v1/automations/{name}/pause"),
    ("automations resume", "POST", "/v1/automations/{name}/resume"),
    ("automations rm", "DELETE", "/v1/automations/{name}"),
    ("backup", "POST", "/v1/backup"),
    ("clock", "POST", "/v1/clock"),
    ("dead-letters redrive", "POST", "/v1/groups/{name}/dead-letters/redrive"),
    ("erase", "POST", "/v1/erase"),
    ("groups pause", "POST", "/v1/groups/{name}/pause"),
    ("groups put", "PUT", "/v1/groups/{name}"),
    ("groups resume", "POST", "/v1/groups/{name}/resume"),
    ("groups rm", "DELETE", "/v1/groups/{name}"),
    ("groups seek", "POST", "/v1/groups/{name}/seek"),
    ("hooks rm", "DELETE", "/v1/hooks/{name}"),
    ("hooks set", "PUT", "/v1/hooks/{name}"),
    ("import", "POST", "/v1/import"),
    ("push add", "PUT", "/v1/push/{name}"),
    ("push pause", "POST", "/v1/push/{name}/pause"),
    ("push resume", "POST", "/v1/push/{name}/resume"),
    ("push rm", "DELETE", "/v1/push/{name}"),
    ("push test", "POST", "/v1/push/{name}/test"),
    ("replay --into", "POST", "/v1/groups/{name}/seek"),
    ("runs bulk", "POST", "/v1/runs/bulk"),
    ("runs cancel", "POST", "/v1/runs/{id}/cancel"),
    ("runs rerun", "POST", "/v1/runs/{id}/rerun"),
    ("runs resume", "POST", "/v1/runs/{id}/resume"),
    ("runs retry", "POST", "/v1/runs/{id}/retry"),
    ("secret rm", "DELETE", "/v1/secrets/{name}"),
    ("secret set", "PUT", "/v1/secrets/{name}"),
    ("space forget", "POST", "/v1/spaces/{name}/forget"),
    ("space seal", "POST", "/v1/spaces/{name}/seal"),
    ("subscriptions add", "PUT", "/v1/subscriptions/{id}"),
    ("subscriptions disable", "POST", "/v1/subscriptions/{id}/disable"),
    ("subscriptions enable", "POST", "/v1/subscriptions/{id}/enable"),
    ("subscriptions rm", "DELETE", "/v1/subscriptions/{id}"),
    ("tenants create", "POST", "/v1/tenants"),
    ("tenants quota", "PUT", "/v1/tenants/{name}/quota"),
    ("tenants resume", "POST", "/v1/tenants/{name}/resume"),
    ("tenants rm", "DELETE", "/v1/tenants/{name}"),
    ("tenants suspend", "POST", "/v1/tenants/{name}/suspend"),
    ("tokens create", "POST", "/v1/tokens"),
    ("tokens revoke", "DELETE", "/v1/tokens/{id}"),
    ("waits answer", "POST", "/v1/waits/{id}/answer"),
    ("waits redrive", "POST", "/v1/waits/{id}/redrive"),
];

/// The name of the act that a command is; `None`: it administers nothing.
pub fn act_of(command: &str) -> Option<String> {
    let (_, method, path) = ACTS.iter().find(|(of, ..)| *of == command)?;
    server::act(method, path)
}

/// The path of the route that does the same to the same thing; none when it is not known which that was.
pub fn path_of(command: &str, subject: Option<&str>) -> Option<String> {
    let (.., path) = ACTS.iter().find(|(of, ..)| *of == command)?;
    let Some((before, rest)) = path.split_once('{') else { return Some((*path).to_owned()) };
    let (_, after) = rest.split_once('}')?;
    Some(format!("{before}{}{after}", escape(subject?)))
}

/// After a command that was done well on an engine of this process.
pub async fn write_down(engine: &Engine, tenant: &str, called: &Called) -> Result<(), Problem> {
    let Called { command, subject } = called;
    let Some(act) = act_of(command) else { return Ok(()) };
    let act = Act { act, path: path_of(command, subject.as_deref()), ..Act::default() };
    // What is done to tenants is done to the house: the one that is meant may rest, or be gone.
    let of_the_house = command.starts_with("tenants ");
    let tenant = if of_the_house { DEFAULT_TENANT } else { tenant };
    engine.visit(tenant)?.audit(&Caller::local(), &act).await
}

/// Compares the ledger with what was signed, by reading only.
pub async fn verify(session: &Session, given: Option<Testimony>) -> Result<Value, Problem> {
    let tenant = session.tenant()?;
    match session.place()? {
        Place::Server(url) => {
            let client = session.client(&url, &tenant)?;
            let mut body = json!({});
            if let Some(given) = &given {
                body["checkpoints"] = json!(given.checkpoints);
            }
            let said = given.unwrap_or_default();
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
