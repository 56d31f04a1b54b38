//! Runs on the caller's side: starting, cancelling and answering them, and what is live now.

mod again;
pub(super) mod coming;
mod refused;

use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::event::Event;
use model::record::{OccurrenceId, Outcome, RunRecord, Status};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

pub use again::{Bulk, Rerun, Verb};
pub use refused::REASONS;

use super::publish::unexpected;
use super::{Tenant, entity::broken};
use crate::admit::{Caller, Draft, check_topic_of};
use crate::automation::Automation;
use crate::command::{Answer, Command, RunCommand, Toggle};
use crate::gate::storm;
use crate::lifecycle;
use crate::metrics::automations::Standing;
use crate::route::occurrence;
pub use crate::run::Effect;
use crate::run::{Run, Wait, WaitKind, act_behind};
use crate::state::State;
use crate::state::run::Pending;
use crate::writer::{Moment, Writer};

/// How soon what could not be served is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// What became of a start by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// `None`: a gate held it back.
    pub run: Option<String>,
    pub outcome: Outcome,
    pub reason: Option<String>,
}

impl Tenant {
    /// Starts an automation by hand; only conditions, breaker and mode are asked.
    pub fn start_run(
        &self,
        caller: &Caller,
        automation: &str,
        input: Value,
        event: Option<Value>,
    ) -> Result<Started, Problem> {
        event.iter().try_for_each(|event| self.stands_in(event, true))?;
        let (automation, actor) = (automation.to_owned(), caller.actor.clone());
        let trace = caller.trace.clone();
        let start = RunCommand::Start { automation, input, event, actor, trace };
        match self.ask_blocking(Command::Run(start))? {
            Answer::Started { run, outcome, reason } => Ok(Started { run, outcome, reason }),
            _ => Err(unexpected()),
        }
    }

    /// What a person gives in place of an event has the fields of one, of which it needs none. Only where nothing comes of
    /// it may it say what the engine alone says.
    pub(super) fn stands_in(&self, event: &Value, real: bool) -> Result<(), Problem> {
        let mut whole = event.clone();
        if event.get("topic").is_none() {
            whole["topic"] = "manual".into();
        }
        let check = || {
            let draft = Draft::parse_exported(whole.to_string().as_bytes(), &self.limits())?;
            check_topic_of(&Caller { outside: real, ..Caller::local() }, &draft.topic)
        };
        check().map_err(|problem| problem.within("/event"))
    }

    /// Ends a run that is in progress; what it did stands.
    pub fn cancel_run(&self, run: &str) -> Result<(), Problem> {
        let cancel = RunCommand::Cancel { run: run.to_owned(), why: "cancelled".to_owned() };
        match self.ask_blocking(Command::Run(cancel)) {
            Err(problem) if problem.code() == Code::RunNotFound => {
                let status = self.run(run)?["status"].as_str().unwrap_or_default().to_owned();
                let detail = format!("\"{run}\" has ended, it is {status}");
                Err(Problem::new(Code::RunNotResumable, detail)
                    .hint("what it did stands; nothing is left to cancel"))
            }
            cancelled => cancelled.map(drop),
        }
    }

    /// Cancels all runs of an automation that are in progress. Those in its queue go first, the last of them before all: a place
    /// that becomes free would begin the next.
    pub fn cancel_runs_of(&self, automation: &str) -> Result<(), Problem> {
        let queued: Vec<String> = self.with_writer(|writer| {
            let pending = writer.state.pending().values().filter(|pending| pending.automation == automation);
            Ok(pending.filter_map(|pending| pending.run.clone()).collect())
        })?;
        queued.iter().rev().try_for_each(|run| self.cancel_run(run))?;
        let live = self.live_runs(Some(automation))?;
        live.iter().filter_map(|run| run["id"].as_str()).try_for_each(|run| self.cancel_run(run))
    }

    /// Answers a question; `wait` is `<run>.<number>`.
    pub fn answer_wait(&self, caller: &Caller, wait: &str, value: Value) -> Result<(), Problem> {
        let (run, number) = parts_of(wait)?;
        let actor = caller.actor.clone();
        let answer = RunCommand::Answer { run: run.clone(), wait: number, value, actor };
        match self.ask_blocking(Command::Run(answer)) {
            // It was open once, and is no more: somebody answered, or its time ran out.
            Err(problem) if problem.code() == Code::RunNotFound && self.run(&run).is_ok() => {
                let detail = format!("\"{wait}\" is not open any more, its run has ended");
                Err(Problem::new(Code::WaitAnswered, detail))
            }
            answered => answered.map(drop),
        }
    }

