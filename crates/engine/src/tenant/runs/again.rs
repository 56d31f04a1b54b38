//! Runs that have ended, once more: tried again, resumed, run again from a step; and many at a time.

use model::definition::Step;
use model::record::{RunRecord, RunStarted};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::authority::Sight;
use crate::command::{Again, Answer, Command, RunCommand};
use crate::history::read::Wanted;
use crate::read;
use crate::run::{Block, Walked};
use crate::tenant::Seen;
use crate::tenant::publish::unexpected;

/// Kinds of steps that reach outside.
const OUTSIDE: [&str; 4] = ["http", "exec", "agent", "task"];

/// How a run is run again.
#[derive(Clone, Debug, Default)]
pub struct Rerun {
    /// A step of the outermost list, as `actions[2]` or by its id; what came before is taken from the first run.
    pub from_step: Option<String>,
    /// Also over steps that reached outside the first time.
    pub allow_side_effects: bool,
}

/// Where the numbers of an attempt's waits begin when it is not known how many the last one had.
const WAITS_AN_ATTEMPT: u32 = 1_000;

/// What is done to many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Cancel,
    Retry,
    Resume,
    /// Occurrences that were refused run after all.
    Run,
}

#[derive(Clone, Debug)]
pub struct Bulk {
    pub verb: Verb,
    pub automation: Option<String>,
    /// Absent: those that are in progress for a cancel, those that failed for the others.
    pub status: Option<String>,
    /// Why they were refused, of those that are to run.
    pub reason: Option<String>,
    pub since: Option<Timestamp>,
    pub dry_run: bool,
}

impl Tenant {
    /// Begins a run that failed or was cancelled anew, under its id and the version that is declared now.
    pub fn retry_run(&self, id: &str) -> Result<Value, Problem> {
        let (run, mut started) = self.ended_run(id, &["failed", "cancelled"], "retried")?;
        let before = run["attempt"].as_u64().unwrap_or(1) as u32;
        started.attempt = before + 1;
        // Its waits have new numbers: an answer to an old question must not answer a new one.
        let waited = self.how_far(&run)?.map_or(before * WAITS_AN_ATTEMPT, |walked| walked.waited);
        let other_spaces = started.other_spaces.clone();
        let walked = Some(Walked { waited, other_spaces, ..Walked::default() });
        self.again(Again { started, walked, pinned: false })
    }

    /// How far an ended run came, if that was written right before its end.
    fn how_far(&self, run: &Value) -> Result<Option<Walked>, Problem> {
        let before = run["ended"].as_u64().unwrap_or(0).saturating_sub(1);
        Ok(match self.run_record(before)? {
            Some(RunRecord::Moved(moved)) if Some(moved.run) == run["position"].as_u64() => {
                serde_json::from_value::<Walked>(moved.state).ok()
            }
            _ => None,
        })
    }

    /// Goes on with a failed run from the step that failed; what was done stands.
    pub fn resume_run(&self, id: &str) -> Result<Value, Problem> {
        let (run, started) = self.ended_run(id, &["failed"], "resumed")?;
        let walked = self.how_far(&run)?.ok_or_else(|| {
            not_resumable(format!("how far \"{id}\" came was not recorded"))
                .hint(format!("everwhen runs retry {id}"))
        })?;
        self.again(Again { started, walked: Some(walked), pinned: true })
    }

    /// As [`Tenant::resume_run`], from a step that is named, if one is: an earlier one is done again, with what came before it.
    pub fn resume_run_from(&self, id: &str, how: &Rerun) -> Result<Value, Problem> {
        let Some(step) = &how.from_step else { return self.resume_run(id) };
        let (run, started) = self.ended_run(id, &["failed"], "resumed")?;
        let automation = self.with_writer(|writer| {
            let version = writer.state.version(&started.automation, &started.hash);
            version
                .map_or_else(|| Ok(writer.state.catalog.automations.named(&started.automation)?.clone()), Ok)
        })?;
        let from = find(&automation.definition.steps, step)?;
        let done: Vec<&Value> = run["steps"].as_array().into_iter().flatten().collect();
        if !how.allow_side_effects {
            refuse_effects(&done, from)?;
        }
        let walked = Walked { other_spaces: started.other_spaces.clone(), ..taken_over(&done, from) };
        self.again(Again { started, walked: Some(walked), pinned: true })
    }

