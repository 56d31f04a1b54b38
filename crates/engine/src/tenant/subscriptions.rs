//! Subscriptions and their drain, as seed 003 has it: an event of the group starts a run per subscription that wants it, is
//! settled when all of these ended well, and holds the group where one did not (contracts §14).

use std::sync::Arc;
use std::time::Duration;

use lang::filter::Filter;
use lang::mapper::Mapper;
use model::event::Event;
use model::group::{Definition, OnExhausted, Ordering};
use model::topic::{Pattern, is_engine, is_house};
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use super::Tenant;
use super::publish::unexpected;
use crate::command::{Answer, Command, RunCommand, SubscriptionCommand};
use crate::decide::subscription::unknown;
use crate::deliver::{Delivery, lock};
pub use crate::state::run::DRAINER;
use crate::state::run::Subscription;

const KEYS: [&str; 6] = ["pattern", "filter", "input_mapper", "automation", "enabled", "group"];
/// How long a pass waits for a run; one that takes longer is looked at again by the next.
const PATIENCE: Duration = Duration::from_secs(10);
/// The deadline of an event whose runs are waited for.
const HOLD: Duration = Duration::from_secs(60);

/// Positions that are looked through at once for the last event that was settled, and how often.
const LOOK: u64 = 1_000;
const LOOKS: u32 = 20;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drained {
    pub processed: u64,
    /// `{"event_id","subscription","run_id"}` for each run that was started.
    pub triggered: Vec<Value>,
    /// The event that holds the rest: one of its runs failed, or has not ended.
    pub halted_on: Option<String>,
    /// Where that event stands, and why it holds.
    pub halted: Option<(Position, String)>,
    /// The last event that was settled, by this pass or one before it.
    pub last: Option<String>,
    /// Another pass is at work.
    pub locked: bool,
}

/// A pass is at work; also one that nobody waits for any more lets go.
struct Held<'a> {
    tenant: &'a Tenant,
    group: &'a str,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.tenant.0.draining).remove(self.group);
    }
}

/// What became of one event for one subscription.
enum Dispatched {
    Well,
    Unfinished(String),
    Failed(String),
}

impl Tenant {
    /// Makes or replaces a subscription, and the group it is dispatched by. True when it is new.
    pub async fn put_subscription(&self, id: &str, definition: &Value) -> Result<(bool, Value), Problem> {
        check_id(id)?;
        let definition = checked(definition)?;
        self.is_there(id, &definition)?;
        let group = definition["group"].as_str().unwrap_or(DRAINER).to_owned();
        let pattern = definition["pattern"].as_str().unwrap_or_default();
        if let Ok(there) = self.group(&group) {
            fits(&group, &there.group.definition)?;
            takes(&group, &there.group.definition, pattern)?;
        } else {
            self.put_group(&group, &made_for(pattern)).await?;
        }
        let new = self.subscription(id).is_err();
        self.resubscribe(SubscriptionCommand::Put { id: id.to_owned(), definition }).await?;
        Ok((new, self.subscription(id)?))
    }

