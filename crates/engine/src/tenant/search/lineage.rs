//! What came of an event as a tree: the runs it started, the events they published, what those started, and so on.

use std::sync::Arc;

use model::event::Event;
use model::{Position, Problem};
use serde_json::{Value, json};

use crate::history::read::Wanted;
use crate::tenant::Tenant;

impl Tenant {
    /// Children of `root`: `{"run":…,"effects":[…]}` for each run it started, `{"event":…,"effects":[…]}` for the rest.
    pub(super) fn tree(&self, effects: &[Arc<Event>], root: Position) -> Result<String, Problem> {
        let wanted = Wanted { event: Some(root), limit: 1_000, ..Wanted::default() };
        let (mut runs, _) = self.runs(&wanted)?;
        runs.reverse();
        let children: Vec<&Arc<Event>> =
            effects.iter().filter(|event| event.envelope.cause == Some(root)).collect();
        let mut shown = Vec::new();
        for run in &runs {
            let id = run["id"].as_str();
            let its = children.iter().filter(|event| event.envelope.run.as_deref() == id);
            let below = self.below(effects, its.copied())?;
            shown.push(format!("{{\"run\":{},\"effects\":[{below}]}}", brief(run)));
        }
        let known =
            |event: &&&Arc<Event>| runs.iter().any(|run| run["id"].as_str() == event.envelope.run.as_deref());
        let rest = self.below(effects, children.iter().filter(|event| !known(event)).copied())?;
        shown.extend((!rest.is_empty()).then_some(rest));
        Ok(shown.join(","))
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
        let position = run["position"].as_u64().unwrap_or(0);
        let effects = self.effects_of(position)?;
        let own = effects.iter().filter(|event| event.envelope.cause == Some(position));
        let below = self.below(&effects, own)?;
        Ok(format!("{{\"causes\":[],\"effects\":[{{\"run\":{},\"effects\":[{below}]}}]}}", brief(run)))
    }
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
