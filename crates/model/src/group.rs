//! What a group is told to be: pattern, filter, limits, retry policy (contracts §4), read with errors that name the field.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::event::Band;
use crate::time::{duration_json, duration_of};
use crate::topic::Pattern;
use crate::{Code, Position, Problem, Timestamp};

/// Where a new group begins; read only when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    Now,
    Beginning,
    Position(Position),
    Time(Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    None,
    Key,
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    DeadLetter,
    Halt,
    ParkKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpired {
    Drop,
    DeadLetter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LagAction {
    Keep,
    Block,
    Refuse,
}

/// Retry delays: after failure i = 1, 2, … wait U(0, min(base·mult^i, max)).
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    pub base: Duration,
    pub mult: f64,
    pub max: Duration,
}

impl Backoff {
    /// The longest wait after failure `i`, counted from 1.
    pub fn cap(&self, failure: u32) -> Duration {
        let seconds = self.base.as_secs_f64() * self.mult.powi(failure.min(1_000) as i32);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max)
    }

    /// The wait after failure `i` for a random `draw` out of the whole range of u64: full jitter.
    pub fn delay(&self, failure: u32, draw: u64) -> Duration {
        self.cap(failure).mul_f64(draw as f64 / u64::MAX as f64)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub patterns: Vec<Pattern>,
    pub filter: Option<Value>,
    pub space: Option<String>,
    pub start: Start,
    pub ack_deadline: Duration,
    pub max_inflight: u32,
    pub max_retries: u32,
    pub backoff: Backoff,
    pub ordering: Ordering,
    pub key: Option<String>,
    pub on_exhausted: OnExhausted,
    pub on_expired: OnExpired,
    pub max_band: Band,
    pub lag_action: LagAction,
    pub lag_events: u64,
}

const FIELDS: [&str; 14] = [
    "pattern",
    "filter",
    "space",
    "start",
    "ack_deadline",
    "max_inflight",
    "max_retries",
    "backoff",
    "ordering",
    "key",
    "on_exhausted",
    "on_expired",
    "max_band",
    "on_lag",
];

impl Definition {
    /// Whether both take the same events, in the same order: they differ in limits at most.
    pub fn chooses_like(&self, other: &Definition) -> bool {
        let chooses = |it: &Definition| (it.ordering, it.max_band);
        self.patterns == other.patterns
            && self.filter == other.filter
            && self.space == other.space
            && self.key == other.key
            && chooses(self) == chooses(other)
    }

    /// A group over `patterns` with every default.
    pub fn over(patterns: Vec<Pattern>) -> Definition {
        Definition {
            patterns,
            filter: None,
            space: None,
            start: Start::Now,
            ack_deadline: Duration::from_secs(30),
            max_inflight: 100,
            max_retries: 5,
            backoff: Backoff { base: Duration::from_millis(500), mult: 2.0, max: Duration::from_secs(30) },
            ordering: Ordering::None,
            key: None,
            on_exhausted: OnExhausted::DeadLetter,
            on_expired: OnExpired::Drop,
            max_band: Band::Black,
            lag_action: LagAction::Keep,
            lag_events: 100_000,
        }
    }

    /// Reads the body of `PUT /v1/groups/{name}`. Filter and key are compiled by the engine, which knows the language.
    pub fn parse(value: &Value) -> Result<Definition, Problem> {
        let object = value.as_object().ok_or_else(|| invalid("", "a group is a JSON object"))?;
        only(object, "", &FIELDS)?;
        let mut definition = Definition::over(patterns(object)?);
        definition.filter = object.get("filter").cloned();
        definition.space = text(object, "space")?;
        definition.key = text(object, "key")?;
        if let Some(start) = object.get("start") {
            definition.start = parse_start(start)?;
        }
        if let Some(deadline) = duration(object, "", "ack_deadline")? {
            definition.ack_deadline = deadline;
        }
        if let Some(n) = number(object, "", "max_inflight", 1, 10_000)? {
            definition.max_inflight = n as u32;
        }
        if let Some(n) = number(object, "", "max_retries", 0, 1_000)? {
            definition.max_retries = n as u32;
        }
        if let Some(backoff) = object.get("backoff") {
            definition.backoff = parse_backoff(backoff, definition.backoff)?;
        }
        definition.read_choices(object)?;
        definition.check()
    }

    fn read_choices(&mut self, object: &Map<String, Value>) -> Result<(), Problem> {
        let orderings = [("none", Ordering::None), ("key", Ordering::Key), ("strict", Ordering::Strict)];
        let exhausted = [
            ("dead_letter", OnExhausted::DeadLetter),
            ("halt", OnExhausted::Halt),
            ("park_key", OnExhausted::ParkKey),
        ];
        let expired = [("drop", OnExpired::Drop), ("dead_letter", OnExpired::DeadLetter)];
        let bands = Band::ALL.map(|band| (band.as_str(), band));
        choose(object, "", "ordering", &orderings, &mut self.ordering)?;
        choose(object, "", "on_exhausted", &exhausted, &mut self.on_exhausted)?;
        choose(object, "", "on_expired", &expired, &mut self.on_expired)?;
        choose(object, "", "max_band", &bands, &mut self.max_band)?;
        let Some(lag) = object.get("on_lag") else { return Ok(()) };
        let lag = lag.as_object().ok_or_else(|| invalid("/on_lag", "\"on_lag\" is an object"))?;
        only(lag, "/on_lag", &["do", "events"])?;
        let actions = [("keep", LagAction::Keep), ("block", LagAction::Block), ("refuse", LagAction::Refuse)];
        choose(lag, "/on_lag", "do", &actions, &mut self.lag_action)?;
        if let Some(n) = number(lag, "/on_lag", "events", 1, u64::MAX)? {
            self.lag_events = n;
        }
        Ok(())
    }

    fn check(self) -> Result<Definition, Problem> {
        if self.ordering == Ordering::Key && self.key.is_none() {
            return Err(invalid("/key", "\"ordering\": \"key\" needs a \"key\"")
                .hint("give an expression, e.g. \"event.subject.id\""));
        }
        if self.on_exhausted == OnExhausted::ParkKey && self.ordering != Ordering::Key {
            return Err(invalid("/on_exhausted", "\"park_key\" needs \"ordering\": \"key\""));
        }
        if self.ack_deadline.is_zero() {
            return Err(invalid("/ack_deadline", "\"ack_deadline\" must be longer than zero"));
        }
        Ok(self)
    }

    /// The definition with all defaults filled in, as `GET` shows it and as the ledger keeps it.
    pub fn to_json(&self) -> Map<String, Value> {
        let patterns: Vec<&str> = self.patterns.iter().map(Pattern::as_str).collect();
        let value = json!({
            "pattern": if patterns.len() == 1 { json!(patterns[0]) } else { json!(patterns) },
            "filter": self.filter,
            "space": self.space,
            "start": match &self.start {
                Start::Now => json!("now"),
                Start::Beginning => json!("beginning"),
                Start::Position(position) => json!({"position": position}),
                Start::Time(time) => json!({"time": time}),
            },
            "ack_deadline": duration_json(self.ack_deadline),
            "max_inflight": self.max_inflight,
            "max_retries": self.max_retries,
            "backoff": {
                "base": duration_json(self.backoff.base),
                "mult": self.backoff.mult,
                "max": duration_json(self.backoff.max),
            },
            "ordering": match self.ordering {
                Ordering::None => "none",
                Ordering::Key => "key",
                Ordering::Strict => "strict",
            },
            "key": self.key,
            "on_exhausted": match self.on_exhausted {
                OnExhausted::DeadLetter => "dead_letter",
                OnExhausted::Halt => "halt",
                OnExhausted::ParkKey => "park_key",
            },
            "on_expired": match self.on_expired {
                OnExpired::Drop => "drop",
                OnExpired::DeadLetter => "dead_letter",
            },
            "max_band": self.max_band,
            "on_lag": {
                "do": match self.lag_action {
                    LagAction::Keep => "keep",
                    LagAction::Block => "block",
                    LagAction::Refuse => "refuse",
                },
                "events": self.lag_events,
            },
        });
        let Value::Object(mut object) = value else { return Map::new() };
        object.retain(|_, value| !value.is_null());
        object
    }
}

/// Whether `name` may be a group's name: `[a-z0-9][a-z0-9_-]{0,63}`.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut bytes = name.bytes();
    let good = bytes.next().is_some_and(plain) && bytes.all(|b| plain(b) || b == b'_' || b == b'-');
    if good && name.len() <= 64 {
        return Ok(());
    }
    Err(Problem::new(Code::GroupInvalid, format!("\"{name}\" is not a group name"))
        .hint("use 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"))
}

