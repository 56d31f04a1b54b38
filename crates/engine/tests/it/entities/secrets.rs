//! Fields that become secrets or stop being some, and fields that stay as they were set, secret or not.

use std::collections::BTreeMap;

use engine::Caller;
use engine::entity::{Action, Write, Written};
use lang::declare::check_workspace;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::map;
use crate::temp::Bench;

async fn apply(bench: &Bench, text: &str) -> Result<engine::Plan, Problem> {
    let checked = check_workspace(&BTreeMap::from([("d/rows.ew".to_owned(), text.to_owned())]));
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await
}

async fn patch(bench: &Bench, id: &str, fields: Value) -> Result<Written, Problem> {
    let write = Write::of("login", Some(id), Action::Upsert(map(fields)));
    bench.tenant.write(&Caller::local(), write).await
}

#[tokio::test]
async fn a_field_becomes_a_secret_or_stops_being_one_only_while_no_row_has_a_value() {
    let text = |of: &str| format!("concept login {{ name string  in object {{ pin string{of} }} }}");
    let (clear, secret) = (text(""), text(" @secret"));
    let bench = Bench::new();
    apply(&bench, &clear).await.unwrap();
    for id in ["a", "b"] {
        patch(&bench, id, json!({"in": {"pin": "1234"}})).await.unwrap();
    }
    patch(&bench, "c", json!({"name": "without"})).await.unwrap();
    let rows = |problem: Problem| (problem.code(), problem.to_json()["rows"].clone());
    let refused = apply(&bench, &secret).await.unwrap_err();
    assert!(refused.detail().contains("\"in.pin\" has a value in the clear"), "{refused}");
    assert_eq!(rows(refused), (Code::DefinitionBreaking, json!(2)));
    for id in ["a", "b"] {
        patch(&bench, id, json!({"in": {"pin": null}})).await.unwrap();
    }
    apply(&bench, &secret).await.unwrap();
    patch(&bench, "a", json!({"in": {"pin": "5678"}})).await.unwrap();
    let refused = apply(&bench, &clear).await.unwrap_err();
    assert!(refused.detail().contains("\"in.pin\" holds a secret"), "{refused}");
    assert_eq!(rows(refused), (Code::DefinitionBreaking, json!(1)));
    let row = bench.tenant.entity(&Caller::local(), "login", None, "a").unwrap();
    assert_eq!(bench.tenant.reveal(&row, "/in/pin").unwrap(), Some(json!("5678")), "it is still there");
    patch(&bench, "a", json!({"in": {"pin": null}})).await.unwrap();
    apply(&bench, &clear).await.unwrap();
}

#[tokio::test]
async fn what_is_set_once_stays_below_objects_and_under_a_mask() {
    let bench = Bench::new();
    let text = "concept login {\n  nest object { x int @immutable  y int }\n  key string @secret @immutable\n  \
                box object @immutable { s string @secret }\n}";
    apply(&bench, text).await.unwrap();
    let first = json!({"nest": {"x": 1}, "key": "k", "box": {"s": "t"}});
    let made = patch(&bench, "a", first.clone()).await.unwrap().row;
    for (wrong, at) in [
        (json!({"nest": {"x": 2}}), "/nest/x"),
        (json!({"nest": null}), "/nest/x"),
        (json!({"key": "other"}), "/key"),
        (json!({"key": null}), "/key"),
        (json!({"box": {"s": "other"}}), "/box"),
    ] {
        let refused = patch(&bench, "a", wrong.clone()).await.unwrap_err();
        assert_eq!((refused.code(), refused.pointer()), (Code::EntityInvalid, Some(at)), "{wrong}");
    }
    assert!(patch(&bench, "a", first).await.unwrap().change.is_none(), "the same again");
    assert!(patch(&bench, "a", json!({"key": "***"})).await.unwrap().change.is_none(), "as it is");
    assert!(patch(&bench, "a", json!({"nest": {"y": 3}})).await.unwrap().change.is_some());
    let row = bench.tenant.entity(&Caller::local(), "login", None, "a").unwrap();
    assert_eq!(row.sealed, made.sealed);
    patch(&bench, "b", json!({})).await.unwrap();
    patch(&bench, "b", json!({"key": "late", "nest": {"x": 1}})).await.unwrap();
}

#[tokio::test]
async fn a_secret_that_stays_is_known_again_in_a_row_that_was_given_no_id() {
    let bench = Bench::new();
    apply(&bench, "concept login { name string  key string @secret @immutable }").await.unwrap();
    let made = Write::of("login", None, Action::Put(map(json!({"name": "ann", "key": "k"}))));
    let id = bench.tenant.write(&Caller::local(), made).await.unwrap().row.id;
    patch(&bench, &id, json!({"name": "bob", "key": "k"})).await.unwrap();
    assert_eq!(patch(&bench, &id, json!({"key": "l"})).await.unwrap_err().pointer(), Some("/key"));
}

#[tokio::test]
async fn an_insert_with_another_secret_is_no_repeat() {
    let bench = Bench::new();
    apply(&bench, "concept login { name string  pw string @secret  in object { pin string @secret } }")
        .await
        .unwrap();
    let insert = async |fields: Value| {
        let told = map(fields.clone()).keys().cloned().collect();
        let action = Action::Insert { told, fields: map(fields) };
        bench.tenant.write(&Caller::local(), Write::of("login", Some("a"), action)).await
    };
    let first = json!({"name": "ann", "pw": "first", "in": {"pin": "1"}});
    insert(first.clone()).await.unwrap();
    assert!(insert(first).await.unwrap().change.is_none(), "the same again");
    assert!(insert(json!({"name": "ann"})).await.unwrap().change.is_none(), "nothing is said of the secret");
    for (other, name) in [(json!({"pw": "second"}), "pw"), (json!({"in": {"pin": "2"}}), "in.pin")] {
        let refused = insert(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::EntityExists, "{refused}");
        assert!(refused.detail().contains(&format!("{name:?}")), "{refused}");
        assert!(!refused.to_string().contains("second"), "{refused}");
    }
    let row = bench.tenant.entity(&Caller::local(), "login", None, "a").unwrap();
    assert_eq!(bench.tenant.reveal(&row, "/pw").unwrap(), Some(json!("first")));
}