    /// Refuses a name that nothing is declared under: its events would all be held. One that was there when the subscription
    /// was made may have gone since; the rest of it can still be changed.
    fn is_there(&self, id: &str, definition: &Value) -> Result<(), Problem> {
        let automation = definition["automation"].as_str().unwrap_or_default();
        self.with_writer(|writer| {
            let automations = &writer.state.catalog.automations;
            let before = writer.state.runs.subscriptions.all.get(id);
            let named = before.is_some_and(|before| before.definition["automation"] == automation);
            if named || automations.get(automation).is_some() {
                return Ok(());
            }
            let hint = match automations.nearest(automation) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => {
                    "declare it first: everwhen apply; `everwhen automations list` shows what is".to_owned()
                }
            };
            let detail = format!("there is no automation \"{automation}\"");
            Err(Problem::new(Code::RequestInvalid, detail).hint(hint).at("/automation"))
        })
    }

    pub async fn drop_subscription(&self, id: &str) -> Result<(), Problem> {
        self.resubscribe(SubscriptionCommand::Drop { id: id.to_owned() }).await
    }

    pub async fn enable_subscription(&self, id: &str, enabled: bool) -> Result<Value, Problem> {
        let mut definition = self.known(id)?.definition;
        definition["enabled"] = enabled.into();
        self.resubscribe(SubscriptionCommand::Put { id: id.to_owned(), definition }).await?;
        self.subscription(id)
    }

    pub fn subscription(&self, id: &str) -> Result<Value, Problem> {
        Ok(shown(id, &self.known(id)?))
    }

    pub fn subscriptions(&self) -> Result<Vec<Value>, Problem> {
        self.with_writer(|writer| {
            let all = writer.state.runs.subscriptions.all.iter();
            Ok(all.map(|(id, subscription)| shown(id, subscription)).collect())
        })
    }

    fn known(&self, id: &str) -> Result<Subscription, Problem> {
        self.with_writer(|writer| {
            writer.state.runs.subscriptions.all.get(id).cloned().ok_or_else(|| unknown(id))
        })
    }

    async fn resubscribe(&self, command: SubscriptionCommand) -> Result<(), Problem> {
        self.ask(Command::Run(RunCommand::Subscription(command))).await.map(drop)
    }

    /// Dispatches the events of a group, in order, until none is left, `limit` is reached or one holds the rest.
    pub async fn drain_subscriptions(&self, group: &str, limit: u64) -> Result<Drained, Problem> {
        self.is_dispatched(group)?;
        if !lock(&self.0.draining).insert(group.to_owned()) {
            return Ok(Drained { locked: true, ..Drained::default() });
        }
        let _held = Held { tenant: self, group };
        self.pass(group, limit).await
    }

    /// Refuses a group of somebody else's: no subscription takes its events, so a drain would only throw them away. The seed's
    /// own drainer goes on without any: it was made for subscriptions, and who removed the last one means to skip.
    fn is_dispatched(&self, group: &str) -> Result<(), Problem> {
        let named = self.with_writer(|writer| {
            let mut all = writer.state.runs.subscriptions.all.values();
            Ok(all.any(|subscription| subscription.group() == group))
        })?;
        let definition = self.group(group)?.group.definition;
        if named || group == DRAINER && fits(group, &definition).is_ok() {
            return Ok(());
        }
        let detail =
            format!("no subscription takes events of \"{group}\": draining it would only throw them away");
        let hint = format!(
            "hand them to a command: everwhen drain {group} --exec CMD; to skip them: everwhen groups seek {group} end"
        );
        Err(Problem::new(Code::DrainNoDispatcher, detail).hint(hint))
    }

    async fn pass(&self, group: &str, limit: u64) -> Result<Drained, Problem> {
        self.drain_pass(group).await?;
        let mut drained = Drained::default();
        while drained.processed < limit {
            let Some(delivery) = self.pull(group, 1, Duration::ZERO).await?.pop() else { break };
            let id = delivery.event.envelope.id.clone();
            let token = [delivery.token.to_string()];
            let position = delivery.event.position;
            let why = match self.dispatch_all(group, &delivery, &mut drained).await? {
                Dispatched::Well => {
                    self.ack(group, &token, true).await?;
                    drained.processed += 1;
                    drained.last = Some(id);
                    continue;
                }
                Dispatched::Unfinished(why) => {
                    self.give_back(group, &[delivery])?;
                    why
                }
                Dispatched::Failed(why) => {
                    self.nack(group, &token, Some(Duration::ZERO), Some(why.clone())).await?;
                    why
                }
            };
            (drained.halted_on, drained.halted) = (Some(id), Some((position, why)));
            break;
        }
        if drained.last.is_none() {
            drained.last = self.last_settled(group)?;
        }
        Ok(drained)
    }

    /// The newest event of a group that an earlier pass has settled, unless that was long ago.
    fn last_settled(&self, group: &str) -> Result<Option<String>, Problem> {
        let (handle, mut to) = (self.handle(group)?, self.group(group)?.group.floor);
        for _ in 0..LOOKS {
            let from = to.saturating_sub(LOOK).max(self.first()).max(1);
            if to < from {
                break;
            }
            let (events, _) = self.events_from(from, to, LOOK as usize + 1)?;
            let wanted = |event: &&Arc<Event>| handle.dispatcher().state_of(event) != "filtered";
            if let Some(last) = events.iter().rev().find(wanted) {
                return Ok(Some(last.envelope.id.clone()));
            }
            to = from - 1;
        }
        Ok(None)
    }

    async fn dispatch_all(
        &self,
        group: &str,
        delivery: &Delivery,
        drained: &mut Drained,
    ) -> Result<Dispatched, Problem> {
        let event = &delivery.event;
        let value = event.to_value();
        for (id, subscription) in self.wanting(group, event, &value)? {
            self.extend(group, &[delivery.token.to_string()], HOLD).await?;
            let dispatched = self.dispatch(&id, &subscription, (event.position, &value), drained).await?;
            if let Dispatched::Failed(why) = &dispatched {
                let payload = json!({
                    "event_id": event.envelope.id, "event_type": event.envelope.topic, "position": event.position,
                    "automation": subscription.definition["automation"], "error": why,
                });
                let (id, event) = (id.clone(), event.position);
                self.resubscribe(SubscriptionCommand::Stuck { id, event, payload }).await?;
            }
            if !matches!(dispatched, Dispatched::Well) {
                return Ok(dispatched);
            }
        }
        Ok(Dispatched::Well)
    }

    /// Those of the group that are enabled and want this event. A filter that errs does not match.
    fn wanting(
        &self,
        group: &str,
        event: &Event,
        value: &Value,
    ) -> Result<Vec<(String, Subscription)>, Problem> {
        let all = self.with_writer(|writer| Ok(writer.state.runs.subscriptions.all.clone()))?;
        let wants = |subscription: &Subscription| {
            let said = &subscription.definition;
            let pattern = said["pattern"].as_str().and_then(|pattern| Pattern::parse(pattern).ok());
            let filter = || match &said["filter"] {
                Value::Null => true,
                filter => Filter::parse(filter).and_then(|filter| filter.test(value)).unwrap_or(false),
            };
            said["enabled"] != false
                && subscription.group() == group
                && pattern.is_some_and(|pattern| pattern.receives(&event.envelope.topic))
                && filter()
        };
        Ok(all.into_iter().filter(|(_, subscription)| wants(subscription)).collect())
    }

    /// Starts the run, or finds the one that an earlier pass started, and sees how it ends.
    async fn dispatch(
        &self,
        id: &str,
        subscription: &Subscription,
        (position, event): (Position, &Value),
        drained: &mut Drained,
    ) -> Result<Dispatched, Problem> {
        let before = subscription.started.as_ref().filter(|(of, _)| *of == position);
        let run = match before {
            Some((_, None)) => return Ok(Dispatched::Well),
            Some((_, Some(run))) if self.end_of(run).await? != Some("failed") => run.clone(),
            _ => match self.start_for(id, subscription, (position, event)).await? {
                Ok(Some(run)) => {
                    drained
                        .triggered
                        .push(json!({"event_id": event["id"], "subscription": id, "run_id": run}));
                    run
                }
                Ok(None) => return Ok(Dispatched::Well),
                Err(not_well) => return Ok(not_well),
            },
        };
        Ok(match self.end_of(&run).await? {
            None => Dispatched::Unfinished(format!("{run} has not ended")),
            Some("completed") => Dispatched::Well,
            Some(_) => Dispatched::Failed(self.why_ended(&run)),
        })
    }

    /// What a run that did not end well said last.
    fn why_ended(&self, run: &str) -> String {
        let ended = self.run(run).unwrap_or_default();
        match ended["error"]["message"].as_str().or(ended["error"]["code"].as_str()) {
            Some(why) => format!("{run} did not end well: {why}"),
            None => format!("{run} did not end well"),
        }
    }

    /// The inner error is what became of the dispatch; no run: nobody wanted the event.
    async fn start_for(
        &self,
        id: &str,
        subscription: &Subscription,
        (position, event): (Position, &Value),
    ) -> Result<Result<Option<String>, Dispatched>, Problem> {
        let said = &subscription.definition;
        let input = match &said["input_mapper"] {
            Value::Null => Ok(event["payload"].clone()),
            mapper => Mapper::parse(mapper).and_then(|mapper| mapper.apply(event)).map(Value::Object),
        };
        let input = match input {
            Ok(input) => input,
            Err(problem) => return Ok(Err(Dispatched::Failed(problem.detail().to_owned()))),
        };
        let automation = said["automation"].as_str().unwrap_or_default().to_owned();
        let name = automation.clone();
        let (id, event) = (id.to_owned(), event.clone());
        let dispatch = SubscriptionCommand::Dispatch { id, automation, input, event, position };
        match self.ask(Command::Run(RunCommand::Subscription(dispatch))).await {
            Ok(Answer::Started { run: None, reason, .. }) => Ok(match reason.as_deref() {
                Some("conditions") => Ok(None),
                Some(off @ ("paused" | "disabled")) => {
                    Err(Dispatched::Unfinished(format!("automation \"{name}\" is {off}")))
                }
                other => {
                    Err(Dispatched::Failed(format!("it was not started: {}", other.unwrap_or_default())))
                }
            }),
            Ok(Answer::Started { run, .. }) => Ok(Ok(run)),
            Ok(_) => Err(unexpected()),
            Err(problem) if problem.code() == Code::NotFound => {
                Ok(Err(Dispatched::Failed(problem.detail().to_owned())))
            }
            Err(problem) => Err(problem),
        }
    }

    /// How a run ended; `None`: it has not, for as long as a pass waits.
    async fn end_of(&self, run: &str) -> Result<Option<&'static str>, Problem> {
        let until = self.boot() + PATIENCE;
        loop {
            let head = self.head();
            match self.run(run).ok().as_ref().and_then(|run| run["status"].as_str()) {
                Some("completed") => return Ok(Some("completed")),
                Some("failed" | "cancelled") => return Ok(Some("failed")),
                // A person or a long time is not waited for here.
                Some("waiting") if !self.works_outside(run)? => return Ok(None),
                _ if self.boot() >= until || self.is_closing() => return Ok(None),
                _ => _ = tokio::time::timeout(Duration::from_millis(200), self.reached(head + 1)).await,
            }
        }
    }

    fn works_outside(&self, run: &str) -> Result<bool, Problem> {
        Ok(self.open_effects()?.iter().any(|effect| effect.run_id == run))
    }
}

