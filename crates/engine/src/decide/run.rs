//! Decides what is asked about runs: starts by hand, cancels, answers, toggles, and what is due by now.
//!
//! These fold as they go ([`Draft`]); each refuses before its first record, or not at all.

mod again;
mod answer;
mod logic;
mod refused;

use std::sync::Arc;

use model::event::Event;
use model::record::{AutomationSet, Backoff, How, Outcome, RunMoved, RunRecord};
use model::{Code, Position, Problem, Timestamp};
use serde_json::Value;

use super::{Refusal, effect, subscription};
use crate::absent;
use crate::automation::Automations;
use crate::command::{Answer, RunCommand, Toggle};
use crate::draft::Draft;
use crate::faults::planted;
use crate::route::{self, at_once, start, wake_due};
use crate::run::{Wait, WaitKind};
use crate::schedule;
use crate::state::run::{DRAINING, Timer};
use crate::walk::{self, Invoked, Stopped};

/// Timers that one commit serves; the rest follow in the next.
const DUE_MAX: usize = 256;

/// A start that a person asks for, who may give the event, too.
fn by_hand(
    name: &str,
    input: Value,
    actor: String,
    event: Option<Value>,
    trace: Option<String>,
) -> Invoked<'_> {
    Invoked {
        name,
        input,
        actor,
        depth: 0,
        kind: "manual",
        caller: None,
        space: event.as_ref().and_then(|event| event["space"].as_str().map(str::to_owned)),
        other_spaces: Vec::new(),
        event,
        trace,
        band: Default::default(),
        act: None,
        cause: 0,
        parent: None,
        invoked_by: None,
    }
}

pub fn decide(draft: &mut Draft<'_>, command: RunCommand) -> Result<Answer, Refusal> {
    match command {
        RunCommand::Start { automation, input, event, actor, trace } => {
            draft.state.catalog.automations.named(&automation)?;
            let by = by_hand(&automation, input, actor, event, trace);
            let (verdict, run) = walk::invoke(draft, by).map_err(stopped)?;
            let id = run.map(|run| draft.state.run(run)).transpose()?.flatten().map(|run| run.id);
            // One that queued has its id before it has begun.
            let id = id.or(verdict.run);
            Ok(Answer::Started { run: id, outcome: verdict.outcome, reason: verdict.reason })
        }
        RunCommand::Again(again) => again::decide(draft, *again),
        RunCommand::Refused(asked) => refused::decide(draft, *asked),
        RunCommand::Cancel { run, why } => {
            match draft.state.queued(&run).map(|(id, _)| *id) {
                Some(queued) => start::cancel_queued(draft, queued, &why)?,
                None => start::end_cancelled(draft, known(draft, &run)?, &why)?,
            }
            Ok(done(draft))
        }
        RunCommand::Lose(lost) => {
            start::settle_erased(draft, &lost)?;
            for run in &lost.runs {
                walk::lose(draft, *run)?;
            }
            Ok(done(draft))
        }
        RunCommand::Answer { run, wait, value, actor } => answer::answer(draft, &run, wait, value, &actor),
        RunCommand::EffectDone { run, wait, how, value } => {
            let in_time = effect::done(draft, (run, wait), how, value)?;
            Ok(Answer::Output(in_time.into()))
        }
        RunCommand::Subscription(command) => subscription::decide(draft, command),
        RunCommand::HandOut { room } => effect::hand_out(draft, room),
        RunCommand::HandTasks { of } => {
            effect::hand_tasks(draft, of)?;
            Ok(done(draft))
        }
        RunCommand::Late { run, wait, how, value } => {
            effect::late(draft, (run, wait), how, value)?;
            Ok(done(draft))
        }
        RunCommand::Unknown => {
            effect::unknown(draft)?;
            Ok(done(draft))
        }
        RunCommand::Redrive { run, wait } => {
            let position = known(draft, &run)?;
            effect::redrive(draft, (position, wait))?;
            Ok(done(draft))
        }
        RunCommand::Logic { name, args, caller, space } => logic::decide(draft, &name, args, caller, space),
        RunCommand::Set { automation, toggle } => set(draft, &automation, toggle),
        RunCommand::Looked { run, wait, through, found } => looked(draft, (run, wait), through, found),
        RunCommand::Due => due(draft),
        RunCommand::Deployed => {
            let before = draft.state.catalog.clone();
            deployed(draft, &before.automations, &[], false)?;
            Ok(done(draft))
        }
        RunCommand::Lower => {
            for (_, passed) in schedule::ahead(draft.state, draft.now) {
                draft.push_run(RunRecord::SchedulePassed(passed))?;
            }
            schedule::arm(draft.state)?;
            Ok(done(draft))
        }
    }
}

fn done(draft: &Draft<'_>) -> Answer {
    Answer::Done { head: draft.next() }
}

pub(super) fn stopped(stopped: Stopped) -> Refusal {
    match stopped {
        Stopped::Fault(fault) => Refusal::Fault(fault),
        Stopped::Failure(failure) => Problem::new(Code::NotFound, failure.message)
            .hint("`everwhen automations list` shows what is declared")
            .into(),
    }
}

fn known(draft: &Draft<'_>, run: &str) -> Result<Position, Problem> {
    draft.state.runs.position_of(run).ok_or_else(|| not_in_progress(run))
}

pub(crate) fn not_in_progress(run: &str) -> Problem {
    Problem::new(Code::RunNotFound, format!("no run \"{run}\" is in progress"))
        .hint("`everwhen runs list` shows runs; one that has ended cannot be changed")
}

