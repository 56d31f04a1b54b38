//! What a tenant is told to be: limits, retention and the rules of the publish chain. Plain data, read once
//! at open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use model::time::parse_duration;
use model::topic::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest payload there is, in bytes; `max_payload` may only lower it.
pub const PAYLOAD_MAX: usize = 1 << 20;
/// The deepest nesting there is; `max_depth` may only lower it, because readers stop there too.
pub const DEPTH_MAX: usize = 128;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The space of an event that names none; `""` refuses such an event.
    pub default_space: String,
    /// Bytes.
    pub max_payload: usize,
    /// JSON nesting of a whole event, its own braces included.
    pub max_depth: usize,
    pub retention: Retention,
    pub schemas: Vec<SchemaRule>,
    pub redactions: Vec<RedactRule>,
    pub attention: Vec<AttentionRule>,
    pub switches: Switches,
    /// The switches of tenants that differ.
    pub tenants: BTreeMap<String, Switches>,
    /// What every tenant may use, unless it is named below or the house says otherwise.
    pub quota: Quota,
    pub quotas: BTreeMap<String, Quota>,
    /// A tenant that nobody used for so long is closed.
    pub idle: Duration,
    pub effects: Effects,
    /// How long ended runs and decisions are told of.
    pub history: Duration,
    /// Where backups go that are asked for from afar; `None`: into `backups` of the data directory.
    pub backups: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            default_space: "default".to_owned(),
            max_payload: PAYLOAD_MAX,
            max_depth: DEPTH_MAX,
            retention: Retention::default(),
            schemas: Vec::new(),
            redactions: Vec::new(),
            attention: Vec::new(),
            switches: Switches::default(),
            tenants: BTreeMap::new(),
            quota: Quota::default(),
            quotas: BTreeMap::new(),
            idle: Duration::from_secs(300),
            effects: Effects::default(),
            history: Duration::from_secs(30 * 86_400),
            backups: None,
        }
    }
}

impl Settings {
    pub fn limits(&self) -> Limits {
        Limits { max_payload: self.max_payload, max_depth: self.max_depth }
    }
}

/// How much of a client's text is read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_payload: usize,
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_payload: PAYLOAD_MAX, max_depth: DEPTH_MAX }
    }
}

/// How much a tenant may use; what is not said has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automations: Option<u64>,
    /// From midnight to midnight, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_per_day: Option<u64>,
}

impl Quota {
    pub const NAMES: [&str; 5] = ["bytes", "events_per_s", "groups", "automations", "runs_per_day"];

    /// What is not said here is as `other` has it.
    pub fn or(self, other: Quota) -> Quota {
        Quota {
            bytes: self.bytes.or(other.bytes),
            events_per_s: self.events_per_s.or(other.events_per_s),
            groups: self.groups.or(other.groups),
            automations: self.automations.or(other.automations),
            runs_per_day: self.runs_per_day.or(other.runs_per_day),
        }
    }
}

/// How requests of runs to the world outside are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    /// Networks and names that may be connected to besides the public internet.
    pub allow: Vec<String>,
    /// Requests at a time of runs that events, people and calls began.
    pub workers: usize,
    /// Requests at a time of runs that schedules began.
    pub scheduled_workers: usize,
    /// For a step that names no other.
    pub timeout: Duration,
    /// Root certificates in PEM that are trusted beside the machine's.
    pub ca_file: Option<PathBuf>,
}

impl Default for Effects {
    fn default() -> Effects {
        let timeout = Duration::from_secs(30);
        Effects { allow: Vec::new(), workers: 10, scheduled_workers: 5, timeout, ca_file: None }
    }
}

/// What may be trimmed. `None` keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Retention {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
    /// False: a lagging group loses events and is told so.
    pub respect_groups: bool,
    /// False: a late `wait_for` looks back only to the floor.
    pub respect_runs: bool,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { age: None, bytes: None, respect_groups: true, respect_runs: true }
    }
}

