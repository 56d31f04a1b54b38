//! Time in the ledger: every due instant is accounted for once, and a cooldown counts from a start.

use model::Timestamp;
use model::record::{Outcome, SchedulePassed, Verdict};
use serde_json::Value;

/// The length between two instants of a schedule, which are multiples of it.
const EVERY_NANOS: i128 = 10_000_000_000;
const COOLDOWN_MS: i64 = 8_000;

pub struct Schedule {
    through: Timestamp,
    /// Instants that came to an outcome since.
    accounted: u64,
}

impl Schedule {
    pub fn from(through: Timestamp) -> Schedule {
        Schedule { through, accounted: 0 }
    }

    /// A verdict is about one instant, or about many that share a fate.
    pub fn account(&mut self, values: &Value) {
        self.accounted += match values["count"].as_u64() {
            Some(count) => count,
            None => u64::from(values["at"].is_string()),
        };
    }

    pub fn pass(&mut self, passed: &SchedulePassed) -> Result<(), String> {
        let SchedulePassed { automation, through, .. } = passed;
        let beats = |at: Timestamp| at.nanos().div_euclid(EVERY_NANOS);
        let due = beats(*through) - beats(self.through);
        if due <= 0 || due != i128::from(self.accounted) {
            let (from, accounted) = (self.through, self.accounted);
            return Err(format!(
                "{automation}: {due} instants after {from} through {through}, {accounted} have an outcome"
            ));
        }
        (self.through, self.accounted) = (*through, 0);
        Ok(())
    }
}

/// When `cool` started last; unknown from a step of the clock on.
#[derive(Default)]
pub struct Cooled {
    last: Option<i64>,
    vague: bool,
}

impl Cooled {
    pub fn started(&mut self, now: Timestamp) {
        (self.last, self.vague) = (Some(now.millis()), false);
    }

    pub fn stepped(&mut self) {
        self.vague = true;
    }

    pub fn judge(&self, verdict: &Verdict, now: Timestamp) -> Result<(), String> {
        let held_back = verdict.reason.as_deref() == Some("cooldown");
        let ran = verdict.outcome == Outcome::Ran;
        let now = now.millis();
        match self.last {
            None if held_back => Err("cool is held back and has never started".to_owned()),
            Some(last) if held_back && !self.vague && now >= last + COOLDOWN_MS => {
                Err(format!("cool is held back {} ms after its last start", now - last))
            }
            Some(last) if ran && !self.vague && now < last + COOLDOWN_MS => {
                Err(format!("cool starts {} ms after its last start", now - last))
            }
            _ => Ok(()),
        }
    }
}
