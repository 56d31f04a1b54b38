//! Lifecycle events: what happens to a run, told as an event. A view of its records, written nowhere itself.
//!
//! Triggers that name such a topic (`automation.failed`, `automation.#`) are pulled in the commit of the record; whoever
//! follows at that moment hears it. A run that one of them started pulls nothing in turn: reactions to reactions never end.

use std::sync::Arc;

use model::event::{Content, Envelope, Event, Subject};
use model::record::{RunEnded, Status};
use model::{Position, Timestamp};
use serde_json::{Value, json};

use crate::draft::Draft;
use crate::route;
use crate::run::Run;
use crate::state::Result;

const STARTED: &str = "automation.started";
const STEP_STARTED: &str = "automation.step.started";
const STEP_COMPLETED: &str = "automation.step.completed";
const STEP_FAILED: &str = "automation.step.failed";

/// How many causes such an event counts for. One run tells of several things: reactions that lead to runs which are told of
/// again would multiply until the limit of depth stops them.
const LEAP: u32 = 8;

fn ending(status: Status) -> &'static str {
    match status {
        Status::Completed => "automation.completed",
        Status::Cancelled => "automation.cancelled",
        _ => "automation.failed",
    }
}

/// Every topic that such a view may have.
pub const TOPICS: [&str; 7] = [
    STARTED,
    "automation.completed",
    "automation.failed",
    "automation.cancelled",
    STEP_STARTED,
    STEP_COMPLETED,
    STEP_FAILED,
];

/// Whether an event with this topic is such a view.
pub fn is_one(topic: &str) -> bool {
    TOPICS.contains(&topic)
}

/// Most of the time nobody wants any of this.
pub fn is_wanted(draft: &Draft<'_>) -> bool {
    draft.heard || draft.state.catalog.automations.hear_runs()
}

/// A run has begun; its record is the last of the draft.
pub fn started(draft: &mut Draft<'_>, position: Position) -> Result<()> {
    if !wanted(draft, STARTED) {
        return Ok(());
    }
    let Some(run) = draft.state.run(position)? else { return Ok(()) };
    let payload = told(&run, json!({ "triggeredBy": triggered_by(draft, &run)? }));
    tell(draft, &run, STARTED, payload)
}

/// A run has ended; its record is the last of the draft.
pub fn ended(draft: &mut Draft<'_>, run: &Run, ended: &RunEnded) -> Result<()> {
    let topic = ending(ended.status);
    if !wanted(draft, topic) {
        return Ok(());
    }
    let mut more = json!({
        "status": ended.status.as_str(), "duration": seconds(run.started_at, draft.now), "stepCount": run.walk.steps,
    });
    if let Some(code) = &ended.code {
        more["error"] = json!({"code": code, "message": ended.message, "class": ended.class});
    }
    if !ended.output.is_null() {
        more["output"] = ended.output.clone();
    }
    tell(draft, run, topic, told(run, more))
}

/// What the steps of a stretch came to; those that had waited before it have been told to have started.
pub fn steps(draft: &mut Draft<'_>, run: &Run, steps: &[Value], waited: &[String]) -> Result<()> {
    let begun = |path: &Value| waited.iter().any(|waited| path == waited.as_str());
    for note in steps {
        let end = match note["status"].as_str() {
            Some("completed") => STEP_COMPLETED,
            Some("failed") => STEP_FAILED,
            _ => continue,
        };
        if !begun(&note["path"]) {
            step(draft, run, STEP_STARTED, note)?;
        }
        step(draft, run, end, note)?;
    }
    if !wanted(draft, STEP_STARTED) {
        return Ok(());
    }
    let waits = run.walk.waits.iter().filter(|wait| wait.ended.is_none() && wait.since == draft.now);
    let waiting: Vec<Value> =
        waits.map(|wait| json!({"path": wait.path, "kind": wait.kind.as_str()})).collect();
    let mut new = waiting.iter().filter(|note| !begun(&note["path"]));
    new.try_for_each(|note| step(draft, run, STEP_STARTED, note))
}

fn step(draft: &mut Draft<'_>, run: &Run, topic: &str, note: &Value) -> Result<()> {
    if !wanted(draft, topic) {
        return Ok(());
    }
    let id = if note["id"].is_null() { &note["path"] } else { &note["id"] };
    let mut more = json!({"stepId": id, "stepType": note["kind"], "path": note["path"]});
    if topic != STEP_STARTED {
        more["error"] = note["error"].clone();
    }
    tell(draft, run, topic, told(run, more))
}

fn wanted(draft: &Draft<'_>, topic: &str) -> bool {
    draft.heard || !draft.state.catalog.automations.concerned(topic).is_empty()
}

fn told(run: &Run, mut more: Value) -> Value {
    if let Some(more) = more.as_object_mut() {
        more.retain(|_, value| !value.is_null());
        let names = [("automationName", &run.automation), ("automation", &run.automation)];
        let ids = [("executionId", &run.id), ("run", &run.id), ("trigger", &run.trigger)];
        more.extend(names.into_iter().chain(ids).map(|(key, text)| (key.to_owned(), text.as_str().into())));
    }
    more
}

fn tell(draft: &mut Draft<'_>, run: &Run, topic: &str, payload: Value) -> Result<()> {
    let position = draft.next() - 1;
    let envelope = Envelope {
        // Made of where the record stands, so that the view is the same whenever it is looked at.
        id: format!("{}:{position}:{topic}", run.id),
        topic: topic.to_owned(),
        space: run.space.clone(),
        actor: format!("system:automation:{}", run.automation),
        subject: Some(Subject { kind: "automation".to_owned(), id: run.automation.clone() }),
        cause: (run.event > 0).then_some(run.event),
        depth: run.depth + LEAP,
        run: Some(run.id.clone()),
        ..Envelope::default()
    };
    let content = Content::new(&payload.to_string(), None);
    let event = Event { position, recorded_at: draft.now, envelope, content };
    if draft.heard {
        // Without a position: a follower that comes back with one would miss what is written before it.
        draft.tell(Arc::new(Event { position: 0, ..event.clone() }));
    }
    let by_one = run.synthetic.as_ref().and_then(|event| event["topic"].as_str()).is_some_and(is_one);
    if by_one { Ok(()) } else { route::view(draft, &event) }
}

/// `schedule manual event:<topic> automation:<name>`, as people ask for it.
fn triggered_by(draft: &Draft<'_>, run: &Run) -> Result<String> {
    let topic = match &run.synthetic {
        Some(event) => event["topic"].as_str().map(str::to_owned),
        None => draft.state.event(run.event)?.map(|event| event.envelope.topic.clone()),
    };
    Ok(match run.occurrence.kind.as_str() {
        "event" | "batch" => format!("event:{}", topic.unwrap_or_default()),
        "call" => match run.caller.map(|(caller, _)| draft.state.run(caller)).transpose()?.flatten() {
            Some(caller) => format!("automation:{}", caller.automation),
            None => "automation".to_owned(),
        },
        kind => kind.to_owned(),
    })
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.nanos() - from.nanos()) as f64 / 1e9
}
