//! Ledgers of every released format, written once and never edited: each must open, verify and fold to the same state.

use engine::state::State;
use engine::{Caller, Engine};

use crate::temp::{TempDir, copy_tree};

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