    /// A new run of what a run was the answer to, under the version that is declared now.
    pub fn rerun(&self, id: &str, how: &Rerun) -> Result<Value, Problem> {
        let (run, mut started) = self.ended_run(id, &["completed", "failed", "cancelled"], "run again")?;
        let automation = self
            .with_writer(|writer| Ok(writer.state.catalog.automations.named(&started.automation)?.clone()))?;
        let from = match &how.from_step {
            Some(step) => find(&automation.definition.steps, step)?,
            None => 0,
        };
        let done: Vec<&Value> = run["steps"].as_array().into_iter().flatten().collect();
        if !how.allow_side_effects {
            refuse_effects(&done, from)?;
        }
        (started.id, started.attempt, started.rerun_of) = (String::new(), 1, Some(id.to_owned()));
        let walked = (from > 0)
            .then(|| Walked { other_spaces: started.other_spaces.clone(), ..taken_over(&done, from) });
        self.again(Again { started, walked, pinned: false })
    }

    /// How many runs are meant, and for how many it was done.
    pub fn runs_in_bulk(&self, bulk: &Bulk) -> Result<Value, Problem> {
        self.seen_by(&Sight::default()).runs_in_bulk(bulk)
    }

    /// Of those that are seen.
    pub(in crate::tenant) fn in_bulk(&self, bulk: &Bulk, seen: &Seen) -> Result<Value, Problem> {
        let one: fn(&Tenant, &str) -> Result<(), Problem> = match bulk.verb {
            Verb::Run => return self.run_refused(bulk, seen),
            Verb::Cancel => Tenant::cancel_run,
            Verb::Retry => |tenant, id| tenant.retry_run(id).map(drop),
            Verb::Resume => |tenant, id| tenant.resume_run(id).map(drop),
        };
        let meant = self.meant(bulk, seen)?;
        let refusal = |id: &String| {
            let problem = one(self, id).err()?;
            Some(json!({"id": id, "code": problem.code().as_str()}))
        };
        Ok(done_in_bulk(bulk, &meant, refusal))
    }

    /// Oldest first, so that those who queue stay in their order. To be cancelled, those in a queue come first and the last of them
    /// before all: a place that becomes free must not begin a run that is meant, too.
    fn meant(&self, bulk: &Bulk, seen: &Seen) -> Result<Vec<String>, Problem> {
        let by_default: &[&str] = match bulk.verb {
            Verb::Cancel => &["queued", "running", "waiting"],
            Verb::Retry | Verb::Resume | Verb::Run => &["failed"],
        };
        let mut wanted = Wanted {
            automation: bulk.automation.clone(),
            status: bulk.status.clone(),
            since: bulk.since,
            limit: 1_000,
            ..Wanted::default()
        };
        let (mut ids, mut queued) = (Vec::new(), Vec::new());
        loop {
            let (runs, next) = self.runs(&wanted)?;
            let status = |run: &Value| run["status"].as_str().is_some_and(|is| by_default.contains(&is));
            let meant = runs.iter().filter(|run| bulk.status.is_some() || status(run));
            for run in meant.filter(|run| seen.sees_run(run)) {
                let first = bulk.verb == Verb::Cancel && run["status"] == "queued";
                let list = if first { &mut queued } else { &mut ids };
                list.extend(run["id"].as_str().map(str::to_owned));
            }
            match next {
                Some(next) => wanted.before = Some(next),
                None => break,
            }
        }
        ids.reverse();
        queued.append(&mut ids);
        Ok(queued)
    }

    fn again(&self, again: Again) -> Result<Value, Problem> {
        match self.ask_blocking(Command::Run(RunCommand::Again(Box::new(again))))? {
            Answer::Started { run: Some(id), .. } => self.run(&id),
            // One that goes on has begun once already; only a new one can find the day's used up.
            Answer::Started { run: None, .. } => Err(self.runs_used_up()),
            _ => Err(unexpected()),
        }
    }

