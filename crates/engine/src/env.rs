//! What the expressions of a run see: its event and trigger, outputs and variables, loops around, rows and time.

use std::borrow::Cow;
use std::sync::Arc;

use lang::expr::{EntityRef, Key, Refs, Unclear, Val};
use model::definition::{Expr, Field, Input, Length};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::admit::Caller;
use crate::automation::Automation;
use crate::entity::{Concept, Row};
use crate::program::{Compiled, Program};
use crate::route::occurrence;
use crate::run;
use crate::state::State;

/// Rows of a concept that one expression may look through.
const ROWS_MAX: usize = 10_000;

static NULL: Value = Value::Null;

/// A round of a loop: its variables, and the outputs of its steps.
#[derive(Debug, Default)]
pub struct Frame {
    pub locals: Vec<(String, Value)>,
    pub outputs: Map<String, Value>,
    /// Of a `for`: the first of the locals is also the `item`, the second the `index`.
    pub each: bool,
}

/// The event and what brought it. `trigger`, `ctx` and the like are made of it only when something asks for them.
#[derive(Clone, Debug)]
pub struct About {
    pub event: Arc<Value>,
    /// Null: the event's payload stands for it.
    pub input: Value,
    pub automation: Arc<Automation>,
    pub trigger: Option<String>,
}

#[derive(Debug)]
pub struct Env {
    pub program: Arc<Program>,
    /// Names whose values stay.
    pub fixed: Map<String, Value>,
    /// What it is about, for names that are not among the fixed ones.
    pub about: Option<About>,
    pub vars: Value,
    pub outputs: Map<String, Value>,
    pub frames: Vec<Frame>,
    pub wait: Value,
    pub now: Timestamp,
    pub space: String,
    /// Somebody outside who called logic: it sees the rows that they see. None: all of the space.
    pub reader: Option<Caller>,
}

impl About {
    fn given(&self) -> &Value {
        if self.input.is_null() { &self.event["payload"] } else { &self.input }
    }

    /// What it was given, and the defaults of what it was not.
    fn input(&self) -> Cow<'_, Value> {
        let given = self.given();
        let lacks = |arg: &&Field| arg.default.is_some() && given.get(&arg.name).is_none();
        let lacking: Vec<&Field> = self.automation.definition.args.iter().filter(lacks).collect();
        if lacking.is_empty() || !(given.is_object() || given.is_null()) {
            return Cow::Borrowed(given);
        }
        let mut whole = given.as_object().cloned().unwrap_or_default();
        whole.extend(lacking.iter().filter_map(|arg| Some((arg.name.clone(), arg.default.clone()?))));
        Cow::Owned(Value::Object(whole))
    }

    /// What is declared of it, and the event.
    fn args(&self) -> Value {
        let mut args = self.automation.args(self.given()).unwrap_or_default();
        args.insert("event".to_owned(), self.event.as_ref().clone());
        Value::Object(args)
    }

    fn named(&self, name: &str) -> Option<Cow<'_, Value>> {
        Some(match name {
            "event" => Cow::Borrowed(self.event.as_ref()),
            "input" => self.input(),
            "actor" => Cow::Borrowed(&self.event["actor"]),
            "args" => Cow::Owned(self.args()),
            // As seed 000 has it: what came is the envelope, not its payload.
            "ctx" => {
                Cow::Owned(json!({"input": *self.event, "event": *self.event, "output": null, "error": ""}))
            }
            "trigger" => {
                let trigger = self.trigger.as_deref().and_then(|id| self.automation.trigger(id));
                Cow::Owned(occurrence::trigger_value(trigger, &self.event))
            }
            _ => return None,
        })
    }
}

impl Env {
    pub fn eval(&self, state: &State, expr: &Expr) -> Result<Value, Problem> {
        let compiled = self.program.expr(&expr.0)?;
        let values = self.values(state, &compiled)?;
        compiled.of.eval(&self.roots(&values))?.to_json()
    }

    pub fn test(&self, state: &State, expr: &Expr) -> Result<bool, Problem> {
        let compiled = self.program.expr(&expr.0)?;
        let values = self.values(state, &compiled)?;
        compiled.of.test(&self.roots(&values))
    }

    /// When its value can next change though only time passes; `Err`: it cannot be asked.
    pub fn next_turn(&self, state: &State, expr: &Expr) -> Result<Option<Timestamp>, Unclear> {
        let compiled = self.program.expr(&expr.0).map_err(|_| Unclear)?;
        let values = self.values(state, &compiled).map_err(|_| Unclear)?;
        let time = self.program.names.iter().position(|name| name == "now").ok_or(Unclear)?;
        let turn = compiled.of.next_turn(time, &self.roots(&values))?;
        Ok(turn.map(Timestamp::from_nanos))
    }

    pub fn input(&self, state: &State, input: &Input) -> Result<Value, Problem> {
        match input {
            Input::Expr(expr) => self.eval(state, expr),
            Input::Template(value) => {
                let compiled = self.program.tree(value)?;
                let values = self.values(state, &compiled)?;
                compiled.of.eval(&self.roots(&values))
            }
        }
    }

