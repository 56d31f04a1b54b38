//! Schedules: which instants are due, what becomes of those that passed while nobody looked, when the next one is (rules R9).
//!
//! A schedule remembers `through`: instants at or before it have had their outcome and never fire again. A new or changed
//! trigger begins where it was deployed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lang::cron::{Calendar, jitter};
use model::definition::{self, CatchUp, ModeKind, TriggerKind};
use model::record::{GateSet, Outcome, Reason, Routed, RunRecord, RunStarted, SchedulePassed, Verdict};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use crate::absent;
use crate::automation::{Automation, Automations, Trigger};
use crate::draft::Draft;
use crate::gate::{Gate, Memory, Occurrence, Passed};
use crate::route::{self, occurrence, start};
use crate::state::run::Timer;
use crate::state::{Result, State};

/// Instants that one catch-up may run.
const ALL_MAX: u32 = 1_000;
/// So soon after its time an instant is on time: a tick may be late, a process that was down is not so short.
const ON_TIME: Duration = Duration::from_secs(60);
/// Less than this is no step of the clock.
const STEP: Duration = Duration::from_secs(1);

/// Arms every schedule that is not armed, and forgets those of triggers that are gone.
pub fn arm(state: &mut State) -> Result<()> {
    let mut armed = Vec::new();
    for automation in state.catalog.automations.all() {
        for trigger in automation.triggers.iter().filter(|trigger| trigger.is_timed()) {
            // One that was never deployed is armed when it is.
            let Some(through) = state.fired_through(automation.name(), &trigger.definition.id) else {
                continue;
            };
            let next = next(state, automation, trigger, through)?;
            armed.extend(next.map(|at| (at, timer(automation, trigger))));
        }
    }
    state.runs.disarm_schedules();
    armed.into_iter().for_each(|(at, timer)| state.runs.arm_schedule(timer, Some(at)));
    Ok(())
}

/// Triggers that begin now: those that are new or changed, and silences that would begin later than now.
pub fn beginning(state: &State, before: &Automations, now: Timestamp) -> Vec<SchedulePassed> {
    let mut new = Vec::new();
    for automation in state.catalog.automations.all() {
        let was = before.get(automation.name());
        for trigger in automation.triggers.iter().filter(|trigger| trigger.is_timed()) {
            let id = &trigger.definition.id;
            let through = state.fired_through(automation.name(), id);
            let unchanged = was
                .and_then(|was| was.trigger(id))
                .is_some_and(|was| was.definition.on == trigger.definition.on);
            let silent = trigger.calendar.is_none();
            if !unchanged || through.is_none_or(|through| silent && through > now) {
                let (automation, trigger) = (automation.name().to_owned(), id.clone());
                new.push(SchedulePassed { automation, trigger, through: now });
            }
        }
    }
    new
}

/// Schedules whose last instant lies ahead of now: none of them fires before that (rules R9). In words, with what they are.
pub fn ahead(state: &State, now: Timestamp) -> Vec<(String, SchedulePassed)> {
    let mut found = Vec::new();
    for automation in state.catalog.automations.all() {
        for trigger in automation.triggers.iter().filter(|trigger| trigger.calendar.is_some()) {
            let (name, id) = (automation.name().to_owned(), trigger.definition.id.clone());
            let through = state.fired_through(&name, &id).filter(|through| *through > now.plus(STEP));
            let said = |through| {
                format!("schedule \"{id}\" of \"{name}\" has fired through {through}, which is ahead")
            };
            found.extend(through.map(|through| {
                (
                    said(through),
                    SchedulePassed { automation: name.clone(), trigger: id.clone(), through: now },
                )
            }));
        }
    }
    found
}

/// Schedules that have a next instant and no timer for it.
pub fn unarmed(state: &State, armed: &BTreeSet<&Timer>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for automation in state.catalog.automations.all() {
        for trigger in automation.triggers.iter().filter(|trigger| trigger.is_timed()) {
            let (name, id) = (automation.name(), &trigger.definition.id);
            let through = state.fired_through(name, id);
            let next = through.map(|through| next(state, automation, trigger, through)).transpose()?;
            // `None`: nobody has deployed it. An end of all its instants needs no timer.
            if !matches!(next, Some(None)) && !armed.contains(&timer(automation, trigger)) {
                found.push(format!("schedule \"{id}\" of \"{name}\" is armed nowhere"));
            }
        }
    }
    Ok(found)
}

