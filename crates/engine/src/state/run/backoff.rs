//! Schedules whose runs failed in a row: until when their instants are left out. Kept beside what gates remember.

use std::collections::BTreeMap;

use model::Timestamp;
use model::record::{Backoff, GateSet};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::shifted;
use crate::automation::Automation;
use crate::state::{Result, State};

/// The gate under which it stands in the table.
const BACKOFF: &str = "backoff";

/// By automation, with the version it is of: a changed definition begins anew.
pub(super) type Backoffs = BTreeMap<String, (Backoff, String)>;

impl State {
    /// What it has come to under the version that is declared now.
    pub fn backoff_of(&self, automation: &Automation) -> Option<Backoff> {
        let (backoff, hash) = self.runs.gates.backoffs.get(automation.name())?;
        (*hash == automation.hash).then_some(*backoff)
    }

    pub(super) fn set_backoff(&mut self, name: &str, backoff: Backoff, hash: &str) {
        let backoffs = &mut self.runs.gates.backoffs;
        let value = (backoff.failures > 0).then(|| to_value(backoff, hash));
        match value {
            Some(_) => _ = backoffs.insert(name.to_owned(), (backoff, hash.to_owned())),
            None => _ = backoffs.remove(name),
        }
        self.set_gates(
            name,
            &[GateSet { gate: BACKOFF.to_owned(), trigger: String::new(), key: String::new(), value }],
        );
    }

    /// It is time that passes, not an instant: a step of the clock moves it.
    pub(super) fn shift_backoffs(&mut self, by_ms: i64) {
        let all: Vec<_> = self.runs.gates.backoffs.clone().into_iter().collect();
        for (name, (backoff, hash)) in all {
            let until = backoff.until.map(|until| shifted(until, by_ms));
            self.set_backoff(&name, Backoff { until, ..backoff }, &hash);
        }
    }
}

fn to_value(backoff: Backoff, hash: &str) -> Value {
    json!({"failures": backoff.failures, "until": backoff.until, "hash": hash})
}

pub(super) fn load(db: &Connection) -> Result<Backoffs> {
    let mut read = db.prepare("SELECT automation, value FROM gate WHERE gate = ?1")?;
    let mut rows = read.query([BACKOFF])?;
    let mut backoffs = Backoffs::new();
    while let Some(row) = rows.next()? {
        let kept: Value = serde_json::from_str(&row.get::<_, String>(1)?).unwrap_or_default();
        let until = kept["until"].as_str().and_then(|until| Timestamp::parse(until).ok());
        let backoff = Backoff { failures: kept["failures"].as_u64().unwrap_or(0), until };
        backoffs.insert(row.get(0)?, (backoff, kept["hash"].as_str().unwrap_or_default().to_owned()));
    }
    Ok(backoffs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again_equal_and_an_end_leaves_nothing() {
        let mut state = State::open(None).unwrap();
        let until = Some(Timestamp::from_millis(1_500));
        state.set_backoff("a", Backoff { failures: 2, until }, "h");
        state.set_backoff("b", Backoff { failures: 1, until }, "h");
        state.shift_backoffs(500);
        state.set_backoff("b", Backoff::default(), "h");
        state.store_gates().unwrap();
        let later = Some(Timestamp::from_millis(2_000));
        let kept =
            Backoffs::from([("a".to_owned(), (Backoff { failures: 2, until: later }, "h".to_owned()))]);
        assert_eq!(load(&state.db).unwrap(), kept);
        assert_eq!(state.runs.gates.backoffs, kept);
    }
}
