//! The offline tools on ledgers that were trimmed, damaged, erased or half erased.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::{Disk, Fault, SimDisk};
use ledger::{Error, FileLedger, FindingKind, Ledger, Report, TRIMMED};

use crate::fixture::{self, DIR, SMALL, append, contents, one, segment};

fn verify(disk: &dyn Disk, dir: &str) -> Report {
    ledger::verify(disk, Path::new(dir), &mut |_, _| {}).unwrap()
}

/// Four segments of five records and an active one.
fn sealed() -> (SimDisk, Arc<dyn Disk>, FileLedger) {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    for _ in 0..4 {
        append(&mut ledger, &[2, 3]);
        ledger.seal().unwrap();
    }
    append(&mut ledger, &[1]);
    (sim, disk, ledger)
}

type Damage = fn(&mut Vec<u8>);

fn trim(ledger: &mut FileLedger, upto: u64, files: bool) {
    let floor = ledger::floor(ledger, upto).unwrap().unwrap();
    let data = format!("{{\"first\":{},\"before\":\"{}\"}}", floor.position + 1, floor.chain);
    let record = one(ledger, TRIMMED, &data);
    ledger.append(&record, true).unwrap();
    if files {
        ledger.trim(floor.position + 1).unwrap();
    }
}

#[test]
fn a_sound_ledger_is_reported_in_full() {
    let (_, disk, ledger) = sealed();
    let report = verify(disk.as_ref(), DIR);
    assert_eq!((report.segments, report.commits, report.records), (5, 9, 21));
    assert_eq!((report.first, report.last, report.erased), (1, 21, 0));
    assert_eq!((report.head, report.problems), (ledger.head().chain.to_string(), vec![]));
}

#[test]
fn a_trimmed_start_is_accepted_with_the_recorded_chain_only() {
    let (sim, disk, mut ledger) = sealed();
    trim(&mut ledger, 12, true);
    assert_eq!((ledger.first(), verify(disk.as_ref(), DIR).problems), (11, vec![]));
    trim(&mut ledger, 16, false);
    assert_eq!(
        verify(disk.as_ref(), DIR).problems,
        vec![],
        "recorded, and a crash came before the files went"
    );
    ledger.trim(16).unwrap();
    assert_eq!((ledger.first(), verify(disk.as_ref(), DIR).problems), (16, vec![]));
    let (ledger, _) = FileLedger::open(disk.clone(), Path::new(DIR), SMALL).unwrap();
    assert_eq!(contents(ledger.reader().as_mut(), 16).len(), 8);
    // The first kept line now claims another past.
    sim.edit(&segment(16), |file| file[30] = b'9').unwrap();
    let problems = verify(disk.as_ref(), DIR).problems;
    assert_eq!((problems.len(), problems[0].kind), (1, FindingKind::Chain), "{problems:?}");
}

#[test]
fn the_active_segment_alone_may_be_left_after_a_trim() {
    let (_, disk, mut ledger) = sealed();
    trim(&mut ledger, 99, true);
    assert_eq!(ledger.first(), 21);
    drop(ledger);
    let (mut ledger, _) = FileLedger::open(disk.clone(), Path::new(DIR), SMALL).unwrap();
    append(&mut ledger, &[1]);
    assert_eq!((ledger.head().position, verify(disk.as_ref(), DIR).problems), (23, vec![]));
}

#[test]
fn a_missing_segment_is_a_gap() {
    let (_, disk, _ledger) = sealed();
    disk.remove(&segment(6)).unwrap();
    let problems = verify(disk.as_ref(), DIR).problems;
    assert_eq!((problems[0].kind, problems[0].position), (FindingKind::Gap, 6));
    disk.remove(&segment(1)).unwrap();
    let problems = verify(disk.as_ref(), DIR).problems;
    assert_eq!(problems[0].kind, FindingKind::Gap, "nothing says why it begins at 11");
}

#[test]
fn a_reader_never_passes_over_a_missing_segment() {
    let (_, disk, ledger) = sealed();
    drop(ledger);
    disk.remove(&segment(6)).unwrap();
    let (ledger, _) = FileLedger::open(disk.clone(), Path::new(DIR), SMALL).unwrap();
    let (mut reader, mut bytes) = (ledger.reader(), Vec::new());
    for from in [6, 8, 10] {
        let read = reader.read(from, 1000, &mut bytes);
        assert!(matches!(&read, Err(Error::Corrupt { position, .. }) if *position == from), "{read:?}");
    }
    assert_eq!(reader.read(1, 9999, &mut bytes).unwrap().next, 6);
    assert!(matches!(reader.read(6, 9999, &mut bytes), Err(Error::Corrupt { .. })));
    assert_eq!(reader.read(11, 9999, &mut bytes).unwrap().next, 16);
}

