//! Which names an expression may begin with, by the place where it stands.

use model::definition::Field;

/// Names of a step in an automation; in logic, what comes from an event comes in through `args`.
const AUTOMATION: [&str; 14] = [
    "event",
    "ctx",
    "trigger",
    "input",
    "vars",
    "steps",
    "state",
    "health",
    "actor",
    "now",
    "wait",
    "args",
    "config",
    "partition",
];
const LOGIC: [&str; 10] =
    ["args", "actor", "now", "vars", "steps", "state", "health", "config", "partition", "trace"];

#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) roots: Vec<String>,
    /// Steps and loop variables around, innermost last; references to them order steps.
    pub(super) names: Vec<String>,
    /// What `args.<name>` may be; none: anything.
    pub(super) args: Option<Vec<Field>>,
    /// The concept whose row is looked at, by id.
    pub(super) row: Option<String>,
    pub(super) logic: bool,
    /// Inside `atomic`, which is one commit.
    pub(super) atomic: bool,
    /// What is computed here leaves with a request and is kept nowhere: it may name secrets.
    pub(super) secrets: bool,
}

impl Scope {
    pub(super) fn of(roots: &[&str]) -> Scope {
        Scope { roots: roots.iter().map(|root| (*root).to_owned()).collect(), ..Scope::default() }
    }

    pub(super) fn automation() -> Scope {
        Scope::of(&AUTOMATION)
    }

    pub(super) fn logic(args: Vec<Field>) -> Scope {
        Scope { args: Some(args), logic: true, ..Scope::of(&LOGIC) }
    }

    pub(super) fn row(concept: &str, args: Vec<Field>) -> Scope {
        let mut scope = Scope::of(&super::concept::INTRINSIC);
        scope.roots.extend(["args", "actor", "now"].map(str::to_owned));
        Scope { args: Some(args), row: Some(concept.to_owned()), ..scope }
    }

    /// The same place, for what goes into a request.
    pub(super) fn outgoing(&self) -> Scope {
        Scope { secrets: !self.logic, ..self.clone() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.roots.iter().chain(&self.names).any(|known| known == name)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        self.names.iter().chain(&self.roots).map(String::as_str)
    }
}
