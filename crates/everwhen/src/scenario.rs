//! Scenarios (contracts §9): what was there, what happens on a clock that only moves when told, and what must then be true.
//!
//! ```text
//!  file ─read─▶ Scenario ─play─▶ World (a whole tenant on a simulated disk) ─expect─▶ failures ─report─▶ people, JSON, JUnit
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::definition::{Definition, Kind};
use model::{Problem, Timestamp};
use serde_json::{Map, Value};

mod chronicle;
mod effects;
mod expect;
mod given;
mod play;
mod read;
pub mod report;
mod subset;
mod world;

pub use play::play;
pub use read::{is_scenario, placed, read};

/// One scenario, checked as far as that is possible without playing it.
pub struct Scenario {
    pub name: String,
    /// As it was given on the command line.
    pub file: PathBuf,
    start: Timestamp,
    given: Given,
    steps: Vec<Step>,
}

impl Scenario {
    /// Checks the definitions that it begins with, and that what its steps name is declared at some time.
    pub fn check(&self) -> Result<(), Problem> {
        let mut known = names(&self.given.definitions(self.folder())?);
        let mut given = self.given.clone();
        for step in &self.steps {
            let Does::Apply { files, concepts, automations } = &step.does else { continue };
            // What is refused is named, too: that it did not run is worth asking.
            known.extend(
                automations.iter().flatten().filter_map(|one| one["automation"].as_str()).map(str::to_owned),
            );
            given.replace(files, concepts, automations);
            known.extend(given.definitions(self.folder()).iter().flat_map(|made| names(made)));
        }
        for (at, step) in self.steps.iter().enumerate() {
            if let Some(name) = step.automations().into_iter().find(|name| !known.contains(name)) {
                let place = format!("step {}: ", at + 1);
                return Err(placed(&place, read::unknown(&name, &known)));
            }
        }
        Ok(())
    }

    /// What its paths are relative to.
    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }
}

/// What there is before the first step; in `apply`, what there is from then on.
#[derive(Clone, Default)]
struct Given {
    files: Vec<String>,
    /// Concept → field → type, of open concepts.
    concepts: Map<String, Value>,
    automations: Vec<Value>,
    entities: Vec<(RowName, Map<String, Value>)>,
    effects: Vec<effects::Answer>,
}

impl Given {
    /// Each part that is given takes the place of what was there.
    fn replace(
        &mut self,
        files: &Option<Vec<String>>,
        concepts: &Option<Map<String, Value>>,
        automations: &Option<Vec<Value>>,
    ) {
        files.iter().for_each(|files| self.files.clone_from(files));
        concepts.iter().for_each(|concepts| self.concepts.clone_from(concepts));
        automations.iter().for_each(|automations| self.automations.clone_from(automations));
    }
}

fn names(definitions: &[Definition]) -> BTreeSet<String> {
    let automations = definitions.iter().filter(|made| made.kind() == Kind::Automation);
    automations.map(|made| made.key().to_owned()).collect()
}

/// `concept/id`.
#[derive(Clone)]
struct RowName {
    concept: String,
    id: String,
}

struct Step {
    /// After the start.
    at: Option<Duration>,
    does: Does,
    /// It must be refused.
    refused: bool,
    /// As it was written.
    shown: Value,
}

impl Step {
    /// The automations that it names.
    fn automations(&self) -> Vec<String> {
        match &self.does {
            Does::Toggle { name, .. } if name != "*" => vec![name.clone()],
            Does::Cancel(name) => vec![name.clone()],
            Does::Run { automation, .. } | Does::Answer { automation, .. } => vec![automation.clone()],
            Does::Expect(expected) => expect::automations(expected),
            _ => Vec::new(),
        }
    }
}

enum Does {
    Nothing,
    Set {
        rows: Vec<(RowName, Map<String, Value>)>,
        force: bool,
    },
    Remove(Vec<RowName>),
    Publish(Vec<Value>),
    Advance(Duration),
    AdvanceTo(Timestamp),
    /// Each part that is given takes the place of what was there.
    Apply {
        files: Option<Vec<String>>,
        concepts: Option<Map<String, Value>>,
        automations: Option<Vec<Value>>,
    },
    Toggle {
        name: String,
        enable: bool,
    },
    Run {
        automation: String,
        input: Value,
        event: Option<Value>,
    },
    Cancel(String),
    Answer {
        automation: String,
        value: Value,
        by: Option<String>,
    },
    /// The process ends, is away for a while, and begins again.
    Restart {
        kill: bool,
        down: Duration,
    },
    Expect(Map<String, Value>),
}

/// Something that is not as the scenario says.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Counted from 1.
    pub step: usize,
    pub path: String,
    pub expected: Value,
    pub actual: Value,
}

/// How a scenario went.
pub struct Played {
    pub failures: Vec<Failure>,
    /// Why runs failed in a scenario that did: `{"automation","step","kind","code","message"}`.
    pub failed_runs: Vec<Value>,
    /// The steps as they were written, for showing those that failed.
    pub shown: Vec<Value>,
    /// It was played with a kill at every wait.
    pub killed: bool,
}

impl Played {
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}
