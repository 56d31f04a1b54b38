//! What follows a verdict: others make way, pending ones are settled, the run starts; and what starts when one has ended.

use std::sync::Arc;

use model::event::Event;
use model::record::{
    AutomationSet, OccurrenceId, OccurrenceMoved, Outcome, Reason, Routed, RunEnded, RunRecord, RunStarted,
    SettledOccurrence, Status, Verdict,
};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use super::lost::{Lost, TOLD};
use super::occurrence::{SYSTEM, start_time};
use crate::automation::{Automation, Trigger};
use crate::draft::Draft;
use crate::entropy::Entropy;
use crate::gate::{Gate, Passed, storm};
use crate::lifecycle;
use crate::state::Result;
use crate::state::run::Pending;

/// Records, and bytes of what they carry, after which a commit is long: as much as one run may write between two waits.
const LONG: usize = 10_000;
const LONG_BYTES: usize = 4 << 20;

/// Settles what the verdict on `taker` takes along.
pub fn follow(draft: &mut Draft<'_>, taker: OccurrenceId, passed: &Passed) -> Result<()> {
    for (of, outcome, reason) in &passed.take {
        let settled = SettledOccurrence {
            into: (*outcome == Outcome::Merged).then_some(taker),
            ..settled(draft, *of, *outcome, Some(reason), None)
        };
        draft.push_run(RunRecord::Settled(settled))?;
    }
    Ok(())
}

/// The breaker opened: it is paused, which is said once.
pub fn pause(draft: &mut Draft<'_>, automation: &Automation) -> Result<()> {
    if draft.state.is_paused(automation.name()) {
        return Ok(());
    }
    let set = AutomationSet {
        automation: automation.name().to_owned(),
        paused: Some(true),
        reason: Some("storm".to_owned()),
        ..AutomationSet::default()
    };
    draft.push_run(RunRecord::AutomationSet(set))?;
    storm::say(draft, automation, true)
}

/// What is pending with something that is being erased ends first: it would begin where another one ends.
pub fn settle_erased(draft: &mut Draft<'_>, lost: &Lost) -> Result<()> {
    let holds = |id: &OccurrenceId, pending: &Pending| {
        let mut events = pending.events.iter();
        events.any(|event| lost.events.contains(event)) || lost.is_quoted_by(id.0, &pending.start)
    };
    let pending = draft.state.pending().iter();
    let held: Vec<_> = pending.filter(|(id, pending)| holds(id, pending)).map(|(id, _)| *id).collect();
    held.into_iter().try_for_each(|id| settle(draft, id, Outcome::Skipped, Some("event.erased"), None))
}

/// Whatever an automation that is switched off has pending at a gate, places in its queue, too.
pub fn settle_armed(draft: &mut Draft<'_>, name: &str) -> Result<()> {
    let pending = draft.state.pending().iter();
    let armed: Vec<_> =
        pending.filter(|(_, pending)| pending.automation == name).map(|(id, _)| *id).collect();
    armed.into_iter().try_for_each(|id| settle(draft, id, Outcome::Skipped, Some("disabled"), None))
}

pub fn settle(
    draft: &mut Draft<'_>,
    of: OccurrenceId,
    outcome: Outcome,
    reason: Option<&str>,
    passed: Option<&Passed>,
) -> Result<()> {
    let settled = settled(draft, of, outcome, reason, passed);
    draft.push_run(RunRecord::Settled(settled)).map(drop)
}

fn settled(
    draft: &Draft<'_>,
    of: OccurrenceId,
    outcome: Outcome,
    reason: Option<&str>,
    passed: Option<&Passed>,
) -> SettledOccurrence {
    let automation = draft.state.pending().get(&of).map(|pending| pending.automation.clone());
    SettledOccurrence {
        of,
        automation: automation.unwrap_or_default(),
        outcome,
        reason: reason.map(str::to_owned),
        gate: passed.filter(|passed| passed.outcome != Outcome::Ran).map(|p| p.gate.as_str().to_owned()),
        into: None,
        set: passed.map(|passed| passed.set.clone()).unwrap_or_default(),
        values: passed.map_or(Value::Null, |passed| super::values(&passed.values)),
    }
}

