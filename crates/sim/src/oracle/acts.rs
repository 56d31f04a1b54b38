//! What the ledger says of occurrences and runs, folded without the engine: each occurrence ends once, each run does its work
//! once, nothing waits for what is already so.

mod time;

use std::collections::{BTreeMap, BTreeSet};

use model::event::Event;
use model::record::{
    How, OccurrenceId, Outcome, Record, RunEnded, RunMoved, RunRecord, RunStarted, SettledOccurrence, Status,
    Verdict, WaitEnded,
};
use model::{Position, Timestamp};
use serde_json::Value;

use crate::scan::Found;
use time::{Cooled, Schedule};

/// Which automations an event of a topic is an occurrence of.
const CONCERNED: [(&str, &[&str]); 5] = [
    ("a.x", &["burst", "calm", "echo"]),
    ("a.y", &["burst", "calm", "caller", "slow"]),
    ("b.x", &["batch", "brief", "cool", "pay"]),
    ("b.y", &["batch", "call", "latest"]),
    ("later.z", &["late"]),
];
/// Automations of which one run is live at most.
const ALONE: [&str; 6] = ["batch", "burst", "slow", "latest", "cool", "cron"];
/// Automations that time starts at full tens of seconds.
const BEATS: [&str; 2] = ["tick", "cron"];
/// The one whose runs take too long.
const BRIEF: &str = "brief";
/// The event that `pay` waits for, with the `k` of its own.
const PAID: &str = "a.x";
/// The row and its size that `heal` waits for.
const HEALED: (&str, u64) = ("a", 3);

struct Run {
    id: String,
    automation: String,
    event: Position,
    waits: BTreeMap<u32, Waits>,
    /// Events that it has published; each automation publishes one, at its end.
    said: u32,
    /// What it waited for was erased before it was read here.
    vague: bool,
}

enum Waits {
    For { after: Position },
    Until,
    Other,
}

/// An occurrence of an event, or of none (0), by its automation.
type Of = (Position, String);

#[derive(Default)]
pub struct Acts {
    /// The automations are declared.
    pub on: bool,
    seen: Position,
    /// Topic and `k` of what was published.
    events: BTreeMap<Position, (String, Option<u64>)>,
    routed: BTreeSet<Of>,
    settled: BTreeSet<Of>,
    pending: BTreeMap<OccurrenceId, Of>,
    live: BTreeMap<Position, Run>,
    sizes: BTreeMap<String, Value>,
    schedules: BTreeMap<String, Schedule>,
    cooled: Cooled,
    /// The key under which each run made its request.
    called: BTreeMap<String, String>,
    /// Automations that take nothing now: switched off, or not declared.
    off: BTreeSet<String>,
    /// Starts that were decided in this commit, less those that came.
    owed: BTreeMap<String, i64>,
}

/// What is known beside the ledger.
pub struct Aside<'a> {
    pub erased: &'a BTreeMap<Position, bool>,
    pub first: Position,
}

impl Acts {
    /// Takes in what is durable, and judges it commit by commit.
    pub fn meet(&mut self, found: &[Found], erased: &BTreeMap<Position, bool>) -> Result<(), String> {
        if !self.on {
            return Ok(());
        }
        let aside = Aside { erased, first: found.first().map_or(1, |one| one.position) };
        for commit in found.chunk_by(|one, next| one.head == next.head) {
            let last = commit.last().map_or(0, |one| one.position);
            if last > self.seen {
                let at = |what: String| format!("in the commit that ends at {last}: {what}");
                self.commit(commit, &aside).map_err(at)?;
                self.seen = last;
            }
        }
        Ok(())
    }

    fn commit(&mut self, commit: &[Found], aside: &Aside<'_>) -> Result<(), String> {
        for Found { position, time, record, .. } in commit {
            match record {
                Record::Event(event) => self.event(event)?,
                Record::ClockStepped { .. } => self.cooled.stepped(),
                Record::DefinitionsApplied(applied) => {
                    let gone = applied.removed.iter().map(|(_, name)| name.clone());
                    self.off.extend(gone);
                    applied.set.iter().for_each(|set| _ = self.off.remove(&set.name));
                }
                Record::Run(record) => self.record(*position, *time, record, aside)?,
                _ => {}
            }
        }
        self.check_commit(commit)
    }

