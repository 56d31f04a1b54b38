//! Automations that are managed here and now, not by a workspace: created, changed and deleted one by one; and logic that is
//! called from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::declare::{Severity, check_beside};
use model::definition::{Automation, Definition, Kind};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Tenant;
use super::publish::unexpected;
use crate::admit::Caller;
use crate::command::{Answer, Change, Command, Plan, RunCommand};

/// Who manages what is made this way.
const API: &str = "api";
/// Where its text seems to stand.
const FILE: &str = "automation.json";

impl Tenant {
    /// Declares a new automation, written as contracts §8 has it. It may name whatever is in force.
    pub fn create_automation(&self, said: &Value) -> Result<Value, Problem> {
        let definition = self.checked(said)?;
        let name = definition.name.clone();
        self.change(vec![definition], Vec::new(), (true, false))?;
        self.automation(&name)
    }

    /// Changes the keys that are named, as RFC 7396 has it: null takes one away. Runs go on under their version.
    pub fn patch_automation(&self, name: &str, patch: &Map<String, Value>) -> Result<Value, Problem> {
        let there =
            self.with_writer(|writer| Ok(writer.state.catalog.automations.named(name)?.definition.clone()))?;
        let mut said = json!({"automation": name, "triggers": [{"manual": true}], "actions": [{"delay": 0}]});
        for (key, value) in patch.iter().filter(|(_, value)| !value.is_null()) {
            said[key] = value.clone();
        }
        let new = self.checked(&said)?;
        if new.name != name {
            return Err(Problem::new(Code::RequestInvalid, "an automation keeps its name")
                .hint("create another one and delete this one")
                .at("/automation"));
        }
        let patched = patched(there, &new, patch);
        self.change(vec![patched], Vec::new(), (false, false))?;
        self.automation(name)
    }

    /// Takes an automation away, with its windows, timers and schedules; its runs are cancelled or finish.
    pub fn delete_automation(&self, name: &str, finish_runs: bool) -> Result<Plan, Problem> {
        self.change(Vec::new(), vec![(Kind::Automation, name.to_owned())], (false, finish_runs))
    }

    fn change(
        &self,
        set: Vec<Automation>,
        removed: Vec<(Kind, String)>,
        (create, finish_runs): (bool, bool),
    ) -> Result<Plan, Problem> {
        let set: Vec<Definition> = set.into_iter().map(Definition::Automation).collect();
        self.allow_automations(API, &set)?;
        let change = Change { managed_by: API.to_owned(), set, removed, create, finish_runs };
        match self.ask_blocking(Command::Change(change))? {
            Answer::Applied(plan) => Ok(plan),
            _ => Err(unexpected()),
        }
    }

    /// One automation as it is written, checked against everything that is in force.
    fn checked(&self, said: &Value) -> Result<Automation, Problem> {
        let name = said["automation"].as_str().unwrap_or_default();
        let catalog = self.catalog();
        let others = catalog
            .entries()
            .filter(|((kind, other), _)| (*kind, other.as_str()) != (Kind::Automation, name));
        let known: Vec<Arc<Definition>> = others.map(|(_, entry)| entry.definition.clone()).collect();
        let files = BTreeMap::from([(FILE.to_owned(), said.to_string())]);
        let mut checked = check_beside(&files, &known);
        if checked.has_errors() {
            let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
            let first = errors.map(|finding| finding.message.as_str()).next().unwrap_or_default().to_owned();
            let findings: Vec<Value> = checked.findings.iter().map(|finding| finding.to_json()).collect();
            return Err(Problem::new(Code::DefinitionInvalid, first)
                .hint("docs/language.md and `everwhen schema` say how an automation is written")
                .with("findings", findings));
        }
        match (checked.definitions.pop(), checked.definitions.is_empty()) {
            (Some(Definition::Automation(automation)), true) => Ok(automation),
            _ => Err(Problem::new(
                Code::DefinitionInvalid,
                "one automation is declared at a time, an object",
            )
            .hint("{\"automation\": \"page\", \"triggers\": [{\"event\": \"api.down\"}], \"actions\": […]}")),
        }
    }

    /// Calls logic from outside; what it wrote is one commit. Without a space it sees all of them. How much it writes is known when
    /// it is done: of what the tenant may bring, a call counts as one event.
    pub fn call_logic(
        &self,
        caller: &Caller,
        name: &str,
        args: Map<String, Value>,
        space: Option<&str>,
    ) -> Result<Value, Problem> {
        self.allow_events(caller, 1)?;
        let (name, caller, space) = (name.to_owned(), caller.clone(), space.map(str::to_owned));
        match self.ask_blocking(Command::Run(RunCommand::Logic { name, args, caller, space }))? {
            Answer::Output(output) => Ok(output),
            _ => Err(unexpected()),
        }
    }
}

/// What was there, with what the patch names from `new`.
fn patched(mut there: Automation, new: &Automation, patch: &Map<String, Value>) -> Automation {
    for key in patch.keys() {
        match key.as_str() {
            "enabled" => there.enabled = new.enabled,
            "description" => there.description.clone_from(&new.description),
            "space" => there.space.clone_from(&new.space),
            "triggers" | "trigger" => there.triggers.clone_from(&new.triggers),
            "conditions" | "condition" => there.conditions.clone_from(&new.conditions),
            "dedup" => there.dedup.clone_from(&new.dedup),
            "mode" => there.mode.kind = new.mode.kind,
            "max" => there.mode.max = new.mode.max,
            "key" => there.mode.key.clone_from(&new.mode.key),
            "storm" => there.storm.clone_from(&new.storm),
            "timeout" => there.timeout.clone_from(&new.timeout),
            "actions" => there.steps.clone_from(&new.steps),
            "input" => there.args.clone_from(&new.args),
            _ => {}
        }
    }
    there
}
