//! Filters of every form against one event, and what a caller may skip reading.

use serde_json::{Value, json};

use super::*;

fn event() -> Value {
    json!({
        "id": "e1", "position": 7, "topic": "price.changed", "time": "2026-01-02T03:04:05Z", "band": "amber",
        "subject": {"kind": "item", "id": "10472"},
        "payload": {"price": 9.5, "count": 3, "name": "Blue Widget", "nil": null, "tags": ["new", 1],
            "items": [{"x": 1}, {"x": 2}], "a.b": true, "at": "2026-01-01T00:00:00+02:00"},
    })
}

fn test(filter: Value) -> bool {
    let verdict = Filter::parse(&filter).and_then(|parsed| parsed.test(&event()));
    verdict.unwrap_or_else(|problem| panic!("{filter}: {problem}"))
}

#[test]
fn a_field_test_holds_by_its_operator() {
    let table = [
        ("payload.price", "eq", json!(9.5), true),
        ("payload.count", "eq", json!(3.0), true),
        ("payload.count", "eq", json!("3"), false),
        ("payload.items", "eq", json!([{"x": 1.0}, {"x": 2}]), true),
        ("payload.price", "ne", json!(9), true),
        ("payload.name", "in", json!(["x", "Blue Widget"]), true),
        ("payload.count", "in", json!([]), false),
        ("payload.name", "contains", json!("Wid"), true),
        ("payload.tags", "contains", json!(1.0), true),
        ("payload.tags", "contains", json!("ne"), false),
        ("payload.count", "contains", json!(3), false),
        ("payload.name", "prefix", json!("Blue"), true),
        ("payload.name", "suffix", json!("Blue"), false),
        ("payload.name", "glob", json!("B*W?dget"), true),
        ("payload.name", "glob", json!("Widget"), false),
        ("payload.name", "glob", json!("*"), true),
        ("payload.name", "regex", json!("^blue"), false),
        ("payload.name", "regex", json!("(?i)^blue w"), true),
        ("payload.count", "regex", json!("3"), false),
        ("payload.price", "gt", json!(9), true),
        ("payload.price", "gt", json!(9.5), false),
        ("payload.price", "gte", json!(9.5), true),
        ("payload.price", "lt", json!(10), true),
        ("payload.price", "lte", json!(9), false),
        ("payload.price", "gt", json!("9"), false),
        ("payload.name", "lt", json!("C"), true),
        ("time", "gt", json!("2026-01-02T04:04:04+01:00"), true),
        ("payload.at", "lt", json!("2026-01-01T00:00:00Z"), true),
        ("payload.nil", "exists", json!(true), true),
        ("payload.nil", "eq", json!(null), true),
        ("payload.nil", "gt", json!(0), false),
        ("payload.items[1].x", "eq", json!(2), true),
        ("payload[\"a.b\"]", "eq", json!(true), true),
        ("payload['items'][0].x", "exists", json!(true), true),
        ("position", "gte", json!(7), true),
    ];
    for (field, op, value, want) in table {
        let filter = json!({"field": field, op: value});
        assert_eq!(test(filter.clone()), want, "{filter}");
    }
}

#[test]
fn a_missing_field_passes_only_ne_and_exists_false() {
    let tests = [
        ("eq", json!(null)),
        ("eq", json!("")),
        ("in", json!([null])),
        ("contains", json!("")),
        ("prefix", json!("")),
        ("suffix", json!("")),
        ("glob", json!("*")),
        ("regex", json!("")),
        ("gt", json!(-1)),
        ("lte", json!(1)),
        ("exists", json!(true)),
    ];
    for field in ["payload.gone", "payload.items[9].x", "payload.price.x", "payload.nil.x", "gone"] {
        for (op, value) in &tests {
            assert!(!test(json!({"field": field, *op: value})), "{field} {op}");
        }
        assert!(test(json!({"field": field, "ne": 1})) && test(json!({"field": field, "exists": false})));
    }
    assert!(!test(json!({"field": "payload.price", "exists": false})));
}

#[test]
fn jsonpath_expression_and_junctions_join() {
    let price = json!({"field": "payload.price", "gt": 9});
    let no = json!({"field": "payload.price", "gt": 99});
    assert!(test(json!({"jsonpath": "$..x"})) && !test(json!({"jsonpath": "$..y"})));
    assert!(test(json!({"jsonpath": "$..x", "eq": 2.0})) && !test(json!({"jsonpath": "$..x", "eq": 3})));
    assert!(test(json!({"jsonpath": "$.payload.items[?@.x == 1]"})));
    assert!(test(json!("event.payload.price > 9 && topic == 'price.changed'")));
    assert!(test(json!({"and": [price, {"or": [no, "event.band == 'amber'"]}]})));
    assert!(test(json!({"not": no})) && test(json!({"and": []})) && !test(json!({"or": []})));
}

#[test]
fn an_expression_that_errs_is_an_error_unless_another_part_decides() {
    let filter = |value: Value| Filter::parse(&value).unwrap().test(&event());
    let bad = "payload.gone > 3";
    assert_eq!(filter(json!(bad)).unwrap_err().code(), Code::ExprType);
    assert_eq!(filter(json!({"not": bad})).unwrap_err().code(), Code::ExprType);
    assert_eq!(filter(json!({"or": [bad, "true"]})), Ok(true));
    assert_eq!(filter(json!({"and": [bad, "false"]})), Ok(false));
    assert!(filter(json!({"and": [bad, "true"]})).is_err());
}

#[test]
fn a_filter_says_what_it_reads() {
    let fields = |value: Value| Filter::parse(&value).unwrap().fields().map(<[String]>::to_vec);
    let needs = |value: Value| Filter::parse(&value).unwrap().needs_payload();
    assert_eq!(
        fields(json!("topic == 'a' && event.band == 'red'")),
        Some(vec!["topic".into(), "band".into()])
    );
    assert_eq!(
        fields(json!({"and": [{"field": "subject.id", "eq": "1"}, {"jsonpath": "$.key"}]})),
        Some(vec!["subject".into(), "key".into()])
    );
    assert_eq!(fields(json!({"jsonpath": "$..x"})), None);
    assert!(
        !needs(json!("topic == 'a'")) && needs(json!("payload.x == 1")) && needs(json!({"jsonpath": "$..x"}))
    );
    assert!(
        !needs(json!({"not": {"field": "band", "eq": "red"}}))
            && needs(json!({"field": "payload.x", "exists": true}))
    );
}

#[test]
fn text_may_be_an_expression_or_json() {
    assert!(Filter::parse_text("payload.price > 9").unwrap().test(&event()).unwrap());
    assert!(Filter::parse_text(" {\"field\":\"payload.price\",\"gt\":9}").unwrap().test(&event()).unwrap());
    assert_eq!(Filter::parse_text("{\"field\":").unwrap_err().code(), Code::JsonInvalid);
    assert_eq!(
        Filter::parse_text("{\"not\":\"true\",\"not\":\"true\"}").unwrap_err().code(),
        Code::JsonDuplicateKey
    );
}

#[test]
fn a_glob_with_many_stars_ends_soon() {
    let text = "a".repeat(20_000);
    let filter = json!({"field": "t", "glob": format!("{}b", "a*".repeat(50))});
    assert_eq!(Filter::parse(&filter).unwrap().test(&json!({"t": text})), Ok(false));
}
