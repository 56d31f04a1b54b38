//! What the end of a run means for its automation: one that would fail each time is switched off, a schedule that fails is
//! left alone for a while, a one-shot is over (contracts §14), and one whose budget is used up is paused.

use std::time::Duration;

use model::definition::TriggerKind;
use model::record::{AutomationSet, Backoff, RunMoved, RunRecord, Status};
use model::{Code, Position};
use serde_json::{Value, json};

use super::Failure;
use crate::automation::Automation;
use crate::decide::publish::engine_event_of;
use crate::draft::Draft;
use crate::lifecycle;
use crate::route::start;
use crate::run::{Block, Inside, Run, Wait, WaitKind, Walked};
use crate::state::Result;

/// Permanent errors in a row after which an automation is switched off.
const FAILURES_MAX: u64 = 3;
/// How long a schedule is left alone after so many failures in a row; the last holds for all further ones.
const LADDER: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(900),
    Duration::from_secs(3_600),
];
/// How often a one-shot that failed begins again, each time a rung later.
const TRIES_MAX: usize = 3;

/// Notes an end; `failure` is `None` when it was a good one.
pub(super) fn ended(draft: &mut Draft<'_>, run: &Run, failure: Option<&Failure>) -> Result<()> {
    let Some(automation) = draft.state.version(&run.automation, &run.hash) else { return Ok(()) };
    let current = draft.state.catalog.automations.get(&run.automation);
    if current.is_none_or(|current| current.hash != run.hash) || !draft.state.is_enabled(&automation) {
        return Ok(());
    }
    let name = automation.name();
    let before = draft.state.failures_of(name)?;
    let Some(failure) = failure else {
        let failures = (before > 0).then_some(0);
        let backoff = draft.state.backoff_of(&automation).map(|_| Backoff::default());
        note(draft, name, failures, backoff)?;
        return if is_over(draft, run, &automation) { switch_off(draft, name, "one_shot") } else { Ok(()) };
    };
    if failure.class == "budget" {
        return pause(draft, run, failure);
    }
    // What was erased under it says nothing about how the next one will fare.
    let counts = failure.class == "permanent" && failure.code != model::Code::EventErased.as_str();
    let in_a_row = before + u64::from(counts);
    let over = is_over(draft, run, &automation);
    if over || is_of_definition(&failure.code) || (in_a_row >= FAILURES_MAX && in_a_row > before) {
        say(draft, "automation.disabled", run, failure)?;
        return switch_off(draft, name, &failure.code);
    }
    let failures = (in_a_row > before).then_some(in_a_row);
    let backs_off = failure.class == "transient" && is_of_schedule(run, &automation);
    let backoff = backs_off.then(|| further(draft, &automation));
    note(draft, name, failures, backoff)
}

/// One more failure of a schedule: its next instants are left out for longer.
fn further(draft: &Draft<'_>, automation: &Automation) -> Backoff {
    let failures = draft.state.backoff_of(automation).map_or(0, |backoff| backoff.failures) + 1;
    let rung = LADDER[(failures as usize).min(LADDER.len()) - 1];
    Backoff { failures, until: Some(draft.now.plus(rung)) }
}

/// What it needs is used up: nothing more begins until somebody lifts the pause.
fn pause(draft: &mut Draft<'_>, run: &Run, failure: &Failure) -> Result<()> {
    if draft.state.is_paused(&run.automation) {
        return Ok(());
    }
    let set = AutomationSet {
        automation: run.automation.clone(),
        paused: Some(true),
        reason: Some("budget".to_owned()),
        ..AutomationSet::default()
    };
    draft.push_run(RunRecord::AutomationSet(set))?;
    say(draft, "automation.paused", run, failure)
}

