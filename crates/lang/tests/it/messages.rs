//! What a person sees: golden messages of bad input, mappers, and lines of `everwhen try` as they are typed.

use lang::filter::Filter;
use lang::mapper::Mapper;
use lang::try_lines::{Kind, try_line};
use model::Problem;
use serde_json::{Value, json};

fn shown(problem: &Problem) -> String {
    let pointer = problem.pointer().map(|p| format!(" [{p}]")).unwrap_or_default();
    format!(
        "{}: {}{pointer}\n{}",
        problem.code(),
        problem.detail(),
        problem.hint_text().unwrap_or("(no hint)")
    )
}

fn refused(filter: Value) -> String {
    match Filter::parse(&filter) {
        Ok(_) => panic!("{filter} was taken"),
        Err(problem) => shown(&problem),
    }
}

#[test]
fn a_bad_expression_is_explained_at_its_place() {
    let table = [
        (
            "evnt.payload.price > 9",
            "expr.unknown_name: unknown name \"evnt\", at byte 0\ndid you mean \"event\"?\n  evnt.payload.price > 9\n  ^^^^",
        ),
        (
            "price > 9",
            "expr.unknown_name: unknown name \"price\", at byte 0\nnames here: event, topic, payload, subject\n  price > 9\n  ^^^^^",
        ),
        (
            "event.payload.price = 9",
            "expr.syntax: unexpected \"=\", at byte 20\ncompare with \"==\"\n  event.payload.price = 9\n                      ^",
        ),
        (
            "event.payload.price >",
            "expr.syntax: expected a value, found the end, at byte 21\n  event.payload.price >\n                       ^",
        ),
        (
            "(topic == 'a'",
            "expr.syntax: expected \")\", found the end, at byte 13\n  (topic == 'a'\n               ^",
        ),
        (
            "topic == 'a' and true",
            "expr.syntax: expected an operator or the end, found \"and\", at byte 13\nwrite \"&&\"\n  topic == 'a' and true\n               ^^^",
        ),
        (
            "topic == 'a' & true",
            "expr.syntax: unexpected \"&\", at byte 13\nboth: \"&&\"\n  topic == 'a' & true\n               ^",
        ),
        (
            "payload.name contains 'x'",
            "expr.syntax: expected an operator or the end, found \"contains\", at byte 13\ncall it as a method: .contains(…)\n  payload.name contains 'x'\n               ^^^^^^^^",
        ),
        (
            "topic == 'abc",
            "expr.syntax: the string has no end, at byte 9\nclose its quote\n  topic == 'abc\n           ^^^^",
        ),
        (
            "payload.name.startWith('x')",
            "expr.unknown_name: unknown function \"startWith\", at byte 13\ndid you mean \"startsWith\"?\n  payload.name.startWith('x')\n               ^^^^^^^^^",
        ),
        (
            "contains(topic, 'x')",
            "expr.syntax: \"contains\" is called otherwise, at byte 0\nwrite text.contains(…)\n  contains(topic, 'x')\n  ^^^^^^^^",
        ),
        (
            "payload.wait > 5m",
            "expr.syntax: \"5m\" is no number, at byte 15\ndurations are written duration(\"5m\")\n  payload.wait > 5m\n                 ^",
        ),
        (
            "topic.matches('a(')",
            "expr.syntax: the regular expression \"a(\" is not valid: unclosed group, at byte 14\n  topic.matches('a(')\n                ^^^^",
        ),
        (
            "$.payload.x == 1",
            "expr.syntax: unexpected \"$\", at byte 0\nexpressions begin with a name such as event; JSONPath goes into {\"jsonpath\": …}\n  $.payload.x == 1\n  ^",
        ),
        (
            "",
            "expr.syntax: the expression is empty, at byte 0\nwrite a test, such as event.payload.price > 9\n  \n  ^",
        ),
        (
            "topic ==\n  'a' ++ 'ü'",
            "expr.syntax: expected a value, found \"+\", at byte 16\n    'a' ++ 'ü'\n         ^",
        ),
    ];
    for (text, want) in table {
        assert_eq!(refused(json!(text)), want, "{text}");
    }
}

