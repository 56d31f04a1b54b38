//! What comes due by itself is armed: proven by looking at everything that waits; and held to its length when the wall clock
//! was set back while nobody ran (rules R9).

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use model::record::Status;
use model::{Position, Timestamp};

use super::Timer;
use crate::run::{Run, Wait, WaitKind};
use crate::state::rows::no_later;
use crate::state::{Result, State};

impl State {
    /// What should come due by itself and is armed nowhere, in words; nothing in a sound state. Looks at every run.
    pub fn unarmed(&self) -> Result<Vec<String>> {
        let armed: BTreeSet<&Timer> = self.runs.timers.iter().map(|(_, timer)| timer).collect();
        let mut found = Vec::new();
        for (position, brief) in &self.runs.live {
            if brief.status == Status::Running && !self.runs.ready.contains(position) {
                found.push(format!("run \"{}\" can walk on and is not in the queue", brief.id));
            }
            let Some(run) = self.run(*position)? else { continue };
            for wait in run.walk.waits.iter().filter(|wait| wait.ended.is_none()) {
                let id = (*position, wait.number);
                let timed = wait.due.is_none() || armed.contains(&Timer::Wait(id));
                let tried = !rechecks(wait) || armed.contains(&Timer::Recheck(id));
                let worked =
                    !matches!(wait.kind, WaitKind::Effect(_)) || self.runs.wakes.effects.contains(&id);
                if !(timed && tried && worked) {
                    found.push(format!("wait \"{}.{}\" is armed nowhere", brief.id, wait.number));
                }
            }
        }
        for (id, pending) in self.pending() {
            if pending.until.is_some() && !armed.contains(&Timer::Pending(*id)) {
                found.push(format!(
                    "an occurrence of \"{}\" pending at {} is armed nowhere",
                    pending.automation, pending.gate
                ));
            }
        }
        found.extend(crate::schedule::unarmed(self, &armed)?);
        Ok(found)
    }

    /// Gives the waits of a run the instants at which they end: after the wall clock was set back while nobody ran, earlier
    /// than what was written says. Every timer is looked at once, and only then.
    pub fn tell_dues(&self, run: &mut Run, armed: &OnceCell<HashMap<(Position, u32), Timestamp>>) {
        let of_wait = |(at, timer): &(Timestamp, Timer)| match timer {
            Timer::Wait(id) => Some((*id, *at)),
            _ => None,
        };
        for wait in run.walk.waits.iter_mut().filter(|wait| wait.ended.is_none()) {
            let (Some(due), id) = (wait.due, (run.position, wait.number)) else { continue };
            if !self.runs.timers.contains(&(due, Timer::Wait(id))) {
                let armed = armed.get_or_init(|| self.runs.timers.iter().filter_map(of_wait).collect());
                wait.due = armed.get(&id).copied().or(wait.due);
            }
        }
    }

    /// Whatever counts time ends no later from now than it was to last in all.
    pub(crate) fn clamp_elapsed(&mut self, now: Timestamp) -> Result<()> {
        let mut earlier: Vec<(Timestamp, Timer, Timestamp)> = Vec::new();
        for position in self.runs.live.keys() {
            let Some(run) = self.run(*position)? else { continue };
            for wait in run.walk.waits.iter().filter(|wait| wait.ended.is_none()) {
                if let (Some(due), Some(lasts)) = (wait.due, wait.lasts_ms) {
                    earlier.push((due, Timer::Wait((*position, wait.number)), no_later(due, now, lasts)));
                }
            }
        }
        for (id, pending) in self.pending().iter().filter(|(_, pending)| pending.elapsed) {
            if let Some(until) = pending.until {
                let lasts: Duration = until.since(pending.since);
                earlier.push((until, Timer::Pending(*id), no_later(until, now, lasts.as_millis() as u64)));
            }
        }
        for (due, timer, at) in earlier.into_iter().filter(|(due, _, at)| at < due) {
            if self.runs.timers.remove(&(due, timer.clone())) {
                if let Timer::Pending(id) = timer {
                    self.runs.held.insert(id, at);
                }
                self.runs.timers.insert((at, timer));
            }
        }
        Ok(())
    }
}

fn rechecks(wait: &Wait) -> bool {
    matches!(&wait.kind, WaitKind::Until { recheck: Some(_), .. }) || wait.held().is_some()
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use model::record::{RunMoved, RunStarted, Status};
    use serde_json::json;

    use super::super::Pending;
    use super::*;
    use crate::apply::Place;

    fn waiting(state: &mut State, now: Timestamp) {
        let started = RunStarted::new("run_1".to_owned(), "a", "h", now);
        state.start_run(Place { position: 1, time: now }, &started).unwrap();
        let due = now.plus(Duration::from_secs(300));
        let wait = json!({
            "number": 1, "path": "actions[0]", "kind": "delay", "since": now, "due": due, "lasts_ms": 300_000,
        });
        let walked = json!({"at": {"next": 0, "inside": {"wait": 1}}, "waits": [wait], "waited": 1});
        let moved = RunMoved { run: 1, status: Status::Waiting, state: walked, steps: Vec::new() };
        state.move_run(Place { position: 2, time: now }, &moved).unwrap();
    }

    #[test]
    fn a_wait_without_its_timer_is_found() {
        let mut state = State::open(None).unwrap();
        waiting(&mut state, Timestamp::EPOCH);
        assert_eq!(state.unarmed().unwrap(), [] as [&str; 0]);
        state.runs.timers.clear();
        assert_eq!(state.unarmed().unwrap(), ["wait \"run_1.1\" is armed nowhere"]);
    }

    #[test]
    fn a_wait_lasts_no_longer_when_the_clock_was_set_back() {
        let (mut state, day) = (State::open(None).unwrap(), Duration::from_secs(86_400));
        waiting(&mut state, Timestamp::EPOCH.plus(day));
        state.clamp_elapsed(Timestamp::EPOCH).unwrap();
        let five_minutes = Timestamp::EPOCH.plus(Duration::from_secs(300));
        assert_eq!(state.runs.timers.first().map(|(at, _)| *at), Some(five_minutes));
        let mut run = state.run(1).unwrap().unwrap();
        state.tell_dues(&mut run, &OnceCell::new());
        assert_eq!(run.walk.waits[0].due, Some(five_minutes), "and it says so");
        assert_eq!(state.unarmed().unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn what_was_held_to_its_length_leaves_no_timer_that_would_start_it_out_of_turn() {
        let (mut state, day) = (State::open(None).unwrap(), Duration::from_secs(86_400));
        let since = Timestamp::EPOCH.plus(day);
        let pending = json!({
            "automation": "a", "hash": "h", "trigger": "t", "gate": "batch", "reason": "batch", "elapsed": true, "key": "",
            "until": since.plus(Duration::from_secs(5)), "since": since, "events": [],
        });
        let pending: Pending = serde_json::from_value(pending).unwrap();
        state.put_pending((7, 0), pending.clone());
        state.clamp_elapsed(Timestamp::EPOCH).unwrap();
        let five_seconds = Timestamp::EPOCH.plus(Duration::from_secs(5));
        assert_eq!(state.runs.timers.first().map(|(at, _)| *at), Some(five_seconds));
        state.leave_pending((7, 0));
        assert!(state.runs.timers.is_empty());
        state.put_pending((7, 0), pending);
        state.clamp_elapsed(Timestamp::EPOCH).unwrap();
        state.shift_pending(1_000);
        assert_eq!(state.runs.timers.len(), 1);
    }
}