    pub fn set_automation(&self, name: &str, toggle: Toggle) -> Result<(), Problem> {
        let automation = name.to_owned();
        self.ask_blocking(Command::Run(RunCommand::Set { automation, toggle })).map(drop)
    }

    /// Live runs as contracts §11 shows them, oldest first.
    pub fn live_runs(&self, automation: Option<&str>) -> Result<Vec<Value>, Problem> {
        self.with_writer(|writer| {
            let state = &writer.state;
            let wanted = state
                .runs
                .live
                .iter()
                .filter(|(_, brief)| automation.is_none_or(|name| brief.automation == name));
            let shown = wanted.map(|(position, _)| state.run(*position).map_err(broken));
            shown.filter_map(|run| run.map(|run| run.map(|run| run_json(&run))).transpose()).collect()
        })
    }

    /// Open waits of live runs.
    pub fn waits(&self) -> Result<Vec<Value>, Problem> {
        self.with_writer(|writer| {
            let (mut waits, armed) = (Vec::new(), OnceCell::new());
            for position in writer.state.runs.live.keys() {
                let Some(mut run) = writer.state.run(*position).map_err(broken)? else { continue };
                writer.state.tell_dues(&mut run, &armed);
                waits.extend(open_waits(&run).map(|wait| {
                    let mut value = wait_json(&run, wait);
                    value["run"] = run.id.as_str().into();
                    value["automation"] = run.automation.as_str().into();
                    value
                }));
            }
            Ok(waits)
        })
    }

    /// Every automation with its setting, its schedules and how many runs it has.
    pub fn automations(&self) -> Result<Vec<Value>, Problem> {
        let now = self.moment().now;
        self.with_writer(|writer| {
            let all = writer.state.catalog.automations.all();
            Ok(all.map(|automation| automation_json(&writer.state, automation, now)).collect::<Vec<_>>())
        })
        .and_then(|mut all| {
            all.iter_mut().try_for_each(|automation| self.add_total(automation))?;
            Ok(all)
        })
    }

    /// How many runs it ever had, as far as the history goes back.
    fn add_total(&self, automation: &mut Value) -> Result<(), Problem> {
        let name = automation["name"].as_str().unwrap_or_default();
        let total = self.with_history(|history| history.count_runs(name).map_err(broken))?;
        automation["runs_total"] = total.into();
        Ok(())
    }

    pub fn automation(&self, name: &str) -> Result<Value, Problem> {
        let now = self.moment().now;
        self.with_writer(|writer| {
            let automation = writer.state.catalog.automations.named(name)?;
            let mut value = automation_json(&writer.state, automation, now);
            value["definition"] = serde_json::to_value(&automation.definition).unwrap_or_default();
            Ok(value)
        })
        .and_then(|mut value| {
            self.add_total(&mut value)?;
            Ok(value)
        })
    }

    /// The next instants at which time starts it.
    pub fn next_instants(&self, name: &str, count: usize) -> Result<Vec<Timestamp>, Problem> {
        let now = self.moment().now;
        self.with_writer(|writer| {
            let automation = writer.state.catalog.automations.named(name)?;
            Ok(coming::instants(&writer.state, automation, now, count))
        })
    }

    /// Schedules whose last instant lies ahead of now, so that none fires before it, in words; nothing while the clock is right.
    pub fn schedules_ahead(&self) -> Result<Vec<String>, Problem> {
        let now = self.moment().now;
        let ahead = |writer: &mut Writer| Ok(crate::schedule::ahead(&writer.state, now));
        Ok(self.with_writer(ahead)?.into_iter().map(|(said, _)| said).collect())
    }

    /// Lets them go on from now. Instants up to where they were may then fire a second time.
    pub fn lower_schedules(&self) -> Result<(), Problem> {
        self.ask_blocking(Command::Run(RunCommand::Lower)).map(drop)
    }

    /// Schedules that no deployment has begun, because an earlier version recorded them.
    pub(super) fn begin_schedules(&self) -> Result<(), Problem> {
        let now = self.moment().now;
        let waiting = self.with_writer(|writer| {
            let state = &writer.state;
            Ok(!crate::schedule::beginning(state, &state.catalog.automations, now).is_empty())
        })?;
        if waiting { self.ask_blocking(Command::Run(RunCommand::Deployed)).map(drop) } else { Ok(()) }
    }

