//! What the proofs share: small batches, directories that go away, everything a ledger holds as plain values.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::disk::{Disk, SimDisk};
use ledger::{Batch, BodyRef, CLOSED, FileLedger, Ledger, NewBody, NewRecord, Options, Prefill, Reader};
use model::{Position, Timestamp};

/// Small segments, everything on the caller's thread: the same seed does the same.
pub const SMALL: Options = Options { segment_bytes: 4096, prefill: Prefill::Inline, headroom: 0 };

/// Where the ledger lies on a simulated disk.
pub const DIR: &str = "ledger";

pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("ew-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn record(body: Option<&str>) -> NewRecord {
    let body = body.map(|json| NewBody::new([9; 16], json));
    NewRecord { kind: "event", version: 1, data: b"{\"topic\":\"a.b\"}".to_vec(), body }
}

/// A batch of commits, each with so many records whose bodies say where they stand.
pub fn batch(ledger: &dyn Ledger, commits: &[usize]) -> Batch {
    batch_padded(ledger, commits, 0)
}

pub fn batch_padded(ledger: &dyn Ledger, commits: &[usize], pad: usize) -> Batch {
    let mut batch = Batch::new(ledger.head(), ledger.synced(), Timestamp::EPOCH);
    for records in commits {
        let from = batch.head().position + 1;
        let body = |i: usize| format!("{{\"n\":{},\"pad\":\"{}\"}}", from + i as u64, "x".repeat(pad));
        let records: Vec<_> = (0..*records).map(|i| record(Some(&body(i)))).collect();
        batch.commit(&records);
    }
    batch
}

pub fn one(ledger: &dyn Ledger, kind: &'static str, data: &str) -> Batch {
    let mut batch = Batch::new(ledger.head(), ledger.synced(), Timestamp::EPOCH);
    batch.commit(&[NewRecord { kind, version: 1, data: data.as_bytes().to_vec(), body: None }]);
    batch
}

pub fn append(ledger: &mut dyn Ledger, commits: &[usize]) {
    let batch = batch(ledger, commits);
    ledger.append(&batch, true).unwrap();
}

/// A clean stop as the engine makes it.
pub fn close(ledger: &mut dyn Ledger) {
    let batch = one(ledger, CLOSED, "{}");
    ledger.append(&batch, true).unwrap();
    ledger.close().unwrap();
}

pub fn sim(seed: u64) -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new(seed);
    (disk.clone(), Arc::new(disk))
}

pub fn create(disk: &Arc<dyn Disk>) -> FileLedger {
    FileLedger::create(disk.clone(), Path::new(DIR), SMALL).unwrap()
}

pub fn segment(first: Position) -> PathBuf {
    Path::new(DIR).join(format!("{first:020}.jsonl"))
}

/// Every record as `position kind body`, reading a few lines at a time.
pub fn contents(reader: &mut dyn Reader, first: Position) -> Vec<String> {
    let (mut all, mut from, mut bytes) = (Vec::new(), first, Vec::new());
    loop {
        let end = reader.read(from, 1000, &mut bytes).unwrap();
        if end.next == from {
            return all;
        }
        for line in ledger::lines(&bytes) {
            all.extend(ledger::parse(line).unwrap().records().map(|record| {
                let body = match record.body {
                    None => "-",
                    Some(BodyRef::Erased) => "erased",
                    Some(BodyRef::Json(json)) => json.get(),
                };
                format!("{} {} {body}", record.position, record.kind)
            }));
        }
        from = end.next;
    }
}
