//! What happened, asked of a tenant: runs, decisions, and why an event or an automation did or did not do something.

pub mod changes;
mod near;
mod why;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use model::event::Event;
use model::record::{Record, RunRecord, Status, WaitEnded};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use self::why::why_not_then;
pub(super) use self::why::{read_by_condition, why_not};
use super::Tenant;
use super::entity::broken;
use crate::apply::Place;
use crate::authority::Sight;
use crate::automation::Automation;
use crate::deliver::lock;
use crate::history::History;
use crate::history::read::Wanted;
use crate::pool::Bell;
use crate::read;
use crate::state::run::Pending;

/// Records that wait for being folded before somebody who writes does it, too.
const QUEUE_MAX: usize = 65_536;
/// Records for which room is kept.
const SPARE_MAX: usize = 8_192;
/// Runs and decisions that are forgotten in one transaction.
const DROPPED_AT_ONCE: usize = 1_000;

/// Of an event that would be an occurrence.
const MATCHES: &str = "matches";

/// The history, and what was committed but is not in it yet. Locked in this order, and the queue only for a moment: the
/// writer adds to it.
#[derive(Default)]
pub struct Past {
    history: Mutex<Option<History>>,
    queue: Mutex<Queue>,
    /// Who folds when there is time; without one, the tick does.
    historian: OnceLock<Arc<Bell>>,
}

#[derive(Default)]
struct Queue {
    records: Vec<(Place, RunRecord)>,
    /// The room of the last ones: a list that grows from nothing is copied again and again.
    spare: Vec<(Place, RunRecord)>,
    /// Records after this position come through the queue, those before from the ledger.
    after: Position,
}

impl Past {
    pub fn after(head: Position) -> Past {
        Past { queue: Mutex::new(Queue { after: head, ..Queue::default() }), ..Past::default() }
    }
}

impl Queue {
    fn take(&mut self) -> Vec<(Place, RunRecord)> {
        std::mem::replace(&mut self.records, std::mem::take(&mut self.spare))
    }

    /// No more room is kept than these needed.
    fn give_back(&mut self, mut room: Vec<(Place, RunRecord)>) {
        let needed = room.len().min(SPARE_MAX);
        room.clear();
        room.shrink_to(needed);
        self.spare = room;
    }
}

impl Tenant {
    /// A record of a run was committed.
    pub(super) fn remember(&self, place: Place, record: RunRecord) {
        let mut queue = lock(&self.0.past.queue);
        queue.records.push((place, record));
        if queue.records.len() == 1 {
            self.flush_in(crate::writer::STATE_OPEN_MAX);
        }
    }

    /// Folds what waits; called when there is time, and by writers when too much waits.
    pub(super) fn fold_history(&self, through: Position) {
        if let Err(problem) = self.with_history_at(through, |_| Ok(())) {
            tracing::error!(tenant = self.name(), %problem, "the history cannot be written");
        }
    }

    pub(super) fn history_is_long(&self) -> bool {
        lock(&self.0.past.queue).records.len() >= QUEUE_MAX
    }

    pub(super) fn history_waits(&self) -> bool {
        !lock(&self.0.past.queue).records.is_empty()
    }

    /// Somebody with a thread of its own folds from now on.
    pub(crate) fn has_historian(&self, bell: Arc<Bell>) {
        _ = self.0.past.historian.set(bell);
    }

    /// Something is to be done beside the writer: now, when somebody has a thread for it, else with the next tick.
    pub(super) fn call_historian(&self) {
        match self.0.past.historian.get() {
            Some(bell) => bell.ring(),
            None => self.flush_in(Duration::ZERO),
        }
    }

    /// There is time for what is done beside the writer, here or by the historian.
    pub(super) fn tick_beside(&self) {
        match self.0.past.historian.get() {
            Some(bell) if self.history_waits() || self.has_looks() => bell.ring(),
            Some(_) => {}
            None => self.work_beside(),
        }
    }

    /// Looks back where a wait has to, and folds what runs did.
    pub(crate) fn work_beside(&self) {
        // A closed one may be open again elsewhere, on the same files.
        if self.is_closing() {
            return;
        }
        if self.has_looks() {
            self.look_back();
        }
        if self.history_waits() {
            self.fold_history(self.head());
        }
    }

    /// Puts a copy beside a backup's ledger. It may know less than that, never more; the rest is read from there.
    pub(crate) fn copy_history(&self, to: &std::path::Path) -> Result<(), Problem> {
        self.with_history(|history| history.copy_to(to).map_err(broken))
    }

