//! What is counted about automations, and how their runs, waits and timers stand at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::record::Outcome;

use super::{GROUPS_MAX, Named};

/// Classes of answers that effects get; what went well is the first.
pub const CLASSES: [&str; 4] = ["ok", "transient", "permanent", "budget"];

#[derive(Default)]
pub struct Automations {
    occurrences: Named<[AtomicU64; Outcome::ENDS.len()]>,
    storms: Named<AtomicU64>,
    effects: Named<[AtomicU64; CLASSES.len()]>,
}

/// A name, a second label, a count.
pub type Count = (Arc<str>, &'static str, u64);

impl Automations {
    /// So many occurrences of an automation came to this end; what is pending has not.
    pub fn met(&self, automation: &str, outcome: Outcome, count: u64) {
        if let Some(at) = Outcome::ENDS.iter().position(|end| *end == outcome) {
            self.occurrences.get(automation, GROUPS_MAX)[at].fetch_add(count, Relaxed);
        }
    }

    pub fn stormed(&self, automation: &str) {
        self.storms.get(automation, GROUPS_MAX).fetch_add(1, Relaxed);
    }

    /// An effect of this kind was answered for; an unknown class counts as permanent.
    pub fn attempted(&self, kind: &str, class: &str) {
        let at = CLASSES.iter().position(|known| *known == class).unwrap_or(2);
        self.effects.get(kind, GROUPS_MAX)[at].fetch_add(1, Relaxed);
    }

    pub fn occurrences(&self) -> Vec<Count> {
        counted(&self.occurrences, Outcome::ENDS.map(Outcome::as_str))
    }

    pub fn effects(&self) -> Vec<Count> {
        counted(&self.effects, CLASSES)
    }

    pub fn storms(&self) -> Vec<(Arc<str>, u64)> {
        self.storms.all().into_iter().map(|(name, count)| (name, count.load(Relaxed))).collect()
    }
}

fn counted<const N: usize>(named: &Named<[AtomicU64; N]>, labels: [&'static str; N]) -> Vec<Count>
where
    [AtomicU64; N]: Default,
{
    let mut all = Vec::new();
    for (name, counts) in named.all() {
        let counts = counts.iter().map(|count| count.load(Relaxed));
        let some = labels.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        all.extend(some.map(|(label, count)| (name.clone(), label, count)));
    }
    all
}

/// How one tenant's runs stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// `queued running waiting` now; `completed failed cancelled` since the tenant was opened.
    pub runs: [(&'static str, u64); 6],
    pub waits: BTreeMap<&'static str, u64>,
    pub timers: u64,
    /// How late the oldest timer is that is due.
    pub late_seconds: f64,
}
