//! What every home of the ledger promises, run against each of them.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::OsDisk;
use ledger::{AppendError, Chain, Error, FileLedger, Head, Ledger, MemoryLedger, Options, Prefill};

use crate::fixture::{self, SMALL, TempDir, append, batch, batch_padded, contents, one};

/// Runs a promise in memory, on a simulated disk and on the real one.
fn in_every_home(promise: fn(&mut dyn Ledger)) {
    promise(&mut MemoryLedger::new());
    promise(&mut fixture::create(&fixture::sim(1).1));
    for prefill in [Prefill::Off, Prefill::Inline, Prefill::Background] {
        let temp = TempDir::new("conformance");
        let options = Options { prefill, ..SMALL };
        promise(&mut FileLedger::create(Arc::new(OsDisk), &temp.0.join("ledger"), options).unwrap());
    }
}

#[test]
fn an_empty_ledger_is_at_zero() {
    in_every_home(|ledger| {
        assert_eq!(ledger.head(), Head { position: 0, chain: Chain::ZERO });
        assert_eq!((ledger.first(), ledger.synced()), (1, 0));
        assert_eq!(contents(ledger.reader().as_mut(), 1), Vec::<String>::new());
    });
}

#[test]
fn what_is_appended_reads_back_from_any_position() {
    in_every_home(|ledger| {
        for commits in [&[1][..], &[3, 1], &[2, 2, 2], &[1; 40], &[70]] {
            append(ledger, commits);
        }
        let all = contents(ledger.reader().as_mut(), 1);
        assert_eq!(all.len() as u64, ledger.head().position);
        assert!(all[41].starts_with("42 event {\"n\":42,"), "{}", all[41]);
        for from in 1..=ledger.head().position {
            let read = contents(ledger.reader().as_mut(), from);
            // The line that contains `from` may begin before it.
            assert!(all.ends_with(&read) && read.len() as u64 > ledger.head().position - from);
        }
    });
}

#[test]
fn a_chain_of_lines_leads_to_the_head() {
    in_every_home(|ledger| {
        append(ledger, &[1, 2]);
        append(ledger, &[3]);
        let mut bytes = Vec::new();
        ledger.reader().read(1, 1 << 20, &mut bytes).unwrap();
        let chain = ledger::lines(&bytes).fold(Chain::ZERO, |prev, line| ledger::check(line, prev).unwrap());
        assert_eq!(chain, ledger.head().chain);
        assert_eq!(ledger::head_at(ledger.reader().as_mut(), 6).unwrap(), ledger.head());
        assert_eq!(ledger::head_at(ledger.reader().as_mut(), 2).unwrap().position, 3);
    });
}

#[test]
fn a_reader_sees_later_appends_and_a_small_read_is_one_line() {
    in_every_home(|ledger| {
        let mut reader = ledger.reader();
        let mut bytes = Vec::new();
        assert_eq!(reader.read(1, 100, &mut bytes).unwrap().next, 1);
        append(ledger, &[2, 2]);
        assert_eq!(reader.read(1, 1, &mut bytes).unwrap().next, 3);
        assert_eq!(ledger::lines(&bytes).count(), 1);
        assert_eq!(reader.read(3, 1, &mut bytes).unwrap().next, 5);
        let long = batch_padded(ledger, &[1], 100_000);
        ledger.append(&long, true).unwrap();
        assert_eq!(reader.read(5, 1, &mut bytes).unwrap().next, 6);
        assert!(bytes.len() > 100_000);
        assert_eq!(reader.read(6, 1, &mut bytes).unwrap().next, 6);
        assert!(bytes.is_empty());
    });
}

#[test]
fn synced_follows_head_only_at_a_sync() {
    in_every_home(|ledger| {
        let first = batch(ledger, &[1]);
        ledger.append(&first, false).unwrap();
        assert_eq!((ledger.head().position, ledger.synced()), (1, 0));
        ledger.sync().unwrap();
        assert_eq!(ledger.synced(), 1);
        let second = batch(ledger, &[1]);
        assert_eq!(ledger::parse(second.bytes()).unwrap().synced, 1);
        ledger.append(&second, true).unwrap();
        assert_eq!(ledger.synced(), 2);
    });
}

#[test]
fn a_batch_on_another_head_is_refused() {
    in_every_home(|ledger| {
        let stale = batch(ledger, &[1]);
        append(ledger, &[2]);
        let refused = ledger.append(&stale, true).unwrap_err();
        assert!(matches!(refused, AppendError::Refused(Error::Stale { batch: 1, ledger: 3 })), "{refused}");
        append(ledger, &[1]);
        assert_eq!(contents(ledger.reader().as_mut(), 1).len(), 3);
    });
}

