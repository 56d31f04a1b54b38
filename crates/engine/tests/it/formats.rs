//! Ledgers of every released format, written once and never edited: each must open, verify and fold to the same state.

use engine::clock::Clock;
use engine::entity::{Action, Write};
use engine::state::State;
use engine::{Caller, Draft, Engine, Query};
use model::Timestamp;
use model::topic::Pattern;
use serde_json::{Value, json};

use crate::maintain::dump;
use crate::temp::{Bench, TempDir, copy_tree};

/// What the fold of `fixtures/format-1` comes to. A change here is a change of the past.
const FORMAT_1: &str = "00eb67b28b61d92f391096805515b7d53c5f8322476183531f104e2e152300bb";

#[tokio::test]
async fn a_ledger_of_format_1_folds_to_the_state_it_had() {
    let dir = TempDir::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/format-1");
    copy_tree(std::path::Path::new(fixture), dir.path());
    let engine = Engine::open(dir.path()).unwrap();
    let tenant = engine.main().unwrap();
    assert_eq!(tenant.head(), 33);
    assert_eq!(tenant.event("1").unwrap().content.payload(), Some(r#"{"id":7,"total":99.90}"#));
    assert_eq!(tenant.event("3").unwrap().content.payload(), None, "erased");
    assert_eq!(tenant.group("strict").unwrap().lag, 3, "three dead letters were redriven");
    assert_eq!(tenant.group("g").unwrap().group.processed, 2);
    engine.close().await.unwrap();
    drop((engine, tenant));
    let report = engine::maintain::verify(dir.path(), false, &mut |_, _| ()).unwrap();
    assert!(report.is_ok(), "{}", report.to_json());
    let state = State::open(Some(&dir.path().join("tenants/main/state.db"))).unwrap();
    assert_eq!(state.dump_hash().unwrap(), FORMAT_1);
}

/// What the fold of `fixtures/format-2` comes to: definitions, rows, a sealed secret.
const FORMAT_2: &str = "d156f3084a771b20abb85575b073346b0d675e04121b40e3e7c886074702dc83";

#[tokio::test]
async fn a_ledger_of_format_2_folds_to_the_rows_it_had() {
    let dir = TempDir::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/format-2");
    copy_tree(std::path::Path::new(fixture), dir.path());
    let engine = Engine::open(dir.path()).unwrap();
    let tenant = engine.main().unwrap();
    let local = Caller::local();
    let row = tenant.entity(&local, "system", None, "api").unwrap();
    assert_eq!((row.version, row.fields["status"].as_str()), (9, Some("down")));
    assert_eq!(tenant.reveal(&row, "/token").unwrap(), Some("s3cret".into()));
    assert!(tenant.entity(&local, "system", None, "web").is_err(), "deleted");
    assert!(tenant.catalog().query("systemsByStatus").is_ok());
    engine.close().await.unwrap();
    drop((engine, tenant));
    let state = State::open(Some(&dir.path().join("tenants/main/state.db"))).unwrap();
    assert_eq!(state.dump_hash().unwrap(), FORMAT_2);
}

/// Every kind of thing that waits stands in `fixtures/format-3`, which ends five seconds after it began. What it folds to is not
/// pinned by a hash before format 3 is released.
#[tokio::test]
async fn a_ledger_of_format_3_goes_on_with_what_it_waited_for() {
    let dir = TempDir::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/format-3");
    copy_tree(std::path::Path::new(fixture), dir.path());
    let bench = Bench::on(dir, Timestamp::parse("2026-01-01T00:01:00Z").unwrap(), |_| ());
    let tenant = &bench.tenant;
    let live = |name: &str| tenant.live_runs(Some(name)).unwrap().len();
    for name in ["later", "heal", "pay", "ask", "queue"] {
        assert_eq!(live(name), 1, "{name} waits");
    }
    assert_eq!((live("echo"), live("call")), (0, 0), "they had ended");
    let said = |topic: &str| {
        let query = Query { topic: Some(Pattern::parse(topic).unwrap()), ..Query::default() };
        tenant.find(&query).unwrap().events.len()
    };
    assert_eq!((said("out.echo"), said("out.call"), said("out.page")), (1, 1, 0));

    bench.pass(600.0);
    bench.pass(600.0);
    assert_eq!((said("out.later"), said("out.queue"), said("out.page")), (1, 2, 1));
    assert!(said("out.tick") >= 1, "the schedule goes on");
    let Value::Object(ok) = json!({"state": "ok"}) else { unreachable!() };
    let write = Write::of("v1:ha:entity", Some("a"), Action::Patch(ok));
    tenant.write(&Caller::local(), write).await.unwrap();
    bench.engine.publish(Draft::new("in.paid", &json!({"n": 1}))).await.unwrap();
    let question = format!("{}.1", tenant.live_runs(Some("ask")).unwrap()[0]["id"].as_str().unwrap());
    tenant.answer_wait(&Caller::local(), &question, json!("yes")).unwrap();
    assert_eq!((said("out.heal"), said("out.pay"), said("out.ask")), (1, 1, 1));
    assert!(tenant.live_runs(None).unwrap().is_empty());
    bench.engine.close().await.unwrap();
    let Bench { dir, clock, engine, tenant } = bench;
    drop((engine, tenant));
    let state = dir.path().join("tenants/main/state.db");
    let before = dump(&state);
    std::fs::remove_file(&state).unwrap();
    let Bench { dir, engine, tenant, .. } = Bench::on(dir, clock.now(), |_| ());
    drop((engine, tenant));
    assert_eq!(dump(&state), before);
    let report = engine::maintain::verify(dir.path(), false, &mut |_, _| ()).unwrap();
    assert!(report.is_ok(), "{}", report.to_json());
}
