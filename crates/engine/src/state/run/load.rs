//! Reads everything that lives from `state.db`, and builds the indexes.
//!
//! A body is mostly what a run has done and what its condition looks at. Of a run that waits for rows or for time only what
//! finding it needs is taken out of the text: a million of them must be there again within seconds.

use std::collections::BTreeMap;

use model::record::Status;
use model::{Position, Timestamp};
use rusqlite::Connection;
use serde::Deserialize;

use super::{Brief, Runs, Timer, gate};
use crate::run::Run;
use crate::state::Result;

/// What finding a run needs of its body.
#[derive(Deserialize)]
struct Found {
    id: String,
    position: Position,
    automation: String,
    hash: String,
    event: Position,
    /// There, when its start quotes the event.
    #[serde(default)]
    synthetic: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    key: String,
    status: Status,
    #[serde(default)]
    walk: Walked,
}

#[derive(Default, Deserialize)]
struct Walked {
    #[serde(default)]
    waits: Vec<Wait>,
    #[serde(default)]
    deadline: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Wait {
    number: u32,
    kind: Kind,
    #[serde(default)]
    due: Option<Timestamp>,
    #[serde(default)]
    ended: Option<Ended>,
}

#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    event: Option<Position>,
}

/// As [`crate::run::WaitKind`] names them; a body with another kind is read as a whole.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Delay,
    Retry,
    Yield,
    Limit,
    Until {
        refs: Vec<String>,
        #[serde(default)]
        indeterminate: bool,
        #[serde(default)]
        recheck: Option<Timestamp>,
    },
}

pub(in crate::state) fn load(db: &Connection) -> Result<Runs> {
    let mut runs =
        Runs { gates: gate::load(db)?, subscriptions: super::subscription::load(db)?, ..Runs::default() };
    let mut ready = BTreeMap::new();
    let mut read = db.prepare("SELECT ready, body FROM run ORDER BY position")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let since: Option<Position> = row.get(0)?;
        let body = row.get_ref(1)?.as_str().unwrap_or_default();
        let Some(position) = found(&mut runs, since, body).or_else(|| whole(&mut runs, since, body)) else {
            continue;
        };
        ready.extend(since.map(|since| ((since, position), position)));
    }
    runs.ready = ready.into_values().collect();
    for (id, pending) in &runs.gates.pending {
        if let Some(until) = pending.until {
            runs.timers.insert((until, Timer::Pending(*id)));
        }
    }
    for event in runs.gates.pending.values().flat_map(|pending| pending.events.clone()).collect::<Vec<_>>() {
        runs.events.keep(event);
    }
    runs.events.stored(db)?;
    let pending = runs.gates.pending.values().map(|pending| &pending.hash);
    runs.versions = super::version::load(db, runs.on_version.keys().chain(pending))?;
    runs.replaced = super::version::replaced(db)?;
    Ok(runs)
}

/// A run whose waits are all of the frequent kinds. Whatever [`Runs::arm`] and [`Runs::hold_on`] do, it does.
fn found(runs: &mut Runs, ready: Option<Position>, body: &str) -> Option<Position> {
    let run: Found = serde_json::from_str(body).ok()?;
    let (position, event) = (run.position, run.event);
    runs.timers.extend(run.walk.deadline.map(|at| (at, Timer::Run(position))));
    for wait in &run.walk.waits {
        let id = (position, wait.number);
        if let Some(ended) = &wait.ended {
            runs.events.keep_if(ended.event);
            continue;
        }
        let kind = if matches!(wait.kind, Kind::Until { .. }) { "until" } else { "delay" };
        *runs.wakes.kinds.entry(kind).or_insert(0) += 1;
        runs.timers.extend(wait.due.map(|due| (due, Timer::Wait(id))));
        if let Kind::Until { refs, indeterminate, recheck } = &wait.kind {
            runs.wakes.rows.insert(id, refs, *indeterminate);
            if recheck.is_some() {
                runs.wakes.rows.insert_timed(id);
            }
            recheck.iter().for_each(|at| runs.arm_recheck(id, *at));
        }
    }
    runs.events.keep(if run.synthetic.is_none() { event } else { 0 });
    let Found { id, automation, hash, key, status, .. } = run;
    runs.enter(position, Brief { id, automation, hash, key, event, status, ready });
    Some(position)
}

fn whole(runs: &mut Runs, ready: Option<Position>, body: &str) -> Option<Position> {
    let run: Run = serde_json::from_str(body).ok()?;
    runs.enter(run.position, Brief::of(&run, ready));
    runs.arm(&run, &[]);
    runs.events.keep(run.reads());
    runs.hold_on(&run);
    Some(run.position)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body(waits: &Value) -> String {
        json!({
            "id": "run_1", "position": 9, "automation": "a", "hash": "h", "trigger": "t", "event": 7, "key": "k",
            "occurrence": {"kind": "event", "position": 7, "at": "2026-01-01T00:00:00Z"}, "space": "default",
            "depth": 0, "attempt": 1, "started_at": "2026-01-01T00:00:00Z", "status": "waiting",
            "walk": {"at": {"next": 1}, "waits": waits, "deadline": "2026-01-02T00:00:00Z", "vars": {"x": [1, {}]}},
        })
        .to_string()
    }

    #[test]
    fn what_is_taken_out_of_a_body_is_what_reading_all_of_it_gives() {
        let wait = |number: u32, kind: Value| {
            let (at, due) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
            json!({"number": number, "path": "actions[0]", "kind": kind, "since": at, "due": due, "env": {"y": 1}})
        };
        let mut met = wait(4, json!("retry"));
        met["ended"] = json!({"how": "met", "at": "2026-01-01T00:00:00Z", "event": 8});
        let until = json!({"until": {
            "condition": "state.c.a.x", "refs": ["c/a", "d/*"], "indeterminate": true,
            "recheck": "2026-01-01T00:01:00Z",
        }});
        let waits = json!([wait(1, json!("delay")), wait(2, until), wait(3, json!("limit")), met]);
        let (mut light, mut full) = (Runs::default(), Runs::default());
        assert_eq!(found(&mut light, Some(3), &body(&waits)), Some(9));
        assert_eq!(whole(&mut full, Some(3), &body(&waits)), Some(9));
        assert_eq!(light.timers, full.timers);
        assert_eq!(light.timers.len(), 5);
        assert_eq!(light.wakes.kinds, full.wakes.kinds);
        assert_eq!((&light.live, &light.stage), (&full.live, &full.stage));
        assert_eq!(light.wakes.by_change("c", "a"), [(9, 2)]);
        assert_eq!(full.wakes.by_change("c", "a"), [(9, 2)]);
        let marked = |runs: &mut Runs| std::iter::from_fn(|| runs.wakes.next_marked()).count();
        assert_eq!((marked(&mut light), marked(&mut full)), (1, 1));
        let others = json!([wait(1, json!({"call": {"run": 3}}))]);
        assert_eq!(
            found(&mut Runs::default(), None, &body(&others)),
            None,
            "another kind is read as a whole"
        );
    }
}
