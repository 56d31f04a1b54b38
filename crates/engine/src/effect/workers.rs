//! Those who make the requests of runs: a few at a time, schedules beside the rest, each answer a command to the writer.
//!
//! Who works on what is known in memory only. After a restart whatever is open is handed out again under the same key.

#![expect(clippy::disallowed_methods, reason = "an answer that finds the disk full waits for room")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::record::How;
use model::{Code, Problem};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::guard::Guard;
use super::http::{Answer, Http, Request};
use super::push::Senders;
use super::secret::Veil;
use super::{Class, Failure};
use crate::declared;
use crate::pool::Bell;
use crate::run::Effect;
use crate::settings::Effects;
use crate::tenant::Tenant;

/// How soon an answer is told again that could not be written down.
const AGAIN: Duration = Duration::from_secs(1);
/// How much of a refusal is repeated to people.
const EXCERPT: usize = 200;

pub(crate) struct Workers {
    http: Arc<Http>,
    /// Beside the requests of runs: those who post events to others.
    pub(crate) senders: Arc<Senders>,
    timeout: Duration,
    most: [usize; 2],
    /// How many are at work, of events and of schedules.
    busy: watch::Sender<[usize; 2]>,
    /// Rung when there is room again.
    bell: Arc<Bell>,
    /// The engine is gone, and with it the right to write.
    abandoned: AtomicBool,
}

impl Workers {
    pub(crate) fn new(settings: &Effects, bell: Arc<Bell>) -> Result<Arc<Workers>, Problem> {
        let guard = Guard::parse(settings.allow.iter().map(String::as_str))?;
        let http = Arc::new(Http::new(guard, settings.ca_file.as_ref())?);
        Ok(Arc::new(Workers {
            senders: Senders::new(http.clone()),
            http,
            timeout: settings.timeout,
            most: [settings.workers, settings.scheduled_workers],
            busy: watch::Sender::new([0, 0]),
            bell,
            abandoned: AtomicBool::new(false),
        }))
    }

    /// How many more could begin now.
    pub(crate) fn room(&self) -> [usize; 2] {
        let busy = *self.busy.borrow();
        [0, 1].map(|lane| self.most[lane].saturating_sub(busy[lane]))
    }

    pub(crate) fn begin(self: &Arc<Self>, tenant: Tenant, effect: Effect) {
        let (workers, lane) = (self.clone(), usize::from(effect.scheduled));
        self.busy.send_modify(|busy| busy[lane] += 1);
        self.http.runtime().spawn(async move {
            workers.work(&tenant, Arc::new(effect)).await;
            workers.busy.send_modify(|busy| busy[lane] -= 1);
            workers.bell.ring();
        });
    }

