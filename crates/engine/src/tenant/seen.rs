//! A tenant as somebody sees it who may see only a part: what lies outside reads as what is not there.
//!
//! ```text
//!  an event            its space and band are among those of the token; acts of administration: it allows `admin`
//!  a run, a decision   the event that began it is seen; to who sees single spaces or bands, what no single event began is
//!                      not; a run that was told more on its way shows its outlines
//!  a task              its run is seen whole
//!  an automation       without how many runs it has, unless all that can begin one is seen
//!  a subscription      without the run that it started last, unless that is seen
//!  a group             read and pulled from when it may deliver something that is seen, and only that is handed out;
//!                      changed when everything that it may deliver is seen
//! ```
//! Nobody's position moves past an event that they were not given: what a narrow token passes over stays for the others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use model::event::Event;
use model::topic::is_engine;
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::runs::Bulk;
use super::search::Deferred;
use super::tasks::Taken;
use super::{DeadLetterPage, Explained, GroupView, Tenant};
use crate::authority::Sight;
use crate::decide::run::not_in_progress;
use crate::deliver::{Delivery, Most, Token};
use crate::history::read::Wanted;
use crate::run::band_of;

/// Decisions that are counted for who sees only a part.
const COUNTED_AT_ONCE: usize = 1_000;
const COUNTED_PAGES_MAX: usize = 10;

/// What is shown of the steps and waits of a run that was told what its reader may not see.
const OF_STEPS: [&str; 8] = ["path", "kind", "status", "attempts", "duration", "since", "id", "due"];
const OF_WAITS: [&str; 7] = ["id", "run", "automation", "kind", "since", "due", "step"];

/// How much of a run is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Much {
    Nothing,
    Outlines,
    All,
}

fn hide(of: &mut Value, name: &str) {
    drop(of.as_object_mut().map(|of| of.remove(name)));
}

fn keep(of: &mut Value, names: &[&str]) {
    if let Some(of) = of.as_object_mut() {
        of.retain(|name, _| names.contains(&name.as_str()));
    }
}

/// A tenant and how much of it is seen.
#[derive(Clone)]
pub struct Seen {
    tenant: Tenant,
    sight: Sight,
}

impl Tenant {
    pub fn seen_by(&self, sight: &Sight) -> Seen {
        Seen { tenant: self.clone(), sight: sight.clone() }
    }
}

impl Seen {
    /// One event, by its position or its id.
    pub fn event(&self, id: &str) -> Result<Arc<Event>, Problem> {
        self.tenant.event_that(id, &|event| self.sight.sees_event(event))
    }

    pub fn lineage(&self, id: &str) -> Result<String, Problem> {
        self.tenant.lineage_seen(id, &self.sight)
    }

    pub fn deferred(&self, limit: usize, cursor: Option<&str>) -> Result<Deferred, Problem> {
        self.tenant.deferred_seen(limit, cursor, &self.sight)
    }

    /// Runs that an event began which is seen.
    pub fn runs(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>), Problem> {
        let (mut runs, next) = self.tenant.runs(wanted)?;
        runs.retain(|run| self.sees_run(run));
        Ok((runs, next))
    }

    pub fn run(&self, id: &str) -> Result<Value, Problem> {
        let run = self.tenant.run(id)?;
        if !self.sees_run(&run) {
            return Err(super::history::no_run(id));
        }
        Ok(self.covered(run))
    }

    /// A run that is seen, its outlines only if it was told more than that on its way.
    pub fn covered(&self, mut run: Value) -> Value {
        if self.took_unseen(&run) {
            ["wait", "vars", "output", "error"].into_iter().for_each(|name| hide(&mut run, name));
            for (list, shown) in [("steps", &OF_STEPS[..]), ("waits", &OF_WAITS)] {
                let parts = run.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
                parts.for_each(|part| keep(part, shown));
            }
        }
        run
    }

    /// What a run was told on its way may have been another's; then whatever it made since may tell of it.
    fn took_unseen(&self, run: &Value) -> bool {
        let steps = run["steps"].as_array().into_iter().flatten();
        let unseen = |step: &Value| {
            let event = step["event"].as_u64().is_some_and(|event| !self.may_see_position(event, run));
            event || !self.sight.sees_band(band_of(step))
        };
        !self.sight.sees_all() && steps.into_iter().any(unseen)
    }