/// Only a group that holds at what failed keeps events in their order.
fn fits(name: &str, group: &Definition) -> Result<(), Problem> {
    if group.ordering == Ordering::Strict && group.on_exhausted == OnExhausted::Halt {
        return Ok(());
    }
    let detail = format!("group \"{name}\" cannot dispatch subscriptions: it does not hold at what failed");
    Err(Problem::new(Code::RequestInvalid, detail)
        .hint("name one with \"ordering\": \"strict\" and \"on_exhausted\": \"halt\", or one that is not there yet")
        .at("/group"))
}

/// Of a group that was not there: everything, and what `#` leaves out if that is what is subscribed to.
fn made_for(pattern: &str) -> Value {
    let patterns = if is_own(pattern) { json!(["#", pattern]) } else { json!("#") };
    json!({
        "pattern": patterns, "ordering": "strict", "on_exhausted": "halt", "max_retries": 0, "start": "beginning",
    })
}

/// Only events that tell of the engine itself meet it, and those are for who names them.
fn is_own(pattern: &str) -> bool {
    is_engine(pattern) || is_house(pattern)
}

/// Refuses a group that will never have an event of the subscription, which would wait for ever without a word.
fn takes(name: &str, group: &Definition, pattern: &str) -> Result<(), Problem> {
    let begins = |pattern: &str| pattern.split('.').next().map(str::to_owned);
    let named = |of: &Pattern| is_own(of.as_str()) && begins(of.as_str()) == begins(pattern);
    if !is_own(pattern) || group.patterns.iter().any(named) {
        return Ok(());
    }
    let all: Vec<_> = group.patterns.iter().map(Pattern::as_str).collect();
    let detail =
        format!("group \"{name}\" takes \"{}\": no event of \"{pattern}\" comes there", all.join("\", \""));
    Err(Problem::new(Code::RequestInvalid, detail)
        .hint("name a group that is not there yet, or one that has this pattern, too")
        .at("/group"))
}

