//! What values are, whatever way they are written: instants, numbers, what is missing; and what is said of a change.

use std::collections::BTreeMap;

use engine::entity::{Action, Expect, Provenance, Write, Written};
use engine::{AsOf, Asking, Caller, Lately, Listing, Paging};
use lang::declare::check_workspace;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::map;
use crate::temp::Bench;

const DECLARED: &str = r#"
concept row {
  t datetime
  v int
  d double
  owner string
  at object { when datetime }
  derive "row.later" when next.t > prev.t
}
query row before { args { d datetime! } filter payload.t < args.d }
query row same { args { d string! } filter payload.t == args.d }
query row lit { filter payload.t == "2026-01-01T01:00:00+01:00" }
query row listed { filter payload.t in ["2026-01-01T01:00:00+01:00"] }
query row sorted { sort "t", "asc" }
query row small { filter !(payload.v > 5) }
query row mine { filter payload.owner == actor.userId }
query row mineBoth { filter actor.userId == payload.owner }
shape row seen { id  v: payload.v  owner: payload.owner }
query row shaped { shape seen }
mutation row own { args { id string! } insert { id: args.id, owner: actor.userId } }
"#;

async fn bench() -> Bench {
    let bench = Bench::new();
    apply(&bench, DECLARED).await.unwrap();
    bench
}

async fn apply(bench: &Bench, text: &str) -> Result<engine::Plan, Problem> {
    let checked = check_workspace(&BTreeMap::from([("d/rows.ew".to_owned(), text.to_owned())]));
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await
}

async fn put(bench: &Bench, id: &str, fields: Value) -> Result<Written, Problem> {
    bench.tenant.write(&Caller::local(), Write::of("row", Some(id), Action::Put(map(fields)))).await
}

