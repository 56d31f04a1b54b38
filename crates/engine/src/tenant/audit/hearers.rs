//! Which automations hear of acts of administration: their runs are for those who see acts, and so is what they do.

use std::collections::BTreeSet;

use model::Problem;
use model::definition::{Action, Step};
use model::topic::is_house;
use serde_json::json;

use crate::automation::Automation;
use crate::entity::Catalog;
use crate::run::{Run, act_behind};
use crate::state::State;
use crate::tenant::Tenant;

impl Tenant {
    /// Automations that are handed acts by a trigger, a subscription or a wait, or called by one that is; also such as are not
    /// declared yet.
    pub fn hear_acts(&self) -> Result<BTreeSet<String>, Problem> {
        self.heard_in(&self.catalog())
    }

    /// The writer is asked for its subscriptions only: what is declared is looked through beside it.
    fn heard_in(&self, catalog: &Catalog) -> Result<BTreeSet<String>, Problem> {
        let subscribed = self.with_writer(|writer| Ok(subscribed(&writer.state)))?;
        Ok(hear_acts(catalog, subscribed))
    }

    /// Automations that are declared and whose runs cannot go back to acts: none hands them any, nor tells them of such runs.
    pub(in crate::tenant) fn tell_no_acts(&self) -> Result<BTreeSet<String>, Problem> {
        let catalog = self.catalog();
        let hear = self.heard_in(&catalog)?;
        let may =
            |one: &Automation| hear.contains(one.name()) || !hear.is_empty() && has_pattern(one, is_of_runs);
        Ok(catalog.automations.all().filter(|one| !may(one)).map(|one| one.name().to_owned()).collect())
    }

    /// Whether this trigger of this version is in force and takes no acts, nor what is told of runs that may go back to some.
    pub(in crate::tenant) fn takes_no_acts(&self, name: &str, version: &str, trigger: &str) -> bool {
        let catalog = self.catalog();
        let Ok(automation) = catalog.automations.named(name) else { return false };
        let pulled = automation.triggers.iter().find(|one| one.definition.id == trigger);
        let same = automation.hash.get(..12) == Some(version);
        pulled.filter(|_| same).is_some_and(|pulled| {
            let mut patterns = pulled.patterns.iter().map(|pattern| pattern.as_str());
            !patterns.any(|pattern| takes_acts(pattern) || is_of_runs(pattern))
        })
    }
}

/// Whether a run holds something of an act: of what began it, or of what it may have waited for.
pub(in crate::tenant) fn holds_act(state: &State, run: &Run) -> bool {
    let read = || state.event(run.reads()).ok().flatten();
    let event = run.synthetic.clone().or_else(|| Some(json!({"topic": read()?.envelope.topic})));
    let waited = || {
        let version = state.version(&run.automation, &run.hash);
        !run.walk.taken.is_empty() && version.is_none_or(|one| waits_for_acts(&one.definition.steps))
    };
    act_behind(&run.occurrence.kind, &event.unwrap_or_default(), &run.input).is_some() || waited()
}

/// Automations that a subscription on acts starts.
fn subscribed(state: &State) -> Vec<String> {
    let subscriptions = state.runs.subscriptions.all.values().map(|subscription| &subscription.definition);
    let on_acts = subscriptions.filter(|said| said["pattern"].as_str().is_some_and(takes_acts));
    on_acts.filter_map(|said| said["automation"].as_str().map(str::to_owned)).collect()
}

fn hear_acts(catalog: &Catalog, subscribed: Vec<String>) -> BTreeSet<String> {
    let automations = &catalog.automations;
    let by_itself = |one: &Automation| has_pattern(one, takes_acts) || waits_for_acts(&one.definition.steps);
    let own = automations.all().filter(|one| by_itself(one)).map(|one| one.name().to_owned());
    let mut open: Vec<String> = own.chain(subscribed).collect();
    let mut hear = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let Some(automation) = automations.get(&name).filter(|_| !hear.contains(&name)) {
            called(&automation.definition.steps, &mut open);
        }
        hear.insert(name);
    }
    hear
}

fn has_pattern(automation: &Automation, is: fn(&str) -> bool) -> bool {
    automation.triggers.iter().flat_map(|trigger| &trigger.patterns).any(|pattern| is(pattern.as_str()))
}

/// A pattern meets what the engine says of itself only by a first word that is its own, and rows of the house only as their topic.
fn takes_acts(pattern: &str) -> bool {
    pattern.split('.').next() == Some("engine") || is_house(pattern)
}

fn is_of_runs(pattern: &str) -> bool {
    matches!(pattern.split('.').next(), Some("automation" | "workflow"))
}

fn waits_for_acts(steps: &[Step]) -> bool {
    steps.iter().any(|step| match &step.action {
        Action::WaitFor(wait) => {
            let said = serde_json::to_string(wait).unwrap_or_default();
            said.contains("\"engine.") || said.contains(":everwhen:")
        }
        action => action.blocks().into_iter().any(waits_for_acts),
    })
}

fn called(steps: &[Step], found: &mut Vec<String>) {
    for step in steps {
        if let Action::Automation { call, .. } = &step.action {
            found.push(call.name.clone());
        }
        step.action.blocks().into_iter().for_each(|block| called(block, found));
    }
}
