//! A disk that somebody else has filled: what the writer does when `state.db` finds no room in it.

use std::path::Path;

use ledger::disk::SimDisk;
use ledger::{FileLedger, Options, Prefill};
use model::event::{Content, Envelope, fingerprint};
use model::group::Definition;
use model::record::{Dead, DeadReason};
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::admit::Prepared;
use crate::command::Outcome;

const ROOM: Options = Options { segment_bytes: 1 << 20, prefill: Prefill::Off, headroom: 64 << 10 };
const DIR: &str = "/ledger";

struct Rig {
    disk: SimDisk,
    writer: Writer,
    ms: u64,
}

impl Rig {
    fn new() -> Rig {
        let disk = SimDisk::new(7);
        disk.set_capacity(Some(1 << 20));
        let ledger = FileLedger::create(Arc::new(disk.clone()), Path::new(DIR), ROOM).unwrap();
        let state = State::open(None).unwrap();
        let mut rig = Rig { disk, writer: Writer::new(Box::new(ledger), state, Entropy::seeded(7)), ms: 0 };
        rig.ask(put("g", "#")).unwrap();
        rig.writer.settle().unwrap();
        assert!(rig.keeps_room());
        rig
    }

    /// Every command comes so late that the state is committed after it.
    fn ask(&mut self, command: Command) -> Result<Answer, Problem> {
        self.ms += 100;
        let boot = Duration::from_millis(self.ms);
        let moment = Moment { now: Timestamp::EPOCH.plus(boot), boot, real: boot };
        let answer = self.writer.turn(moment, vec![command]).unwrap().answers.remove(0);
        self.writer.commit_state_if_due(moment).unwrap();
        answer
    }

    /// From here on there is not a page more for `state.db`, and next to nothing for the ledger.
    fn fill(&mut self) {
        let pages: i64 = self.writer.state.db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        self.writer.state.db.pragma_update(None, "max_page_count", pages).unwrap();
        self.disk.set_capacity(Some(80 << 10));
    }

    fn free(&mut self) {
        self.writer.state.db.pragma_update(None, "max_page_count", 1_000_000).unwrap();
        self.disk.set_capacity(Some(1 << 20));
    }

    fn keeps_room(&self) -> bool {
        self.disk.contents(&Path::new(DIR).join("headroom")).is_ok()
    }

    fn committed(&self) -> Position {
        let sql = "SELECT value FROM meta WHERE name = 'applied_position'";
        let text: String = self.writer.state.db.query_row(sql, [], |row| row.get(0)).unwrap();
        text.parse().unwrap()
    }
}

fn put(name: &str, topic: &str) -> Command {
    let definition = Definition::parse(&json!({"pattern": topic})).unwrap();
    Command::PutGroup { name: name.to_owned(), definition, floor: 0 }
}

fn dead(position: Position) -> Command {
    let event = RawValue::from_string(json!({"text": "x".repeat(20_000)}).to_string()).unwrap();
    let (group, reason) = ("g".to_owned(), DeadReason::Rejected);
    let dead = Dead { group, position, reason, attempts: 1, parked_key: None, error: None, event };
    Command::Note { records: vec![Record::GroupDead(dead)] }
}

#[test]
fn a_state_that_cannot_be_committed_is_kept_whole_until_there_is_room() {
    let mut rig = Rig::new();
    rig.fill();
    // Its row is written with the COMMIT, when the ledger has it already.
    let long = format!("a.{}", "x".repeat(400));
    let patterns: Vec<String> = (0..40).map(|n| format!("{long}{n}")).collect();
    let definition = Definition::parse(&json!({"pattern": patterns})).unwrap();
    rig.ask(Command::PutGroup { name: "long".to_owned(), definition, floor: 0 }).unwrap();
    rig.ask(Command::Pause { name: "long".to_owned(), paused: true }).unwrap();
    assert!(!rig.keeps_room(), "the headroom is given up for it");
    let refused = rig.ask(Command::AdmitDue).unwrap_err();
    assert_eq!(refused.code(), Code::StorageFull);
    rig.ask(Command::Pause { name: "long".to_owned(), paused: false }).unwrap();
    assert!(rig.writer.settle().unwrap_err().is_full(), "said to whoever needs it on the disk");
    assert!(rig.committed() < rig.writer.head() && !rig.writer.state.groups["long"].paused);
    rig.free();
    rig.writer.settle().unwrap();
    assert_eq!(rig.committed(), rig.writer.head());
    rig.ask(Command::AdmitDue).unwrap();
    let mut again = State::open(None).unwrap();
    read::fold_tail(rig.writer.ledger.reader().as_mut(), &mut again, |_| ()).unwrap();
    again.commit().unwrap();
    rig.writer.settle().unwrap();
    assert_eq!(rig.writer.state.dump_hash().unwrap(), again.dump_hash().unwrap());
}

#[test]
fn what_finds_no_room_while_it_is_folded_is_refused_and_leaves_nothing() {
    let mut rig = Rig::new();
    let before = rig.writer.head();
    rig.fill();
    assert_eq!(rig.ask(dead(before)).unwrap_err().code(), Code::StorageFull);
    assert_eq!((rig.writer.head(), rig.writer.state.applied), (before, rig.writer.ledger.head()));
    assert_eq!(rig.writer.state.groups["g"].dead_letters, 0);
    rig.ask(Command::Pause { name: "g".to_owned(), paused: true }).unwrap();
    rig.free();
    rig.ask(dead(before)).unwrap();
    rig.writer.settle().unwrap();
    assert_eq!((rig.committed(), rig.writer.state.groups["g"].dead_letters), (rig.writer.head(), 1));
}

fn keyed(key: &str) -> Command {
    let envelope = Envelope {
        id: key.to_owned(),
        topic: "a.b".to_owned(),
        key: Some(key.to_owned()),
        ..Envelope::default()
    };
    let event =
        Event { position: 0, recorded_at: Timestamp::EPOCH, envelope, content: Content::new("{}", None) };
    let prepared = Prepared::of(event, &mut Entropy::seeded(1));
    let fingerprint = fingerprint(&prepared.event.envelope, &prepared.event.content);
    Command::Publish { events: vec![Prepared { fingerprint, ..prepared }] }
}

#[test]
fn a_full_disk_refuses_what_is_new_and_answers_what_is_not() {
    let mut rig = Rig::new();
    rig.ask(keyed("k")).unwrap();
    rig.fill();
    assert_eq!(rig.ask(keyed("new")).unwrap_err().code(), Code::StorageFull);
    let Answer::Published(outcomes) = rig.ask(keyed("k")).unwrap() else { panic!("another answer") };
    assert!(matches!(&outcomes[0], Outcome::Recorded(receipt) if receipt.duplicate), "{outcomes:?}");
}
