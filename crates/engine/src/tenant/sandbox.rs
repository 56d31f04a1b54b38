//! A tenant's state beside itself: what is asked of it is decided and walked by the very same code, and nothing is written.
//!
//! It begins as a copy of `state.db` in memory and a ledger in memory that goes on after the real one. Effects are not
//! carried out; each is noted and answered with success and null.

use std::sync::Arc;

use ledger::{Ledger, MemoryLedger};
use model::event::Event;
use model::record::{How, Record, RunRecord};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::{Tenant, broken, runs};
use crate::apply::Place;
use crate::command::{Answer, Command, RunCommand};
use crate::declared::{self, Detached};
use crate::deliver::lock;
use crate::entropy::Entropy;
use crate::history::History;
use crate::history::read::Wanted;
use crate::run::{Effect, Run};
use crate::state::State;
use crate::writer::{Committed, Moment, Writer};

/// Rounds of work after which it is said to run in circles.
const ROUNDS_MAX: usize = 10_000;

pub(super) struct Sandbox {
    pub writer: Writer,
    pub history: History,
    pub moment: Moment,
    /// What came of it, in order.
    pub events: Vec<Arc<Event>>,
    pub effects: Vec<Value>,
    /// Runs that were there before and were woken.
    pub woken: Vec<Position>,
}

impl Sandbox {
    pub fn of(tenant: &Tenant) -> Result<Sandbox, Problem> {
        let Some(dir) = tenant.dir() else {
            return Err(Problem::new(Code::NotFound, "a tenant in memory has nothing to copy"));
        };
        tenant.with_writer(|writer| writer.settle().map_err(|fatal| fatal.0))?;
        let mut state = State::copy_of(&dir.join("state.db")).map_err(broken)?;
        state.default_space.clone_from(&tenant.settings().default_space);
        state.key = tenant.0.key.clone();
        crate::schedule::arm(&mut state).map_err(broken)?;
        state.runs.wakes.mark_all();
        let past = tenant.with_reader(|reader| Ok(reader.another()))?;
        let ledger = MemoryLedger::after(state.applied, past);
        let entropy = lock(&tenant.0.entropy).split();
        Sandbox::over(Box::new(ledger), state, entropy, tenant.moment())
    }

    pub fn over(
        ledger: Box<dyn Ledger>,
        mut state: State,
        entropy: Entropy,
        moment: Moment,
    ) -> Result<Sandbox, Problem> {
        state.pretends = true;
        let history = History::open(None).map_err(broken)?;
        let writer = Writer::new(ledger, state, entropy);
        Ok(Sandbox { writer, history, moment, events: Vec::new(), effects: Vec::new(), woken: Vec::new() })
    }

    /// One command, and all that follows from it at this instant.
    pub fn ask(&mut self, command: Command) -> Result<Answer, Problem> {
        let before = self.writer.head();
        let answer = self.turn(vec![command])?.pop().unwrap_or_else(|| Err(super::closing()))?;
        self.work(before)?;
        Ok(answer)
    }

