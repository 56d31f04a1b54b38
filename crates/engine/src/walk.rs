//! Walks a run from where it stands to its next wait or its end; that stretch is one commit (rules R8).
//!
//! ```text
//!  run.started ─▶ walk ─▶ run.moved (waits) ─ … wait.ended ─▶ walk ─▶ run.ended
//! ```
//! A step is all or nothing: what a failing one wrote is taken back, what earlier ones wrote stands. Events that steps
//! publish are routed at the end of the stretch, in the same commit.

mod ask;
mod branch;
mod call;
mod detached;
mod effect;
mod judge;
mod looping;
mod publish;
mod step;
mod task;
mod wait;

use std::sync::Arc;

use model::definition::Step;
use model::event::Band;
use model::record::{How, RunEnded, RunMoved, RunRecord, Status};
use model::{Code, Position, Problem};
use serde_json::{Value, json};

use crate::admit::Caller;
use crate::automation::Automation;
use crate::decide::Refusal;
use crate::draft::Draft;
use crate::env::Env;
use crate::lifecycle;
use crate::route::{self, occurrence, start};
use crate::run::{Block, Run, band_of};
use crate::state::{Fault, Result as StateResult};

pub(crate) use call::{Invoked, call_logic, invoke};
pub(crate) use judge::time_out;
pub(crate) use wait::earlier;

/// Steps after which a loop lets others go on.
const STEPS_BEFORE_YIELD: u32 = 200;
/// Bytes after which it does, too.
const BYTES_BEFORE_YIELD: usize = BYTES_MAX / 4;
/// Records that one stretch may write.
const RECORDS_MAX: usize = 10_000;
/// Bytes of payloads and rows that one stretch may write.
const BYTES_MAX: usize = 4 << 20;

/// What became of a list of steps.
enum Flow {
    /// Went through; the last output.
    Done(Value),
    /// Something in it waits.
    Blocked,
    /// A `return` or a `stop` ends the whole run or logic.
    Leave(Value),
}

/// Why a step failed. What it wrote is taken back.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub code: String,
    pub message: String,
    pub class: &'static str,
}

pub(crate) enum Stopped {
    Failure(Failure),
    Fault(Fault),
}

type Result<T> = std::result::Result<T, Stopped>;

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        Stopped::Fault(fault)
    }
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Stopped {
        let class = match problem.code() {
            Code::StorageFull => "transient",
            _ => "permanent",
        };
        Stopped::Failure(Failure {
            code: problem.code().as_str().to_owned(),
            message: problem.detail().to_owned(),
            class,
        })
    }
}

/// A decision that refused.
fn refused(refusal: Refusal) -> Stopped {
    match refusal {
        Refusal::Problem(problem) => problem.into(),
        Refusal::Fault(fault) => Stopped::Fault(fault),
    }
}

/// What did not come in time may come next time; everything else ends the same way each time.
fn failure(code: Code, message: impl Into<String>) -> Stopped {
    let class = if code == Code::WaitTimeout { "transient" } else { "permanent" };
    Stopped::Failure(Failure { code: code.as_str().to_owned(), message: message.into(), class })
}

struct Walk<'d, 'a> {
    draft: &'d mut Draft<'a>,
    run: Run,
    env: Env,
    /// What each step came to, for people.
    trace: Vec<Value>,
    steps: u32,
    /// Of payloads and rows that it wrote, also of those that were taken back.
    bytes: usize,
    yielded: bool,
    /// Inside logic: no waits, no trace.
    logic: u32,
    /// Inside `atomic`: what it does may be taken back, so no run may start.
    atomic: u32,
    /// What it publishes has at least this band.
    least_band: Band,
    /// Who called logic without a run.
    outside: Option<Caller>,
    /// Inside logic, which is not told of it: the topic of the event that it is about.
    topic: Option<String>,
    /// Who answered the question of the step that is noted next.
    by: Option<String>,
    /// The event that ended the wait of the step that is noted next.
    took: Option<Position>,
    /// The W3C traceparent of the event it reads; what it causes has it, too.
    traceparent: Option<String>,
}