/// Starts the run of an event that passed.
pub fn by_event(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &str,
    event: &Event,
    passed: &Passed,
) -> Result<Position> {
    let is_batch = !passed.batch.is_empty();
    let space = &event.envelope.space;
    let (input, other_spaces) = match is_batch {
        true => batch_input(draft, &passed.batch, space)?,
        false => (Value::Null, Vec::new()),
    };
    let kind = if is_batch { "batch" } else { "event" };
    let started = RunStarted {
        occurrence: Reason { kind: kind.to_owned(), position: event.position, at: event.time() },
        event: event.position,
        events: passed.batch.clone(),
        topic: Some(event.envelope.topic.clone()),
        space: space.clone(),
        other_spaces,
        depth: event.envelope.depth,
        input,
        ..promised(draft, automation, trigger, passed)
    };
    start(draft, started, &passed.cancel)
}

/// An event that is written nowhere.
pub struct View<'a> {
    pub event: &'a Event,
    pub value: &'a Value,
    /// All of which it may quote something, the run's own first.
    pub spaces: &'a [String],
}

/// Says what became of an event that is written nowhere, and starts its run.
pub fn by_view(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &Trigger,
    view: &View<'_>,
    mut passed: Passed,
) -> Result<()> {
    let View { event, value, spaces } = *view;
    let (space, depth) = (event.envelope.space.clone(), event.envelope.depth);
    let other_spaces = draft.state.seals.others(spaces.to_vec(), &space);
    if passed.outcome == Outcome::Pending {
        let start = json!({
            "kind": "event", "event": value, "input": null, "space": space, "depth": depth, "at": event.time(),
            "context": super::occurrence::context(trigger, event), "other_spaces": other_spaces,
        });
        passed.queue_or_skip(Some(start));
        promise(&mut passed, draft.now, draft.entropy);
    }
    let id = &trigger.definition.id;
    let verdict = super::verdict(automation, id, &passed);
    let run = event.envelope.run.as_deref();
    let position = judged(draft, 0, verdict, &Quoting { spaces: spaces.to_vec(), run })?;
    follow(draft, (position, 0), &passed)?;
    if passed.pause {
        pause(draft, automation)?;
    }
    if passed.outcome != Outcome::Ran {
        return Ok(());
    }
    let started = RunStarted {
        occurrence: Reason { kind: "event".to_owned(), position, at: event.time() },
        topic: Some(event.envelope.topic.clone()),
        space,
        other_spaces,
        depth,
        synthetic: Some(value.clone()),
        ..blank(draft, automation, id, &passed.stage)
    };
    start(draft, started, &passed.cancel).map(drop)
}

/// What a verdict quotes that comes from no event of its own commit.
pub struct Quoting<'a> {
    pub spaces: Vec<String>,
    /// The id of the run whose words it may repeat.
    pub run: Option<&'a str>,
}

/// Writes down the verdict on an occurrence that brings its event along. What it waits with stands in a record of its own: what
/// a gate remembers must stay readable, and this is sealed and erased as what it quotes is.
pub fn judged(
    draft: &mut Draft<'_>,
    event: Position,
    mut verdict: Verdict,
    quoting: &Quoting<'_>,
) -> Result<Position> {
    let Some(values) = verdict.values.as_object_mut() else { return routed(draft, event, verdict, quoting) };
    let start = values.remove("start");
    if let Some(run) = quoting.run.filter(|_| !values.is_empty()) {
        values.insert(TOLD.to_owned(), run.into());
    }
    if values.is_empty() {
        verdict.values = Value::Null;
    }
    let waiting =
        start.map(|start| Verdict { set: Vec::new(), values: json!({ "start": start }), ..verdict.clone() });
    let position = routed(draft, event, verdict, quoting)?;
    if let Some(verdict) = waiting {
        let moved = OccurrenceMoved { of: (position, 0), verdict };
        draft.push_within(RunRecord::OccurrenceMoved(Box::new(moved)), quoting.spaces.clone())?;
    }
    Ok(position)
}

