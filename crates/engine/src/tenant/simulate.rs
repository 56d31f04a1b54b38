//! Trying before trusting: a start or an event against what is declared now, on a copy, with nothing written.

use std::sync::Arc;
use std::time::Duration;

use model::Problem;
use model::event::Event;
use serde_json::{Value, json};

use super::publish::unexpected;
use super::runs::Started;
use super::sandbox::Sandbox;
use super::{Tenant, broken, history};
use crate::admit::{Caller, Draft};
use crate::command::{Answer, Command, Outcome, RunCommand};
use crate::history::read::Wanted;

impl Tenant {
    /// A start by hand as it would be: the run up to its first real wait, effects stubbed. `Err` inside: a gate holds it.
    pub fn dry_run(
        &self,
        caller: &Caller,
        automation: &str,
        input: Value,
        event: Option<Value>,
    ) -> Result<Result<Value, Started>, Problem> {
        event.iter().try_for_each(|event| self.stands_in(event, false))?;
        let mut sandbox = Sandbox::of(self)?;
        let (automation, actor) = (automation.to_owned(), caller.actor.clone());
        let start = RunCommand::Start { automation, input, event, actor, trace: None };
        match sandbox.ask(Command::Run(start))? {
            Answer::Started { run: Some(id), .. } => {
                let mut run = sandbox.run(&id)?;
                run["dry_run"] = true.into();
                run["events"] = sandbox.events_after(0).into();
                run["effects"] = sandbox.effects.clone().into();
                Ok(Ok(run))
            }
            Answer::Started { run, outcome, reason } => Ok(Err(Started { run, outcome, reason })),
            _ => Err(unexpected()),
        }
    }

    /// What an event would start, wake and lead to, and why not; then what `for_` would bring.
    pub fn simulate(&self, caller: &Caller, draft: Draft, for_: Duration) -> Result<Value, Problem> {
        let prepared = match self.admit_alone(caller, draft)? {
            Ok(prepared) => prepared,
            Err(outcome) => return Ok(outcome.to_json()),
        };
        let mut sandbox = Sandbox::of(self)?;
        let published = sandbox.ask(Command::Publish { events: vec![prepared] })?;
        let Answer::Published(outcomes) = published else { return Err(unexpected()) };
        let Some(event) = sandbox.events.first().cloned() else {
            let outcome = outcomes.first().map(Outcome::to_json);
            return Ok(outcome.unwrap_or_default());
        };
        if !for_.is_zero() {
            sandbox.advance_to(sandbox.moment.now.plus(for_))?;
        }
        let mut value = event.to_value();
        if let Value::Object(map) = &mut value {
            map.remove("position");
        }
        Ok(json!({
            "event": value, "automations": self.decided(&sandbox, &event)?, "runs": sandbox.runs()?,
            "woken": self.woken(&sandbox)?, "events": sandbox.events_after(1), "effects": sandbox.effects,
            "now": sandbox.moment.now,
        }))
    }

    /// Decisions about the event, and of every other automation why there is none.
    fn decided(&self, sandbox: &Sandbox, event: &Arc<Event>) -> Result<Vec<Value>, Problem> {
        let wanted = Wanted { event: Some(event.position), limit: 1_000, ..Wanted::default() };
        let (mut decisions, _) = sandbox.history.decisions(&wanted).map_err(broken)?;
        decisions.reverse();
        let (state, value) = (&sandbox.writer.state, event.to_value());
        decisions.iter_mut().for_each(|decision| history::read_by_condition(state, decision, &value));
        let told = |name: &str| decisions.iter().any(|decision| decision["automation"] == name);
        let others = state.catalog.automations.all().filter(|automation| !told(automation.name()));
        let others: Result<Vec<Value>, Problem> =
            others.map(|automation| history::why_not(state, automation, event, &value)).collect();
        decisions.extend(others?);
        Ok(decisions)
    }

    /// Runs in progress that it would have woken.
    fn woken(&self, sandbox: &Sandbox) -> Result<Vec<String>, Problem> {
        self.with_writer(|writer| {
            let live = &writer.state.runs.live;
            let mut woken: Vec<String> =
                sandbox.woken.iter().filter_map(|run| Some(live.get(run)?.id.clone())).collect();
            woken.dedup();
            Ok(woken)
        })
    }
}
