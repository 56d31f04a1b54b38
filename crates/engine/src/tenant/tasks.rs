//! Tasks: effects that workers in other processes do, each under a lease that is memory (rules R11).
//!
//! ```text
//!  open ──poll──▶ held under a token ──complete, fail──▶ answered
//!    ▲                  │ no heartbeat for 30 s, and the token is stale
//!    └──────────────────┘ ten times in a row: the attempt fails as `task.lost`
//! ```
//! That a task was handed out is written before it is; who has it is not. After a restart whatever is open is handed out
//! again under the same key, and every token of before is stale: it names another epoch.
//!
//! Secrets in its input are put in when a worker takes it, as they are then, and taken out of what that worker says.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::record::How;
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};

use super::Tenant;
use super::audit::hearers::holds_act;
use super::entity::broken;
use crate::admit::Caller;
use crate::authority::Sight;
use crate::command::{Answer, Command, RunCommand};
use crate::deliver::lock;
use crate::effect::secret::Veil;
use crate::run::{Effect, Run, TASK, Wait, WaitId, WaitKind};
use crate::state::State;

/// How long a worker may be silent.
pub const LEASE: Duration = Duration::from_secs(30);
/// Workers that may be lost with one attempt.
const LOST_MAX: u32 = 10;
/// Hand-outs that are remembered for answers that come too late.
const GIVEN_MAX: usize = 10_000;

/// Names one hand-out of one attempt by one opening of the tenant: `epoch.run.wait.serial`, the epoch in hex.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Token {
    epoch: u64,
    id: WaitId,
    serial: u64,
}

impl Token {
    fn parse(text: &str) -> Option<Token> {
        let mut parts = text.split('.');
        let epoch = u64::from_str_radix(parts.next()?, 16).ok()?;
        let id = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let serial = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Token { epoch, id, serial })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}.{}", self.epoch, self.id.0, self.id.1, self.serial)
    }
}

/// Who has which task.
#[derive(Default)]
pub(crate) struct Leases {
    held: HashMap<WaitId, Lease>,
    serial: u64,
    /// What was handed out under which serial, until something was said too late under it.
    given: BTreeMap<u64, Given>,
    /// How many tasks had been asked for when that was last looked at.
    asked: u64,
}

struct Given {
    id: WaitId,
    /// The secrets that its worker was told, as they were then.
    veil: Option<Arc<Veil>>,
}

#[derive(Default)]
struct Lease {
    serial: u64,
    /// In the machine's time; `None`: it was given back.
    until: Option<Duration>,
    /// Its answer is on its way to the writer: nobody else gets it.
    answering: bool,
    /// How many had it before and were lost.
    lost: u32,
    /// What is told of it as a span when it ends: without its input, and since when.
    traced: Option<(Box<Effect>, Timestamp)>,
}

impl Lease {
    fn is_free(&self, now: Duration) -> bool {
        !self.answering && self.until.is_none_or(|until| until <= now)
    }
}

impl Leases {
    fn is_free(&self, id: WaitId, now: Duration) -> bool {
        self.held.get(&id).is_none_or(|lease| lease.is_free(now))
    }

    /// Leases it to the next worker: the serial of the token, and how many were lost with it before.
    fn take(&mut self, id: WaitId, now: Duration) -> (u64, u32) {
        self.serial += 1;
        self.given.insert(self.serial, Given { id, veil: None });
        if self.given.len() > GIVEN_MAX {
            self.given.pop_first();
        }
        let lease = self.held.entry(id).or_default();
        lease.lost += u32::from(lease.until.is_some());
        (lease.serial, lease.until) = (self.serial, Some(now + LEASE));
        (lease.serial, lease.lost)
    }

    /// Whether a token was really given out, and nothing was said too late under it before.
    fn was_given(&mut self, token: Token) -> bool {
        self.given(token).is_some() && self.given.remove(&token.serial).is_some()
    }

    fn given(&mut self, token: Token) -> Option<&mut Given> {
        self.given.get_mut(&token.serial).filter(|given| given.id == token.id)
    }

    /// The lease that a token stands for, while it does.
    fn current(&mut self, token: Token, now: Duration) -> Option<&mut Lease> {
        let lease = self.held.get_mut(&token.id)?;
        (lease.serial == token.serial && !lease.is_free(now) && !lease.answering).then_some(lease)
    }
}