/// A one-shot that failed begins again later, three times. True when it will.
pub(super) fn begins_again(
    draft: &mut Draft<'_>,
    run: &Run,
    failure: &Failure,
    steps: &[Value],
) -> Result<bool> {
    let automation = draft.state.version(&run.automation, &run.hash);
    let is_one_shot = automation.is_some_and(|automation| is_one_shot(run, &automation));
    let rungs = &LADDER[..TRIES_MAX];
    let Some(lasts) = rungs.get(run.walk.tries as usize).copied() else { return Ok(false) };
    if !is_one_shot || is_of_definition(&failure.code) || failure.class == "budget" {
        return Ok(false);
    }
    let number = run.walk.waited + 1;
    let wait = Wait {
        number,
        path: "actions[0]".to_owned(),
        step: None,
        kind: WaitKind::Retry,
        since: draft.now,
        due: Some(draft.now.plus(lasts)),
        lasts_ms: Some(lasts.as_millis() as u64),
        env: Default::default(),
        ended: None,
    };
    let walk = Walked {
        at: Block { inside: Some(Box::new(Inside::Retry(number))), ..Block::default() },
        waits: vec![wait],
        waited: number,
        tries: run.walk.tries + 1,
        ..Walked::default()
    };
    let state = serde_json::to_value(&walk).unwrap_or_default();
    let (run, status) = (run.position, Status::Waiting);
    draft.push_run(RunRecord::Moved(RunMoved { run, status, state, steps: steps.to_vec() }))?;
    Ok(true)
}

/// The run took too long: it ends here, whatever it waits for.
pub(crate) fn time_out(draft: &mut Draft<'_>, position: Position) -> Result<()> {
    let Some(run) = draft.state.run(position)? else { return Ok(()) };
    let failure = Failure {
        code: Code::RunTimeout.as_str().to_owned(),
        message: "the run took longer than its automation allows".to_owned(),
        class: "transient",
    };
    super::ended(draft, &run, Err(failure), (Vec::new(), &[]))?;
    crate::route::all(draft)
}

fn is_one_shot(run: &Run, automation: &Automation) -> bool {
    let trigger = automation.trigger(&run.trigger);
    trigger.is_some_and(|trigger| matches!(trigger.definition.on, TriggerKind::At(_)))
}

/// Time began it, and will do so again.
fn is_of_schedule(run: &Run, automation: &Automation) -> bool {
    let trigger = automation.trigger(&run.trigger);
    run.occurrence.kind == "schedule" && trigger.is_some_and(|trigger| trigger.definition.on.recurs())
}

/// A one-shot whose last instant has passed.
fn is_over(draft: &Draft<'_>, run: &Run, automation: &Automation) -> bool {
    let only = automation.triggers.iter().all(|trigger| matches!(trigger.definition.on, TriggerKind::At(_)));
    let mut calendars = automation.triggers.iter().filter_map(|trigger| trigger.calendar.as_ref());
    only && is_one_shot(run, automation) && calendars.all(|calendar| calendar.next_after(draft.now).is_none())
}

/// It says something that cannot be, whatever comes. Arguments are computed from what came.
fn is_of_definition(code: &str) -> bool {
    code.starts_with("definition.") && code != Code::DefinitionArguments.as_str()
        || matches!(code, "expr.syntax" | "expr.unknown_name")
        || matches!(code, "query.not_found" | "mutation.not_found" | "logic.not_found" | "concept.not_found")
}

fn note(draft: &mut Draft<'_>, name: &str, failures: Option<u64>, backoff: Option<Backoff>) -> Result<()> {
    if failures.is_none() && backoff.is_none() {
        return Ok(());
    }
    let set = AutomationSet { automation: name.to_owned(), failures, backoff, ..AutomationSet::default() };
    draft.push_run(RunRecord::AutomationSet(set)).map(drop)
}

fn switch_off(draft: &mut Draft<'_>, name: &str, reason: &str) -> Result<()> {
    let set = AutomationSet {
        automation: name.to_owned(),
        enabled: Some(false),
        reason: Some(reason.to_owned()),
        failures: Some(0),
        backoff: Some(Backoff::default()),
        ..AutomationSet::default()
    };
    draft.push_run(RunRecord::AutomationSet(set))?;
    start::settle_armed(draft, name)
}

/// It does not quote what happened in a sealed space or after an act of administration: the run itself says that.
fn say(draft: &mut Draft<'_>, topic: &str, run: &Run, failure: &Failure) -> Result<()> {
    let reason = if failure.class == "budget" { "budget" } else { failure.code.as_str() };
    let mut payload = json!({"automation": run.automation, "reason": reason, "run": run.id});
    if failure.class == "budget" {
        payload["code"] = failure.code.as_str().into();
    }
    let behind = lifecycle::behind(draft, run)?;
    if behind.act.is_none() && draft.state.seals.others(run.spaces(), "").is_empty() {
        payload["message"] = failure.message.as_str().into();
    }
    let place = (draft.next(), draft.now);
    let entry = engine_event_of(topic, &payload, behind, place, draft.entropy);
    draft.add(entry).map(drop)
}
