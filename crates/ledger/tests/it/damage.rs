//! Damage byte by byte: what is a torn tail, what is corruption, and that neither is ever silent.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::{Access, Disk, SimDisk};
use ledger::{CLOSED, Error, FileLedger, FindingKind, Ledger, Opened, Witness};

use crate::fixture::{self, DIR, SMALL, append, batch, contents, one, segment};

/// A ledger of three batches that a kill ended; the segment's bytes up to its last line.
fn killed() -> (SimDisk, Arc<dyn Disk>, Vec<u8>) {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1, 1]);
    append(&mut ledger, &[2]);
    append(&mut ledger, &[1]);
    drop(ledger);
    sim.kill();
    let bytes = sim.contents(&segment(1)).unwrap();
    let end = bytes.iter().rposition(|b| *b != b'\n').unwrap() + 2;
    (sim, disk, bytes[..end].to_vec())
}

fn put(sim: &SimDisk, bytes: &[u8]) {
    sim.edit(&segment(1), |file| {
        file.clear();
        file.extend_from_slice(bytes);
    })
    .unwrap();
}

fn open(disk: &Arc<dyn Disk>) -> Result<(FileLedger, Opened), Error> {
    FileLedger::open(disk.clone(), Path::new(DIR), SMALL)
}

fn verify(disk: &dyn Disk) -> ledger::Report {
    ledger::verify(disk, Path::new(DIR), &mut |_, _| {}).unwrap()
}

/// How many whole lines these bytes begin with.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

#[test]
fn a_torn_tail_is_cut_and_said_at_every_byte() {
    let (sim, disk, bytes) = killed();
    let positions = [0, 1, 2, 4, 5];
    for len in 0..bytes.len() {
        put(&sim, &bytes[..len]);
        let kept = positions[whole_lines(&bytes[..len])];
        let boundary = len == 0 || bytes[len - 1] == b'\n';
        let report = verify(disk.as_ref());
        assert!(report.is_ok() && report.last == kept, "{len} {report:?}");
        assert_eq!(report.problems.len(), usize::from(!boundary), "{len}");
        let (mut ledger, opened) = open(&disk).unwrap();
        assert_eq!(ledger.head().position, kept, "{len}");
        assert_eq!(opened.torn.as_ref().map(|torn| torn.position), (!boundary).then_some(kept + 1), "{len}");
        assert!(!opened.clean);
        append(&mut ledger, &[1]);
        assert_eq!(contents(ledger.reader().as_mut(), 1).len() as u64, kept + 1);
        drop(ledger);
        let (_, again) = open(&disk).unwrap();
        assert_eq!(again.torn, None, "a torn tail is mended once");
    }
}

#[test]
fn every_flipped_bit_of_the_last_two_commits_is_noticed() {
    let (sim, disk, bytes) = killed();
    let lines: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] == b'\n').map(|i| i + 1).collect();
    let (before, last) = (lines[1], lines[2]);
    for bit in before * 8..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        put(&sim, &bad);
        let report = verify(disk.as_ref());
        match open(&disk) {
            // The last line: nothing later says that it was durable.
            Ok((ledger, opened)) => {
                assert!(bit / 8 >= last, "bit {bit} was taken for a torn tail");
                let torn = opened.torn.unwrap();
                assert_eq!((ledger.head().position, torn.position, torn.offset), (4, 5, last as u64));
                assert!(report.is_ok() && report.problems[0].kind == FindingKind::TornTail, "{report:?}");
            }
            Err(Error::Corrupt { file, offset, position, what }) => {
                assert!(bit / 8 < last, "bit {bit} was taken for corruption: {what}");
                assert_eq!((file, offset, position), (segment(1), before as u64, 3));
                assert!(!report.is_ok(), "{report:?}");
                assert_eq!((report.problems[0].offset, report.problems[0].position), (before as u64, 3));
            }
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
}

#[test]
fn a_torn_batch_is_cut_from_its_first_bad_line_on() {
    let (sim, disk, _) = killed();
    let (mut ledger, _) = open(&disk).unwrap();
    let lost = batch(&ledger, &[1, 1, 1]);
    ledger.append(&lost, false).unwrap();
    drop(ledger);
    sim.kill();
    let first = ledger::lines(lost.bytes()).next().unwrap().len();
    let at = memchr(&sim.contents(&segment(1)).unwrap(), lost.bytes());
    sim.edit(&segment(1), |file| file[at + first + 40] ^= 1).unwrap();
    let (ledger, opened) = open(&disk).unwrap();
    assert_eq!((ledger.head().position, opened.torn.unwrap().position), (6, 7));
}