fn ask(bench: &Bench, query: &str, args: Value) -> Vec<Value> {
    let asking = Asking { args: map(args), ..Asking::default() };
    bench.tenant.query(&Caller::local(), query, &asking).unwrap().rows
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn instants_are_compared_and_sorted_as_such_however_they_are_written() {
    let bench = bench().await;
    put(&bench, "a", json!({"t": "2026-01-01T00:00:00Z", "at": {"when": "2026-01-01T00:00:00Z"}}))
        .await
        .unwrap();
    put(&bench, "b", json!({"t": "2026-01-01T00:00:00.4Z"})).await.unwrap();
    put(&bench, "c", json!({})).await.unwrap();
    assert_eq!(ids(&ask(&bench, "before", json!({"d": "2026-01-01T00:00:00.5Z"}))), ["a", "b"]);
    assert_eq!(ids(&ask(&bench, "before", json!({"d": "2026-01-01T01:00:00.1+01:00"}))), ["a"]);
    assert_eq!(ids(&ask(&bench, "same", json!({"d": "2026-01-01T01:00:00+01:00"}))), ["a"]);
    assert_eq!(ids(&ask(&bench, "same", json!({"d": "soon"}))), Vec::<&str>::new());
    assert_eq!(ids(&ask(&bench, "lit", json!({}))), ["a"]);
    assert_eq!(ids(&ask(&bench, "listed", json!({}))), ["a"]);
    assert_eq!(ids(&ask(&bench, "sorted", json!({}))), ["c", "a", "b"]);
    let filter = r#"payload.at.when < "2026-01-01T00:00:00.5Z" && createdAt < "9000-01-01T00:00:00+02:00""#;
    let listing = Listing { filter: Some(filter.to_owned()), limit: 9, ..Listing::default() };
    assert_eq!(ids(&bench.tenant.entities(&Caller::local(), "row", &listing).unwrap().rows), ["a"]);
    put(&bench, "a", json!({"t": "2026-01-01T00:00:00.5Z"})).await.unwrap();
    let later = engine::Query {
        topic: Some(model::topic::Pattern::parse("row.later").unwrap()),
        ..engine::Query::default()
    };
    assert_eq!(bench.tenant.find(&later).unwrap().events.len(), 1, "half a second is later");
}

#[tokio::test]
async fn a_day_is_the_instant_at_its_beginning() {
    let bench = Bench::new();
    let text = r#"
concept row { t datetime  since datetime @default("2026-01-01") }
query row after { filter t > "2026-01-01" && createdAt >= "2026-01-01" }
query row on { filter payload.t == "2026-01-01" }
query row of { args { d string! } filter payload.since == args.d }
"#;
    apply(&bench, text).await.unwrap();
    put(&bench, "a", json!({"t": "2026-01-01T00:00:00Z"})).await.unwrap();
    put(&bench, "b", json!({"t": "2026-01-01T00:00:01Z"})).await.unwrap();
    let day = put(&bench, "c", json!({"t": "2026-01-01", "since": "2025-01-01"})).await.unwrap().row;
    assert_eq!(day.fields["t"], "2026-01-01T00:00:00Z");
    assert_eq!(ids(&ask(&bench, "after", json!({}))), ["b"]);
    assert_eq!(ids(&ask(&bench, "on", json!({}))), ["a", "c"]);
    assert_eq!(ids(&ask(&bench, "of", json!({"d": "2026-01-01"}))), ["a", "b"], "a default is as if given");
}

#[tokio::test]
async fn durations_are_compared_as_such_however_they_are_written() {
    let bench = Bench::new();
    let text = r#"
concept row {
  w duration
  least duration @default("5m")
  derive "row.slow" when next.w > 4m
}
query row above { filter w > 4m }
query row aboveText { filter w > "4m" }
query row aboveSeconds { filter w > 240 }
query row is { filter w == 5m }
query row isText { filter w == "5m" }
query row isSeconds { filter w == 300 }
query row isArg { args { d duration! } filter w == args.d }
query row listed { filter w in [5m, "90s"] }
query row aboveArg { args { d duration! } filter w >= args.d }
query row byDefault { filter least == 5m && least < 6m }
query row not { filter w != "5m" }
"#;
    apply(&bench, text).await.unwrap();
    put(&bench, "a", json!({"w": "5m"})).await.unwrap();
    put(&bench, "b", json!({"w": 90.5, "least": "1m"})).await.unwrap();
    put(&bench, "c", json!({"least": 1})).await.unwrap();
    let five = json!({"d": "300s"});
    for query in ["above", "aboveText", "aboveSeconds", "is", "isText", "isSeconds", "listed", "byDefault"] {
        assert_eq!(ids(&ask(&bench, query, json!({}))), ["a"], "{query}");
    }
    assert_eq!(ids(&ask(&bench, "isArg", five.clone())), ["a"]);
    assert_eq!(ids(&ask(&bench, "aboveArg", five)), ["a"]);
    assert_eq!(ids(&ask(&bench, "aboveArg", json!({"d": 90.5}))), ["a", "b"]);
    assert_eq!(ids(&ask(&bench, "not", json!({}))), ["b", "c"]);
    let slow = engine::Query {
        topic: Some(model::topic::Pattern::parse("row.slow").unwrap()),
        ..engine::Query::default()
    };
    assert_eq!(bench.tenant.find(&slow).unwrap().events.len(), 1);
}

#[tokio::test]
async fn whole_numbers_are_ordered_against_fractions() {
    let bench = Bench::new();
    apply(&bench, "concept row { n int }\nquery row above { filter n > 2.5 && n != 3.5 && n in [3, 0.5] }")
        .await
        .unwrap();
    for n in [2, 3] {
        put(&bench, &n.to_string(), json!({"n": n})).await.unwrap();
    }
    assert_eq!(ids(&ask(&bench, "above", json!({}))), ["3"]);
}

#[tokio::test]
async fn an_order_against_what_is_missing_is_a_no_inside_a_filter() {
    let bench = bench().await;
    put(&bench, "a", json!({"v": 1})).await.unwrap();
    put(&bench, "b", json!({})).await.unwrap();
    put(&bench, "c", json!({"v": 9})).await.unwrap();
    assert_eq!(ids(&ask(&bench, "small", json!({}))), ["a", "b"]);
    assert_eq!(ask(&bench, "shaped", json!({}))[1], json!({"id": "b"}), "what is missing is left out");
}

#[tokio::test]
async fn an_equal_number_is_no_change_and_an_actor_has_a_user_id() {
    let bench = bench().await;
    put(&bench, "a", json!({"d": 5})).await.unwrap();
    for same in [json!(5.0), json!(5)] {
        assert!(put(&bench, "a", json!({"d": same})).await.unwrap().change.is_none());
    }
    assert!(put(&bench, "a", json!({"d": 5.5})).await.unwrap().change.is_some());
    let ann = Caller { actor: "user:ann".to_owned(), ..Caller::local() };
    bench.tenant.mutate(&ann, "own", map(json!({"id": "x"})), None).await.unwrap();
    for query in ["mine", "mineBoth"] {
        let found = bench.tenant.query(&ann, query, &Asking::default()).unwrap();
        assert_eq!(ids(&found.rows), ["x"], "{query}");
        assert_eq!(found.rows[0]["fields"]["owner"], "ann");
    }
}

#[tokio::test]
async fn an_argument_that_a_mutation_does_not_take_is_answered_with_those_it_takes() {
    let bench = bench().await;
    let args = map(json!({"id": "x", "nope": 1}));
    let problem = bench.tenant.mutate(&Caller::local(), "own", args, None).await.unwrap_err();
    assert_eq!(problem.detail(), "\"own\" has no argument \"nope\"");
    assert_eq!(problem.hint_text(), Some("its arguments are id"));
    assert_eq!((problem.code(), problem.pointer()), (Code::EntityInvalid, Some("/args/nope")));
}

#[tokio::test]
async fn a_delete_says_what_deleted_and_a_row_of_then_who_made_it() {
    let bench = bench().await;
    let (local, at) = (Caller::local(), ("row", None, "a"));
    let ann = Caller { actor: "user:ann".to_owned(), ..Caller::local() };
    let first = Write::of("row", Some("a"), Action::Put(map(json!({"v": 1}))));
    let first = bench.tenant.write(&ann, first).await.unwrap().row;
    bench.pass(10.0);
    put(&bench, "a", json!({"v": 2})).await.unwrap();
    bench.pass(10.0);
    let second = put(&bench, "a", json!({"v": 3})).await.unwrap().row;
    let lately = Lately {
        in_state_since: Some("v".into()),
        transitions: Some("v".into()),
        window: Some("15s".into()),
    };
    let (_, answer) = bench.tenant.entity_lately(&local, at, &lately).unwrap();
    assert_eq!((&answer["in_state_since"], &answer["transitions"]), (&json!(second.updated_at), &json!(2)));
    let wrong = Lately { in_state_since: Some("w".into()), ..Lately::default() };
    assert_eq!(bench.tenant.entity_lately(&local, at, &wrong).unwrap_err().code(), Code::RequestInvalid);
    let provenance = Provenance { kind: "purge".into(), ..Provenance::default() };
    let gone = Write { provenance, expect: Expect::Present, ..Write::of("row", Some("a"), Action::Delete) };
    assert_eq!(bench.tenant.write(&local, gone).await.unwrap().row.provenance.kind, "purge");
    let history = bench.tenant.entity_history(&local, at, &Paging::default()).unwrap();
    assert_eq!(history.changes[3]["provenance"], json!({"kind": "purge"}));
    assert_eq!(history.changes[2]["provenance"]["kind"], "api");
    for version in [first.version, second.version] {
        let then = bench.tenant.entity_as_of(&local, at, AsOf::Position(version)).unwrap();
        assert_eq!(then.created_by, "user:ann");
    }
}

#[tokio::test]
async fn a_refused_secret_is_not_said_and_a_sealed_one_is_judged_by_a_new_definition() {
    let bench = Bench::new();
    let text =
        |of: &str| format!("concept login {{ name string  s {of} @secret  in object {{ k int @secret }} }}");
    apply(&bench, &text("string @pattern(\"p.*\")")).await.unwrap();
    let write = |fields: Value| {
        let write = Write::of("login", Some("x"), Action::Put(map(fields)));
        async { bench.tenant.write(&Caller::local(), write).await }
    };
    for wrong in [
        json!({"s": "SECRET1"}),
        json!({"s": 7777}),
        json!({"in": {"k": "SECRET2"}}),
        json!({"in": "SECRET3"}),
    ] {
        let detail = write(wrong.clone()).await.unwrap_err().detail().to_owned();
        assert!(detail.contains("***") && !detail.contains("SECRET") && !detail.contains("777"), "{detail}");
    }
    write(json!({"s": "pSECRET"})).await.unwrap();
    for of in ["int", "string @pattern(\"q.*\")", "enum(\"a\", \"b\")"] {
        let problem = apply(&bench, &text(of)).await.unwrap_err();
        assert_eq!(problem.code(), Code::DefinitionBreaking, "{of}");
        assert!(!problem.detail().contains("pSECRET"), "{problem}");
    }
    apply(&bench, &text("string @pattern(\"pS.*\")")).await.unwrap();
}

#[tokio::test]
async fn a_cursor_stands_in_an_address_as_it_is() {
    let bench = bench().await;
    for id in ["a", "b", "ü c"] {
        put(&bench, id, json!({"v": 1})).await.unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let listing = Listing { limit: 1, cursor, ..Listing::default() };
        let page = bench.tenant.entities(&Caller::local(), "row", &listing).unwrap();
        seen.extend(ids(&page.rows).iter().map(|id| (*id).to_owned()));
        cursor = page.next;
        let Some(cursor) = &cursor else { break };
        assert!(cursor.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{cursor}");
    }
    assert_eq!(seen, ["a", "b", "ü c"]);
}
