//! Lifecycle events: what happens to a run, told as an event. A view of its records, written nowhere itself.
//!
//! Triggers that name such a topic (`automation.failed`, `automation.#`) are pulled in the commit of the record; whoever
//! follows at that moment hears it; a group that names it reads it out of the records again, see [`reread`]. A run that one
//! of them started pulls nothing in turn: reactions to reactions never end.

pub mod reread;

use std::sync::Arc;

use model::event::{Band, Content, Envelope, Event, Subject, TOLD};
use model::record::{RunEnded, Status};
use model::topic::Pattern;
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::decide::publish::Behind;
use crate::draft::Draft;
use crate::history::cancelled;
use crate::run::{Run, act_behind, act_told, band_of, band_of_input};
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

/// Those of them that a group can take: one to a record, so that its position says which.
const OF_RUNS: [&str; 4] = [STARTED, "automation.completed", "automation.failed", "automation.cancelled"];

/// Whether somebody with this pattern takes what is told of runs.
pub fn names_runs(pattern: &Pattern) -> bool {
    pattern.first_word_literal() && OF_RUNS.iter().any(|topic| pattern.matches(topic))
}

/// Refuses a pattern that reaches nothing but steps: several are told of one record, so they have no position by which a group
/// could hand them out, ack them or find them again.
pub fn check_for_group(pattern: &Pattern) -> std::result::Result<(), Problem> {
    let text = pattern.as_str();
    if !text.starts_with("automation.step.") {
        return Ok(());
    }
    let detail = format!("pattern \"{text}\" reaches only steps of runs, which groups are not given");
    let hint =
        format!("a group takes {}; steps are heard by triggers and live followers", OF_RUNS.join(", "));
    Err(Problem::new(Code::PatternInvalid, detail).hint(hint))
}

/// Whether an event with this topic is such a view.
pub fn is_one(topic: &str) -> bool {
    TOLD.contains(&topic)
}

/// The id of the run that such an event quotes: outputs and errors may say anything that it has read. That it was lost to
/// an erasure says nothing.
pub fn quoted_run(event: &Value) -> Option<&str> {
    let (payload, error) = (&event["payload"], &event["payload"]["error"]);
    // Of what was cancelled the words are ours.
    let own = error["code"] == Code::EventErased.as_str() || payload["status"] == Status::Cancelled.as_str();
    let errs = error["message"].is_string() && !own;
    let says = errs || !payload["output"].is_null();
    let of = event["topic"].as_str().filter(|topic| says && is_one(topic));
    of.and_then(|_| event["run"].as_str())
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
    let more = json!({ "triggeredBy": triggered_by(draft, &run)? });
    tell(draft, &run, STARTED, more)
}

/// A run has ended; its record is the last of the draft.
pub fn ended(draft: &mut Draft<'_>, run: &Run, ended: &RunEnded) -> Result<()> {
    let topic = ending(ended.status);
    if !wanted(draft, topic) {
        return Ok(());
    }
    let more = how_it_ended(ended, run.started_at, draft.now);
    tell(draft, run, topic, more)
}

fn how_it_ended(ended: &RunEnded, from: Timestamp, to: Timestamp) -> Value {
    let duration = seconds(from, to);
    let mut more =
        json!({"status": ended.status.as_str(), "duration": duration, "stepCount": ended.step_count});
    if let Some(code) = &ended.code {
        // As the run itself tells it: nobody wrote down words for what was only cut off.
        more["error"] = match ended.status {
            Status::Cancelled => json!({"code": code, "message": cancelled(code), "class": "permanent"}),
            _ => json!({"code": code, "message": ended.message, "class": ended.class}),
        };
    }
    if !ended.output.is_null() {
        more["output"] = ended.output.clone();
    }
    more
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
        more["duration"] = note["duration"].as_f64().unwrap_or(0.0).into();
    }
    tell(draft, run, topic, more)
}

fn wanted(draft: &Draft<'_>, topic: &str) -> bool {
    draft.heard || !draft.state.catalog.automations.concerned(topic).is_empty()
}

/// What every such event says of its run.
struct About<'a> {
    id: &'a str,
    automation: &'a str,
    trigger: &'a str,
    space: &'a str,
    event: Position,
    depth: u32,
    /// The highest of what it has read: outputs and errors may quote it.
    band: Band,
    /// The act of administration that it goes back to: who does not see that does not hear of it.
    act: Option<String>,
}

