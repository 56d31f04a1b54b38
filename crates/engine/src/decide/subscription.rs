//! Decides about subscriptions: which there are, and that an event is dispatched to the automation of one.

use model::record::{Outcome, RunRecord, SubscriptionRecord};
use model::{Code, Position, Problem};
use serde_json::{Value, json};

use super::Refusal;
use crate::command::{Answer, SubscriptionCommand};
use crate::decide::publish::{Behind, engine_event_of};
use crate::draft::Draft;
use crate::route;
use crate::tenant::audit::is_act;
use crate::walk::{self, Invoked};

pub fn decide(draft: &mut Draft<'_>, command: SubscriptionCommand) -> Result<Answer, Refusal> {
    match command {
        SubscriptionCommand::Put { id, definition } => {
            push(draft, SubscriptionRecord::Put { id, definition })?;
        }
        SubscriptionCommand::Drop { id } => {
            if !draft.state.runs.subscriptions.all.contains_key(&id) {
                return Err(unknown(&id).into());
            }
            push(draft, SubscriptionRecord::Dropped { id })?;
        }
        SubscriptionCommand::Dispatch { id, automation, input, event, position } => {
            return dispatch(draft, &id, (&automation, input), event, position);
        }
        SubscriptionCommand::Stuck { id, event, payload } => {
            stuck(draft, id, event, &payload)?;
        }
    }
    Ok(Answer::Done { head: draft.next() })
}

pub fn unknown(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no subscription \"{id}\""))
        .hint("`everwhen subscriptions list` shows what there is")
}

fn push(draft: &mut Draft<'_>, record: SubscriptionRecord) -> Result<(), Refusal> {
    draft.push_run(RunRecord::Subscription(record))?;
    Ok(())
}

/// The run and the note that it is of this event are one commit: a crash never makes two of one dispatch.
fn dispatch(
    draft: &mut Draft<'_>,
    id: &str,
    (automation, input): (&str, Value),
    event: Value,
    position: Position,
) -> Result<Answer, Refusal> {
    let known = draft.state.catalog.automations.named(automation)?.clone();
    // What takes nothing at the moment has not run: the drain keeps its place. An automation that failed too often switched
    // itself off on this very event. Nothing is written, because every pass comes here again.
    let held = match (draft.state.is_paused(automation), draft.state.is_enabled(&known)) {
        (true, _) => Some("paused"),
        (false, false) => Some("disabled"),
        (false, true) => None,
    };
    if let Some(reason) = held.map(str::to_owned) {
        return Ok(Answer::Started { run: None, outcome: Outcome::Pending, reason: Some(reason) });
    }
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let invoked_by = format!("event:{}:{}", text("topic"), text("id"));
    let by = Invoked {
        name: automation,
        input,
        actor: invoked_by.clone(),
        depth: event["depth"].as_u64().unwrap_or(0) as u32 + 1,
        kind: "event",
        caller: None,
        space: Some(text("space")),
        other_spaces: Vec::new(),
        event: Some(event),
        trace: None,
        band: Default::default(),
        act: None,
        cause: position,
        parent: None,
        invoked_by: Some(invoked_by),
    };
    let (verdict, run) = walk::invoke(draft, by).map_err(super::run::stopped)?;
    let run = run.map(|run| draft.state.run(run)).transpose()?.flatten().map(|run| run.id);
    let run = run.or(verdict.run);
    // Its own conditions said no: there is nothing to do for it.
    let unwanted = verdict.outcome == Outcome::Skipped && verdict.reason.as_deref() == Some("conditions");
    if run.is_some() || unwanted {
        push(draft, SubscriptionRecord::Started { id: id.to_owned(), event: position, run: run.clone() })?;
    }
    Ok(Answer::Started { run, outcome: verdict.outcome, reason: verdict.reason })
}

/// Said once of each event that a subscription is stuck on.
fn stuck(draft: &mut Draft<'_>, id: String, event: Position, payload: &Value) -> Result<(), Refusal> {
    if draft.state.runs.subscriptions.all.get(&id).is_none_or(|known| known.stuck == event) {
        return Ok(());
    }
    push(draft, SubscriptionRecord::Stuck { id: id.clone(), event })?;
    let mut payload = payload.clone();
    payload["subscription"] = json!(id);
    let place = (draft.next(), draft.now);
    let act =
        payload["event_type"].as_str().filter(|topic| is_act(topic)).map(|topic| format!("event:{topic}"));
    let said = engine_event_of(
        "workflow.dispatch_failed",
        &payload,
        Behind { act, ..Behind::default() },
        place,
        draft.entropy,
    );
    draft.add(said)?;
    Ok(route::all(draft)?)
}