#[test]
fn a_failing_expression_is_explained_at_its_place() {
    let event = json!({"topic": "a", "payload": {"n": 5, "name": "x", "list": [1]}});
    let table = [
        (
            "payload.price > 9",
            "expr.type: \"payload.price\" is missing or null; \">\" needs a value, at byte 0\nask has(payload.price) first, or give a default with \"??\"\n  payload.price > 9\n  ^^^^^^^^^^^^^",
        ),
        (
            "payload.n",
            "expr.type: \"payload.n\" is an int, not true or false, at byte 0\ncompare it with something\n  payload.n\n  ^^^^^^^^^",
        ),
        (
            "payload.name > 3",
            "expr.type: \">\" does not go between a string and an int, at byte 0\nconvert one side with int(…), double(…) or string(…)\n  payload.name > 3\n  ^^^^^^^^^^^^^^^^",
        ),
        (
            "true && payload.list[3] == 1",
            "expr.index: there is no element 3 in a list of 1, at byte 8\ncheck its size() first\n  true && payload.list[3] == 1\n          ^^^^^^^^^^^^^^^",
        ),
        (
            "payload.n / 0 == 1",
            "expr.divide_by_zero: division by zero, at byte 0\ntest the divisor first\n  payload.n / 0 == 1\n  ^^^^^^^^^^^^^",
        ),
    ];
    for (text, want) in table {
        let problem = Filter::parse(&json!(text)).unwrap().test(&event).unwrap_err();
        assert_eq!(shown(&problem), want, "{text}");
    }
}

#[test]
fn a_bad_filter_is_explained_with_its_pointer() {
    let table = [
        (
            json!(7),
            "filter.invalid: a filter is a string or an object, not a number\nwrite \"event.payload.price > 9\" or {\"field\": \"payload.price\", \"gt\": 9}",
        ),
        (json!({}), "filter.invalid: the filter is empty\nleave it out to let everything pass"),
        (
            json!({"feild": "a", "eq": 1}),
            "filter.invalid: the filter has no test; \"feild\" is not known [/feild]\ndid you mean \"field\"?",
        ),
        (
            json!({"field": "a"}),
            "filter.invalid: the test of field \"a\" has no operator\ngive one of eq, ne, in, contains, prefix, suffix, glob, regex, gt, gte, lt, lte, exists",
        ),
        (
            json!({"field": "a", "gt": 1, "lt": 2}),
            "filter.invalid: the test of field \"a\" has two operators, \"gt\" and \"lt\"\nwrite two tests inside {\"and\": […]}",
        ),
        (
            json!({"field": "a", "gt": 1, "geq": 2}),
            "filter.invalid: the filter has unknown keys: \"geq\" [/geq]\ndid you mean \"eq\"?",
        ),
        (
            json!({"field": "a", "in": "x"}),
            "filter.invalid: \"in\" needs a list, not a string [/in]\nwrite {\"field\": \"payload.x\", \"in\": [\"a\", \"b\"]}",
        ),
        (
            json!({"field": "$.a", "eq": 1}),
            "filter.invalid: the field \"$.a\" is a JSONPath [/field]\na JSONPath goes into {\"jsonpath\": …}",
        ),
        (
            json!({"field": "a..b", "eq": 1}),
            "filter.invalid: the field \"a..b\" has an empty name [/field]\nwrite it like payload.items[0].price",
        ),
        (
            json!({"and": [{"field": "a", "eq": 1}, {"not": {"field": "b", "regex": "("}}]}),
            "filter.invalid: the regular expression \"(\" is not valid: unclosed group [/and/1/not/regex]\nlook-around and back-references are not part of this syntax",
        ),
        (
            json!({"or": ["true", {"jsonpath": "$["}]}),
            "jsonpath.invalid: JSONPath \"$[\": cannot be read from byte 1 on [/or/1/jsonpath]\na path looks like $.payload.items[0].price or $..price",
        ),
        (
            json!({"jsonpath": "$.a", "ne": 1}),
            "filter.invalid: the filter has unknown keys: \"ne\" [/ne]\nknown here: jsonpath, eq",
        ),
        (
            json!({"and": "true"}),
            "filter.invalid: \"and\" is not a list of filters [/and]\nwrite it in brackets",
        ),
        (
            json!({"field": "a", "jsonpath": "$"}),
            "filter.invalid: a filter has either \"field\" or \"jsonpath\", not both\njoin them with {\"and\": […]}",
        ),
        (
            json!({"and": ["evnt.x == 1"]}),
            "expr.unknown_name: unknown name \"evnt\", at byte 0 [/and/0]\ndid you mean \"event\"?\n  evnt.x == 1\n  ^^^^",
        ),
    ];
    for (filter, want) in table {
        assert_eq!(refused(filter.clone()), want, "{filter}");
    }
}

