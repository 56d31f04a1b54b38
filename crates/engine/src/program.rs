//! The expressions of one automation or logic, compiled on first use, and the names they may begin with.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use lang::expr::{Expr, Refs, Scope, TemplateTree};
use model::Problem;
use model::definition::{Action, Input, Step};
use serde_json::Value;

use crate::deliver::lock;

/// What a step of an automation may read.
const AUTOMATION: [&str; 15] = [
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
    "secrets",
];
/// What a step of logic may read.
const LOGIC: [&str; 10] =
    ["args", "actor", "now", "vars", "steps", "state", "health", "config", "partition", "trace"];

/// An expression and what it reads.
#[derive(Debug)]
pub struct Compiled<T> {
    pub of: T,
    pub refs: Refs,
    /// Of each of the program's names, whether it is read.
    pub reads: Vec<bool>,
}

#[derive(Debug)]
pub struct Program {
    /// Fixed names first, then the ids of steps and the variables of loops.
    pub names: Vec<String>,
    pub fixed: usize,
    exprs: Mutex<HashMap<String, Arc<Compiled<Expr>>>>,
    trees: Mutex<HashMap<Value, Arc<Compiled<TemplateTree>>>>,
}

impl Program {
    pub fn automation(steps: &[Step]) -> Program {
        Program::new(&AUTOMATION, steps)
    }

    pub fn logic(steps: &[Step]) -> Program {
        Program::new(&LOGIC, steps)
    }

    fn new(fixed: &[&str], steps: &[Step]) -> Program {
        let mut names: Vec<String> = fixed.iter().map(|name| (*name).to_owned()).collect();
        name_all(steps, &mut names);
        Program { names, fixed: fixed.len(), exprs: Mutex::default(), trees: Mutex::default() }
    }

    pub fn expr(&self, text: &str) -> Result<Arc<Compiled<Expr>>, Problem> {
        if let Some(known) = lock(&self.exprs).get(text) {
            return Ok(known.clone());
        }
        let expr = self.with_scope(|scope| Expr::compile(text, scope))?;
        let refs = expr.refs();
        let compiled = Arc::new(Compiled { reads: self.reads(&refs), refs, of: expr });
        lock(&self.exprs).insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }

    pub fn tree(&self, value: &Value) -> Result<Arc<Compiled<TemplateTree>>, Problem> {
        if let Some(known) = lock(&self.trees).get(value) {
            return Ok(known.clone());
        }
        let tree = self.with_scope(|scope| TemplateTree::compile(value, scope))?;
        let refs = tree.refs();
        let compiled = Arc::new(Compiled { reads: self.reads(&refs), refs, of: tree });
        lock(&self.trees).insert(value.clone(), compiled.clone());
        Ok(compiled)
    }

    /// The secrets that steps name, wherever they stand.
    pub fn secrets(&self, steps: &[Step], found: &mut BTreeSet<String>) -> Result<(), Problem> {
        for step in steps {
            let inputs: [Option<&Input>; 3] = match &step.action {
                Action::Http(http) => [Some(&http.url), http.headers.as_ref(), http.body.as_ref()],
                Action::Outside(outside) => [Some(&outside.with), None, None],
                _ => [None; 3],
            };
            for input in inputs.into_iter().flatten() {
                match input {
                    // Looked at first: what names no `secret` or `Secret` is compiled when it is needed.
                    Input::Expr(expr) if expr.0.contains("ecret") => {
                        found.extend(self.expr(&expr.0)?.refs.secrets.iter().cloned());
                    }
                    Input::Template(value) if value.to_string().contains("ecret") => {
                        found.extend(self.tree(value)?.refs.secrets.iter().cloned());
                    }
                    _ => {}
                }
            }
            lists(&step.action).into_iter().try_for_each(|inner| self.secrets(inner, found))?;
        }
        Ok(())
    }

    /// `topic`, `payload` and `subject` are the event's.
    fn reads(&self, refs: &Refs) -> Vec<bool> {
        let of_event = ["topic", "payload", "subject"].iter().any(|name| refs.roots.contains(*name));
        let read = |name: &String| refs.roots.contains(name) || name == "event" && of_event;
        self.names.iter().map(read).collect()
    }

    fn with_scope<T>(&self, compile: impl FnOnce(&Scope<'_>) -> T) -> T {
        let roots: Vec<&str> = self.names.iter().map(String::as_str).collect();
        compile(&Scope::of(&roots))
    }
}

/// Ids of steps and variables of loops, each once, wherever they stand.
fn name_all(steps: &[Step], names: &mut Vec<String>) {
    for step in steps {
        let mut add = |name: &str| {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        };
        step.id.iter().for_each(|id| add(id));
        if let Action::For(each) = &step.action {
            [&each.item, &each.index, "item", "index"].into_iter().for_each(&mut add);
        }
        if let Action::Repeat(_) = &step.action {
            add("index");
            add("repeat");
        }
        for inner in lists(&step.action) {
            name_all(inner, names);
        }
    }
}

/// The lists of steps inside a step, in a fixed order.
pub fn lists(action: &Action) -> Vec<&[Step]> {
    match action {
        Action::If { then, otherwise, .. } => vec![then, otherwise],
        Action::Switch(switch) => {
            let cases = switch.cases.iter().map(|case| case.steps.as_slice());
            cases.chain([switch.default.as_slice()]).collect()
        }
        Action::For(each) => vec![&each.steps],
        Action::Repeat(repeat) => vec![&repeat.steps],
        Action::Parallel { branches, .. } => branches.iter().map(|branch| branch.steps.as_slice()).collect(),
        Action::Atomic(steps) => vec![steps],
        _ => Vec::new(),
    }
}