fn memchr(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

#[test]
fn any_damage_after_a_clean_stop_is_corruption() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1, 2]);
    fixture::close(&mut ledger);
    let bytes = sim.contents(&segment(1)).unwrap();
    assert!(open(&disk).unwrap().1.clean);
    let end = bytes.len();
    let appended = [&bytes[..], b"{\"p\":"].concat();
    let flipped = [&bytes[..end - 20], b"#", &bytes[end - 19..]].concat();
    let gone = bytes[..bytes.iter().position(|b| *b == b'\n').unwrap() + 1].to_vec();
    for damaged in [appended, bytes[..end - 1].to_vec(), bytes[..end - 9].to_vec(), flipped, gone] {
        put(&sim, &damaged);
        assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
        assert!(!verify(disk.as_ref()).is_ok());
    }
    put(&sim, &bytes);
    assert!(open(&disk).unwrap().1.clean);
    assert!(verify(disk.as_ref()).problems.is_empty());
}

#[test]
fn sound_lines_behind_the_mark_of_a_clean_stop_are_taken_and_made_durable() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1, 2]);
    fixture::close(&mut ledger);
    let bytes = sim.contents(&segment(1)).unwrap();
    let more = batch(&ledger, &[1, 1]);
    put(&sim, &[&bytes, more.bytes()].concat());
    let report = verify(disk.as_ref());
    assert_eq!((report.last, report.problems), (6, vec![]));
    let (mut ledger, opened) = open(&disk).unwrap();
    assert_eq!((ledger.head().position, opened.clean, opened.torn), (6, false, None));
    assert_eq!(
        opened.rewritten,
        more.bytes().len() as u64,
        "what somebody left there may be in the cache only"
    );
    append(&mut ledger, &[1]);
    assert!(
        disk.open(&Path::new(DIR).join("closed"), Access::Read).is_err(),
        "the mark goes with the first append"
    );
    drop(ledger);
    // Only the head that was marked will do, and everything up to it.
    let other = [&bytes[..bytes.len() - 100], more.bytes()].concat();
    let (sim, disk) = fixture::sim(2);
    fixture::close(&mut {
        let mut ledger = fixture::create(&disk);
        append(&mut ledger, &[1, 2, 5]);
        ledger
    });
    put(&sim, &other);
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })) && !verify(disk.as_ref()).is_ok());
    put(&sim, &[&bytes, more.bytes()].concat());
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })) && !verify(disk.as_ref()).is_ok());
}

#[test]
fn a_clean_start_writes_nothing_and_its_first_append_may_be_torn() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1]);
    fixture::close(&mut ledger);
    assert_eq!(sim.contents(&segment(1)).unwrap().last(), Some(&b'\n'));
    let (mut ledger, opened) = open(&disk).unwrap();
    assert!(opened.clean && opened.rewritten == 0);
    append(&mut ledger, &[3]);
    drop(ledger);
    sim.kill();
    let len = sim.contents(&segment(1)).unwrap().iter().rposition(|b| *b != b'\n').unwrap();
    sim.edit(&segment(1), |file| file.truncate(len - 30)).unwrap();
    let (ledger, opened) = open(&disk).unwrap();
    assert_eq!((ledger.head().position, opened.torn.unwrap().position), (2, 3));
    assert!(!opened.clean);
}

#[test]
fn damage_in_the_end_of_a_sealed_segment_is_corruption() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1, 1]);
    ledger.seal().unwrap();
    drop(ledger);
    sim.kill();
    let bytes = sim.contents(&segment(1)).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    assert_eq!(open(&disk).unwrap().0.head().position, 2);
    for bit in last * 8..bytes.len() * 8 {
        sim.edit(&segment(1), |file| file[bit / 8] ^= 1 << (bit % 8)).unwrap();
        assert!(matches!(open(&disk), Err(Error::Corrupt { .. })), "bit {bit}");
        assert!(!verify(disk.as_ref()).is_ok());
        sim.edit(&segment(1), |file| file[bit / 8] ^= 1 << (bit % 8)).unwrap();
    }
    sim.edit(&segment(1), |file| file.truncate(last)).unwrap();
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
}