/// Reads a place to begin or to seek to: a word, `{"position":N}` or `{"time":T}`. `end` is the word for now.
pub fn parse_start(value: &Value) -> Result<Start, Problem> {
    let wrong = || {
        invalid("/start", format!("{value} is not a place in the ledger"))
            .hint("use \"now\" (or \"end\"), \"beginning\", {\"position\": N} or {\"time\": \"2026-01-31T09:30:00Z\"}")
    };
    match value {
        Value::String(word) if word == "now" || word == "end" => Ok(Start::Now),
        Value::String(word) if word == "beginning" => Ok(Start::Beginning),
        Value::Object(object) if object.len() == 1 => match (object.get("position"), object.get("time")) {
            (Some(position), None) => {
                position.as_u64().filter(|p| *p >= 1).map(Start::Position).ok_or_else(wrong)
            }
            (None, Some(Value::String(time))) => Timestamp::parse(time).map(Start::Time).map_err(|_| wrong()),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn patterns(object: &Map<String, Value>) -> Result<Vec<Pattern>, Problem> {
    let one = |value: &Value, pointer: &str| match value {
        Value::String(text) => Pattern::parse(text).map_err(|problem| problem.at(pointer.to_owned())),
        _ => Err(invalid(pointer, "a pattern is a string")),
    };
    match object.get("pattern") {
        Some(Value::Array(list)) if !list.is_empty() && list.len() <= 1_000 => {
            list.iter().enumerate().map(|(i, value)| one(value, &format!("/pattern/{i}"))).collect()
        }
        Some(value @ Value::String(_)) => Ok(vec![one(value, "/pattern")?]),
        Some(_) => Err(invalid("/pattern", "\"pattern\" is a string or a list of 1 to 1000 strings")),
        None => {
            Err(invalid("/pattern", "\"pattern\" is missing")
                .hint("say which topics, e.g. \"price.*\" or \"#\""))
        }
    }
}

fn parse_backoff(value: &Value, mut backoff: Backoff) -> Result<Backoff, Problem> {
    let object = value.as_object().ok_or_else(|| invalid("/backoff", "\"backoff\" is an object"))?;
    only(object, "/backoff", &["base", "mult", "max"])?;
    if let Some(base) = duration(object, "/backoff", "base")? {
        backoff.base = base;
    }
    if let Some(max) = duration(object, "/backoff", "max")? {
        backoff.max = max;
    }
    if let Some(mult) = object.get("mult") {
        let mult = mult.as_f64().filter(|m| (1.0..=1000.0).contains(m));
        backoff.mult = mult.ok_or_else(|| invalid("/backoff/mult", "\"mult\" is a number from 1 to 1000"))?;
    }
    Ok(backoff)
}

fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::GroupInvalid, detail).at(pointer)
}

fn only(object: &Map<String, Value>, pointer: &str, known: &[&str]) -> Result<(), Problem> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(invalid(&format!("{pointer}/{key}"), format!("unknown field \"{key}\""))
            .hint(format!("known fields: {}", known.join(", ")))),
    }
}