#[test]
fn trimming_drops_whole_sealed_segments_and_says_gone() {
    in_every_home(|ledger| {
        for _ in 0..3 {
            append(ledger, &[2, 3]);
            ledger.seal().unwrap();
            ledger.seal().unwrap();
        }
        append(ledger, &[1]);
        let starts: Vec<_> = ledger.segments().iter().map(|segment| segment.first).collect();
        assert_eq!(starts, [1, 6, 11, 16]);
        assert_eq!(ledger::floor(ledger, 5).unwrap(), None);
        let floor = ledger::floor(ledger, 14).unwrap().unwrap();
        assert_eq!(floor, ledger::head_at(ledger.reader().as_mut(), 10).unwrap());
        let mut reader = ledger.reader();
        let trimmed = ledger.trim(14).unwrap();
        assert_eq!((trimmed.first, trimmed.segments, ledger.first()), (11, 2, 11));
        assert!(trimmed.bytes > 0);
        assert!(matches!(reader.read(10, 1, &mut Vec::new()), Err(Error::Gone { first: 11 })));
        assert_eq!(contents(reader.as_mut(), 11).len(), 6);
        assert_eq!(ledger.trim(99).unwrap().first, 16);
        assert_eq!(ledger.trim(99).unwrap().segments, 0);
        append(ledger, &[1]);
        assert_eq!(contents(reader.as_mut(), 16).len(), 2);
    });
}

#[test]
fn erasing_takes_the_body_and_leaves_line_and_chain() {
    in_every_home(|ledger| {
        append(ledger, &[1, 3]);
        let bare = one(ledger, "bare", "{}");
        ledger.append(&bare, true).unwrap();
        let head = ledger.head();
        let erased = ledger.erase(&[3, 1, 5, 77]).unwrap();
        assert_eq!((erased.erased, erased.already), (2, 0));
        let mut absent = erased.absent;
        absent.sort_unstable();
        assert_eq!(absent.first(), Some(&5));
        assert_eq!(ledger.erase(&[3]).unwrap().already, 1);
        assert_eq!(ledger.head(), head);
        let all = contents(ledger.reader().as_mut(), 1);
        assert_eq!((&all[0][..], &all[2][..]), ("1 event erased", "3 event erased"));
        assert!(all[1].starts_with("2 event {") && all[3].starts_with("4 event {"));
        let mut bytes = Vec::new();
        ledger.reader().read(1, 1 << 20, &mut bytes).unwrap();
        let chain = ledger::lines(&bytes).fold(Chain::ZERO, |prev, line| ledger::check(line, prev).unwrap());
        assert_eq!(chain, head.chain);
        append(ledger, &[1]);
    });
}

#[test]
fn nothing_is_appended_after_the_close() {
    in_every_home(|ledger| {
        append(ledger, &[1]);
        fixture::close(ledger);
        let late = batch(ledger, &[1]);
        assert!(matches!(ledger.append(&late, true), Err(AppendError::Refused(Error::Closed))));
    });
}

#[test]
fn memory_forgets_in_a_crash_what_was_not_synced() {
    let mut ledger = MemoryLedger::new();
    append(&mut ledger, &[2]);
    let lost = batch(&ledger, &[1, 1]);
    ledger.append(&lost, false).unwrap();
    let mut ledger = ledger.crash();
    assert_eq!((ledger.head().position, contents(ledger.reader().as_mut(), 1).len()), (2, 2));
    append(&mut ledger, &[1]);
    ledger.set_faults(ledger::MemoryFaults { refuse_append: 2, ..Default::default() });
    append(&mut ledger, &[1]);
    let refused = batch(&ledger, &[1]);
    assert!(matches!(ledger.append(&refused, true), Err(AppendError::Refused(_))));
    append(&mut ledger, &[1]);
    ledger.set_faults(ledger::MemoryFaults { fail_sync: 1, ..Default::default() });
    let fatal = batch(&ledger, &[1]);
    assert!(matches!(ledger.append(&fatal, true), Err(AppendError::Fatal(_))));
    assert_eq!(ledger.crash().head().position, 5);
}

#[test]
fn a_ledger_is_made_once_and_only_where_there_is_none() {
    let (_, disk) = fixture::sim(1);
    fixture::create(&disk);
    let again = FileLedger::create(disk.clone(), Path::new(fixture::DIR), SMALL);
    assert!(matches!(again, Err(Error::Exists { .. })));
    let absent = FileLedger::open(disk, Path::new("nowhere"), SMALL);
    assert!(matches!(absent, Err(Error::Missing { .. })));
}