    /// Forgets what ended longer ago than is kept, in small pieces.
    pub(crate) fn trim_history(&self) -> Result<(), Problem> {
        let before = self.moment().now.minus(self.settings().history);
        while self.with_history(|history| history.drop_before(before, DROPPED_AT_ONCE).map_err(broken))? {}
        Ok(())
    }

    /// A look at the history, everything answered so far among it.
    pub(crate) fn with_history<T>(
        &self,
        look: impl FnOnce(&History) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.with_history_at(self.head(), look)
    }

    fn with_history_at<T>(
        &self,
        through: Position,
        look: impl FnOnce(&History) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let mut slot = lock(&self.0.past.history);
        if slot.is_none() {
            let after = lock(&self.0.past.queue).after;
            *slot = Some(self.open_history(after)?);
        }
        let Some(history) = slot.as_mut() else { return Err(super::closing()) };
        let records = lock(&self.0.past.queue).take();
        let last = records.last().map_or(0, |(place, _)| place.position);
        let through = through.max(last).max(history.position);
        if let Err(fault) = history.fold(&records, through) {
            // What was taken is read again from the ledger.
            lock(&self.0.past.queue).after = through;
            *slot = None;
            return Err(broken(fault));
        }
        self.tell_ends(history, &records);
        lock(&self.0.past.queue).give_back(records);
        look(history)
    }

    /// A line for each run that ended; beside the writer, who waits for no log.
    fn tell_ends(&self, history: &History, records: &[(Place, RunRecord)]) {
        for (_, record) in records {
            let RunRecord::Ended(ended) = record else { continue };
            let failed = ended.status == Status::Failed;
            if !failed && !tracing::enabled!(tracing::Level::DEBUG) {
                continue;
            }
            let Ok(Some((run_id, automation))) = history.run_at(ended.run) else { continue };
            let (tenant, code) = (self.name(), ended.code.as_deref().unwrap_or_default());
            match failed {
                true => tracing::info!(tenant, run_id, automation, code, "a run failed"),
                false => {
                    tracing::debug!(
                        tenant,
                        run_id,
                        automation,
                        status = ended.status.as_str(),
                        "a run ended"
                    );
                }
            }
        }
    }