/// A task in the hands of a worker.
pub struct Task {
    pub token: String,
    pub effect: Effect,
    pub attempt: u32,
    pub deadline: Timestamp,
    /// For what the worker asks of others.
    pub traceparent: Option<String>,
}

impl Task {
    pub fn kind(&self) -> &str {
        self.effect.with["task"].as_str().unwrap_or_default()
    }

    /// As contracts §11 tells it.
    pub fn to_json(&self) -> Value {
        let mut task = json!({
            "token": self.token, "run": self.effect.run_id, "step": self.effect.path, "kind": self.kind(),
            "input": self.effect.with["input"], "idempotency_key": self.effect.key,
            "attempt": self.attempt, "deadline": self.deadline,
        });
        if let Some(traceparent) = &self.traceparent {
            task["traceparent"] = traceparent.as_str().into();
        }
        task
    }
}

/// Tasks on their way to a worker; given back when the way ends early.
pub struct Taken {
    tenant: Tenant,
    tasks: Vec<Task>,
    /// When a lease that is held now may be over, if none was free.
    pub free_in: Option<Duration>,
}

impl Taken {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The worker has them.
    pub fn keep(mut self) -> Vec<Task> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut leases = lock(&self.tenant.0.outside.leases);
        for task in &self.tasks {
            if let Some(lease) = leases.held.get_mut(&task.effect.id()) {
                lease.until = None;
            }
        }
        drop(leases);
        if !self.tasks.is_empty() {
            self.tenant.0.outside.tasks.notify_waiters();
        }
    }
}

impl Tenant {
    /// Up to `max` tasks that nobody has, oldest run first, of these kinds or of all. That they were handed out is written
    /// first.
    pub fn take_tasks(&self, kinds: &[String], max: usize) -> Result<Taken, Problem> {
        self.take_tasks_seen(kinds, max, &Sight::default())
    }

    /// As [`Tenant::take_tasks`]; what goes back to an act of administration is for those who see it.
    pub(super) fn take_tasks_seen(
        &self,
        kinds: &[String],
        max: usize,
        sight: &Sight,
    ) -> Result<Taken, Problem> {
        let (now, deadline) = (self.real(), self.now().plus(LEASE));
        let mut taken = Taken { tenant: self.clone(), tasks: Vec::new(), free_in: None };
        let (mut unhanded, mut lost) = (Vec::new(), Vec::new());
        self.with_writer(|writer| {
            let mut leases = lock(&self.0.outside.leases);
            let seen = |id: &WaitId| {
                sight.administers()
                    || writer
                        .state
                        .run(id.0)
                        .is_ok_and(|run| run.is_none_or(|run| !holds_act(&writer.state, &run)))
            };
            for id in free(&writer.state, kinds, max, &|id| leases.is_free(*id, now) && seen(id)) {
                let Some(run) = writer.state.run(id.0).map_err(broken)? else { continue };
                let Some(wait) = run.wait(id.1) else { continue };
                let Some(effect) = Effect::of(&run, wait) else { continue };
                let read = match run.reads() {
                    0 => None,
                    position => writer.state.event(position).map_err(broken)?,
                };
                let effect = effect.traced(read.as_deref());
                let (serial, before) = leases.take(id, now);
                let token = Token { epoch: self.0.epoch, id, serial }.to_string();
                if before >= LOST_MAX {
                    lost.push(id);
                    continue;
                }
                if !is_handed(wait) {
                    unhanded.push(id);
                }
                let attempt = effect.attempt + crashes(wait) + before;
                let traceparent = self.traceparent_of(&effect);
                if let Some(lease) = leases.held.get_mut(&id).filter(|_| self.is_traced()) {
                    let told = Effect { with: Value::Null, ..effect.clone() };
                    lease.traced = Some((Box::new(told), self.now()));
                }
                taken.tasks.push(Task { token, effect, attempt, deadline, traceparent });
            }
            let until = leases.held.values().filter_map(|lease| lease.until).filter(|until| *until > now);
            taken.free_in = until.min().map(|until| until.saturating_sub(now));
            Ok(())
        })?;
        for id in lost {
            self.lose_task(id)?;
        }
        self.unveil(&mut taken.tasks)?;
        if !unhanded.is_empty() {
            self.ask_blocking(Command::Run(RunCommand::HandTasks { of: unhanded }))?;
        }
        Ok(taken)
    }