fn routed(
    draft: &mut Draft<'_>,
    event: Position,
    verdict: Verdict,
    quoting: &Quoting<'_>,
) -> Result<Position> {
    let spaces = if verdict.remembers() { Vec::new() } else { quoting.spaces.clone() };
    draft.push_within(RunRecord::Routed(Routed { event, verdicts: vec![verdict] }), spaces)
}

/// The events of a batch, and whose they are besides the run's own.
fn batch_input(draft: &Draft<'_>, positions: &[Position], own: &str) -> Result<(Value, Vec<String>)> {
    let (mut events, mut spaces) = (Vec::new(), Vec::new());
    for position in positions {
        let Some(event) = draft.state.event(*position)? else { continue };
        spaces.push(event.envelope.space.clone());
        events.push(event.to_value());
    }
    Ok((json!({ "events": events }), draft.state.seals.others(spaces, own)))
}

/// Those who make way are cancelled, then it begins.
pub fn start(draft: &mut Draft<'_>, started: RunStarted, cancel: &[Position]) -> Result<Position> {
    for run in cancel {
        end_cancelled(draft, *run, "restart")?;
    }
    let automation = draft.state.version(&started.automation, &started.hash);
    let position = draft.push_run(RunRecord::Started(Box::new(started)))?;
    draft.state.daily.note(draft.now);
    lifecycle::started(draft, position)?;
    automation.map_or(Ok(()), |automation| storm::note(draft, &automation))?;
    Ok(position)
}

/// Ends a run that is to go no further. What it waits for is forgotten; nothing it did is undone.
pub fn end_cancelled(draft: &mut Draft<'_>, run: Position, why: &str) -> Result<()> {
    let Some(live) = draft.state.run(run)? else { return Ok(()) };
    let ended = RunEnded {
        run,
        status: Status::Cancelled,
        band: live.walk.band,
        code: Some(why.to_owned()),
        class: None,
        message: None,
        output: Value::Null,
        steps: Vec::new(),
        step_count: live.walk.steps.into(),
    };
    draft.push_run(RunRecord::Ended(ended.clone()))?;
    lifecycle::ended(draft, &live, &ended)?;
    crate::walk::after_end(draft, &live, Status::Cancelled, &Value::Null, Some(why))
}

/// One that takes a place in the queue is told the id that its run will have.
pub fn promise(passed: &mut Passed, now: Timestamp, entropy: &mut Entropy) {
    if passed.outcome == Outcome::Pending && passed.gate == Gate::Mode {
        passed.run = Some(run_id(now, entropy));
    }
}

fn run_id(now: Timestamp, entropy: &mut Entropy) -> String {
    format!("run_{}", model::id::ulid(now, entropy.bytes()))
}

/// As [`blank`], under the id that was promised.
fn promised(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    trigger: &str,
    passed: &Passed,
) -> RunStarted {
    let blank = blank(draft, automation, trigger, &passed.stage);
    RunStarted { id: passed.run.clone().unwrap_or(blank.id), ..blank }
}

/// A run of this automation that is the answer to nothing yet.
pub fn blank(draft: &mut Draft<'_>, automation: &Arc<Automation>, trigger: &str, stage: &str) -> RunStarted {
    let id = run_id(draft.now, draft.entropy);
    RunStarted {
        trigger: trigger.to_owned(),
        space: automation.definition.space.clone().unwrap_or_else(|| SYSTEM.to_owned()),
        key: stage.to_owned(),
        ..RunStarted::new(id, automation.name(), &automation.hash, draft.now)
    }
}

/// The next one that queued behind a run that has ended.
pub fn next_queued(draft: &mut Draft<'_>, automation: &str, key: &str) -> Result<()> {
    if draft.state.pending().is_empty() {
        return Ok(());
    }
    let stage = (automation.to_owned(), key.to_owned());
    // One that has expired meanwhile makes way for the one behind it. A pause holds them all.
    while draft.state.runs.stage.get(&stage).is_none_or(|live| live.is_empty())
        && !draft.state.is_paused(automation)
    {
        let mut queue = draft.state.pending_of(automation, key);
        let Some(next) = queue.find(|(_, pending)| pending.gate == "mode").map(|(id, _)| *id) else { break };
        drop(queue);
        super::wake_due::go_on(draft, next)?;
        if draft.state.pending().contains_key(&next) {
            break;
        }
    }
    Ok(())
}