fn text(object: &Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match object.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(invalid(&format!("/{name}"), format!("\"{name}\" is a non-empty string"))),
    }
}

fn duration(object: &Map<String, Value>, pointer: &str, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(value) = object.get(name) else { return Ok(None) };
    let wrong = || {
        invalid(&format!("{pointer}/{name}"), format!("\"{name}\": {value} is not a duration"))
            .hint("write \"30s\", \"1h30m\", \"PT5M\" or a number of seconds")
    };
    duration_of(value).map(Some).ok_or_else(wrong)
}

fn number(
    object: &Map<String, Value>,
    pointer: &str,
    name: &str,
    low: u64,
    high: u64,
) -> Result<Option<u64>, Problem> {
    let Some(value) = object.get(name) else { return Ok(None) };
    let good = value.as_u64().filter(|n| (low..=high).contains(n));
    let wrong = || {
        invalid(&format!("{pointer}/{name}"), format!("\"{name}\" is a whole number from {low} to {high}"))
    };
    good.map(Some).ok_or_else(wrong)
}

fn choose<T: Copy>(
    object: &Map<String, Value>,
    pointer: &str,
    name: &str,
    choices: &[(&str, T)],
    into: &mut T,
) -> Result<(), Problem> {
    let Some(value) = object.get(name) else { return Ok(()) };
    match choices.iter().find(|(word, _)| value.as_str() == Some(*word)) {
        Some((_, choice)) => *into = *choice,
        None => {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            return Err(invalid(&format!("{pointer}/{name}"), format!("\"{name}\": {value} is not known"))
                .hint(format!("use one of {}", words.join(", "))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_contract_reads_and_shows_itself() {
        let body = json!({"pattern":"price.*","filter":"event.payload.new > 9","space":"default","start":"now",
            "ack_deadline":"30s","max_inflight":100,"max_retries":5,"backoff":{"base":"500ms","mult":2,"max":"30s"},
            "ordering":"none","key":"event.subject.id","on_exhausted":"dead_letter","on_expired":"drop",
            "max_band":"black","on_lag":{"do":"keep","events":100000}});
        let definition = Definition::parse(&body).unwrap();
        let shown = Value::Object(definition.to_json());
        assert_eq!(shown["backoff"], json!({"base":0.5,"mult":2.0,"max":30}));
        assert_eq!(Definition::parse(&shown).unwrap(), definition);
    }

    #[test]
    fn a_bad_field_is_named_with_its_pointer() {
        let table = [
            (json!({}), "/pattern"),
            (json!({"pattern":"a..b"}), "/pattern"),
            (json!({"pattern":["a", 7]}), "/pattern/1"),
            (json!({"pattern":"#","maxinflight":1}), "/maxinflight"),
            (json!({"pattern":"#","max_inflight":0}), "/max_inflight"),
            (json!({"pattern":"#","backoff":{"mult":0}}), "/backoff/mult"),
            (json!({"pattern":"#","on_lag":{"do":"explode"}}), "/on_lag/do"),
            (json!({"pattern":"#","ordering":"key"}), "/key"),
            (json!({"pattern":"#","start":{"position":0}}), "/start"),
            (json!({"pattern":"#","ack_deadline":"soon"}), "/ack_deadline"),
        ];
        for (body, pointer) in table {
            let problem = Definition::parse(&body).unwrap_err();
            assert_eq!(problem.pointer(), Some(pointer), "{body}");
        }
    }

    #[test]
    fn the_caps_of_the_default_backoff_are_1_2_4_8_16_seconds() {
        let backoff = Definition::over(Vec::new()).backoff;
        let caps: Vec<u64> = (1..=6).map(|i| backoff.cap(i).as_secs()).collect();
        assert_eq!(caps, [1, 2, 4, 8, 16, 30]);
        assert_eq!(backoff.delay(3, 0), Duration::ZERO);
        assert_eq!(backoff.delay(3, u64::MAX), Duration::from_secs(4));
    }
}
