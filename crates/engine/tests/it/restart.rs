//! Restarts: nothing acknowledged is lost, derived state is rebuilt equal, one process at a time.

use engine::{Draft, Engine, Outcome};
use model::Code;
use serde_json::json;

use crate::temp::{Bench, TempDir, copy_tree, tokens};

#[tokio::test]
async fn state_deleted_is_state_rebuilt_equal() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#", "max_retries": 0})).await.unwrap();
    for n in 0..20 {
        bench.publish("a", n).await;
        let key = Some(format!("k{n}"));
        bench.engine.publish(Draft { key, ..Draft::new("b", &json!(n)) }).await.unwrap();
    }
    let got = bench.pull("g", 10).await;
    bench.tenant.ack("g", &tokens(&got[2..5]), false).await.unwrap();
    bench.tenant.nack("g", &tokens(&got[5..6]), None, Some("x".into())).await.unwrap();
    bench.tenant.put_group("h", &json!({"pattern": "b", "start": "beginning"})).await.unwrap();
    bench.engine.close().await.unwrap();
    let path = bench.dir.path().join("tenants/main/state.db");
    let dump = |path: &std::path::Path| {
        let state = engine::state::State::open(Some(path)).unwrap();
        let mut lines = Vec::new();
        state.dump(|line| lines.push(line.to_owned())).unwrap();
        lines
    };
    let Bench { dir, engine, tenant, .. } = bench;
    drop((engine, tenant));
    let before = dump(&path);
    std::fs::remove_file(&path).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    drop(engine);
    assert_eq!(dump(&path), before);
}

#[tokio::test]
async fn a_second_process_is_refused_and_the_first_goes_on() {
    let bench = Bench::new();
    let problem = Engine::open(bench.dir.path()).err().unwrap();
    assert_eq!(problem.code(), Code::StoreLocked);
    bench.publish("a", 1).await;
}

#[tokio::test]
async fn a_closed_engine_takes_nothing_more_and_says_so() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    bench.engine.close().await.unwrap();
    let refused = bench.engine.publish(Draft::new("a", &json!(2))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ShuttingDown);
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_crash() {
    let dir = TempDir::new();
    let engine = Engine::open(dir.path()).unwrap();
    let Outcome::Recorded(receipt) = engine.publish(Draft::new("a", &json!({"n": 1}))).await.unwrap() else {
        panic!()
    };
    // No close: the engine is forgotten as a crash would forget it.
    std::mem::forget(engine);
    let copy = TempDir::new();
    copy_tree(dir.path(), copy.path());
    let again = Engine::open(copy.path()).unwrap().main().unwrap();
    assert_eq!(again.event(&receipt.id).unwrap().position, receipt.position);
}

#[tokio::test]
async fn a_directory_that_was_only_looked_at_stays_as_it_was() {
    let bench = Bench::new().reopen().await;
    assert_eq!(bench.tenant.head(), 0, "opening and closing an empty ledger writes nothing");
    bench.tenant.put_group("g", &json!({"pattern": "a"})).await.unwrap();
    bench.publish("b", 1).await;
    let bench = bench.reopen().await;
    let head = bench.tenant.head();
    let bench = bench.reopen().await.reopen().await;
    assert_eq!(bench.tenant.head(), head);
}