    /// Time passes: from one due instant to the next.
    pub fn advance_to(&mut self, to: Timestamp) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            let due = self.writer.state.runs.timers.first().map(|(at, _)| *at).filter(|at| *at <= to);
            let Some(at) = due else {
                self.be_at(to);
                return Ok(());
            };
            self.be_at(at.max(self.moment.now));
            self.ask(Command::Run(RunCommand::Due))?;
        }
        Err(circles())
    }

    fn be_at(&mut self, at: Timestamp) {
        let by = at.since(self.moment.now);
        self.moment = Moment { now: at, boot: self.moment.boot + by, real: self.moment.real + by };
    }

    pub fn turn(&mut self, commands: Vec<Command>) -> Result<Vec<Result<Answer, Problem>>, Problem> {
        let turn = self.writer.turn(self.moment, commands).map_err(|fatal| fatal.0)?;
        self.writer.commit_state_if_due(self.moment).map_err(|fatal| fatal.0)?;
        self.note(turn.committed)?;
        Ok(turn.answers)
    }

    pub fn note(&mut self, committed: Vec<Committed>) -> Result<(), Problem> {
        let mut records: Vec<(Place, RunRecord)> = Vec::new();
        for one in committed {
            match one {
                Committed::Told(_) => {}
                Committed::Event(event) => self.events.push(event),
                Committed::Other(place, Record::Run(record)) => records.push((place, record)),
                Committed::Other(..) => {}
            }
        }
        let through = self.writer.head();
        self.history.fold(&records, through).map_err(broken)?;
        self.woken.extend(records.iter().filter_map(|(_, record)| match record {
            RunRecord::WaitEnded(ended) => Some(ended.run),
            _ => None,
        }));
        Ok(())
    }

    /// Runs walk, and what they ask of the outside is answered. Effects of runs from before `base` are not its business.
    pub fn work(&mut self, base: Position) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            if self.writer.has_ready() {
                self.turn(Vec::new())?;
                continue;
            }
            let open: Vec<_> = self.writer.state.runs.wakes.effects.iter().copied().collect();
            let mut asked = Vec::new();
            for (run, wait) in open.into_iter().filter(|(run, _)| *run > base || self.woken.contains(run)) {
                let Some(live) = self.writer.state.run(run).map_err(broken)? else { continue };
                self.effects.extend(shown_effect(&live, wait));
                let (how, value) = stubbed(&self.writer.state, &live, wait);
                asked.push(Command::Run(RunCommand::EffectDone { run, wait, how, value }));
            }
            if asked.is_empty() {
                return Ok(());
            }
            self.turn(asked)?;
        }
        Err(circles())
    }

    /// A run as it would be.
    pub fn run(&self, id: &str) -> Result<Value, Problem> {
        let state = &self.writer.state;
        let queued = state.queued(id).and_then(|(of, pending)| runs::queued_json(state, *of, pending));
        if let Some(mut run) = queued {
            (run["steps"], run["waits"]) = (json!([]), json!([]));
            return Ok(run);
        }
        let mut run = self.history.run(id).map_err(broken)?.unwrap_or_default();
        let live = self.writer.state.runs.position_of(id);
        let live =
            live.map(|position| self.writer.state.run(position).map_err(broken)).transpose()?.flatten();
        run["waits"] = json!([]);
        if let Some(live) = live {
            let live = runs::run_json(&live);
            for name in ["waits", "vars", "wait", "status"] {
                run[name] = live[name].clone();
            }
        }
        if let Value::Object(run) = &mut run {
            run.retain(|_, value| !value.is_null());
        }
        Ok(run)
    }

    /// Every run that would have started, in order.
    pub fn runs(&self) -> Result<Vec<Value>, Problem> {
        let wanted = Wanted { limit: 1_000, ..Wanted::default() };
        let (mut runs, _) = self.history.runs(&wanted).map_err(broken)?;
        runs.reverse();
        runs.iter().map(|run| self.run(run["id"].as_str().unwrap_or_default())).collect()
    }

    pub fn events_after(&self, skip: usize) -> Vec<Value> {
        self.events.iter().skip(skip).map(|event| event.to_value()).collect()
    }
}

/// The answer where nothing goes outside: success and null, but rows to one who asks for rows.
pub(super) fn stubbed(state: &State, run: &Run, wait: u32) -> (How, Value) {
    let effect = run.wait(wait).and_then(|wait| Effect::of(run, wait));
    match effect.filter(|effect| effect.kind == declared::DETACHED) {
        Some(effect) => {
            let asked = Detached::of(&effect);
            declared::told(asked.and_then(|asked| asked.answer_from(&state.catalog, &state.db)))
        }
        None => (How::Done, Value::Null),
    }
}

/// What an effect would ask of the outside.
pub(super) fn shown_effect(run: &Run, wait: u32) -> Option<Value> {
    let effect = run.wait(wait).and_then(|wait| Effect::of(run, wait))?;
    if effect.kind == declared::DETACHED {
        return None;
    }
    let mut shown = json!({"run": effect.run_id, "kind": effect.kind, "key": effect.key});
    match (&mut shown, effect.with) {
        (Value::Object(shown), Value::Object(with)) => {
            shown.extend(with.into_iter().filter(|(name, value)| name != "kind" && !value.is_null()));
        }
        (shown, with) => shown["with"] = with,
    }
    Some(shown)
}

pub(super) fn circles() -> Problem {
    Problem::new(Code::QuotaExceeded, "the work never ends")
        .hint("an automation probably starts itself again and again")
}
