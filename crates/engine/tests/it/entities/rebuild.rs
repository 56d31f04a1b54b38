//! Rows are derived: thrown away and folded again they are the same, and no fold says anything.

use engine::entity::{Action, Expect, Write};
use engine::state::State;
use engine::{Caller, Engine, Listing};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::{SYSTEM, declared, map, patch, put, system, write};
use crate::temp::Bench;

fn dump(path: &std::path::Path) -> Vec<String> {
    let state = State::open(Some(path)).unwrap();
    let mut lines = Vec::new();
    state.dump(|line| lines.push(line.to_owned())).unwrap();
    lines
}

/// Closes, removes `state.db`, opens and closes again; before and after.
async fn rebuilt(bench: Bench) -> (Vec<String>, Vec<String>) {
    bench.engine.close().await.unwrap();
    let path = bench.dir.path().join("tenants/main/state.db");
    let Bench { dir, engine, tenant, .. } = bench;
    let head = tenant.head();
    drop((engine, tenant));
    let before = dump(&path);
    std::fs::remove_file(&path).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    assert_eq!(engine.main().unwrap().head(), head, "nothing is said by a rebuild");
    drop(engine);
    (before, dump(&path))
}

fn random_write() -> impl Strategy<Value = Write> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let status = prop::sample::select(vec![json!("ok"), json!("down"), Value::Null, json!("wrong")]);
    let latency = prop::sample::select(vec![json!(1), json!(2), Value::Null]);
    let fields = (status, latency).prop_map(|(status, ms)| json!({"status": status, "latency_ms": ms}));
    (id, fields, 0..5u8).prop_map(|(id, fields, action)| {
        let fields = map(fields);
        let action = match action {
            0 => Action::Put(fields),
            1 => Action::Upsert(fields),
            2 => Action::Insert { told: Vec::new(), fields },
            3 => Action::Delete,
            _ => Action::Patch(fields),
        };
        Write::of(SYSTEM, Some(id), action)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_rebuilt_are_rows_as_they_were(writes in prop::collection::vec(random_write(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (before, after) = runtime.block_on(async {
            let bench = declared(vec![system()]).await;
            for write in writes {
                bench.pass(0.5);
                let _ = bench.tenant.write(&Caller::local(), write).await;
            }
            rebuilt(bench).await
        });
        prop_assert_eq!(before, after);
    }
}

#[tokio::test]
async fn what_a_row_rests_on_is_not_erased_and_what_was_erased_rebuilds_equal() {
    let bench = declared(vec![system()]).await;
    let first = put(&bench.tenant, "a", json!({"slug": "secret"})).await.unwrap().row.version;
    let refused = bench.tenant.erase(&[first]).await.unwrap_err();
    assert!(refused.to_string().contains("\"a\""), "{refused}");
    let second =
        patch(&bench.tenant, "a", json!({"slug": "other", "status": "down"})).await.unwrap().row.version;
    let refused = bench.tenant.erase(&[first]).await.unwrap_err();
    assert!(refused.to_string().contains(&second.to_string()), "the second quotes the first: {refused}");
    patch(&bench.tenant, "a", json!({"slug": "third"})).await.unwrap();
    // The first, the second that quotes it, and what the second derived.
    assert_eq!(bench.tenant.erase(&[first]).await.unwrap(), 3);
    let ledger =
        std::fs::read_to_string(bench.dir.path().join("tenants/main/ledger/00000000000000000001.jsonl"))
            .unwrap();
    assert!(!ledger.contains("secret"), "no copy is left");
    assert!(ledger.contains("third"));
    write(&bench.tenant, "a", Action::Delete).await.unwrap();
    put(&bench.tenant, "b", json!({})).await.unwrap();
    let (before, after) = rebuilt(bench).await;
    assert_eq!(before, after);
}

/// A reader keeps its look at `state.db` for the next one, and a log that is looked at cannot be cut.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_the_state_is_cut_though_rows_are_read_all_the_time() {
    let bench = declared(vec![system()]).await;
    let read = || {
        bench
            .tenant
            .entities(&Caller::local(), SYSTEM, &Listing { limit: 10, ..Listing::default() })
            .unwrap();
        bench.tenant.entity(&Caller::local(), SYSTEM, None, "a").unwrap().fields["slug"].clone()
    };
    let first = put(&bench.tenant, "a", json!({"slug": "secret"})).await.unwrap().row.version;
    assert_eq!(read(), "secret");
    for slug in ["second", "third"] {
        patch(&bench.tenant, "a", json!({ "slug": slug })).await.unwrap();
        assert_eq!(read(), slug, "what was committed since is seen");
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(read(), "third");
                }
            });
        }
        let erased = tokio::task::block_in_place(|| Handle::current().block_on(bench.tenant.erase(&[first])));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        erased.unwrap();
    });
    let log = bench.dir.path().join("tenants/main/state.db-wal");
    assert_eq!(std::fs::metadata(log).unwrap().len(), 0);
    assert_eq!(read(), "third");
}

/// Small numbers from one seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn write(&mut self, known: &[u64]) -> Write {
        let id = format!("row-{}", self.below(300));
        let mut fields = map(json!({"latency_ms": self.below(50)}));
        if self.below(2) == 0 {
            fields.insert("status".into(), ["ok", "down", "degraded"][self.below(3) as usize].into());
        }
        if self.below(4) == 0 {
            fields.insert("attributes".into(), json!({"owner": format!("o{}", self.below(9)), "n": 0.5}));
        }
        let action = match self.below(8) {
            0 | 1 => Action::Put(fields),
            2 | 3 => Action::Upsert(fields),
            4 => Action::Insert { told: Vec::new(), fields },
            5 => Action::Delete,
            _ => Action::Patch(fields),
        };
        let expect = match self.below(6) {
            0 if !known.is_empty() => Expect::Version(known[self.below(known.len() as u64) as usize]),
            1 => Expect::Present,
            _ => Expect::Anything,
        };
        let space = ["default", "other"][self.below(2) as usize].to_owned();
        Write { space, expect, ..Write::of(SYSTEM, Some(&id), action) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_random_operations_rebuild_to_the_same_dump() {
    const OPERATIONS: usize = 100_000;
    let seed = 20_260_101;
    println!("seed {seed}");
    let (bench, mut dice) = (declared(vec![system()]).await, Dice(seed));
    let (mut done, mut changed, mut known) = (0, 0, Vec::new());
    while done < OPERATIONS {
        bench.pass(0.01);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..500 {
            let (tenant, write) = (bench.tenant.clone(), dice.write(&known));
            tasks.spawn(async move { tenant.write_queued(&Caller::local(), write).await });
        }
        known.clear();
        done += tasks.len();
        for written in tasks.join_all().await.into_iter().flatten().filter(|written| written.change.is_some())
        {
            changed += 1;
            known.push(written.row.version);
        }
    }
    assert!(changed > OPERATIONS / 3, "only {changed} changes");
    let (before, after) = rebuilt(bench).await;
    let differs = before.iter().zip(&after).find(|(before, after)| before != after);
    assert!(before == after, "{differs:?}");
    assert!(before.len() > 400, "{}", before.len());
}
