//! Automations made ready: triggers compiled, their topics in one trie, so that an event finds what it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lang::cron::Calendar;
use lang::filter::Filter;
use model::definition::{self, Change, EntityRef, TriggerKind};
use model::topic::Pattern;
use model::topic::trie::Trie;
use model::{Code, Position, Problem, suggest};
use serde_json::{Map, Value};

use crate::declared::call_args;
use crate::gate::storm::Starts;
use crate::program::Program;

pub mod matching;

/// One version of an automation.
#[derive(Debug)]
pub struct Automation {
    pub definition: definition::Automation,
    pub hash: String,
    /// Where it was applied: its schedules begin there.
    pub position: Position,
    pub triggers: Vec<Trigger>,
    pub program: Arc<Program>,
    pub starts: Starts,
    /// What its steps name as `secret("…")`: all that its runs may use, and what is masked in what comes back to them.
    pub secrets: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Trigger {
    pub definition: definition::Trigger,
    pub patterns: Vec<Pattern>,
    pub filter: Option<Filter>,
    /// When time pulls it.
    pub calendar: Option<Calendar>,
    pub stopped: Stopped,
}

/// Events that were none of its occurrences, since it was put into force or the process began. Counted, not recorded.
#[derive(Debug, Default)]
pub struct Stopped {
    pub disabled: AtomicU64,
    pub filtered: AtomicU64,
    /// Positions of the newest ones.
    samples: [AtomicU64; SAMPLES],
}

/// A few, so that somebody who asks sees what did not pass.
const SAMPLES: usize = 8;

impl Stopped {
    pub fn note(&self, counter: &AtomicU64, position: Position) {
        let count = counter.fetch_add(1, Ordering::Relaxed);
        self.samples[count as usize % SAMPLES].store(position, Ordering::Relaxed);
    }

    pub fn samples(&self) -> impl Iterator<Item = Position> {
        self.samples.iter().map(|sample| sample.load(Ordering::Relaxed)).filter(|position| *position > 0)
    }
}

impl Automation {
    pub fn new(
        definition: definition::Automation,
        hash: String,
        position: Position,
    ) -> Result<Automation, Problem> {
        let triggers = definition.triggers.iter().map(Trigger::new).collect::<Result<_, _>>()?;
        let program = Arc::new(Program::automation(&definition.steps));
        let mut secrets = BTreeSet::new();
        program.secrets(&definition.steps, &mut secrets)?;
        Ok(Automation { definition, hash, position, triggers, program, starts: Starts::default(), secrets })
    }

    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The short form of the hash that people see.
    pub fn version(&self) -> &str {
        self.hash.get(..12).unwrap_or(&self.hash)
    }