#[test]
fn each_kind_of_damage_has_its_name_and_place() {
    let cases: [(&str, Damage); 3] = [
        ("corrupt", |file| file[0] = b'['),
        // A letter inside the time is covered by the chain and by nothing else.
        ("chain", |file| file[14] ^= 1),
        ("body", |file| {
            let at = file.windows(6).position(|w| w == b"{\"n\":6").unwrap();
            file[at + 5] = b'7';
        }),
    ];
    for (name, damage) in cases {
        let (sim, disk, _ledger) = sealed();
        sim.edit(&segment(6), damage).unwrap();
        let problems = verify(disk.as_ref(), DIR).problems;
        assert_eq!(serde_json::to_value(problems[0].kind).unwrap(), name, "{problems:?}");
        assert_eq!((&problems[0].file, problems[0].offset, problems[0].position), (&segment(6), 0, 6));
        assert_eq!(problems.len(), 1, "the rest is sound: {problems:?}");
    }
}

#[test]
fn salvage_copies_the_valid_prefix_into_a_ledger_that_opens() {
    let (sim, disk, ledger) = sealed();
    drop(ledger);
    sim.edit(&segment(11), |file| {
        let second = file.iter().position(|b| *b == b'\n').unwrap() + 1;
        file[second + 50] ^= 4;
    })
    .unwrap();
    let saved = ledger::salvage(disk.as_ref(), Path::new(DIR), Path::new("saved"), &mut |_, _| {}).unwrap();
    assert_eq!((saved.commits, saved.records, saved.head.position), (5, 12, 12));
    assert!(saved.stopped.unwrap().contains("00000000000000000011.jsonl"));
    assert_eq!(verify(disk.as_ref(), "saved").problems, vec![]);
    let (mut ledger, _) = FileLedger::open(disk.clone(), Path::new("saved"), SMALL).unwrap();
    assert_eq!(ledger.head(), saved.head);
    append(&mut ledger, &[1]);
    let again = ledger::salvage(disk.as_ref(), Path::new(DIR), Path::new("saved"), &mut |_, _| {});
    assert!(matches!(again, Err(Error::Exists { .. })));
}

#[test]
fn salvage_of_a_trimmed_ledger_knows_the_chain_before_it_from_behind_the_damage() {
    let (sim, disk, mut ledger) = sealed();
    trim(&mut ledger, 12, true);
    drop(ledger);
    let before = {
        let text = String::from_utf8(sim.contents(&segment(21)).unwrap()).unwrap();
        let at = text.find("\"before\":\"").unwrap() + 10;
        text[at..at + 64].to_owned()
    };
    sim.edit(&segment(16), |file| file[50] ^= 4).unwrap();
    let salvage =
        |to: &str| ledger::salvage(disk.as_ref(), Path::new(DIR), Path::new(to), &mut |_, _| {}).unwrap();
    let saved = salvage("saved");
    assert_eq!((saved.first, saved.head.position, saved.explained), (11, 15, false));
    assert_eq!(saved.before.map(|chain| chain.to_string()), Some(before.clone()));
    assert!(ledger::begins_after(&saved.first_line, saved.before.unwrap()));
    // A chain that is not the one before the first line is not believed.
    sim.edit(&segment(21), |file| {
        let at = file.windows(64).position(|window| window == before.as_bytes()).unwrap();
        file[at] ^= 1;
    })
    .unwrap();
    assert_eq!(salvage("again").before, None);
}

#[test]
fn erasing_offline_keeps_a_clean_stop_clean() {
    let (sim, disk, mut ledger) = sealed();
    fixture::close(&mut ledger);
    drop(ledger);
    let before = sim.contents(&segment(6)).unwrap().len();
    let erased = ledger::erase(disk.as_ref(), Path::new(DIR), &[7, 8, 21, 22]).unwrap();
    assert_eq!((erased.erased, &erased.absent[..]), (3, &[22][..]));
    assert_eq!(sim.contents(&segment(6)).unwrap().len(), before);
    let report = verify(disk.as_ref(), DIR);
    assert_eq!((report.erased, report.problems), (3, vec![]));
    assert!(FileLedger::open(disk.clone(), Path::new(DIR), SMALL).unwrap().1.clean);
    let text = String::from_utf8(sim.contents(&segment(6)).unwrap()).unwrap();
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_power_cut_at_any_io_of_an_erasure_leaves_a_sound_line() {
    for n in 1..40 {
        let (sim, disk, ledger) = sealed();
        drop(ledger);
        sim.fail_after(n, Fault::PowerCut, true);
        let done = ledger::erase(disk.as_ref(), Path::new(DIR), &[7, 12, 21]).is_ok();
        sim.power_cut();
        FileLedger::open(disk.clone(), Path::new(DIR), SMALL).unwrap();
        let report = verify(disk.as_ref(), DIR);
        assert_eq!((report.last, report.problems), (21, vec![]), "IO {n}");
        assert!(report.erased == 3 || (report.erased == 0 && !done), "IO {n}: {}", report.erased);
    }
}