fn set(draft: &mut Draft<'_>, name: &str, toggle: Toggle) -> Result<Answer, Refusal> {
    draft.state.catalog.automations.named(name)?;
    let (enabled, paused) = match toggle {
        Toggle::Enable => (Some(true), None),
        Toggle::Disable | Toggle::Drain => (Some(false), None),
        Toggle::Pause => (None, Some(true)),
        Toggle::Resume => (None, Some(false)),
    };
    // Whoever switches it on again gives it another three tries.
    let failures = (toggle == Toggle::Enable).then_some(0);
    let backoff = failures.map(|_| Backoff::default());
    let reason = (toggle == Toggle::Drain).then(|| DRAINING.to_owned());
    let set = AutomationSet { automation: name.to_owned(), enabled, paused, reason, failures, backoff };
    draft.push_run(RunRecord::AutomationSet(set))?;
    match toggle {
        Toggle::Resume => start::resume(draft, name)?,
        Toggle::Disable => start::settle_armed(draft, name)?,
        Toggle::Enable => absent::begin_all(draft, name)?,
        Toggle::Pause | Toggle::Drain => {}
    }
    Ok(done(draft))
}

/// What came before is known up to `through`. What came since is tested here, and the wait armed in this commit.
fn looked(
    draft: &mut Draft<'_>,
    id: crate::run::WaitId,
    through: Position,
    found: Option<Arc<Event>>,
) -> Result<Answer, Refusal> {
    let Some(mut run) = draft.state.run(id.0)? else { return Ok(done(draft)) };
    let open = run.wait(id.1).filter(|wait| wait.ended.is_none());
    let Some(wait) = open.filter(|wait| matches!(wait.kind, WaitKind::For { looking: true, .. })) else {
        return Ok(done(draft));
    };
    let found = match found {
        Some(event) => Some(event),
        None => walk::earlier(draft, &run, wait, through)?,
    };
    match found {
        Some(event) => route::end_wait(draft, id, How::Met, Some(event.position), event.to_value())?,
        // It only wanted to look.
        None if wait.lasts_ms == Some(0) => route::end_wait(draft, id, How::Timeout, None, Value::Null)?,
        None => {
            if let Some(Wait { kind: WaitKind::For { looking, .. }, .. }) = run.wait_mut(id.1) {
                *looking = false;
            }
            let state = serde_json::to_value(&run.walk).unwrap_or_default();
            let moved = RunMoved { run: id.0, status: run.status, state, steps: Vec::new() };
            draft.push_run(RunRecord::Moved(moved))?;
        }
    }
    Ok(done(draft))
}

/// Serves what is due by now, oldest first. What one timer leads to is over before the next is looked at, as far as it waits for
/// nothing: which of two comes first must not say whether the other finds something in its way. What is too much for one
/// commit walks on after it, and the rest of the timers follow then.
fn due(draft: &mut Draft<'_>) -> Result<Answer, Refusal> {
    for _ in 0..DUE_MAX {
        let Some((at, timer)) = next_due(draft) else { break };
        let since = draft.next();
        fire(draft, &timer)?;
        // Whatever it came to, this timer is over; one that was armed anew is a later one.
        draft.state.runs.timers.remove(&(at, timer));
        if next_due(draft).is_some() {
            route::all(draft)?;
            at_once::walk_since(draft, since)?;
            if !at_once::is_over(draft, since) {
                break;
            }
        }
    }
    let more = next_due(draft).is_some();
    Ok(Answer::Admitted { more })
}

fn next_due(draft: &Draft<'_>) -> Option<(Timestamp, Timer)> {
    draft.state.runs.timers.first().filter(|(at, _)| *at <= draft.now).cloned()
}

fn fire(draft: &mut Draft<'_>, timer: &Timer) -> Result<(), Refusal> {
    match timer {
        // One that was held to its length may be left over from a wait that ended otherwise.
        Timer::Wait(id) if !planted("fire_by_index_id") && !is_waiting(draft, *id)? => {}
        Timer::Wait(id) => route::end_wait(draft, *id, How::Timeout, None, Value::Null)?,
        Timer::Recheck(id) => route::recheck_wait(draft, *id)?,
        Timer::Run(run) => walk::time_out(draft, *run)?,
        Timer::Pending(id) => wake_due::go_on(draft, *id)?,
        Timer::Schedule { automation, trigger } => schedule::fire(draft, automation, trigger)?,
    }
    Ok(())
}

fn is_waiting(draft: &Draft<'_>, (run, wait): crate::run::WaitId) -> Result<bool, Refusal> {
    let run = draft.state.run(run)?;
    Ok(run.is_some_and(|run| run.wait(wait).is_some_and(|wait| wait.ended.is_none())))
}

/// Definitions changed from what they were `before`: schedules are armed anew, and what belonged to automations that are gone
/// ends; with `finish_runs`, their runs do so by themselves.
pub fn deployed(
    draft: &mut Draft<'_>,
    before: &Automations,
    removed: &[String],
    finish_runs: bool,
) -> Result<(), Refusal> {
    // Before the first event that starts a run: folding it keeps the event for the run.
    if !draft.state.catalog.automations.is_empty() {
        draft.raise_format()?;
    }
    let pending: Vec<_> = draft.state.pending().iter().map(|(id, p)| (*id, p.automation.clone())).collect();
    for (id, name) in pending {
        if removed.contains(&name) {
            start::settle(draft, id, Outcome::Skipped, Some("disabled"), None)?;
        }
    }
    let live: Vec<_> = draft.state.runs.live.iter().map(|(at, run)| (*at, run.automation.clone())).collect();
    for (run, name) in live {
        if removed.contains(&name) && !finish_runs {
            start::end_cancelled(draft, run, "automation_deleted")?;
        }
    }
    for passed in schedule::beginning(draft.state, before, draft.now) {
        draft.push_run(RunRecord::SchedulePassed(passed))?;
    }
    Ok(schedule::arm(draft.state)?)
}