    /// Of an event that is gone nobody knows what it was: who sees every space and band is shown it unless it may have been an act.
    fn may_see_position(&self, event: Position, of: &Value) -> bool {
        match self.event(&event.to_string()) {
            Ok(_) => true,
            Err(problem) => {
                self.sight.is_whole()
                    && problem.code() == Code::EventGone
                    && !self.may_tell_acts(of["automation"].as_str().unwrap_or_default())
            }
        }
    }

    /// Whether runs of an automation may go back to acts that are not seen. One that is not there any more may have.
    fn may_tell_acts(&self, automation: &str) -> bool {
        let plain = || self.tenant.tell_no_acts().unwrap_or_default();
        !self.sight.administers() && !plain().contains(automation)
    }

    fn how_much_of(&self, run: &str) -> Much {
        match self.tenant.run(run) {
            Ok(run) if !self.sees_run(&run) => Much::Nothing,
            Ok(run) if self.took_unseen(&run) => Much::Outlines,
            Ok(_) => Much::All,
            Err(_) => Much::Nothing,
        }
    }

    /// Whether a run, as it is told, may be seen.
    pub fn sees_run(&self, run: &Value) -> bool {
        let event = run["occurrence"]["position"].as_u64().filter(|_| run["occurrence"]["kind"] == "event");
        // What the engine said, and wrote down, may tell of an act.
        let topic = run["triggered_by"].as_str().and_then(|by| by.strip_prefix("event:"));
        let told = topic.is_some_and(is_engine) && !self.sight.administers();
        let seen = || match self.sight.is_whole() {
            true => !told || event.is_none_or(|event| self.may_see_position(event, run)),
            false => event.is_some_and(|event| self.sees_position(event)),
        };
        self.sight.sees_begun(run) && seen()
    }

    /// As [`Tenant::runs_in_bulk`], of those that are seen.
    pub fn runs_in_bulk(&self, bulk: &Bulk) -> Result<Value, Problem> {
        self.tenant.in_bulk(bulk, self)
    }

    /// Whether a decision, as it is told, may be seen.
    pub fn sees_decision(&self, decision: &Value) -> bool {
        let event = decision["event"].as_u64();
        match self.sight.is_whole() {
            true => self.sight.administers() || !self.is_of_act(decision, event),
            false => event.is_some_and(|event| self.sees_position(event)),
        }
    }

    /// Whether a decision is about an act, or about what a run called that goes back to one.
    fn is_of_act(&self, decision: &Value, event: Option<Position>) -> bool {
        let name = |name: &str| decision[name].as_str().unwrap_or_default();
        // Most are by triggers that take no acts: nothing need be read for those.
        if self.tenant.takes_no_acts(name("automation"), name("version"), name("trigger")) {
            return false;
        }
        let run = decision["run"].as_str().map(|run| self.tenant.run(run));
        match (run, event) {
            (Some(Ok(run)), _) => !self.sight.sees_begun(&run),
            (_, Some(event)) => !self.may_see_position(event, decision),
            _ => false,
        }
    }

    fn sees_position(&self, position: Position) -> bool {
        position > 0 && self.event(&position.to_string()).is_ok()
    }

    pub fn waits(&self) -> Result<Vec<Value>, Problem> {
        let mut waits = self.tenant.waits()?;
        if !self.sight.sees_all() {
            let mut known: HashMap<String, Much> = HashMap::new();
            waits.retain_mut(|wait| {
                let run = wait["run"].as_str().unwrap_or_default().to_owned();
                let seen = known.entry(run).or_insert_with_key(|run| self.how_much_of(run));
                if *seen == Much::Outlines {
                    keep(wait, &OF_WAITS);
                }
                *seen != Much::Nothing
            });
        }
        Ok(waits)
    }

    /// Refuses a wait of a run that is not seen, as one that is not there.
    pub fn may_answer(&self, wait: &str) -> Result<(), Problem> {
        let (run, _) = super::runs::parts_of(wait)?;
        match self.sight.sees_all() || self.how_much_of(&run) != Much::Nothing {
            true => Ok(()),
            false => Err(not_in_progress(&run)),
        }
    }

    /// A task may quote all that its run was told: who sees single spaces or bands is shown none.
    pub fn tasks(&self) -> Result<Vec<Value>, Problem> {
        if !self.sight.is_whole() {
            return Ok(Vec::new());
        }
        let mut tasks = self.tenant.tasks()?;
        tasks.retain(|task| self.sees_tasks_of(task["run"].as_str().unwrap_or_default()));
        Ok(tasks)
    }