pub fn timer(automation: &Automation, trigger: &Trigger) -> Timer {
    Timer::Schedule { automation: automation.name().to_owned(), trigger: trigger.definition.id.clone() }
}

fn through(state: &State, automation: &Automation, trigger: &Trigger, now: Timestamp) -> Timestamp {
    state.fired_through(automation.name(), &trigger.definition.id).unwrap_or(now)
}

/// The next instant after `through`, with its jitter; or the end of the silence that began there.
fn next(
    state: &State,
    automation: &Automation,
    trigger: &Trigger,
    through: Timestamp,
) -> Result<Option<Timestamp>> {
    let Some(calendar) = &trigger.calendar else { return absent::due(state, automation, trigger, through) };
    let at = calendar.next_after(through);
    Ok(at.map(|at| fires_at(trigger, at)))
}

fn spread(on: &TriggerKind) -> std::time::Duration {
    match on {
        TriggerKind::Cron { jitter, .. } => jitter.unwrap_or_default(),
        TriggerKind::Every(every) => every.jitter.unwrap_or_default(),
        _ => std::time::Duration::ZERO,
    }
}

fn catch_up(trigger: &definition::Trigger) -> CatchUp {
    match &trigger.on {
        TriggerKind::Cron { catch_up, .. } => catch_up.clone(),
        TriggerKind::Every(every) => every.catch_up.clone(),
        _ => trigger.catch_up.clone().unwrap_or_default(),
    }
}

/// Gives every instant of a schedule that is due by now its outcome.
pub fn fire(draft: &mut Draft<'_>, name: &str, trigger_id: &str) -> Result<()> {
    let Some(automation) = draft.state.catalog.automations.get(name).cloned() else { return Ok(()) };
    let Some(trigger) = automation.trigger(trigger_id) else { return Ok(()) };
    let Some(calendar) = &trigger.calendar else { return absent::fire(draft, &automation, trigger) };
    let from = through(draft.state, &automation, trigger, draft.now);
    let due = due(calendar, trigger, from, draft.now);
    let Some(last) = due.last else { return rearm(draft, &automation, trigger, from) };
    let mut verdicts = Vec::new();
    if !draft.state.is_enabled(&automation) {
        let span = Span { after: from, through: last, count: due.count };
        verdicts.push(many((&automation, trigger, calendar), Outcome::Skipped, "disabled", &span));
        return finish(draft, &automation, trigger, verdicts, last, &[]);
    }
    let mut runs: Vec<(Timestamp, bool)> =
        held_up(calendar, trigger, &due, draft.now).map(|at| (at, false)).collect();
    let rest = due.after(calendar, runs.last().map(|(at, _)| *at));
    let (chosen, missed) = chosen((calendar, trigger), &rest, draft.now);
    runs.extend(chosen);
    for (reason, span) in missed.into_iter().filter(|(_, span)| span.count > 0) {
        verdicts.push(many((&automation, trigger, calendar), Outcome::Missed, reason, &span));
    }
    finish(draft, &automation, trigger, verdicts, last, &runs)
}

/// Instants after `first` and at or before `last`.
struct Due {
    first: Timestamp,
    last: Option<Timestamp>,
    count: u64,
}

impl Due {
    /// Those after one that is settled.
    fn after(&self, calendar: &Calendar, settled: Option<Timestamp>) -> Due {
        let Some(settled) = settled else { return Due { ..*self } };
        let last = self.last.filter(|last| *last > settled);
        Due { first: settled, last, count: last.map_or(0, |last| calendar.count(settled, last)) }
    }
}

/// When an instant fires.
fn fires_at(trigger: &Trigger, at: Timestamp) -> Timestamp {
    at.plus(jitter(&trigger.definition.id, at, spread(&trigger.definition.on)))
}

