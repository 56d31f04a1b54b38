//! Occurrences that were refused for lack of room run after all, many at a time.

use model::record::OccurrenceId;
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::again::{Bulk, done_in_bulk};
use crate::command::{Answer, Command, Refused, RunCommand};
use crate::deliver::lock;
use crate::history::read::Wanted;
use crate::schedule;
use crate::tenant::entity::broken;
use crate::tenant::publish::unexpected;
use crate::tenant::{Seen, Tenant};

/// Reasons of refusals that have nothing to do with what came: it may run when there is room.
pub const REASONS: [&str; 3] = ["storm_paused", "max_runs", "budget"];

impl Tenant {
    /// Starts them with the events they came with, oldest first. One that has started is refused no more, so that doing this
    /// again does nothing to it.
    pub(super) fn run_refused(&self, bulk: &Bulk, seen: &Seen) -> Result<Value, Problem> {
        check(bulk)?;
        // Between looking and starting nobody else does the same.
        let _alone = lock(&self.0.starting_refused);
        let mut meant = self.refused(bulk)?;
        meant.retain(|decision| seen.sees_decision(decision));
        let refusal = |decision: &Value| {
            let occurrence = &decision["occurrence"];
            match self.run_one_refused(decision) {
                Ok(None) => None,
                Ok(Some(reason)) => {
                    let code = Code::RunRefused.as_str();
                    Some(json!({"occurrence": occurrence, "code": code, "reason": reason}))
                }
                Err(problem) => Some(json!({"occurrence": occurrence, "code": problem.code().as_str()})),
            }
        };
        Ok(done_in_bulk(bulk, &meant, refusal))
    }

    /// Decisions that are meant, oldest first.
    fn refused(&self, bulk: &Bulk) -> Result<Vec<Value>, Problem> {
        let mut wanted = Wanted {
            automation: bulk.automation.clone(),
            status: Some("refused".to_owned()),
            since: bulk.since,
            limit: 1_000,
            ..Wanted::default()
        };
        let reason = bulk.reason.as_deref().unwrap_or(REASONS[0]);
        let mut meant = Vec::new();
        loop {
            let (decisions, next) =
                self.with_history(|history| history.decisions(&wanted).map_err(broken))?;
            // What another one took along runs with that one.
            let alone = |decision: &Value| decision["reason"] == reason && decision.get("into").is_none();
            meant.extend(decisions.into_iter().filter(|one| alone(one) && came_by_itself(one)));
            match next {
                Some(next) => wanted.before = Some(next),
                None => break,
            }
        }
        meant.reverse();
        Ok(meant)
    }

    /// `Some`: why there is still no room.
    fn run_one_refused(&self, decision: &Value) -> Result<Option<String>, Problem> {
        let asked = self.asked(decision)?;
        match self.ask_blocking(Command::Run(RunCommand::Refused(Box::new(asked))))? {
            Answer::Started { run: Some(_), .. } => Ok(None),
            Answer::Started { reason, .. } => Ok(Some(reason.unwrap_or_default())),
            _ => Err(unexpected()),
        }
    }

    /// The event that it came with is read again, or made again of the instant that was due.
    fn asked(&self, decision: &Value) -> Result<Refused, Problem> {
        let text = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
        let (automation, trigger) = (text("automation"), text("trigger"));
        let place = &decision["occurrence"];
        let of: OccurrenceId =
            (place["position"].as_u64().unwrap_or(0), place["n"].as_u64().unwrap_or(0) as u32);
        let due = decision["values"]["at"].as_str().and_then(|at| Timestamp::parse(at).ok());
        let position: Position = decision["event"].as_u64().unwrap_or(0);
        let named =
            self.with_writer(|writer| Ok(writer.state.catalog.automations.named(&automation)?.clone()))?;
        let pulled = named.trigger(&trigger);
        if pulled.is_some_and(|pulled| pulled.definition.batch.is_some()) {
            return Err(lost("it was the last of a batch"));
        }
        let (event, at) = match (position, due, pulled) {
            (0, Some(at), Some(pulled)) => (schedule::event(&named, pulled, at), at),
            (0, ..) => return Err(lost("what it came with was not written down")),
            (position, ..) => {
                let event = self.event(&position.to_string())?;
                if event.content.payload().is_none() {
                    return Err(Problem::new(Code::EventErased, format!("event {position} was erased")));
                }
                (event.to_value(), event.time())
            }
        };
        Ok(Refused { of, automation, trigger, event, position, at })
    }
}

/// Not by a call or by hand: whoever asks for a start was told at once that there is none, and may have asked again.
fn came_by_itself(decision: &Value) -> bool {
    decision["event"].as_u64().is_some_and(|event| event > 0) || decision["values"]["at"].is_string()
}

fn check(bulk: &Bulk) -> Result<(), Problem> {
    let wrong = |detail: String, hint: String| {
        Err(Problem::new(Code::RequestInvalid, detail).hint(hint).at("/where"))
    };
    if bulk.status.is_some() {
        let detail = "occurrences that were refused have no run, and so no status";
        return wrong(detail.to_owned(), "name \"reason\" in place of \"status\"".to_owned());
    }
    match bulk.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        Some(reason) => {
            let detail = format!("what was refused as \"{reason}\" cannot be run as it is");
            wrong(detail, format!("one of {}", REASONS.join(", ")))
        }
        None => Ok(()),
    }
}

fn lost(why: &str) -> Problem {
    Problem::new(Code::RunNotResumable, format!("{why}: it cannot be run again by itself"))
}
