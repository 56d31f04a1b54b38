//! Every IO of a whole life fails in turn, once or for good: no acked commit is lost, no refused one
//! appears, and the ledger opens again.

use std::path::Path;
use std::sync::Arc;

use ledger::disk::{Disk, Fault, SimDisk};
use ledger::{AppendError, Error, FileLedger, Ledger, Options, Prefill};

use crate::fixture::{self, DIR, batch_padded, contents};

const OPTIONS: Options = Options { segment_bytes: 3000, prefill: Prefill::Inline, headroom: 0 };

/// What the callers of a life were told.
#[derive(Default)]
struct Told {
    made: bool,
    acked: Vec<String>,
    refused: Vec<String>,
    unknown: Vec<String>,
}

/// Appends until the ledger stops; its callers remember the answers.
struct Caller<'a> {
    ledger: &'a mut dyn Ledger,
    told: &'a mut Told,
    count: usize,
}

impl Caller<'_> {
    fn append(&mut self, pad: usize) -> Result<(), AppendError> {
        self.count += 1;
        let mark = format!("call {}", self.count);
        let mut batch = batch_padded(self.ledger, &[1], pad);
        batch.commit(&[fixture::record(Some(&format!("\"{mark}\"")))]);
        let result = self.ledger.append(&batch, true);
        match &result {
            Ok(()) => self.told.acked.push(mark),
            Err(AppendError::Refused(_)) => self.told.refused.push(mark),
            Err(AppendError::Fatal(_)) => self.told.unknown.push(mark),
        }
        pass_refusal(result)
    }
}

fn pass_refusal(result: Result<(), AppendError>) -> Result<(), AppendError> {
    match result {
        Err(AppendError::Refused(_)) => Ok(()),
        other => other,
    }
}

/// Makes, fills, seals, trims, erases, closes and opens a ledger; ends early where a process would.
fn life(disk: &SimDisk, told: &mut Told) -> Result<(), Error> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut ledger = FileLedger::create(shared.clone(), Path::new(DIR), OPTIONS)?;
    told.made = true;
    let mut caller = Caller { ledger: &mut ledger, told, count: 0 };
    for pad in [0, 700, 900, 50, 1500, 10] {
        caller.append(pad).map_err(AppendError::into_error)?;
    }
    pass_refusal(caller.ledger.seal()).map_err(AppendError::into_error)?;
    caller.append(300).map_err(AppendError::into_error)?;
    caller.ledger.erase(&[1])?;
    caller.append(5).map_err(AppendError::into_error)?;
    caller.ledger.close().map_err(AppendError::into_error)?;
    let count = caller.count;
    drop(ledger);
    let (mut ledger, _) = FileLedger::open(shared, Path::new(DIR), OPTIONS)?;
    Caller { ledger: &mut ledger, told, count }.append(200).map_err(AppendError::into_error)
}

/// Whether the life met its fault before it was over.
fn survives(n: u64, fault: Fault, sticky: bool, power: bool) -> bool {
    let sim = SimDisk::new(n);
    sim.fail_after(n, fault, sticky);
    let mut told = Told::default();
    let _ = life(&sim, &mut told);
    let met = sim.ops() >= n;
    if power {
        sim.power_cut()
    } else {
        sim.kill()
    }
    sim.heal();
    let what = format!("IO {n} {fault:?} sticky {sticky} power {power}");
    check(&sim, &told, &what);
    met
}

fn check(sim: &SimDisk, told: &Told, what: &str) {
    let opened = FileLedger::open(Arc::new(sim.clone()), Path::new(DIR), OPTIONS);
    let (mut ledger, _) = match opened {
        Ok(opened) => opened,
        Err(Error::Missing { .. }) if !told.made => {
            FileLedger::create(Arc::new(sim.clone()), Path::new(DIR), OPTIONS).expect(what);
            return;
        }
        Err(error) => panic!("{what}: does not open: {error}"),
    };
    let found = contents(ledger.reader().as_mut(), 1).join("\n");
    let there = |mark: &String| found.contains(&format!("\"{mark}\""));
    assert!(told.acked.iter().all(there), "{what}: acked {:?}, found {found}", told.acked);
    assert!(!told.refused.iter().any(there), "{what}: refused {:?}, found {found}", told.refused);
    assert!(told.unknown.len() <= 1, "{what}");
    fixture::append(&mut ledger, &[1]);
    let report = ledger::verify(sim, Path::new(DIR), &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{what}: {report:?}");
}

#[test]
fn every_io_may_fail_once_or_for_good() {
    for fault in [Fault::Eio, Fault::Enospc, Fault::Short, Fault::PowerCut] {
        for (sticky, power) in [(false, false), (false, true), (true, false), (true, true)] {
            let lives = (1..).take_while(|n| survives(*n, fault, sticky, power)).count();
            assert!(lives > 60, "the life has more IOs than {lives}");
        }
    }
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room_again() {
    let sim = SimDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut ledger = FileLedger::create(shared, Path::new(DIR), OPTIONS).unwrap();
    let mut told = Told::default();
    sim.set_capacity(Some(5000));
    let mut caller = Caller { ledger: &mut ledger, told: &mut told, count: 0 };
    for _ in 0..10 {
        caller.append(500).unwrap();
    }
    sim.set_capacity(None);
    caller.append(500).unwrap();
    assert!(told.refused.len() > 2 && told.acked.len() > 2);
    drop(ledger);
    sim.power_cut();
    check(&sim, &told, "after a full disk");
}

/// Runs `life` on a disk that fails from its `n`th IO on, kills the process, and lets the next one append;
/// then the power goes. What that next process acked must be there.
fn killed_at_every_io(life: fn(&Arc<dyn Disk>)) {
    for (seed, n) in (0..8).flat_map(|seed| (1..40).map(move |n| (seed, n))) {
        let sim = SimDisk::new(seed);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        sim.fail_after(n, Fault::PowerCut, true);
        life(&disk);
        sim.kill();
        let opened = FileLedger::open(disk.clone(), Path::new(DIR), OPTIONS).map(|(ledger, _)| ledger);
        let made = opened.or_else(|_| FileLedger::create(disk.clone(), Path::new(DIR), OPTIONS));
        let mut ledger = made.unwrap();
        fixture::append(&mut ledger, &[1]);
        let head = ledger.head();
        drop(ledger);
        sim.power_cut();
        let opened = FileLedger::open(disk, Path::new(DIR), OPTIONS);
        assert_eq!(opened.unwrap().0.head(), head, "seed {seed}, IO {n}");
    }
}

#[test]
fn a_ledger_whose_making_was_killed_is_durable_once_it_is_open() {
    killed_at_every_io(|disk| drop(FileLedger::create(disk.clone(), Path::new(DIR), OPTIONS)));
}

#[test]
fn a_segment_whose_beginning_was_killed_is_durable_once_it_is_open() {
    killed_at_every_io(|disk| {
        let Ok(mut ledger) = FileLedger::create(disk.clone(), Path::new(DIR), OPTIONS) else { return };
        let batch = batch_padded(&ledger, &[1], 10);
        if ledger.append(&batch, true).is_ok() {
            let _ = ledger.seal();
        }
    });
}
