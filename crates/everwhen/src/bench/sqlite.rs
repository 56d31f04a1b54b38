//! The comparison that costs nothing to install: SQLite in WAL mode, fully synced, behind one group-commit thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::Problem;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::failed;
use super::measure::{Latencies, Rate};
use super::publish::Load;

type Row = (Arc<str>, oneshot::Sender<()>);

/// Most rows in one transaction.
const BATCH_MAX: usize = 1_024;

pub fn group_commit(dir: &Path, load: Load) -> Result<Rate, Problem> {
    let path = dir.join("sqlite.tmp");
    let db = Connection::open(&path).map_err(failed)?;
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE event (position INTEGER PRIMARY KEY, payload TEXT NOT NULL) STRICT;",
    )
    .map_err(failed)?;
    let (send, receive) = mpsc::unbounded_channel();
    let writer = std::thread::spawn(move || commit(&db, receive));
    let rate = super::block_on(publish(send, load));
    writer.join().map_err(|_| failed("the SQLite writer panicked"))?.map_err(failed)?;
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.join(format!("sqlite.tmp{suffix}")));
    }
    rate
}

fn commit(db: &Connection, mut rows: mpsc::UnboundedReceiver<Row>) -> rusqlite::Result<()> {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while rows.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for (payload, _) in &batch {
            db.prepare_cached("INSERT INTO event (payload) VALUES (?1)")?.execute([payload.as_ref()])?;
        }
        db.execute_batch("COMMIT")?;
        batch.drain(..).for_each(|(_, reply)| _ = reply.send(()));
    }
    Ok(())
}

async fn publish(send: mpsc::UnboundedSender<Row>, load: Load) -> Result<Rate, Problem> {
    let left = Arc::new(AtomicU64::new(load.events));
    let payload: Arc<str> = super::publish::draft(load.bytes).payload.get().into();
    let mut tasks = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..load.publishers {
        let (send, left, payload) = (send.clone(), left.clone(), payload.clone());
        tasks.spawn(async move {
            let mut latencies = Latencies::default();
            let take = |n: u64| n.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                let begun = Instant::now();
                let (reply, done) = oneshot::channel();
                send.send((payload.clone(), reply)).map_err(|_| failed("the SQLite writer stopped"))?;
                done.await.map_err(failed)?;
                latencies.add(begun.elapsed());
            }
            Ok::<_, Problem>(latencies)
        });
    }
    drop(send);
    let mut latencies = Latencies::with_capacity(load.events as usize);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(failed)??);
    }
    Ok(Rate { seconds: started.elapsed(), events: load.events, latencies, fsyncs: 0 })
}