/// Payloads of these topics must fit this JSON Schema.
#[derive(Clone, Debug)]
pub struct SchemaRule {
    pub topic: Pattern,
    /// How refusals call it; the file's name, usually.
    pub name: String,
    pub schema: Value,
}

/// What is taken out of events of these topics before they are stored. Paths are JSONPaths rooted at the
/// event and reach its payload and ext.
#[derive(Clone, Debug)]
pub struct RedactRule {
    pub topic: Pattern,
    /// The node goes.
    pub drop: Vec<String>,
    /// The node becomes `"***"`.
    pub mask: Vec<String>,
    /// The node becomes `"sha256:<hex>"`, equal for equal JSON values.
    pub hash: Vec<String>,
    /// What looks like one of these becomes `***` inside every string.
    pub detectors: Vec<Detector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    Email,
    Phone,
    /// 13 to 19 digits that pass the Luhn check.
    Card,
    /// API keys, bearer tokens, JWTs: what has the shape of a known credential.
    Token,
}

impl Detector {
    pub const ALL: [Detector; 4] = [Detector::Email, Detector::Phone, Detector::Card, Detector::Token];

    pub fn as_str(self) -> &'static str {
        match self {
            Detector::Email => "email",
            Detector::Phone => "phone",
            Detector::Card => "card",
            Detector::Token => "token",
        }
    }

    pub fn parse(text: &str) -> Option<Detector> {
        Detector::ALL.into_iter().find(|detector| detector.as_str() == text)
    }
}

/// What becomes of an event from outside; the first rule that matches and holds decides.
#[derive(Clone, Debug)]
pub struct AttentionRule {
    pub topic: Pattern,
    pub filter: Option<Value>,
    /// The rule holds only above this rate.
    pub rate: Option<Rate>,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub events: u64,
    pub per: Duration,
}

impl Rate {
    /// Reads `100/s`, `10/m`, `3/15m`.
    pub fn parse(text: &str) -> Option<Rate> {
        let (events, per) = text.split_once('/')?;
        let bare_unit = !per.is_empty() && per.chars().all(|c| c.is_ascii_alphabetic());
        let per = if bare_unit { parse_duration(&format!("1{per}"))? } else { parse_duration(per)? };
        let events = events.trim().parse().ok()?;
        (!per.is_zero()).then_some(Rate { events, per })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admit,
    /// It becomes an event only this much later.
    Defer {
        until: Duration,
    },
    /// Its priority rises by this much, to 9 at most.
    Boost {
        by: u8,
    },
    Drop,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Admit => "admit",
            Verdict::Defer { .. } => "defer",
            Verdict::Boost { .. } => "boost",
            Verdict::Drop => "drop",
        }
    }
}

/// Which layers of the publish chain are on. Without `validation` no JSON Schema is applied; the envelope
/// itself is always checked, because everything behind it relies on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    pub validation: bool,
    pub redaction: bool,
    pub attention: bool,
    pub tracing: bool,
    pub metrics: bool,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches { validation: true, redaction: true, attention: true, tracing: true, metrics: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_people_write_it() {
        let rate = |events, seconds| Some(Rate { events, per: Duration::from_secs(seconds) });
        assert_eq!(Rate::parse("100/s"), rate(100, 1));
        assert_eq!(Rate::parse("10/m"), rate(10, 60));
        assert_eq!(Rate::parse("3/15m"), rate(3, 900));
        assert_eq!(Rate::parse("0/h"), rate(0, 3600));
        for bad in ["", "/", "100", "100/", "/s", "-1/s", "1.5/s", "1/0s", "1/x"] {
            assert_eq!(Rate::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_detector_is_named_as_in_the_config_file() {
        for detector in Detector::ALL {
            assert_eq!(Detector::parse(detector.as_str()), Some(detector));
        }
        assert_eq!(Detector::parse("iban"), None);
    }
}