#[test]
fn what_was_read_after_a_failed_sync_is_made_durable_before_it_is_trusted() {
    let (sim, disk) = fixture::sim(3);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1]);
    let doubtful = batch(&ledger, &[2]);
    sim.fail_after(2, ledger::disk::Fault::Eio, false);
    assert!(matches!(ledger.append(&doubtful, true), Err(ledger::AppendError::Fatal(_))));
    let late = batch(&ledger, &[1]);
    assert!(matches!(ledger.append(&late, true), Err(ledger::AppendError::Fatal(_))), "it has stopped");
    drop(ledger);
    sim.kill();
    let (ledger, opened) = open(&disk).unwrap();
    assert_eq!((ledger.head().position, opened.rewritten), (3, doubtful.bytes().len() as u64));
    drop(ledger);
    sim.power_cut();
    assert_eq!(open(&disk).unwrap().0.head().position, 3);
}

#[test]
fn a_closing_record_without_its_mark_is_clean_but_not_trusted() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1]);
    let closed = one(&ledger, CLOSED, "{}");
    ledger.append(&closed, true).unwrap();
    drop(ledger);
    sim.kill();
    let (_, opened) = open(&disk).unwrap();
    assert!(opened.clean && opened.rewritten > 0);
}

#[test]
fn a_line_that_a_user_wrote_is_no_claim() {
    let (sim, disk) = fixture::sim(1);
    let mut ledger = fixture::create(&disk);
    append(&mut ledger, &[1]);
    let fake = one(&ledger, "event", "{}");
    let fake = std::str::from_utf8(fake.bytes()).unwrap().trim_end().replace("\"s\":1", "\"s\":99");
    let mut batch = ledger::Batch::new(ledger.head(), 1, model::Timestamp::EPOCH);
    batch.commit(&[fixture::record(Some(&fake))]);
    ledger.append(&batch, false).unwrap();
    drop(ledger);
    sim.kill();
    sim.edit(&segment(1), |file| {
        let at = memchr(file, batch.bytes());
        file[at + 3] ^= 1;
    })
    .unwrap();
    assert_eq!(open(&disk).unwrap().1.torn.unwrap().position, 2);
}

#[test]
fn lines_that_another_program_ended_in_cr_lf_are_damage() {
    let (sim, disk, bytes) = killed();
    let text = String::from_utf8(bytes).unwrap();
    let one_line = &text[..=text.find('\n').unwrap()];
    for text in [&text, one_line] {
        put(&sim, text.replace('\n', "\r\n").as_bytes());
        let found = open(&disk);
        let corrupt = |error: &Error| matches!(error, Error::Corrupt { offset: 0, position: 1, .. });
        assert!(found.as_ref().is_err_and(corrupt), "{:?}", found.err());
        assert!(!verify(disk.as_ref()).is_ok());
        assert_eq!(
            sim.contents(&segment(1)).unwrap(),
            text.replace('\n', "\r\n").as_bytes(),
            "nothing is cut"
        );
    }
}

#[test]
fn only_one_cut_line_is_a_torn_tail_to_a_witness() {
    let (sim, disk, bytes) = killed();
    let witness = Witness { position: 5, who: "state.db".into() };
    let starts: Vec<usize> =
        [0].into_iter().chain((0..bytes.len()).filter(|i| bytes[*i] == b'\n').map(|i| i + 1)).collect();
    let last = starts[starts.len() - 2];
    for len in 0..bytes.len() {
        put(&sim, &bytes[..len]);
        let mut report = verify(disk.as_ref());
        witness.testify(Path::new(DIR), &mut report);
        let opened = FileLedger::open_with(disk.clone(), Path::new(DIR), SMALL, &witness);
        assert_eq!(opened.is_ok(), len > last, "{len}: {:?}", opened.err());
        assert_eq!(report.is_ok(), len > last, "{len}: {report:?}");
        if let Err(error) = opened {
            assert!(error.to_string().contains("\"state.db\" shows that position 5 was durable"), "{error}");
            assert_eq!(sim.contents(&segment(1)).unwrap(), &bytes[..len], "nothing is cut");
        }
    }
    put(&sim, &vec![0; bytes.len()]);
    assert!(FileLedger::open_with(disk.clone(), Path::new(DIR), SMALL, &witness).is_err());
    put(&sim, &bytes);
    assert_eq!(FileLedger::open_with(disk, Path::new(DIR), SMALL, &witness).unwrap().0.head().position, 5);
}

#[test]
fn a_ledger_without_a_segment_is_damaged_not_absent() {
    let (sim, disk, _) = killed();
    disk.remove(&segment(1)).unwrap();
    sim.kill();
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
    assert!(ledger::verify(disk.as_ref(), Path::new(DIR), &mut |_, _| {}).is_err());
}
