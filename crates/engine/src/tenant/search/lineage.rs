//! What came of an event as a tree: the runs it started, the events they published, what those started, and so on.

use std::sync::Arc;

use model::event::Event;
use model::{Position, Problem};
use serde_json::{Value, json};

use crate::authority::Sight;
use crate::history::read::Wanted;
use crate::tenant::{Tenant, broken};

/// Calls are not deeper than runs may be; a chain that says otherwise is not followed for ever.
const CALLERS_MAX: usize = 100;

/// Everything that may stand in a tree: the events that are seen, and for whom.
pub(super) struct Told<'a> {
    pub effects: &'a [Arc<Event>],
    pub sight: &'a Sight,
}

impl Tenant {
    /// Children of `root`: `{"run":…,"effects":[…]}` for each run it started, `{"event":…,"effects":[…]}` for the rest. A run
    /// that was called stands below its caller.
    pub(super) fn tree(&self, seen: &Told<'_>, root: Position) -> Result<String, Problem> {
        let effects = seen.effects;
        let mut runs = self.runs_of(root)?;
        runs.retain(|run| seen.sight.sees_begun(run));
        let children: Vec<&Arc<Event>> =
            effects.iter().filter(|event| event.envelope.cause == Some(root)).collect();
        let is_called = |run: &Value| runs.iter().any(|other| is_named(&run["parent"], &other["id"]));
        let mut shown = Vec::new();
        for run in runs.iter().filter(|run| !is_called(run)) {
            shown.push(self.branch(run, &runs, (seen, &children))?);
        }
        let known =
            |event: &&&Arc<Event>| runs.iter().any(|run| run["id"].as_str() == event.envelope.run.as_deref());
        let rest = self.below(seen, children.iter().filter(|event| !known(event)).copied())?;
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
        (seen, children): (&Told<'_>, &[&Arc<Event>]),
    ) -> Result<String, Problem> {
        let its = children.iter().filter(|event| event.envelope.run.as_deref() == run["id"].as_str());
        let mut shown = Vec::new();
        for called in runs.iter().filter(|called| is_named(&called["parent"], &run["id"])) {
            shown.push(self.branch(called, runs, (seen, children))?);
        }
        let below = self.below(seen, its.copied())?;
        shown.extend((!below.is_empty()).then_some(below));
        Ok(format!("{{\"run\":{},\"effects\":[{}]}}", brief(run), shown.join(",")))
    }

    fn below<'a>(
        &self,
        seen: &Told<'_>,
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Result<String, Problem> {
        let shown = events.map(|event| {
            let (text, below) = (event.to_json(), self.tree(seen, event.position)?);
            Ok(format!("{{\"event\":{text},\"effects\":[{below}]}}"))
        });
        Ok(shown.collect::<Result<Vec<_>, Problem>>()?.join(","))
    }

    /// Around a run: what led to the event that it goes back to and what came of that; a run that goes back to none is told
    /// with those that called it. `None`: the event is gone, or not to be seen.
    pub(in crate::tenant) fn lineage_of_run(
        &self,
        run: &Value,
        sight: &Sight,
    ) -> Result<Option<String>, Problem> {
        let id = run["id"].as_str().unwrap_or_default();
        let own = run["occurrence"]["position"].as_u64().filter(|_| run["occurrence"]["kind"] == "event");
        let event = match own {
            Some(event) => Some(event),
            None => self.with_history(|history| history.event_of(id).map_err(broken))?,
        };
        if let Some(event) = event {
            return Ok(self.lineage_seen(&event.to_string(), sight).ok());
        }
        let first = self.first_caller(run, sight)?;
        Ok(Some(format!("{{\"causes\":[],\"effects\":[{}]}}", self.alone(&first, sight)?)))
    }

    /// Where a chain of calls began, as far as it is still known; who sees a part is not told who called.
    fn first_caller(&self, run: &Value, sight: &Sight) -> Result<Value, Problem> {
        let mut first = run.clone();
        for _ in 0..CALLERS_MAX {
            let Some(parent) = first["parent"].as_str().filter(|_| sight.sees_all()) else { break };
            let found = self.with_history(|history| history.run(parent).map_err(broken))?;
            let Some(found) = found else { break };
            first = found;
        }
        Ok(first)
    }

    /// A run without an event, with what it published and the runs that it called while it lived.
    fn alone(&self, run: &Value, sight: &Sight) -> Result<String, Problem> {
        let position = run["position"].as_u64().unwrap_or(0);
        let until = run["ended"].as_u64().unwrap_or(Position::MAX);
        let id = run["id"].as_str().unwrap_or_default();
        let mut called =
            self.with_history(|history| history.called_by(id, position, until).map_err(broken))?;
        called.retain(|called| sight.sees_begun(called));
        let mut shown =
            called.iter().map(|called| self.alone(called, sight)).collect::<Result<Vec<_>, _>>()?;
        let mut effects = self.effects_of(position)?;
        effects.retain(|effect| sight.sees_event(effect));
        let own = effects.iter().filter(|event| event.envelope.cause == Some(position));
        let below = self.below(&Told { effects: &effects, sight }, own)?;
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