impl<'a> About<'a> {
    fn of(draft: &Draft<'_>, run: &'a Run) -> Result<About<'a>> {
        let read = if run.synthetic.is_some() { None } else { draft.state.event(run.event)? };
        let topic = read.as_ref().map(|event| json!({ "topic": event.envelope.topic }));
        let event = run.synthetic.as_ref().or(topic.as_ref()).unwrap_or(&Value::Null);
        let began = read.as_ref().map_or_else(|| band_of(event), |event| event.envelope.band);
        let of_batch = band_of_input(&run.occurrence.kind, &run.input);
        let band = began.max(of_batch).max(run.walk.band);
        let told = read.as_ref().and_then(|event| act_told(event));
        let act = act_behind(&run.occurrence.kind, event, &run.input).or(told);
        let Run { id, automation, trigger, space, event, depth, .. } = run;
        Ok(About { id, automation, trigger, space, event: *event, depth: *depth, band, act })
    }
}

/// What is said of a run beside this is for those only who may hear this.
pub fn behind(draft: &Draft<'_>, run: &Run) -> Result<Behind> {
    About::of(draft, run).map(|about| Behind { act: about.act, band: about.band })
}

/// What is absent is left out.
fn without_nulls(map: &mut Map<String, Value>) {
    map.retain(|_, value| !value.is_null());
}

impl About<'_> {
    fn payload(&self, mut more: Value) -> Value {
        if let Some(more) = more.as_object_mut() {
            // Not in what a run gave: there a null is its own.
            more.get_mut("error").and_then(Value::as_object_mut).into_iter().for_each(without_nulls);
            without_nulls(more);
            // Whoever may declare automations hears this: what an act said is not repeated here.
            if self.act.is_some() {
                more.remove("output");
                more.remove("triggeredBy");
                more.get_mut("error").and_then(Value::as_object_mut).map(|error| error.remove("message"));
            }
            let names = [("automationName", self.automation), ("automation", self.automation)];
            let ids = [("executionId", self.id), ("run", self.id), ("trigger", self.trigger)];
            more.extend(names.into_iter().chain(ids).map(|(key, text)| (key.to_owned(), text.into())));
        }
        more
    }

    fn event(&self, topic: &str, payload: &Value, (position, at): (Position, Timestamp)) -> Event {
        let envelope = Envelope {
            // Made of where the record stands, so that the view is the same whenever it is looked at.
            id: format!("{}:{position}:{topic}", self.id),
            topic: topic.to_owned(),
            space: self.space.to_owned(),
            actor: format!("system:automation:{}", self.automation),
            subject: Some(Subject { kind: "automation".to_owned(), id: self.automation.to_owned() }),
            cause: (self.event > 0).then_some(self.event),
            depth: self.depth + LEAP,
            run: Some(self.id.to_owned()),
            band: self.band,
            caused_by: self.act.clone(),
            ..Envelope::default()
        };
        let content = Content::new(&payload.to_string(), None);
        Event { position, recorded_at: at, envelope, content }
    }
}

fn tell(draft: &mut Draft<'_>, run: &Run, topic: &str, more: Value) -> Result<()> {
    let about = About::of(draft, run)?;
    let event = about.event(topic, &about.payload(more), (draft.next() - 1, draft.now));
    if draft.heard {
        // Without a position: a follower that comes back with one would miss what is written before it.
        draft.tell(Arc::new(Event { position: 0, ..event.clone() }));
    }
    let by_one = run.synthetic.as_ref().and_then(|event| event["topic"].as_str()).is_some_and(is_one);
    if !by_one {
        draft.views.push_back((event, run.spaces()));
    }
    Ok(())
}

/// `schedule manual event:<topic> automation:<name>`, as people ask for it.
fn triggered_by(draft: &Draft<'_>, run: &Run) -> Result<String> {
    let topic = match &run.synthetic {
        Some(event) => event["topic"].as_str().map(str::to_owned),
        None => draft.state.event(run.event)?.map(|event| event.envelope.topic.clone()),
    };
    let caller = run.caller.map(|(caller, _)| draft.state.run(caller)).transpose()?.flatten();
    let caller = caller.map(|caller| format!("automation:{}", caller.automation));
    Ok(named(&run.occurrence.kind, topic.as_deref(), caller.as_deref()))
}

/// `caller`: who called it, as `automation:<name>`.
pub(crate) fn named(kind: &str, topic: Option<&str>, caller: Option<&str>) -> String {
    match kind {
        "event" | "batch" => format!("event:{}", topic.unwrap_or_default()),
        "call" => caller.unwrap_or("automation").to_owned(),
        kind => kind.to_owned(),
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.nanos() - from.nanos()) as f64 / 1e9
}
