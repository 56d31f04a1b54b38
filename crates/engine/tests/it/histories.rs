//! What has happened is told whole: after a kill, from a backup, and again from the ledger alone.

use std::collections::BTreeMap;
use std::path::Path;

use engine::history::read::Wanted;
use engine::maintain::{backup, restore};
use engine::{Draft, Engine, Tenant};
use lang::declare::check_workspace;
use serde_json::{Value, json};

use crate::temp::{Bench, TempDir};

const COPY: &str = "automation: copy\ntriggers:\n  - event: in.*\nmode: parallel\nactions:\n  - publish: {topic: out.done, payload: {n: \"{{ event.payload.n }}\"}}\n";

async fn busy() -> Bench {
    let bench = Bench::new();
    let files = BTreeMap::from([("a.yaml".to_owned(), COPY.to_owned())]);
    bench.tenant.apply("test", check_workspace(&files).definitions).await.unwrap();
    for n in 0..20 {
        bench.engine.publish(Draft::new("in.a", &json!({"n": n}))).await.unwrap();
    }
    bench
}

/// Runs with their steps, and decisions.
fn told(tenant: &Tenant) -> (Vec<Value>, Vec<Value>) {
    let wanted = || Wanted { limit: 1_000, ..Wanted::default() };
    let (runs, _) = tenant.runs(&wanted()).unwrap();
    let runs = runs.iter().map(|run| tenant.run(run["id"].as_str().unwrap()).unwrap()).collect();
    (runs, tenant.decisions(&wanted()).unwrap().0)
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_tree(&path, &target),
            false => _ = std::fs::copy(&path, &target).unwrap(),
        }
    }
}

#[tokio::test]
async fn the_history_is_complete_after_a_kill_and_without_its_file() {
    let bench = busy().await;
    for folded in [false, true] {
        let before = folded.then(|| told(&bench.tenant));
        // The files as they are, of a process that never stopped.
        let killed = TempDir::new();
        copy_tree(&bench.dir.path().join("tenants"), &killed.path().join("tenants"));
        let engine = Engine::open(killed.path()).unwrap();
        let (runs, decisions) = told(&engine.main().unwrap());
        assert_eq!((runs.len(), decisions.len()), (20, 20));
        assert!(runs.iter().all(|run| run["status"] == "completed" && run["steps"].is_array()), "{runs:?}");
        assert!(decisions.iter().all(|decision| decision["run"].is_string()), "{decisions:?}");
        engine.close().await.unwrap();
        drop(engine);
        if let Some(before) = before {
            assert_eq!(before, (runs, decisions));
            std::fs::remove_file(killed.path().join("tenants/main/history.db")).unwrap();
            let engine = Engine::open(killed.path()).unwrap();
            assert_eq!(told(&engine.main().unwrap()), before, "read again from the ledger");
            engine.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_backup_has_the_history() {
    let bench = busy().await;
    let before = told(&bench.tenant);
    let to = TempDir::new();
    let (copy, data) = (to.path().join("copy"), to.path().join("data"));
    backup(&bench.engine, &copy).await.unwrap();
    assert!(copy.join("tenants/main/history.db").exists());
    restore(&copy, &data).unwrap();
    assert!(data.join("tenants/main/history.db").exists());
    let engine = Engine::open(&data).unwrap();
    assert_eq!(told(&engine.main().unwrap()), before);
    engine.close().await.unwrap();
}