/// Instants fire in their order: one whose jitter has not passed is not due, and none after it.
fn due(calendar: &Calendar, trigger: &Trigger, from: Timestamp, now: Timestamp) -> Due {
    let mut last = calendar.latest(from, now.minus(spread(&trigger.definition.on)));
    while let Some(next) =
        calendar.next_after(last.unwrap_or(from)).filter(|at| fires_at(trigger, *at) <= now)
    {
        last = Some(next);
    }
    let count = last.map_or(0, |last| calendar.count(from, last));
    Due { first: from, last, count }
}

/// Due instants of a schedule with jitter whose first is on time: they waited for it, and are as much on time.
fn held_up(
    calendar: &Calendar,
    trigger: &Trigger,
    due: &Due,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let on_time = |first: &Timestamp| fires_at(trigger, *first).plus(ON_TIME) > now;
    let jittered = !spread(&trigger.definition.on).is_zero();
    let first = calendar.next_after(due.first).filter(|first| jittered && on_time(first));
    let last = due.last;
    let all = std::iter::successors(first, |at| calendar.next_after(*at));
    all.take_while(move |at| Some(*at) <= last).take(ALL_MAX as usize)
}

/// Instants with one fate: after the one, up to the other.
struct Span {
    after: Timestamp,
    through: Timestamp,
    count: u64,
}

type Missed = Vec<(&'static str, Span)>;

/// Which instants run, each with whether it is a late one, and which do not, by the reason.
fn chosen(
    (calendar, trigger): (&Calendar, &Trigger),
    due: &Due,
    now: Timestamp,
) -> (Vec<(Timestamp, bool)>, Missed) {
    let Some(last) = due.last else { return (Vec::new(), Vec::new()) };
    let on_time = fires_at(trigger, last).plus(ON_TIME) > now;
    let all = Span { after: due.first, through: last, count: due.count };
    let all_but_last = || Span { after: due.first, through: just_before(last), count: due.count - 1 };
    match &catch_up(&trigger.definition) {
        CatchUp::None if on_time => (vec![(last, false)], vec![("catch_up_none", all_but_last())]),
        CatchUp::None => (Vec::new(), vec![("catch_up_none", all)]),
        CatchUp::Latest => (vec![(last, !on_time || due.count > 1)], vec![("not_latest", all_but_last())]),
        CatchUp::All { max, within } => {
            let from = within.map_or(due.first, |within| now.minus(within).max(due.first));
            let reached = calendar.count(from, last);
            let mut runs = Vec::new();
            let mut next = Some(last).filter(|_| reached > 0);
            while let Some(at) = next.filter(|_| runs.len() < (*max).min(ALL_MAX) as usize) {
                runs.push((at, at != last || !on_time));
                next = calendar.latest(from, just_before(at));
            }
            runs.reverse();
            let older = Span { after: due.first, through: from, count: due.count - reached };
            let through = runs.first().map_or(last, |(first, _)| just_before(*first));
            let over = Span { after: from, through, count: reached - runs.len() as u64 };
            (runs, vec![("older_than_window", older), ("over_max", over)])
        }
    }
}

fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(at.nanos() - 1)
}

/// One record for many instants with one fate: the first of them, the last, and how many.
fn many(
    (automation, trigger, calendar): (&Automation, &Trigger, &Calendar),
    outcome: Outcome,
    reason: &str,
    span: &Span,
) -> Verdict {
    let first = calendar.next_after(span.after).unwrap_or(span.through);
    let last = calendar.latest(span.after, span.through).unwrap_or(first);
    Verdict {
        automation: automation.name().to_owned(),
        trigger: trigger.definition.id.clone(),
        version: automation.version().to_owned(),
        outcome,
        reason: Some(reason.to_owned()),
        gate: Some(if reason == "disabled" { "enabled" } else { "match" }.to_owned()),
        until: None,
        run: None,
        events: Vec::new(),
        key: None,
        set: Vec::new(),
        values: json!({"from": first, "to": last, "count": span.count}),
    }
}