    /// A run that has ended as one of `statuses`, and how it began, with its event beside it: nothing else keeps that.
    fn ended_run(&self, id: &str, statuses: &[&str], what: &str) -> Result<(Value, RunStarted), Problem> {
        let run = self.run(id)?;
        let status = run["status"].as_str().unwrap_or_default();
        if !statuses.contains(&status) {
            let only = statuses.join(" or ");
            return Err(not_resumable(format!(
                "\"{id}\" is {status}; only a run that is {only} can be {what}"
            )));
        }
        let record = self.run_record(run["position"].as_u64().unwrap_or(0))?;
        let Some(RunRecord::Started(started)) = record else {
            return Err(not_resumable(format!("how \"{id}\" began is not in the ledger any more")));
        };
        let mut started = *started;
        if started.event > 0 && started.synthetic.is_none() {
            started.synthetic = Some(self.event(&started.event.to_string())?.to_value());
        }
        started.caller = None;
        Ok((run, started))
    }

    fn run_record(&self, position: Position) -> Result<Option<RunRecord>, Problem> {
        if position == 0 || position < self.first() {
            return Ok(None);
        }
        self.with_reader(|reader| Ok(read::run_record_at(reader, position)?.map(|(record, _)| record)))
    }
}

/// The index of a step in the outermost list.
fn find(steps: &[Step], named: &str) -> Result<usize, Problem> {
    let by_path = top_index(named).filter(|_| named.ends_with(']') && named.matches('[').count() == 1);
    let by_id = || steps.iter().position(|step| step.id.as_deref() == Some(named));
    by_path.filter(|index| *index < steps.len()).or_else(by_id).ok_or_else(|| {
        Problem::new(Code::RequestInvalid, format!("\"{named}\" is no step of the outermost list"))
            .hint("name it like actions[2], or by its id; steps inside others begin with the one around them")
            .at("/from_step")
    })
}

/// Of `actions[2].then[0]`, 2.
fn top_index(path: &str) -> Option<usize> {
    path.strip_prefix("actions[")?.split_once(']')?.0.parse().ok()
}

fn is_before(step: &Value, from: usize) -> bool {
    step["path"].as_str().and_then(top_index).is_some_and(|index| index < from)
}

fn refuse_effects(done: &[&Value], from: usize) -> Result<(), Problem> {
    let reached = |step: &&&Value| {
        let kind = step["kind"].as_str().unwrap_or_default();
        !is_before(step, from) && OUTSIDE.contains(&kind) && step["status"] != "skipped"
    };
    match done.iter().find(reached) {
        None => Ok(()),
        Some(step) => Err(not_resumable(format!("{} reached outside and would do so again", step["path"]))
            .hint("begin after it with --from-step (\"from_step\"), or allow it with --allow-side-effects (\"allow_side_effects\")")),
    }
}

/// What the steps before `from` left: outputs by id, and variables. Outputs of a round end with it.
fn taken_over(done: &[&Value], from: usize) -> Walked {
    let mut walked = Walked { at: Block { next: from, ..Block::default() }, ..Walked::default() };
    for step in done.iter().filter(|step| is_before(step, from)) {
        let in_round = step["path"].as_str().is_some_and(|path| path.contains("]["));
        if let Some(id) = step["id"].as_str().filter(|_| !in_round) {
            walked.outputs.insert(id.to_owned(), step["output"].clone());
            let (code, message) = (&step["error"]["code"], &step["error"]["message"]);
            let mark = match step["status"].as_str() {
                Some("skipped") => Some(Value::Null),
                Some("failed") => Some(json!({"code": code, "message": message})),
                _ => None,
            };
            walked.outputs.extend(mark.map(|mark| (crate::run::mark(id), mark)));
        }
        let vars: Option<&Map<String, Value>> = step["vars"].as_object();
        walked.vars.extend(vars.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    }
    walked
}

/// Does it to all that are meant, unless it is only tried; `refusal` says of one why it was not done.
pub(super) fn done_in_bulk<T>(bulk: &Bulk, meant: &[T], refusal: impl Fn(&T) -> Option<Value>) -> Value {
    let asked = if bulk.dry_run { &[] } else { meant };
    let refused: Vec<Value> = asked.iter().filter_map(refusal).collect();
    let mut answer = json!({"matched": meant.len(), "done": asked.len() - refused.len()});
    if !refused.is_empty() {
        answer["refused"] = refused.into();
    }
    answer
}

fn not_resumable(detail: String) -> Problem {
    Problem::new(Code::RunNotResumable, detail)
}
