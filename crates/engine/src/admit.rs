//! From what a client says to an event that may be written: the first station of an event, on the caller's
//! own thread.
//!
//! ```text
//!  Draft ─▶ defaults ─▶ check ─▶ schema ─▶ redact ─▶ attention ─▶ layers ─▶ Prepared ─▶ (the tenant's loop)
//!                         │         │                    │            │
//!                         └─────────┴── Problem          └─ Dropped   └─ Problem
//! ```
//!
//! The order is that of contracts §1; tracing and metrics lie around all of it. The payload is never parsed
//! into a tree unless a rule for its topic has to look inside.
//!
//! **Invariant:** nothing here reads the tenant's state, a clock or chance; what a redaction takes out is in
//! no later station, not even in a count.

mod attention;
mod check;
pub mod cloudevents;
mod draft;
mod ext;
mod payload;
mod read;
mod redact;
mod schema;
mod seeds;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ledger::{NewBody, NewRecord};
use model::event::{Content, Envelope, Event, fingerprint};
use model::id::ulid;
use model::record::{Deferred, Record};
use model::{Code, Problem, Timestamp};
use serde_json::Value;

pub use check::{check_default_space, check_read_space, check_space_of, check_topic_of};
pub use draft::{ARRAY_BYTES_MAX, ARRAY_MAX, Draft};
pub use payload::Payload;
pub use redact::check_redacted;

use crate::authority::Sight;
use crate::entropy::Entropy;
use crate::metrics::Verdicts;
use crate::settings::{DEPTH_MAX, Limits, PAYLOAD_MAX, Settings, Switches};
use attention::{Attention, Judged};

/// The longest chain of causes; beyond it is a loop.
pub const CAUSES_MAX: u32 = 32;

/// On whose behalf something is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `kind:name`.
    pub actor: String,
    /// The W3C traceparent of the request.
    pub trace: Option<String>,
    /// False for the engine, its runs and an import: they may use reserved names and are not judged by
    /// attention.
    pub outside: bool,
    /// What they see of the tenant, and where they may say something.
    pub sight: Sight,
}

impl Caller {
    /// Somebody at this machine.
    pub fn local() -> Caller {
        Caller { actor: "user:local".to_owned(), trace: None, outside: true, sight: Sight::default() }
    }

    /// Somebody who gave a name; it must be `kind:name` with a kind we know.
    pub fn named(actor: &str) -> Result<Caller, Problem> {
        let known = ["user", "token", "device", "agent", "system"];
        match actor.split_once(':') {
            Some((kind, name))
                if known.contains(&kind) && !name.is_empty() && !actor.chars().any(char::is_control) =>
            {
                Ok(Caller { actor: actor.to_owned(), trace: None, outside: true, sight: Sight::default() })
            }
            _ => Err(Problem::new(Code::RequestInvalid, format!("{actor:?} is not an actor"))
                .hint("write kind:name with one of the kinds user, token, device, agent, system")),
        }
    }
}

/// What admission takes from its surroundings, as values.
pub struct Context<'a> {
    pub now: Timestamp,
    pub entropy: &'a mut dyn FnMut(&mut [u8]),
    /// The depth of the event at the draft's cause; `None` when there is no cause or it is no longer kept.
    pub cause_depth: Option<u32>,
}

/// An event that needs only its position.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Position 0, recorded at the epoch: the writer fills them in. Shared from here on, because it is large and goes far.
    pub event: Arc<Event>,
    /// What a repeated key is compared by; there is one when there is a key.
    pub fingerprint: Option<[u8; 32]>,
    /// `event`, or `event.deferred` when it is put off.
    pub record: NewRecord,
    pub deferred: Option<Timestamp>,
    /// Brought in from elsewhere: it starts nothing and ends no wait.
    pub quiet: bool,
    /// Its place in the array it was sent in, which also counts what does not come this far.
    pub index: Option<usize>,
}

impl Prepared {
    /// An event that nobody has to judge: a run's own.
    pub fn of(event: Event, entropy: &mut Entropy) -> Prepared {
        let event = Arc::new(event);
        let body = event.content.body().map(|json| NewBody::new(entropy.bytes(), json.clone()));
        let record = NewRecord { kind: "event", version: 1, data: encode(&event.envelope), body };
        Prepared { event, fingerprint: None, record, deferred: None, quiet: false, index: None }
    }

