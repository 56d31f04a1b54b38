//! Starting, trying and repeating runs, near or far.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::tenant::backtest::Edge;
use engine::tenant::runs::{Bulk, Rerun, Started, Verb};
use engine::{Draft, Tenant};
use model::{Code, Problem, Timestamp, time};
use serde_json::{Map, Value, json};

use super::Reach;
use crate::client::{escape, query};

/// A start by hand.
pub struct Start {
    pub automation: String,
    pub input: Value,
    /// What stands for the event.
    pub event: Option<Value>,
    pub dry_run: bool,
}

impl Reach {
    /// Starts an automation by hand; the run's id, or the whole run as it would be.
    pub async fn start(&self, start: Start) -> Result<Value, Problem> {
        let Start { automation, input, event, dry_run } = start;
        match self {
            Reach::Local(local) if dry_run => local
                .tenant
                .dry_run(&local.caller, &automation, input, event)?
                .map_err(|held| held_back(&held, &automation)),
            Reach::Local(local) => {
                let started = local.tenant.start_run(&local.caller, &automation, input, event)?;
                match &started.run {
                    Some(run) => Ok(json!({ "id": run })),
                    None => Err(held_back(&started, &automation)),
                }
            }
            Reach::Remote(client) => {
                let mut said = json!({"automation": automation, "input": input, "dry_run": dry_run});
                if let Some(event) = event {
                    said["event"] = event;
                }
                client.post("/v1/runs", &said).await
            }
        }
    }

    /// `cancel`, `retry` or `resume`.
    pub async fn operate(&self, verb: Verb, run: &str) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => done(&local.tenant, verb, run),
            Reach::Remote(client) => {
                client.post(&format!("/v1/runs/{}/{}", escape(run), word(verb)), &json!({})).await
            }
        }
    }

    pub async fn rerun(&self, run: &str, how: &Rerun) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.rerun(run, how),
            Reach::Remote(client) => {
                let mut said = json!({"allow_side_effects": how.allow_side_effects});
                if let Some(step) = &how.from_step {
                    said["from_step"] = step.as_str().into();
                }
                client.post(&format!("/v1/runs/{}/rerun", escape(run)), &said).await
            }
        }
    }

    pub async fn runs_in_bulk(&self, bulk: &Bulk) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.runs_in_bulk(bulk),
            Reach::Remote(client) => {
                let mut chosen = json!({});
                let named =
                    [("automation", &bulk.automation), ("status", &bulk.status), ("reason", &bulk.reason)];
                for (name, value) in named {
                    if let Some(value) = value {
                        chosen[name] = value.as_str().into();
                    }
                }
                if let Some(since) = bulk.since {
                    chosen["since"] = json!(since);
                }
                let said = json!({"do": word(bulk.verb), "where": chosen, "dry_run": bulk.dry_run});
                client.post("/v1/runs/bulk", &said).await
            }
        }
    }

    /// Declares a new automation that no workspace manages.
    pub async fn create_automation(&self, said: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.create_automation(said),
            Reach::Remote(client) => client.post("/v1/automations", said).await,
        }
    }

    pub async fn patch_automation(&self, name: &str, patch: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                local.tenant.patch_automation(name, patch.as_object().unwrap_or(&Map::new()))
            }
            Reach::Remote(client) => client.patch(&format!("/v1/automations/{}", escape(name)), patch).await,
        }
    }

    pub async fn delete_automation(&self, name: &str, finish_runs: bool) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => local.tenant.delete_automation(name, finish_runs).map(drop),
            Reach::Remote(client) => {
                let runs = if finish_runs { "finish" } else { "cancel" };
                client.delete(&format!("/v1/automations/{}?runs={runs}", escape(name))).await
            }
        }
    }

    /// Calls logic; what it answers.
    pub async fn call(
        &self,
        name: &str,
        args: Map<String, Value>,
        space: Option<&str>,
    ) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.tenant.call_logic(&local.caller, name, args, space),
            Reach::Remote(client) => {
                let path = format!("/v1/logic/{}{}", escape(name), query(&[("space", space)]));
                let mut answer: Value = client.post(&path, &json!({ "args": args })).await?;
                Ok(answer["output"].take())
            }
        }
    }

    /// What a draft would have done in a window, whose edges are as [`Edge::parse`] reads them.
    pub async fn backtest(
        &self,
        files: &BTreeMap<String, String>,
        (from, to): (Option<&str>, Option<&str>),
    ) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let definitions = lang::declare::check_workspace(files).definitions;
                let now = local.tenant.now();
                let read = |text: Option<&str>, open: Timestamp| {
                    text.map_or(Ok(Edge::Time(open)), |text| {
                        Edge::parse(text, now).ok_or_else(|| no_edge(text))
                    })
                };
                local.tenant.backtest(&definitions, (read(from, Timestamp::EPOCH)?, read(to, now)?))
            }
            Reach::Remote(client) => {
                let mut said = json!({ "files": files });
                for (name, text) in [("from", from), ("to", to)] {
                    if let Some(text) = text {
                        said[name] = text.into();
                    }
                }
                client.post("/v1/backtest", &said).await
            }
        }
    }

    /// What an event would do, with nothing written.
    pub async fn simulate(&self, event: &Value, advance: Duration) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let draft = Draft::parse(event.to_string().as_bytes(), &local.tenant.limits())?;
                local.tenant.simulate(&local.caller, draft, advance)
            }
            Reach::Remote(client) => {
                let said = json!({"event": event, "advance": time::duration_json(advance)});
                client.post("/v1/simulate", &said).await
            }
        }
    }
}

fn done(tenant: &Tenant, verb: Verb, run: &str) -> Result<Value, Problem> {
    match verb {
        Verb::Cancel => tenant.cancel_run(run).and_then(|()| tenant.run(run)),
        Verb::Retry => tenant.retry_run(run),
        Verb::Resume | Verb::Run => tenant.resume_run(run),
    }
}

fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Cancel => "cancel",
        Verb::Retry => "retry",
        Verb::Resume => "resume",
        Verb::Run => "run",
    }
}

pub fn no_edge(text: &str) -> Problem {
    Problem::new(Code::UsageInvalid, format!("\"{text}\" is no position, instant or length of time"))
        .hint("write 42, 2026-01-31T09:30:00Z, or 2h for two hours ago")
}

fn held_back(started: &Started, automation: &str) -> Problem {
    let reason = started.reason.as_deref().unwrap_or("-");
    let detail = format!("it was not started: {} ({reason})", started.outcome.as_str());
    Problem::new(Code::RunRefused, detail).hint(format!("everwhen explain automation {automation}"))
}