/// Walks one run that is ready. Nothing happens when it is gone.
pub fn walk(draft: &mut Draft<'_>, position: Position) -> StateResult<()> {
    let Some(run) = draft.state.run(position)? else { return Ok(()) };
    let Some(automation) = draft.state.version(&run.automation, &run.hash) else {
        let lost = Failure {
            code: Code::DefinitionInvalid.as_str().to_owned(),
            message: format!("version {} of \"{}\" cannot be used", short(&run.hash), run.automation),
            class: "permanent",
        };
        return ended(draft, &run, Err(lost), (Vec::new(), &[]));
    };
    let Some(env) = env_of(draft, &run, &automation)? else {
        return ended(draft, &run, Err(erased()), (Vec::new(), &[]));
    };
    let mut run = run;
    if let (None, Some(timeout)) = (run.walk.deadline, &automation.definition.timeout) {
        // One that cannot be computed limits nothing; `check` has looked at those that are written out.
        run.walk.deadline = env.length(draft.state, timeout).ok().map(|length| run.started_at.plus(length));
    }
    draft.begin_stretch();
    let mut at = run.walk.at.clone();
    let waited: Vec<String> = run.walk.waits.iter().map(|wait| wait.path.clone()).collect();
    let mut walk = Walk::new(draft, run, env);
    let result = walk.block(&automation.definition.steps, &mut at, "actions");
    let Walk { draft, mut run, env, trace, yielded, .. } = walk;
    run.walk.steps += trace.iter().filter(|step| step["status"] != "waiting").count() as u32;
    let end = match result {
        Ok(Flow::Blocked) => None,
        Ok(Flow::Done(output) | Flow::Leave(output)) => Some(Ok(output)),
        Err(Stopped::Failure(failure)) => Some(Err(failure)),
        Err(Stopped::Fault(fault)) => return Err(fault),
    };
    if !matches!(end, Some(Ok(_))) {
        (run.walk.at, run.walk.outputs, run.walk.wait) = (at, env.outputs, env.wait);
        run.walk.vars = env.vars.as_object().cloned().unwrap_or_default();
    }
    match end {
        None => {
            let status = if yielded { Status::Running } else { Status::Waiting };
            let state = serde_json::to_value(&run.walk).unwrap_or_default();
            moved(draft, &run, status, state, (trace, &waited))?;
        }
        Some(Ok(output)) => ended(draft, &run, Ok(output), (trace, &waited))?,
        Some(Err(failure)) => {
            // Right before the end: how far it came, for whoever resumes it.
            let state = serde_json::to_value(run.walk.clone().resumed()).unwrap_or_default();
            moved(draft, &run, Status::Running, state, (trace, &waited))?;
            ended(draft, &run, Err(failure), (Vec::new(), &[]))?;
        }
    }
    // Events that the stretch wrote find whom they concern.
    route::all(draft)
}

fn erased() -> Failure {
    Failure {
        code: Code::EventErased.as_str().to_owned(),
        message: "the event that it reads was erased".to_owned(),
        class: "permanent",
    }
}

/// Ends a run whose event is being erased, wherever it stands. Nothing happens when it is over.
pub fn lose(draft: &mut Draft<'_>, position: Position) -> StateResult<()> {
    let Some(run) = draft.state.run(position)? else { return Ok(()) };
    ended(draft, &run, Err(erased()), (Vec::new(), &[]))?;
    route::all(draft)
}

/// Writes down where it stands, and tells what its steps came to.
fn moved(
    draft: &mut Draft<'_>,
    run: &Run,
    status: Status,
    state: Value,
    (steps, waited): (Vec<Value>, &[String]),
) -> StateResult<()> {
    let told = if lifecycle::is_wanted(draft) { steps.clone() } else { Vec::new() };
    draft.push_run(RunRecord::Moved(RunMoved { run: run.position, status, state, steps }))?;
    lifecycle::steps(draft, run, &told, waited)
}

/// `None`: the event it reads is gone.
fn env_of(draft: &Draft<'_>, run: &Run, automation: &Arc<Automation>) -> StateResult<Option<Env>> {
    let event = match (&run.synthetic, run.event) {
        (Some(event), _) => Arc::new(event.clone()),
        (None, 0) => Arc::new(start::synthetic("", &run.space, "", json!({}), run.started_at)),
        (None, position) => match draft.state.event_value(position)? {
            Some(event) => event,
            None => return Ok(None),
        },
    };
    let (trigger, space) = (automation.trigger(&run.trigger), run.space.clone());
    let mut env = occurrence::env(automation, trigger, event, run.input.clone(), draft.now, space);
    env.vars = Value::Object(run.walk.vars.clone());
    env.outputs.clone_from(&run.walk.outputs);
    env.wait.clone_from(&run.walk.wait);
    Ok(Some(env))
}

