//! Declared queries: in order and page by page, of now and of then, and said to who listens.

use std::collections::BTreeMap;

use engine::entity::Action;
use engine::{AsOf, Asking, Caller, Follow};
use lang::declare::check_workspace;
use model::Code;
use model::topic::Pattern;
use serde_json::{Value, json};

use super::{map, put, write};
use crate::temp::Bench;

const DECLARED: &str = r#"
concept system { status string  latency_ms int  score double }
query system byStatus { args { status string! } filter payload.status == args.status }
query system slowest {
  args { status string! }
  filter payload.status == args.status
  sort "latency_ms", "desc"
  paginate 3
}
query system thenDown { args { at int! } filter payload.status == "down" asOf args.at }
query system howMany { filter payload.latency_ms > 0 count }
"#;

async fn bench() -> Bench {
    let files = BTreeMap::from([("health.ew".to_owned(), DECLARED.to_owned())]);
    let checked = check_workspace(&files);
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    let bench = Bench::new();
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    bench
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

fn asking(args: Value) -> Asking {
    Asking { args: map(args), ..Asking::default() }
}

#[tokio::test]
async fn a_sorted_query_goes_on_after_the_last_row_also_when_rows_come_and_go() {
    let bench = bench().await;
    // Equal keys and none at all are in the middle of pages, too.
    for (id, latency) in
        [("a", json!(5)), ("b", json!(9)), ("c", json!(5)), ("d", Value::Null), ("e", json!(1))]
    {
        put(&bench.tenant, id, json!({"status": "up", "latency_ms": latency})).await.unwrap();
    }
    put(&bench.tenant, "f", json!({"status": "up", "latency_ms": null})).await.unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    let caller = Caller::local();
    loop {
        let asking = Asking { cursor, explain: true, limit: Some(2), ..asking(json!({"status": "up"})) };
        let page = bench.tenant.query(&caller, "slowest", &asking).unwrap();
        let plan = page.plan.unwrap().join("; ");
        assert!(plan.contains("USING INDEX entity_by_") && !plan.contains("TEMP B-TREE"), "{plan}");
        seen.extend(ids(&page.rows).iter().map(|id| (*id).to_owned()));
        // One before the place where we are, one behind it.
        put(&bench.tenant, "aa", json!({"status": "up", "latency_ms": 99})).await.unwrap();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["b", "a", "c", "e", "d", "f"]);
    let odd = Asking { cursor: Some("[[],\"a\",\"default\"]".into()), ..asking(json!({"status": "up"})) };
    assert_eq!(bench.tenant.query(&caller, "slowest", &odd).unwrap_err().code(), Code::RequestInvalid);
}

#[tokio::test]
async fn a_query_of_then_sees_what_was_changed_made_and_deleted_since() {
    let bench = bench().await;
    let caller = Caller::local();
    put(&bench.tenant, "stays", json!({"status": "down"})).await.unwrap();
    put(&bench.tenant, "goes", json!({"status": "down", "latency_ms": 4})).await.unwrap();
    let then = put(&bench.tenant, "mended", json!({"status": "down"})).await.unwrap().row.version + 1;
    let noon = engine::clock::Clock::now(bench.clock.as_ref());
    bench.pass(60.0);
    write(&bench.tenant, "goes", Action::Delete).await.unwrap();
    put(&bench.tenant, "mended", json!({"status": "up"})).await.unwrap();
    put(&bench.tenant, "mended", json!({"status": "shut"})).await.unwrap();
    put(&bench.tenant, "new", json!({"status": "down"})).await.unwrap();
    let find = |as_of, status: &str| {
        let asking = Asking { as_of, ..asking(json!({"status": status})) };
        let found = bench.tenant.query(&caller, "byStatus", &asking).unwrap();
        ids(&found.rows).iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find(None, "down"), ["new", "stays"]);
    for moment in [AsOf::Position(then), AsOf::Time(noon)] {
        assert_eq!(find(Some(moment), "down"), ["goes", "mended", "stays"], "{moment:?}");
        assert_eq!(find(Some(moment), "shut"), Vec::<String>::new(), "{moment:?}");
    }
    assert_eq!(find(Some(AsOf::Position(1)), "down"), Vec::<String>::new());
    let declared = bench.tenant.query(&caller, "thenDown", &asking(json!({"at": then}))).unwrap();
    assert_eq!(ids(&declared.rows), ["goes", "mended", "stays"]);
    assert_eq!(declared.rows[0]["fields"]["latency_ms"], 4);
}

#[tokio::test]
async fn a_query_of_then_reads_what_a_field_held_before_it_was_declared_an_instant() {
    let bench = Bench::new();
    let declared = |due: &str, wait: &str| {
        let text = format!(
            "concept note {{ due {due}  wait {wait} }}\n\
             query note early {{ filter payload.due < \"2026-01-31T09:30:00Z\" }}\n\
             query note slow {{ filter payload.wait > 4m }}"
        );
        check_workspace(&BTreeMap::from([("t/a.ew".to_owned(), text)])).definitions
    };
    bench.tenant.apply("test", declared("string", "any")).await.unwrap();
    let note = |due: &str, wait: Value| {
        let fields = map(json!({"due": due, "wait": wait}));
        engine::entity::Write::of("v1:t:note", Some("a"), Action::Put(fields))
    };
    let caller = Caller::local();
    let then = bench.tenant.write(&caller, note("2026-01-31T10:00:00+01:00", json!("5m"))).await.unwrap();
    bench.tenant.write(&caller, note("2026-03-01T00:00:00Z", json!(1))).await.unwrap();
    bench.tenant.apply("test", declared("datetime", "duration")).await.unwrap();
    bench.tenant.write(&caller, note("2026-04-01T00:00:00Z", json!(2))).await.unwrap();
    for name in ["early", "slow"] {
        let as_of = Some(AsOf::Position(then.row.version));
        let asking = Asking { as_of, ..asking(json!({})) };
        assert_eq!(ids(&bench.tenant.query(&caller, name, &asking).unwrap().rows), ["a"], "{name}");
    }
}

#[tokio::test]
async fn an_answered_query_is_said_live_to_who_listens_and_is_written_nowhere() {
    let bench = bench().await;
    put(&bench.tenant, "a", json!({"status": "up", "latency_ms": 3})).await.unwrap();
    let follow = |pattern: &str| {
        let patterns = vec![Pattern::parse(pattern).unwrap()];
        bench.tenant.follow(Follow { patterns, ..Follow::default() }).unwrap()
    };
    let (mut named, mut all) = (follow("query.*"), follow("#"));
    let head = bench.tenant.head();
    let found = bench.tenant.query(&Caller::local(), "howMany", &asking(json!({}))).unwrap();
    assert_eq!(found.count, Some(1));
    let events = named.next(10).await.unwrap();
    let value = events[0].to_value();
    assert_eq!(value["topic"], "query.executed");
    assert_eq!(
        (&value["payload"]["query"], &value["payload"]["resultCount"]),
        (&json!("howMany"), &json!(1))
    );
    assert!(value.get("position").is_none() && value["payload"]["durationMs"].is_number(), "{value}");
    assert_eq!(bench.tenant.head(), head);
    assert!(all.try_next(10).unwrap().is_empty());
    assert_eq!(all.next(10).await.unwrap()[0].envelope.topic, "query.executed");
}

#[tokio::test]
async fn what_was_answered_is_read_at_once_without_the_writer_and_after_its_commit() {
    let bench = bench().await;
    let caller = Caller::local();
    let made = put(&bench.tenant, "a", json!({"status": "up"})).await.unwrap();
    assert_eq!(bench.tenant.entity(&caller, "system", None, "a").unwrap(), made.row);
    write(&bench.tenant, "a", Action::Delete).await.unwrap();
    assert!(bench.tenant.entity(&caller, "system", None, "a").is_err());
    assert!(bench.tenant.entity(&caller, "system", Some("default"), "a").is_err());
    let again = put(&bench.tenant, "a", json!({"status": "down"})).await.unwrap();
    bench.pass(1.0);
    put(&bench.tenant, "b", json!({"status": "up"})).await.unwrap();
    assert_eq!(bench.tenant.entity(&caller, "system", Some("default"), "a").unwrap(), again.row);
    assert_eq!(bench.tenant.entity(&caller, "system", Some("default"), "b").unwrap().fields["status"], "up");
}