    /// The value of what is written down as it stands: nothing that it reads can make it another one later.
    pub fn written(&self, state: &State, input: &Input) -> Option<Value> {
        let (reads, refs) = match input {
            Input::Expr(expr) => self.program.expr(&expr.0).map(|of| (of.reads.clone(), of.refs.clone())),
            Input::Template(value) => self.program.tree(value).map(|of| (of.reads.clone(), of.refs.clone())),
        }
        .ok()?;
        let is_fixed = !reads.contains(&true) && refs.functions.is_empty() && !refs.now;
        is_fixed.then(|| self.input(state, input).ok()).flatten()
    }

    /// A length of time; what is computed may be seconds, a duration or its text.
    pub fn length(&self, state: &State, length: &Length) -> Result<std::time::Duration, Problem> {
        match length {
            Length::Fixed(length) => Ok(*length),
            Length::Computed(expr) => {
                let value = self.eval(state, expr)?;
                model::time::duration_of(&value).ok_or_else(|| {
                    Problem::new(Code::ExprType, format!("\"{}\" is {value}, not a length of time", expr.0))
                        .hint("write seconds, or a text such as \"5m\"")
                })
            }
        }
    }

    /// The values that names stand for here, without rows and time: what a wait keeps for its condition.
    pub fn snapshot(&self, refs: &Refs) -> Map<String, Value> {
        let kept = refs.roots.iter().filter(|name| !matches!(name.as_str(), "state" | "health" | "now"));
        let named = kept.map(|name| match name.as_str() {
            "topic" | "payload" | "subject" => "event",
            name => name,
        });
        named.map(|name| (name.to_owned(), self.named(name).into_owned())).collect()
    }

