//! The history by itself: what is forgotten, and that folding at once or piece by piece tells the same.

use model::Timestamp;
use model::record::{Outcome, Reason, Routed, RunEnded, RunRecord, RunStarted, Status, Verdict};
use serde_json::{Value, json};

use super::read::Wanted;
use super::*;

fn place(position: Position, seconds: u64) -> Place {
    Place { position, time: Timestamp::EPOCH.plus(std::time::Duration::from_millis(seconds * 1_000)) }
}

fn routed(event: Position) -> RunRecord {
    let verdict = Verdict {
        automation: "a".to_owned(),
        trigger: "t".to_owned(),
        version: "v".to_owned(),
        outcome: Outcome::Ran,
        reason: None,
        gate: None,
        until: None,
        run: None,
        events: Vec::new(),
        key: None,
        set: Vec::new(),
        values: Value::Null,
    };
    RunRecord::Routed(Routed { event, verdicts: vec![verdict] })
}

fn started(event: Position, at: Timestamp) -> RunRecord {
    RunRecord::Started(Box::new(RunStarted {
        trigger: "t".to_owned(),
        occurrence: Reason { kind: "event".to_owned(), position: event, at },
        event,
        ..RunStarted::new(format!("run_{event}"), "a", &"h".repeat(64), at)
    }))
}

fn ended(run: Position) -> RunRecord {
    let steps = vec![json!({"path": "actions[0]"}), json!({"path": "actions[1]"})];
    let (status, output) = (Status::Completed, json!(run));
    let band = Default::default();
    let (code, class, message, step_count) = (None, None, None, 2);
    RunRecord::Ended(RunEnded { run, status, band, code, class, message, output, steps, step_count })
}

/// One run a second: event, routed, run.started, run.ended; the last one has not ended.
fn records(count: u64) -> Vec<(Place, RunRecord)> {
    let mut records = Vec::new();
    for n in 0..count {
        let event = n * 4 + 1;
        let at = |offset: u64| place(event + offset, n);
        records.push((at(1), routed(event)));
        records.push((at(2), started(event, at(2).time)));
        if n + 1 < count {
            records.push((at(3), ended(event + 2)));
        }
    }
    records
}

fn told(history: &History) -> (Vec<Value>, Vec<Value>) {
    let wanted = Wanted { limit: 1_000, ..Wanted::default() };
    let (runs, _) = history.runs(&wanted).unwrap();
    let runs = runs.iter().map(|run| history.run(run["id"].as_str().unwrap()).unwrap().unwrap());
    (runs.collect(), history.decisions(&wanted).unwrap().0)
}

#[test]
fn folding_at_once_and_one_by_one_tells_the_same() {
    let records = records(20);
    let mut at_once = History::open(None).unwrap();
    at_once.fold(&records, 100).unwrap();
    let mut one_by_one = History::open(None).unwrap();
    for record in &records {
        one_by_one.fold(std::slice::from_ref(record), record.0.position).unwrap();
    }
    let told_at_once = told(&at_once);
    assert_eq!(told_at_once, told(&one_by_one));
    assert_eq!((told_at_once.0.len(), told_at_once.1.len()), (20, 20));
    assert!(told_at_once.1.iter().all(|decision| decision["run"].is_string()));
    assert_eq!(told_at_once.0[1]["steps"].as_array().unwrap().len(), 2);
    at_once.fold(&records, 100).unwrap();
    assert_eq!(told(&at_once), told_at_once, "what is known is not folded again");
}

#[test]
fn what_ended_before_an_instant_is_forgotten_in_pieces_and_what_lives_is_not() {
    let mut history = History::open(None).unwrap();
    history.fold(&records(20), 100).unwrap();
    let ten = place(0, 10).time;
    let mut rounds = 0;
    while history.drop_before(ten, 3).unwrap() {
        rounds += 1;
    }
    assert!(rounds >= 3, "in pieces: {rounds}");
    let (runs, decisions) = told(&history);
    assert_eq!((runs.len(), decisions.len()), (10, 10));
    assert!(!history.drop_before(ten, 3).unwrap());
    while history.drop_before(place(0, 1_000).time, 100).unwrap() {}
    let (runs, _) = told(&history);
    assert_eq!(runs.len(), 1, "it has not ended");
}
