//! What is about to be erased, and whether something that waits for its turn quotes it.

use std::collections::{BTreeMap, BTreeSet};

use model::Position;
use serde_json::Value;

use crate::lifecycle;

/// Among what gates saw: the id of the run whose words they saw. Not for people.
pub const TOLD: &str = "told";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lost {
    /// Events, and those that tell of runs which read them.
    pub events: BTreeSet<Position>,
    /// Runs that quote them, by the position of their start.
    pub runs: BTreeSet<Position>,
    /// The same by id, and where they came to do so: what they said before does not.
    pub ids: BTreeMap<String, Position>,
    /// A space of which everything goes that was written up to here.
    pub space: Option<(String, Position)>,
}

impl Lost {
    /// Whether a start that waits since `at` brings something of it along: its event, what the run said that called it or
    /// that it is told of, or whatever else was given to it in the space.
    pub fn is_quoted_by(&self, at: Position, start: &Value) -> bool {
        let event = start["position"].as_u64().is_some_and(|event| self.events.contains(&event));
        let runs = start["parent"].as_str().into_iter().chain(lifecycle::quoted_run(&start["event"]));
        event || self.names_one(at, runs) || self.is_within(at, start)
    }

    /// Whether what stands at `at` names one of its runs.
    pub fn names_one<'a>(&self, at: Position, runs: impl IntoIterator<Item = &'a str>) -> bool {
        runs.into_iter().any(|id| self.ids.get(id).is_some_and(|since| *since < at))
    }

    /// An instant that was due says nothing of the space in which its run will be.
    fn is_within(&self, at: Position, start: &Value) -> bool {
        let Some((space, through)) = self.space.as_ref().filter(|_| start["kind"] != "schedule") else {
            return false;
        };
        let others = start["other_spaces"].as_array().into_iter().flatten();
        at <= *through && others.chain([&start["space"]]).any(|other| other == space.as_str())
    }
}