    /// No answer is recorded from here on.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.senders.abandon();
    }

    /// Waits until nobody works, at most so long.
    pub(crate) async fn finish(&self, most: Duration) {
        let mut busy = self.busy.subscribe();
        let idle = async move { busy.wait_for(|busy| *busy == [0, 0]).await.map(drop) };
        // Here, because whoever closes the engine may have no timers.
        let _ = self.http.runtime().spawn(tokio::time::timeout(most, idle)).await;
    }

    async fn work(self: &Arc<Self>, tenant: &Tenant, effect: Arc<Effect>) {
        let began = tenant.now();
        let (workers, asked, of) = (self.clone(), effect.clone(), tenant.clone());
        let task = match effect.kind == declared::DETACHED {
            true => self.http.runtime().spawn_blocking(move || of.answer_query(&asked)),
            false => self.http.runtime().spawn(async move { workers.veiled(of, asked).await }),
        };
        tenant.effect_is_out(&effect, task.abort_handle());
        let made = task.await;
        tenant.effect_is_back(&effect);
        if self.abandoned.load(Ordering::Acquire) {
            return;
        }
        let (how, value) = match made {
            Ok(made) => made,
            // It stays open, and is handed out again when the tenant is.
            Err(_) if tenant.is_closing() => return,
            Err(ended) if ended.is_cancelled() => {
                failed(Code::EffectStopped.as_str(), "nobody waits for it", "permanent")
            }
            Err(_) => failed(Code::Internal.as_str(), "the worker died", "transient"),
        };
        tenant.trace_effect(&effect, began, how, &value);
        tell(tenant, &effect, &value);
        answer(tenant, &effect, how, value).await;
    }

    /// Makes the request with the secrets as they are now. Nothing of them leaves here but to the one who was asked.
    async fn veiled(&self, tenant: Tenant, effect: Arc<Effect>) -> (How, Value) {
        let of = effect.clone();
        let traceparent = tenant.traceparent_of(&effect);
        // Reading rows may block.
        let veil = match effect.secrets.is_empty() {
            true => Veil::new(&effect.secrets, |_| Ok(None)),
            false => match self.http.runtime().spawn_blocking(move || tenant.veil(&of)).await {
                Ok(veil) => veil,
                Err(_) => return failed(Code::Internal.as_str(), "the worker died", "transient"),
            },
        };
        let lifted = veil.and_then(|veil| Ok((veil.lift(&effect.with)?, veil)));
        match lifted {
            Ok((with, veil)) => {
                let mut asked = self.request(&effect, &with);
                asked.trace(traceparent);
                let (how, value) = self.perform(&asked, effect.once, &veil).await;
                (how, veil.mask(value))
            }
            Err(problem) => failed(problem.code().as_str(), problem.detail(), Class::Permanent.as_str()),
        }
    }

    async fn perform(&self, asked: &Request, once: bool, veil: &Veil) -> (How, Value) {
        let (failure, more) = match self.http.sent(asked).await {
            Ok(answer) => match answer.failure() {
                None => return (How::Done, output(&answer)),
                // Masked before it is cut: half a secret would not be found.
                Some(failure) => (failure, excerpt(&veil.mask_text(&String::from_utf8_lossy(&answer.body)))),
            },
            Err(failure) => (failure, None),
        };
        let Failure { class, problem, sent } = failure;
        // A run shows one line; what to do about a refusal is in it.
        let more = more.or_else(|| {
            problem.hint_text().filter(|_| problem.code() == Code::HttpRefused).map(str::to_owned)
        });
        let message = match more {
            Some(more) => format!("{}: {more}", problem.detail()),
            None => problem.detail().to_owned(),
        };
        let answered = problem.code() == Code::HttpStatus;
        match once && sent && !answered {
            true => failed(Code::EffectUnknown.as_str(), &message, Class::Permanent.as_str()),
            false => failed(problem.code().as_str(), &message, class.as_str()),
        }
    }

    fn request(&self, effect: &Effect, with: &Value) -> Request {
        let text = |name: &str| with[name].as_str().unwrap_or_default().to_owned();
        let timeout = with["timeout"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let mut headers: Vec<(String, String)> = with["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect();
        let body = match &with["body"] {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            json => {
                if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                    headers.push(("content-type".to_owned(), "application/json".to_owned()));
                }
                json.to_string().into_bytes()
            }
        };
        Request {
            method: text("method"),
            url: text("url"),
            headers,
            body,
            timeout: timeout.unwrap_or(self.timeout),
            idempotency_key: Some(key_of(effect)),
        }
    }
}

/// One key over every attempt and every life of the process.
fn key_of(effect: &Effect) -> String {
    match crate::faults::planted("key_per_life") {
        true => format!("{}-{}", effect.key, std::process::id()),
        false => effect.key.clone(),
    }
}

/// A line for each attempt, and none of what was sent or came back.
fn tell(tenant: &Tenant, effect: &Effect, value: &Value) {
    let Effect { run_id, automation, path, kind, attempt, .. } = effect;
    let (tenant, code) = (tenant.name(), value["code"].as_str().unwrap_or("ok"));
    tracing::debug!(tenant, run_id, automation, path, kind, attempt, code, "an effect was tried");
}

/// Tells the writer, however long that takes: what happened outside is not to be forgotten for want of room.
async fn answer(tenant: &Tenant, effect: &Effect, how: How, value: Value) {
    while let Err(problem) = tenant.effect_ended(effect, how, value.clone()).await {
        if problem.code() != Code::StorageFull || tenant.is_closing() {
            let (tenant, run_id) = (tenant.name(), effect.run_id.as_str());
            tracing::warn!(tenant, run_id, %problem, "the answer of an effect was not recorded");
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn failed(code: &str, message: &str, class: &str) -> (How, Value) {
    (How::Failed, json!({"code": code, "message": message, "class": class}))
}

/// The step's output: `status`, `headers` by their names in lower case, and `body`, read if it is JSON.
fn output(answer: &Answer) -> Value {
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in &answer.headers {
        let joined = match headers.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        headers.insert(name.clone(), joined.into());
    }
    let is_json =
        headers.get("content-type").and_then(Value::as_str).is_some_and(|kind| kind.contains("json"));
    let text = || Value::from(String::from_utf8_lossy(&answer.body));
    let body = match answer.body.is_empty() {
        true => Value::Null,
        false if is_json => serde_json::from_slice(&answer.body).unwrap_or_else(|_| text()),
        false => text(),
    };
    json!({"status": answer.status, "headers": headers, "body": body})
}

fn excerpt(text: &str) -> Option<String> {
    let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
    (!shown.is_empty()).then_some(shown)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