fn check_id(id: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if (1..=128).contains(&id.len()) && id.chars().all(plain) {
        return Ok(());
    }
    let detail = format!("\"{id}\" cannot name a subscription");
    Err(Problem::new(Code::RequestInvalid, detail).hint("use up to 128 letters, digits, _ - . :").at("/id"))
}

/// The definition with everything in it looked at, and nothing else.
fn checked(said: &Value) -> Result<Value, Problem> {
    let wrong = |name: &str, what: &str| {
        Problem::new(Code::RequestInvalid, format!("\"{name}\" {what}")).at(format!("/{name}"))
    };
    let map =
        said.as_object().ok_or_else(|| Problem::new(Code::RequestInvalid, "a subscription is an object"))?;
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str()) && key.as_str() != "id") {
        return Err(wrong(key, "is not a field of a subscription").hint(KEYS.join(", ")));
    }
    let text = |name: &str| said[name].as_str().filter(|text| !text.is_empty());
    Pattern::parse(text("pattern").ok_or_else(|| wrong("pattern", "is missing"))?)
        .map_err(|p| p.at("/pattern"))?;
    text("automation").ok_or_else(|| wrong("automation", "is missing"))?;
    if !said["filter"].is_null() {
        Filter::parse(&said["filter"]).map_err(|problem| problem.at("/filter"))?;
    }
    if !said["input_mapper"].is_null() {
        Mapper::parse(&said["input_mapper"]).map_err(|problem| problem.at("/input_mapper"))?;
    }
    if !(said["enabled"].is_null() || said["enabled"].is_boolean()) {
        return Err(wrong("enabled", "is true or false"));
    }
    if !(said["group"].is_null() || said["group"].is_string()) {
        return Err(wrong("group", "is the name of a group"));
    }
    let kept: Map<String, Value> = map
        .iter()
        .filter(|(key, value)| *key != "id" && !value.is_null())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    Ok(Value::Object(kept))
}

fn shown(id: &str, subscription: &Subscription) -> Value {
    let mut value = json!({"id": id, "enabled": true, "group": DRAINER});
    if let (Value::Object(value), Value::Object(said)) = (&mut value, &subscription.definition) {
        value.extend(said.clone());
    }
    if let Some((event, run)) = &subscription.started {
        value["last"] = json!({"position": event, "run": run});
    }
    value
}