    fn record(
        &mut self,
        position: Position,
        now: Timestamp,
        record: &RunRecord,
        aside: &Aside<'_>,
    ) -> Result<(), String> {
        match record {
            RunRecord::Routed(routed) => {
                for (index, verdict) in (0..).zip(&routed.verdicts) {
                    self.verdict((position, index), routed.event, verdict, now)?;
                }
                Ok(())
            }
            RunRecord::OccurrenceMoved(moved) => match self.pending.contains_key(&moved.of) {
                true => Ok(()),
                false => Err(format!("occurrence {:?} goes on and was not pending", moved.of)),
            },
            RunRecord::Settled(settled) => self.settle(settled),
            RunRecord::Started(started) => self.start(position, now, started),
            RunRecord::Moved(moved) => self.moved(moved),
            RunRecord::WaitEnded(ended) => self.wait_ended(ended, aside),
            RunRecord::Ended(ended) => self.ended(ended, aside),
            RunRecord::SchedulePassed(passed) if !BEATS.contains(&passed.automation.as_str()) => Ok(()),
            RunRecord::AutomationSet(set) => {
                match set.enabled {
                    Some(true) => _ = self.off.remove(&set.automation),
                    Some(false) => _ = self.off.insert(set.automation.clone()),
                    None => {}
                }
                Ok(())
            }
            RunRecord::SchedulePassed(passed) => match self.schedules.get_mut(&passed.automation) {
                Some(schedule) => schedule.pass(passed),
                None => {
                    self.schedules.insert(passed.automation.clone(), Schedule::from(passed.through));
                    Ok(())
                }
            },
            RunRecord::Effect(_) | RunRecord::Subscription(_) => Ok(()),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let topic = &event.envelope.topic;
        let payload = event.content.payload().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(name) = topic.strip_prefix("out.") {
            return self.say(name, event);
        }
        if let (true, Some(subject)) = (topic.starts_with("graph.node."), &event.envelope.subject) {
            let size = payload.map_or(Value::Null, |payload| payload["next"]["size"].clone());
            self.sizes.insert(subject.id.clone(), size);
            return Ok(());
        }
        let k = payload.and_then(|payload| payload["k"].as_u64());
        self.events.insert(event.position, (topic.clone(), k));
        Ok(())
    }

    /// A run publishes.
    fn say(&mut self, name: &str, event: &Event) -> Result<(), String> {
        let id = event.envelope.run.as_deref().unwrap_or_default();
        let run = self.live.values_mut().find(|run| run.id == id && run.automation == name);
        let run = run.ok_or_else(|| format!("{name} speaks at {} without a live run", event.position))?;
        run.said += 1;
        if run.said > 1 {
            return Err(format!("run {id} of {name} did its work twice"));
        }
        Ok(())
    }

    fn verdict(
        &mut self,
        id: OccurrenceId,
        event: Position,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<(), String> {
        let of = (event, verdict.automation.clone());
        if event > 0 && !self.routed.insert(of.clone()) {
            return Err(format!("event {event} was routed to {} twice", of.1));
        }
        if of.1 == "cool" {
            self.cooled.judge(verdict, now)?;
        }
        if let Some(schedule) = self.schedules.get_mut(&of.1) {
            schedule.account(&verdict.values);
        }
        match verdict.outcome {
            Outcome::Pending => _ = self.pending.insert(id, of),
            outcome => self.came_to(of, outcome)?,
        }
        Ok(())
    }

    fn settle(&mut self, settled: &SettledOccurrence) -> Result<(), String> {
        let Some(of) = self.pending.remove(&settled.of) else {
            return Err(format!("occurrence {:?} is settled and was not pending", settled.of));
        };
        self.came_to(of, settled.outcome)
    }

    fn came_to(&mut self, of: Of, outcome: Outcome) -> Result<(), String> {
        if matches!(outcome, Outcome::Ran | Outcome::CaughtUp) {
            *self.owed.entry(of.1.clone()).or_default() += 1;
        }
        if of.0 > 0 && !self.settled.insert(of.clone()) {
            return Err(format!("event {} came to two outcomes for {}", of.0, of.1));
        }
        Ok(())
    }

    fn start(&mut self, position: Position, now: Timestamp, started: &RunStarted) -> Result<(), String> {
        let (id, automation) = (started.id.clone(), started.automation.clone());
        *self.owed.entry(automation.clone()).or_default() -= 1;
        if automation == "cool" {
            self.cooled.started(now);
        }
        let run = Run { id, automation, event: started.event, waits: BTreeMap::new(), said: 0, vague: false };
        self.live.insert(position, run);
        Ok(())
    }

    fn moved(&mut self, moved: &RunMoved) -> Result<(), String> {
        let run = self.live.get_mut(&moved.run).ok_or(format!("run {} moved and is not live", moved.run))?;
        run.vague |= moved.state.is_null();
        let waits = moved.state["waits"].as_array().map(Vec::as_slice).unwrap_or_default();
        let open = waits.iter().filter(|wait| wait["ended"].is_null());
        run.waits = open
            .map(|wait| {
                let what = match (&wait["kind"]["for"]["after"], &wait["kind"]["until"]) {
                    (Value::Number(after), _) => Waits::For { after: after.as_u64().unwrap_or(0) },
                    (_, Value::Object(_)) => Waits::Until,
                    _ => Waits::Other,
                };
                (wait["number"].as_u64().unwrap_or(0) as u32, what)
            })
            .collect();
        Ok(())
    }

    fn wait_ended(&mut self, ended: &WaitEnded, aside: &Aside<'_>) -> Result<(), String> {
        let WaitEnded { run: position, wait, how, .. } = ended;
        let run = self.live.get_mut(position).ok_or(format!("a wait of run {position} ended after it"))?;
        let Some(what) = run.waits.remove(wait) else {
            if run.vague {
                return Ok(());
            }
            return Err(format!("wait {wait} of run {position} ended and was not open"));
        };
        let run = &self.live[position];
        match what {
            Waits::For { after } if *how == How::Timeout => match self.paid(run, after, aside) {
                Some(event) => Err(format!("run {position} gave up waiting for what had come at {event}")),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// An event that fits the `wait_for` of this run. What was erased or trimmed may fit no more.
    fn paid(&self, run: &Run, after: Position, aside: &Aside<'_>) -> Option<Position> {
        let (_, mine) = self.events.get(&run.event)?;
        let sound = |at: &Position| *at >= aside.first && !aside.erased.contains_key(at);
        let fits = |(at, (topic, k)): (&Position, &(String, Option<u64>))| {
            (topic == PAID && k == mine && k.is_some() && sound(at)).then_some(*at)
        };
        self.events.range(after + 1..).find_map(fits).filter(|_| sound(&run.event))
    }

    fn ended(&mut self, ended: &RunEnded, aside: &Aside<'_>) -> Result<(), String> {
        let position = ended.run;
        let run = self.live.remove(&position).ok_or(format!("run {position} ended and was not live"))?;
        let name = &run.automation;
        match ended.status {
            Status::Completed if name == "call" && !self.called.contains_key(&run.id) => {
                Err(format!("run {position} completed without its request"))
            }
            Status::Completed if run.said != 1 => {
                Err(format!("run {position} of {name} completed without its work"))
            }
            // What it read was erased, its own event or one that it had waited for.
            Status::Failed if ended.code.as_deref() == Some("event.erased") && !aside.erased.is_empty() => {
                Ok(())
            }
            // The one that it called was cancelled by a person.
            Status::Failed if name == "caller" && ended.code.as_deref() == Some("run.failed") => Ok(()),
            Status::Failed if name == BRIEF && ended.code.as_deref() == Some("run.timeout") => Ok(()),
            Status::Completed if name == BRIEF => {
                Err(format!("run {position} of {name} had no end but its timeout"))
            }
            Status::Failed if !aside.erased.contains_key(&run.event) => {
                Err(format!("run {position} of {name} failed: {:?} {:?}", ended.code, ended.message))
            }
            _ => Ok(()),
        }
    }

    /// What must hold between any two commits.
    fn check_commit(&mut self, commit: &[Found]) -> Result<(), String> {
        if let Some((name, owed)) = std::mem::take(&mut self.owed).into_iter().find(|(_, owed)| *owed != 0) {
            let what = if owed > 0 { "is said to run and does not start" } else { "starts undecided" };
            return Err(format!("{name} {what}"));
        }
        for one in commit {
            let Record::Event(event) = &one.record else { continue };
            let concerned = CONCERNED.iter().find(|(topic, _)| *topic == event.envelope.topic);
            for name in concerned.iter().flat_map(|(_, names)| names.iter()) {
                if !self.off.contains(*name) && !self.routed.contains(&(one.position, (*name).to_owned())) {
                    return Err(format!("the event at {} has no outcome for {name}", one.position));
                }
            }
        }
        for name in ALONE {
            let live = self.live.values().filter(|run| run.automation == name).count();
            if live > 1 {
                return Err(format!("{live} runs of {name} are live"));
            }
        }
        let is_so = self.sizes.get(HEALED.0).is_some_and(|size| *size == HEALED.1);
        let asleep = |run: &&Run| run.waits.values().any(|waits| matches!(waits, Waits::Until));
        match self.live.values().find(asleep).filter(|_| is_so) {
            Some(run) => Err(format!("run {} waits for what is already so", run.id)),
            None => Ok(()),
        }
    }

    /// A worker is given the request of a run.
    pub fn call(&mut self, run: &str, key: &str) -> Result<(), String> {
        if let Some((other, _)) = self.called.iter().find(|(other, used)| *other != run && *used == key) {
            return Err(format!("the requests of runs {other} and {run} have the key {key}"));
        }
        match self.called.entry(run.to_owned()).or_insert_with(|| key.to_owned()) {
            used if used == key => Ok(()),
            used => Err(format!("the request of run {run} is repeated under {key}, not {used}")),
        }
    }

    /// Live runs by id, each with the number of its open waits.
    pub fn live(&self) -> BTreeMap<String, usize> {
        self.live.values().map(|run| (run.id.clone(), run.waits.len())).collect()
    }

    /// The faults have stopped and time has passed: nothing is left.
    pub fn check_done(&self) -> Result<(), String> {
        if let Some((position, run)) = self.live.first_key_value() {
            return Err(format!("run {position} of {} never ends", run.automation));
        }
        match self.pending.first_key_value() {
            Some((id, (event, name))) => {
                Err(format!("occurrence {id:?} of event {event} for {name} stays pending"))
            }
            None => Ok(()),
        }
    }
}