    /// Puts secrets into what workers are about to get. One that is not there fails its task.
    fn unveil(&self, tasks: &mut Vec<Task>) -> Result<(), Problem> {
        let mut failed = Vec::new();
        tasks.retain_mut(|task| {
            if task.effect.secrets.is_empty() {
                return true;
            }
            let veil = self.veil(&task.effect);
            match veil.and_then(|veil| Ok((veil.lift(&task.effect.with["input"])?, veil))) {
                Ok((input, veil)) => {
                    task.effect.with["input"] = input;
                    let token = Token::parse(&task.token);
                    let mut leases = lock(&self.0.outside.leases);
                    if let Some(given) = token.and_then(|token| leases.given(token)) {
                        given.veil = Some(Arc::new(veil));
                    }
                    true
                }
                Err(problem) => {
                    failed.push((task.effect.id(), problem));
                    false
                }
            }
        });
        for (id, problem) in failed {
            let (code, message) = (problem.code().as_str(), problem.detail());
            let error = json!({"code": code, "message": message, "class": "permanent"});
            self.metrics().automations.attempted(TASK, "permanent");
            self.ask_blocking(answer(id, How::Failed, error))?;
        }
        Ok(())
    }

    fn lose_task(&self, id: WaitId) -> Result<(), Problem> {
        let message = format!("{LOST_MAX} workers in a row had it and were not heard of again");
        let error = json!({"code": Code::TaskLost.as_str(), "message": message, "class": "transient"});
        self.metrics().automations.attempted(TASK, "transient");
        self.ask_blocking(answer(id, How::Failed, error)).map(drop)
    }

    /// Ready when a task was asked for that was not there before. To be waited for from before one looks.
    pub fn task_asked(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.outside.tasks.notified()
    }

    /// The worker is at it; until when it need not say so again.
    pub fn heartbeat_task(&self, token: &str) -> Result<Timestamp, Problem> {
        let now = self.real();
        let token = self.token_of(token)?;
        let mut leases = lock(&self.0.outside.leases);
        let lease = leases.current(token, now).ok_or_else(stale)?;
        lease.until = Some(now + LEASE);
        Ok(self.now().plus(LEASE))
    }

    /// The worker did it.
    pub async fn complete_task(&self, token: &str, output: Value) -> Result<(), Problem> {
        self.end_task(token, How::Done, output).await
    }

    /// The worker could not do it. `error` has `code` and `message`, and `class` when that is `budget`.
    pub async fn fail_task(&self, token: &str, mut error: Value, retryable: bool) -> Result<(), Problem> {
        if error["class"] != "budget" {
            error["class"] = if retryable { "transient" } else { "permanent" }.into();
        }
        self.end_task(token, How::Failed, error).await
    }

    /// One answer counts, of the one who has the task. One more of whoever had it is written down as late, at the tenant's
    /// expense; a token that was never given out leaves nothing.
    async fn end_task(&self, token: &str, how: How, value: Value) -> Result<(), Problem> {
        let token = self.token_of(token)?;
        let now = self.real();
        let (mine, told) = {
            let mut leases = lock(&self.0.outside.leases);
            let mine = leases.current(token, now).map(|lease| {
                lease.answering = true;
                lease.traced.take()
            });
            (mine, leases.given(token).map(|given| given.veil.clone()))
        };
        let value = match told {
            Some(Some(veil)) => veil.mask(value),
            Some(None) => value,
            // Nobody knows any more what its worker was told.
            None => self.veil_of_all()?.mask(value),
        };
        let Some(traced) = mine else {
            let (run, wait) = token.id;
            let given = lock(&self.0.outside.leases).was_given(token);
            if given && self.allow_events(&Caller::local(), 1).is_ok() {
                self.ask(Command::Run(RunCommand::Late { run, wait, how, value })).await?;
            }
            return Err(stale());
        };
        if let Some((effect, began)) = traced {
            self.trace_effect(&effect, began, how, &json!({"code": value["code"]}));
        }
        let _answering = Answering { tenant: self, token };
        let class = if how == How::Done { "ok" } else { value["class"].as_str().unwrap_or("permanent") };
        self.metrics().automations.attempted(TASK, class);
        match self.ask(answer(token.id, how, value)).await? {
            Answer::Output(Value::Bool(true)) => Ok(()),
            _ => Err(stale()),
        }
    }

    fn token_of(&self, text: &str) -> Result<Token, Problem> {
        Token::parse(text).filter(|token| token.epoch == self.0.epoch).ok_or_else(stale)
    }