    /// How its runs, waits and timers stand now.
    pub fn standing(&self) -> Standing {
        let now = self.moment().now;
        let look = |writer: &mut Writer| {
            let runs = &writer.state.runs;
            let queued = writer.state.pending().values().filter(|pending| pending.gate == "mode").count();
            let (live, ready) = (runs.live.len(), runs.ready.len());
            let ended = |which: usize| self.0.ended_runs[which].load(Ordering::Relaxed);
            Ok(Standing {
                runs: [
                    ("queued", queued as u64),
                    ("running", ready as u64),
                    ("waiting", (live - ready) as u64),
                    ("completed", ended(0)),
                    ("failed", ended(1)),
                    ("cancelled", ended(2)),
                ],
                waits: runs.wakes.kinds.clone(),
                timers: runs.timers.len() as u64,
                late_seconds: runs.timers.first().map_or(0.0, |(at, _)| now.since(*at).as_secs_f64()),
            })
        };
        self.with_writer(look).unwrap_or_default()
    }

    pub(super) fn count_storm(&self, event: &Event) {
        if event.envelope.topic == storm::TOPIC {
            let said = event.to_value();
            self.metrics().automations.stormed(said["payload"]["automation"].as_str().unwrap_or_default());
        }
    }

    /// Occurrences and runs that met their end.
    pub(super) fn count_run(&self, record: &RunRecord) {
        let counts = &self.metrics().automations;
        match record {
            RunRecord::Routed(routed) => {
                for verdict in &routed.verdicts {
                    let many = verdict.values["count"].as_u64().filter(|_| routed.event == 0);
                    counts.met(&verdict.automation, verdict.outcome, many.unwrap_or(1));
                }
            }
            RunRecord::Settled(settled) if !settled.automation.is_empty() => {
                counts.met(&settled.automation, settled.outcome, 1);
            }
            RunRecord::Ended(ended) => {
                let which = match ended.status {
                    Status::Completed => 0,
                    Status::Cancelled => 2,
                    _ => 1,
                };
                self.0.ended_runs[which].fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The wall clock may stand before what was recorded last; then nothing that counts time lasts longer for it.
    pub(super) fn hold_to_length(&self) -> Result<(), Problem> {
        let (head, now) = (self.head(), self.moment().now);
        if head == 0 || self.recorded_at(head)? <= now {
            return Ok(());
        }
        self.with_writer(|writer| writer.state.clamp_elapsed(now).map_err(broken))
    }

    /// What should come due by itself and is armed nowhere, in words; nothing in a sound tenant.
    pub fn unarmed(&self) -> Result<Vec<String>, Problem> {
        self.with_writer(|writer| writer.state.unarmed().map_err(broken))
    }

    /// After a batch: whether runs can walk on, and when the next timer is due.
    pub(super) fn note_runs(&self, writer: &Writer, moment: Moment) {
        self.0.ready.store(writer.has_ready(), Ordering::Release);
        self.note_effects(&writer.state);
        self.note_looks(writer);
        if let Some((at, _)) = writer.state.runs.timers.first() {
            self.due_in(at.since(moment.now));
        }
    }

    /// Serves every timer that is due by now.
    pub(super) fn run_due(&self, moment: Moment) {
        loop {
            let next = {
                let writer = self.hold_writer();
                writer.as_ref().and_then(|open| {
                    self.note_runs(open, moment);
                    open.state.runs.timers.first().map(|(at, _)| *at)
                })
            };
            match next {
                Some(at) if at <= moment.now => match self.ask_blocking(Command::Run(RunCommand::Due)) {
                    Ok(Answer::Admitted { more: true }) => {}
                    Ok(_) => return,
                    // A full disk fails nothing: what is due waits for space.
                    Err(_) => return self.flush_in(AGAIN),
                },
                Some(at) => return self.due_in(at.since(moment.now)),
                None => return,
            }
        }
    }
}

/// `<run>.<number>`, as [`Tenant::waits`] names them.
pub(super) fn parts_of(wait: &str) -> Result<(String, u32), Problem> {
    let parts = wait.rsplit_once('.').and_then(|(run, number)| Some((run.to_owned(), number.parse().ok()?)));
    parts.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no wait \"{wait}\""))
            .hint("`everwhen waits list` shows what is open")
    })
}

fn open_waits(run: &Run) -> impl Iterator<Item = &Wait> {
    run.walk.waits.iter().filter(|wait| wait.ended.is_none())
}

pub(crate) fn run_json(run: &Run) -> Value {
    let mut value = json!({
        "id": run.id, "automation": run.automation, "version": run.hash.get(..12), "status": run.status.as_str(),
        "trigger": run.trigger, "occurrence": run.occurrence, "started_at": run.started_at,
        "attempt": run.attempt + run.walk.tries, "depth": run.depth, "vars": run.walk.vars,
        "waits": open_waits(run).map(|wait| wait_json(run, wait)).collect::<Vec<_>>(),
    });
    if !run.walk.wait.is_null() {
        value["wait"] = run.walk.wait.clone();
    }
    if let Some(of) = &run.rerun_of {
        value["rerun_of"] = of.as_str().into();
    }
    value
}

