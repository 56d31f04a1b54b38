//! Steps that call something declared: logic, a query, a mutation, another automation.

use std::sync::Arc;

use model::definition::{Call, Scope, TriggerKind};
use model::event::Band;
use model::record::{How, Outcome, Reason, RunStarted, Verdict};
use model::{Code, Position, Timestamp};
use serde_json::{Map, Value, json};

use super::{Flow, Result, Stopped, Walk, failure, refused};
use crate::admit::Caller;
use crate::automation::{Automation, Trigger};
use crate::decide::{self, Entry};
use crate::declared;
use crate::entity::{Provenance, seal};
use crate::env::Env;
use crate::gate::{self, Gate, Memory, Occurrence};
use crate::program::Program;
use crate::route::{self, occurrence, start};
use crate::run::{Block, Inside, Run, WaitKind, act_behind};

/// Logic that calls logic that calls logic …
const LOGIC_DEPTH_MAX: u32 = 16;

/// Characters of a called run's error that its caller repeats.
const SAID_MAX: usize = 300;

impl Walk<'_, '_> {
    pub(super) fn args(&self, call: &Call) -> Result<Map<String, Value>> {
        match self.optional(call.args.as_ref())? {
            Value::Object(args) => Ok(args),
            Value::Null => Ok(Map::new()),
            other => {
                Err(failure(Code::ExprType, format!("\"{}\" takes named arguments, not {other}", call.name)))
            }
        }
    }

    /// Who asks for rows: logic that somebody outside called sees no more than they do.
    fn caller(&self) -> Caller {
        let run =
            || Caller { actor: self.run.actor(), trace: None, outside: false, sight: Default::default() };
        Caller { trace: self.traceparent.clone(), ..self.outside.clone().unwrap_or_else(run) }
    }

    pub(super) fn actor(&self) -> String {
        self.outside.as_ref().map_or_else(|| self.run.actor(), |caller| caller.actor.clone())
    }

    pub(super) fn run_id(&self) -> Option<&str> {
        self.outside.is_none().then_some(self.run.id.as_str())
    }

    /// A function call: no run of its own, nothing waits in it, and what it did stands or falls with the step.
    pub(super) fn logic(&mut self, call: &Call) -> Result<Flow> {
        let args = self.args(call)?;
        self.logic_with(&call.name, args)
    }

    fn logic_with(&mut self, name: &str, args: Map<String, Value>) -> Result<Flow> {
        if self.logic >= LOGIC_DEPTH_MAX {
            return Err(failure(
                Code::ExprLimit,
                format!("logic calls logic more than {LOGIC_DEPTH_MAX} deep"),
            ));
        }
        let catalog = self.draft.state.catalog.clone();
        let (logic, program) = catalog.logic(name)?;
        let args = declared::call_args(&logic.name, &logic.args, args)?;
        let mut fixed = Map::new();
        fixed.insert("args".to_owned(), Value::Object(args));
        for name in ["actor", "partition"] {
            fixed.insert(name.to_owned(), self.env.named(name).into_owned());
        }
        let inner = Env {
            program,
            fixed,
            about: None,
            vars: json!({}),
            outputs: Map::new(),
            frames: Vec::new(),
            wait: Value::Null,
            now: self.env.now,
            space: self.env.space.clone(),
            reader: self.env.reader.clone(),
        };
        if let Some(about) = &self.env.about {
            self.topic = about.event["topic"].as_str().map(str::to_owned);
        }
        let (band, before) = (self.band(), self.least_band);
        let outer = std::mem::replace(&mut self.env, inner);
        (self.logic, self.least_band) = (self.logic + 1, band);
        let flow = self.block(&logic.steps, &mut Block::default(), "");
        (self.logic, self.least_band) = (self.logic - 1, before);
        self.env = outer;
        match flow? {
            Flow::Done(output) | Flow::Leave(output) => Ok(Flow::Done(output)),
            Flow::Blocked => Err(failure(Code::DefinitionInvalid, format!("logic \"{name}\" waits"))),
        }
    }

