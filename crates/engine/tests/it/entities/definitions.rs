//! Applying definitions: one commit, only one's own, never against the rows that are there.

use engine::Caller;
use engine::entity::{Action, Write};
use model::definition::{Concept, Definition, Field, Kind, Query, Type};
use model::{Code, Problem};
use serde_json::json;

use super::{SYSTEM, concept, declared, field, map, put, system};
use crate::temp::Bench;

async fn apply(bench: &Bench, change: impl FnOnce(&mut Concept)) -> Result<engine::Plan, Problem> {
    let mut concept = system();
    change(&mut concept);
    bench.tenant.apply("test", vec![Definition::Concept(concept)]).await
}

#[tokio::test]
async fn an_apply_says_what_it_did_and_a_plan_what_it_would_do() {
    let bench = Bench::new();
    let concept = Definition::Concept(system());
    let query = Query { name: "down".to_owned(), concept: SYSTEM.to_owned(), ..Query::default() };
    let both = vec![concept.clone(), Definition::Query(query)];
    let plan = bench.tenant.plan("a", both.clone()).await.unwrap();
    assert_eq!((plan.added.len(), bench.tenant.head()), (2, 0));
    let plan = bench.tenant.apply("a", both.clone()).await.unwrap();
    assert_eq!(plan.added, ["concept v1:health:system", "query down"]);
    assert_eq!(plan.position, 2, "after the format was raised");
    assert!(bench.tenant.apply("a", both).await.unwrap().is_empty());
    let plan = bench.tenant.apply("a", vec![concept]).await.unwrap();
    assert_eq!((plan.removed, plan.position), (vec!["query down".to_owned()], 3));
}

#[tokio::test]
async fn a_workspace_touches_only_what_it_manages() {
    let bench = declared(vec![system()]).await;
    let other = concept("v1:other:thing", vec![field("x", Type::Int)]);
    bench.tenant.apply("other", vec![Definition::Concept(other)]).await.unwrap();
    assert_eq!(bench.tenant.catalog().entries().count(), 2);
    let theirs = bench.tenant.apply("other", vec![Definition::Concept(system())]).await.unwrap_err();
    assert_eq!(theirs.code(), Code::DefinitionInvalid);
    let bench = bench.reopen().await;
    let catalog = bench.tenant.catalog();
    assert_eq!(catalog.get(Kind::Concept, "v1:other:thing").unwrap().managed_by, "workspace:other");
}

#[tokio::test]
async fn additive_changes_apply_and_breaking_ones_count_their_rows() {
    let bench = declared(vec![system()]).await;
    for id in ["a", "b", "c"] {
        put(&bench.tenant, id, json!({"status": "degraded", "latency_ms": 5})).await.unwrap();
    }
    put(&bench.tenant, "d", json!({"status": "ok"})).await.unwrap();
    let rows = |result: Result<engine::Plan, Problem>| {
        let problem = result.unwrap_err();
        assert_eq!(problem.code(), Code::DefinitionBreaking);
        problem.to_json()["rows"].as_u64().unwrap()
    };
    let as_text = |concept: &mut Concept| concept.fields[1] = field("latency_ms", Type::String);
    assert_eq!(rows(apply(&bench, as_text).await), 3);
    let fewer = |concept: &mut Concept| concept.fields[0].of = Type::Enum(vec![json!("ok"), json!("down")]);
    assert_eq!(rows(apply(&bench, fewer).await), 3);
    let wanted = Field { required: true, ..field("zone", Type::String) };
    assert_eq!(rows(apply(&bench, |concept| concept.fields.push(wanted)).await), 4);
    assert_eq!(rows(bench.tenant.apply("test", Vec::new()).await), 4);
    let more = Field { required: true, default: Some(json!(1)), ..field("weight", Type::Int) };
    apply(&bench, |concept| concept.fields.push(more)).await.unwrap();
    let written = super::patch(&bench.tenant, "d", json!({"status": "down"})).await.unwrap();
    assert_eq!(written.row.fields["weight"], 1, "filled in at the next write");
    assert_eq!(rows(apply(&bench, |_| ()).await), 1, "the field that is given up has a value");
}

#[tokio::test]
async fn a_text_becomes_an_instant_or_a_duration_only_in_the_form_that_rows_have() {
    let bench = declared(vec![system()]).await;
    let with = |at: Type, length: Type| {
        move |concept: &mut Concept| concept.fields.extend([field("at", at), field("length", length)])
    };
    apply(&bench, with(Type::String, Type::Any)).await.unwrap();
    put(&bench.tenant, "a", json!({"at": "2026-01-31T02:00:00+02:00"})).await.unwrap();
    put(&bench.tenant, "b", json!({"at": "2026-01-31T00:00:00Z", "length": "5m"})).await.unwrap();
    let refused = apply(&bench, with(Type::Timestamp, Type::Duration)).await.unwrap_err();
    assert_eq!((refused.code(), &refused.to_json()["rows"]), (Code::DefinitionBreaking, &json!(2)));
    assert!(refused.detail().contains("must be written \"2026-01-31T00:00:00Z\""), "{refused}");
    super::patch(&bench.tenant, "a", json!({"at": "2026-01-31T00:00:00Z"})).await.unwrap();
    super::patch(&bench.tenant, "b", json!({"length": 300})).await.unwrap();
    apply(&bench, with(Type::Timestamp, Type::Duration)).await.unwrap();
}

#[tokio::test]
async fn a_ledger_without_definitions_stays_of_its_format() {
    let bench = Bench::new();
    bench.publish("a", 1).await;
    let missing = Write::of(SYSTEM, Some("x"), Action::Put(map(json!({}))));
    let problem = bench.tenant.write(&Caller::local(), missing).await.unwrap_err();
    assert_eq!((problem.code(), bench.tenant.head()), (Code::ConceptNotFound, 1));
}
