//! Rows are derived: thrown away and folded again they are the same, and no fold says anything.

use engine::entity::{Action, Write};
use engine::state::State;
use engine::{Caller, Engine};
use proptest::prelude::*;
use serde_json::{Value, json};

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
    let second = patch(&bench.tenant, "a", json!({"slug": "other"})).await.unwrap().row.version;
    assert_eq!(bench.tenant.erase(&[first]).await.unwrap(), 1);
    write(&bench.tenant, "a", Action::Delete).await.unwrap();
    assert_eq!(bench.tenant.erase(&[second]).await.unwrap(), 1);
    put(&bench.tenant, "b", json!({})).await.unwrap();
    let (before, after) = rebuilt(bench).await;
    assert_eq!(before, after);
}