    /// Rows as logic reads them: `id`, `payload` and what the engine knows of a row.
    pub(super) fn query(&mut self, call: &Call, at: &mut Block, path: &str) -> Result<Flow> {
        let catalog = self.draft.state.catalog.clone();
        let query = catalog.query(&call.name)?;
        // One that waits for its answer goes on waiting, whatever the query has become.
        if query.detached || matches!(at.inside.as_deref(), Some(Inside::Wait(_))) {
            return self.detached(query, call, at, path);
        }
        let args = self.args(call)?;
        let state = &self.draft.state;
        let space = (self.env.space != occurrence::SYSTEM).then_some(self.env.space.as_str());
        let asked =
            declared::Asked { name: &call.name, args, space, caller: &self.caller(), now: self.env.now };
        Ok(Flow::Done(declared::query(&state.catalog, state.table()?, asked)?))
    }

    pub(super) fn mutate(&mut self, call: &Call) -> Result<Flow> {
        let args = self.args(call)?;
        let catalog = self.draft.state.catalog.clone();
        let mutation = catalog.mutation_ready(&call.name)?;
        let told = args.get("space").and_then(Value::as_str).map(str::to_owned);
        let mut write = mutation.write(&self.actor(), args, self.env.now)?;
        let concept = catalog.concept(&write.concept)?;
        write.space = match (&concept.definition.scope, self.env.space.as_str()) {
            (Scope::Global, _) => occurrence::SYSTEM.to_owned(),
            (_, occurrence::SYSTEM) => self.space_for(write.concept.as_str(), write.id.as_deref(), told)?,
            (_, space) => space.to_owned(),
        };
        if let Some(caller) = &self.outside {
            if !caller.sight.sees_space(&write.space) {
                return Err(caller.sight.denied(&write.space, Band::default()).into());
            }
            write.owner = caller.outside.then(|| caller.actor.clone());
        }
        if !concept.secrets.is_empty() {
            let key = self.draft.state.key.get();
            let key = key.ok_or_else(|| failure(Code::Internal, "there is no key to seal a secret with"))?;
            seal::seal(key, concept, &mut write)?;
        }
        write.actor = self.actor();
        write.provenance = Provenance {
            kind: if self.outside.is_some() { "logic" } else { "automation" }.to_owned(),
            name: self.run.automation.clone(),
            trigger: self.fired_by(),
            via: call.name.clone(),
        };
        let (cause, depth) = self.cause();
        let run = self.run_id().map(str::to_owned);
        let decided = self.draft.ask(|state, ground| {
            decide::entity::write_caused(state, vec![write], (cause, depth, run.as_deref()), ground)
        });
        let (entries, mut written) = decided.map_err(refused)?;
        self.bytes += entries.iter().map(Entry::bytes).sum::<usize>();
        self.too_big()?;
        self.draft.add_all(entries)?;
        let written = written.pop().ok_or_else(|| failure(Code::Internal, "a write had no answer"))?;
        Ok(Flow::Done(declared::node(written.row)))
    }

    /// What began the run, as rows tell it: the topic of its event, or `cron`, or `manual`.
    fn fired_by(&self) -> String {
        let topic = || match &self.env.about {
            Some(about) => about.event["topic"].as_str(),
            None => self.topic.as_deref(),
        };
        match self.run.occurrence.kind.as_str() {
            _ if self.outside.is_some() => String::new(),
            "schedule" => "cron".to_owned(),
            "manual" => "manual".to_owned(),
            _ => topic().unwrap_or_default().to_owned(),
        }
    }

    /// Where a run that sees all spaces writes: as told, else where the row is, else the default.
    fn space_for(&self, concept: &str, id: Option<&str>, told: Option<String>) -> Result<String> {
        if let Some(space) = told {
            return Ok(space);
        }
        let row = match id {
            Some(id) => self.draft.state.only_row(concept, id)?,
            None => None,
        };
        Ok(row.map_or_else(|| self.draft.state.default_space.clone(), |row| row.space))
    }

    /// The position and depth that what this run writes is caused by.
    pub(super) fn cause(&self) -> (u64, u32) {
        if self.outside.is_some() {
            return (0, 0);
        }
        let at = if self.run.event > 0 { self.run.event } else { self.run.position };
        (at, self.run.depth + 1)
    }

    /// The act of administration that this run goes back to.
    fn act_behind(&self) -> Option<String> {
        let event = self.env.about.as_ref().map(|about| &*about.event).unwrap_or(&Value::Null);
        act_behind(&self.run.occurrence.kind, event, &self.run.input)
    }

