//! Ledgers of every released format, written once and never edited: each must open, verify and fold to the same state.

use engine::Engine;
use engine::state::State;

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
