//! Effects on the tenant's side: they go out to workers, their answers come back, and those nobody waits for are stopped.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use model::Problem;
use model::record::{EffectRecord, How, Record, RunRecord};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::publish::unexpected;
use super::tasks::Leases;
use super::{Tenant, entity::broken, runs::parts_of};
use crate::command::{Answer, Command, RunCommand};
use crate::deliver::lock;
use crate::run::{Effect, WaitId};
use crate::state::{Result as StateResult, State};

/// Who works outside for a tenant, as far as memory knows.
#[derive(Default)]
pub(crate) struct Outside {
    /// Effects that workers of this process have, and how these are told to stop.
    pub(super) out: Mutex<HashMap<WaitId, AbortHandle>>,
    /// Tasks that workers in other processes have.
    pub(super) leases: Mutex<Leases>,
    /// A task was asked for, or is free again.
    pub(super) tasks: Notify,
    /// Who posts events to others has seen which are wanted.
    pub(super) pushes_seen: AtomicBool,
}

impl Tenant {
    /// Effects that nobody has answered for, oldest run first.
    pub fn open_effects(&self) -> Result<Vec<Effect>, Problem> {
        self.with_writer(|writer| {
            let mut effects = Vec::new();
            for (position, number) in &writer.state.runs.wakes.effects {
                let Some(run) = writer.state.run(*position).map_err(broken)? else { continue };
                effects.extend(run.wait(*number).and_then(|wait| Effect::of(&run, wait)));
            }
            Ok(effects)
        })
    }

    /// The next effects for workers: as many of events and of schedules as there is room. That they were handed out is
    /// written first.
    pub fn hand_out_effects(&self, room: [usize; 2]) -> Result<Vec<Effect>, Problem> {
        match self.ask_blocking(Command::Run(RunCommand::HandOut { room }))? {
            Answer::Effects(effects) => Ok(effects),
            _ => Err(unexpected()),
        }
    }

    /// What a worker made of an effect. One that nobody waits for any more is noted as late.
    pub fn effect_done(&self, effect: &Effect, how: How, value: Value) -> Result<(), Problem> {
        self.ask_blocking(done(effect, how, value)).map(drop)
    }

    pub(crate) async fn effect_ended(&self, effect: &Effect, how: How, value: Value) -> Result<(), Problem> {
        let class = if how == How::Done { "ok" } else { value["class"].as_str().unwrap_or("permanent") };
        self.metrics().automations.attempted(&effect.kind, class);
        self.ask(done(effect, how, value)).await.map(drop)
    }

    /// Lets an effect that was out at ten crashes be tried again; `wait` is `<run>.<number>`.
    pub fn redrive_effect(&self, wait: &str) -> Result<(), Problem> {
        let (run, wait) = parts_of(wait)?;
        self.ask_blocking(Command::Run(RunCommand::Redrive { run, wait })).map(drop)
    }

    /// A worker has it.
    pub(crate) fn effect_is_out(&self, effect: &Effect, stop: AbortHandle) {
        lock(&self.0.outside.out).insert(effect.id(), stop);
    }

    pub(crate) fn effect_is_back(&self, effect: &Effect) {
        lock(&self.0.outside.out).remove(&effect.id());
    }

    pub(crate) fn stop_effects(&self) {
        lock(&self.0.outside.out).values().for_each(AbortHandle::abort);
    }

    /// Whether an effect waits for a worker; never of a tenant that is closing.
    pub(crate) fn wants_worker(&self) -> bool {
        let waits = |writer: &mut crate::writer::Writer| Ok(writer.state.runs.wakes.wants_worker());
        !self.is_closing() && self.with_writer(waits).unwrap_or(false)
    }

    /// After a batch: workers are called, and told to stop what nobody waits for any more.
    pub(super) fn note_effects(&self, state: &State) {
        let open = &state.runs.wakes.effects;
        lock(&self.0.outside.out)
            .iter()
            .filter(|(id, _)| !open.contains(id))
            .for_each(|(_, stop)| stop.abort());
        self.note_tasks(state);
        if state.runs.wakes.wants_worker() {
            self.0.around.effects.ring();
        }
    }

    /// Whatever is sent only once and was out at the last stop is answered for.
    pub(super) fn begin_effects(&self) -> Result<(), Problem> {
        let once = |request: &crate::run::Request| request.once && request.handed;
        let unknown = self.with_writer(|writer| any_open(&writer.state, once).map_err(broken))?;
        if unknown { self.ask_blocking(Command::Run(RunCommand::Unknown)).map(drop) } else { Ok(()) }
    }
}

fn done(effect: &Effect, how: How, value: Value) -> Command {
    let (run, wait) = effect.id();
    Command::Run(RunCommand::EffectDone { run, wait, how, value })
}

/// What an unclean stop says of the effects that were out.
pub(super) fn crashed(state: &State) -> StateResult<Option<Record>> {
    let out = any_open(state, |request| request.handed)?;
    Ok(out.then_some(Record::Run(RunRecord::Effect(EffectRecord::Crashed))))
}

fn any_open(state: &State, wanted: impl Fn(&crate::run::Request) -> bool) -> StateResult<bool> {
    for id in &state.runs.wakes.effects {
        if state.effect(*id)?.is_some_and(|request| wanted(&request)) {
            return Ok(true);
        }
    }
    Ok(false)
}
