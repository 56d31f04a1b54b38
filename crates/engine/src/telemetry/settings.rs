//! Where spans go, by the variables that OpenTelemetry has for it. What cannot be read is said and left aside, as its
//! specification asks: nobody's server stays down for the sake of its traces.

use std::path::PathBuf;
use std::time::Duration;

use super::context::Context;

/// Which traces are told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Whoever began a trace elsewhere has decided for all of it.
    pub by_parent: bool,
    /// Of the rest, from 0 to 1.
    pub share: f64,
}

impl Sampler {
    /// Whether what goes on from there is told.
    pub fn samples(&self, before: &Context) -> bool {
        if self.by_parent { before.sampled } else { self.begins(&before.trace) }
    }

    /// Whether a trace that begins here is told: by its id, so that all who ask get the same answer.
    pub fn begins(&self, trace: &[u8; 16]) -> bool {
        let mut low = [0; 8];
        low.copy_from_slice(&trace[8..]);
        let place = (u64::from_be_bytes(low) >> 1) as f64 / (1_u64 << 63) as f64;
        self.share >= 1.0 || place < self.share
    }
}

#[derive(Clone)]
pub struct Settings {
    /// The whole address, `/v1/traces` included.
    pub endpoint: String,
    pub headers: Vec<(String, String)>,
    /// What is said of this process with every export, `service.name` among it.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// Spans that wait; more are lost, and counted.
    pub queue: usize,
    /// Spans in one request.
    pub batch: usize,
    /// How long the first of a batch waits for others.
    pub delay: Duration,
    pub timeout: Duration,
    /// Root certificates in PEM that are trusted beside the machine's.
    pub ca_file: Option<PathBuf>,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads variables and keeps what was wrong with them.
struct Reading<'a> {
    variables: Variables<'a>,
    wrong: Vec<String>,
}

impl Settings {
    /// What the variables say; `None` when they ask for no spans. Beside it, what of them could not be used.
    pub fn read(variables: Variables<'_>) -> (Option<Settings>, Vec<String>) {
        let mut reading = Reading { variables, wrong: Vec::new() };
        let settings = reading.settings();
        (settings, reading.wrong)
    }
}

impl Reading<'_> {
    /// One that is empty is as good as not set.
    fn text(&self, name: &str) -> Option<String> {
        (self.variables)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Of the two that say the same, the one for traces counts.
    fn of_traces(&self, what: &str) -> Option<String> {
        let own = self.text(&format!("OTEL_EXPORTER_OTLP_TRACES_{what}"));
        own.or_else(|| self.text(&format!("OTEL_EXPORTER_OTLP_{what}")))
    }

    fn settings(&mut self) -> Option<Settings> {
        let is_off = self.text("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let exporter = self.text("OTEL_TRACES_EXPORTER");
        if is_off || exporter.as_deref() == Some("none") {
            return None;
        }
        if let Some(other) = exporter.as_deref().filter(|name| *name != "otlp") {
            self.wrong.push(format!("OTEL_TRACES_EXPORTER is \"{other}\", and only \"otlp\" is there"));
            return None;
        }
        let endpoint = self.endpoint(exporter.is_some())?;
        if let Some(protocol) = self.of_traces("PROTOCOL").filter(|it| !it.starts_with("http/")) {
            let what = "the protocol of OTLP is http/json here";
            self.wrong.push(format!("\"{protocol}\" is not spoken: {what}; no spans are sent"));
            return None;
        }
        if let Some(protocol) = self.of_traces("PROTOCOL").filter(|it| it != "http/json") {
            self.wrong.push(format!("\"{protocol}\" is not spoken: spans are sent as http/json"));
        }
        Some(Settings {
            endpoint,
            headers: self.pairs(self.of_traces("HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS"),
            resource: self.resource(),
            sampler: self.sampler(),
            queue: self.number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048).clamp(1, 1 << 20) as usize,
            batch: self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).clamp(1, 1 << 16) as usize,
            delay: self.millis("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            timeout: self.timeout(),
            ca_file: self.of_traces("CERTIFICATE").map(PathBuf::from),
        })
    }

    /// The one for traces is taken as it is; the other one is where every signal has a path below it.
    fn endpoint(&mut self, asked: bool) -> Option<String> {
        let own = self.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let shared = self.text("OTEL_EXPORTER_OTLP_ENDPOINT");
        let shared = shared.or_else(|| asked.then(|| "http://localhost:4318".to_owned()));
        let below = shared.map(|base| format!("{}/v1/traces", base.trim_end_matches('/')));
        let endpoint = own.or(below)?;
        match crate::effect::http::check_url(&endpoint) {
            Ok(()) => Some(endpoint),
            Err(problem) => {
                self.wrong.push(format!("the endpoint of OTLP cannot be used: {}", problem.detail()));
                None
            }
        }
    }

    /// `name=value,name=value`, with `%20` for what may not stand there.
    fn pairs(&mut self, text: Option<String>, name: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for pair in text.unwrap_or_default().split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').filter(|(name, _)| !name.trim().is_empty()) {
                Some((name, value)) => pairs.push((name.trim().to_owned(), unescaped(value.trim()))),
                // Not what it says: that may be somebody's key.
                None => self.wrong.push(format!("{name} has a part without \"=\"")),
            }
        }
        pairs
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let said = self.text("OTEL_RESOURCE_ATTRIBUTES");
        let mut resource = self.pairs(said, "OTEL_RESOURCE_ATTRIBUTES");
        let named = self.text("OTEL_SERVICE_NAME");
        if named.is_some() {
            resource.retain(|(name, _)| name != "service.name");
        }
        if !resource.iter().any(|(name, _)| name == "service.name") {
            resource.push(("service.name".to_owned(), named.unwrap_or_else(|| "everwhen".to_owned())));
        }
        resource.push(("telemetry.sdk.language".to_owned(), "rust".to_owned()));
        resource.push(("telemetry.sdk.name".to_owned(), "everwhen".to_owned()));
        resource.push(("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        resource
    }

    fn sampler(&mut self) -> Sampler {
        let name = self.text("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let (by_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name.as_str()),
        };
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.share(),
            _ => {
                self.wrong.push(format!("OTEL_TRACES_SAMPLER is \"{name}\", which is not known"));
                return Sampler { by_parent: true, share: 1.0 };
            }
        };
        Sampler { by_parent, share }
    }

    fn share(&mut self) -> f64 {
        let Some(text) = self.text("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        match text.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => share,
            _ => {
                self.wrong.push(format!("OTEL_TRACES_SAMPLER_ARG is \"{text}\", not from 0 to 1"));
                1.0
            }
        }
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(text) = self.text(name) else { return default };
        text.parse().unwrap_or_else(|_| {
            self.wrong.push(format!("{name} is \"{text}\", not a whole number"));
            default
        })
    }

    fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default))
    }

    /// The shorter of what the exporter and the batch processor allow.
    fn timeout(&mut self) -> Duration {
        let own = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
        let name = own.into_iter().find(|name| self.text(name).is_some()).unwrap_or(own[1]);
        let exporter = self.millis(name, 10_000);
        exporter.min(self.millis("OTEL_BSP_EXPORT_TIMEOUT", 30_000)).max(Duration::from_millis(1))
    }
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