    /// As [`Tenant::take_tasks`], passing over what is not seen.
    pub fn take_tasks(&self, kinds: &[String], max: usize) -> Result<Taken, Problem> {
        self.tenant.take_tasks_seen(kinds, max, &self.sight)
    }

    fn sees_tasks_of(&self, run: &str) -> bool {
        self.sight.sees_all() || self.how_much_of(run) == Much::All
    }

    pub fn decisions(&self, wanted: &Wanted) -> Result<(Vec<Value>, Option<Position>), Problem> {
        let (mut decisions, next) = self.tenant.decisions(wanted)?;
        decisions.retain(|decision| self.sees_decision(decision));
        Ok((decisions, next))
    }

    pub fn explain_event(&self, id: &str) -> Result<Explained, Problem> {
        let event = self.event(id)?;
        let mut explained = self.tenant.explain_event(&event.position.to_string())?;
        if self.sight.sees_all() {
            return Ok(explained);
        }
        let told = &mut explained.told;
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if let Some(groups) = told["groups"].as_array_mut() {
            groups.retain(|group| self.is_shown(&text(group, "group")).is_ok());
        }
        if let Some(waits) = told["waits"].as_array_mut() {
            waits.retain(|wait| self.run(&text(wait, "run")).is_ok());
        }
        Ok(explained)
    }

    pub fn explain_automation(&self, name: &str, since: Option<Timestamp>) -> Result<Value, Problem> {
        let mut told = self.tenant.explain_automation(name, since)?;
        if let Some(recent) = told["recent"].as_array_mut() {
            recent.retain(|decision| self.sees_decision(decision));
        }
        if !self.sight.is_whole() || self.may_tell_acts(name) {
            told["counts"] = self.counted(name, since)?;
        }
        if let Some(nearest) = told["nearest"].as_array_mut().filter(|_| !self.sight.sees_all()) {
            nearest.retain(|near| near["position"].as_u64().is_some_and(|at| self.sees_position(at)));
        }
        Ok(told)
    }

    /// Outcomes and reasons of what is seen, as far as the newest of them go.
    fn counted(&self, name: &str, since: Option<Timestamp>) -> Result<Value, Problem> {
        let mut counts = json!({});
        let mut wanted =
            Wanted { automation: Some(name.to_owned()), since, limit: COUNTED_AT_ONCE, ..Wanted::default() };
        for _ in 0..COUNTED_PAGES_MAX {
            let (decisions, next) = self.decisions(&wanted)?;
            for decision in decisions {
                let outcome = decision["outcome"].as_str().unwrap_or_default();
                let count = &mut counts[outcome][decision["reason"].as_str().unwrap_or("-")];
                *count = (count.as_u64().unwrap_or(0) + 1).into();
            }
            wanted.before = next;
            if next.is_none() {
                break;
            }
        }
        Ok(counts)
    }

    pub fn explain_run(&self, id: &str) -> Result<Explained, Problem> {
        self.tenant.explain_run_seen(self.run(id)?, &self.sight)
    }

    pub fn automations(&self) -> Result<Vec<Value>, Problem> {
        let mut automations = self.tenant.automations()?;
        if !self.sight.sees_all() {
            let plain = self.tenant.tell_no_acts()?;
            automations.iter_mut().for_each(|automation| self.cover_unless(&plain, automation));
        }
        Ok(automations)
    }

    pub fn automation(&self, name: &str) -> Result<Value, Problem> {
        let mut automation = self.tenant.automation(name)?;
        self.cover_automation(&mut automation);
        Ok(automation)
    }

    /// How many runs there are tells of those that are not seen.
    pub fn cover_automation(&self, automation: &mut Value) {
        if !self.sight.sees_all() {
            self.cover_unless(&self.tenant.tell_no_acts().unwrap_or_default(), automation);
        }
    }

    fn cover_unless(&self, plain: &BTreeSet<String>, automation: &mut Value) {
        let shown =
            self.sight.administers() || plain.contains(automation["name"].as_str().unwrap_or_default());
        if !(self.sight.is_whole() && shown) {
            ["runs", "runs_total"].into_iter().for_each(|name| hide(automation, name));
        }
    }

    /// Which run a subscription started last, for who sees it.
    pub fn cover_subscription(&self, subscription: &mut Value) {
        let run = subscription["last"]["run"].as_str().unwrap_or_default();
        if !self.sight.sees_all() && self.run(run).is_err() {
            hide(subscription, "last");
        }
    }