/// A run that waits for its turn: it has an id, and no more.
pub(super) fn queued_json(state: &State, of: OccurrenceId, pending: &Pending) -> Option<Value> {
    let id = pending.run.as_ref()?;
    let kind = match (&pending.start["kind"], pending.batch) {
        (Value::String(kind), _) => kind.as_str(),
        (_, true) => "batch",
        _ => "event",
    };
    let position = pending.events.last().copied().unwrap_or(of.0);
    let at = occurrence::start_time(pending);
    let event = pending.events.last().and_then(|event| state.event(*event).ok()?);
    let topic = event.as_ref().map(|event| event.envelope.topic.as_str());
    let topic = topic.or(pending.start["event"]["topic"].as_str());
    let by = lifecycle::named(kind, topic, pending.start["invoked_by"].as_str());
    let mut queued = json!({
        "id": id, "automation": pending.automation, "version": pending.hash.get(..12), "status": "queued",
        "trigger": pending.trigger, "occurrence": {"kind": kind, "position": position, "at": at}, "attempt": 1,
        "depth": pending.start["depth"].as_u64().unwrap_or(0), "queued_at": pending.since, "position": of.0,
        "triggered_by": by,
    });
    let topic = |event: &Position| Some(json!({"topic": state.event(*event).ok()??.envelope.topic}));
    let events = json!({"events": pending.events.iter().filter_map(topic).collect::<Vec<_>>()});
    if let Some(act) = act_behind(kind, &pending.start["event"], &events) {
        queued["caused_by"] = act.into();
    }
    Some(queued)
}

/// The steps that a live run stands at, as its ended ones are told. What fails is told when it does, and so is not new here.
pub(super) fn waiting_steps(run: &Run) -> impl Iterator<Item = Value> {
    open_waits(run).filter_map(|wait| {
        let kind = match &wait.kind {
            WaitKind::Delay => "delay",
            WaitKind::Until { .. } => "wait_until",
            WaitKind::For { .. } => "wait_for",
            WaitKind::Ask { approve: true, .. } => "approve",
            WaitKind::Ask { .. } => "ask",
            WaitKind::Effect(request) => request.kind.as_str(),
            WaitKind::Call { .. } => "automation",
            WaitKind::Retry | WaitKind::Yield | WaitKind::Limit => return None,
        };
        let attempts = match &wait.kind {
            WaitKind::Effect(request) => request.attempt,
            _ => 1,
        };
        let (path, since) = (&wait.path, wait.since);
        let mut step =
            json!({"path": path, "kind": kind, "status": "waiting", "attempts": attempts, "since": since});
        wait.step.iter().for_each(|id| step["id"] = id.as_str().into());
        Some(step)
    })
}

fn wait_json(run: &Run, wait: &Wait) -> Value {
    let mut value = json!({
        "id": format!("{}.{}", run.id, wait.number), "kind": wait.kind.as_str(), "step": wait.path,
        "since": wait.since,
    });
    if let Some(due) = wait.due {
        value["due"] = json!(due);
    }
    match &wait.kind {
        WaitKind::Until { refs, .. } => value["refs"] = json!(refs),
        WaitKind::Effect(request) => {
            value["effect"] = json!({"kind": request.kind, "attempt": request.attempt, "key": request.key});
            if let Some(task) = request.task() {
                value["effect"]["task"] = task.into();
            }
            if request.is_quarantined() {
                value["quarantined"] = json!({"crashes": request.crashes});
            }
        }
        WaitKind::Ask { question, to, options, form, approve, default } => {
            value["question"] = question.clone();
            if !to.is_null() {
                value["to"] = to.clone();
            }
            if !options.is_empty() {
                value["options"] = json!(options);
            }
            if !form.is_empty() {
                value["form"] = json!(form);
            }
            if *approve {
                value["approve"] = true.into();
            }
            if !default.is_null() {
                value["default"] = default.clone();
            }
        }
        _ => {}
    }
    value
}

fn automation_json(state: &State, automation: &Automation, now: Timestamp) -> Value {
    let name = automation.name();
    let entry = state.catalog.get(model::definition::Kind::Automation, name);
    let mut value = json!({
        "name": name, "version": automation.version(), "enabled": state.is_enabled(automation),
        "paused": state.is_paused(name), "managed_by": entry.map(|entry| entry.managed_by.as_str()),
        "runs": state.runs_per_version(name).values().sum::<u64>(),
        "next": coming::instants(state, automation, now, 1),
    });
    if let Some(description) = &automation.definition.description {
        value["description"] = description.as_str().into();
    }
    if let Some(reason) = state.setting(name).and_then(|set| set.reason.as_ref()) {
        value["reason"] = reason.as_str().into();
    }
    value
}
