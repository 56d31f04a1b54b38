//! Attention (seed 002's gate): what of all that arrives from outside becomes an event, when, and how
//! urgently.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lang::filter::Filter;
use model::topic::Pattern;
use model::{Problem, Timestamp};
use serde_json::Value;

use super::{Draft, in_rule};
use crate::metrics::Verdicts;
use crate::settings::{AttentionRule, Rate, Verdict};

pub(super) struct Attention {
    rules: Vec<Rule>,
    /// The verdicts of all tenants together.
    pub(super) verdicts: Arc<Verdicts>,
}

struct Rule {
    /// `attention[0] sensor.#`, how counts and refusals call it.
    name: String,
    topic: Pattern,
    filter: Option<Filter>,
    bucket: Option<Bucket>,
    verdict: Verdict,
    given: AtomicU64,
    filter_errors: AtomicU64,
}

#[derive(Debug, PartialEq)]
pub(super) enum Judged {
    Admit,
    Boost(u8),
    Defer(Timestamp),
    Drop(String),
}

impl Attention {
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    pub(super) fn new(rules: &[AttentionRule]) -> Result<Attention, Problem> {
        let compile = |(i, rule): (usize, &AttentionRule)| {
            Rule::new(i, rule).map_err(|problem| in_rule("attention", i, problem))
        };
        let rules = rules.iter().enumerate().map(compile).collect::<Result<_, _>>()?;
        Ok(Attention { rules, verdicts: Arc::default() })
    }

    /// The verdict of the first rule that matches and holds; without one the event is admitted. `preview`
    /// makes the tree that filters read, and is asked once at most.
    pub(super) fn judge(&self, draft: &Draft, now: Timestamp, preview: impl Fn(&Draft) -> Value) -> Judged {
        let event = OnceCell::new();
        let matching = |rule: &&Rule| rule.matches(draft, || event.get_or_init(|| preview(draft)));
        let Some(rule) = self.rules.iter().filter(matching).find(|rule| rule.holds(now)) else {
            return Judged::Admit;
        };
        rule.given.fetch_add(1, Ordering::Relaxed);
        self.verdicts.given(rule.verdict.as_str());
        match rule.verdict {
            Verdict::Admit => Judged::Admit,
            Verdict::Boost { by } => Judged::Boost(by),
            Verdict::Defer { until } => Judged::Defer(now.plus(until)),
            Verdict::Drop => Judged::Drop(rule.name.clone()),
        }
    }

    pub(super) fn counts(&self) -> Vec<(String, &'static str, u64)> {
        let mut out = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            out.push((rule.name.clone(), rule.verdict.as_str(), rule.given.load(Ordering::Relaxed)));
            let errors = rule.filter_errors.load(Ordering::Relaxed);
            if errors > 0 {
                out.push((rule.name.clone(), "filter_error", errors));
            }
        }
        out
    }
}

impl Rule {
    fn new(i: usize, rule: &AttentionRule) -> Result<Rule, Problem> {
        Ok(Rule {
            name: format!("attention[{i}] {}", rule.topic),
            topic: rule.topic.clone(),
            filter: rule.filter.as_ref().map(Filter::parse).transpose()?,
            bucket: rule.rate.map(Bucket::new),
            verdict: rule.verdict,
            given: AtomicU64::new(0),
            filter_errors: AtomicU64::new(0),
        })
    }

    /// A filter that errs does not match, and is counted.
    fn matches<'a>(&self, draft: &Draft, event: impl FnOnce() -> &'a Value) -> bool {
        if !self.topic.receives(&draft.topic) {
            return false;
        }
        match self.filter.as_ref().map(|filter| filter.test(event())) {
            None => true,
            Some(Ok(matches)) => matches,
            Some(Err(_)) => {
                self.filter_errors.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn holds(&self, now: Timestamp) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| !bucket.take(now))
    }
}

/// As many tokens as events are within the rate; it fills evenly. An event that finds one is below the rate.
struct Bucket {
    rate: Rate,
    state: Mutex<(f64, Timestamp)>,
}

impl Bucket {
    fn new(rate: Rate) -> Bucket {
        Bucket { rate, state: Mutex::new((rate.events as f64, Timestamp::EPOCH)) }
    }

    /// Takes a token if there is one. A clock that goes back fills nothing.
    fn take(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, at) = *state;
        let full = self.rate.events as f64;
        let gained = full * now.since(at).as_secs_f64() / self.rate.per.as_secs_f64();
        let tokens = (tokens + gained).min(full);
        let taken = tokens >= 1.0;
        *state = (if taken { tokens - 1.0 } else { tokens }, now);
        taken
    }
}
