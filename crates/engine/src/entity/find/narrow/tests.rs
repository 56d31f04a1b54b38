//! What is understood of a filter, and that nothing else is.

use model::definition::{self, Field, Type};
use serde_json::json;

use super::*;
use crate::entity::find::bound::Want;
use model::Timestamp;
use rusqlite::types::Value as Sql;

fn concept() -> Concept {
    let field = |name: &str, of| Field { name: name.into(), of, ..Field::default() };
    let fields = vec![
        field("a", Type::String),
        field("n", Type::Int),
        field("at", Type::Timestamp),
        field("every", Type::Duration),
        field("o", Type::Object(vec![field("at", Type::Timestamp)])),
    ];
    Concept::new(definition::Concept { id: "v1:a:b".into(), name: "b".into(), fields, ..Default::default() })
        .unwrap()
}

fn read(text: &str) -> Vec<Test> {
    let concept = concept();
    let mut timed = Timed { instants: vec!["args.t".into()], lengths: vec!["args.d".into()] };
    timed.add(&concept);
    tests(text, &concept, &timed)
}

fn wants(text: &str) -> Vec<Option<Want>> {
    let args = json!({"n": 2, "t": "2026-01-31", "d": "5m", "list": ["x", null], "big": 9007199254740993u64});
    let asked = Asked { args, actor: "user:ann".into(), now: Timestamp::EPOCH };
    read(text).iter().map(|test| test.narrow(&asked).map(|narrow| narrow.want)).collect()
}

#[test]
fn comparisons_with_something_known_are_understood() {
    let found = |text: &str| {
        let told = |test: Test| format!("{} {:?}", test.column.name, test.op);
        read(text).into_iter().map(told).collect::<Vec<_>>().join(", ")
    };
    for (text, tests) in [
        (r#"payload.a == "x" && payload.b.c == args.n"#, "payload.a Equal, payload.b.c Equal"),
        ("payload.a == 'x' && payload.n > 1 || 1", ""),
        (
            "(payload.a == 'x' && (payload.n > 1)) && 3 <= n",
            "payload.a Equal, payload.n Greater, payload.n GreaterEqual",
        ),
        ("payload.n in [1, 2]&&payload.a in args.list", "payload.n In, payload.a In"),
        ("payload.at > now - 5m && createdAt < args.t", "payload.at Greater, createdAt Less"),
        (r#"payload.a == "x && payload.b == 1""#, "payload.a Equal"),
        (r#"payload.a == "http://x(?|""#, "payload.a Equal"),
        ("payload.min == 1 && fields.n==-1", "payload.min Equal, payload.n Equal"),
        ("createdBy == actor.userId && id in args.ids", "createdBy Equal, id In"),
        ("(payload.a == 1 || payload.b == 2) && payload.n < 3", "payload.n Less"),
    ] {
        assert_eq!(found(text), tests, "{text}");
    }
}

#[test]
fn nothing_else_is() {
    for text in [
        "payload.a == payload.n",
        "payload.a == a",
        "payload.a != 1",
        "payload.n not in [1]",
        "!(payload.n == 1)",
        "!payload.n == 1",
        "payload.n + 1 == 2",
        "payload.n == 1 == true",
        "payload.n == args.n contains 'x'",
        "payload.n == size(args.list)",
        "payload.n == (1)",
        "payload.a == 'x' ? true : false",
        "payload.n ?? 1 < 2",
        r#"payload.a == "\"" && payload.n == 1"#,
        "payload.n == 1 // && payload.n == 2",
        "when(args.n) { payload.n == args.n }",
        "payload.list[0] == 1",
        "space == 'x'",
        // The row's value is read as an instant, too.
        "payload.a == args.t",
        "payload.n > args.d",
        "1 in payload.list",
        r#"payload.a == args["t"]"#,
        "payload.n > args [ 'd' ]",
        "payload.a == args . t",
    ] {
        assert!(read(text).is_empty(), "{text}: {:?}", read(text));
    }
}

#[test]
fn values_are_those_that_the_table_holds() {
    let text = |text: &str| Sql::Text(text.into());
    let empty = || Want::OneOf(vec![Sql::Null, text("")]);
    let between = |low, high| Want::Between(low, high);
    for (filter, want) in [
        ("payload.a == ''", empty()),
        ("payload.a == null", empty()),
        ("payload.a == args.absent", empty()),
        ("payload.a > args.absent", Want::OneOf(vec![])),
        ("payload.a in args.list", Want::OneOf(vec![text("x"), Sql::Null, text("")])),
        ("payload.n < 5", between(None, Some((Sql::Integer(5), false)))),
        ("5 <= payload.n", between(Some((Sql::Integer(5), true)), None)),
        ("payload.at <= args.t", between(None, Some((text("2026-01-31T00:00:00"), true)))),
        ("payload.o.at > now + 1ms", between(Some((text("1970-01-01T00:00:00.001"), false)), None)),
        ("payload.every > 5m", between(Some((Sql::Real(300.0), false)), None)),
        ("payload.at > args.t - args.d", between(Some((text("2026-01-30T23:55:00"), false)), None)),
        ("payload.at > now + args.d", between(Some((text("1970-01-01T00:05:00"), false)), None)),
        ("payload.every > args.d - 1m", between(Some((Sql::Real(240.0), false)), None)),
        ("payload.n == args.list[0]", Want::OneOf(vec![text("x")])),
    ] {
        assert_eq!(wants(filter), [Some(want)], "{filter}");
    }
    // Beside such a number SQLite is more exact than the language.
    let Some(Want::Between(Some((Sql::Real(low), true)), Some((Sql::Real(high), true)))) =
        &wants("payload.n == args.big")[0]
    else {
        panic!("a range");
    };
    assert!(*low < 9007199254740991.0 && *high > 9007199254740995.0);
    assert_eq!(wants("payload.n == [1]"), [None]);
    assert_eq!(wants("payload.n == now"), [None]);
    // The row's value is read as an instant, too.
    assert_eq!(wants("payload.a == args.t - args.d"), [None]);
}