    /// Opens it and reads from the ledger what came before the queue began.
    fn open_history(&self, through: Position) -> Result<History, Problem> {
        let path = self.dir().map(|dir| dir.join("history.db"));
        let mut history = History::open(path.as_deref()).map_err(broken)?;
        if history.position > self.head() {
            // It tells of another ledger than this one.
            history.clear().map_err(broken)?;
        }
        let mut next = (history.position + 1).max(self.first());
        let mut bytes = Vec::new();
        while next <= through {
            let mut records = Vec::new();
            let end = self.with_reader(|reader| {
                let end = reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem)?;
                read::records(&bytes, next, |place, record| {
                    // What was written since comes through the queue, and is told once.
                    if let (Record::Run(record), true) = (record, place.position <= through) {
                        records.push((place, record));
                    }
                    Ok(())
                })?;
                Ok(end)
            })?;
            history.fold(&records, end.next.saturating_sub(1).min(through)).map_err(broken)?;
            next = end.next.max(next + 1);
        }
        Ok(history)
    }

    /// What was erased from the ledger is erased here too, and from its log.
    pub(crate) fn erase_history(&self, erased: &BTreeSet<Position>) -> Result<(), Problem> {
        self.with_history(|history| history.erase(erased).map_err(broken))
    }

    /// Runs, newest first, without their steps; where to go on when there are more.
    pub fn runs(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>), Problem> {
        // Before the others: one that begins meanwhile is then seen twice rather than never.
        let mut queued = self.queued_runs(wanted)?;
        let (mut runs, mut next) = self.with_history(|history| history.runs(wanted).map_err(broken))?;
        let limit = wanted.limit.clamp(1, 1_000);
        queued.retain(|run| next.is_none_or(|last| place_of(run) >= last));
        queued.retain(|run| !runs.iter().any(|begun| begun["id"] == run["id"]));
        if !queued.is_empty() {
            runs.extend(queued);
            runs.sort_by_key(|run| std::cmp::Reverse(place_of(run)));
            // Several may stand at one place: a page ends between two places.
            let last = runs.get(limit.min(runs.len()) - 1).map(place_of);
            let end = runs.partition_point(|run| Some(place_of(run)) >= last);
            next = if end < runs.len() { last } else { next };
            runs.truncate(end);
        }
        for run in &mut runs {
            run.as_object_mut().map(|run| run.remove("position"));
        }
        Ok((runs, next))
    }

    /// Runs that have a place in a queue and have not begun.
    fn queued_runs(&self, wanted: &Wanted) -> Result<Vec<Value>, Problem> {
        if wanted.status.as_deref().is_some_and(|status| status != "queued") || wanted.event.is_some() {
            return Ok(Vec::new());
        }
        let on_page = |at: Position| wanted.before.is_none_or(|before| at < before);
        let is_wanted = |pending: &Pending| {
            wanted.automation.as_ref().is_none_or(|name| pending.automation == *name)
                && wanted.since.is_none_or(|since| pending.since >= since)
        };
        self.with_writer(|writer| {
            let all =
                writer.state.pending().iter().filter(|(id, pending)| on_page(id.0) && is_wanted(pending));
            Ok(all
                .filter_map(|(id, pending)| super::runs::queued_json(&writer.state, *id, pending))
                .collect())
        })
    }

    /// One run with its steps and, while it is live, its waits.
    pub fn run(&self, id: &str) -> Result<Value, Problem> {
        let queued = self.with_writer(|writer| {
            let queued = writer.state.queued(id);
            Ok(queued.and_then(|(of, pending)| super::runs::queued_json(&writer.state, *of, pending)))
        })?;
        if let Some(mut run) = queued {
            (run["steps"], run["waits"]) = (json!([]), json!([]));
            return Ok(run);
        }
        let found = self.with_history(|history| history.run(id).map_err(broken))?;
        let Some(mut run) = found else {
            return Err(no_run(id));
        };
        let live = self.with_writer(|writer| {
            let position = writer.state.runs.position_of(id);
            let mut live =
                position.map_or(Ok(None), |position| writer.state.run(position).map_err(broken))?;
            live.iter_mut().for_each(|live| writer.state.tell_dues(live, &OnceCell::new()));
            Ok(live)
        })?;
        run["waits"] = json!([]);
        if let Some(live) = live {
            for step in super::runs::waiting_steps(&live) {
                let Value::Array(steps) = &mut run["steps"] else { continue };
                // One that is tried again was told of before.
                match steps.iter_mut().find(|told| told["path"] == step["path"]) {
                    Some(told) => told["status"] = "waiting".into(),
                    None => steps.push(step),
                }
            }
            let mut live = super::runs::run_json(&live);
            for name in ["waits", "vars", "wait", "status"] {
                run[name] = live[name].take();
            }
        }
        if let Value::Object(run) = &mut run {
            run.retain(|_, value| !value.is_null());
        }
        Ok(run)
    }

    pub fn decisions(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>), Problem> {
        let (mut decisions, next) = self.written_decisions(wanted)?;
        self.with_reads(&mut decisions)?;
        Ok((decisions, next))
    }

    /// Decisions as they were written down.
    fn written_decisions(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>), Problem> {
        self.with_history(|history| {
            let (decisions, next) = history.decisions(wanted).map_err(broken)?;
            let shown = decisions.into_iter().map(|decision| history.with_taker(decision).map_err(broken));
            Ok((shown.collect::<Result<_, _>>()?, next))
        })
    }

    /// What an event did and did not start, and which groups it is for (contracts §12).
    pub fn explain_event(&self, id: &str) -> Result<Explained, Problem> {
        let event = self.event(id)?;
        let wanted = Wanted { event: Some(event.position), limit: 1_000, ..Wanted::default() };
        let (mut decisions, _) = self.decisions(&wanted)?;
        decisions.reverse();
        let value = event.to_value();
        let others = self.with_writer(|writer| {
            let told = |name: &str| decisions.iter().any(|decision| decision["automation"] == name);
            let all = writer.state.catalog.automations.all().filter(|automation| !told(automation.name()));
            all.map(|automation| why_not_then(&writer.state, automation, &event, &value))
                .collect::<Result<Vec<_>, _>>()
        })?;
        decisions.extend(others);
        let (waits, groups) = (self.explain_waits(event.position)?, self.explain_groups(&event));
        let told = json!({"automations": decisions, "waits": waits, "groups": groups});
        Ok(Explained { told, quoted: Some(("event", event.to_json())) })
    }

    /// The waits that ended in the commit of an event, because of it.
    fn explain_waits(&self, position: Position) -> Result<Vec<Value>, Problem> {
        let ended = self.with_reader(|reader| read::waits_ended_by(reader, position))?;
        let mut shown = Vec::new();
        for WaitEnded { run, wait, how, .. } in ended {
            let run = self.with_history(|history| history.run_at(run).map_err(broken))?;
            let shown_one = |(id, automation): (String, String)| json!({"id": format!("{id}.{wait}"), "run": id, "automation": automation, "how": how});
            shown.extend(run.map(shown_one));
        }
        Ok(shown)
    }

    fn explain_groups(&self, event: &Arc<Event>) -> Vec<Value> {
        let handles = self.registry().all();
        let shown = handles.iter().map(|handle| {
            let is_dead =
                self.with_writer(|writer| writer.state.is_dead(&handle.name, event.position).map_err(broken));
            let dispatcher = handle.dispatcher();
            let state = match (dispatcher.state_of(event), is_dead) {
                ("filtered", _) => "filtered",
                (_, Ok(true)) => "dead",
                (state, _) => state,
            };
            let mut told = json!({"group": handle.name, "matched": state != "filtered", "state": state});
            if let Some((reason, error)) = dispatcher.why_not(event) {
                told["reason"] = reason.into();
                error.into_iter().for_each(|error| told["error"] = error.into());
            } else if state == "ready" && dispatcher.group.paused {
                told["reason"] = "paused".into();
            } else if state == "ready" && dispatcher.group.halted_on > 0 {
                told["reason"] = "halted".into();
            }
            told
        });
        shown.collect()
    }

    /// Why an automation ran or did not: counts, the newest decisions, what nearly matched, what comes next.
    pub fn explain_automation(&self, name: &str, since: Option<Timestamp>) -> Result<Value, Problem> {
        let now = self.moment().now;
        let (automation, enabled, paused, next, reason) = self.with_writer(|writer| {
            let (state, automation) = (&writer.state, writer.state.catalog.automations.named(name)?);
            let next = super::runs::coming::instants(state, automation, now, 5);
            let reason = state.setting(name).and_then(|set| set.reason.clone());
            Ok((automation.clone(), state.is_enabled(automation), state.is_paused(name), next, reason))
        })?;
        let wanted = Wanted { automation: Some(name.to_owned()), since, limit: 20, ..Wanted::default() };
        let (recent, _) = self.decisions(&wanted)?;
        let counts = self.with_history(|history| history.counts(name, since).map_err(broken))?;
        let nearest = self.nearest(&automation)?;
        let mut explained = json!({
            "automation": name, "enabled": enabled, "paused": paused, "counts": counts, "recent": recent, "nearest": nearest,
            "next": next, "stopped": stopped(&automation),
        });
        if let Some(reason) = reason {
            explained["reason"] = reason.into();
        }
        Ok(explained)
    }

    /// A run, the decision that let it start, and what led to what.
    pub fn explain_run(&self, id: &str) -> Result<Explained, Problem> {
        self.explain_run_seen(self.run(id)?, &Sight::default())
    }

    pub(super) fn explain_run_seen(&self, run: Value, sight: &Sight) -> Result<Explained, Problem> {
        let wanted = Wanted {
            automation: run["automation"].as_str().map(str::to_owned),
            limit: 1_000,
            ..Wanted::default()
        };
        let (decisions, _) = self.written_decisions(&wanted)?;
        // Not one that was merged into it.
        let let_start = |decision: &Value| decision["run"] == run["id"] && decision["outcome"] != "merged";
        let decision = decisions.into_iter().find(let_start);
        let quoted = self.lineage_of_run(&run, sight)?.map(|text| ("lineage", text));
        let mut told = json!({ "run": run });
        decision.into_iter().for_each(|decision| told["decision"] = decision);
        Ok(Explained { told, quoted })
    }
}

