//! A ledger that lost committed lines while nobody looked is refused, when anything derived from them is left to say so.

use std::path::{Path, PathBuf};

use engine::maintain::verify;
use engine::{Engine, Options};
use model::{Code, Problem};

use crate::temp::{Bench, TempDir, copy_tree};

const SEGMENT: &str = "tenants/main/ledger/00000000000000000001.jsonl";

/// The directory as a kill leaves it, five events long, its state committed.
async fn killed() -> TempDir {
    let bench = Bench::new();
    for n in 1..=5 {
        bench.publish("a", n).await;
    }
    bench.pass(1.0);
    let copy = TempDir::new();
    copy_tree(bench.dir.path(), copy.path());
    copy
}

fn open(dir: &Path) -> Result<u64, Problem> {
    let engine = Engine::open_with(dir, Options::default())?;
    engine.main().map(|tenant| tenant.head())
}

fn is_sound(dir: &Path) -> bool {
    verify(dir, true, &mut |_, _| ()).unwrap().is_ok()
}

fn damage(dir: &TempDir, change: impl Fn(Vec<u8>) -> Vec<u8>) -> PathBuf {
    let path = dir.path().join(SEGMENT);
    std::fs::write(&path, change(std::fs::read(&path).unwrap())).unwrap();
    path
}

#[tokio::test]
async fn a_segment_that_was_emptied_zeroed_or_halved_is_damage_and_is_left_as_it_is() {
    let changes: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |_| Vec::new(),
        |bytes| vec![0; bytes.len()],
        |bytes| vec![b'\n'; bytes.len()],
        |bytes| bytes[..bytes.iter().position(|b| *b == b'\n').unwrap() + 30].to_vec(),
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let dir = killed().await;
        let path = damage(&dir, change);
        let left = std::fs::read(&path).unwrap();
        assert!(!is_sound(dir.path()), "{nth}");
        let problem = open(dir.path()).unwrap_err();
        assert_eq!(problem.code(), Code::StoreCorrupt, "{nth}: {problem}");
        assert!(
            problem.to_string().contains("0001.jsonl") && problem.to_string().contains("state.db"),
            "{problem}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), left, "{nth}");
    }
}

#[tokio::test]
async fn a_ledger_that_is_gone_beside_its_state_is_damage() {
    for gone in ["tenants/main/ledger", SEGMENT] {
        let dir = killed().await;
        let path = dir.path().join(gone);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap();
        assert!(!is_sound(dir.path()), "{gone}");
        assert_eq!(open(dir.path()).unwrap_err().code(), Code::StoreCorrupt, "{gone}");
    }
}

#[tokio::test]
async fn segments_removed_after_a_clean_stop_are_damage() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    bench.engine.close().await.unwrap();
    std::fs::remove_file(bench.dir.path().join(SEGMENT)).unwrap();
    let Bench { dir, engine, tenant, .. } = bench;
    drop((engine, tenant));
    assert_eq!(open(dir.path()).unwrap_err().code(), Code::StoreCorrupt);
}

#[tokio::test]
async fn a_snapshot_is_a_witness_when_the_state_is_gone() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    engine::maintain::snapshot::take(&bench.tenant).unwrap();
    let dir = TempDir::new();
    copy_tree(bench.dir.path(), dir.path());
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(dir.path().join("tenants/main").join(file));
    }
    damage(&dir, |_| Vec::new());
    let problem = open(dir.path()).unwrap_err();
    assert!(problem.code() == Code::StoreCorrupt && problem.to_string().contains("snapshots"), "{problem}");
}

#[tokio::test]
async fn a_state_of_another_ledger_is_no_witness_but_is_discarded() {
    let (long, short) = (Bench::new(), Bench::with(|options| options.seed = Some(8)));
    for n in 1..=5 {
        long.publish("a", n).await;
    }
    short.publish("b", 1).await;
    long.engine.close().await.unwrap();
    short.engine.close().await.unwrap();
    let state = "tenants/main/state.db";
    std::fs::copy(long.dir.path().join(state), short.dir.path().join(state)).unwrap();
    let Bench { dir, engine, tenant, .. } = short;
    drop((engine, tenant));
    assert_eq!(open(dir.path()).unwrap(), 2, "its own event and its own end");
    assert!(is_sound(dir.path()));
}

#[tokio::test]
async fn what_could_not_be_opened_does_not_verify_as_sound() {
    let bench = Bench::with(|options| {
        options.ledger.segment_bytes = 2_000;
        options.settings.retention.bytes = Some(4_000);
    });
    for n in 1..=60 {
        bench.publish("a", n).await;
    }
    engine::maintain::retention::run(&bench.tenant).unwrap().expect("something was trimmed");
    bench.engine.close().await.unwrap();
    let home = bench.dir.path().join("tenants/main");
    std::fs::remove_file(home.join("state.db")).unwrap();
    assert!(is_sound(bench.dir.path()), "a snapshot stands in for it");
    std::fs::remove_dir_all(home.join("snapshots")).unwrap();
    assert!(!is_sound(bench.dir.path()), "nothing does");
}

#[tokio::test]
async fn a_state_of_a_newer_version_does_not_verify_as_sound() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    bench.engine.close().await.unwrap();
    let db = rusqlite::Connection::open(bench.dir.path().join("tenants/main/state.db")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    assert!(!is_sound(bench.dir.path()));
}