    pub fn groups(&self) -> Result<Vec<GroupView>, Problem> {
        let mut groups = self.tenant.groups()?;
        groups.retain(|view| {
            self.sight.meets(&view.group.definition) && !self.is_of_others_push(&view.group.name)
        });
        groups.iter_mut().for_each(|view| self.cover(view));
        Ok(groups)
    }

    pub fn group(&self, name: &str) -> Result<GroupView, Problem> {
        self.is_shown(name)?;
        let mut view = self.tenant.group(name)?;
        self.cover(&mut view);
        Ok(view)
    }

    /// An error of a filter may tell what the event said.
    fn cover(&self, view: &mut GroupView) {
        if !self.sight.covers(&view.group.definition) {
            view.last_filter_error = None;
        }
    }

    /// The group of a push says what is sent where; that is for administrators, as the push is.
    fn is_of_others_push(&self, group: &str) -> bool {
        let push = group.strip_prefix("push-").filter(|_| !self.sight.administers());
        push.is_some_and(|push| self.tenant.shown_push(push).is_ok())
    }

    fn is_shown(&self, name: &str) -> Result<(), Problem> {
        if self.is_of_others_push(name) { Err(super::groups::no_group(name)) } else { self.may_read(name) }
    }

    /// Refuses a group that can deliver nothing that is seen, as one that is not there.
    pub fn may_read(&self, name: &str) -> Result<(), Problem> {
        if self.sight.is_whole() {
            return Ok(());
        }
        let handle = self.tenant.handle(name)?;
        let meets = self.sight.meets(&handle.dispatcher().group.definition);
        if meets { Ok(()) } else { Err(super::groups::no_group(name)) }
    }

    /// Refuses to change a group that may deliver more than is seen.
    pub fn may_change(&self, name: &str) -> Result<(), Problem> {
        if self.sight.sees_all() {
            return Ok(());
        }
        self.may_read(name)?;
        let covers = self.sight.covers(&self.tenant.handle(name)?.dispatcher().group.definition);
        if covers {
            return Ok(());
        }
        let detail = format!("group \"{name}\" delivers more than this token sees");
        Err(Problem::new(Code::AuthDenied, detail).hint("use a token that sees all of it"))
    }

    /// A definition as it is for who sees only a part; a group that is there already must be theirs.
    pub fn definition(&self, name: &str, said: Value) -> Result<Value, Problem> {
        if self.tenant.handle(name).is_ok() && self.may_change(name).is_err() {
            let detail = format!("group \"{name}\" delivers more than this token sees");
            return Err(Problem::new(Code::AuthDenied, detail).hint("choose another name"));
        }
        self.sight.narrowed(said)
    }

    /// As [`Tenant::pull`], passing over what is not seen.
    pub async fn pull(&self, name: &str, most: Most, wait: Duration) -> Result<Vec<Delivery>, Problem> {
        self.is_shown(name)?;
        self.tenant.pull_seen(name, most, wait, &self.sight).await
    }

    /// Returns deliveries that were not passed on: they are for the next who pulls, and no attempt is counted.
    pub fn give_back(&self, name: &str, deliveries: &[Delivery]) -> Result<(), Problem> {
        if !deliveries.is_empty() {
            self.tenant.give_back(name, deliveries)?;
            self.tenant.handle(name)?.call_one();
        }
        Ok(())
    }

    /// The tokens whose events are seen, and the others, which are as good as stale.
    pub fn own_tokens(&self, name: &str, tokens: Vec<String>) -> Result<(Vec<String>, Vec<String>), Problem> {
        if self.sight.sees_all() {
            return Ok((tokens, Vec::new()));
        }
        self.may_read(name)?;
        let handle = self.tenant.handle(name)?;
        let dispatcher = handle.dispatcher();
        let seen = |text: &String| {
            let held = Token::parse(text).and_then(|token| dispatcher.held(token, Timestamp::EPOCH));
            held.is_none_or(|(event, ..)| self.sight.sees_event(event))
        };
        Ok(tokens.into_iter().partition(seen))
    }

    pub fn dead_letters(
        &self,
        name: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<DeadLetterPage, Problem> {
        self.is_shown(name)?;
        let mut page = self.tenant.dead_letters(name, limit, cursor)?;
        if !self.sight.sees_all() {
            let letters =
                std::mem::take(&mut page.dead_letters).into_iter().zip(std::mem::take(&mut page.texts));
            let seen = letters.filter(|(letter, _)| self.sight.sees_told(&letter["event"]));
            (page.dead_letters, page.texts) = seen.unzip();
        }
        Ok(page)
    }
}