    /// Of what it was given, that which it declares, with defaults; what else was given is not looked at. The event is always
    /// at hand, whether it is declared or not.
    pub fn args(&self, given: &Value) -> Result<Map<String, Value>, Problem> {
        let declared: Vec<_> =
            self.definition.args.iter().filter(|arg| arg.name != "event").cloned().collect();
        if declared.is_empty() {
            return Ok(Map::new());
        }
        let given = match given {
            Value::Null => Map::new(),
            Value::Object(given) => {
                let known = |(name, _): &(&String, &Value)| declared.iter().any(|arg| arg.name == **name);
                given.iter().filter(known).map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            other => {
                let detail = format!("\"{}\" takes named arguments, not {other}", self.name());
                return Err(Problem::new(Code::DefinitionArguments, detail));
            }
        };
        call_args(self.name(), &declared, given)
    }

    pub fn trigger(&self, id: &str) -> Option<&Trigger> {
        self.triggers.iter().find(|trigger| trigger.definition.id == id)
    }
}

impl Trigger {
    fn new(definition: &definition::Trigger) -> Result<Trigger, Problem> {
        let filter = definition.filter.as_ref().map(compile_filter).transpose()?;
        let calendar = Calendar::of(&definition.on)?;
        let stopped = Stopped::default();
        let patterns = patterns(&definition.on)?;
        Ok(Trigger { patterns, filter, calendar, definition: definition.clone(), stopped })
    }
}

impl Trigger {
    /// Whether time alone can pull it.
    pub fn is_timed(&self) -> bool {
        self.calendar.is_some() || matches!(self.definition.on, TriggerKind::Absent { .. })
    }
}

pub fn compile_filter(filter: &definition::Filter) -> Result<Filter, Problem> {
    match filter {
        definition::Filter::Expr(expr) => Filter::parse(&serde_json::Value::from(expr.0.as_str())),
        definition::Filter::Form(form) => Filter::parse(form),
    }
}

/// The topics whose events may concern a trigger; none for those that only time or people pull.
pub fn patterns(on: &TriggerKind) -> Result<Vec<Pattern>, Problem> {
    let texts: Vec<String> = match on {
        TriggerKind::Event(patterns) => patterns.clone(),
        TriggerKind::Absent { event, .. } => event.clone(),
        TriggerKind::Webhook(name) => vec![format!("hook.{name}")],
        TriggerKind::Entity { concept, changes } => {
            let kinds = if changes.is_empty() { &Change::ALL[..] } else { changes };
            kinds.iter().map(|change| format!("graph.node.{}.{concept}", change.as_str())).collect()
        }
        TriggerKind::State { entities, .. } | TriggerKind::NumericState { entities, .. } => rows_of(entities),
        TriggerKind::Cron { .. } | TriggerKind::Every(_) | TriggerKind::At(_) | TriggerKind::Manual => {
            Vec::new()
        }
    };
    texts.iter().map(|text| Pattern::parse(text)).collect()
}

fn rows_of(entities: &[EntityRef]) -> Vec<String> {
    let mut texts: Vec<String> =
        entities.iter().map(|entity| format!("graph.node.*.{}", entity.concept)).collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Every automation that is declared, and whom a topic concerns.
#[derive(Clone, Debug, Default)]
pub struct Automations {
    by_name: BTreeMap<String, Arc<Automation>>,
    routes: Arc<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    trie: Trie<u32>,
    targets: Vec<(Arc<Automation>, usize)>,
    /// Whether a trigger names what happens to runs.
    hear_runs: bool,
}

impl Routes {
    fn has(&self, topic: &str) -> bool {
        let mut found = Vec::new();
        self.trie.receivers(topic, &mut found);
        !found.is_empty()
    }
}

impl Automations {
    pub fn hear_runs(&self) -> bool {
        self.routes.hear_runs
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Automation>> {
        self.by_name.get(name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Automation>> {
        self.by_name.values()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn named(&self, name: &str) -> Result<&Arc<Automation>, Problem> {
        self.get(name).ok_or_else(|| {
            let hint = match self.nearest(name) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "`everwhen automations list` shows what is declared".to_owned(),
            };
            Problem::new(Code::NotFound, format!("there is no automation \"{name}\"")).hint(hint)
        })
    }

    /// The one that was probably meant.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        suggest::nearest(name, self.by_name.keys().map(String::as_str))
    }

    /// Changes what is declared; [`Automations::rewire`] then makes it count.
    pub fn put(&mut self, automation: Automation) {
        self.by_name.insert(automation.name().to_owned(), Arc::new(automation));
    }

    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    pub fn rewire(&mut self) {
        let mut routes = Routes::default();
        for automation in self.by_name.values() {
            for (index, trigger) in automation.triggers.iter().enumerate() {
                let target = routes.targets.len() as u32;
                for pattern in &trigger.patterns {
                    routes.trie.insert(pattern, target);
                }
                routes.targets.push((automation.clone(), index));
            }
        }
        routes.hear_runs = model::event::TOLD.iter().any(|topic| routes.has(topic));
        self.routes = Arc::new(routes);
    }

    /// Triggers whose topics have this one, in a fixed order.
    pub fn concerned(&self, topic: &str) -> Concerned {
        let mut found: Vec<u32> = Vec::new();
        if !self.routes.targets.is_empty() {
            self.routes.trie.receivers(topic, &mut found);
            found.sort_unstable();
            found.dedup();
        }
        Concerned { routes: self.routes.clone(), found }
    }
}

/// Whom a topic concerns.
pub struct Concerned {
    routes: Arc<Routes>,
    found: Vec<u32>,
}

impl Concerned {
    pub fn len(&self) -> usize {
        self.found.len()
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Automations, and which of their triggers.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Automation>, usize)> {
        self.found.iter().map(|target| {
            let (automation, index) = &self.routes.targets[*target as usize];
            (automation, *index)
        })
    }
}
