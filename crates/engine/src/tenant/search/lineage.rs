//! What came of an event as a tree: the runs it started, the events they published, what those started, and so on.

use std::sync::Arc;

use model::event::Event;
use model::{Position, Problem};
use serde_json::{Value, json};

use crate::history::read::Wanted;
use crate::tenant::Tenant;

impl Tenant {
    /// Children of `root`: `{"run":…,"effects":[…]}` for each run it started, `{"event":…,"effects":[…]}` for the rest. A run
    /// that was called stands below its caller.
    pub(super) fn tree(&self, effects: &[Arc<Event>], root: Position) -> Result<String, Problem> {
        let runs = self.runs_of(root)?;
        let children: Vec<&Arc<Event>> =
            effects.iter().filter(|event| event.envelope.cause == Some(root)).collect();
        let is_called = |run: &Value| runs.iter().any(|other| is_named(&run["parent"], &other["id"]));
        let mut shown = Vec::new();
        for run in runs.iter().filter(|run| !is_called(run)) {
            shown.push(self.branch(run, &runs, (effects, &children))?);
        }
        let known =
            |event: &&&Arc<Event>| runs.iter().any(|run| run["id"].as_str() == event.envelope.run.as_deref());
        let rest = self.below(effects, children.iter().filter(|event| !known(event)).copied())?;
        shown.extend((!rest.is_empty()).then_some(rest));
        Ok(shown.join(","))
    }

    /// The runs that an event started, or had a part in, oldest first.
    fn runs_of(&self, event: Position) -> Result<Vec<Value>, Problem> {
        let wanted = Wanted { event: Some(event), limit: 1_000, ..Wanted::default() };
        let (mut runs, _) = self.runs(&wanted)?;
        runs.reverse();
        for decision in self.decisions(&wanted)?.0.iter().filter(|decision| decision["outcome"] == "merged") {
            let Some(id) = decision["run"].as_str() else { continue };
            if !runs.iter().any(|run| run["id"] == id) {
                runs.extend(self.run(id).ok());
            }
        }
        Ok(runs)
    }

    /// A run, the runs that it called, and the events that it published.
    fn branch(
        &self,
        run: &Value,
        runs: &[Value],
        (effects, children): (&[Arc<Event>], &[&Arc<Event>]),
    ) -> Result<String, Problem> {
        let its = children.iter().filter(|event| event.envelope.run.as_deref() == run["id"].as_str());
        let mut shown = Vec::new();
        for called in runs.iter().filter(|called| is_named(&called["parent"], &run["id"])) {
            shown.push(self.branch(called, runs, (effects, children))?);
        }
        let below = self.below(effects, its.copied())?;
        shown.extend((!below.is_empty()).then_some(below));
        Ok(format!("{{\"run\":{},\"effects\":[{}]}}", brief(run), shown.join(",")))
    }

    fn below<'a>(
        &self,
        effects: &[Arc<Event>],
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Result<String, Problem> {
        let shown = events.map(|event| {
            let (text, below) = (event.to_json(), self.tree(effects, event.position)?);
            Ok(format!("{{\"event\":{text},\"effects\":[{below}]}}"))
        });
        Ok(shown.collect::<Result<Vec<_>, Problem>>()?.join(","))
    }

    /// Of a run that no event started: only what came of it.
    pub(in crate::tenant) fn lineage_of_run(&self, run: &Value) -> Result<String, Problem> {
        Ok(format!("{{\"causes\":[],\"effects\":[{}]}}", self.alone(run)?))
    }

    /// A run without an event, with what it published and the runs that it called while it lived.
    fn alone(&self, run: &Value) -> Result<String, Problem> {
        let position = run["position"].as_u64().unwrap_or(0);
        let until = run["ended"].as_u64().unwrap_or(Position::MAX);
        let id = run["id"].as_str().unwrap_or_default();
        let called = self
            .with_history(|history| history.called_by(id, position, until).map_err(crate::tenant::broken))?;
        let mut shown = called.iter().map(|called| self.alone(called)).collect::<Result<Vec<_>, _>>()?;
        let effects = self.effects_of(position)?;
        let own = effects.iter().filter(|event| event.envelope.cause == Some(position));
        let below = self.below(&effects, own)?;
        shown.extend((!below.is_empty()).then_some(below));
        Ok(format!("{{\"run\":{},\"effects\":[{}]}}", brief(run), shown.join(",")))
    }
}

/// Whether a run's parent is this one.
fn is_named(parent: &Value, id: &Value) -> bool {
    parent.is_string() && parent == id
}

fn brief(run: &Value) -> Value {
    let mut brief = json!({});
    for name in ["id", "automation", "trigger", "status", "started_at", "ended_at", "error", "rerun_of"] {
        if !run[name].is_null() {
            brief[name] = run[name].clone();
        }
    }
    brief
}
