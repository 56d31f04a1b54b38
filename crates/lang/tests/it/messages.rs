//! What a person sees: messages about bad input as a transcript, mappers, and lines of `everwhen try`.

use lang::filter::Filter;
use lang::mapper::Mapper;
use lang::try_lines::{Kind, try_line};
use model::{Problem, Timestamp};
use serde_json::{Value, json};

fn shown(problem: &Problem) -> String {
    let pointer = problem.pointer().map(|p| format!(" [{p}]")).unwrap_or_default();
    let hint = problem.hint_text().unwrap_or("(no hint)");
    format!("{}: {}{pointer}\n{hint}", problem.code(), problem.detail())
}

/// Expressions that cannot be compiled.
const UNREADABLE: [&str; 16] = [
    "evnt.payload.price > 9",
    "price > 9",
    "event.payload.price = 9",
    "event.payload.price >",
    "(topic == 'a'",
    "topic == 'a' and true",
    "topic == 'a' & true",
    "payload.name contians 'x'",
    "topic == 'abc",
    "payload.name.startWith('x')",
    "startsWith(topic, 'x')",
    "payload.wait > 5x",
    "topic.matches('a(')",
    "$.payload.x == 1",
    "",
    "topic ==\n  'a' ++ 'ü'",
];

/// Expressions that fail on an event whose payload is `{"n": 5, "name": "x", "list": [1]}`.
const FAILING: [&str; 6] = [
    "payload.price > 9",
    "payload.n",
    "payload.name > 3",
    "true && payload.list[3] == 1",
    "[1][9223372036854775807] == 1",
    "payload.n / 0 == 1",
];

fn wrong_filters() -> Vec<Value> {
    vec![
        json!(7),
        json!({}),
        json!({"feild": "a", "eq": 1}),
        json!({"field": "a"}),
        json!({"field": "a", "gt": 1, "lt": 2}),
        json!({"field": "a", "gt": 1, "geq": 2}),
        json!({"field": "a", "in": "x"}),
        json!({"field": "$.a", "eq": 1}),
        json!({"field": "a..b", "eq": 1}),
        json!({"and": [{"field": "a", "eq": 1}, {"not": {"field": "b", "regex": "("}}]}),
        json!({"or": ["true", {"jsonpath": "$["}]}),
        json!({"jsonpath": "$..a..b..c"}),
        json!({"jsonpath": "$[?size(@)]"}),
        json!({"jsonpath": "$.a", "ne": 1}),
        json!({"and": "true"}),
        json!({"field": "a", "jsonpath": "$"}),
        json!({"and": ["evnt.x == 1"]}),
    ]
}

/// `messages.txt` beside this file is read as product text. `BLESS=1` writes it anew; review the difference.
#[test]
fn bad_expressions_and_filters_are_explained_as_in_the_transcript() {
    let mut transcript = String::new();
    let event = json!({"topic": "a", "payload": {"n": 5, "name": "x", "list": [1]}});
    let expressions = UNREADABLE.iter().chain(&FAILING).map(|text| json!(text));
    for filter in expressions.chain(wrong_filters()) {
        match Filter::parse(&filter).and_then(|parsed| parsed.test(&event)) {
            Ok(verdict) => panic!("{filter} was taken and said {verdict}"),
            Err(problem) => transcript += &format!("==== {filter}\n{}\n\n", shown(&problem)),
        }
    }
    if std::env::var("BLESS").is_ok() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/messages.txt"), &transcript).unwrap();
    } else {
        assert_eq!(transcript, include_str!("messages.txt"), "run again with BLESS=1 to accept");
    }
}

