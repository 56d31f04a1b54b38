//! Rows at hand read as those in the table, are written once, and go when what was folded is taken back.

use std::sync::Arc;

use model::Timestamp;
use model::event::{Content, Envelope, Event};
use model::record::{Change, Changed, Record};
use serde_json::json;

use super::*;
use crate::apply::{Place, apply};
use crate::draft::Draft;
use crate::entropy::Entropy;

const CONCEPT: &str = "v1:t:thing";

fn state() -> State {
    let mut state = State::open(None).unwrap();
    state.begin().unwrap();
    state
}

/// The two records of a change, at `position` and right after it.
fn fold(state: &mut State, position: u64, change: Change, n: u64) {
    let time = Timestamp::EPOCH.plus(std::time::Duration::from_secs(position));
    let payload =
        json!({"payload": {"n": n}, "provenance": {"kind": "api", "name": "", "trigger": "", "via": ""}});
    let envelope = Envelope {
        topic: format!("graph.node.{}.{CONCEPT}", change.as_str()),
        actor: format!("user:{position}"),
        ..Envelope::default()
    };
    let content = Content::new(&payload.to_string(), None);
    let event = Record::Event(Arc::new(Event { position, recorded_at: time, envelope, content }));
    let changed = Record::EntityChanged(Box::new(Changed {
        change,
        concept: CONCEPT.to_owned(),
        space: "s".to_owned(),
        id: "a".to_owned(),
        prev: None,
        since: Default::default(),
        sealed: Default::default(),
    }));
    apply(state, Place { position, time }, &event).unwrap();
    apply(state, Place { position: position + 1, time }, &changed).unwrap();
}

fn row(state: &State) -> Option<Row> {
    state.row(CONCEPT, "s", "a").unwrap()
}

/// Without writing what is at hand.
fn in_table(state: &State) -> u64 {
    state.db.query_row("SELECT count(*) FROM entity", [], |row| row.get(0)).unwrap()
}

fn dump(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    state.dump(|line| lines.push(line.to_owned())).unwrap();
    lines
}

const CHANGES: [(u64, Change, u64); 7] = [
    (1, Change::Created, 1),
    (3, Change::Updated, 2),
    (5, Change::Updated, 3),
    (7, Change::Deleted, 3),
    (9, Change::Created, 4),
    (11, Change::Updated, 5),
    (13, Change::Updated, 6),
];

#[test]
fn a_row_reads_the_same_at_hand_and_in_the_table_after_every_change() {
    let (mut kept, mut written) = (state(), state());
    for (position, change, n) in CHANGES {
        fold(&mut kept, position, change, n);
        fold(&mut written, position, change, n);
        written.write_rows().unwrap();
        written.at_hand.clear();
        assert_eq!(row(&kept), row(&written), "after {position}");
    }
    assert_eq!(row(&kept).unwrap().created_by, "user:9");
    assert_eq!(in_table(&kept), 0, "nothing asked for it yet");
    assert_eq!(dump(&kept), dump(&written));
    assert_eq!(in_table(&kept), 1);
    assert_eq!(kept.count_rows(CONCEPT).unwrap(), 1);
}

#[test]
fn a_commit_writes_what_is_at_hand() {
    let mut state = state();
    fold(&mut state, 1, Change::Created, 1);
    state.commit().unwrap();
    assert_eq!(in_table(&state), 1);
    state.begin().unwrap();
    fold(&mut state, 3, Change::Updated, 2);
    assert_eq!(row(&state).unwrap().fields["n"], 2);
    state.roll_back().unwrap();
    assert_eq!(row(&state).unwrap().fields["n"], 1);
}

#[test]
fn what_is_taken_back_is_not_at_hand_and_what_came_before_is() {
    let mut state = state();
    fold(&mut state, 1, Change::Created, 1);
    let mut entropy = Entropy::seeded(1);
    let mut draft = Draft::new(&mut state, &mut entropy, Timestamp::EPOCH, 3);
    let mark = draft.mark().unwrap();
    fold(draft.state, 3, Change::Updated, 2);
    assert_eq!(row(draft.state).unwrap().fields["n"], 2);
    draft.rewind(mark).unwrap();
    assert_eq!(row(&state).unwrap().fields["n"], 1);
    assert_eq!(row(&state).unwrap().version, 1);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut state = state();
    fold(&mut state, 1, Change::Created, 1);
    let large = |id: usize| Columns {
        concept: CONCEPT.to_owned(),
        id: id.to_string(),
        space: "s".to_owned(),
        version: 1,
        created_at: String::new(),
        created_by: String::new(),
        updated_at: String::new(),
        fields: "x".repeat(BYTES_MAX / 2),
        sealed: None,
        since: None,
        provenance: String::new(),
    };
    assert!(!state.at_hand.put(large(1), false));
    assert!(!state.at_hand.put(large(1), false), "the same row is counted once");
    assert!(state.at_hand.put(large(2), false));
    state.write_rows().unwrap();
    assert!(state.at_hand.0.borrow().rows.is_empty());
    assert_eq!(row(&state).unwrap().fields["n"], 1);
}
