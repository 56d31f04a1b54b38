//! Space and company: a full disk and its headroom, files filled ahead and cut, readers beside a busy writer.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::{Disk, OsDisk};
use ledger::{BodyRef, Chain, FileLedger, Ledger, Options, Prefill, Reader};

use crate::fixture::{self, DIR, TempDir, append, batch_padded, segment};

const ROOM: Options = Options { segment_bytes: 1 << 20, prefill: Prefill::Off, headroom: 10_000 };

#[test]
fn publishing_is_refused_first_and_acks_still_fit() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = FileLedger::create(disk, Path::new(DIR), ROOM).unwrap();
    sim.set_capacity(Some(50_000));
    assert!(!ledger.is_full());
    append(&mut ledger, &[1]);
    sim.set_capacity(Some(17_000));
    let big = batch_padded(&ledger, &[1], 1000);
    ledger.append(&big, true).unwrap();
    // It is noticed by a look at the disk or by an append that finds no room, whichever comes first.
    while !ledger.is_full() {
        let more = batch_padded(&ledger, &[1], 1000);
        ledger.append(&more, true).unwrap();
    }
    let used = ledger.segments()[0].bytes;
    for _ in 0..10 {
        append(&mut ledger, &[1]);
    }
    assert!(ledger.segments()[0].bytes > used && ledger.is_full());
    sim.set_capacity(Some(100_000));
    assert!(!ledger.is_full(), "there is room again");
    assert!(
        sim.contents(&Path::new(DIR).join("headroom")).unwrap().len() == 10_000,
        "and it is kept back again"
    );
}

#[test]
fn what_is_kept_back_grows_with_the_ledger_and_is_found_again() {
    let (sim, disk) = fixture::sim(1);
    let options = Options { headroom: 1 << 20, segment_bytes: 64 << 20, ..ROOM };
    let kept = || sim.contents(&Path::new(DIR).join("headroom")).unwrap().len();
    let mut ledger = FileLedger::create(disk.clone(), Path::new(DIR), options).unwrap();
    assert!(!ledger.is_full());
    assert_eq!(kept(), 256 << 10, "a new tenant needs little");
    let mut sizes = Vec::new();
    for _ in 0..20 {
        let more = batch_padded(&ledger, &[1], 100_000);
        ledger.append(&more, true).unwrap();
        (0..64).for_each(|_| _ = ledger.is_full());
        sizes.push(kept());
    }
    sizes.dedup();
    assert_eq!(sizes, [256 << 10, 512 << 10, 1 << 20]);
    drop(ledger);
    sim.kill();
    let (mut ledger, _) = FileLedger::open(disk, Path::new(DIR), options).unwrap();
    assert!(!ledger.is_full());
    assert_eq!(kept(), 1 << 20);
}

#[test]
fn the_active_segment_is_filled_with_newlines_and_cut_at_seal_and_close() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1]);
    let bytes = sim.contents(&segment(1)).unwrap();
    assert_eq!((bytes.len(), bytes.last()), (4096, Some(&b'\n')));
    append(&mut ledger, &[10]);
    assert_eq!(sim.contents(&Path::new(DIR).join("next")).unwrap().len(), 4096, "the next one is prepared");
    ledger.seal().unwrap();
    assert_eq!(sim.contents(&segment(1)).unwrap().len() as u64, ledger.segments()[0].bytes);
    assert_eq!(sim.contents(&segment(12)).unwrap(), [b'\n'; 4096]);
    append(&mut ledger, &[1]);
    fixture::close(&mut ledger);
    let bytes = sim.contents(&segment(12)).unwrap();
    assert_eq!(bytes.len() as u64, ledger.segments()[1].bytes);
    assert!(bytes.ends_with(b"}\n"));
}

#[test]
fn a_writer_that_outruns_its_filler_loses_nothing() {
    let temp = TempDir::new("outrun");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let options = Options { segment_bytes: 3 << 20, prefill: Prefill::Background, headroom: 1 << 20 };
    let dir = temp.0.join("ledger");
    let mut ledger = FileLedger::create(disk.clone(), &dir, options).unwrap();
    for _ in 0..200 {
        let batch = batch_padded(&ledger, &[1; 40], 1000);
        ledger.append(&batch, false).unwrap();
    }
    fixture::close(&mut ledger);
    let report = ledger::verify(disk.as_ref(), &dir, &mut |_, _| {}).unwrap();
    assert_eq!((report.records, report.problems.len()), (8001, 0), "{report:?}");
    let total: u64 =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let lines: u64 = ledger.segments().iter().map(|segment| segment.bytes).sum();
    assert!(total <= lines + (1 << 20) + 1000, "what was filled is cut: {total} {lines}");
}

/// Follows the ledger from its first line to `last`, checking every line; how many erased bodies it met.
fn follow(mut reader: Box<dyn Reader>, last: u64) -> usize {
    let (mut from, mut chain, mut erased, mut bytes) = (1, Chain::ZERO, 0, Vec::new());
    while from <= last {
        let end = reader.read(from, 20_000, &mut bytes).unwrap();
        for line in ledger::lines(&bytes) {
            chain = ledger::check(line, chain).unwrap();
            let line = ledger::parse(line).unwrap();
            erased += line.records().filter(|record| record.body == Some(BodyRef::Erased)).count();
        }
        from = end.next;
        std::thread::yield_now();
    }
    erased
}

#[test]
fn readers_beside_a_busy_writer_see_whole_lines_only() {
    let temp = TempDir::new("beside");
    let options = Options { segment_bytes: 1 << 18, prefill: Prefill::Background, headroom: 0 };
    let mut ledger = FileLedger::create(Arc::new(OsDisk), &temp.0.join("ledger"), options).unwrap();
    let readers: Vec<_> = (0..2).map(|_| ledger.reader()).collect();
    let followers: Vec<_> = readers.into_iter().map(|r| std::thread::spawn(|| follow(r, 6000))).collect();
    for round in 0..300u64 {
        let batch = batch_padded(&ledger, &[1; 20], 200);
        ledger.append(&batch, round.is_multiple_of(50)).unwrap();
        if round.is_multiple_of(10) {
            let head = ledger.head().position;
            ledger.erase(&[head / 2 + 1, head]).unwrap();
        }
    }
    let followed: Vec<_> = followers.into_iter().map(|follower| follower.join().unwrap()).collect();
    assert!(followed.iter().all(|erased| *erased <= 60));
    assert!(follow(ledger.reader(), 6000) > 50);
}
