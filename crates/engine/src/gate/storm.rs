//! An automation that starts more often than is well is said to storm: an event, once a minute. What was counted is memory,
//! the event is a record; a breaker that pauses counts for itself.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::breaker::{MINUTE_MS, per_minute};
use crate::automation::Automation;
use crate::decide::publish::engine_event;
use crate::draft::Draft;
use crate::state::Result;

pub const TOPIC: &str = "automation.storm";

/// The newest starts of one automation.
#[derive(Debug, Default)]
pub struct Starts(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    at: VecDeque<i64>,
    said: Option<i64>,
}

impl Starts {
    /// Notes a start; true when it is one too many, and that was not said within the last minute.
    fn is_storm(&self, now: i64, limit: usize) -> bool {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.at.push_back(now);
        while recent.at.len() > limit + 1 {
            recent.at.pop_front();
        }
        let within = |at: i64| (at..at + MINUTE_MS).contains(&now);
        let many = recent.at.len() > limit && recent.at.front().is_some_and(|first| within(*first));
        let new = many && !recent.said.is_some_and(within);
        if new {
            recent.said = Some(now);
        }
        new
    }
}

/// A run of it has started.
pub fn note(draft: &mut Draft<'_>, automation: &Automation) -> Result<()> {
    let limit = per_minute(automation);
    if !automation.starts.is_storm(draft.now.millis(), limit) {
        return Ok(());
    }
    say(draft, automation, false)
}

/// The breaker has paused it, or it warns only.
pub fn say(draft: &mut Draft<'_>, automation: &Automation, pauses: bool) -> Result<()> {
    let limit = per_minute(automation);
    let payload = json!({"automation": automation.name(), "per_minute": limit, "pauses": pauses});
    let place = (draft.next(), draft.now);
    let said = engine_event(TOPIC, &payload, place, draft.entropy);
    draft.add(said).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_said_once_a_minute_and_only_above_the_limit() {
        let starts = Starts::default();
        let said: Vec<bool> = (0..8).map(|n| starts.is_storm(n * 1_000, 3)).collect();
        assert_eq!(said, [false, false, false, true, false, false, false, false]);
        assert!(!starts.is_storm(70_000, 3), "the others were long before");
        assert_eq!((71..75).map(|n| starts.is_storm(n * 1_000, 3)).filter(|said| *said).count(), 1);
    }
}