    /// Another automation: its gates from the conditions on are asked as for any start.
    pub(super) fn call(&mut self, call: &Call, wait: bool, at: &mut Block, path: &str) -> Result<Flow> {
        if let Some(Inside::Wait(number)) = at.inside.as_deref() {
            let number = *number;
            let Some(ended) = self.ended(number) else { return Ok(Flow::Blocked) };
            self.forget(number);
            return match ended.how {
                How::Done => Ok(Flow::Done(ended.value)),
                _ => Err(failure(
                    Code::RunFailed,
                    format!("\"{}\" did not end well: {}", call.name, why(&ended.value)),
                )),
            };
        }
        if self.atomic > 0 || self.logic > 0 {
            let what = "another automation cannot be started inside `atomic` or logic";
            return Err(failure(Code::DefinitionInvalid, what));
        }
        let input = self.optional(call.args.as_ref())?;
        let number = self.run.walk.waited + 1;
        let caller = wait.then_some((self.run.position, number));
        let by = Invoked {
            name: &call.name,
            input,
            actor: self.run.actor(),
            depth: self.run.depth + 1,
            kind: "call",
            caller,
            space: Some(self.env.space.clone()),
            other_spaces: self.draft.state.seals.others(self.run.spaces(), &self.env.space),
            event: None,
            trace: self.traceparent.clone(),
            band: self.band(),
            act: self.act_behind(),
            cause: self.run.event,
            parent: Some(self.run.id.clone()),
            invoked_by: Some(format!("automation:{}", self.run.automation)),
        };
        let (verdict, run) = invoke(self.draft, by)?;
        // Nobody waits for its end: a place in the queue is as good as a start, and must not be taken back.
        if let Some(id) = verdict.run.as_ref().filter(|_| run.is_none() && !wait) {
            return Ok(Flow::Done(json!({ "run": id })));
        }
        let Some(run) = run else {
            let why = verdict.reason.unwrap_or_default();
            return Err(failure(Code::RunRefused, format!("\"{}\" was not started: {why}", call.name)));
        };
        if !wait {
            let id = self.draft.state.run(run)?.map(|run| run.id);
            return Ok(Flow::Done(json!({ "run": id })));
        }
        let number = self.wait(path, WaitKind::Call { run }, None, Map::new());
        at.inside = Some(Box::new(Inside::Wait(number)));
        Ok(Flow::Blocked)
    }
}

/// What the called one said, cut short: along a chain of calls each quotes the one before.
fn why(ended: &Value) -> String {
    let said = ended["message"].as_str().or(ended["status"].as_str()).unwrap_or_default();
    match said.char_indices().nth(SAID_MAX) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

/// Logic that somebody outside calls: no run, and nothing that caused it.
pub(crate) fn call_logic(
    draft: &mut crate::draft::Draft<'_>,
    name: &str,
    args: Map<String, Value>,
    caller: Caller,
    space: String,
) -> Result<Value> {
    let fixed = [("actor", caller.actor.as_str()), ("partition", space.as_str())];
    let env = Env {
        program: Arc::new(Program::logic(&[])),
        fixed: fixed.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
        about: None,
        vars: json!({}),
        outputs: Map::new(),
        frames: Vec::new(),
        wait: Value::Null,
        now: draft.now,
        space: space.clone(),
        reader: Some(caller.clone()),
    };
    let run = Run::nobodys(name, space, draft.now);
    let mut walk = Walk { outside: Some(caller), ..Walk::new(draft, run, env) };
    match walk.logic_with(name, args)? {
        Flow::Done(output) | Flow::Leave(output) => Ok(output),
        Flow::Blocked => Err(failure(Code::DefinitionInvalid, format!("logic \"{name}\" waits"))),
    }
}

/// A start that no event brings.
pub struct Invoked<'a> {
    pub name: &'a str,
    pub input: Value,
    pub actor: String,
    pub depth: u32,
    /// `manual` or `call`.
    pub kind: &'static str,
    pub caller: Option<(u64, u32)>,
    pub space: Option<String>,
    /// Sealed spaces, besides that one, of which the caller holds something.
    pub other_spaces: Vec<String>,
    /// What stands for the event, when a person gave one.
    pub event: Option<Value>,
    /// The W3C traceparent of who starts it.
    pub trace: Option<String>,
    /// The highest band of what the caller has read.
    pub band: Band,
    /// The act of administration that the caller goes back to.
    pub act: Option<String>,
    /// The event in the ledger that led here; 0: none.
    pub cause: Position,
    /// The run that calls it.
    pub parent: Option<String>,
    /// As in [`RunStarted`].
    pub invoked_by: Option<String>,
}