    /// Where in the request a problem with this event is.
    pub fn place(&self, problem: Problem) -> Problem {
        match self.index {
            Some(index) => problem.within(&format!("/{index}")),
            None => problem,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Admission {
    Prepared(Prepared),
    /// `keyed`: the event that a repeated key is answered for all the same.
    Dropped {
        rule: String,
        keyed: Option<Box<Prepared>>,
    },
}

/// What a layer thinks of an event about to be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    Go,
    /// It becomes a dead letter, unhandled, for this reason.
    Quarantine(String),
}

/// The embedder's own layer: around publish after all of ours, around handle before the handler.
pub trait Layer: Send + Sync {
    fn name(&self) -> &str;

    /// May change or refuse the draft. What comes out is checked again as what came in.
    fn publish(&self, caller: &Caller, draft: &mut Draft) -> Result<(), Problem>;

    fn handle(&self, _event: &Event) -> Handled {
        Handled::Go
    }
}

/// The publish chain of one tenant, compiled once; shared by all who publish.
pub struct Admitter {
    default_space: String,
    limits: Limits,
    switches: Switches,
    schemas: Vec<schema::Schema>,
    redactions: Vec<redact::Redaction>,
    attention: Attention,
    layers: Vec<Arc<dyn Layer>>,
}

impl Admitter {
    /// Compiles every rule; a wrong one is said with its place in the config file.
    pub fn new(settings: &Settings, layers: Vec<Arc<dyn Layer>>) -> Result<Admitter, Problem> {
        check_limit("events.max_payload", settings.max_payload, PAYLOAD_MAX)?;
        check_limit("events.max_depth", settings.max_depth, DEPTH_MAX)?;
        Ok(Admitter {
            default_space: settings.default_space.clone(),
            limits: settings.limits(),
            switches: settings.switches,
            schemas: compile("schema", &settings.schemas, schema::Schema::new)?,
            redactions: compile("redact", &settings.redactions, redact::Redaction::new)?,
            attention: Attention::new(&settings.attention)?,
            layers,
        })
    }

    /// Counts verdicts also where those of all tenants are counted.
    pub fn counting(mut self, verdicts: Arc<Verdicts>) -> Admitter {
        self.attention.verdicts = verdicts;
        self
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn layers(&self) -> &[Arc<dyn Layer>] {
        &self.layers
    }

    /// Whether nothing looks into a payload, and no layer does what we do not know: then admission takes next to no time.
    pub fn is_quick(&self) -> bool {
        self.schemas.is_empty()
            && self.redactions.is_empty()
            && self.layers.is_empty()
            && !self.attention.has_rules()
    }

    /// How often each attention rule gave its verdict, or its filter failed: rule, verdict, times.
    pub fn counts(&self) -> Vec<(String, &'static str, u64)> {
        self.attention.counts()
    }

    /// Takes a draft through the chain.
    pub fn admit(
        &self,
        caller: &Caller,
        mut draft: Draft,
        ctx: &mut Context<'_>,
    ) -> Result<Admission, Problem> {
        let mut chance = [0u8; 26];
        (ctx.entropy)(&mut chance);
        let (id, salt) = split(chance);
        self.fill(caller, &mut draft, || ulid(ctx.now, id));
        allowed(caller, &draft)?;
        check::check(caller, &mut draft, &self.limits)?;
        let depth = depth_of(&draft, ctx.cause_depth)?;
        if self.switches.validation {
            self.schemas.iter().try_for_each(|schema| schema.check(&draft))?;
        }
        if self.switches.redaction {
            self.redactions.iter().try_for_each(|redaction| redaction.apply(&mut draft, &self.limits))?;
        }
        let (mut deferred, mut dropped) = (None, None);
        if self.switches.attention && caller.outside {
            let preview = |draft: &Draft| preview(caller, draft, depth, ctx.now);
            match self.attention.judge(&draft, ctx.now, preview) {
                Judged::Admit => {}
                Judged::Boost(by) => draft.priority = draft.priority.saturating_add(by).min(9),
                Judged::Defer(until) => deferred = Some(until),
                Judged::Drop(rule) if draft.key.is_none() => {
                    return Ok(Admission::Dropped { rule, keyed: None });
                }
                Judged::Drop(rule) => dropped = Some(rule),
            }
        }
        let passed = self.pass_layers(caller, &mut draft);
        match dropped {
            Some(rule) if passed.is_err() => Ok(Admission::Dropped { rule, keyed: None }),
            Some(rule) => {
                let keyed = Some(Box::new(seal(caller, draft, depth, salt, None)));
                Ok(Admission::Dropped { rule, keyed })
            }
            None => passed.map(|()| Admission::Prepared(seal(caller, draft, depth, salt, deferred))),
        }
    }

    fn fill(&self, caller: &Caller, draft: &mut Draft, new_id: impl FnOnce() -> String) {
        draft.id.get_or_insert_with(new_id);
        draft.space.get_or_insert_with(|| caller.sight.space_meant(&self.default_space).to_owned());
        if draft.trace.is_none() {
            draft.trace.clone_from(&caller.trace);
        }
        if draft.key.is_none() {
            draft.key = draft.derived_key.take();
        }
    }

    fn pass_layers(&self, caller: &Caller, draft: &mut Draft) -> Result<(), Problem> {
        if self.layers.is_empty() {
            return Ok(());
        }
        for layer in &self.layers {
            layer.publish(caller, draft)?;
        }
        check::check(caller, draft, &self.limits)
    }
}

/// Whether the caller may say something there. A missing space is told of by the check that follows.
fn allowed(caller: &Caller, draft: &Draft) -> Result<(), Problem> {
    let space = draft.space.as_deref().unwrap_or_default();
    if caller.sight.is_whole() || space.is_empty() || caller.sight.sees(space, draft.band) {
        return Ok(());
    }
    Err(caller.sight.denied(space, draft.band))
}

fn split(chance: [u8; 26]) -> ([u8; 10], [u8; 16]) {
    let (mut id, mut salt) = ([0; 10], [0; 16]);
    id.copy_from_slice(&chance[..10]);
    salt.copy_from_slice(&chance[10..]);
    (id, salt)
}

fn depth_of(draft: &Draft, cause_depth: Option<u32>) -> Result<u32, Problem> {
    let Some(cause) = draft.cause else { return Ok(0) };
    let depth = cause_depth.unwrap_or(0).saturating_add(1);
    if depth <= CAUSES_MAX {
        return Ok(depth);
    }
    let detail = format!("the event at cause {cause} is the end of a chain of {CAUSES_MAX} causes");
    Err(Problem::new(Code::EventTooDeep, detail)
        .hint("find the loop: something publishes in answer to what it published")
        .at("/cause"))
}

/// The event as filters see it before it has a position.
fn preview(caller: &Caller, draft: &Draft, depth: u32, now: Timestamp) -> Value {
    let content = Content::new("null", None);
    let envelope = envelope(caller, draft.clone(), depth).0;
    let mut value = Event { position: 0, recorded_at: now, envelope, content }.to_value();
    if let Some(event) = value.as_object_mut() {
        event.remove("position");
        // Parsed apart from the event around it: together they may be one level deeper than the parser goes.
        event.insert("payload".into(), parse(draft.payload.get()));
        if let Some(ext) = &draft.ext {
            event.insert("ext".into(), parse(ext.get()));
        }
    }
    value
}

/// A checked text as a tree.
fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the text was checked")
}

fn envelope(caller: &Caller, draft: Draft, depth: u32) -> (Envelope, Content) {
    let envelope = Envelope {
        id: draft.id.unwrap_or_default(),
        topic: draft.topic,
        space: draft.space.unwrap_or_default(),
        actor: caller.actor.clone(),
        time: draft.time,
        source: draft.source,
        subject: draft.subject,
        cause: draft.cause,
        depth,
        trace: draft.trace,
        key: draft.key,
        // A ttl of less than a millisecond is short, not none.
        ttl_ms: draft.ttl.map(|ttl| u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
        priority: draft.priority,
        band: draft.band,
        schema: draft.schema,
        kind: draft.kind,
        caused_by: draft.caused_by,
        run: None,
        sequence: draft.sequence,
        content_type: draft.content_type,
    };
    (envelope, Content::new(draft.payload.get(), draft.ext.as_deref().map(|ext| ext.get())))
}

fn seal(caller: &Caller, draft: Draft, depth: u32, salt: [u8; 16], deferred: Option<Timestamp>) -> Prepared {
    let (envelope, content) = envelope(caller, draft, depth);
    let fingerprint = envelope.key.as_ref().and_then(|_| fingerprint(&envelope, &content));
    let event = Arc::new(Event { position: 0, recorded_at: Timestamp::EPOCH, envelope, content });
    let (kind, data) = match deferred {
        None => ("event", encode(&event.envelope)),
        Some(until) => {
            let (envelope, content) = (event.envelope.clone(), event.content.clone());
            let record = Record::EventDeferred(Box::new(Deferred { until, envelope, content }));
            (record.kind(), record.data())
        }
    };
    let body = event.content.body().map(|body| NewBody::new(salt, body.clone()));
    let record = NewRecord { kind, version: 1, data, body };
    Prepared { event, fingerprint, record, deferred, quiet: false, index: None }
}

fn encode(envelope: &Envelope) -> Vec<u8> {
    let mut data = Vec::with_capacity(256);
    serde_json::to_writer(&mut data, envelope).expect("an envelope is plain data and memory does not fail");
    data
}

fn compile<R, C>(
    section: &str,
    rules: &[R],
    new: impl Fn(&R) -> Result<C, Problem>,
) -> Result<Vec<C>, Problem> {
    let compiled =
        rules.iter().enumerate().map(|(i, rule)| new(rule).map_err(|problem| in_rule(section, i, problem)));
    compiled.collect()
}

/// A problem of a rule, as one of the configuration.
fn in_rule(section: &str, i: usize, problem: Problem) -> Problem {
    let hint = problem.hint_text().unwrap_or("correct the rule in everwhen.toml").to_owned();
    Problem::new(Code::ConfigInvalid, format!("[[{section}]] rule {}: {problem}", i + 1)).hint(hint)
}

fn check_limit(name: &str, value: usize, most: usize) -> Result<(), Problem> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    let detail = format!("\"{name}\" is {value}, not 1 to {most}");
    Err(Problem::new(Code::ConfigInvalid, detail).hint(format!("set it to {most} or less")))
}