#[test]
fn a_mapper_takes_paths_literals_and_expressions() {
    let event = json!({"id": "e1", "topic": "order.paid", "time": "2026-01-01T00:00:00Z", "subject": {"kind": "order", "id": "7"},
        "payload": {"x": [1, 2], "nil": null, "n": 4}});
    let map = json!({"x": "$.payload.x", "all": "$.payload.x[*]", "nil": "$.payload.nil", "gone": "$.payload.gone", "none": "$.payload.gone[*]",
        "kind": "literal:foo", "empty": "literal:", "double": {"expr": "event.payload.n * 2"}, "id": "$.event_id", "type": "$.event_type",
        "entity": "$.entity_type", "key": "$.entity_id", "at": "$.occurred_at"});
    let want = json!({"x": [1, 2], "all": [1, 2], "nil": null, "kind": "foo", "empty": "", "double": 8, "id": "e1", "type": "order.paid",
        "entity": "order", "key": "7", "at": "2026-01-01T00:00:00Z"});
    assert_eq!(Value::Object(Mapper::parse(&map).unwrap().apply(&event).unwrap()), want);
    let bad = |map: Value| shown(&Mapper::parse(&map).unwrap_err());
    assert_eq!(
        bad(json!([])),
        "mapper.invalid: a mapper is an object of names and sources\nwrite {\"price\": \"$.payload.price\"}"
    );
    assert_eq!(
        bad(json!({"a/b": "payload.x"})),
        "mapper.invalid: the source of \"a/b\" is not understood [/a~1b]\nwrite \"$.payload.x\", \"literal:text\" or {\"expr\": \"…\"}"
    );
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
            r#"{"error":{"code":"request.invalid","message":"the line has no \"pattern\", or it is of the wrong kind"},"id":"x"}"#,
        ),
        (
            Kind::Topic,
            "{",
            r#"{"error":{"code":"json.invalid","message":"the text ends where a key in double quotes should be, at byte 1"}}"#,
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
            r#"{"id":3,"filter":"payload.x > 1","event":{"payload":{}}}"#,
            r#"{"error":{"code":"expr.type","message":"\"payload.x\" is missing or null; \">\" needs a value, at byte 0"},"id":3,"match":false}"#,
        ),
        (
            Kind::Filter,
            r#"{"filter":{"field":"a","bad":1},"event":{}}"#,
            r#"{"error":{"code":"filter.invalid","message":"the filter has unknown keys: \"bad\""}}"#,
        ),
    ];
    for (kind, line, want) in table {
        assert_eq!(try_line(kind, line), want, "{line}");
    }
    assert_eq!((Kind::parse("filter"), Kind::parse("cron")), (Some(Kind::Filter), None));
}