    /// Every open task and who has it, oldest run first.
    pub fn tasks(&self) -> Result<Vec<Value>, Problem> {
        let (now, moment) = (self.real(), self.now());
        self.with_writer(|writer| {
            let leases = lock(&self.0.outside.leases);
            let mut shown = Vec::new();
            for id in &writer.state.runs.wakes.effects {
                let Some(run) = writer.state.run(id.0).map_err(broken)? else { continue };
                let held = leases.held.get(id).filter(|lease| !lease.is_free(now));
                let until = held.and_then(|lease| lease.until).map(|until| until.saturating_sub(now));
                let lost = leases.held.get(id).map_or(0, |lease| lease.lost);
                shown.extend(run.wait(id.1).and_then(|wait| {
                    let mut task = shown_task(&run, wait, lost, held.is_some())?;
                    if let Some(left) = until {
                        task["deadline"] = json!(moment.plus(left));
                    }
                    Some(task)
                }));
            }
            Ok(shown)
        })
    }

    pub(super) fn holds_leases(&self) -> bool {
        let now = self.real();
        lock(&self.0.outside.leases).held.values().any(|lease| !lease.is_free(now))
    }

    /// After a batch: who waits for tasks is called, and what nobody waits for any more is nobody's.
    pub(super) fn note_tasks(&self, state: &State) {
        let wakes = &state.runs.wakes;
        let mut leases = lock(&self.0.outside.leases);
        if !leases.held.is_empty() {
            leases.held.retain(|id, _| wakes.effects.contains(id));
        }
        let asked = wakes.tasks_asked != leases.asked;
        leases.asked = wakes.tasks_asked;
        drop(leases);
        if asked {
            self.0.outside.tasks.notify_waiters();
        }
    }
}

/// An answer on its way to the writer. If it does not get there, the task is still the worker's.
struct Answering<'a> {
    tenant: &'a Tenant,
    token: Token,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut leases = lock(&self.tenant.0.outside.leases);
        let lease = leases.held.get_mut(&self.token.id).filter(|lease| lease.serial == self.token.serial);
        if let Some(lease) = lease {
            lease.answering = false;
        }
    }
}

fn free(state: &State, kinds: &[String], max: usize, is_free: &dyn Fn(&WaitId) -> bool) -> Vec<WaitId> {
    let wanted = state.runs.wakes.tasks.iter().filter(|(kind, _)| kinds.is_empty() || kinds.contains(kind));
    let of_kind = |(_, open): (_, &std::collections::BTreeSet<WaitId>)| {
        open.iter().copied().filter(is_free).take(max).collect::<Vec<_>>()
    };
    let mut free: Vec<WaitId> = wanted.flat_map(of_kind).collect();
    free.sort_unstable();
    free.truncate(max);
    free
}

fn is_handed(wait: &Wait) -> bool {
    matches!(&wait.kind, WaitKind::Effect(request) if request.handed)
}

/// A crash while a worker had it is an attempt, and never a failure (rules R11).
fn crashes(wait: &Wait) -> u32 {
    match &wait.kind {
        WaitKind::Effect(request) => request.crashes,
        _ => 0,
    }
}

fn shown_task(run: &Run, wait: &Wait, lost: u32, held: bool) -> Option<Value> {
    let WaitKind::Effect(request) = &wait.kind else { return None };
    let state = match (request.is_quarantined(), held) {
        (true, _) => "quarantined",
        (false, true) => "held",
        (false, false) => "ready",
    };
    Some(json!({
        "id": format!("{}.{}", run.id, wait.number), "run": run.id, "automation": run.automation,
        "step": wait.path, "kind": request.task()?, "input": request.with["input"],
        "idempotency_key": request.key, "attempt": request.attempt + request.crashes + lost, "since": wait.since,
        "state": state,
    }))
}

fn answer((run, wait): WaitId, how: How, value: Value) -> Command {
    Command::Run(RunCommand::EffectDone { run, wait, how, value })
}

fn stale() -> Problem {
    Problem::new(
        Code::TaskStale,
        "this token is good no more: the task was answered, given up, or is another's",
    )
    .hint("stop working on it; heartbeat at least every 30 s, and poll for the next")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_other_texts_are_none() {
        let token = Token { epoch: u64::MAX, id: (42, 3), serial: 7 };
        assert!(Token::parse(&token.to_string()) == Some(token));
        for text in ["", ".", "1.2.3", "1.2.3.4.5", "x.2.3.4", "1.-2.3.4", "1..3.4"] {
            assert!(Token::parse(text).is_none(), "{text}");
        }
    }
}
