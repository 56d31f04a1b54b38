//! Templates: text, types, filters, and where a fault is.

use serde_json::{Value, json};

use super::super::*;

fn made(text: &str) -> Result<Value, String> {
    let event = json!({"payload": {
        "n": 5, "name": "ann bo", "tags": ["a", "b"], "at": "2026-01-01T00:00:00Z", "empty": "",
        "map": {"k": 1},
    }});
    let now = Val::instant(model::Timestamp::parse("2026-01-01T00:10:00Z").unwrap());
    let template = Template::compile(text, &Scope::of(&["event", "now"])).map_err(|p| p.to_string())?;
    template.eval(&[Val::of(&event), now]).and_then(|v| v.to_json()).map_err(|p| p.to_string())
}

#[test]
fn a_whole_hole_keeps_its_type_and_others_become_text() {
    let table = [
        ("plain", json!("plain")),
        ("", json!("")),
        ("{{ event.payload.n }}", json!(5)),
        ("{{event.payload.tags}}", json!(["a", "b"])),
        ("{{ event.payload.gone }}", json!(null)),
        ("n={{ event.payload.n }}!", json!("n=5!")),
        ("{{ payload.n }}{{ payload.n }}", json!("55")),
        (" {{ payload.n }}", json!(" 5")),
        ("[{{ payload.gone }}] {{ payload.tags }} {{ payload.map }}", json!("[] [\"a\",\"b\"] {\"k\":1}")),
        ("{{ {a: {b: 1}} }}", json!({"a": {"b": 1}})),
        ("{{ '}}' + \"{{\" }} it's", json!("}}{{ it's")),
        ("{{ payload.n > 3 ? 'many' : 'few' }}", json!("many")),
        ("a } b }} c", json!("a } b }} c")),
    ];
    for (text, want) in table {
        assert_eq!(made(text), Ok(want), "{text}");
    }
}

#[test]
fn filters_shape_what_is_written() {
    let table = [
        ("{{ payload.name | upper }}", json!("ANN BO")),
        ("{{ payload.name | capitalize | truncate(4) }}", json!("Ann …")),
        ("{{ payload.gone | default('none') | upper }}", json!("NONE")),
        ("{{ payload.empty | default(7) }}", json!(7)),
        ("{{ payload.tags | join }}/{{ payload.tags | join('-') }}", json!("a, b/a-b")),
        ("{{ payload.tags | length }}", json!(2)),
        ("{{ payload.map | json }}", json!("{\"k\":1}")),
        ("{{ '  x ' | trim | replace('x', 'y') }}", json!("y")),
        ("{{ payload.tags | not }}{{ payload.empty | not }}", json!("falsetrue")),
        ("{{ payload.at | date('date') }} {{ payload.at | date('time') }}", json!("2026-01-01 00:00:00")),
        ("{{ payload.at | date('unix') }}", json!(1767225600)),
        ("{{ payload.at | date('rfc2822') }}", json!("Thu, 01 Jan 2026 00:00:00 +0000")),
        ("{{ now | iso }}", json!("2026-01-01T00:10:00Z")),
        ("{{ 5 | minutes }}", json!(300000)),
        ("{{ payload.at | duration_since }}", json!(600000)),
        ("{{ payload.at | older_than(5m) }}", json!(true)),
        ("{{ payload.at | older_than(600001) }}", json!(false)),
    ];
    for (text, want) in table {
        assert_eq!(made(text), Ok(want), "{text}");
    }
}

#[test]
fn a_fault_is_placed_in_the_whole_text() {
    let place = |text: &str| {
        let problem = Template::compile(text, &Scope::EVENT).unwrap_err();
        (problem.code().to_string(), problem.extra()["offset"].as_u64().unwrap())
    };
    assert_eq!(place("ä {{ evnt.x }}"), ("expr.unknown_name".to_owned(), 6));
    assert_eq!(place("ab {{ 1 + }}"), ("expr.syntax".to_owned(), 10));
    assert_eq!(place("ab {{ topic"), ("expr.syntax".to_owned(), 3));
    assert_eq!(place("{{ topic | uper }}"), ("expr.unknown_name".to_owned(), 11));
    assert_eq!(place("{{ topic topic }}"), ("expr.syntax".to_owned(), 9));
    assert_eq!(place("{{ topic | older_than(1) }}"), ("expr.unknown_name".to_owned(), 11));
    let said = made("ab {{ payload.n / 0 }}").unwrap_err();
    assert!(said.contains("division by zero, at byte 6"), "{said}");
}

#[test]
fn texts_in_a_document_are_filled_and_a_wrong_one_is_named() {
    let event = json!({"payload": {"n": 5}});
    let document =
        json!({"n": "{{ payload.n }}", "text": "n={{ payload.n }}", "deep": [1, {"k": "{{ topic }}"}]});
    let tree = TemplateTree::compile(&document, &Scope::EVENT).unwrap();
    let want = json!({"n": 5, "text": "n=5", "deep": [1, {"k": null}]});
    assert_eq!(tree.eval(&[Val::of(&event)]).unwrap(), want);
    assert!(tree.refs().event_fields.contains("payload.n"));
    let wrong = TemplateTree::compile(&json!({"a/b": ["{{ nope }}"]}), &Scope::EVENT).unwrap_err();
    assert_eq!(wrong.pointer(), Some("/a~1b/0"));
}
