//! Every IO of a whole life fails in turn, once or for good: no acked commit is lost, no refused one appears, and the
//! ledger opens again.

use std::path::Path;

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
    let shared: std::sync::Arc<dyn Disk> = std::sync::Arc::new(disk.clone());
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
    let opened = FileLedger::open(std::sync::Arc::new(sim.clone()), Path::new(DIR), OPTIONS);
    let (mut ledger, _) = match opened {
        Ok(opened) => opened,
        Err(Error::Missing { .. }) if !told.made => {
            FileLedger::create(std::sync::Arc::new(sim.clone()), Path::new(DIR), OPTIONS).expect(what);
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
    let shared: std::sync::Arc<dyn Disk> = std::sync::Arc::new(sim.clone());
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

#[test]
fn a_ledger_whose_making_was_killed_is_durable_once_it_is_open() {
    for n in 1..30 {
        let sim = SimDisk::new(n);
        let shared: std::sync::Arc<dyn Disk> = std::sync::Arc::new(sim.clone());
        sim.fail_after(n, Fault::PowerCut, true);
        drop(FileLedger::create(shared.clone(), Path::new(DIR), OPTIONS));
        sim.kill();
        let opened = FileLedger::open(shared.clone(), Path::new(DIR), OPTIONS).map(|(ledger, _)| ledger);
        let made = opened.or_else(|_| FileLedger::create(shared.clone(), Path::new(DIR), OPTIONS));
        let mut ledger = made.unwrap();
        fixture::append(&mut ledger, &[1]);
        drop(ledger);
        sim.power_cut();
        let (ledger, _) = FileLedger::open(shared, Path::new(DIR), OPTIONS).unwrap();
        assert_eq!(ledger.head().position, 1, "IO {n}");
    }
}
