//! The chain checked in another language: what `verify` says must not rest on our own reading of the format.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use ledger::disk::{Disk, OsDisk};
use ledger::{Batch, FileLedger, Ledger, TRIMMED};
use model::Timestamp;

use crate::fixture::{self, SMALL, TempDir, append, one};

/// `None` where there is no Python, which CI does not accept.
fn python(dir: &Path) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify_chain.py");
    match Command::new("python3").arg(script).arg(dir).output() {
        Ok(output) => Some(output),
        Err(_) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("CI needs python3"),
        Err(_) => None,
    }
}

fn agrees(disk: &dyn Disk, dir: &Path) {
    let Some(output) = python(dir) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = ledger::verify(disk, dir, &mut |_, _| {}).unwrap();
    assert_eq!((&said["records"], &said["head"]), (&report.records.into(), &report.head.clone().into()));
    assert_eq!(report.problems, vec![]);
}

#[test]
fn an_independent_script_agrees_with_verify() {
    let temp = TempDir::new("python");
    let dir = temp.0.join("ledger");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let mut ledger = FileLedger::create(disk.clone(), &dir, SMALL).unwrap();
    agrees(disk.as_ref(), &dir);
    let mut batch = Batch::new(ledger.head(), 0, Timestamp::from_millis(1));
    let odd = r#"{"é":"]},\"chain\":\"x\"","n":[1.50,{"s":"00","p":1}, null]}"#;
    batch.commit(&[fixture::record(Some(odd)), fixture::record(None), fixture::record(Some("1"))]);
    ledger.append(&batch, true).unwrap();
    for _ in 0..30 {
        append(&mut ledger, &[1, 3]);
    }
    ledger.erase(&[1, 9, 10]).unwrap();
    agrees(disk.as_ref(), &dir);
    let floor = ledger::floor(&ledger, 60).unwrap().unwrap();
    let data = format!("{{\"first\":{},\"before\":\"{}\"}}", floor.position + 1, floor.chain);
    let record = one(&ledger, TRIMMED, &data);
    ledger.append(&record, true).unwrap();
    assert!(ledger.trim(floor.position + 1).unwrap().segments > 0);
    fixture::close(&mut ledger);
    agrees(disk.as_ref(), &dir);
    // A line that somebody adds after a clean stop is as good as any.
    let path = dir.join(format!("{:020}.jsonl", ledger.segments().last().unwrap().first));
    let more = [std::fs::read(&path).unwrap(), fixture::batch(&ledger, &[2]).bytes().to_vec()].concat();
    std::fs::write(&path, more).unwrap();
    agrees(disk.as_ref(), &dir);
}

#[test]
fn the_script_notices_a_flipped_bit_too() {
    let temp = TempDir::new("python-flip");
    let dir = temp.0.join("ledger");
    let mut ledger = FileLedger::create(Arc::new(OsDisk), &dir, SMALL).unwrap();
    append(&mut ledger, &[2]);
    fixture::close(&mut ledger);
    let path = dir.join("00000000000000000001.jsonl");
    let good = std::fs::read(&path).unwrap();
    for at in [20, 90, good.len() / 2] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert!(python(&dir).is_none_or(|output| !output.status.success()), "byte {at}");
    }
}