fn finish(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &Trigger,
    verdicts: Vec<Verdict>,
    last: Timestamp,
    runs: &[(Timestamp, bool)],
) -> Result<()> {
    if !verdicts.is_empty() {
        draft.push_run(RunRecord::Routed(Routed { event: 0, verdicts }))?;
    }
    let all = matches!(catch_up(&trigger.definition), CatchUp::All { .. });
    for (index, (at, late)) in runs.iter().enumerate() {
        let event = event(automation, trigger, *at);
        // A restart is for the first of them only: none of the others is to be cut short by the next.
        let begins = index == 0 && automation.definition.mode.kind == ModeKind::Restart;
        let in_turn = (all && *late || runs.len() > 1) && !begins;
        let instant = Instant { at: *at, late: *late, in_turn, event, set: Vec::new() };
        meet(draft, automation, trigger, instant)?;
    }
    let passed = SchedulePassed {
        automation: automation.name().to_owned(),
        trigger: trigger.definition.id.clone(),
        through: last,
    };
    draft.push_run(RunRecord::SchedulePassed(passed))?;
    rearm(draft, automation, trigger, last)
}

pub fn rearm(
    draft: &mut Draft<'_>,
    automation: &Automation,
    trigger: &Trigger,
    through: Timestamp,
) -> Result<()> {
    let timer = timer(automation, trigger);
    let next = next(draft.state, automation, trigger, through)?;
    draft.state.runs.arm_schedule(timer, next);
    Ok(())
}

/// An instant at which time pulls a trigger.
pub struct Instant {
    pub at: Timestamp,
    pub late: bool,
    /// It queues where it would be turned away.
    pub in_turn: bool,
    /// What its run reads as `event`.
    pub event: Value,
    /// What is remembered with its verdict, whatever that is.
    pub set: Vec<GateSet>,
}

/// What a run reads as `event` that a due instant began.
pub fn event(automation: &Automation, trigger: &Trigger, at: Timestamp) -> Value {
    let (name, id) = (automation.name(), &trigger.definition.id);
    let payload = json!({"scheduledAt": at, "automation": name, "trigger": id, "triggeredBy": "schedule"});
    let space = automation.definition.space.clone().unwrap_or_else(|| occurrence::SYSTEM.to_owned());
    let actor = format!("system:automation:{}", automation.name());
    start::synthetic(&format!("automation.schedule.{}", automation.name()), &space, &actor, payload, at)
}

/// One due instant asks the gates as an event would.
pub fn meet(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &Trigger,
    instant: Instant,
) -> Result<Position> {
    let Instant { at, late, in_turn, event, set } = instant;
    let space = automation.definition.space.clone().unwrap_or_else(|| occurrence::SYSTEM.to_owned());
    let of = Occurrence {
        automation,
        trigger: Some(trigger),
        context: automation.name().to_owned(),
        event: None,
        position: 0,
        time: at,
        depth: 0,
        env: occurrence::env(
            automation,
            Some(trigger),
            Arc::new(event.clone()),
            Value::Null,
            draft.now,
            space.clone(),
        ),
        in_turn,
    };
    let memory = Memory::of(draft.state);
    let mut passed = match draft.state.is_enabled(automation) {
        true => route::judge(&memory, &of, Gate::Throttle)?,
        false => Passed::stopped_at(Gate::Window, Outcome::Skipped, "disabled"),
    };
    passed.set.extend(set);
    if passed.outcome == Outcome::Pending {
        let start = json!({
            "kind": "schedule", "event": event, "input": null, "space": space, "depth": 0, "at": at, "late": late,
            "in_turn": in_turn, "context": of.context,
        });
        passed.queue_or_skip(Some(start));
        start::promise(&mut passed, draft.now, draft.entropy);
    }
    if passed.outcome == Outcome::Ran && late {
        passed.outcome = Outcome::CaughtUp;
    }
    passed.values.insert("at".to_owned(), json!(at));
    let verdict = route::verdict(automation, &trigger.definition.id, &passed);
    let position = draft.push_run(RunRecord::Routed(Routed { event: 0, verdicts: vec![verdict] }))?;
    if passed.pause {
        start::pause(draft, automation)?;
    }
    if !passed.starts() {
        return Ok(position);
    }
    let started = RunStarted {
        occurrence: Reason { kind: "schedule".to_owned(), position, at },
        space,
        synthetic: Some(event),
        ..start::blank(draft, automation, &trigger.definition.id, &passed.stage)
    };
    start::start(draft, started, &passed.cancel)
}