/// Asks the gates that hold for every start and starts the run if they let it.
pub(crate) fn invoke(
    draft: &mut crate::draft::Draft<'_>,
    mut by: Invoked<'_>,
) -> std::result::Result<(Verdict, Option<u64>), Stopped> {
    let automation = draft.state.catalog.automations.named(by.name)?.clone();
    let space = by.space.clone().or_else(|| automation.definition.space.clone());
    let space = space.unwrap_or_else(|| occurrence::SYSTEM.to_owned());
    let context = format!("automation.invocation.{}", by.name);
    // What stands for the event says more than was given.
    let nothing = by.input.is_null() && by.event.is_none();
    let input = if nothing { json!({}) } else { std::mem::take(&mut by.input) };
    let said = by.event.take();
    let event = said.unwrap_or_else(|| stands_for(&by, (&context, &space), &input, draft.now));
    let pulled = pulled_by(&automation, by.kind);
    let trigger = pulled.map_or(by.kind, |trigger| trigger.definition.id.as_str()).to_owned();
    let about = Arc::new(event.clone());
    let env = occurrence::env(&automation, pulled, about, input.clone(), draft.now, space.clone());
    let of = Occurrence {
        automation: &automation,
        trigger: None,
        context,
        event: None,
        position: 0,
        time: draft.now,
        depth: by.depth,
        env,
        in_turn: false,
    };
    let mut passed = gate::pass(&Memory::of(draft.state), &of, Gate::Conditions)?;
    if passed.outcome == Outcome::Pending {
        let start = json!({
            "kind": by.kind, "event": event, "input": input, "space": space, "depth": by.depth,
            "at": draft.now, "context": of.context, "position": by.cause, "parent": by.parent,
            "invoked_by": by.invoked_by, "other_spaces": by.other_spaces,
        });
        // Whoever waits for its end is told at once.
        passed.queue_or_skip(by.caller.is_none().then_some(start));
        start::promise(&mut passed, draft.now, draft.entropy);
    }
    let verdict = route::verdict(&automation, &trigger, &passed);
    // One that is pending has its event with it: that in the ledger is kept for nobody any more.
    let of_event = if by.kind == "event" && passed.outcome != Outcome::Pending { by.cause } else { 0 };
    let spaces = std::iter::once(&space).chain(&by.other_spaces).cloned().collect();
    let quoting = start::Quoting { spaces, run: by.parent.as_deref() };
    let position = start::judged(draft, of_event, verdict.clone(), &quoting)?;
    if passed.pause {
        start::pause(draft, &automation)?;
    }
    if passed.outcome != Outcome::Ran {
        return Ok((verdict, None));
    }
    let position = if of_event > 0 { of_event } else { position };
    let started = RunStarted {
        occurrence: Reason { kind: by.kind.to_owned(), position, at: draft.now },
        event: by.cause,
        parent: by.parent,
        invoked_by: by.invoked_by,
        space,
        other_spaces: by.other_spaces,
        depth: by.depth,
        caller: by.caller,
        topic: event["topic"].as_str().filter(|_| by.kind == "event").map(str::to_owned),
        input,
        synthetic: Some(event),
        ..start::blank(draft, &automation, &trigger, &passed.stage)
    };
    let run = start::start(draft, started, &passed.cancel)?;
    Ok((verdict, Some(run)))
}

/// A person pulls the trigger that is there for it.
fn pulled_by<'a>(automation: &'a Automation, kind: &str) -> Option<&'a Trigger> {
    let mut by_hand = automation.triggers.iter().filter(|_| kind == "manual");
    by_hand.find(|trigger| trigger.definition.on == TriggerKind::Manual)
}

/// What stands for the event of a start that has none.
fn stands_for(by: &Invoked<'_>, (topic, space): (&str, &str), input: &Value, now: Timestamp) -> Value {
    let mut event = start::synthetic(topic, space, &by.actor, payload_of(by.kind, input), now);
    by.trace.iter().for_each(|trace| event["trace"] = trace.as_str().into());
    if by.band > Band::default() {
        event["band"] = by.band.as_str().into();
    }
    by.act.iter().for_each(|act| event["caused_by"] = act.as_str().into());
    event
}

/// What was given; a start by hand says beside it that it is one.
fn payload_of(kind: &str, input: &Value) -> Value {
    let mut payload = input.clone();
    if let Value::Object(payload) = &mut payload
        && kind == "manual"
    {
        payload.entry("triggeredBy").or_insert_with(|| kind.into());
    }
    payload
}
