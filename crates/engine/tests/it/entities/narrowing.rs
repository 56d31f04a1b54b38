//! Filters that SQLite narrows beforehand want the rows that the expression wants, and go by an index.

use std::collections::BTreeMap;

use engine::entity::{Action, Write};
use engine::{Asking, Caller, Tenant};
use lang::declare::check_workspace;
use model::Code;
use model::definition::{Concept, Conjunct, Definition, Expr, Query, Sort, Type};
use serde_json::{Value, json};

use super::{concept, field, map};
use crate::temp::Bench;

const ROW: &str = "v1:t:row";

/// Values of every kind, and those at which two ways to compare would part.
fn values() -> Vec<Value> {
    let big = 1i64 << 53;
    vec![
        Value::Null,
        json!(""),
        json!("a"),
        json!("a\u{0}b"),
        json!("ab"),
        json!("B"),
        json!("é"),
        json!("\u{ffff}"),
        json!("\u{10ffff}"),
        json!("1"),
        json!("5m"),
        json!("2026-01-31"),
        json!("2026-01-31T00:00:00Z"),
        json!("2026-01-31T02:00:00+02:00"),
        json!("2026-01-31T00:00:00.5Z"),
        json!(-1),
        json!(0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(0.1),
        json!(0.30000000000000004),
        json!(300),
        json!(299.9999999),
        json!(1e300),
        json!(-2.2250738585072014e-308),
        json!(big),
        json!(big + 1),
        json!((big + 2) as f64),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(u64::MAX - 1),
        json!(true),
        json!(false),
        json!([1, "a"]),
        json!({"s": "a"}),
    ]
}

fn of_type(value: &Value, field: &str) -> bool {
    match field {
        "kind" => value.is_string(),
        "n" => value.is_i64() || value.is_u64(),
        "x" => value.is_number(),
        "at" => value.as_str().is_some_and(|text| text.starts_with("2026")),
        "every" => value == "5m" || value.as_f64().is_some_and(|n| (0.0..1e9).contains(&n)),
        "flag" => value.is_boolean(),
        _ => true,
    }
}

/// Numbers from one seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

const FIELDS: [&str; 7] = ["kind", "n", "x", "at", "every", "flag", "any"];

fn declared() -> Concept {
    let inner = vec![field("s", Type::String), field("at", Type::Timestamp)];
    let of = [
        Type::String,
        Type::Int,
        Type::Double,
        Type::Timestamp,
        Type::Duration,
        Type::Bool,
        Type::Any,
        Type::Object(inner),
    ];
    let names = FIELDS.iter().chain(&["o"]);
    let fields = names.zip(of).map(|(name, of)| field(name, of)).collect();
    Concept { open: true, ..concept(ROW, fields) }
}

fn random_row(dice: &mut Dice, values: &[Value]) -> Value {
    let mut row = serde_json::Map::new();
    for name in FIELDS.iter().chain(&["open"]) {
        let fitting: Vec<&Value> = values.iter().filter(|value| of_type(value, name)).collect();
        if dice.below(6) > 0 {
            row.insert((*name).to_owned(), (*dice.one(&fitting)).clone());
        }
    }
    if dice.below(2) == 0 {
        row.insert("o".into(), json!({"s": dice.one(&["", "a", "b"]), "at": "2026-01-31T00:00:00.25Z"}));
    }
    Value::Object(row)
}

fn filters() -> Vec<String> {
    let names = FIELDS.iter().chain(&["open", "o.s", "o.at", "any.s"]).map(|name| format!("payload.{name}"));
    let columns: Vec<String> = names.chain(["id", "createdAt", "createdBy"].map(str::to_owned)).collect();
    let mut filters = Vec::new();
    for column in &columns {
        for op in ["==", "<", "<=", ">", ">="] {
            filters.push(format!("{column} {op} args.v"));
        }
        filters.push(format!("{column} in args.list"));
        filters.push(format!("{column} in [args.v, args.w]"));
        filters.push(format!("{column} >= args.v && {column} < args.w"));
        filters.push(format!("args.v >= {column} && payload.kind == args.w"));
        filters.push(format!("{column} == args.t"));
        filters.push(format!("{column} > args.d && payload.any in args.list"));
        filters.push(format!("{column} >= args.t - args.d && {column} < now + args.d"));
        filters.push(format!("{column} == args.d + 0s"));
        filters.push(format!("{column} == args[\"t\"]"));
        filters.push(format!("{column} > args['d']"));
    }
    filters.extend(
        ["payload.kind == \"\"", "kind == null", "payload.at < now", "payload.every >= 5m"].map(Into::into),
    );
    filters
}

fn query(name: String, filter: &str, sort: Option<Sort>) -> Definition {
    let args = [
        field("v", Type::Any),
        field("w", Type::Any),
        field("list", Type::List(Box::new(Type::Any))),
        field("t", Type::Timestamp),
        field("d", Type::Duration),
    ];
    let filter = match filter {
        "" => Vec::new(),
        filter => vec![Conjunct { when: None, test: Expr(filter.to_owned()) }],
    };
    let (concept, sort) = (ROW.to_owned(), sort.into_iter().collect());
    Definition::Query(Query { name, concept, args: args.to_vec(), filter, sort, ..Query::default() })
}

/// Every page of it.
fn ids(tenant: &Tenant, name: &str, args: &Value, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let asking = Asking { args: map(args.clone()), limit: Some(limit), cursor, ..Asking::default() };
        let page = tenant.query(&Caller::local(), name, &asking).unwrap();
        ids.extend(page.rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

async fn filled(mut definitions: Vec<Definition>, rows: impl IntoIterator<Item = Value>) -> Bench {
    let bench = Bench::new();
    definitions.insert(0, Definition::Concept(declared()));
    bench.tenant.apply("test", definitions).await.unwrap();
    for (at, fields) in rows.into_iter().enumerate() {
        let write = Write::of(ROW, Some(&format!("r{at:03}")), Action::Put(map(fields)));
        bench.tenant.write(&Caller::local(), write).await.unwrap();
        bench.pass(0.1);
    }
    bench
}

#[tokio::test]
async fn what_is_narrowed_beforehand_is_what_a_scan_finds() {
    let (mut dice, values) = (Dice(7), values());
    let sorts = ["payload.n", "payload.any", "payload.at", "createdAt"];
    let mut definitions = Vec::new();
    for (at, filter) in filters().iter().enumerate() {
        let field = (*dice.one(&sorts)).to_owned();
        let sort = (dice.below(2) == 0).then(|| Sort { field, descending: dice.below(2) == 0 });
        definitions.push(query(format!("q{at}"), filter, sort.clone()));
        // Not understood by what narrows, and the same.
        definitions.push(query(format!("s{at}"), &format!("({filter}) || false"), sort));
    }
    let rows: Vec<Value> = (0..90).map(|_| random_row(&mut dice, &values)).collect();
    let bench = filled(definitions, rows).await;
    let mut found = 0;
    for (at, filter) in filters().iter().enumerate() {
        for _ in 0..12 {
            let list: Vec<&Value> = (0..dice.below(4)).map(|_| dice.one(&values)).collect();
            let day = dice.one(&["2026-01-31", "2026-01-31T00:00:00.25Z"]);
            let mut args = json!({"list": list, "t": day, "d": "5m"});
            for name in ["v", "w"] {
                args[name] = dice.one(&values).clone();
            }
            let limit = 1 + dice.below(60);
            let (narrowed, scanned) = (
                ids(&bench.tenant, &format!("q{at}"), &args, limit),
                ids(&bench.tenant, &format!("s{at}"), &args, 500),
            );
            assert_eq!(narrowed, scanned, "{filter} with {args}");
            found += scanned.len();
        }
    }
    assert!(found > 1_000, "only {found} rows were looked for");
}

#[tokio::test]
async fn declared_instants_and_lengths_are_counted_with() {
    let forms = [
        ("payload.at > args.t - args.d", "new"),
        ("args.t - args.d < payload.at", "new"),
        ("payload.at <= args.t - args.d", "old"),
        ("payload.at + payload.every > args.t", "new"),
        ("payload.at + payload.every <= \"2026-01-31T09:00:00Z\"", "old"),
        ("args.t - payload.at <= args.d && payload.every < args.d + args.d", "new"),
        ("payload.every > args.d - 1m && payload.at <= args.t - 1h", "old"),
        ("payload.at == args[\"t\"] - args.d + args.d", "now"),
    ];
    let queries = forms.iter().enumerate();
    let queries = queries.map(|(at, (filter, _))| query(format!("q{at}"), filter, None)).collect();
    let rows = [
        json!({"kind": "old", "at": "2026-01-31T08:00:00Z", "every": "5m"}),
        json!({"kind": "new", "at": "2026-01-31T08:58:00Z", "every": "5m"}),
        json!({"kind": "now", "at": "2026-01-31T09:00:00Z"}),
    ];
    let bench = filled(queries, rows).await;
    let args = json!({"t": "2026-01-31T10:00:00+01:00", "d": "5m"});
    for (at, (filter, wanted)) in forms.iter().enumerate() {
        let asking = Asking { args: map(args.clone()), ..Asking::default() };
        let found = bench.tenant.query(&Caller::local(), &format!("q{at}"), &asking).unwrap().rows;
        let kinds: Vec<&str> = found.iter().map(|row| row["fields"]["kind"].as_str().unwrap()).collect();
        let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "now" || *wanted == "now").collect();
        assert_eq!(kinds, [*wanted], "{filter}");
    }
}

fn plan(tenant: &Tenant, name: &str, args: Value) -> String {
    let asking = Asking { args: map(args), explain: true, ..Asking::default() };
    tenant.query(&Caller::local(), name, &asking).unwrap().plan.unwrap().join("; ")
}

#[tokio::test]
async fn every_comparison_with_something_known_goes_by_an_index() {
    let down = |field: &str| Some(Sort { field: field.into(), descending: true });
    let forms = [
        ("payload.kind == args.v", None, "(<expr>=?)"),
        ("payload.n < args.w", None, "(<expr><?)"),
        ("payload.n >= args.w && payload.n < 8", None, "(<expr>>? AND <expr><?)"),
        ("payload.at > args.t", None, "(<expr>>?)"),
        ("payload.at > now - 5m", None, "(<expr>>?)"),
        ("payload.at > args.t - args.d", None, "(<expr>>?)"),
        ("payload.every == 5m", None, "(<expr>>? AND <expr><?)"),
        ("createdAt > args.t", None, "(<expr>>?)"),
        ("payload.kind in [\"a\", args.v]", None, "(<expr>=?)"),
        ("payload.kind in args.list", None, "(<expr>=?)"),
        ("payload.kind == \"\"", None, "MULTI-INDEX OR"),
        ("payload.o.s == 'b'", None, "(<expr>=?)"),
        ("payload.kind == args.v && payload.n > 3", None, "(<expr>=? AND <expr>>?)"),
        ("payload.n > 3", down("payload.n"), "(<expr>>?)"),
        ("payload.at > args.t", down("payload.n"), "(<expr>>?)"),
        ("payload.kind == args.v", down("payload.n"), "(<expr>=?)"),
        ("", down("payload.n"), "SCAN entity USING INDEX entity_by_"),
        ("id == args.v", None, "entity_of (concept=? AND id=?)"),
        ("id in args.list && payload.n > 3", None, "entity_of (concept=? AND id=?)"),
    ];
    let queries = forms.iter().enumerate();
    let queries = queries.map(|(at, (filter, sort, _))| query(format!("q{at}"), filter, sort.clone()));
    let bench = filled(queries.collect(), [json!({"n": 4, "kind": "a"})]).await;
    let bench = bench.reopen().await;
    for (at, (filter, sort, expected)) in forms.iter().enumerate() {
        let args = json!({"v": "a", "w": 5, "list": ["a", "b"], "t": "2026-01-31", "d": 60});
        let plan = plan(&bench.tenant, &format!("q{at}"), args);
        let by = if filter.starts_with("id") { "INDEX entity_of" } else { "INDEX entity_by_" };
        assert!(plan.contains(expected) && plan.contains(by), "{filter}: {plan}");
        // What has one value is in order already.
        if expected.ends_with("<expr>=?)") && !filter.contains(" in ") || filter.is_empty() {
            assert!(!plan.contains("TEMP B-TREE"), "{filter} {sort:?}: {plan}");
        }
    }
}

/// A range that nearly every row is in is no reason to sort them all for one page.
#[tokio::test]
async fn a_page_of_most_rows_is_read_in_their_order() {
    let bench = filled(
        vec![query("most".into(), "payload.n >= 0", None), query("few".into(), "payload.n < 5", None)],
        [],
    )
    .await;
    let caller = Caller::local();
    for batch in 0..21 {
        let row = |n| Write::of(ROW, Some(&format!("r{batch}-{n}")), Action::Put(map(json!({ "n": n }))));
        bench.tenant.write_all(&caller, (0..500).map(row).collect()).await.unwrap();
    }
    assert!(plan(&bench.tenant, "few", json!({})).contains("entity_by_"));
    assert!(plan(&bench.tenant, "most", json!({})).contains("entity_of"));
}

/// What `check` says of indexes is what the engine does.
#[tokio::test]
async fn check_warns_of_the_queries_that_go_through_every_row() {
    let forms = [
        "payload.n < 5",
        "5 > payload.n",
        "payload.n >= args.m && payload.n < 8",
        "payload.at > now - 5m",
        "payload.kind in [\"a\", \"b\"]",
        "payload.kind == \"\"",
        "createdAt > args.t",
        "id == args.k",
        "payload.n != 3",
        "payload.n + 1 == 4",
        "payload.n == size(args.k)",
        "payload.kind == payload.other",
        "payload.n == 1 || payload.n == 2",
        "payload.kind == args.t",
        "payload.kind == args[\"k\"]",
        "payload.at > args.t - 1h",
        "payload.kind not in [\"a\"]",
        "payload.kind startsWith \"a\"",
        "when(args.k) { payload.other == args.k }",
        "payload.n > 1 && payload.kind != \"a\"",
        "space == args.k",
        "(payload.n == 1)",
        "payload.n == (args.m)",
        "row => row.n > 4",
        "true",
    ];
    let mut text = "@large concept row { kind string  other string  n int  at datetime }\n".to_owned();
    for (at, form) in forms.iter().enumerate() {
        text.push_str(&format!(
            "query row q{at} {{ args {{ k string  m int  t datetime }} filter {form} }}\n"
        ));
    }
    let checked = check_workspace(&BTreeMap::from([("t/a.ew".to_owned(), text)]));
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    let bench = Bench::new();
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    let bench = bench.reopen().await;
    for (at, form) in forms.iter().enumerate() {
        let warned =
            checked.findings.iter().any(|finding| format!("{finding:?}").contains(&format!("\\\"q{at}\\\"")));
        let plan = plan(&bench.tenant, &format!("q{at}"), json!({"k": "x", "m": 1, "t": "2026-01-31"}));
        let scans = plan.contains("entity_of (concept=?)");
        assert_eq!(warned, scans, "{form}: {plan}");
    }
}

#[test]
fn check_warns_of_a_filter_that_compares_a_mask() {
    let warned = |filter: &str| {
        let text = format!(
            "concept login {{ name string  pw string @secret  in object {{ pin string @secret }} }}\n\
             query login q {{ args {{ x string }} filter {filter} }}"
        );
        let checked = check_workspace(&BTreeMap::from([("t/a.ew".to_owned(), text)]));
        assert!(!checked.has_errors(), "{:?}", checked.findings);
        checked.findings.iter().any(|finding| finding.code == Code::DefinitionSecret)
    };
    for filter in
        ["pw == args.x", "payload.name == \"a\" && args.x != payload.in.pin", "row => row.pw > \"a\""]
    {
        assert!(warned(filter), "{filter}");
    }
    for filter in ["name == args.x", "pw == \"\"", "payload.in.pin != null", "has(payload.pw)"] {
        assert!(!warned(filter), "{filter}");
    }
}