fn ended(
    draft: &mut Draft<'_>,
    run: &Run,
    result: std::result::Result<Value, Failure>,
    (steps, waited): (Vec<Value>, &[String]),
) -> StateResult<()> {
    if let Err(failure) = &result
        && judge::begins_again(draft, run, failure, &steps)?
    {
        return Ok(());
    }
    let (status, output, failure) = match result {
        Ok(output) => (Status::Completed, output, None),
        Err(failure) => (Status::Failed, Value::Null, Some(failure)),
    };
    let record = RunEnded {
        run: run.position,
        status,
        band: run.walk.band,
        code: failure.as_ref().map(|failure| failure.code.clone()),
        class: failure.as_ref().map(|failure| failure.class.to_owned()),
        message: failure.as_ref().map(|failure| failure.message.clone()),
        output: output.clone(),
        steps,
        step_count: run.walk.steps.into(),
    };
    let told = lifecycle::is_wanted(draft).then(|| record.clone());
    draft.push_run(RunRecord::Ended(record))?;
    if let Some(record) = told {
        lifecycle::steps(draft, run, &record.steps, waited)?;
        lifecycle::ended(draft, run, &record)?;
    }
    judge::ended(draft, run, failure.as_ref())?;
    after_end(draft, run, status, &output, failure.as_ref().map(|failure| failure.message.as_str()))
}

/// Whoever called it hears of it, and the next in the queue begins.
pub fn after_end(
    draft: &mut Draft<'_>,
    run: &Run,
    status: Status,
    output: &Value,
    why: Option<&str>,
) -> StateResult<()> {
    if let Some((caller, wait)) = run.caller {
        let how = if status == Status::Completed { How::Done } else { How::Failed };
        let value = match status {
            Status::Completed => output.clone(),
            _ => json!({"run": run.id, "status": status.as_str(), "message": why}),
        };
        if let Some(waits) = draft.state.run(caller)?.filter(|caller| caller.wait(wait).is_some()) {
            let other_spaces = draft.state.seals.others(run.spaces(), &waits.space);
            let band = run.synthetic.as_ref().map(band_of).unwrap_or_default().max(run.walk.band);
            let ended = model::record::WaitEnded {
                run: caller,
                wait,
                how,
                event: None,
                other_spaces,
                band,
                by: None,
                value,
            };
            draft.push_run(RunRecord::WaitEnded(ended))?;
        }
    }
    start::next_queued(draft, &run.automation, &run.key)
}

impl<'d, 'a> Walk<'d, 'a> {
    fn new(draft: &'d mut Draft<'a>, run: Run, env: Env) -> Walk<'d, 'a> {
        let (trace, outside) = (Vec::new(), None);
        let said = env.about.as_ref().and_then(|about| about.event["trace"].as_str());
        Walk {
            traceparent: said.map(str::to_owned),
            draft,
            run,
            env,
            trace,
            steps: 0,
            bytes: 0,
            yielded: false,
            logic: 0,
            atomic: 0,
            least_band: Band::default(),
            outside,
            topic: None,
            by: None,
            took: None,
        }
    }

    /// Goes through a list of steps from where it stands.
    fn block(&mut self, steps: &[Step], at: &mut Block, path: &str) -> Result<Flow> {
        let mut last = Value::Null;
        while let Some(step) = steps.get(at.next) {
            let here = format!("{path}[{}]", at.next);
            match self.step(step, at, &here)? {
                Flow::Done(output) => last = output,
                other => return Ok(other),
            }
            *at = Block { next: at.next + 1, ..Block::default() };
        }
        Ok(Flow::Done(last))
    }

    /// Whether the stretch has become more than one commit can hold.
    fn too_big(&self) -> Result<()> {
        if self.draft.stretch_len() <= RECORDS_MAX && self.bytes <= BYTES_MAX {
            return Ok(());
        }
        Err(failure(Code::WalkTooBig, "the run wrote more than one commit can hold; wait in between"))
    }

    /// Nothing stands still in logic, which is a function, or in `atomic`, which is one commit.
    fn may_wait(&self) -> bool {
        self.logic == 0 && self.atomic == 0
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