/// Why something happened or did not.
pub struct Explained {
    /// An object that has something in it.
    pub told: Value,
    /// The member with events in it, as text: payloads keep every digit.
    quoted: Option<(&'static str, String)>,
}

impl Explained {
    pub fn to_json(&self) -> String {
        let told = self.told.to_string();
        match &self.quoted {
            Some((name, text)) => format!("{{\"{name}\":{text},{}", &told[1..]),
            None => told,
        }
    }
}

impl From<Value> for Explained {
    fn from(told: Value) -> Explained {
        Explained { told, quoted: None }
    }
}

pub(super) fn no_run(id: &str) -> Problem {
    Problem::new(Code::RunNotFound, format!("there is no run \"{id}\""))
        .hint("`everwhen runs list` shows runs")
}

fn place_of(run: &Value) -> Position {
    run["position"].as_u64().unwrap_or(0)
}

/// How many events were none of its occurrences though their topic was right, since the process began.
fn stopped(automation: &Automation) -> Value {
    let sum = |of: fn(&crate::automation::Stopped) -> &AtomicU64| -> u64 {
        automation.triggers.iter().map(|trigger| of(&trigger.stopped).load(Ordering::Relaxed)).sum()
    };
    json!({"disabled": sum(|stopped| &stopped.disabled), "filtered": sum(|stopped| &stopped.filtered)})
}