#[test]
fn a_mapper_takes_paths_literals_and_expressions() {
    let event = json!({
        "id": "e1", "topic": "order.paid", "type": "another word", "time": "2026-01-01T00:00:00Z",
        "subject": {"kind": "order", "id": "7"}, "payload": {"x": [1, 2], "nil": null, "n": 4},
    });
    let map = json!({
        "x": "$.payload.x", "all": "$.payload.x[*]", "nil": "$.payload.nil", "gone": "$.payload.gone",
        "none": "$.payload.gone[*]", "kind": "literal:foo", "empty": "literal:",
        "double": {"expr": "event.payload.n * 2"}, "id": "$.event_id", "type": "$.event_type",
        "entity": "$.entity_type", "key": "$.entity_id", "at": "$.occurred_at",
    });
    let want = json!({
        "x": [1, 2], "all": [1, 2], "nil": null, "kind": "foo", "empty": "", "double": 8, "id": "e1",
        "type": "order.paid", "entity": "order", "key": "7", "at": "2026-01-01T00:00:00Z",
    });
    assert_eq!(Value::Object(Mapper::parse(&map).unwrap().apply(&event).unwrap()), want);
    let bad = |map: Value| shown(&Mapper::parse(&map).unwrap_err());
    let none =
        "mapper.invalid: a mapper is an object of names and sources\nwrite {\"price\": \"$.payload.price\"}";
    assert_eq!(bad(json!([])), none);
    let what = "mapper.invalid: the source of \"a/b\" is not understood [/a~1b]";
    assert!(bad(json!({"a/b": "payload.x"})).starts_with(what));
    assert!(
        bad(json!({"a": {"expr": "1 +"}}))
            .starts_with("expr.syntax: expected a value, found the end, at byte 3 [/a/expr]")
    );
    assert!(bad(json!({"a": "$["})).starts_with("jsonpath.invalid: "));
}

#[test]
fn a_line_of_try_is_answered_by_a_line() {
    let table = [
        (Kind::Topic, r#"{"id":1,"pattern":"a.*","topic":"a.b","other":[]}"#, r#"{"id":1,"match":true}"#),
        (Kind::Topic, r##"{"pattern":"#","topic":""}"##, r#"{"match":true}"#),
        (
            Kind::Topic,
            r##"{"patterns":{"z":"a.#","b":"*.b","c":"x"},"topic":"a.b"}"##,
            r#"{"names":["b","z"]}"#,
        ),
        (
            Kind::Topic,
            r#"{"id":"x","topic":"a"}"#,
            r#"{"error":{"code":"request.invalid","message":"the line needs \"pattern\", a string"},"id":"x"}"#,
        ),
        (
            Kind::Topic,
            "[1",
            r#"{"error":{"code":"json.invalid","message":"the text ends where \",\" or \"]\" should be, at byte 2"}}"#,
        ),
        (
            Kind::Topic,
            "[]",
            r#"{"error":{"code":"request.invalid","message":"the line is not a JSON object"}}"#,
        ),
        (Kind::Topic, "  ", ""),
        (
            Kind::Jsonpath,
            r#"{"query":"$.a[*]","document":{"a":[1,"x"]}}"#,
            r#"{"result":[1,"x"],"result_paths":["$['a'][0]","$['a'][1]"]}"#,
        ),
        (
            Kind::Filter,
            r#"{"filter":"payload.x > 1","event":{"payload":{"x":2}},"map":{"y":"$.payload.x"}}"#,
            r#"{"input":{"y":2},"match":true}"#,
        ),
        (
            Kind::Filter,
            r#"{"filter":"payload.x > 1","event":{"payload":{"x":1}},"map":{"y":"$.payload.x"}}"#,
            r#"{"match":false}"#,
        ),
        (
            Kind::Filter,
            r#"{"id":3,"filter":"1 / 0 > 1","event":{"payload":{}}}"#,
            r#"{"error":{"code":"expr.divide_by_zero","message":"division by zero, at byte 0"},"id":3,"match":false}"#,
        ),
        (
            Kind::Filter,
            r#"{"filter":{"field":"a","bad":1},"event":{}}"#,
            r#"{"error":{"code":"filter.invalid","message":"the filter has unknown keys: \"bad\""}}"#,
        ),
    ];
    for (kind, line, want) in table {
        assert_eq!(try_line(kind, line, Timestamp::EPOCH), want, "{line}");
    }
    assert_eq!((Kind::parse("cron"), Kind::parse("corn")), (Some(Kind::Cron), None));
}