/// A pause is lifted: those in queues whose turn it is go on, then what it kept.
pub fn resume(draft: &mut Draft<'_>, name: &str) -> Result<()> {
    let kept = |reason: &str| -> Vec<(OccurrenceId, String)> {
        let all = draft.state.pending().iter();
        let kept = all.filter(|(_, pending)| pending.automation == name && pending.reason == reason);
        kept.map(|(id, pending)| (*id, pending.key.clone())).collect()
    };
    let (paused, queued) = (kept("paused"), kept("queued"));
    for (_, key) in queued {
        let since = draft.next();
        next_queued(draft, name, &key)?;
        super::at_once::walk_since(draft, since)?;
    }
    for (id, _) in paused {
        let since = draft.next();
        super::wake_due::go_on(draft, id)?;
        // A run that takes no time is over when the next is asked for, as if there had been no pause.
        super::at_once::walk_since(draft, since)?;
    }
    Ok(())
}

/// Whether a commit holds so much that what can follow in the next should.
pub fn is_long(draft: &Draft<'_>) -> bool {
    draft.len() > LONG || draft.bytes() > LONG_BYTES
}

/// Starts what was pending and was brought by no event in the ledger: a person, a call, a schedule.
pub fn by_hand(
    draft: &mut Draft<'_>,
    automation: &Arc<Automation>,
    (of, pending): (OccurrenceId, &Pending),
    passed: &Passed,
) -> Result<Position> {
    let start = &pending.start;
    let kind = start["kind"].as_str().unwrap_or("manual").to_owned();
    let event = start["position"].as_u64().unwrap_or(0);
    let text = |name: &str| start[name].as_str().map(str::to_owned);
    let of = if kind == "event" && event > 0 { event } else { of.0 };
    let topic = start["event"]["topic"].as_str().filter(|_| kind == "event").map(str::to_owned);
    let started = RunStarted {
        topic,
        occurrence: Reason { kind, position: of, at: start_time(pending) },
        event,
        parent: text("parent"),
        invoked_by: text("invoked_by"),
        space: start["space"].as_str().unwrap_or(SYSTEM).to_owned(),
        other_spaces: texts(&start["other_spaces"]),
        depth: start["depth"].as_u64().unwrap_or(0) as u32,
        input: start["input"].clone(),
        synthetic: Some(start["event"].clone()),
        ..promised(draft, automation, &pending.trigger, passed)
    };
    self::start(draft, started, &passed.cancel)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Gives up a place in the queue. Its run begins and ends here, so that it is told, and can be retried.
pub fn cancel_queued(draft: &mut Draft<'_>, of: OccurrenceId, why: &str) -> Result<()> {
    let Some(pending) = draft.state.pending().get(&of).cloned() else { return Ok(()) };
    let Some(automation) = draft.state.version(&pending.automation, &pending.hash) else {
        return settle(draft, of, Outcome::Skipped, Some("disabled"), None);
    };
    let mut passed = Passed::queued(&pending.key);
    passed.run.clone_from(&pending.run);
    if pending.batch {
        passed.batch.clone_from(&pending.events);
    }
    let event = pending.events.last().map(|event| draft.state.event(*event)).transpose()?.flatten();
    settle(draft, of, Outcome::Ran, None, None)?;
    let run = match event {
        Some(event) => by_event(draft, &automation, &pending.trigger, &event, &passed)?,
        None => by_hand(draft, &automation, (of, &pending), &passed)?,
    };
    end_cancelled(draft, run, why)
}

/// The event of something that no record brought: a schedule, a call, a person.
pub fn synthetic(topic: &str, space: &str, actor: &str, payload: Value, now: Timestamp) -> Value {
    json!({
        "topic": topic, "type": topic, "space": space, "time": now, "recorded_at": now, "actor": actor,
        "depth": 0, "priority": 0, "band": "green", "payload": payload,
    })
}