    fn values<T>(&self, state: &State, of: &Compiled<T>) -> Result<Vec<Cow<'_, Value>>, Problem> {
        let value = |(name, read): (&String, &bool)| match name.as_str() {
            _ if !read => Ok(Cow::Borrowed(&NULL)),
            "state" => Ok(Cow::Owned(self.rows(state, &of.refs)?)),
            "health" => Ok(Cow::Owned(self.health(state)?)),
            name => Ok(self.named(name)),
        };
        self.program.names.iter().zip(&of.reads).map(value).collect()
    }

    fn roots<'a>(&self, values: &'a [Cow<'_, Value>]) -> Vec<Val<'a>> {
        let names = self.program.names.iter().zip(values);
        names
            .map(|(name, value)| match name.as_str() {
                "now" => Val::Timestamp(self.now.nanos()),
                _ => Val::of(value.as_ref()),
            })
            .collect()
    }

    /// The innermost thing of this name.
    pub fn named(&self, name: &str) -> Cow<'_, Value> {
        for frame in self.frames.iter().rev() {
            if let Some((_, value)) = frame.locals.iter().find(|(local, _)| local == name) {
                return Cow::Borrowed(value);
            }
            if let Some(output) = frame.outputs.get(name) {
                return Cow::Borrowed(output);
            }
        }
        if let Some(value) = self.fixed.get(name) {
            return Cow::Borrowed(value);
        }
        if let Some(value) = self.about.as_ref().and_then(|about| about.named(name)) {
            return value;
        }
        match name {
            "partition" => Cow::Owned(self.space.as_str().into()),
            "vars" => Cow::Borrowed(&self.vars),
            "wait" => Cow::Borrowed(&self.wait),
            "steps" => Cow::Owned(self.steps()),
            name => Cow::Borrowed(self.outputs.get(name).or_else(|| self.in_loop(name)).unwrap_or(&NULL)),
        }
    }

    /// `item` and `index` of the innermost `for`, whatever it calls them, unless something else has that name.
    fn in_loop(&self, name: &str) -> Option<&Value> {
        let place = ["item", "index"].iter().position(|known| *known == name)?;
        let innermost = self.frames.iter().rev().find(|frame| frame.each)?;
        innermost.locals.get(place).map(|(_, value)| value)
    }

    fn steps(&self) -> Value {
        let mut steps = Map::new();
        for outputs in [&self.outputs].into_iter().chain(self.frames.iter().map(|frame| &frame.outputs)) {
            let marked = outputs.keys().any(|key| run::is_mark(key));
            for (id, output) in outputs.iter().filter(|(id, _)| !run::is_mark(id)) {
                let mark = if marked { outputs.get(&run::mark(id)) } else { None };
                steps.insert(id.clone(), step_value(output, mark));
            }
        }
        steps.into()
    }

    /// The rows that an expression reads. `state.kind[x]` and `state[x][y]` are one row: what `x` and `y` read stays as it is while
    /// the run stands still. An id that is no text, or a kind, is that of no row.
    pub fn entities(&self, state: &State, refs: &Refs) -> Vec<EntityRef> {
        let mut rows = Vec::with_capacity(refs.entities.len());
        for entity in &refs.entities {
            let EntityRef::All { kind } = entity else {
                rows.push(entity.clone());
                continue;
            };
            let one = |id: &str| match self.eval(state, &Expr(id.to_owned())) {
                Ok(Value::String(id)) => Some(EntityRef::One { kind: kind.clone(), id }),
                _ => None,
            };
            match refs.narrows(kind).and_then(|ids| ids.map(one).collect::<Option<Vec<_>>>()) {
                Some(ids) => rows.extend(ids),
                None => rows.push(entity.clone()),
            }
        }
        let text = |expr: &str| match self.eval(state, &Expr(expr.to_owned())) {
            Ok(Value::String(text)) => Some(text),
            _ => None,
        };
        for (kind, id) in &refs.named {
            let Some(kind) = text(kind) else { continue };
            match id {
                Some(Key::Written(id)) => rows.push(EntityRef::One { kind, id: id.clone() }),
                Some(Key::Computed(id)) => rows.extend(text(id).map(|id| EntityRef::One { kind, id })),
                None => rows.push(EntityRef::All { kind }),
            }
        }
        rows
    }

    /// `state.<kind>.<id>` as far as the expression says which; a kind goes by its id or its bare name.
    fn rows(&self, state: &State, refs: &Refs) -> Result<Value, Problem> {
        let mut kinds = Map::new();
        for entity in self.entities(state, refs) {
            let kind = match &entity {
                EntityRef::One { kind, .. } | EntityRef::All { kind } => kind,
            };
            let slot = kinds.entry(kind.clone()).or_insert_with(|| json!({}));
            let (Value::Object(slot), Ok(concept)) = (slot, state.catalog.concept(kind)) else { continue };
            match &entity {
                EntityRef::One { id, .. } => {
                    let row = self.row(state, concept.id(), id)?;
                    slot.extend(row.map(|row| (id.clone(), Value::Object(row.fields))));
                }
                EntityRef::All { .. } => self.all_rows(state, concept, slot)?,
            }
        }
        if refs.may_read_any_row() {
            for concept in state.catalog.concepts() {
                let mut rows = Map::new();
                self.all_rows(state, concept, &mut rows)?;
                // A name that is computed may be the bare one, too.
                let name = &concept.definition.name;
                if state.catalog.concept(name).is_ok_and(|named| named.id() == concept.id()) {
                    kinds.insert(name.clone(), rows.clone().into());
                }
                kinds.insert(concept.id().to_owned(), rows.into());
            }
        }
        Ok(kinds.into())
    }

    /// Seed 001's names: `health.systems[id]` and `health.system` read the rows of the concept named `health`.
    fn health(&self, state: &State) -> Result<Value, Problem> {
        let mut rows = Map::new();
        if let Ok(concept) = state.catalog.concept("health") {
            self.all_rows(state, concept, &mut rows)?;
        }
        let trigger = self.named("trigger");
        let system = trigger["entity"]["id"].as_str();
        let system = system.and_then(|id| rows.get(id)).cloned().unwrap_or_default();
        Ok(json!({"systems": rows, "system": system}))
    }

    /// One row by its concept and id, if it is there to be seen.
    pub fn row(&self, state: &State, concept: &str, id: &str) -> Result<Option<Row>, Problem> {
        let row = state.row_near(concept, &self.space, id).map_err(broken)?;
        let concept = |row: &Row| state.catalog.concept(&row.concept).cloned();
        Ok(row.filter(|row| {
            self.reader.is_none() || concept(row).is_ok_and(|concept| self.sees(&concept, row))
        }))
    }

    fn sees(&self, concept: &Concept, row: &Row) -> bool {
        self.reader.as_ref().is_none_or(|reader| concept.shows(row, reader))
    }

    fn all_rows(
        &self,
        state: &State,
        concept: &Concept,
        into: &mut Map<String, Value>,
    ) -> Result<(), Problem> {
        let many = state.count_rows(concept.id()).map_err(broken)?;
        if many > ROWS_MAX as u64 {
            let detail =
                format!("\"{}\" has {many} rows, more than {ROWS_MAX} to look through", concept.id());
            return Err(Problem::new(Code::ExprLimit, detail)
                .hint("name the row by a fixed id, or use a declared query"));
        }
        let everywhere = self.space == "_system";
        state
            .each_row(concept.id(), |row| {
                let here = everywhere || row.space == self.space || row.space == "_system";
                if here && self.sees(concept, &row) {
                    into.insert(row.id, Value::Object(row.fields));
                }
            })
            .map_err(broken)
    }
}

/// `steps.<id>`, with seed 000's words beside ours. `mark` stands where there is no output: null for a step that was skipped,
/// else its error.
fn step_value(output: &Value, mark: Option<&Value>) -> Value {
    let (status, error) = match mark {
        None => ("success", &NULL),
        Some(Value::Null) => ("skipped", &NULL),
        Some(error) => ("failed", error),
    };
    let metadata = output.as_array().map_or(Value::Null, |items| json!({ "itemCount": items.len() }));
    json!({"output": output, "result": output, "status": status, "error": error, "metadata": metadata})
}

pub fn broken(fault: crate::state::Fault) -> Problem {
    crate::writer::Fatal::from(fault).0
}
